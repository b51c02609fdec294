/** Requests and their answers, without I/O. */

import * as codec from "./codec.js";
import { Durability, MessageType, Reason, type Coordinate, type RequestType } from "./codec.js";
import {
  ProtocolError,
  RefusedError,
  TransientError,
  UnknownReasonError,
  VersionMismatchError,
  versions,
  type WeirError,
} from "./errors.js";

/** A frame and what reads its answer. */
export interface Request<T> {
  readonly frame: Buffer;
  readonly sent: RequestType;
  readonly parse: (payload: Uint8Array) => T;
}

/** Checks a record. */
function check(payload: Uint8Array): void {
  if (!(payload instanceof Uint8Array)) throw new TypeError("weir: a record is a Uint8Array, like a Buffer");
  if (payload.length === 0) throw new RefusedError(Reason.EmptyPayload, "a record has at least one byte");
  if (payload.length > codec.MAX_PAYLOAD_BYTES) {
    throw tooLarge(`a record of ${payload.length} bytes, ${codec.MAX_PAYLOAD_BYTES} are possible`);
  }
}

function checkTier(durability: Durability): void {
  if (!codec.isDurability(durability)) throw new TypeError("weir: no such durability");
}

function tooLarge(text: string): RefusedError {
  return new RefusedError(Reason.PayloadTooLarge, text);
}

/** The frame of a push. The payload is copied. */
export function pushFrame(payload: Uint8Array, durability: Durability): Buffer {
  check(payload);
  checkTier(durability);
  return codec.encodeFrame(MessageType.Push, durability, payload);
}

/** Push one record. */
export function push(payload: Uint8Array, durability: Durability): Request<void> {
  return { frame: pushFrame(payload, durability), sent: MessageType.Push, parse: () => undefined };
}

/** Ask whether the daemon answers. */
export function health(): Request<void> {
  const frame = codec.encodeFrame(MessageType.HealthCheck, Durability.Durable, new Uint8Array());
  return { frame, sent: MessageType.HealthCheck, parse: () => undefined };
}

/** Push one record and get its coordinate, whose id is checked against the record. */
export function pushTracked(payload: Uint8Array, durability: Durability): Request<Coordinate> {
  check(payload);
  checkTier(durability);
  const frame = codec.encodeFrame(MessageType.PushTracked, durability, payload);
  const record = frame.subarray(codec.HEADER_BYTES, codec.HEADER_BYTES + payload.length);
  return {
    frame,
    sent: MessageType.PushTracked,
    parse(reply) {
      const at = decoded(() => codec.decodeCoordinate(reply));
      if (Buffer.compare(at.recordId, codec.recordId(at.segment, at.index, record)) !== 0) {
        throw new ProtocolError("UnexpectedReply", "the record id is that of another record");
      }
      return at;
    },
  };
}

/** Push many records in one frame. */
export function pushBatch(payloads: readonly Uint8Array[], durability: Durability): Request<boolean[]> {
  const count = payloads.length;
  if (count === 0) throw new RefusedError(Reason.BadBatchFraming, "a batch without records");
  if (count > codec.MAX_BATCH_RECORDS) {
    throw tooLarge(`a batch of ${count} records, ${codec.MAX_BATCH_RECORDS} are possible`);
  }
  payloads.forEach(check);
  checkTier(durability);
  const bytes = codec.batchBytes(payloads);
  if (bytes > codec.MAX_PAYLOAD_BYTES) {
    throw tooLarge(`a batch of ${bytes} bytes, ${codec.MAX_PAYLOAD_BYTES} are possible`);
  }
  return {
    frame: codec.encodePushBatch(durability, payloads),
    sent: MessageType.PushBatch,
    parse: (reply) => decoded(() => codec.decodeAckBatch(reply, count)),
  };
}

/** Runs a decoder; what it finds wrong is a ProtocolError. */
function decoded<T>(decode: () => T): T {
  try {
    return decode();
  } catch (error) {
    if (!(error instanceof codec.DecodeError)) throw error;
    throw new ProtocolError(error.verdict, error.verdict === "VersionMismatch" ? versions(error.version) : "");
  }
}

const ACK = codec.encodeFrame(MessageType.Ack, Durability.Durable, new Uint8Array());

/** Whether the plain Ack, which is by far the most frequent answer, is at that place. */
function isAck(bytes: Buffer, at: number): boolean {
  if (bytes.length - at < ACK.length) return false;
  for (let i = 0; i < ACK.length; i++) if (bytes[at + i] !== ACK[i]) return false;
  return true;
}

/**
 * The bytes that came on one connection, and the answers in them. It holds what it was fed last and, before that, less
 * than one frame of an answer: nothing is kept or sized by a length that a peer declared before that length
 * was held against the cap of its type.
 */
export class ReplyBuffer {
  #bytes: Buffer = Buffer.alloc(0);
  #at = 0;

  /** How many bytes are left. */
  get length(): number {
    return this.#bytes.length - this.#at;
  }

  /** Adds what was read. */
  feed(chunk: Buffer): void {
    this.#bytes = this.length === 0 ? chunk : Buffer.concat([this.#bytes.subarray(this.#at), chunk]);
    this.#at = 0;
  }

  /**
   * The payload of the answer to a frame of type sent, or undefined if it is not all there. Throws a RefusedError,
   * TransientError or UnknownReasonError where the answer is a Nack, and a ProtocolError where it is none. The
   * connection is of use only after an answer and after a TransientError.
   */
  next(sent: RequestType): Uint8Array | undefined {
    if (sent === MessageType.Push && isAck(this.#bytes, this.#at)) {
      this.#at += ACK.length;
      return this.#bytes.subarray(0, 0);
    }
    return decoded(() => this.#next(sent));
  }

  #next(sent: RequestType): Uint8Array | undefined {
    if (this.length < codec.HEADER_BYTES) return undefined;
    const body = this.#at + codec.HEADER_BYTES;
    const header = codec.decodeReplyHeader(this.#bytes.subarray(this.#at, body), sent);
    const end = body + header.payloadBytes + codec.TRAILER_BYTES;
    if (end > this.#bytes.length) return undefined;
    const payload = codec.decodePayload(this.#bytes.subarray(body, end));
    this.#at = end;
    if (header.type === MessageType.Nack) throw nackError(payload);
    return payload;
  }
}

function nackError(payload: Uint8Array): WeirError {
  const { reason, version } = codec.decodeNack(payload);
  if (reason === Reason.InternalError) {
    return new TransientError("the daemon could not store it now, InternalError (0x06)");
  }
  if (reason === Reason.VersionMismatch) return new VersionMismatchError(version);
  return codec.isReason(reason) ? new RefusedError(reason) : new UnknownReasonError(reason);
}
