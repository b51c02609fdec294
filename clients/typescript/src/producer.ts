import { Durability } from "./codec.js";
import { Connection, DEFAULT_TIMEOUT_MS, polled, socketPath, type Receiver } from "./connection.js";
import { ClosedError, TimedOutError, UnknownOutcomeError, type WeirError } from "./errors.js";
import { pushFrame } from "./exchange.js";
import { Backoff, Pipeline, type Report } from "./pipeline.js";

/** Options of a Producer. */
export interface ProducerOptions {
  /** The daemon's socket; default WEIR_SOCKET, else weir-data/weir.sock. */
  path?: string | undefined;
  /** How many records may be without an outcome before send waits; default 256. */
  inFlight?: number;
  /** How many bytes of frames, likewise; default 8 MiB. A larger record goes alone. */
  inFlightBytes?: number;
  /** How long the daemon may leave the oldest record in flight unanswered, in milliseconds; default 30,000. */
  timeoutMs?: number;
  /** The pause before another try to connect, doubling from minBackoffMs, 50, to maxBackoffMs, 5,000. */
  minBackoffMs?: number;
  maxBackoffMs?: number;
  /** Returns a number in [0, 1), of which half is cut off a pause; default Math.random. */
  jitter?: () => number;
}

/**
 * Sends records with many in flight, reports what became of each in order, and reconnects with a growing pause.
 *
 * Every record that send took gets exactly one report. When a connection ends, each record in flight on it is unknown,
 * and it is up to the caller to send it again; records that were not written keep waiting for the next
 * connection. Records that are sent in one turn of the event loop are written together. A producer must be closed.
 */
export class Producer {
  readonly #path: string;
  readonly #timeoutMs: number;
  readonly #pipeline: Pipeline;
  readonly #backoff: Backoff;
  readonly #senders: { frame: Buffer; report: Report; taken: () => void; refused: (error: WeirError) => void }[] = [];
  #idle: (() => void)[] = []; // of those who flush
  #session: Session | undefined;
  #pumping = false; // a call of #pump is due, or a try to connect runs
  #retry: NodeJS.Timeout | undefined; // the pause before the next try
  #closed = false;

  constructor(options: ProducerOptions = {}) {
    this.#path = socketPath(options.path);
    this.#timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    this.#pipeline = new Pipeline(options.inFlight ?? 256, options.inFlightBytes ?? 8 * 1024 * 1024);
    this.#backoff = new Backoff(
      options.minBackoffMs ?? 50,
      options.maxBackoffMs ?? 5_000,
      options.jitter ?? Math.random,
    );
  }

  /**
   * Takes a record of 1 byte to 16 MiB, which is copied, and resolves; while there is no room it waits with that. report
   * is called once with the outcome. If send rejects it is never called.
   */
  async send(payload: Uint8Array, report: Report, durability: Durability = Durability.Durable): Promise<void> {
    const frame = pushFrame(payload, durability);
    if (this.#closed) throw new ClosedError("the producer is closed");
    if (this.#senders.length > 0 || !this.#pipeline.room(frame.length)) {
      return new Promise((taken, refused) => this.#senders.push({ frame, report, taken, refused }));
    }
    this.#pipeline.add(frame, report);
    this.#pumpSoon();
  }

  /** Resolves when every record that was sent has its outcome. */
  async flush(): Promise<void> {
    if (this.#pipeline.length > 0) await new Promise<void>((resolve) => this.#idle.push(resolve));
  }

  /**
   * Flushes, for timeoutMs at most, and ends the connection. Every report was called when it resolves. What has no
   * outcome by then is unknown; with a ClosedError it was not written. A second call does nothing.
   */
  async close(timeoutMs: number = DEFAULT_TIMEOUT_MS): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, timeoutMs)));
    await Promise.race([this.flush(), late]);
    clearTimeout(timer);
    this.#closed = true;
    clearTimeout(this.#retry);
    this.#session?.end(new UnknownOutcomeError("the producer was closed before the answer came"));
    this.#pipeline.abandon(new ClosedError("the producer was closed before the record was written"));
    for (const sender of this.#senders.splice(0)) sender.refused(new ClosedError("the producer is closed"));
    this.#settled();
  }

  /** Writes what waits in a later turn of the event loop, after a look at what came. */
  #pumpSoon(): void {
    if (this.#pumping || this.#retry !== undefined) return;
    this.#pumping = true;
    setImmediate(() => this.#pump());
  }

  #pump(): void {
    if (this.#session === undefined && this.#retry === undefined) {
      void this.#connect();
      return;
    }
    this.#pumping = false;
    this.#session?.write();
  }

  async #connect(): Promise<void> {
    let pause = 0;
    try {
      if (this.#closed) return;
      const connection = await Connection.open(this.#path, this.#timeoutMs);
      this.#session = new Session(connection, this.#pipeline, this.#timeoutMs, {
        settled: () => this.#settled(),
        ended: (useful) => this.#again(this.#backoff.after(useful)),
      });
      if (this.#closed) this.#session.end(new ClosedError("the producer is closed"));
    } catch {
      // No record hears of this: what waits goes on waiting.
      pause = this.#backoff.after(false);
    } finally {
      this.#pumping = false;
    }
    if (this.#session === undefined) this.#again(pause);
    else this.#session.write();
  }

  /** Goes on without a session after a pause. */
  #again(pauseMs: number): void {
    this.#session = undefined;
    if (this.#closed) return;
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => {
      this.#retry = undefined;
      if (this.#pipeline.waiting > 0) this.#pumpSoon();
    }, pauseMs);
    this.#settled();
  }

  /** Takes records from those who wait for room, and tells those who wait for the end. */
  #settled(): void {
    for (let next = this.#senders[0]; next && this.#pipeline.room(next.frame.length); next = this.#senders[0]) {
      this.#senders.shift();
      this.#pipeline.add(next.frame, next.report);
      next.taken();
      this.#pumpSoon();
    }
    if (this.#pipeline.length === 0) for (const resolve of this.#idle.splice(0)) resolve();
  }
}

/** One connection of a producer. */
class Session implements Receiver {
  #watch: NodeJS.Timeout | undefined;
  #overdue = 0; // when the oldest record in flight is, of performance.now
  #full = false; // the socket has enough to write
  #idle = false; // all is answered, and nobody has looked since for what came unasked
  #looking = false;
  #over = false;

  constructor(
    private readonly connection: Connection,
    private readonly pipeline: Pipeline,
    private readonly timeoutMs: number,
    private readonly owner: { settled(): void; ended(useful: boolean): void },
  ) {
    connection.start(this);
  }

  /** Writes what waits, as far as the socket takes it. */
  write(): void {
    if (this.#idle) {
      this.#look();
      return;
    }
    while (!this.#over && !this.#full && this.pipeline.waiting > 0) {
      if (this.pipeline.inFlight === 0) this.#overdue = performance.now() + this.timeoutMs;
      this.#full = !this.connection.write(this.pipeline.handOut());
    }
    if (this.#watch === undefined && this.pipeline.inFlight > 0) this.#guard();
  }

  #look(): void {
    if (this.#looking) return;
    this.#looking = true;
    void polled().then(() => {
      this.#looking = this.#idle = false;
      this.write();
    });
  }

  #guard(): void {
    this.#watch = setTimeout(() => {
      this.#watch = undefined;
      if (this.pipeline.inFlight === 0) return;
      if (performance.now() >= this.#overdue) this.end(new TimedOutError());
      else this.#guard();
    }, this.#overdue - performance.now());
  }

  drained(): void {
    this.#full = false;
    this.write();
  }

  received(chunk: Buffer): void {
    this.#overdue = performance.now() + this.timeoutMs;
    const error = this.pipeline.received(chunk, this.connection.unwritten);
    this.#idle = this.pipeline.inFlight === 0;
    if (error === undefined) this.owner.settled();
    else if (error instanceof UnknownOutcomeError) this.end(error);
    else this.end(new UnknownOutcomeError(`the daemon closed after an earlier record: ${error.message}`, { cause: error }));
  }

  ended(error: WeirError): void {
    this.end(error);
  }

  /** Ends the session and settles what is in flight. */
  end(error: WeirError): void {
    if (this.#over) return;
    this.#over = true;
    clearTimeout(this.#watch);
    this.connection.destroy();
    this.owner.ended(this.pipeline.lost(error));
  }
}
