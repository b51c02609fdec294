/** The codec behind the line protocol of `conformance run`. */

import { createInterface } from "node:readline";
import * as codec from "../src/codec.js";

const dash = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex") || "-";
const undash = (text: string) => (text === "-" ? Buffer.alloc(0) : Buffer.from(text, "hex"));

const operations: Record<string, (args: string[]) => string> = {
  "decode-frame": ([hex]) => {
    const { header, payload } = codec.decodeFrame(undash(hex!));
    return `${header.type} ${header.durability} ${dash(payload)}`;
  },
  "decode-batch": ([hex]) => codec.decodeBatch(undash(hex!)).map(dash).join(" "),
  "decode-ack_batch": ([sent, hex]) =>
    codec
      .decodeAckBatch(undash(hex!), Number(sent))
      .map((ok) => (ok ? "1" : "0"))
      .join(""),
  "decode-coordinate": ([hex]) => {
    const at = codec.decodeCoordinate(undash(hex!));
    return `${at.index} ${dash(at.recordId)} ${dash(Buffer.from(at.segment))}`;
  },
  "decode-nack": ([hex]) => {
    const { reason, version } = codec.decodeNack(undash(hex!));
    return `${reason} ${version}`;
  },
  "encode-frame": ([type, durability, hex]) => dash(codec.encodeFrame(Number(type), Number(durability), undash(hex!))),
  "encode-batch": (records) => {
    const body = codec.encodeBatch(records.map(undash));
    const whole = codec.decodeFrame(codec.encodePushBatch(1, records.map(undash)));
    return body.equals(whole.payload) ? dash(body) : "the frame holds another body";
  },
  "encode-ack_batch": ([bits]) => dash(codec.encodeAckBatch([...bits!].map((bit) => bit === "1"))),
  "encode-coordinate": ([index, id, segment]) =>
    dash(codec.encodeCoordinate({ index: BigInt(index!), recordId: undash(id!), segment: undash(segment!).toString() })),
  "encode-nack": ([reason, version]) => dash(codec.encodeNack(Number(reason), Number(version))),
  record_id: ([index, segment, hex]) => dash(codec.recordId(undash(segment!).toString(), BigInt(index!), undash(hex!))),
};

for await (const line of createInterface({ input: process.stdin })) {
  const [op, ...args] = line.split(" ");
  try {
    console.log("ok " + operations[op!]!(args));
  } catch (error) {
    if (!(error instanceof codec.DecodeError)) throw error;
    console.log("err " + error.verdict);
  }
}
