"""The blocking producer: many records in flight on one connection."""

from __future__ import annotations

import os
import random
import select
import threading
import time
from types import TracebackType
from typing import Callable, Optional, Type

from . import exchange
from .codec import Durability
from .errors import ClosedError, ConnectError, UnknownOutcomeError, WeirError
from .exchange import DEFAULT_TIMEOUT_SECONDS, Payload
from .pipeline import Backoff, Pipeline, Report
from .session import Session

DEFAULT_IN_FLIGHT = 256
DEFAULT_IN_FLIGHT_BYTES = 8 << 20
MIN_BACKOFF_SECONDS = 0.05
MAX_BACKOFF_SECONDS = 5.0

_SLICE_SECONDS = 0.05  # how long one wait holds the lock, so that close is seen
_EAGER_RECORDS = 64  # so many waiting records are written without lingering


class Producer:
    """Sends records with many in flight, reports what became of each in order, and reconnects with a growing pause.

    Every record that send took gets exactly one report. When a connection ends, each record in flight on it is
    UNKNOWN, and it is up to the caller to send it again; records that were not written keep waiting for the next
    connection. The I/O is done by the threads that call send and flush, and by a thread of the producer
    for what lingers, so a report may come from any of these. Threads may share a producer. It must be closed.

    path and timeout are those of Client; timeout is how long the daemon may leave the oldest record in flight
    unanswered. in_flight records of in_flight_bytes may be without an outcome before send waits. linger is
    how many seconds a record waits for others before it is written. jitter returns a number in [0, 1).
    """

    def __init__(
        self,
        path: Optional[str] = None,
        *,
        in_flight: int = DEFAULT_IN_FLIGHT,
        in_flight_bytes: int = DEFAULT_IN_FLIGHT_BYTES,
        linger: float = 0.002,
        timeout: float = DEFAULT_TIMEOUT_SECONDS,
        min_backoff: float = MIN_BACKOFF_SECONDS,
        max_backoff: float = MAX_BACKOFF_SECONDS,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._path = exchange.socket_path(path)
        self._linger = linger
        self._timeout = timeout
        self._backoff = Backoff(min_backoff, max_backoff, jitter)
        self._pid = os.getpid()
        # All of this is under the lock.
        self._lock = threading.RLock()
        self._pipeline = Pipeline(in_flight, in_flight_bytes)
        self._eager = min(_EAGER_RECORDS, max(1, in_flight))
        self._unwritten = 0  # records that were added since the last write
        self._busy = False  # a report runs
        self._closed = False
        self._session: Optional[Session] = None
        self._poller = select.poll()
        self._retry_at = 0.0  # when the next try to connect is due
        # Read and set without the lock.
        self._closing = False
        self._pending = threading.Event()  # there may be something to do for the thread
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tend, name="weir-producer", daemon=True)
        self._thread.start()

    def send(
        self,
        payload: Payload,
        report: Report,
        durability: Durability = Durability.DURABLE,
        timeout: Optional[float] = None,
    ) -> None:
        """Take a record of 1 byte to 16 MiB; report is called once with its outcome, and must not call the producer.

        Waits while there is no room, for timeout seconds at most; then it raises TimeoutError, and report is
        never called.
        """
        frame = exchange.push_frame(payload, durability)
        until = _until(timeout)
        self._check_process()
        with self._lock:
            self._check()
            while not self._pipeline.room(len(frame)):
                self._step(until)
                if self._closing:
                    raise ClosedError("the producer is closed")
                if time.monotonic() >= until and not self._pipeline.room(len(frame)):
                    raise TimeoutError("weir: no room; the record was not taken")
            self._pipeline.add(frame, report)
            self._unwritten += 1
            if self._unwritten >= self._eager:
                self._step(0.0)
            elif not self._pending.is_set():
                self._pending.set()

    def flush(self, timeout: Optional[float] = None) -> None:
        """Send what there is, and wait until every record that was taken has its outcome; else TimeoutError."""
        until = _until(timeout)
        self._check_process()
        with self._lock:
            self._check()
            while self._pipeline and not self._closing:
                self._step(until)
                if time.monotonic() >= until and self._pipeline:
                    raise TimeoutError("weir: %d records have no outcome yet" % len(self._pipeline))

    def close(self, timeout: Optional[float] = DEFAULT_TIMEOUT_SECONDS) -> None:
        """Flush, for timeout seconds at most, and end the connection. Every report was called when this returns.

        What has no outcome by then is UNKNOWN; with a ClosedError it was not written. A second call does nothing.
        """
        if self._pid != os.getpid() or self._ended.is_set():
            return
        try:
            self.flush(timeout)
        except (TimeoutError, ClosedError):
            pass  # the reports say it
        self._closing = True
        with self._lock:
            self._closed = True
            self._busy = True
            self._lose(UnknownOutcomeError("the producer was closed before the answer came"))
            self._pipeline.abandon(ClosedError("the producer was closed before the record was written"))
            self._busy = False
        self._ended.set()
        self._pending.set()
        self._thread.join()

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close(0 if kind else DEFAULT_TIMEOUT_SECONDS)

    def _check_process(self) -> None:
        # A forked process has the lock as it happened to be, and must not share the connection.
        if self._pid != os.getpid():
            raise ClosedError("the producer is that of another process")

    def _check(self) -> None:
        if self._closed:
            raise ClosedError("the producer is closed")
        if self._busy:
            raise RuntimeError("weir: a report must not call its producer")

    def _tend(self) -> None:
        """Run as the thread: do what lingers, whoever else calls or not."""
        while not self._ended.is_set():
            self._pending.wait()
            if self._ended.wait(self._linger):
                return
            with self._lock:
                self._step(0.0)
                if not self._pipeline:
                    self._pending.clear()

    def _step(self, until: float) -> None:
        """Do one round of writing and reading, and wait for it to be possible until then, or for a short while."""
        pause = max(0.0, min(until - time.monotonic(), _SLICE_SECONDS))
        if self._session is None and not self._connect(pause):
            return
        session = self._session
        assert session is not None
        self._unwritten = 0
        self._busy = True
        try:
            error = session.write()
            if error is None and self._pipeline.in_flight:
                self._poller.modify(session.sock, select.POLLIN | (select.POLLOUT if session.blocked else 0))
                for _, event in self._poller.poll(pause * 1000):
                    if event & ~select.POLLOUT:
                        error = session.read()
                error = error or session.late()
            if error is not None:
                self._lose(error)
        finally:
            self._busy = False

    def _connect(self, pause: float) -> bool:
        if not self._pipeline.waiting:
            return False
        wait = self._retry_at - time.monotonic()
        if wait > 0:
            time.sleep(min(wait, pause))
            return False
        try:
            self._session = Session(self._path, self._pipeline, self._timeout)
        except ConnectError:
            # No record hears of this: what waits goes on waiting.
            self._retry_at = time.monotonic() + self._backoff.after(useful=False)
            return False
        self._poller.register(self._session.sock, select.POLLIN)
        return True

    def _lose(self, error: WeirError) -> None:
        if self._session is not None:
            self._poller.unregister(self._session.sock)
            useful = self._session.end(error)
            self._session = None
            self._retry_at = time.monotonic() + self._backoff.after(useful)


def _until(timeout: Optional[float]) -> float:
    return float("inf") if timeout is None else time.monotonic() + timeout
