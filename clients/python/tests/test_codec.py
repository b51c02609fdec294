"""The names and numbers are those of the conformance suite, which drives the codec itself."""

import json
import pathlib

import pytest

from weir import codec
from weir.codec import DecodeError, Durability, MessageType, Reason

CODES = json.loads(
    (pathlib.Path(__file__).resolve().parents[3] / "conformance" / "vectors" / "codes.json").read_text()
)


def camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def test_types() -> None:
    assert {t.value: camel(t.name) for t in MessageType} == {t["number"]: t["name"] for t in CODES["types"]}


def test_reasons() -> None:
    assert {r.value: codec.reason_name(r) for r in Reason} == {r["number"]: r["name"] for r in CODES["reasons"]}
    for reserved in CODES["reserved_reasons"]:
        assert codec.reason_name(reserved) == "0x%02X" % reserved


def test_durabilities() -> None:
    written = {d["number"]: d["name"] for d in CODES["durabilities"] if d["written"]}
    assert {d.value: camel(d.name) for d in Durability} == written


def test_caps() -> None:
    caps = CODES["caps"]
    got = {
        "header_bytes": codec.HEADER_BYTES,
        "trailer_bytes": codec.TRAILER_BYTES,
        "payload_bytes": codec.MAX_PAYLOAD_BYTES,
        "batch_records": codec.MAX_BATCH_RECORDS,
        "segment_bytes": codec.MAX_SEGMENT_BYTES,
        "nack_bytes": codec.MAX_REPLY_BYTES[MessageType.NACK],
        "ack_tracked_bytes": codec.MAX_REPLY_BYTES[MessageType.ACK_TRACKED],
        "ack_batch_bytes": codec.MAX_REPLY_BYTES[MessageType.ACK_BATCH],
    }
    assert got == caps
    assert codec.WIRE_VERSION == CODES["wire_version"]


@pytest.mark.parametrize("sent", list(codec.REPLY_TO))
@pytest.mark.parametrize("reply", list(MessageType))
def test_reply_header(sent: MessageType, reply: MessageType) -> None:
    """An answer is taken for the request that it answers, with the cap of its own type."""
    fits = reply in (MessageType.NACK, codec.REPLY_TO[sent])
    most = codec.MAX_REPLY_BYTES.get(reply, 0)
    for length, verdict in ((most, None), (most + 1, "PayloadTooLarge"), (1 << 24, "PayloadTooLarge")):
        head = codec.encode_frame(reply, 1, bytes(length))[: codec.HEADER_BYTES]
        if fits and verdict is None:
            assert codec.decode_reply_header(head, sent).payload_bytes == length
            continue
        with pytest.raises(DecodeError) as caught:
            codec.decode_reply_header(head, sent)
        assert caught.value.verdict == (verdict if fits else "UnexpectedReply")
