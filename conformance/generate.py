#!/usr/bin/env python3
"""Write the conformance vectors of weir wire v1 and, from weida_vectors.py, of
weida wire version 0.

This is the second codec: it shares no code with the Go one and is written from
the specification alone, with struct, zlib and hashlib.

    python3 generate.py           write vectors/*.json
    python3 generate.py --check   fail if a file differs from what would be written
"""

import hashlib
import json
import pathlib
import struct
import sys
import zlib

sys.dont_write_bytecode = True
import weida_vectors  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
VERSION = 1
CAP = 16 * 1024 * 1024
MAX_RECORDS = 2048
DURABLE, RETIRED, BUFFERED = 1, 2, 3

TYPES = [
    (0x01, "Push", "client", "a record, 1 byte or more"),
    (0x02, "Ack", "daemon", "the record is as safe as it was asked to be"),
    (0x03, "Nack", "daemon", "the frame was refused; the payload begins with the reason"),
    (0x04, "HealthCheck", "client", "is the daemon there"),
    (0x05, "HealthCheckResponse", "daemon", "it is"),
    (0x06, "PushTracked", "client", "a record whose coordinate is wanted"),
    (0x07, "AckTracked", "daemon", "an Ack that carries the coordinate of the record"),
    (0x08, "PushBatch", "client", "1 to 2048 records"),
    (0x09, "AckBatch", "daemon", "one bit for each record of a batch"),
]
REASONS = [
    (0x01, "BadMagic", "closed", "the frame does not begin with WEIR"),
    (0x02, "VersionMismatch", "closed", "the version is not the daemon's; a second byte carries that one"),
    (0x03, "BadHeaderCrc", "closed", "the header does not match its CRC"),
    (0x04, "PayloadTooLarge", "closed", "a payload, a record or a record count is above its cap"),
    (0x05, "BadPayloadCrc", "closed", "the payload does not match its CRC"),
    (0x06, "InternalError", "open", "the record may or may not be stored; try again"),
    (0x07, "EmptyPayload", "closed", "a record has at least one byte"),
    (0x08, "UnknownMessage", "closed", "unknown type, unknown durability, or a type that only a daemon sends"),
    (0x09, "ReservedFlagsSet", "closed", "the flags byte is not zero"),
    (0x0B, "BadBatchFraming", "closed", "the body of a batch is malformed"),
]
DURABILITIES = [
    (0x01, "Durable", True, "acked once the record is on stable storage"),
    (0x02, "Durable", False, "retired: read as Durable, never written"),
    (0x03, "Buffered", True, "acked once the write reached the operating system"),
]
NACK_OF = {
    "BadMagic": 0x01, "VersionMismatch": 0x02, "HeaderCrcMismatch": 0x03,
    "PayloadTooLarge": 0x04, "PayloadCrcMismatch": 0x05, "EmptyPayload": 0x07,
    "UnknownMessageType": 0x08, "UnknownDurability": 0x08, "ReservedFlagsSet": 0x09,
    "Truncated": 0x0B, "UnsupportedVersion": 0x0B, "EmptyBatch": 0x0B,
    "TooManyRecords": 0x04, "TruncatedRecord": 0x0B, "EmptyRecord": 0x07,
    "RecordTooLarge": 0x04, "LengthMismatch": 0x0B,
}
REPLY_TO = {0x01: 0x02, 0x04: 0x05, 0x06: 0x07, 0x08: 0x09}


def header(mtype, durability=DURABLE, length=0, version=VERSION, flags=0, magic=b"WEIR"):
    h = magic + struct.pack("<BBBBI", version, mtype, durability, flags, length)
    return h + struct.pack("<I", zlib.crc32(h))


def frame(mtype, payload=b"", durability=DURABLE, **more):
    return header(mtype, durability, len(payload), **more) + payload + struct.pack("<I", zlib.crc32(payload))


def nack_frame(reason):
    return frame(0x03, bytes([reason, VERSION]) if reason == 0x02 else bytes([reason]))


def flipped(b, i):
    return b[:i] + bytes([b[i] ^ 0x40]) + b[i + 1:]


def record_id(segment, index, payload):
    s = segment.encode()
    return hashlib.sha256(
        struct.pack("<Q", len(s)) + s + struct.pack("<QQ", index, len(payload)) + payload).digest()


def coordinate(segment, index, rid, version=1, declared=None):
    s = segment if isinstance(segment, bytes) else segment.encode()
    return struct.pack("<BQ", version, index) + rid + struct.pack("<H", len(s) if declared is None else declared) + s


def batch(records, version=1, count=None):
    b = struct.pack("<BH", version, len(records) if count is None else count)
    return b + b"".join(struct.pack("<I", len(r)) + r for r in records)


def ack_batch(bits, version=1, count=None):
    out = bytearray((len(bits) + 7) // 8)
    for i, bit in enumerate(bits):
        if bit == "1":
            out[i // 8] |= 1 << (i % 8)
    return struct.pack("<BH", version, len(bits) if count is None else count) + bytes(out)


def vector(kind, name, note, raw, verdict="ok", **more):
    return {"name": name, "note": note, "kind": kind, "hex": raw.hex(), "verdict": verdict, **more}


def refused(verdict):
    return {"reply": nack_frame(NACK_OF[verdict]).hex(), "connection": "closed"}


def good(name, note, mtype, payload=b"", durability=DURABLE):
    """A frame that decodes; a request says what a daemon answers."""
    raw = frame(mtype, payload, durability)
    v = vector("frame", name, note, raw)
    v["fields"] = {"type": mtype, "durability": DURABLE if durability == RETIRED else durability,
                   "payload": payload.hex()}
    if durability == RETIRED:
        v["reencoded"] = frame(mtype, payload, DURABLE).hex()
    if mtype in (0x01, 0x04):
        v["daemon"] = {"reply": frame(REPLY_TO[mtype]).hex(), "connection": "open"}
    elif mtype in REPLY_TO:
        v["daemon"] = {"reply_type": REPLY_TO[mtype], "connection": "open"}
    else:
        v["daemon"] = refused("UnknownMessageType")
    return v


def bad(name, note, raw, verdict):
    v = vector("frame", name, note, raw, verdict)
    if verdict in NACK_OF:
        v["daemon"] = refused(verdict)
    return v


def frame_rejections():
    push = frame(0x01, b"hello")
    many = [
        ("reject_empty_buffer", "nothing is not a frame", b"", "TruncatedFrame"),
        ("reject_partial_magic_short", "fewer than 16 bytes are TruncatedFrame, whatever they are", b"XYZ", "TruncatedFrame"),
        ("reject_header_one_byte_short", "15 bytes", push[:15], "TruncatedFrame"),
        ("reject_header_alone", "the payload is missing", push[:16], "TruncatedFrame"),
        ("reject_last_byte_missing", "the payload CRC is cut", push[:-1], "TruncatedFrame"),
        ("reject_trailing_byte", "one byte more than a frame", push + b"\0", "TrailingBytes"),
        ("reject_two_frames", "the second is not silently dropped", push + push, "TrailingBytes"),
        ("reject_bad_magic", "16 bytes of another protocol", b"GET / HTTP/1.1\r\n", "BadMagic"),
        ("reject_magic_before_version", "wrong magic and wrong version", header(1, magic=b"weir", version=2), "BadMagic"),
        ("reject_version_0", "zero", header(1, version=0) + bytes(4), "VersionMismatch"),
        ("reject_version_2", "a later version", frame(1, b"hello", version=2), "VersionMismatch"),
        ("reject_version_before_header_crc", "wrong version and wrong CRC", flipped(push, 4), "VersionMismatch"),
        ("reject_header_crc", "a byte of the CRC", flipped(push, 12), "HeaderCrcMismatch"),
        ("reject_header_crc_over_type", "a flipped type is a CRC error", flipped(push, 5), "HeaderCrcMismatch"),
        ("reject_header_crc_over_length", "a flipped length is a CRC error", flipped(push, 10), "HeaderCrcMismatch"),
        ("reject_type_00", "type zero", frame(0, b"hello"), "UnknownMessageType"),
        ("reject_type_before_durability", "both are unknown", frame(0, b"hello", 9), "UnknownMessageType"),
        ("reject_durability_00", "tier zero", frame(1, b"hello", 0), "UnknownDurability"),
        ("reject_durability_04", "tier four", frame(1, b"hello", 4), "UnknownDurability"),
        ("reject_durability_ff", "tier 255", frame(1, b"hello", 255), "UnknownDurability"),
        ("reject_healthcheck_durability_00", "a health check needs a valid tier, too", frame(4, b"", 0), "UnknownDurability"),
        ("reject_durability_before_flags", "both are wrong", frame(1, b"hello", 4, flags=1), "UnknownDurability"),
        ("reject_flags_01", "lowest bit", frame(1, b"hello", flags=1), "ReservedFlagsSet"),
        ("reject_flags_80", "highest bit", frame(1, b"hello", flags=0x80), "ReservedFlagsSet"),
        ("reject_flags_before_cap", "flags and a length above the cap", header(1, length=CAP + 1, flags=1), "ReservedFlagsSet"),
        ("reject_payload_cap_plus_1", "judged by the header alone", header(1, length=CAP + 1), "PayloadTooLarge"),
        ("reject_payload_len_max", "the largest u32", header(1, length=0xFFFFFFFF), "PayloadTooLarge"),
        ("reject_payload_crc", "a byte of the CRC", flipped(push, len(push) - 1), "PayloadCrcMismatch"),
        ("reject_payload_flipped", "a byte of the payload", flipped(push, 16), "PayloadCrcMismatch"),
    ]
    out = [bad(*m) for m in many]
    out.append(vector("frame", "truncated_at_payload_cap", "the cap itself is no reason to refuse the header",
                      header(1, length=CAP), "TruncatedFrame"))
    castagnoli = push[:12] + bytes.fromhex("00000000") + push[16:]
    out.append(bad("reject_zero_header_crc", "a writer that leaves the CRC out", castagnoli, "HeaderCrcMismatch"))
    empty = vector("frame", "empty_push", "decodes, but no record is empty: a daemon refuses it", frame(1))
    empty["fields"] = {"type": 1, "durability": 1, "payload": ""}
    empty["daemon"] = refused("EmptyPayload")
    return out + [empty]


def nack_vectors():
    out = []
    for number, name, _, note in REASONS:
        if number > 0x09:
            continue
        out.append(good("nack_" + name.lower(), note, 0x03, bytes([number, VERSION] if number == 2 else [number])))
    out.append(good("nack_reserved_reason", "0x0A is never assigned: show it, guess nothing", 0x03, b"\x0a"))
    out.append(good("nack_unknown_reason_ff", "any other byte likewise", 0x03, b"\xff"))
    for number, name, _, note in REASONS:
        payload = bytes([number, VERSION] if number == 2 else [number])
        out.append(vector("nack", "nack_body_" + name.lower(), note, payload,
                          fields={"reason": number, "version": VERSION if number == 2 else 0}))
    out.append(vector("nack", "nack_body_reserved", "surfaced as it is", b"\x0a", fields={"reason": 10, "version": 0}))
    out.append(vector("nack", "nack_body_empty", "a Nack has a reason", b"", "Truncated"))
    out.append(vector("nack", "nack_body_version_missing", "VersionMismatch has two bytes", b"\x02", "LengthMismatch"))
    out.append(vector("nack", "nack_body_too_long", "every other reason has one", b"\x06\x01", "LengthMismatch"))
    return out


def frames():
    return [
        good("push_hello_durable", "worked example", 1, b"hello"),
        good("push_hello_buffered", "the tier is a byte of the header", 1, b"hello", BUFFERED),
        good("push_retired_durability", "0x02 is read as Durable and never written", 1, b"hello", RETIRED),
        good("push_one_zero_byte", "the payload is opaque", 1, b"\0"),
        good("push_all_bytes", "every byte value", 1, bytes(range(256))),
        good("push_holds_magic", "the payload may look like a frame", 1, frame(1, b"hello")),
        good("push_crc_check_value", "CRC-32 of 123456789 is cbf43926", 1, b"123456789"),
        good("ack", "worked example; a client never sends it", 2),
        good("healthcheck", "no payload", 4),
        good("healthcheck_buffered", "the tier is valid and means nothing", 4, b"", BUFFERED),
        good("healthcheck_retired", "likewise", 4, b"", RETIRED),
        good("healthcheck_response", "no payload; a client never sends it", 5),
    ] + nack_vectors() + frame_rejections()


def coordinate_vector(name, note, segment, index, payload):
    rid = record_id(segment, index, payload)
    return vector("coordinate", name, note, coordinate(segment, index, rid),
                  fields={"index": str(index), "record_id": rid.hex(), "segment": segment.encode().hex()})


def id_vector(name, note, segment, index, payload):
    return vector("record_id", name, note, record_id(segment, index, payload),
                  fields={"index": str(index), "segment": segment.encode().hex(), "payload": payload.hex()})


def tracked():
    seg = "shard_00/seg_00000001.wab.sealed"
    rid = record_id(seg, 7, b"hello")
    empty = vector("frame", "empty_push_tracked", "a daemon refuses it", frame(6))
    empty["fields"] = {"type": 6, "durability": 1, "payload": ""}
    empty["daemon"] = refused("EmptyPayload")
    return [
        good("push_tracked_hello_durable", "worked example", 6, b"hello"),
        good("push_tracked_hello_buffered", "a coordinate does not raise the tier", 6, b"hello", BUFFERED),
        good("push_tracked_retired_durability", "0x02 is read as Durable", 6, b"hello", RETIRED),
        good("ack_tracked_hello", "worked example; a client never sends it", 7, coordinate(seg, 7, rid)),
        empty,
        bad("reject_tracked_flags", "flags must be zero", frame(6, b"hello", flags=2), "ReservedFlagsSet"),
        bad("reject_tracked_cap", "the same cap as a Push", header(6, length=CAP + 1), "PayloadTooLarge"),
        bad("reject_tracked_payload_crc", "the payload", flipped(frame(6, b"hello"), 17), "PayloadCrcMismatch"),
        coordinate_vector("coordinate_worked", "worked example", seg, 7, b"hello"),
        coordinate_vector("coordinate_index_1", "the first index", seg, 1, b"hello"),
        coordinate_vector("coordinate_index_max", "the largest u64", seg, 2**64 - 1, b"hello"),
        coordinate_vector("coordinate_index_bytes", "every byte of the index differs", seg, 0x0102030405060708, b"x"),
        coordinate_vector("coordinate_segment_empty", "legal for a decoder", "", 1, b"x"),
        coordinate_vector("coordinate_segment_255", "the longest segment", "s" * 255, 1, b"x"),
        coordinate_vector("coordinate_segment_utf8", "lengths count bytes", "shard_\u00e9/\u6c34", 1, b"x"),
        vector("coordinate", "coordinate_empty", "nothing", b"", "Truncated"),
        vector("coordinate", "coordinate_42_bytes", "one byte short of the fixed part",
               coordinate("", 1, rid)[:42], "Truncated"),
        vector("coordinate", "coordinate_version_0", "zero is no version", coordinate(seg, 7, rid, 0), "UnsupportedVersion"),
        vector("coordinate", "coordinate_version_2", "a layout never seen", coordinate(seg, 7, rid, 2), "UnsupportedVersion"),
        vector("coordinate", "coordinate_version_before_length", "both are wrong",
               coordinate("", 7, rid, 2, 999), "UnsupportedVersion"),
        vector("coordinate", "coordinate_segment_256", "judged by the declared length",
               coordinate("s" * 256, 7, rid), "SegmentTooLong"),
        vector("coordinate", "coordinate_declared_256", "declared, not there", coordinate("", 7, rid, 1, 256), "SegmentTooLong"),
        vector("coordinate", "coordinate_short", "one byte missing", coordinate(seg, 7, rid)[:-1], "LengthMismatch"),
        vector("coordinate", "coordinate_trailing", "one byte too much", coordinate(seg, 7, rid) + b"\0", "LengthMismatch"),
        vector("coordinate", "coordinate_not_utf8", "an unfinished sequence", coordinate(b"a\xc3", 7, rid), "SegmentNotUtf8"),
        vector("coordinate", "coordinate_surrogate", "a surrogate half is not UTF-8",
               coordinate(b"\xed\xa0\x80", 7, rid), "SegmentNotUtf8"),
        id_vector("record_id_worked", "worked value", seg, 7, b"hello"),
        id_vector("record_id_framing_a", "the framing keeps these two apart", "ab", 1, b"c"),
        id_vector("record_id_framing_b", "the framing keeps these two apart", "a", 1, b"bc"),
        id_vector("record_id_long_payload", "more than one SHA-256 block", seg, 8, bytes(range(256)) * 20),
    ]


def batch_vector(name, note, body, verdict="ok", records=None, durability=DURABLE):
    v = vector("batch", name, note, body, verdict)
    v["frame"] = frame(8, body, durability).hex()
    if verdict == "ok":
        v["fields"] = {"records": [r.hex() for r in records]}
        v["daemon"] = {"reply": frame(9, ack_batch("1" * len(records))).hex(), "connection": "open"}
        if len(records) > 1024:
            del v["daemon"]  # above the default of max_batch_records, so it depends on the daemon
    else:
        v["daemon"] = refused(verdict)
    return v


def batch_accepted():
    three = [b"a", b"bc", b"\0\0\0"]
    nine = [bytes([i]) * (i + 1) for i in range(9)]
    full = [b"%c" % (i % 256) for i in range(1024)]
    hard = [b"%c" % (i % 251) for i in range(MAX_RECORDS)]
    return [
        batch_vector("batch_one", "the smallest batch", batch([b"x"]), records=[b"x"]),
        batch_vector("batch_three", "lengths 1, 2 and 3", batch(three), records=three),
        batch_vector("batch_nine_buffered", "one tier for all", batch(nine), records=nine, durability=BUFFERED),
        batch_vector("batch_retired_durability", "0x02 is read as Durable", batch(three), records=three, durability=RETIRED),
        batch_vector("batch_1017", "its AckBatch is as long as that of 1024", batch(full[:1017]), records=full[:1017]),
        batch_vector("batch_1024", "the default cap", batch(full), records=full),
        batch_vector("batch_2048", "the hard cap", batch(hard), records=hard),
        batch_vector("batch_record_looks_like_frame", "opaque", batch([frame(1, b"hello")]), records=[frame(1, b"hello")]),
    ]


def batch_refused():
    one = batch([b"a"])
    cap = struct.pack("<I", CAP)
    over = struct.pack("<I", CAP + 1)
    return [
        batch_vector("batch_empty_body", "no prefix", b"", "Truncated"),
        batch_vector("batch_two_bytes", "a cut prefix", b"\x01\x01", "Truncated"),
        batch_vector("batch_version_0", "zero is no version", batch([b"a"], 0), "UnsupportedVersion"),
        batch_vector("batch_version_2", "a layout never seen", batch([b"a"], 2), "UnsupportedVersion"),
        batch_vector("batch_version_before_count", "both are wrong", batch([], 2), "UnsupportedVersion"),
        batch_vector("batch_no_records", "a count of zero", batch([]), "EmptyBatch"),
        batch_vector("batch_count_0_with_bytes", "zero before the bytes are looked at", batch([b"a"], count=0), "EmptyBatch"),
        batch_vector("batch_count_2049", "judged in three bytes", batch([], count=2049), "TooManyRecords"),
        batch_vector("batch_count_65535", "judged in three bytes", batch([], count=65535), "TooManyRecords"),
        batch_vector("batch_count_without_entries", "no entry at all", batch([], count=1), "TruncatedRecord"),
        batch_vector("batch_length_cut", "three bytes of a length", one[:6], "TruncatedRecord"),
        batch_vector("batch_record_cut", "one byte missing", batch([b"ab"])[:-1], "TruncatedRecord"),
        batch_vector("batch_second_missing", "two declared, one there", batch([b"a"], count=2), "TruncatedRecord"),
        batch_vector("batch_record_at_cap_cut", "the cap itself is legal", one[:3] + cap + b"a", "TruncatedRecord"),
        batch_vector("batch_empty_record", "the first", batch([b""]), "EmptyRecord"),
        batch_vector("batch_last_record_empty", "behind two good ones: nothing of it is stored", batch([b"a", b"b", b""]), "EmptyRecord"),
        batch_vector("batch_record_over_cap", "before the body is consulted", one[:3] + over, "RecordTooLarge"),
        batch_vector("batch_record_len_max", "the largest u32", one[:3] + b"\xff\xff\xff\xff", "RecordTooLarge"),
        batch_vector("batch_trailing_byte", "behind the last record", one + b"\0", "LengthMismatch"),
        batch_vector("batch_one_more_record", "one declared, two there", batch([b"a", b"b"], count=1), "LengthMismatch"),
    ]


def ack_vector(name, note, bits, raw=None, verdict="ok", sent=None):
    v = vector("ack_batch", name, note, ack_batch(bits) if raw is None else raw, verdict)
    v["sent"] = len(bits) if sent is None else sent
    if verdict == "ok":
        v["fields"] = {"bits": bits}
    return v


def ack_batches():
    nine = "101100001"
    return [
        ack_vector("ack_bitmap_asymmetric_n9", "tells the bit orders apart: bit i is byte i/8, mask 1<<(i%8)", nine),
        ack_vector("ack_bitmap_first_of_9", "only record 0", "100000000"),
        ack_vector("ack_bitmap_last_of_9", "only record 8", "000000001"),
        ack_vector("ack_bitmap_record_7_of_9", "the highest bit of the first byte", "000000010"),
        ack_vector("ack_bitmap_one", "a single record", "1"),
        ack_vector("ack_bitmap_none", "all failed", "000"),
        ack_vector("ack_bitmap_n8", "no padding", "11111111"),
        ack_vector("ack_bitmap_n1017", "131 bytes, like 1024", "10" * 508 + "1"),
        ack_vector("ack_bitmap_n1024", "131 bytes, like 1017", "110" * 341 + "1"),
        ack_vector("ack_bitmap_n2048", "259 bytes, the cap", "10010110" * 256),
        ack_vector("ack_empty", "nothing", "1", b"", "Truncated"),
        ack_vector("ack_two_bytes", "a cut prefix", "1", b"\x01\x01", "Truncated"),
        ack_vector("ack_version_2", "a layout never seen", "1", ack_batch("1", 2), "UnsupportedVersion"),
        ack_vector("ack_count_0", "no batch is empty", "1", ack_batch(""), "EmptyBatch"),
        ack_vector("ack_1017_for_1024", "same length, another batch", "0" * 1017, None, "LengthMismatch", 1024),
        ack_vector("ack_1024_for_1017", "same length, another batch", "0" * 1024, None, "LengthMismatch", 1017),
        ack_vector("ack_bitmap_short", "one byte for nine", nine, ack_batch("10110000", count=9), "LengthMismatch"),
        ack_vector("ack_bitmap_long", "a byte too much", "1", ack_batch("1") + b"\0", "LengthMismatch"),
        ack_vector("ack_padding_bit_1", "just behind the last record", nine, ack_batch(nine + "1", count=9), "PaddingNotZero"),
        ack_vector("ack_padding_bit_7", "the highest bit", "1", ack_batch("10000001", count=1), "PaddingNotZero"),
    ]


def batches():
    return batch_accepted() + batch_refused() + ack_batches() + [
        good("ack_batch_n9", "a client never sends it", 9, ack_batch("101100001")),
        good("nack_badbatchframing", "the reason that 0x0A was left out for", 3, b"\x0b"),
        bad("reject_batch_flags", "flags must be zero", frame(8, batch([b"a"]), flags=1), "ReservedFlagsSet"),
        bad("reject_batch_payload_cap", "the frame cap", header(8, length=CAP + 1), "PayloadTooLarge"),
        bad("reject_batch_payload_crc", "the CRC before the body", flipped(frame(8, batch([], 2)), 16), "PayloadCrcMismatch"),
        bad("reject_type_0a", "unassigned", frame(0x0A, b"hello"), "UnknownMessageType"),
        bad("reject_type_ff", "unassigned", frame(0xFF, b"hello"), "UnknownMessageType"),
    ]


def codes():
    return {
        "wire_version": VERSION,
        "types": [{"number": n, "name": m, "sender": s, "meaning": w} for n, m, s, w in TYPES],
        "reasons": [{"number": n, "name": m, "connection": c, "meaning": w} for n, m, c, w in REASONS],
        "reserved_reasons": [0x0A],
        "durabilities": [{"number": n, "name": m, "written": x, "meaning": w} for n, m, x, w in DURABILITIES],
        "verdicts": [{"name": n, "nack": r} for n, r in NACK_OF.items()] + [
            {"name": n, "nack": None} for n in
            ("TruncatedFrame", "TrailingBytes", "PaddingNotZero", "SegmentTooLong", "SegmentNotUtf8", "UnexpectedReply")],
        "caps": {"header_bytes": 16, "trailer_bytes": 4, "payload_bytes": CAP, "batch_records": MAX_RECORDS,
                 "segment_bytes": 255, "nack_bytes": 2, "ack_tracked_bytes": 298, "ack_batch_bytes": 259},
    }


def files():
    sets = {"frames": frames(), "tracked": tracked(), "batch": batches()}
    for name, vectors in sets.items():
        names = [v["name"] for v in vectors]
        assert len(names) == len(set(names)), "a name is used twice in " + name
        yield name + ".json", {"wire_version": VERSION, "vectors": vectors}
    yield "codes.json", codes()
    for name, vectors in weida_vectors.sets().items():
        names = [v["name"] for v in vectors]
        assert len(names) == len(set(names)), "a name is used twice in " + name
        yield name + ".json", {"wire_version": 0, "vectors": vectors}
    yield "weida_codes.json", weida_vectors.codes()


def main():
    check = sys.argv[1:] == ["--check"]
    stale = []
    for name, content in files():
        path = HERE / "vectors" / name
        text = json.dumps(content, indent=1, ensure_ascii=True) + "\n"
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(name)
    if stale:
        sys.exit("not what generate.py writes: " + ", ".join(stale))


if __name__ == "__main__":
    main()
