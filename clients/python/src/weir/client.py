"""The blocking client."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import List, Optional, Sequence, Type

from . import exchange
from .codec import Coordinate, Durability
from .errors import ClosedError, TransientError
from .exchange import DEFAULT_TIMEOUT_SECONDS, Payload, Request, T
from .link import Link


class Client:
    """Sends one frame at a time over one connection, which it makes when it is needed and drops after an error.

    path is the daemon's socket; without it WEIR_SOCKET counts, else weir-data/weir.sock. timeout is in seconds and
    bounds each call. Threads may share a client; they take turns.
    """

    def __init__(self, path: Optional[str] = None, *, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        self._path = exchange.socket_path(path)
        self._timeout = timeout
        self._turn = threading.Lock()
        self._link: Optional[Link] = None
        self._closed = False

    def push(self, payload: Payload, durability: Durability = Durability.DURABLE) -> None:
        """Send one record of 1 byte to 16 MiB and return once it is as safe as durability asks for.

        Raises RefusedError, TransientError or UnknownOutcomeError.
        """
        self._call(exchange.push(payload, durability))

    def push_tracked(self, payload: Payload, durability: Durability = Durability.DURABLE) -> Coordinate:
        """Push a record and return where it landed.

        A daemon that is too old for this raises RefusedError with UNKNOWN_MESSAGE.
        """
        return self._call(exchange.push_tracked(payload, durability))

    def push_batch(self, payloads: Sequence[Payload], durability: Durability = Durability.DURABLE) -> List[bool]:
        """Send 1 to 2048 records in one frame of at most 16 MiB (a daemon may take fewer: 1024 by default).

        Element i of the result tells whether record i is as safe as durability asks for; where it is False the
        record's state is UNKNOWN: send it again. An error holds for all records alike.
        """
        return self._call(exchange.push_batch(payloads, durability))

    def health(self) -> None:
        """Return if the daemon answers, else raise."""
        self._call(exchange.health())

    def close(self) -> None:
        """Close the connection, once a call that runs has ended. Later calls raise ClosedError."""
        self._closed = True
        with self._turn:
            self._drop()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def _call(self, request: Request[T]) -> T:
        deadline = time.monotonic() + self._timeout
        if not self._turn.acquire(timeout=max(0.0, self._timeout)):
            raise TransientError("another call ran all the time; nothing was sent")
        try:
            if self._closed:
                raise ClosedError("the client is closed")
            if self._link is not None and not self._link.fit():
                self._drop()
            if self._link is None:
                self._link = Link(self._path)
            try:
                return self._link.exchange(request, deadline)
            except TransientError:
                raise
            except BaseException:
                self._drop()
                raise
        finally:
            self._turn.release()

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None
