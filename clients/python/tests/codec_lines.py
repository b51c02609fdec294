"""The codec behind the line protocol of `conformance run`."""

import sys
from typing import List

from weir import codec
from weir.codec import Coordinate, DecodeError


def dash(raw: bytes) -> str:
    return raw.hex() or "-"


def undash(text: str) -> bytes:
    return b"" if text == "-" else bytes.fromhex(text)


def answer(op: str, args: List[str]) -> str:
    last = undash(args[-1]) if op.startswith("decode-") else b""
    if op == "decode-frame":
        header, payload = codec.decode_frame(last)
        return "%d %d %s" % (header.type, header.durability, dash(payload))
    if op == "decode-batch":
        return " ".join(r.hex() for r in codec.decode_batch(last))
    if op == "decode-ack_batch":
        return "".join("01"[ok] for ok in codec.decode_ack_batch(last, int(args[0])))
    if op == "decode-coordinate":
        at = codec.decode_coordinate(last)
        return "%d %s %s" % (at.index, at.record_id.hex(), dash(at.segment.encode()))
    if op == "decode-nack":
        return "%d %d" % codec.decode_nack(last)
    if op == "encode-frame":
        return codec.encode_frame(int(args[0]), int(args[1]), undash(args[2])).hex()
    if op == "encode-batch":
        return codec.encode_batch([undash(a) for a in args]).hex()
    if op == "encode-ack_batch":
        return codec.encode_ack_batch([c == "1" for c in args[0]]).hex()
    if op == "encode-coordinate":
        return codec.encode_coordinate(Coordinate(undash(args[2]).decode(), int(args[0]), undash(args[1]))).hex()
    if op == "encode-nack":
        return codec.encode_nack(int(args[0]), int(args[1])).hex()
    assert op == "record_id", op
    return codec.record_id(undash(args[1]).decode(), int(args[0]), undash(args[2])).hex()


def main() -> None:
    for line in sys.stdin:
        op, *args = line.rstrip("\n").split(" ")
        try:
            print("ok " + answer(op, args), flush=True)
        except DecodeError as err:
            print("err " + err.verdict, flush=True)


if __name__ == "__main__":
    main()
