/**
 * The codec of weir wire v1: values to bytes and back, without I/O.
 *
 * A frame is a 16-byte header, the payload and the CRC-32 of the payload, all integers little-endian:
 *
 *     offset  size  field
 *      0      4     magic "WEIR"
 *      4      1     version, 1
 *      5      1     message type
 *      6      1     durability
 *      7      1     flags, zero
 *      8      4     payload length n, without the CRC
 *     12      4     CRC-32 of bytes 0 to 11
 *     16      n     payload
 *     16+n    4     CRC-32 of the payload
 *
 * Every decoder throws a DecodeError, whose verdict is the name that the conformance vectors use, and checks a declared
 * length before anything is sized by it. What a decoder returns may share the memory that it was given. Encoders do not
 * check their arguments; the client does.
 */

import { createHash } from "node:crypto";
import { crc32 } from "./crc32.js";

export const WIRE_VERSION = 1;
export const HEADER_BYTES = 16;
export const TRAILER_BYTES = 4;
export const MAX_PAYLOAD_BYTES = 16 * 1024 * 1024;
export const MAX_BATCH_RECORDS = 2048;
export const MAX_SEGMENT_BYTES = 255;
export const BATCH_PREFIX_BYTES = 3;
export const BATCH_RECORD_OVERHEAD_BYTES = 4;
export const COORDINATE_FIXED_BYTES = 43;
export const RECORD_ID_BYTES = 32;

const MAGIC = 0x52494557; // "WEIR" as a little-endian integer
const BODY_VERSION = 1; // of a batch body, of the answer to one, and of a coordinate
const RETIRED_DURABILITY = 2;

/** How safe a record has to be before it is acked. */
export const Durability = {
  /** It is on stable storage. */
  Durable: 1,
  /** Its write reached the operating system: it survives the death of the daemon, not of the machine. */
  Buffered: 3,
} as const;
export type Durability = (typeof Durability)[keyof typeof Durability];

/** Byte 5 of a header. */
export const MessageType = {
  Push: 1,
  Ack: 2,
  Nack: 3,
  HealthCheck: 4,
  HealthCheckResponse: 5,
  PushTracked: 6,
  AckTracked: 7,
  PushBatch: 8,
  AckBatch: 9,
} as const;
export type MessageType = (typeof MessageType)[keyof typeof MessageType];
export type RequestType =
  | typeof MessageType.Push
  | typeof MessageType.HealthCheck
  | typeof MessageType.PushTracked
  | typeof MessageType.PushBatch;

/** Why a daemon refused a frame. 0x0A is never assigned. */
export const Reason = {
  BadMagic: 0x01,
  VersionMismatch: 0x02,
  BadHeaderCrc: 0x03,
  PayloadTooLarge: 0x04,
  BadPayloadCrc: 0x05,
  InternalError: 0x06,
  EmptyPayload: 0x07,
  UnknownMessage: 0x08,
  ReservedFlagsSet: 0x09,
  BadBatchFraming: 0x0b,
} as const;

const reasonNames = new Map<number, string>(Object.entries(Reason).map(([name, reason]) => [reason, name]));

/** Whether the protocol assigns a meaning to the byte. */
export function isReason(reason: number): boolean {
  return reasonNames.has(reason);
}

/** The name in the protocol, like PayloadTooLarge; of an unassigned byte the byte, like 0x0A. */
export function reasonName(reason: number): string {
  return reasonNames.get(reason) ?? hexByte(reason);
}

/** A byte as 0x0A. */
export function hexByte(byte: number): string {
  return "0x" + byte.toString(16).toUpperCase().padStart(2, "0");
}

/** What answers each request. */
export const REPLY_TO: Record<RequestType, MessageType> = {
  [MessageType.Push]: MessageType.Ack,
  [MessageType.HealthCheck]: MessageType.HealthCheckResponse,
  [MessageType.PushTracked]: MessageType.AckTracked,
  [MessageType.PushBatch]: MessageType.AckBatch,
};

/** The largest payload of a frame that a daemon sends, in bytes. */
export function maxReplyBytes(type: MessageType): number {
  switch (type) {
    case MessageType.Nack:
      return 2;
    case MessageType.AckTracked:
      return COORDINATE_FIXED_BYTES + MAX_SEGMENT_BYTES;
    case MessageType.AckBatch:
      return BATCH_PREFIX_BYTES + MAX_BATCH_RECORDS / 8;
  }
  return 0;
}

/** Bytes that are not what they should be. */
export class DecodeError extends Error {
  override readonly name = "DecodeError";

  constructor(
    /** The name of the verdict, like BadMagic. */
    readonly verdict: string,
    /** The version byte of the header, with the verdict VersionMismatch. */
    readonly version: number = WIRE_VERSION,
  ) {
    super(verdict);
  }
}

/** A decoded header; payloadBytes is within the cap of its decoder. */
export interface Header {
  type: MessageType;
  durability: Durability;
  payloadBytes: number;
}

/** Where a record landed. */
export interface Coordinate {
  /** The address of the segment: opaque, not a path. */
  segment: string;
  /** The place in the segment, from 1. */
  index: bigint;
  /** 32 bytes, SHA-256. */
  recordId: Uint8Array;
}

/** The idempotency key that the sink gets with a record, sha256: and 64 hex digits. */
export function keyOf(at: Coordinate): string {
  return "sha256:" + buffer(at.recordId).toString("hex");
}

/** The same bytes as a Buffer. */
function buffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** A whole frame. */
export function encodeFrame(type: number, durability: number, payload: Uint8Array): Buffer {
  const frame = startFrame(type, durability, payload.length);
  frame.set(payload, HEADER_BYTES);
  return endFrame(frame);
}

/** A frame whose payload of that many bytes, from HEADER_BYTES on, is still to be filled in. */
function startFrame(type: number, durability: number, payloadBytes: number): Buffer {
  const frame = Buffer.allocUnsafe(HEADER_BYTES + payloadBytes + TRAILER_BYTES);
  frame.writeUInt32LE(MAGIC, 0);
  frame[4] = WIRE_VERSION;
  frame[5] = type;
  frame[6] = durability;
  frame[7] = 0;
  frame.writeUInt32LE(payloadBytes, 8);
  frame.writeUInt32LE(crc32(frame.subarray(0, 12)), 12);
  return frame;
}

function endFrame(frame: Buffer): Buffer {
  const end = frame.length - TRAILER_BYTES;
  frame.writeUInt32LE(crc32(frame.subarray(HEADER_BYTES, end)), end);
  return frame;
}

/** Reads the 16 bytes of a header in the mandatory order. */
export function decodeHeader(bytes: Uint8Array): Header {
  if (bytes.length < HEADER_BYTES) throw new DecodeError("TruncatedFrame");
  const head = buffer(bytes);
  if (head.readUInt32LE(0) !== MAGIC) throw new DecodeError("BadMagic");
  const version = head[4]!;
  if (version !== WIRE_VERSION) throw new DecodeError("VersionMismatch", version);
  if (crc32(head.subarray(0, 12)) !== head.readUInt32LE(12)) throw new DecodeError("HeaderCrcMismatch");
  const type = head[5]!;
  if (type < MessageType.Push || type > MessageType.AckBatch) throw new DecodeError("UnknownMessageType");
  const durability = head[6] === RETIRED_DURABILITY ? Durability.Durable : head[6]!;
  if (!isDurability(durability)) throw new DecodeError("UnknownDurability");
  if (head[7] !== 0) throw new DecodeError("ReservedFlagsSet");
  const payloadBytes = head.readUInt32LE(8);
  if (payloadBytes > MAX_PAYLOAD_BYTES) throw new DecodeError("PayloadTooLarge");
  return { type: type as MessageType, durability, payloadBytes };
}

/** Whether the byte is a tier that an encoder may write. */
export function isDurability(byte: number): byte is Durability {
  return byte === Durability.Durable || byte === Durability.Buffered;
}

/** Reads the header of an answer to a frame of type sent, with the cap of the answer's own type. */
export function decodeReplyHeader(bytes: Uint8Array, sent: RequestType): Header {
  const header = decodeHeader(bytes);
  if (header.type !== MessageType.Nack && header.type !== REPLY_TO[sent]) throw new DecodeError("UnexpectedReply");
  if (header.payloadBytes > maxReplyBytes(header.type)) throw new DecodeError("PayloadTooLarge");
  return header;
}

/** Splits what follows a header, payload and CRC, and returns the payload once the CRC was checked. */
export function decodePayload(body: Uint8Array): Uint8Array {
  const payload = body.subarray(0, body.length - TRAILER_BYTES);
  if (crc32(payload) !== buffer(body).readUInt32LE(payload.length)) throw new DecodeError("PayloadCrcMismatch");
  return payload;
}

/** Reads bytes that are exactly one frame. */
export function decodeFrame(bytes: Uint8Array): { header: Header; payload: Uint8Array } {
  const header = decodeHeader(bytes);
  const end = HEADER_BYTES + header.payloadBytes + TRAILER_BYTES;
  if (bytes.length < end) throw new DecodeError("TruncatedFrame");
  if (bytes.length > end) throw new DecodeError("TrailingBytes");
  return { header, payload: decodePayload(bytes.subarray(HEADER_BYTES)) };
}

/** The payload of a Nack; version goes with VersionMismatch alone. */
export function encodeNack(reason: number, version: number = WIRE_VERSION): Uint8Array {
  return Uint8Array.from(reason === Reason.VersionMismatch ? [reason, version] : [reason]);
}

/** Reads the payload of a Nack. The reason may be an unassigned one; version is the daemon's, or 0. */
export function decodeNack(payload: Uint8Array): { reason: number; version: number } {
  const reason = payload[0];
  if (reason === undefined) throw new DecodeError("Truncated");
  if (payload.length !== (reason === Reason.VersionMismatch ? 2 : 1)) throw new DecodeError("LengthMismatch");
  return { reason, version: payload[1] ?? 0 };
}

/** How many bytes the body of a batch has. */
export function batchBytes(records: readonly Uint8Array[]): number {
  return records.reduce((sum, record) => sum + BATCH_RECORD_OVERHEAD_BYTES + record.length, BATCH_PREFIX_BYTES);
}

/** The whole frame of a batch. */
export function encodePushBatch(durability: number, records: readonly Uint8Array[]): Buffer {
  const frame = startFrame(MessageType.PushBatch, durability, batchBytes(records));
  writeBatch(frame, HEADER_BYTES, records);
  return endFrame(frame);
}

/** The body of a PushBatch. */
export function encodeBatch(records: readonly Uint8Array[]): Buffer {
  const body = Buffer.allocUnsafe(batchBytes(records));
  writeBatch(body, 0, records);
  return body;
}

function writeBatch(into: Buffer, start: number, records: readonly Uint8Array[]): void {
  let at = into.writeUInt16LE(records.length, into.writeUInt8(BODY_VERSION, start));
  for (const record of records) {
    at = into.writeUInt32LE(record.length, at);
    into.set(record, at);
    at += record.length;
  }
}

/** Reads the body of a PushBatch in the order of its checks. */
export function decodeBatch(body: Uint8Array): Uint8Array[] {
  const count = decodeCount(body);
  if (count > MAX_BATCH_RECORDS) throw new DecodeError("TooManyRecords");
  const bytes = buffer(body);
  const records: Uint8Array[] = [];
  let at = BATCH_PREFIX_BYTES;
  for (let i = 0; i < count; i++) {
    if (bytes.length - at < BATCH_RECORD_OVERHEAD_BYTES) throw new DecodeError("TruncatedRecord");
    const length = bytes.readUInt32LE(at);
    at += BATCH_RECORD_OVERHEAD_BYTES;
    if (length === 0) throw new DecodeError("EmptyRecord");
    if (length > MAX_PAYLOAD_BYTES) throw new DecodeError("RecordTooLarge");
    if (bytes.length - at < length) throw new DecodeError("TruncatedRecord");
    records.push(bytes.subarray(at, at + length));
    at += length;
  }
  if (at !== bytes.length) throw new DecodeError("LengthMismatch");
  return records;
}

function decodeCount(body: Uint8Array): number {
  if (body.length < BATCH_PREFIX_BYTES) throw new DecodeError("Truncated");
  if (body[0] !== BODY_VERSION) throw new DecodeError("UnsupportedVersion");
  const count = buffer(body).readUInt16LE(1);
  if (count === 0) throw new DecodeError("EmptyBatch");
  return count;
}

/** The payload of an AckBatch: bit i is byte i / 8, mask 1 << (i % 8). */
export function encodeAckBatch(acked: readonly boolean[]): Buffer {
  const payload = Buffer.alloc(BATCH_PREFIX_BYTES + Math.ceil(acked.length / 8));
  payload.writeUInt16LE(acked.length, payload.writeUInt8(BODY_VERSION, 0));
  acked.forEach((ok, i) => {
    if (ok) payload[BATCH_PREFIX_BYTES + (i >> 3)]! |= 1 << (i & 7);
  });
  return payload;
}

/** Reads the answer to a batch of sent records: element i tells whether record i is acked. */
export function decodeAckBatch(payload: Uint8Array, sent: number): boolean[] {
  const count = decodeCount(payload);
  const bits = payload.subarray(BATCH_PREFIX_BYTES);
  if (count !== sent || bits.length !== Math.ceil(count / 8)) throw new DecodeError("LengthMismatch");
  if (count % 8 !== 0 && bits[bits.length - 1]! >> (count % 8) !== 0) throw new DecodeError("PaddingNotZero");
  return Array.from({ length: count }, (_, i) => (bits[i >> 3]! & (1 << (i & 7))) !== 0);
}

/** The payload of an AckTracked. */
export function encodeCoordinate(at: Coordinate): Buffer {
  const segment = Buffer.from(at.segment);
  const payload = Buffer.alloc(COORDINATE_FIXED_BYTES + segment.length);
  payload[0] = BODY_VERSION;
  payload.writeBigUInt64LE(at.index, 1);
  payload.set(at.recordId, 9);
  payload.writeUInt16LE(segment.length, 41);
  payload.set(segment, COORDINATE_FIXED_BYTES);
  return payload;
}

/** Reads a payload that must be exactly one coordinate. */
export function decodeCoordinate(payload: Uint8Array): Coordinate {
  if (payload.length < COORDINATE_FIXED_BYTES) throw new DecodeError("Truncated");
  const bytes = buffer(payload);
  if (bytes[0] !== BODY_VERSION) throw new DecodeError("UnsupportedVersion");
  const length = bytes.readUInt16LE(41);
  if (length > MAX_SEGMENT_BYTES) throw new DecodeError("SegmentTooLong");
  if (bytes.length !== COORDINATE_FIXED_BYTES + length) throw new DecodeError("LengthMismatch");
  return {
    segment: decodeUtf8(bytes.subarray(COORDINATE_FIXED_BYTES)),
    index: bytes.readBigUInt64LE(1),
    recordId: Uint8Array.from(bytes.subarray(9, 9 + RECORD_ID_BYTES)),
  };
}

function decodeUtf8(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new DecodeError("SegmentNotUtf8");
  }
}

/** SHA-256 over the segment, the index and the payload, every length a u64. */
export function recordId(segment: string, index: bigint, payload: Uint8Array): Uint8Array {
  const name = Buffer.from(segment);
  const digest = createHash("sha256").update(u64(name.length)).update(name).update(u64(index));
  return digest.update(u64(payload.length)).update(payload).digest();
}

function u64(n: number | bigint): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(n));
  return bytes;
}
