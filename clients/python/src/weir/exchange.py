"""Requests and their answers, without I/O: what the blocking and the asyncio side share."""

from __future__ import annotations

import errno
import os
import socket
from typing import Callable, Generic, List, Optional, Sequence, TypeVar, Union

from . import codec
from .codec import Coordinate, DecodeError, Durability, MessageType, Reason
from .errors import (
    ConnectError,
    ProtocolError,
    RefusedError,
    TransientError,
    UnknownReasonError,
    VersionMismatchError,
    versions,
)

T = TypeVar("T")
Payload = Union[bytes, bytearray, memoryview]

DEFAULT_SOCKET = "weir-data/weir.sock"
DEFAULT_TIMEOUT_SECONDS = 30.0

_ACK = codec.encode_frame(MessageType.ACK, Durability.DURABLE, b"")


def socket_path(path: Optional[str]) -> str:
    """Return path, or else WEIR_SOCKET, or else the socket of a `weir run` in the same folder."""
    return path or os.environ.get("WEIR_SOCKET") or DEFAULT_SOCKET


def connect(path: str) -> socket.socket:
    """Return a connected socket that does not block. Connecting to a Unix socket never waits."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.connect(path)
    except OSError as err:
        sock.close()
        text = "the daemon's queue of connections is full" if err.errno == errno.EAGAIN else str(err)
        raise ConnectError("connect to %s: %s" % (path, text)) from err
    except BaseException:
        sock.close()
        raise
    return sock


class Request(Generic[T]):
    """A frame and what reads its answer."""

    def __init__(self, frame: bytes, sent: MessageType, parse: Callable[[bytes], T]) -> None:
        self.frame = frame
        self.sent = sent
        self.parse = parse


def record_of(payload: Payload) -> bytes:
    """Return the bytes of a record that may be sent."""
    if not isinstance(payload, bytes):
        if not isinstance(payload, (bytearray, memoryview)):
            raise TypeError("weir: a record is bytes, not %s" % type(payload).__name__)
        payload = bytes(payload)
    if not payload:
        raise RefusedError(Reason.EMPTY_PAYLOAD, "a record has at least one byte")
    if len(payload) > codec.MAX_PAYLOAD_BYTES:
        raise RefusedError(
            Reason.PAYLOAD_TOO_LARGE, "a record of %d bytes, %d are possible" % (len(payload), codec.MAX_PAYLOAD_BYTES)
        )
    return payload


def push_frame(payload: Payload, durability: Durability) -> bytes:
    """Return the frame of a push."""
    return codec.encode_frame(MessageType.PUSH, _tier(durability), record_of(payload))


def _tier(durability: Durability) -> Durability:
    return durability if isinstance(durability, Durability) else Durability(durability)


def push(payload: Payload, durability: Durability) -> Request[None]:
    """Push one record."""
    return Request(push_frame(payload, durability), MessageType.PUSH, _nothing)


def health() -> Request[None]:
    """Ask whether the daemon answers."""
    return Request(
        codec.encode_frame(MessageType.HEALTH_CHECK, Durability.DURABLE, b""), MessageType.HEALTH_CHECK, _nothing
    )


def _nothing(_: bytes) -> None:
    return None


def push_tracked(payload: Payload, durability: Durability) -> Request[Coordinate]:
    """Push one record and get its coordinate, whose id is checked against the record."""
    record = record_of(payload)

    def parse(reply: bytes) -> Coordinate:
        try:
            at = codec.decode_coordinate(reply)
        except DecodeError as err:
            raise ProtocolError(err.verdict) from err
        if at.record_id != codec.record_id(at.segment, at.index, record):
            raise ProtocolError("UnexpectedReply", "the record id is that of another record")
        return at

    frame = codec.encode_frame(MessageType.PUSH_TRACKED, _tier(durability), record)
    return Request(frame, MessageType.PUSH_TRACKED, parse)


def push_batch(payloads: Sequence[Payload], durability: Durability) -> Request[List[bool]]:
    """Push many records in one frame."""
    if len(payloads) > codec.MAX_BATCH_RECORDS:
        raise RefusedError(
            Reason.PAYLOAD_TOO_LARGE,
            "a batch of %d records, %d are possible" % (len(payloads), codec.MAX_BATCH_RECORDS),
        )
    records = [record_of(p) for p in payloads]
    if not records:
        raise RefusedError(Reason.BAD_BATCH_FRAMING, "a batch without records")
    size = codec.BATCH_PREFIX_BYTES + sum(codec.BATCH_RECORD_OVERHEAD_BYTES + len(r) for r in records)
    if size > codec.MAX_PAYLOAD_BYTES:
        raise RefusedError(
            Reason.PAYLOAD_TOO_LARGE, "a batch of %d bytes, %d are possible" % (size, codec.MAX_PAYLOAD_BYTES)
        )

    def parse(reply: bytes) -> List[bool]:
        try:
            return codec.decode_ack_batch(reply, len(records))
        except DecodeError as err:
            raise ProtocolError(err.verdict) from err

    frame = codec.encode_frame(MessageType.PUSH_BATCH, _tier(durability), codec.encode_batch(records))
    return Request(frame, MessageType.PUSH_BATCH, parse)


class ReplyBuffer:
    """The bytes that came on one connection, and the answers in them.

    It holds what it was fed last and, before that, less than one frame of an answer: nothing is kept or sized
    by a length that a peer declared before that length was held against the cap of its type.
    """

    __slots__ = ("_data", "_at")

    def __init__(self) -> None:
        self._data = b""
        self._at = 0

    def __len__(self) -> int:
        return len(self._data) - self._at

    def feed(self, chunk: bytes) -> None:
        """Add what was read."""
        self._data = self._data[self._at :] + chunk if len(self) else chunk
        self._at = 0

    def next(self, sent: MessageType) -> Optional[bytes]:
        """Return the payload of the answer to a frame of type sent, or None if it is not all there.

        Raises RefusedError, TransientError or UnknownReasonError where the answer is a Nack, and ProtocolError where
        it is none. The connection is of use only after an answer and after a TransientError.
        """
        if sent == MessageType.PUSH and self._data.startswith(_ACK, self._at):
            self._at += len(_ACK)
            return b""
        try:
            return self._next(sent)
        except DecodeError as err:
            text = versions(err.version) if err.verdict == "VersionMismatch" else ""
            raise ProtocolError(err.verdict, text) from err

    def _next(self, sent: MessageType) -> Optional[bytes]:
        have = len(self)
        if have < codec.HEADER_BYTES:
            return None
        at = self._at + codec.HEADER_BYTES
        header = codec.decode_reply_header(self._data[self._at : at], sent)
        end = at + header.payload_bytes + codec.TRAILER_BYTES
        if end > len(self._data):
            return None
        payload = codec.decode_payload(self._data[at:end])
        self._at = end
        if header.type == MessageType.NACK:
            raise _nack(*codec.decode_nack(payload))
        return payload


def _nack(reason: int, version: int) -> Exception:
    if reason == Reason.INTERNAL_ERROR:
        return TransientError("the daemon could not store it now, InternalError (0x06)")
    if reason == Reason.VERSION_MISMATCH:
        return VersionMismatchError(version)
    if reason in Reason._value2member_map_:
        return RefusedError(reason)
    return UnknownReasonError(reason)
