"""The Python client of the weir daemon, which keeps records safe on the local disk until they are delivered.

Client sends one frame at a time and returns its answer. Producer keeps many records in flight on one connection,
reconnects by itself, and reports what became of each record. AsyncClient and AsyncProducer are the same for asyncio.

Delivery is at least once. A record whose state is UNKNOWN may or may not be stored: send it again, and expect that
it may arrive twice. A connection is used no more after an error or a timeout, since what it would carry next could
be taken for the answer to something else.
"""

from .aio import AsyncClient, AsyncProducer
from .client import Client
from .codec import Coordinate, Durability, Reason
from .errors import (
    ClosedError,
    ConnectError,
    Outcome,
    ProtocolError,
    RefusedError,
    State,
    TimedOutError,
    TransientError,
    UnknownOutcomeError,
    UnknownReasonError,
    VersionMismatchError,
    WeirError,
)
from .producer import Producer

BUFFERED = Durability.BUFFERED
DURABLE = Durability.DURABLE

__all__ = [
    "BUFFERED",
    "DURABLE",
    "AsyncClient",
    "AsyncProducer",
    "Client",
    "ClosedError",
    "ConnectError",
    "Coordinate",
    "Durability",
    "Outcome",
    "Producer",
    "ProtocolError",
    "Reason",
    "RefusedError",
    "State",
    "TimedOutError",
    "TransientError",
    "UnknownOutcomeError",
    "UnknownReasonError",
    "VersionMismatchError",
    "WeirError",
]
