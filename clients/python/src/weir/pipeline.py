"""The records of a producer, without I/O: what waits, what is in flight, and what became of it.

The blocking and the asyncio producer move bytes between this and a socket.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Callable, Deque, List, NamedTuple, Tuple

from .codec import MessageType
from .errors import (
    Outcome,
    ProtocolError,
    RefusedError,
    State,
    TransientError,
    UnknownReasonError,
    WeirError,
)
from .exchange import ReplyBuffer

Report = Callable[[Outcome], None]

CHUNK_BYTES = 64 << 10  # of frames that are written together; a larger frame goes alone
_ACKED = Outcome(State.ACKED)

_log = logging.getLogger("weir")


class _Record(NamedTuple):
    frame: bytes
    report: Report


class Pipeline:
    """Records in the order in which they were added, which is the order of their outcomes.

    A record waits until its frame is handed out to be written, and is in flight from then on. At most
    most_records of most_bytes of frames are in it; a frame above most_bytes has to be alone.
    """

    def __init__(self, most_records: int, most_bytes: int) -> None:
        self._most_records = max(1, most_records)
        self._most_bytes = most_bytes
        self._waiting: Deque[_Record] = deque()
        self._flying: Deque[Tuple[int, _Record]] = deque()  # with the end of each frame in the stream
        self._handed = 0  # bytes handed out on this connection
        self._bytes = 0
        self._replies = ReplyBuffer()
        self._useful = False  # a record got a definite answer on this connection

    def __len__(self) -> int:
        return len(self._waiting) + len(self._flying)

    @property
    def waiting(self) -> bool:
        """Whether a frame can be handed out."""
        return bool(self._waiting)

    @property
    def in_flight(self) -> int:
        """How many records are in flight."""
        return len(self._flying)

    def room(self, frame_bytes: int) -> bool:
        """Whether a frame of that length may be added."""
        count = len(self._waiting) + len(self._flying)
        return not count or (count < self._most_records and self._bytes + frame_bytes <= self._most_bytes)

    def add(self, frame: bytes, report: Report) -> None:
        """Add a record."""
        self._waiting.append(_Record(frame, report))
        self._bytes += len(frame)

    def hand_out(self) -> bytes:
        """Return the next frames to be written, empty if none waits; their records are in flight from now on."""
        frames: List[bytes] = []
        size = 0
        while self._waiting and (not size or size + len(self._waiting[0].frame) <= CHUNK_BYTES):
            record = self._waiting.popleft()
            frames.append(record.frame)
            size += len(record.frame)
            self._flying.append((self._handed + size, record))
        self._handed += size
        return b"".join(frames)

    def received(self, chunk: bytes, wrote: int) -> None:
        """Settle what chunk answers; wrote is how many of the bytes handed out were written.

        Raises the error that ends the connection. The records it leaves in flight are settled by lost.
        """
        replies, flying = self._replies, self._flying
        replies.feed(chunk)
        while flying:
            end, record = flying[0]
            try:
                if replies.next(MessageType.PUSH) is None:
                    return
            except TransientError as err:
                self._settle(Outcome(err.state, err))
            except (RefusedError, UnknownReasonError) as err:
                self._useful = True
                self._settle(Outcome(err.state, err))
                raise
            else:
                if end > wrote:
                    raise ProtocolError("UnexpectedReply", "an answer to a frame that is not written")
                self._useful = True
                self._settle(_ACKED)
        if len(replies):
            raise ProtocolError("UnexpectedReply", "nothing was asked")

    def lost(self, error: WeirError, wrote: int) -> bool:
        """End the connection: what is in flight is UNKNOWN, or waits again if nothing of it was written.

        Returns whether the connection was useful: a record got a definite answer on it.
        """
        while self._flying and self._flying[-1][0] - len(self._flying[-1][1].frame) >= wrote:
            self._waiting.appendleft(self._flying.pop()[1])
        while self._flying:
            self._settle(Outcome(State.UNKNOWN, error))
        self._handed = 0
        self._replies = ReplyBuffer()
        useful, self._useful = self._useful, False
        return useful

    def abandon(self, error: WeirError) -> None:
        """Give every record that still waits the outcome of error."""
        while self._waiting:
            record = self._waiting.popleft()
            self._bytes -= len(record.frame)
            _tell(record.report, Outcome(State.UNKNOWN, error))

    def _settle(self, outcome: Outcome) -> None:
        record = self._flying.popleft()[1]
        self._bytes -= len(record.frame)
        _tell(record.report, outcome)


def _tell(report: Report, outcome: Outcome) -> None:
    # A fault in a report must not change what becomes of other records.
    try:
        report(outcome)
    except Exception:
        _log.exception("weir: a report raised")


class Backoff:
    """Pauses between tries to connect: doubling from least to most seconds, each cut by up to half at random."""

    def __init__(self, least: float, most: float, jitter: Callable[[], float]) -> None:
        self._least = least
        self._most = most
        self._jitter = jitter
        self._failures = 0

    def after(self, useful: bool) -> float:
        """Return the seconds to wait after a connection, or a try at one, came to its end: 0 after a useful one."""
        if useful:
            self._failures = 0
            return 0.0
        pause = min(self._most, self._least * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return pause * (1 - self._jitter() / 2)
