"""The codec of weir wire v1: values to bytes and back, without I/O.

A frame is a 16-byte header, the payload and the CRC-32 of the payload, all integers little-endian:

    offset  size  field
     0      4     magic "WEIR"
     4      1     version, 1
     5      1     message type
     6      1     durability
     7      1     flags, zero
     8      4     payload length n, without the CRC
    12      4     CRC-32 of bytes 0 to 11
    16      n     payload
    16+n    4     CRC-32 of the payload

Every decoder raises DecodeError, whose verdict is the name that the conformance vectors use, and checks a
declared length before anything is sized by it. Encoders do not check their arguments; the client does.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import struct
from typing import List, NamedTuple, Sequence, Tuple
from zlib import crc32

WIRE_VERSION = 1
HEADER_BYTES = 16
TRAILER_BYTES = 4
MAX_PAYLOAD_BYTES = 16 << 20
MAX_BATCH_RECORDS = 2048
MAX_SEGMENT_BYTES = 255

BATCH_PREFIX_BYTES = 3
BATCH_RECORD_OVERHEAD_BYTES = 4
COORDINATE_FIXED_BYTES = 43
RECORD_ID_BYTES = 32

_MAGIC = b"WEIR"
_BODY_VERSION = 1  # of a batch body, of the answer to one, and of a coordinate
_HEADER = struct.Struct("<4sBBBBI")
_U32 = struct.Struct("<I")
_BODY_PREFIX = struct.Struct("<BH")
_COORDINATE = struct.Struct("<BQ32sH")
_RETIRED_DURABILITY = 2


class Durability(enum.IntEnum):
    """How safe a record has to be before it is acked."""

    DURABLE = 1
    """It is on stable storage."""
    BUFFERED = 3
    """Its write reached the operating system: it survives the death of the daemon, not of the machine."""


class MessageType(enum.IntEnum):
    """Byte 5 of a header."""

    PUSH = 1
    ACK = 2
    NACK = 3
    HEALTH_CHECK = 4
    HEALTH_CHECK_RESPONSE = 5
    PUSH_TRACKED = 6
    ACK_TRACKED = 7
    PUSH_BATCH = 8
    ACK_BATCH = 9


class Reason(enum.IntEnum):
    """Why a daemon refused a frame. 0x0A is never assigned."""

    BAD_MAGIC = 0x01
    VERSION_MISMATCH = 0x02
    BAD_HEADER_CRC = 0x03
    PAYLOAD_TOO_LARGE = 0x04
    BAD_PAYLOAD_CRC = 0x05
    INTERNAL_ERROR = 0x06
    EMPTY_PAYLOAD = 0x07
    UNKNOWN_MESSAGE = 0x08
    RESERVED_FLAGS_SET = 0x09
    BAD_BATCH_FRAMING = 0x0B


_REASON_NAMES = {int(r): "".join(part.capitalize() for part in r.name.split("_")) for r in Reason}


def reason_name(reason: int) -> str:
    """Return the name in the protocol, like PayloadTooLarge; of an unassigned byte the byte, like 0x0A."""
    return _REASON_NAMES.get(reason, "0x%02X" % reason)


# What answers a request, and the largest payload of each answer in bytes.
REPLY_TO = {
    MessageType.PUSH: MessageType.ACK,
    MessageType.HEALTH_CHECK: MessageType.HEALTH_CHECK_RESPONSE,
    MessageType.PUSH_TRACKED: MessageType.ACK_TRACKED,
    MessageType.PUSH_BATCH: MessageType.ACK_BATCH,
}
MAX_REPLY_BYTES = {
    MessageType.ACK: 0,
    MessageType.NACK: 2,
    MessageType.HEALTH_CHECK_RESPONSE: 0,
    MessageType.ACK_TRACKED: COORDINATE_FIXED_BYTES + MAX_SEGMENT_BYTES,
    MessageType.ACK_BATCH: BATCH_PREFIX_BYTES + MAX_BATCH_RECORDS // 8,
}


class DecodeError(ValueError):
    """Bytes that are not what they should be."""

    def __init__(self, verdict: str, version: int = WIRE_VERSION) -> None:
        super().__init__(verdict)
        self.verdict = verdict
        """The name of the verdict, like BadMagic."""
        self.version = version
        """The version byte of the header, with the verdict VersionMismatch."""


class Header(NamedTuple):
    """A decoded header; payload_bytes is within the cap that the decoder was given."""

    type: MessageType
    durability: Durability
    payload_bytes: int


@dataclasses.dataclass(frozen=True)
class Coordinate:
    """Where a record landed."""

    segment: str
    """The address of the segment: opaque, not a path."""
    index: int
    """The place in the segment, from 1."""
    record_id: bytes
    """32 bytes, SHA-256."""

    @property
    def key(self) -> str:
        """The idempotency key that the sink gets with the record, sha256: and 64 hex digits."""
        return "sha256:" + self.record_id.hex()


@functools.lru_cache(maxsize=1024)
def _header(mtype: int, durability: int, payload_bytes: int) -> bytes:
    head = _HEADER.pack(_MAGIC, WIRE_VERSION, mtype, durability, 0, payload_bytes)
    return head + _U32.pack(crc32(head))


def encode_frame(mtype: int, durability: int, payload: bytes) -> bytes:
    """Return a whole frame."""
    return b"".join((_header(mtype, durability, len(payload)), payload, _U32.pack(crc32(payload))))


def decode_header(head: bytes, most: int = MAX_PAYLOAD_BYTES) -> Header:
    """Read the 16 bytes of a header in the mandatory order; a payload may have up to most bytes."""
    if len(head) < HEADER_BYTES:
        raise DecodeError("TruncatedFrame")
    magic, version, mtype, durability, flags, length = _HEADER.unpack_from(head)
    if magic != _MAGIC:
        raise DecodeError("BadMagic")
    if version != WIRE_VERSION:
        raise DecodeError("VersionMismatch", version)
    if crc32(head[: _HEADER.size]) != _U32.unpack_from(head, _HEADER.size)[0]:
        raise DecodeError("HeaderCrcMismatch")
    if mtype not in MessageType._value2member_map_:
        raise DecodeError("UnknownMessageType")
    if durability == _RETIRED_DURABILITY:
        durability = Durability.DURABLE
    elif durability not in Durability._value2member_map_:
        raise DecodeError("UnknownDurability")
    if flags:
        raise DecodeError("ReservedFlagsSet")
    if length > most:
        raise DecodeError("PayloadTooLarge")
    return Header(MessageType(mtype), Durability(durability), length)


def decode_reply_header(head: bytes, sent: MessageType) -> Header:
    """Read the header of an answer to a frame of type sent, with the cap of the answer's own type."""
    header = decode_header(head)
    if header.type not in (MessageType.NACK, REPLY_TO[sent]):
        raise DecodeError("UnexpectedReply")
    if header.payload_bytes > MAX_REPLY_BYTES[header.type]:
        raise DecodeError("PayloadTooLarge")
    return header


def decode_payload(body: bytes) -> bytes:
    """Split what follows a header, payload and CRC, and return the payload once the CRC was checked."""
    payload = body[:-TRAILER_BYTES]
    if crc32(payload) != _U32.unpack_from(body, len(payload))[0]:
        raise DecodeError("PayloadCrcMismatch")
    return payload


def decode_frame(raw: bytes) -> Tuple[Header, bytes]:
    """Read bytes that are exactly one frame."""
    header = decode_header(raw)
    end = HEADER_BYTES + header.payload_bytes + TRAILER_BYTES
    if len(raw) < end:
        raise DecodeError("TruncatedFrame")
    if len(raw) > end:
        raise DecodeError("TrailingBytes")
    return header, decode_payload(raw[HEADER_BYTES:])


def encode_nack(reason: int, version: int = WIRE_VERSION) -> bytes:
    """Return the payload of a Nack; version goes with VersionMismatch alone."""
    return bytes((reason, version)) if reason == Reason.VERSION_MISMATCH else bytes((reason,))


def decode_nack(payload: bytes) -> Tuple[int, int]:
    """Return the reason, which may be an unassigned one, and the daemon's version or 0."""
    if not payload:
        raise DecodeError("Truncated")
    if len(payload) != (2 if payload[0] == Reason.VERSION_MISMATCH else 1):
        raise DecodeError("LengthMismatch")
    return payload[0], payload[1] if len(payload) == 2 else 0


def encode_batch(records: Sequence[bytes]) -> bytes:
    """Return the body of a PushBatch."""
    parts = [_BODY_PREFIX.pack(_BODY_VERSION, len(records))]
    for record in records:
        parts.append(_U32.pack(len(record)))
        parts.append(record)
    return b"".join(parts)


def decode_batch(body: bytes) -> List[bytes]:
    """Read the body of a PushBatch in the order of its checks."""
    count, at = _decode_count(body), BATCH_PREFIX_BYTES
    if count > MAX_BATCH_RECORDS:
        raise DecodeError("TooManyRecords")
    records = []
    for _ in range(count):
        if len(body) - at < BATCH_RECORD_OVERHEAD_BYTES:
            raise DecodeError("TruncatedRecord")
        length = _U32.unpack_from(body, at)[0]
        at += BATCH_RECORD_OVERHEAD_BYTES
        if length == 0:
            raise DecodeError("EmptyRecord")
        if length > MAX_PAYLOAD_BYTES:
            raise DecodeError("RecordTooLarge")
        if len(body) - at < length:
            raise DecodeError("TruncatedRecord")
        records.append(body[at : at + length])
        at += length
    if at != len(body):
        raise DecodeError("LengthMismatch")
    return records


def _decode_count(body: bytes) -> int:
    if len(body) < BATCH_PREFIX_BYTES:
        raise DecodeError("Truncated")
    version, count = _BODY_PREFIX.unpack_from(body)
    if version != _BODY_VERSION:
        raise DecodeError("UnsupportedVersion")
    if count == 0:
        raise DecodeError("EmptyBatch")
    return int(count)


def encode_ack_batch(acked: Sequence[bool]) -> bytes:
    """Return the payload of an AckBatch: bit i is byte i / 8, mask 1 << (i % 8)."""
    bits = sum(1 << i for i, ok in enumerate(acked) if ok)
    return _BODY_PREFIX.pack(_BODY_VERSION, len(acked)) + bits.to_bytes((len(acked) + 7) // 8, "little")


def decode_ack_batch(payload: bytes, sent: int) -> List[bool]:
    """Read the answer to a batch of sent records: element i tells whether record i is acked."""
    count = _decode_count(payload)
    if count != sent or len(payload) != BATCH_PREFIX_BYTES + (count + 7) // 8:
        raise DecodeError("LengthMismatch")
    bits = int.from_bytes(payload[BATCH_PREFIX_BYTES:], "little")
    if bits >> count:
        raise DecodeError("PaddingNotZero")
    return [bits >> i & 1 == 1 for i in range(count)]


def encode_coordinate(at: Coordinate) -> bytes:
    """Return the payload of an AckTracked."""
    segment = at.segment.encode()
    return _COORDINATE.pack(_BODY_VERSION, at.index, at.record_id, len(segment)) + segment


def decode_coordinate(payload: bytes) -> Coordinate:
    """Read a payload that must be exactly one coordinate."""
    if len(payload) < COORDINATE_FIXED_BYTES:
        raise DecodeError("Truncated")
    version, index, record_id, length = _COORDINATE.unpack_from(payload)
    if version != _BODY_VERSION:
        raise DecodeError("UnsupportedVersion")
    if length > MAX_SEGMENT_BYTES:
        raise DecodeError("SegmentTooLong")
    if len(payload) != COORDINATE_FIXED_BYTES + length:
        raise DecodeError("LengthMismatch")
    try:
        segment = payload[COORDINATE_FIXED_BYTES:].decode()
    except UnicodeDecodeError:
        raise DecodeError("SegmentNotUtf8") from None
    return Coordinate(segment, index, record_id)


def record_id(segment: str, index: int, payload: bytes) -> bytes:
    """Return the SHA-256 over the segment, the index and the payload, every length a u64."""
    name = segment.encode()
    digest = hashlib.sha256(struct.pack("<Q", len(name)) + name + struct.pack("<QQ", index, len(payload)))
    digest.update(payload)
    return digest.digest()
