import { Durability, type Coordinate } from "./codec.js";
import { Connection, DEFAULT_TIMEOUT_MS, polled, socketPath, type Receiver } from "./connection.js";
import { ClosedError, ProtocolError, TimedOutError, TransientError, type WeirError } from "./errors.js";
import * as exchange from "./exchange.js";
import { ReplyBuffer, type Request } from "./exchange.js";
import { Turns } from "./turns.js";

/** Options of a Client. */
export interface ClientOptions {
  /** The daemon's socket; default WEIR_SOCKET, else weir-data/weir.sock. */
  path?: string | undefined;
  /** Bounds each call, in milliseconds; default 30,000. */
  timeoutMs?: number;
}

/**
 * Sends one frame at a time over one connection, which it makes when it is needed and drops after an error. Calls that
 * overlap take turns. It holds the process open until it is closed.
 *
 * Every call rejects with a RefusedError, TransientError, UnknownOutcomeError or ClosedError.
 */
export class Client {
  readonly #path: string;
  readonly #timeoutMs: number;
  readonly #turns = new Turns();
  #link: Link | undefined;
  #closed = false;

  constructor(options: ClientOptions = {}) {
    this.#path = socketPath(options.path);
    this.#timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
  }

  /** Sends one record of 1 byte to 16 MiB, which is copied. Resolves once it is as safe as durability asks for. */
  async push(payload: Uint8Array, durability: Durability = Durability.Durable): Promise<void> {
    await this.#call(exchange.push(payload, durability));
  }

  /**
   * Pushes a record and tells where it landed. A daemon that is too old for this gives a RefusedError with
   * Reason.UnknownMessage.
   */
  async pushTracked(payload: Uint8Array, durability: Durability = Durability.Durable): Promise<Coordinate> {
    return this.#call(exchange.pushTracked(payload, durability));
  }

  /**
   * Sends 1 to 2048 records in one frame of at most 16 MiB (a daemon may take fewer: 1024 by default). Element i of the
   * result tells whether record i is as safe as durability asks for; where it is false the record's state is unknown:
   * send it again. An error holds for all records alike.
   */
  async pushBatch(
    payloads: readonly Uint8Array[],
    durability: Durability = Durability.Durable,
  ): Promise<boolean[]> {
    return this.#call(exchange.pushBatch(payloads, durability));
  }

  /** Resolves if the daemon answers. */
  async health(): Promise<void> {
    await this.#call(exchange.health());
  }

  /** Closes the connection, once a call that runs has ended. Later calls reject with a ClosedError. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#turns.take();
    this.#drop();
    this.#turns.pass();
  }

  async #call<T>(request: Request<T>): Promise<T> {
    const deadline = performance.now() + this.#timeoutMs;
    if (!(await this.#turns.take(this.#timeoutMs))) {
      throw new TransientError("other calls ran all the time; nothing was sent");
    }
    try {
      if (this.#closed) throw new ClosedError("the client is closed");
      if (this.#link !== undefined) await polled();
      if (this.#link === undefined || this.#link.dead) {
        this.#link = new Link(await Connection.open(this.#path, deadline - performance.now()));
      }
      return await this.#link.exchange(request, deadline - performance.now());
    } catch (error) {
      if (!(error instanceof TransientError)) this.#drop();
      throw error;
    } finally {
      this.#turns.pass();
    }
  }

  #drop(): void {
    this.#link?.close();
    this.#link = undefined;
  }
}

/** A connection with one frame in flight. After any error but TransientError it must be closed. */
class Link implements Receiver {
  readonly #connection: Connection;
  readonly #replies = new ReplyBuffer();
  #request: Request<unknown> | undefined;
  #settle: ((answer: Uint8Array | WeirError) => void) | undefined;
  /** Whether the connection ended, or brought what nobody asked for. */
  dead = false;

  constructor(connection: Connection) {
    this.#connection = connection;
    connection.start(this);
  }

  /** Sends the request and resolves with its answer. */
  async exchange<T>(request: Request<T>, timeoutMs: number): Promise<T> {
    const answer = await new Promise<Uint8Array | WeirError>((resolve) => {
      const timer = setTimeout(() => this.#settle?.(new TimedOutError()), timeoutMs);
      this.#request = request;
      this.#settle = (result) => {
        clearTimeout(timer);
        this.#request = this.#settle = undefined;
        resolve(result);
      };
      this.#connection.write(request.frame);
    });
    if (answer instanceof Error) throw answer;
    return request.parse(answer);
  }

  close(): void {
    this.dead = true;
    this.#connection.destroy();
  }

  received(chunk: Buffer): void {
    if (this.#request === undefined || this.#settle === undefined) {
      this.close();
      return;
    }
    this.#replies.feed(chunk);
    let answer: Uint8Array | WeirError | undefined;
    try {
      answer = this.#replies.next(this.#request.sent);
      if (answer !== undefined && this.#connection.unwritten > 0) {
        answer = new ProtocolError("UnexpectedReply", "an answer to a frame that is not written");
      }
    } catch (error) {
      answer = error as WeirError;
    }
    if (answer === undefined) return;
    if (this.#replies.length > 0) this.close(); // nobody asked for that
    this.#settle(answer);
  }

  ended(error: WeirError): void {
    this.dead = true;
    this.#settle?.(error);
  }

  drained(): void {
    // There is one frame in flight, so there is nothing more to write.
  }
}
