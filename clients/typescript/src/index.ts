/**
 * The client of the weir daemon, which keeps records safe on the local disk until they are delivered.
 *
 * Client sends one frame at a time and resolves with its answer. Producer keeps many records in flight on one
 * connection, reconnects by itself, and reports what became of each record.
 *
 * Delivery is at least once. A record whose state is unknown may or may not be stored: send it again, and expect that it
 * may arrive twice. A connection is used no more after an error or a timeout, since what it would carry next could be
 * taken for the answer to something else.
 *
 * @packageDocumentation
 */

import { Durability } from "./codec.js";

export { Client, type ClientOptions } from "./client.js";
export { Durability, Reason, keyOf, type Coordinate } from "./codec.js";
export {
  ClosedError,
  ConnectError,
  ProtocolError,
  RefusedError,
  TimedOutError,
  TransientError,
  UnknownOutcomeError,
  UnknownReasonError,
  VersionMismatchError,
  WeirError,
  type Outcome,
  type State,
} from "./errors.js";
export type { Report } from "./pipeline.js";
export { Producer, type ProducerOptions } from "./producer.js";

export const DURABLE = Durability.Durable;
export const BUFFERED = Durability.Buffered;
