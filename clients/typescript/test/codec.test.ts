/** The names and numbers are those of the conformance suite, which drives the codec itself. */

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as codec from "../src/codec.js";
import { Durability, MessageType, Reason, type RequestType } from "../src/codec.js";
import { crc32, nativeCrc32, tableCrc32 } from "../src/crc32.js";
import { frame } from "./fake.js";

interface Code {
  number: number;
  name: string;
  written?: boolean;
}
const codes = JSON.parse(
  readFileSync(new URL("../../../../conformance/vectors/codes.json", import.meta.url), "utf8"),
) as { types: Code[]; reasons: Code[]; durabilities: Code[]; reserved_reasons: number[]; caps: object; wire_version: number };

const byNumber = (list: Code[]) => Object.fromEntries(list.map(({ name, number }) => [name, number]));

test("types, reasons and durabilities", () => {
  assert.deepEqual({ ...MessageType }, byNumber(codes.types));
  assert.deepEqual({ ...Reason }, byNumber(codes.reasons));
  assert.deepEqual({ ...Durability }, byNumber(codes.durabilities.filter((d) => d.written)));
  for (const { number, name } of codes.reasons) assert.equal(codec.reasonName(number), name);
  assert.deepEqual(codes.reserved_reasons.map(codec.reasonName), ["0x0A"]);
});

test("caps", () => {
  assert.deepEqual(
    {
      header_bytes: codec.HEADER_BYTES,
      trailer_bytes: codec.TRAILER_BYTES,
      payload_bytes: codec.MAX_PAYLOAD_BYTES,
      batch_records: codec.MAX_BATCH_RECORDS,
      segment_bytes: codec.MAX_SEGMENT_BYTES,
      nack_bytes: codec.maxReplyBytes(MessageType.Nack),
      ack_tracked_bytes: codec.maxReplyBytes(MessageType.AckTracked),
      ack_batch_bytes: codec.maxReplyBytes(MessageType.AckBatch),
    },
    codes.caps,
  );
  assert.equal(codec.WIRE_VERSION, codes.wire_version);
});

test("an answer is taken for the request that it answers, with the cap of its own type", () => {
  for (const [key, answer] of Object.entries(codec.REPLY_TO)) {
    const sent = Number(key) as RequestType;
    for (const reply of Object.values(MessageType)) {
      const fits = reply === MessageType.Nack || reply === answer;
      const most = codec.maxReplyBytes(reply);
      for (const length of [most, most + 1, 1 << 24]) {
        const head = frame(reply, new Uint8Array(length)).subarray(0, codec.HEADER_BYTES);
        const decode = () => codec.decodeReplyHeader(head, sent);
        if (!fits) assert.throws(decode, { verdict: "UnexpectedReply" });
        else if (length > most) assert.throws(decode, { verdict: "PayloadTooLarge" });
        else assert.equal(decode().payloadBytes, length);
      }
    }
  }
});

test("both CRCs are that of zlib", () => {
  assert.equal(tableCrc32(Buffer.from("123456789")), 0xcbf43926);
  assert.equal(tableCrc32(new Uint8Array()), 0);
  for (const length of [1, 12, 127, 128, 1000]) {
    const bytes = randomBytes(length);
    assert.equal(crc32(bytes), tableCrc32(bytes));
    if (nativeCrc32 !== undefined) assert.equal(nativeCrc32(bytes), tableCrc32(bytes));
  }
});

test("a segment keeps its byte order mark", () => {
  const at = { segment: "\ufeffs", index: 2n ** 64n - 1n, recordId: new Uint8Array(randomBytes(32)) };
  assert.deepEqual(codec.decodeCoordinate(codec.encodeCoordinate(at)), at);
});
