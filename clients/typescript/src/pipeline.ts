/** The records of a producer, without I/O: what waits, what is in flight, and what became of it. */

import { MessageType } from "./codec.js";
import { ProtocolError, RefusedError, TransientError, UnknownReasonError, type Outcome, type WeirError } from "./errors.js";
import { ReplyBuffer } from "./exchange.js";

/** Is told what became of a record. What it throws is an uncaught exception of the process. */
export type Report = (outcome: Outcome) => void;

/** Frames of so many bytes are written together; a larger frame goes alone. */
const CHUNK_BYTES = 64 * 1024;
const ACKED: Outcome = Object.freeze({ state: "acked" });

interface Entry {
  readonly frame: Buffer;
  readonly report: Report;
  /** How many bytes of the stream must be known as written before the frame can be acked, once it is in flight. */
  needs: number;
}

/**
 * Records in the order in which they were added, which is the order of their outcomes. A record waits until its frame is
 * handed out to be written, and is in flight from then on.
 */
export class Pipeline {
  readonly #mostRecords: number;
  readonly #mostBytes: number;
  readonly #waiting = new Fifo<Entry>();
  readonly #flying = new Fifo<Entry>();
  #handed = 0; // bytes handed out on this connection
  #bytes = 0; // of all frames in here
  #replies = new ReplyBuffer();
  #useful = false; // a record got a definite answer on this connection

  /** At most mostRecords of mostBytes of frames are in it; a frame above mostBytes has to be alone. */
  constructor(mostRecords: number, mostBytes: number) {
    this.#mostRecords = Math.max(1, mostRecords);
    this.#mostBytes = mostBytes;
  }

  /** How many records have no outcome. */
  get length(): number {
    return this.#waiting.length + this.#flying.length;
  }

  /** How many of them wait. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** How many of them are in flight. */
  get inFlight(): number {
    return this.#flying.length;
  }

  /** Whether a frame of that length may be added. */
  room(frameBytes: number): boolean {
    return (
      this.length === 0 || (this.length < this.#mostRecords && this.#bytes + frameBytes <= this.#mostBytes)
    );
  }

  add(frame: Buffer, report: Report): void {
    this.#waiting.push({ frame, report, needs: 0 });
    this.#bytes += frame.length;
  }

  /**
   * The next frames to be written, of which there is one at least; they are in flight from now on. They have to be written
   * by one call: what is known as written is then the whole of it or nothing.
   */
  handOut(): Buffer {
    const frames: Buffer[] = [];
    let size = 0;
    let last: Entry | undefined;
    for (let next = this.#waiting.first; next !== undefined; next = this.#waiting.first) {
      if (size > 0 && size + next.frame.length > CHUNK_BYTES) break;
      this.#waiting.shift();
      frames.push(next.frame);
      size += next.frame.length;
      next.needs = this.#handed; // it may be out while the rest is not
      this.#flying.push(next);
      last = next;
    }
    this.#handed += size;
    if (last !== undefined) last.needs = this.#handed;
    return frames.length === 1 ? frames[0]! : Buffer.concat(frames, size);
  }

  /**
   * Settles what chunk answers, while the last unwritten bytes that were handed out are not known as written. Returns the
   * error that ends the connection; the records it leaves in flight are settled by lost.
   */
  received(chunk: Buffer, unwritten: number): WeirError | undefined {
    const wrote = this.#handed - unwritten;
    this.#replies.feed(chunk);
    for (let entry = this.#flying.first; entry !== undefined; entry = this.#flying.first) {
      try {
        if (this.#replies.next(MessageType.Push) === undefined) return undefined;
      } catch (caught) {
        const error = caught as WeirError;
        const refused = error instanceof RefusedError || error instanceof UnknownReasonError;
        if (refused || error instanceof TransientError) this.#settle({ state: error.state, error });
        if (error instanceof TransientError) continue;
        this.#useful ||= refused;
        return error;
      }
      if (entry.needs > wrote) return new ProtocolError("UnexpectedReply", "an answer to a frame that is not written");
      this.#useful = true;
      this.#settle(ACKED);
    }
    return this.#replies.length > 0 ? new ProtocolError("UnexpectedReply", "nothing was asked") : undefined;
  }

  /**
   * Ends the connection: what is in flight is unknown, what waits goes on waiting. Returns whether the connection was
   * useful: a record got a definite answer on it.
   */
  lost(error: WeirError): boolean {
    const useful = this.#useful;
    this.#handed = 0;
    this.#replies = new ReplyBuffer();
    this.#useful = false;
    while (this.#flying.length > 0) this.#settle({ state: "unknown", error });
    return useful;
  }

  /** Gives every record that still waits the outcome of error. */
  abandon(error: WeirError): void {
    while (this.#waiting.length > 0) this.#tell(this.#waiting.shift()!, { state: "unknown", error });
  }

  #settle(outcome: Outcome): void {
    this.#tell(this.#flying.shift()!, outcome);
  }

  #tell(entry: Entry, outcome: Outcome): void {
    this.#bytes -= entry.frame.length;
    try {
      entry.report(outcome);
    } catch (error) {
      // A fault in a report must be seen, and must not change what becomes of other records.
      queueMicrotask(() => {
        throw error;
      });
    }
  }
}

/** A queue whose shift takes constant time. */
class Fifo<T> {
  #items: (T | undefined)[] = [];
  #head = 0;

  get length(): number {
    return this.#items.length - this.#head;
  }

  get first(): T | undefined {
    return this.#items[this.#head];
  }

  push(item: T): void {
    this.#items.push(item);
  }

  shift(): T | undefined {
    const item = this.#items[this.#head];
    this.#items[this.#head++] = undefined;
    if (this.#head * 2 >= this.#items.length) {
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
    return item;
  }
}

/** Pauses between tries to connect: doubling from leastMs to mostMs, each cut by up to half at random. */
export class Backoff {
  #failures = 0;

  constructor(
    private readonly leastMs: number,
    private readonly mostMs: number,
    private readonly jitter: () => number,
  ) {}

  /** How many ms to wait after a connection, or a try at one, came to its end: 0 after a useful one. */
  after(useful: boolean): number {
    if (useful) {
      this.#failures = 0;
      return 0;
    }
    const pause = Math.min(this.mostMs, this.leastMs * 2 ** this.#failures++);
    return pause * (1 - this.jitter() / 2);
  }
}
