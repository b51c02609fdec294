"""One connection of a producer: moves bytes between a pipeline and a socket that does not block."""

from __future__ import annotations

import select
import time
from typing import Optional

from .errors import TimedOutError, UnknownOutcomeError, WeirError
from .exchange import connect
from .link import READ_BYTES, SEND_FLAGS
from .pipeline import Pipeline


class Session:
    """A connection. Once a method returned an error it must be ended with it, and that is all it is good for."""

    def __init__(self, path: str, pipeline: Pipeline, timeout: float) -> None:
        self.sock = connect(path)
        self._pipeline = pipeline
        self._timeout = timeout
        self._rest = memoryview(b"")  # handed out and not written
        self._wrote = 0
        self._writing = True  # the writing side works
        self.overdue = 0.0
        """When the oldest record in flight is overdue, of time.monotonic; meaningless if none is."""

    @property
    def blocked(self) -> bool:
        """Whether write has to be called again when the socket is writable."""
        return self._writing and len(self._rest) > 0

    def write(self) -> Optional[WeirError]:
        """Write what the socket takes; return the error that ends the session."""
        while self._writing:
            if not self._rest:
                if not self._pipeline.waiting:
                    return None
                if not self._pipeline.in_flight:
                    error = self._unasked()
                    if error is not None:
                        return error
                    self.overdue = time.monotonic() + self._timeout
                self._rest = memoryview(self._pipeline.hand_out())
            try:
                n = self.sock.send(self._rest, SEND_FLAGS)
            except BlockingIOError:
                return None
            except OSError as err:
                if not self._wrote:
                    return UnknownOutcomeError("write: %s" % err)
                # There may be answers to be read, among them the Nack that tells why.
                self._writing = False
                return None
            self._wrote += n
            self._rest = self._rest[n:]
        return None

    def _unasked(self) -> Optional[WeirError]:
        # What came before anything was asked would be taken for the next answer. It may also be the end.
        poller = select.poll()
        poller.register(self.sock, select.POLLIN)
        return self.read() if poller.poll(0) else None

    def read(self) -> Optional[WeirError]:
        """Read once, without waiting, and settle what it answers; return the error that ends the session."""
        try:
            chunk = self.sock.recv(READ_BYTES)
        except BlockingIOError:
            return None
        except OSError as err:
            return UnknownOutcomeError("read: %s" % err)
        if not chunk:
            return UnknownOutcomeError("the daemon closed the connection")
        self.overdue = time.monotonic() + self._timeout
        try:
            self._pipeline.received(chunk, self._wrote)
        except UnknownOutcomeError as err:
            return err
        except WeirError as err:
            return UnknownOutcomeError("the daemon closed after an earlier record: %s" % err)
        return None

    def late(self) -> Optional[WeirError]:
        """Return the error that ends the session if the oldest record in flight is overdue."""
        if self._pipeline.in_flight and time.monotonic() >= self.overdue:
            return TimedOutError("no answer in time")
        return None

    def end(self, error: WeirError) -> bool:
        """Close the connection and settle what is in flight; return whether it was useful."""
        self.sock.close()
        return self._pipeline.lost(error, self._wrote)
