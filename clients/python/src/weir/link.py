"""One connection of a blocking client."""

from __future__ import annotations

import os
import select
import socket
import time

from .errors import ProtocolError, RefusedError, TimedOutError, UnknownOutcomeError, UnknownReasonError
from .exchange import ReplyBuffer, Request, T, connect

READ_BYTES = 64 << 10  # of one read
# Without SIGPIPE, also in programs that set it back to its default.
SEND_FLAGS = getattr(socket, "MSG_NOSIGNAL", 0)


class Link:
    """A connection with one frame in flight. After any error but TransientError it must be closed."""

    def __init__(self, path: str) -> None:
        self._sock = connect(path)
        self._replies = ReplyBuffer()
        self._pid = os.getpid()
        self._readable = select.poll()
        self._readable.register(self._sock, select.POLLIN)
        self._writable = select.poll()
        self._writable.register(self._sock, select.POLLOUT)

    def close(self) -> None:
        """Close the connection; what another process has of it stays."""
        self._sock.close()

    def fit(self) -> bool:
        """Report whether the connection can take a request: it is of this process, and nothing came unasked.

        A forked process must not share it, and bytes that nobody asked for would be taken for the next answer.
        """
        return not len(self._replies) and self._pid == os.getpid() and not self._readable.poll(0)

    def exchange(self, request: Request[T], deadline: float) -> T:
        """Send the request and return its answer."""
        try:
            self._write(request.frame, deadline)
        except OSError as err:
            self._refusal(request, deadline)
            raise UnknownOutcomeError("write: %s" % err) from err
        return request.parse(self._read(request, deadline))

    def _refusal(self, request: Request[T], deadline: float) -> None:
        # The daemon may have refused the frame by its header and closed: its Nack is there to be read then.
        # Nothing else can be an answer to a frame that was not written.
        try:
            self._read(request, deadline)
        except (RefusedError, UnknownReasonError):
            raise
        except Exception:
            return

    def _write(self, frame: bytes, deadline: float) -> None:
        rest = memoryview(frame)
        while rest:
            try:
                rest = rest[self._sock.send(rest, SEND_FLAGS) :]
            except BlockingIOError:
                _wait(self._writable, deadline)

    def _read(self, request: Request[T], deadline: float) -> bytes:
        while True:
            _wait(self._readable, deadline)
            try:
                chunk = self._sock.recv(READ_BYTES)
            except BlockingIOError:
                continue
            except OSError as err:
                raise UnknownOutcomeError("read: %s" % err) from err
            if not chunk:
                raise UnknownOutcomeError("the daemon closed the connection")
            self._replies.feed(chunk)
            payload = self._replies.next(request.sent)
            if payload is not None:
                return payload


def _wait(poller: select.poll, deadline: float) -> None:
    left = deadline - time.monotonic()
    if left <= 0 or not poller.poll(left * 1000):
        raise TimedOutError("no answer in time")
