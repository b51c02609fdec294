"""What can become of a record, and the errors that say it."""

from __future__ import annotations

import enum
from typing import NamedTuple, Optional

from . import codec


class State(enum.Enum):
    """What is known of a record."""

    ACKED = "acked"
    """It is as safe as it was asked to be."""
    REFUSED = "refused"
    """It is not stored, and sending it again will not help."""
    UNKNOWN = "unknown"
    """It may be stored or not: send it again, and expect that it may arrive twice."""


class WeirError(Exception):
    """The base of all errors of this package."""

    state = State.UNKNOWN
    """What the error means for the records of the call."""

    def __str__(self) -> str:
        return "weir: " + super().__str__()


class RefusedError(WeirError):
    """The record, or the whole batch, is not stored and never will be: do not send it again as it is.

    A check before sending gives the reason that the daemon would give.
    """

    state = State.REFUSED

    def __init__(self, reason: int, text: str = "") -> None:
        self.reason = reason
        """The byte of the protocol; a codec.Reason compares equal to it."""
        self.name = codec.reason_name(reason)
        """Its name, like PayloadTooLarge."""
        super().__init__("refused, %s (0x%02X)%s" % (self.name, reason, text and ": " + text))


class VersionMismatchError(RefusedError):
    """The daemon speaks another version of the protocol."""

    def __init__(self, daemon_version: int) -> None:
        self.daemon_version = daemon_version
        self.client_version = codec.WIRE_VERSION
        super().__init__(codec.Reason.VERSION_MISMATCH, versions(daemon_version))


def versions(daemon_version: int) -> str:
    """Say both sides of a version mismatch."""
    return "the daemon is on wire protocol v%d, this client on v%d: upgrade the older one" % (
        daemon_version,
        codec.WIRE_VERSION,
    )


class TransientError(WeirError):
    """Not now: send it again after a pause. The connection goes on.

    With the daemon's InternalError the record may still be stored; with nobody at the socket it is not.
    """


class ConnectError(TransientError):
    """Nobody answers at the socket. Nothing was sent."""


class UnknownOutcomeError(WeirError):
    """It was sent, and there is no valid answer. The connection was dropped; the next call makes a new one."""


class TimedOutError(UnknownOutcomeError):
    """The answer did not come in time."""


class ProtocolError(UnknownOutcomeError):
    """The answer was not one."""

    def __init__(self, verdict: str, text: str = "") -> None:
        self.verdict = verdict
        """What was wrong, as the conformance vectors call it."""
        super().__init__("bad reply, %s%s" % (verdict, text and ": " + text))


class UnknownReasonError(UnknownOutcomeError):
    """The daemon refused the frame for a reason that this client does not know, so nothing is assumed of it."""

    def __init__(self, reason: int) -> None:
        self.reason = reason
        """The byte as it came."""
        self.name = codec.reason_name(reason)
        """The byte in hex, like 0x0A."""
        super().__init__("refused for an unknown reason, " + self.name)


class ClosedError(WeirError):
    """The client or producer is closed; the record was not sent."""


class Outcome(NamedTuple):
    """What became of one record of a producer; error says why it is not ACKED."""

    state: State
    error: Optional[WeirError] = None
