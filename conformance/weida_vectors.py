"""The conformance vectors of weida wire version 0.

A codec of its own, written from the specification with struct alone. generate.py
writes what it yields.
"""

import struct

MAX_HEADER = 16384
HELLO, DATA, ERROR, SUBSCRIBE, UNSUBSCRIBE, CREDIT, CURSOR = range(7)
KINDS = ["hello", "data", "error", "subscribe", "unsubscribe", "credit", "cursor"]
CODES = [
    (0, "NO_ERROR"), (1, "INTERNAL"), (2, "PROTOCOL_VIOLATION"), (3, "CANCELED"), (4, "NEGOTIATION_FAILED"),
    (5, "LIMIT_EXCEEDED"), (6, "SHUTDOWN"), (7, "REJECTED"), (8, "UNKNOWN_ENDPOINT"), (9, "UNSUPPORTED"),
]
ERRORS = [(1, "UNKNOWN_ENDPOINT"), (2, "REJECTED"), (3, "UNSUPPORTED"), (4, "INTERNAL"), (5, "NO_REPLY")]
LEVELS = [(0, "none"), (1, "transport receipt"), (2, "accepted"), (3, "stored"), (4, "replicated"), (5, "processed")]
CAPS = {
    "endpoint_bytes": 512, "content_type_bytes": 256, "traceparent_bytes": 128, "tracestate_bytes": 512, "topic_bytes": 256,
    "filter_bytes": 256, "message_bytes": 1024, "producer_bytes": 32, "list_items": 64, "report_levels": 16,
    "preamble_bytes": 10, "record_bytes": 16, "default_max_header_bytes": MAX_HEADER,
}
DIGEST = bytes.fromhex("9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")


def varint(v, size=None):
    """A QUIC integer in its shortest form, or in one of size bytes."""
    if size is None:
        size = next(n for n in (1, 2, 4, 8) if v < 1 << (8 * n - 2))
    tag = {1: 0, 2: 1, 4: 2, 8: 3}[size]
    return ((tag << (8 * size - 2)) | v).to_bytes(size, "big")


def head(major, v, size=None):
    """A CBOR initial byte with its argument, shortest or of size bytes."""
    if size is None:
        size = 0 if v < 24 else next(n for n in (1, 2, 4, 8) if v < 1 << (8 * n))
    if size == 0:
        return bytes([major << 5 | v])
    return bytes([major << 5 | {1: 24, 2: 25, 4: 26, 8: 27}[size]]) + v.to_bytes(size, "big")


class Raw(bytes):
    """CBOR that is taken as it is."""


def cbor(v):
    if isinstance(v, Raw):
        return bytes(v)
    if isinstance(v, int):
        return head(0, v)
    if isinstance(v, bytes):
        return head(2, len(v)) + v
    if isinstance(v, str):
        return head(3, len(v.encode())) + v.encode()
    if isinstance(v, list):
        return head(4, len(v)) + b"".join(cbor(x) for x in v)
    return head(5, len(v)) + b"".join(cbor(k) + cbor(x) for k, x in v.items())


def frame(kind, header, size=None, length=None):
    h = header if isinstance(header, Raw) else Raw(cbor(header))
    return bytes([0x57, kind]) + varint(len(h) if length is None else length, size) + h


def nested(depth, inner=b"\x00"):
    return Raw(b"\x81" * depth + inner)


# Which keys of a kind hold what, for the line that a codec answers.
NAMES = {
    HELLO: ["versions", "max_header_bytes", "max_transfers", "capabilities", "required_capabilities", "offered", "required"],
    DATA: ["endpoint", "content_len", "content_type", "traceparent", "tracestate", "topic", "sequence", "producer", "achieved",
           "report_id", "report", "report_mode", "delivery_attempt"],
    ERROR: ["code", "message"],
    SUBSCRIBE: ["endpoint", "filter"],
    UNSUBSCRIBE: ["endpoint", "filter"],
    CREDIT: ["endpoint", "filter", "limit"],
    CURSOR: ["report_id"],
}


def shown(v):
    if isinstance(v, int):
        return str(v)
    if isinstance(v, bytes):
        return v.hex()
    if isinstance(v, str):
        return v.encode().hex()
    if isinstance(v, list):
        return ",".join(map(str, v))
    return ",".join("%d:%d" % kv for kv in v.items())


def line(kind, header):
    words = [KINDS[kind]]
    for k, v in header.items():
        words.append((NAMES[kind][k] if k < len(NAMES[kind]) else "x%d" % k) + "=" + shown(v))
    return " ".join(words)


def vector(kind, name, note, raw, verdict="ok", **more):
    return {"name": name, "note": note, "kind": kind, "hex": raw.hex(), "verdict": verdict, **more}


def good(name, note, kind, header, golden=None):
    raw = frame(kind, header)
    if golden is not None:
        assert raw == bytes.fromhex(golden), "the codec disagrees with section 8: " + name
    return vector("weida_frame", name, note, raw, line=line(kind, header))


def lax(name, note, raw, kind, header):
    """Bytes that decode and are written otherwise."""
    return vector("weida_frame", name, note, raw, line=line(kind, header), reencoded=frame(kind, header).hex())


def bad(name, note, raw, verdict):
    return vector("weida_frame", name, note, raw, verdict)


CORE = {0: [0], 1: 16384, 2: 1024, 3: [], 4: []}


def golden():
    g = good
    return [
        g("data_request", "the smallest request or push", DATA, {0: "/t"}, "570105A100622F74"),
        g("data_reply", "the smallest reply", DATA, {}, "570101A0"),
        g("data_confirm", "the L2 confirm, on a reply half", DATA, {8: 2}, "570103A10802"),
        g("hello", "what a peer without settings says", HELLO, CORE, "570010A500810001194000021904000380" + "0480"),
        g("hello_guarantees", "ordering is offered and required", HELLO, {**CORE, 5: {4: 1}, 6: {4: 1}},
          "570018A70081000119400002190400038004" + "8005A1040106A10401"),
        g("error_no_reply", "on a reply half", ERROR, {0: 5}, "570203A10005"),
        g("data_fan_out", "a publisher's copy", DATA, {0: "/md", 5: "px.eur"}, "57010EA200632F6D64056670782E657572"),
        g("data_sequence", "under negotiated ordering", DATA, {0: "/t", 6: 1}, "570107A200622F740601"),
        g("data_producer", "a relay's", DATA, {0: "/t", 6: 1, 7: DIGEST}, "57012AA300622F740601075820" + DIGEST.hex()),
        g("subscribe", "an encoding, not a match", SUBSCRIBE, {0: "/md", 1: "px."}, "57030BA200632F6D64016370782E"),
        g("unsubscribe", "one byte differs", UNSUBSCRIBE, {0: "/md", 1: "px."}, "57040BA200632F6D64016370782E"),
        g("data_topic_star", "a topic is never a pattern", DATA, {0: "/md", 5: "px.*"}, "57010CA200632F6D64056470782E2A"),
        g("subscribe_literal", "no wildcard", SUBSCRIBE, {0: "/md", 1: "px.eur"}, "57030EA200632F6D64016670782E657572"),
        g("subscribe_one", "one segment", SUBSCRIBE, {0: "/md", 1: "sensors.*.temp"},
          "570316A200632F6D64016E73656E736F72732E2A2E74656D70"),
        g("subscribe_rest", "the rest", SUBSCRIBE, {0: "/md", 1: "ctl.#"}, "57030DA200632F6D64016563746C2E23"),
        g("subscribe_all", "every topic", SUBSCRIBE, {0: "/md", 1: ""}, "570308A200632F6D640160"),
        g("credit", "five deliveries", CREDIT, {0: "/jobs", 1: "px.eur", 2: 5}, "570512A300652F6A6F6273016670782E6575720205"),
        g("credit_zero", "where every subscription begins", CREDIT, {0: "/jobs", 1: "", 2: 0}, "57050CA300652F6A6F627301600200"),
        g("cursor", "the head of a report", CURSOR, {0: 1}, "570603A10001"),
        g("data_report", "a Push that will get a verdict", DATA, {0: "/t", 9: 1, 10: [2]}, "57010AA300622F7409010A8102"),
        g("data_report_final", "an application's stage 17", DATA, {0: "/t", 9: 1, 10: [3, 17], 11: 1},
          "57010DA400622F7409010A8203110B01"),
    ]


def accepted():
    g = good
    every = {0: "/t", 1: 2**64 - 1, 2: "text/plain", 3: "00-" + "a" * 32 + "-" + "b" * 16 + "-01", 4: "k=v", 5: "a.b", 6: 2**32,
             7: DIGEST, 8: 5, 9: 2**62 - 1, 10: [0, 1, 2, 3, 4, 5, 16, 2**64 - 1], 11: 1, 12: 2}
    out = [
        g("data_every_key", "all thirteen", DATA, every),
        g("data_every_key_extended", "more pairs than one byte announces", DATA, {**every, **{64 + i: bytes([i]) for i in range(16)}}),
        g("data_extension", "a record id under key 64", DATA, {0: "/q", 64: DIGEST}),
        g("data_extension_high", "the highest key", DATA, {2**64 - 1: b""}),
        g("data_endpoint_empty", "present and empty is not absent", DATA, {0: ""}),
        g("data_endpoint_512", "at the cap; the length takes two bytes", DATA, {0: "/" * 512}),
        g("data_caps", "every string at its cap", DATA, {2: "c" * 256, 3: "p" * 128, 4: "s" * 512, 5: "t" * 256}),
        g("data_utf8", "caps count bytes", DATA, {5: "\u00e9" * 128}),
        g("data_report_nothing", "an order for no level", DATA, {9: 1, 10: []}),
        g("data_report_16", "the most levels", DATA, {9: 1, 10: list(range(16, 32))}),
        g("data_attempt", "the second time", DATA, {12: 2}),
        g("data_achieved_zero", "said, and not the same as absent", DATA, {8: 0}),
        g("error_message", "with text", ERROR, {0: 2, 1: "no room"}),
        g("error_message_1024", "at the cap", ERROR, {0: 4, 1: "m" * 1024}),
        g("error_unknown_code", "a generic failure, not a violation", ERROR, {0: 99}),
        g("hello_full_lists", "64 items", HELLO, {**CORE, 0: list(range(64)), 3: list(range(64)), 4: list(range(64))}),
        g("hello_no_versions", "decodes; negotiation fails", HELLO, {**CORE, 0: []}),
        g("hello_stored", "what a broker with a store offers", HELLO, {**CORE, 5: {1: 3, 2: 1}}),
        g("hello_replicated", "three replicas, flushed, required", HELLO, {**CORE, 5: {1: 4, 2: 1, 3: 3}, 6: {1: 3, 2: 1}}),
        g("hello_dedup", "a window of half a second", HELLO, {**CORE, 5: {4: 2, 5: 1, 6: 500}}),
        g("hello_dedup_zero", "a window of nothing", HELLO, {**CORE, 5: {5: 1, 6: 0}}),
        g("hello_no_ack", "below core", HELLO, {**CORE, 5: {1: 0}, 6: {1: 0}}),
        g("hello_every_dimension", "", HELLO, {**CORE, 5: {0: 2, 1: 4, 2: 0, 3: 2, 4: 4, 5: 1, 6: 1, 7: 4, 8: 1, 9: 1}, 6: {7: 4, 8: 1}}),
        g("credit_max", "everything", CREDIT, {0: "/jobs", 1: "#", 2: 2**64 - 1}),
        g("cursor_zero", "decodes; never allocated", CURSOR, {0: 0}),
        g("subscribe_empty_segments", "literal", SUBSCRIBE, {0: "/md", 1: ".."}),
    ]
    return out + lenient()


def lenient():
    t = {0: "/t"}
    skip = lambda name, note, value: lax(name, note, frame(DATA, {0: "/t", 13: value}), DATA, t)  # noqa: E731
    many = {64 + i: bytes([i]) for i in range(17)}
    return [
        lax("varint_2_bytes", "any length of the length is accepted", frame(DATA, t, size=2), DATA, t),
        lax("varint_4_bytes", "", frame(DATA, t, size=4), DATA, t),
        lax("varint_8_bytes", "", frame(DATA, t, size=8), DATA, t),
        lax("wide_map", "a map head that is longer than it need be",
            frame(DATA, Raw(head(5, 1, 1) + cbor(0) + cbor("/t"))), DATA, t),
        lax("wide_key", "likewise a key", frame(DATA, Raw(head(5, 1) + head(0, 0, 8) + cbor("/t"))), DATA, t),
        lax("wide_string", "likewise a string", frame(DATA, Raw(head(5, 1) + cbor(0) + head(3, 2, 4) + b"/t")), DATA, t),
        skip("skip_uint", "an unknown key", 7),
        skip("skip_negative", "", Raw(b"\x20")),
        skip("skip_bytes", "", b"abc"),
        skip("skip_text", "", "abc"),
        skip("skip_simple", "false, true, null, undefined", Raw(b"\x84\xf4\xf5\xf6\xf7")),
        skip("skip_floats", "of 32 and 64 bits", Raw(b"\x82\xfa\x3f\x80\x00\x00\xfb" + struct.pack(">d", 1.5))),
        skip("skip_empty", "empty arrays and maps", Raw(b"\x83\x80\xa0\x80")),
        skip("skip_map", "keys of any type, as it is not a header", Raw(b"\xa2\x61a\x01\x20\x80")),
        skip("skip_depth_8", "as deep as may be", nested(8)),
        skip("skip_depth_8_twice", "the depth counts, not the number", Raw(b"\x82" + nested(7) + nested(7))),
        lax("skip_extension_type", "an extension that is not a byte string", frame(DATA, {0: "/t", 64: "text", 65: b"b"}), DATA,
            {0: "/t", 65: b"b"}),
        lax("skip_17th_extension", "sixteen are kept", frame(DATA, many), DATA, {k: v for k, v in many.items() if k < 80}),
        lax("report_mode_progress", "read, never written", frame(DATA, {9: 1, 10: [2], 11: 0}), DATA, {9: 1, 10: [2]}),
        lax("report_mode_alone", "says nothing", frame(DATA, {11: 1}), DATA, {}),
        lax("attempt_one", "the first time is not written", frame(DATA, {12: 1}), DATA, {}),
        lax("attempt_zero", "", frame(DATA, {12: 0}), DATA, {}),
        lax("hello_explicit_core", "core is not written", frame(HELLO, {**CORE, 5: {0: 0, 1: 1, 4: 0, 5: 0, 7: 0, 8: 0, 9: 0}, 6: {}}), HELLO, CORE),
        lax("hello_unknown_dimension", "skipped", frame(HELLO, {**CORE, 5: {4: 1, 10: 3}}), HELLO, {**CORE, 5: {4: 1}}),
        lax("hello_unknown_key", "skipped", frame(HELLO, {**CORE, 7: "token"}), HELLO, CORE),
        lax("error_unknown_key", "skipped", frame(ERROR, {0: 5, 2: [1]}), ERROR, {0: 5}),
        lax("subscribe_unknown_key", "key 2 is CREDIT's", frame(SUBSCRIBE, {0: "/md", 1: "", 2: "x"}), SUBSCRIBE, {0: "/md", 1: ""}),
        lax("cursor_unknown_key", "skipped", frame(CURSOR, {0: 1, 1: 1}), CURSOR, {0: 1}),
    ]


def preambles():
    return [
        bad("nothing", "no byte", b"", "Incomplete"),
        bad("magic_alone", "", b"\x57", "Incomplete"),
        bad("kind_alone", "", b"\x57\x01", "Incomplete"),
        bad("length_cut", "one of two bytes", b"\x57\x01\x40", "Incomplete"),
        bad("header_cut", "a byte is missing", frame(DATA, {0: "/t"})[:-1], "Incomplete"),
        bad("bad_magic", "told from one byte", b"\x58", "BadMagic"),
        bad("bad_magic_http", "another protocol", b"GET / HTTP/1.1", "BadMagic"),
        bad("unknown_kind", "told from two bytes", b"\x57\x07", "UnknownKind"),
        bad("unknown_kind_ff", "", b"\x57\xff\x01\xa0", "UnknownKind"),
        bad("header_over_cap", "before anything of it is there", bytes([0x57, DATA]) + varint(MAX_HEADER + 1), "HeaderTooLarge"),
        bad("header_len_max", "2^62-1", bytes([0x57, DATA]) + varint(2**62 - 1), "HeaderTooLarge"),
        bad("header_at_cap", "the cap itself is no reason", bytes([0x57, DATA]) + varint(MAX_HEADER), "Incomplete"),
    ]


def malformed():
    d = lambda name, note, raw, verdict: bad(name, note, frame(DATA, Raw(raw)), verdict)  # noqa: E731
    inside = lambda name, note, raw, verdict: d(name, note, b"\xa1\x0d" + raw, verdict)  # noqa: E731
    t = b"\x00\x62/t"
    return [
        d("header_empty", "a header is one map", b"", "Malformed"),
        d("header_array", "", b"\x80", "NotAMap"),
        d("header_uint", "", b"\x00", "NotAMap"),
        d("header_map_cut", "one pair announced, none there", b"\xa1", "Malformed"),
        d("header_value_missing", "", b"\xa1\x00", "Malformed"),
        d("header_map_huge", "2^64-1 pairs", b"\xbb" + b"\xff" * 8, "Malformed"),
        d("header_reserved_info", "additional information 28", b"\xbc", "Malformed"),
        d("header_trailing", "a byte behind the map", b"\xa0\x00", "Trailing"),
        d("header_two_maps", "", b"\xa0\xa0", "Trailing"),
        d("header_indefinite", "", b"\xbf\xff", "Indefinite"),
        d("key_text", "", b"\xa1\x61a\x00", "KeyType"),
        d("key_negative", "", b"\xa1\x20\x00", "KeyType"),
        d("key_bytes", "", b"\xa1\x41a\x00", "KeyType"),
        d("key_tagged", "", b"\xa1\xc0\x00\x00", "Forbidden"),
        d("key_twice", "", b"\xa2" + t + t, "KeyOrder"),
        d("key_twice_wide", "the same key in two lengths", b"\xa2" + t + b"\x18\x00\x62/t", "KeyOrder"),
        d("key_descending", "", b"\xa2\x01\x01" + t, "KeyOrder"),
        d("key_unknown_twice", "also for keys that are skipped", b"\xa2\x18\x64\x01\x18\x64\x01", "KeyOrder"),
        d("endpoint_bytes", "a byte string", b"\xa1\x00\x42/t", "ValueType"),
        d("endpoint_uint", "", b"\xa1\x00\x01", "ValueType"),
        d("endpoint_null", "null is not a way to be absent", b"\xa1\x00\xf6", "ValueType"),
        d("endpoint_indefinite", "", b"\xa1\x00\x7f\x62/t\xff", "Indefinite"),
        d("endpoint_cut", "", b"\xa1\x00\x63/t", "Malformed"),
        d("endpoint_not_utf8", "", b"\xa1\x00\x62/\xff", "NotUTF8"),
        d("endpoint_surrogate", "", b"\xa1\x00\x64/\xed\xa0\x80", "NotUTF8"),
        d("endpoint_513", "judged by its length alone", b"\xa1\x00" + head(3, 513), "TooLong"),
        d("endpoint_2_to_63", "", b"\xa1\x00" + head(3, 2**63), "TooLong"),
        d("content_type_257", "", cbor({2: "c" * 257}), "TooLong"),
        d("traceparent_129", "", cbor({3: "p" * 129}), "TooLong"),
        d("tracestate_513", "", cbor({4: "s" * 513}), "TooLong"),
        d("topic_257", "", cbor({5: "t" * 257}), "TooLong"),
        d("content_len_negative", "", b"\xa1\x01\x20", "ValueType"),
        d("content_len_float", "a half float is refused before its type", b"\xa1\x01\xf9\x00\x00", "Forbidden"),
        d("producer_31", "the length is exact", cbor({7: DIGEST[:31]}), "TooLong"),
        d("producer_33", "", cbor({7: DIGEST + b"\0"}), "TooLong"),
        d("producer_empty", "", cbor({7: b""}), "TooLong"),
        d("producer_text", "", cbor({7: "a" * 32}), "ValueType"),
        d("achieved_6", "a value that is not defined may not be guessed", cbor({8: 6}), "Value"),
        d("achieved_16", "an application's level is no confirm", cbor({8: 16}), "Value"),
        d("report_without_id", "", cbor({10: [2]}), "MissingKey"),
        d("report_id_alone", "", cbor({9: 1}), "MissingKey"),
        d("report_17_levels", "", cbor({9: 1, 10: list(range(16, 33))}), "TooMany"),
        d("report_announces_many", "before anything is reserved", b"\xa2\x09\x01\x0a" + head(4, 2**64 - 1), "TooMany"),
        d("report_level_6", "reserved", cbor({9: 1, 10: [6]}), "Value"),
        d("report_level_15", "reserved", cbor({9: 1, 10: [15]}), "Value"),
        d("report_descending", "", cbor({9: 1, 10: [3, 2]}), "ListOrder"),
        d("report_twice", "", cbor({9: 1, 10: [2, 2]}), "ListOrder"),
        d("report_of_text", "", cbor({9: 1, 10: ["2"]}), "ValueType"),
        d("report_indefinite", "", b"\xa2\x09\x01\x0a\x9f\x02\xff", "Indefinite"),
        d("report_mode_2", "", cbor({9: 1, 10: [2], 11: 2}), "Value"),
        d("extension_cut", "", b"\xa1\x18\x40\x42a", "Malformed"),
        d("extension_indefinite", "", b"\xa1\x18\x40\x5f\x41a\xff", "Indefinite"),
        inside("skipped_tag", "refused anywhere", b"\xc1\x00", "Forbidden"),
        inside("skipped_half_float", "", b"\xf9\x3c\x00", "Forbidden"),
        inside("skipped_simple", "simple value 16", b"\xf0", "Forbidden"),
        inside("skipped_simple_wide", "false in two bytes", b"\xf8\x14", "Forbidden"),
        inside("skipped_break", "a break without a beginning", b"\xff", "Indefinite"),
        inside("skipped_deep_tag", "in an array in a map", b"\xa1\x00\x82\x00\xc0\x00", "Forbidden"),
        inside("skipped_indefinite_array", "", b"\x81\x9f\xff", "Indefinite"),
        inside("skipped_indefinite_map", "", b"\x81\xbf\xff", "Indefinite"),
        inside("skipped_indefinite_bytes", "", b"\x5f\x41a\xff", "Indefinite"),
        inside("skipped_not_utf8", "", b"\x61\xff", "NotUTF8"),
        inside("skipped_depth_9", "", nested(9), "TooDeep"),
        inside("skipped_depth_9_maps", "", b"\xa1\x00" * 9 + b"\x00", "TooDeep"),
        inside("skipped_depth_5000", "no recursion", nested(5000), "TooDeep"),
        inside("skipped_huge_array", "", b"\x9b" + b"\xff" * 8, "Malformed"),
        inside("skipped_huge_map", "twice 2^63 is 0", b"\xbb\x80" + b"\x00" * 7, "Malformed"),
        inside("skipped_huge_text", "", b"\x7b" + b"\xff" * 8, "Malformed"),
        inside("skipped_array_cut", "", b"\x82\x00", "Malformed"),
        inside("skipped_reserved_info", "", b"\x1d", "Malformed"),
    ]


def refused():
    h = lambda name, note, header, verdict: bad(name, note, frame(HELLO, header), verdict)  # noqa: E731
    s = lambda name, note, f: bad(name, note, frame(SUBSCRIBE, {0: "/md", 1: f}), "Filter")  # noqa: E731
    offer = lambda name, note, g, verdict: h(name, note, {**CORE, 5: g, 6: g}, verdict)  # noqa: E731
    out = [h("hello_without_%d" % k, "a required key", {i: v for i, v in CORE.items() if i != k}, "MissingKey") for k in CORE]
    out += [
        h("hello_65_versions", "", {**CORE, 0: list(range(65))}, "TooMany"),
        h("hello_list_huge", "before anything is reserved", Raw(b"\xa5\x00" + head(4, 2**40)), "TooMany"),
        h("hello_list_cut", "64 announced, one there", Raw(b"\xa5\x00" + head(4, 64) + b"\x00"), "Malformed"),
        h("hello_list_of_text", "", {**CORE, 3: ["a"]}, "ValueType"),
        h("hello_offer_list", "a set is a map", {**CORE, 5: []}, "ValueType"),
        h("hello_offer_indefinite", "", Raw(cbor(CORE).replace(b"\xa5", b"\xa6", 1) + b"\x05\xbf\xff"), "Indefinite"),
        h("hello_offer_key_twice", "", Raw(cbor(CORE).replace(b"\xa5", b"\xa6", 1) + b"\x05\xa2\x04\x01\x04\x01"), "KeyOrder"),
        h("hello_offer_key_text", "", Raw(cbor(CORE).replace(b"\xa5", b"\xa6", 1) + b"\x05\xa1\x61a\x01"), "KeyType"),
        h("hello_requires_more", "than it offers", {**CORE, 6: {4: 1}}, "Guarantees"),
        h("hello_requires_longer_window", "", {**CORE, 5: {5: 1, 6: 10}, 6: {5: 1, 6: 11}}, "Guarantees"),
        h("hello_requires_other_backpressure", "values without an order", {**CORE, 5: {7: 1}}, "Guarantees"),
        offer("durability_alone", "", {2: 1}, "Guarantees"),
        offer("durability_of_accepted", "", {1: 2, 2: 0}, "Guarantees"),
        offer("durability_of_processed", "", {1: 5, 2: 1}, "Guarantees"),
        offer("replicas_of_stored", "", {1: 3, 3: 2}, "Guarantees"),
        offer("replicas_1", "the leader is one", {1: 4, 3: 1}, "Guarantees"),
        offer("replicas_0", "", {1: 4, 3: 0}, "Guarantees"),
        offer("bounded_without_window", "", {5: 1}, "Guarantees"),
        offer("window_without_bounded", "", {6: 5}, "Guarantees"),
        offer("window_of_durable", "", {5: 2, 6: 5}, "Guarantees"),
        offer("coalesce_reassemble", "incompatible", {4: 2, 7: 4}, "Guarantees"),
        bad("error_without_code", "", frame(ERROR, {1: "m"}), "MissingKey"),
        bad("error_message_1025", "", frame(ERROR, {0: 1, 1: "m" * 1025}), "TooLong"),
        bad("error_code_text", "", frame(ERROR, {0: "1"}), "ValueType"),
        bad("subscribe_without_filter", "required even when empty", frame(SUBSCRIBE, {0: "/md"}), "MissingKey"),
        bad("subscribe_without_endpoint", "", frame(UNSUBSCRIBE, {1: ""}), "MissingKey"),
        bad("subscribe_filter_257", "", frame(SUBSCRIBE, {0: "/md", 1: "f" * 257}), "TooLong"),
        bad("subscribe_endpoint_513", "", frame(SUBSCRIBE, {0: "/" * 513, 1: ""}), "TooLong"),
        bad("unsubscribe_filter", "judged as SUBSCRIBE's", frame(UNSUBSCRIBE, {0: "/md", 1: "a*"}), "Filter"),
        bad("credit_filter", "judged as SUBSCRIBE's", frame(CREDIT, {0: "/md", 1: "#.a", 2: 1}), "Filter"),
        bad("credit_without_limit", "absent is not 0", frame(CREDIT, {0: "/jobs", 1: ""}), "MissingKey"),
        bad("cursor_without_id", "", frame(CURSOR, {}), "MissingKey"),
        bad("cursor_id_text", "", frame(CURSOR, {0: "1"}), "ValueType"),
        s("filter_star_inside", "a whole segment or nothing", "a*b"),
        s("filter_star_end", "", "a.b*"),
        s("filter_two_stars", "", "**"),
        s("filter_rest_first", "the last segment alone", "#.a"),
        s("filter_rest_middle", "", "a.#.b"),
        s("filter_rest_inside", "", "a.b#"),
        s("filter_rest_then_dot", "an empty segment follows", "a.#."),
    ]
    top = [2, 5, 1, None, 4, 2, None, 4, 1, 1]
    for key, most in enumerate(top):
        if most is not None:
            out.append(offer("guarantee_%d_above" % key, "not defined", {key: most + 1}, "Value"))
    return out


def streams():
    r = lambda name, note, raw, level, offset, again=None: vector(  # noqa: E731
        "weida_record", name, note, raw, line="%d %d" % (level, offset), **({"reencoded": again.hex()} if again else {}))
    record = lambda level, offset: varint(level) + varint(offset)  # noqa: E731
    v = lambda name, note, raw, value, again=None: vector(  # noqa: E731
        "weida_varint", name, note, raw, line=str(value), **({"reencoded": again.hex()} if again else {}))
    out = [
        r("record_accepted", "section 8", bytes.fromhex("024040"), 2, 64),
        r("record_stored", "section 8", bytes.fromhex("03800F4240"), 3, 1000000),
        r("record_longest", "16 bytes", record(2**62 - 1, 2**62 - 1), 2**62 - 1, 2**62 - 1),
        r("record_stage_16", "an application's", record(16, 0), 16, 0),
        r("record_wide", "any length is accepted", varint(2, 8) + varint(1, 4), 2, 1, record(2, 1)),
        vector("weida_record", "record_empty", "", b"", "Incomplete"),
        vector("weida_record", "record_half", "no offset", b"\x02", "Incomplete"),
        vector("weida_record", "record_offset_cut", "", b"\x02\x40", "Incomplete"),
        vector("weida_record", "record_level_6", "reserved", b"\x06\x00", "Value"),
        vector("weida_record", "record_level_15", "judged without its offset", b"\x0f", "Value"),
        vector("weida_varint", "varint_empty", "", b"", "Incomplete"),
        vector("weida_varint", "varint_cut", "", b"\xc0\x00\x00\x00\x00\x00\x00", "Incomplete"),
        v("varint_0_wide", "in eight bytes", varint(0, 8), 0, b"\0"),
        v("varint_rfc_8", "RFC 9000 A.1", bytes.fromhex("c2197c5eff14e88c"), 151288809941952652),
        v("varint_rfc_4", "RFC 9000 A.1", bytes.fromhex("9d7f3e7d"), 494878333),
        v("varint_rfc_2", "RFC 9000 A.1", bytes.fromhex("7bbd"), 15293),
        v("varint_rfc_2_wide", "RFC 9000 A.1", bytes.fromhex("4025"), 37, bytes.fromhex("25")),
    ]
    for n in (0, 63, 64, 16383, 16384, 2**30 - 1, 2**30, 2**62 - 1):
        out.append(v("varint_%d" % n, "at an edge of a length", varint(n), n))
    return out


def matches(f, t):
    """The grammar of section 6.4, by recursion over the segments."""
    def walk(fs, ts):
        if fs == ["#"]:
            return True
        if not fs or not ts:
            return not fs and not ts
        return fs[0] in ("*", ts[0]) and walk(fs[1:], ts[1:])
    return f == "" or walk(f.split("."), t.split("."))


def filters():
    fs = ["", "#", "*", "a", "a.b", "a.*", "*.b", "a.#", "*.*", "*.#", "a.*.c", "a.b.#", ".", "a.", ".a", "px.", "px.*", "px.#", "*.*.#"]
    ts = ["", "a", "b", "a.b", "a.b.c", "a.c.c", ".", "a.", ".a", "#", "*", "a.#", "a.*", "px", "px.", "px.eur", "px.eur.1", "A", "ab"]
    return [{"name": "match_%d_%d" % (i, j), "note": repr(f) + " and " + repr(t), "kind": "weida_match", "hex": f.encode().hex(),
             "topic": t.encode().hex(), "verdict": "ok", "line": "yes" if matches(f, t) else "no"}
            for i, f in enumerate(fs) for j, t in enumerate(ts)]


def negotiations():
    def n(name, note, ours, theirs, line=None, reason=None):
        v = vector("weida_negotiate", name, note, frame(HELLO, {**CORE, **ours}), "ok" if line else reason)
        v["theirs"] = frame(HELLO, {**CORE, **theirs}).hex()
        if line:
            v["line"] = line
        return v
    plain = "0 16384 core"
    offers = lambda a, b, line=None, reason=None: ({5: a, **same(a)}, {5: b, **same(b)}, line, reason)  # noqa: E731
    same = lambda g: {6: {k: v for k, v in g.items() if k in (7, 8)}}  # noqa: E731
    cases = [
        ("plain", "", {}, {}, plain, None),
        ("their_header_bytes", "the peer's bound is ours for sending", {1: 5}, {1: 100}, "0 100 core", None),
        ("greatest_version", "the order of the lists means nothing", {0: [3, 0, 2]}, {0: [2, 1, 0]}, "2 16384 core", None),
        ("no_version", "", {0: [0]}, {0: [1]}, None, "NoCommonVersion"),
        ("empty_versions", "", {}, {0: []}, None, "NoCommonVersion"),
        ("their_capability", "none is supported", {}, {4: [1]}, None, "CapabilityRequired"),
        ("our_capability", "that is theirs to judge", {4: [1]}, {}, plain, None),
        ("their_list", "what they can is no demand", {}, {3: [1, 2]}, plain, None),
        ("version_before_capability", "", {0: [1]}, {4: [1]}, None, "NoCommonVersion"),
        ("capability_before_guarantees", "", {}, {4: [1], 5: {7: 1}, 6: {7: 1}}, None, "CapabilityRequired"),
        ("ordering_both", "", {5: {4: 1}, 6: {4: 1}}, {5: {4: 2}}, "0 16384 4:1", None),
        ("ordering_they_require", "", {}, {5: {4: 1}, 6: {4: 1}}, None, "NotReached"),
        ("ordering_we_require", "", {5: {4: 1}, 6: {4: 1}}, {}, None, "NotReached"),
        ("stored_and_core", "the axes fall with their level", {5: {1: 3, 2: 1}}, {}, plain, None),
        ("stored_and_accepted", "", *offers({1: 3, 2: 1}, {1: 2}, "0 16384 1:2")),
        ("stored_flushed_both", "", {5: {1: 3, 2: 1}}, {5: {1: 3, 2: 1}, 6: {1: 3, 2: 1}}, "0 16384 1:3 2:1", None),
        ("stored_axes_differ", "", *offers({1: 3, 2: 1}, {1: 3, 2: 0}, None, "OffersDiffer")),
        ("stored_axis_on_one_side", "", *offers({1: 3, 2: 1}, {1: 3}, None, "OffersDiffer")),
        ("replicated_and_stored", "the replicas fall, the durability stays", *offers({1: 4, 2: 1, 3: 3}, {1: 3, 2: 1}, "0 16384 1:3 2:1")),
        ("replicas_differ", "", *offers({1: 4, 3: 3}, {1: 4, 3: 2}, None, "OffersDiffer")),
        ("replicas_equal", "", *offers({1: 4, 2: 0, 3: 3}, {1: 4, 2: 0, 3: 3}, "0 16384 1:4 2:0 3:3")),
        ("no_ack", "core demands a receipt", {5: {1: 0}, 6: {1: 0}}, {5: {1: 5}}, None, "NotReached"),
        ("no_ack_both", "", {5: {1: 0}, 6: {1: 0}}, {5: {1: 0}, 6: {1: 0}}, "0 16384 1:0", None),
        ("window_shorter", "", *offers({5: 1, 6: 500}, {5: 1, 6: 20}, "0 16384 5:1 6:20")),
        ("window_and_durable", "", *offers({5: 1, 6: 500}, {5: 2}, "0 16384 5:1 6:500")),
        ("durable_both", "", *offers({5: 2}, {5: 2}, "0 16384 5:2")),
        ("window_and_none", "it falls with its level", *offers({5: 1, 6: 500}, {}, plain)),
        ("window_too_short", "", {5: {5: 1, 6: 10}}, {5: {5: 1, 6: 20}, 6: {5: 1, 6: 20}}, None, "NotReached"),
        ("durable_for_window", "more than was asked", {5: {5: 2}}, {5: {5: 2}, 6: {5: 1, 6: 20}}, "0 16384 5:2", None),
        ("backpressure_equal", "", *offers({7: 2}, {7: 2}, "0 16384 7:2")),
        ("backpressure_differs", "", *offers({7: 2}, {7: 1}, None, "OffersDiffer")),
        ("backpressure_and_core", "", *offers({7: 2}, {}, None, "OffersDiffer")),
        ("naming_differs", "", *offers({8: 1}, {}, None, "OffersDiffer")),
        ("isolated_both", "", *offers({9: 1}, {9: 1}, "0 16384 9:1")),
        ("isolated_one", "", *offers({9: 1}, {}, plain)),
        ("isolated_required", "", {5: {9: 1}, 6: {9: 1}}, {}, None, "NotReached"),
        ("delivery_weaker", "", *offers({0: 2}, {0: 1}, "0 16384 0:1")),
        ("delivery_required", "", {5: {0: 2}, 6: {0: 2}}, {5: {0: 1}}, None, "NotReached"),
        ("every_dimension", "", *offers({0: 2, 1: 4, 2: 1, 3: 5, 4: 3, 5: 1, 6: 9, 7: 4, 8: 1, 9: 1},
                                         {0: 2, 1: 4, 2: 1, 3: 5, 4: 4, 5: 1, 6: 9, 7: 4, 8: 1, 9: 1},
                                         "0 16384 0:2 1:4 2:1 3:5 4:3 5:1 6:9 7:4 8:1 9:1")),
    ]
    return [n("negotiate_" + name, note, ours, theirs, line, reason) for name, note, ours, theirs, line, reason in cases]


def codes():
    return {
        "wire_version": 0,
        "kinds": [{"number": i, "name": k.upper()} for i, k in enumerate(KINDS)],
        "codes": [{"number": n, "name": m} for n, m in CODES],
        "errors": [{"number": n, "name": m} for n, m in ERRORS],
        "levels": [{"number": n, "name": m} for n, m in LEVELS],
        "first_application_level": 16,
        "caps": CAPS,
    }


def sets():
    return {
        "weida_golden": golden() + streams()[:2],
        "weida_accepted": accepted(),
        "weida_refused": preambles() + malformed() + refused(),
        "weida_streams": streams()[2:],
        "weida_filters": filters(),
        "weida_negotiations": negotiations(),
    }
