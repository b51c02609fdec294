import { Reason, WIRE_VERSION, hexByte, reasonName } from "./codec.js";

/**
 * What is known of a record. "acked": it is as safe as it was asked to be. "refused": it is not stored, and sending it
 * again will not help. "unknown": it may be stored or not; send it again, and expect that it may arrive twice.
 */
export type State = "acked" | "refused" | "unknown";

/** What became of one record of a producer; error says why it is not acked. */
export interface Outcome {
  readonly state: State;
  readonly error?: WeirError;
}

/** The base of all errors of this package but a TypeError for what is no record. */
export class WeirError extends Error {
  /** What the error means for the records of the call. */
  readonly state: Exclude<State, "acked"> = "unknown";

  constructor(text: string, options?: { cause?: unknown }) {
    super("weir: " + text, options);
    this.name = new.target.name;
  }
}

/**
 * The record, or the whole batch, is not stored and never will be: do not send it again as it is. A check before sending
 * gives the reason that the daemon would give.
 */
export class RefusedError extends WeirError {
  override readonly state = "refused";
  /** The reason's name in the protocol, like PayloadTooLarge. */
  readonly reasonName: string;

  constructor(
    /** The byte of the protocol, one of Reason. */
    readonly reason: number,
    text = "",
  ) {
    const name = reasonName(reason);
    super(`refused, ${name} (${hexByte(reason)})${text && ": " + text}`);
    this.reasonName = name;
  }
}

/** The daemon speaks another version of the protocol. */
export class VersionMismatchError extends RefusedError {
  readonly clientVersion = WIRE_VERSION;

  constructor(readonly daemonVersion: number) {
    super(Reason.VersionMismatch, versions(daemonVersion));
  }
}

/** Both sides of a version mismatch in words. */
export function versions(daemonVersion: number): string {
  return `the daemon is on wire protocol v${daemonVersion}, this client on v${WIRE_VERSION}: upgrade the older one`;
}

/**
 * Not now: send it again after a pause. The connection goes on. With the daemon's InternalError the record may still be
 * stored; with nobody at the socket it is not.
 */
export class TransientError extends WeirError {}

/** Nobody answers at the socket. Nothing was sent. */
export class ConnectError extends TransientError {}

/** It was sent, and there is no valid answer. The connection was dropped; the next call makes a new one. */
export class UnknownOutcomeError extends WeirError {}

/** The answer did not come in time. */
export class TimedOutError extends UnknownOutcomeError {
  constructor() {
    super("no answer in time");
  }
}

/** The answer was not one. */
export class ProtocolError extends UnknownOutcomeError {
  constructor(
    /** What was wrong, as the conformance vectors call it. */
    readonly verdict: string,
    text = "",
  ) {
    super(`bad reply, ${verdict}${text && ": " + text}`);
  }
}

/** The daemon refused the frame for a reason that this client does not know, so nothing is assumed of it. */
export class UnknownReasonError extends UnknownOutcomeError {
  /** The byte in hex, like 0x0A. */
  readonly reasonName: string;

  constructor(
    /** The byte as it came. */
    readonly reason: number,
  ) {
    super(`refused for an unknown reason, ${hexByte(reason)}`);
    this.reasonName = hexByte(reason);
  }
}

/** The client or producer is closed; the record was not sent. */
export class ClosedError extends WeirError {}
