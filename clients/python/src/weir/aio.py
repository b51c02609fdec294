"""The asyncio client and producer. An object of these belongs to one event loop."""

from __future__ import annotations

import asyncio
import os
import random
import select
import time
from types import TracebackType
from typing import Callable, List, Optional, Sequence, Type

from . import exchange
from .codec import Coordinate, Durability
from .errors import (
    ClosedError,
    ConnectError,
    RefusedError,
    TimedOutError,
    TransientError,
    UnknownOutcomeError,
    UnknownReasonError,
    WeirError,
)
from .exchange import DEFAULT_TIMEOUT_SECONDS, Payload, ReplyBuffer, Request, T, connect
from .link import READ_BYTES
from .pipeline import Backoff, Pipeline, Report
from .producer import DEFAULT_IN_FLIGHT, DEFAULT_IN_FLIGHT_BYTES, MAX_BACKOFF_SECONDS, MIN_BACKOFF_SECONDS
from .session import Session


class _Link:
    """A connection with one frame in flight. After any error but TransientError it must be closed."""

    def __init__(self, path: str) -> None:
        self._sock = connect(path)
        self._loop = asyncio.get_running_loop()
        self._replies = ReplyBuffer()
        self._pid = os.getpid()
        self._readable = select.poll()
        self._readable.register(self._sock, select.POLLIN)

    def close(self) -> None:
        """Close the connection; what another process has of it stays."""
        if self._pid == os.getpid():
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
        self._sock.close()

    def fit(self) -> bool:
        """Report whether the connection can take a request: it is of this process, and nothing came unasked."""
        return not len(self._replies) and self._pid == os.getpid() and not self._readable.poll(0)

    async def exchange(self, request: Request[T]) -> T:
        """Send the request and return its answer."""
        try:
            await self._loop.sock_sendall(self._sock, request.frame)
        except OSError as err:
            # The daemon may have refused the frame by its header and closed: its Nack is there to be read then.
            # Nothing else can be an answer to a frame that was not written.
            try:
                await self._read(request)
            except (RefusedError, UnknownReasonError):
                raise
            except WeirError:
                pass
            raise UnknownOutcomeError("write: %s" % err) from err
        return request.parse(await self._read(request))

    async def _read(self, request: Request[T]) -> bytes:
        while True:
            try:
                chunk = await self._loop.sock_recv(self._sock, READ_BYTES)
            except OSError as err:
                raise UnknownOutcomeError("read: %s" % err) from err
            if not chunk:
                raise UnknownOutcomeError("the daemon closed the connection")
            self._replies.feed(chunk)
            payload = self._replies.next(request.sent)
            if payload is not None:
                return payload


class AsyncClient:
    """Client for asyncio: tasks that share it take turns. See Client for path and timeout.

    A call that is cancelled drops the connection, and its record is UNKNOWN.
    """

    def __init__(self, path: Optional[str] = None, *, timeout: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        self._path = exchange.socket_path(path)
        self._timeout = timeout
        self._turn: Optional[asyncio.Lock] = None  # made with the first call, in its loop
        self._link: Optional[_Link] = None
        self._closed = False

    async def push(self, payload: Payload, durability: Durability = Durability.DURABLE) -> None:
        """As Client.push."""
        await self._call(exchange.push(payload, durability))

    async def push_tracked(self, payload: Payload, durability: Durability = Durability.DURABLE) -> Coordinate:
        """As Client.push_tracked."""
        return await self._call(exchange.push_tracked(payload, durability))

    async def push_batch(
        self, payloads: Sequence[Payload], durability: Durability = Durability.DURABLE
    ) -> List[bool]:
        """As Client.push_batch."""
        return await self._call(exchange.push_batch(payloads, durability))

    async def health(self) -> None:
        """As Client.health."""
        await self._call(exchange.health())

    async def close(self) -> None:
        """Close the connection, once a call that runs has ended. Later calls raise ClosedError."""
        self._closed = True
        if self._turn is None:
            return
        async with self._turn:
            self._drop()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.close()

    async def _call(self, request: Request[T]) -> T:
        if self._turn is None:
            self._turn = asyncio.Lock()
        began = False

        async def run(turn: asyncio.Lock) -> T:
            nonlocal began
            async with turn:
                if self._closed:
                    raise ClosedError("the client is closed")
                if self._link is not None and not self._link.fit():
                    self._drop()
                if self._link is None:
                    self._link = _Link(self._path)
                began = True
                try:
                    return await self._link.exchange(request)
                except TransientError:
                    raise
                except BaseException:
                    self._drop()
                    raise

        try:
            return await asyncio.wait_for(run(self._turn), self._timeout)
        except asyncio.TimeoutError:
            if began:
                raise TimedOutError("no answer in time") from None
            raise TransientError("other calls ran all the time; nothing was sent") from None

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None


class AsyncProducer:
    """Producer for asyncio; see there for the arguments. It is made and used in one event loop.

    Reports are called from the loop. Records that are sent between two turns of the loop are written together.
    """

    def __init__(
        self,
        path: Optional[str] = None,
        *,
        in_flight: int = DEFAULT_IN_FLIGHT,
        in_flight_bytes: int = DEFAULT_IN_FLIGHT_BYTES,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        min_backoff: float = MIN_BACKOFF_SECONDS,
        max_backoff: float = MAX_BACKOFF_SECONDS,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._path = exchange.socket_path(path)
        self._timeout = timeout
        self._backoff = Backoff(min_backoff, max_backoff, jitter)
        self._pipeline = Pipeline(in_flight, in_flight_bytes)
        self._pid = os.getpid()
        self._closed = False
        self._session: Optional[Session] = None
        self._writer = False  # the loop watches for writability
        self._turn: Optional[asyncio.Lock] = None  # of those who wait for room
        self._changed: Optional[asyncio.Future[None]] = None  # done when there are new outcomes
        self._pumping: Optional[asyncio.Handle] = None  # the next call of _pump, soon or after a pause
        self._watching: Optional[asyncio.TimerHandle] = None  # the next call of _watch

    async def send(
        self, payload: Payload, report: Report, durability: Durability = Durability.DURABLE
    ) -> None:
        """Take a record of 1 byte to 16 MiB; report is called once with its outcome. Waits while there is no room.

        Where it raises, also when it is cancelled, report is never called.
        """
        frame = exchange.push_frame(payload, durability)
        self._check()
        if self._turn is None:
            self._turn = asyncio.Lock()
        if self._turn.locked() or not self._pipeline.room(len(frame)):
            async with self._turn:
                while not self._pipeline.room(len(frame)):
                    await self._change()
                    self._check()
        self._pipeline.add(frame, report)
        if self._pumping is None:
            self._pumping = asyncio.get_running_loop().call_soon(self._pump)

    async def flush(self) -> None:
        """Wait until every record that was taken has its outcome."""
        while self._pipeline and not self._closed:
            await self._change()

    async def close(self, timeout: Optional[float] = DEFAULT_TIMEOUT_SECONDS) -> None:
        """Flush, for timeout seconds at most, and end the connection. Every report was called when this returns.

        What has no outcome by then is UNKNOWN; with a ClosedError it was not written. A second call does nothing.
        """
        try:
            await asyncio.wait_for(self.flush(), timeout)
        except asyncio.TimeoutError:
            pass  # the reports say it
        finally:
            self._closed = True
            self._lose(UnknownOutcomeError("the producer was closed before the answer came"))
            self._pipeline.abandon(ClosedError("the producer was closed before the record was written"))
            for handle in (self._pumping, self._watching):
                if handle is not None:
                    handle.cancel()
            self._notify()

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.close(0 if kind else DEFAULT_TIMEOUT_SECONDS)

    def _check(self) -> None:
        if self._closed or self._pid != os.getpid():
            raise ClosedError("the producer is closed, or that of another process")

    async def _change(self) -> None:
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)

    def _notify(self) -> None:
        if self._changed is not None:
            self._changed.set_result(None)
            self._changed = None

    def _pump(self) -> None:
        """Connect if need be, and write what waits."""
        self._pumping = None
        if not self._pipeline.waiting:
            return
        if self._session is None:
            try:
                self._session = Session(self._path, self._pipeline, self._timeout)
            except ConnectError:
                # No record hears of this: what waits goes on waiting.
                self._again(self._backoff.after(useful=False))
                return
            asyncio.get_running_loop().add_reader(self._session.sock, self._read)
        self._write()

    def _again(self, pause: float) -> None:
        if self._pumping is not None:
            self._pumping.cancel()
        self._pumping = asyncio.get_running_loop().call_later(pause, self._pump)

    def _write(self) -> None:
        session = self._session
        assert session is not None
        error = session.write()
        if error is not None:
            self._lose(error)
            return
        if session.blocked != self._writer:
            self._writer = session.blocked
            if self._writer:
                asyncio.get_running_loop().add_writer(session.sock, self._write)
            else:
                asyncio.get_running_loop().remove_writer(session.sock)
        if self._watching is None and self._pipeline.in_flight:
            self._watching = asyncio.get_running_loop().call_later(self._timeout, self._watch)

    def _read(self) -> None:
        assert self._session is not None
        error = self._session.read()
        if error is not None:
            self._lose(error)
        self._notify()

    def _watch(self) -> None:
        self._watching = None
        if self._session is None or not self._pipeline.in_flight:
            return
        error = self._session.late()
        if error is not None:
            self._lose(error)
        else:
            left = self._session.overdue - time.monotonic()
            self._watching = asyncio.get_running_loop().call_later(max(0.0, left), self._watch)

    def _lose(self, error: WeirError) -> None:
        if self._session is None:
            return
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._session.sock)
        loop.remove_writer(self._session.sock)
        self._writer = False
        useful = self._session.end(error)
        self._session = None
        self._again(self._backoff.after(useful))
        self._notify()
