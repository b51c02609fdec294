import * as net from "node:net";
import { ConnectError, UnknownOutcomeError, type WeirError } from "./errors.js";

export const DEFAULT_SOCKET = "weir-data/weir.sock";
export const DEFAULT_TIMEOUT_MS = 30_000;

/** The longest path that a socket address holds; Node cuts longer ones silently. */
const MAX_PATH_BYTES = process.platform === "linux" ? 107 : 103;

/** The path, or else WEIR_SOCKET, or else the socket of a `weir run` in the same folder. */
export function socketPath(path: string | undefined): string {
  return path || process.env.WEIR_SOCKET || DEFAULT_SOCKET;
}

/** Whom a connection tells what it brings. */
export interface Receiver {
  /** Bytes came. */
  received(chunk: Buffer): void;
  /** The connection ended, not by destroy. Called once at most, and last. */
  ended(error: WeirError): void;
  /** What was written has gone out. */
  drained(): void;
}

/** A connected socket. */
export class Connection {
  readonly #socket: net.Socket;
  #receiver: Receiver | undefined;

  private constructor(socket: net.Socket) {
    this.#socket = socket;
  }

  /** Connects within timeoutMs, or rejects with a ConnectError. */
  static open(path: string, timeoutMs: number): Promise<Connection> {
    return new Promise((resolve, reject) => {
      const fail = (text: string, cause?: unknown) => {
        reject(new ConnectError(`connect to ${path}: ${text}`, { cause }));
      };
      if (Buffer.byteLength(path) > MAX_PATH_BYTES) {
        fail(`the path has more than ${MAX_PATH_BYTES} bytes`);
        return;
      }
      const socket = net.createConnection({ path });
      const timer = setTimeout(() => {
        socket.destroy();
        fail("no connection in time");
      }, timeoutMs);
      socket.once("error", (error) => {
        clearTimeout(timer);
        fail(error.message, error);
      });
      socket.once("connect", () => {
        clearTimeout(timer);
        socket.removeAllListeners("error");
        resolve(new Connection(socket));
      });
    });
  }

  /** Begins to read. To be called in the turn in which open resolved. */
  start(receiver: Receiver): void {
    this.#receiver = receiver;
    const end = (text: string, cause?: unknown) => {
      const told = this.#receiver;
      this.destroy();
      told?.ended(new UnknownOutcomeError(text, { cause }));
    };
    this.#socket.on("error", (error) => end(error.message, error));
    this.#socket.on("end", () => end("the daemon closed the connection"));
    this.#socket.on("close", () => end("the connection was closed"));
    this.#socket.on("drain", () => this.#receiver?.drained());
    this.#socket.on("data", (chunk: Buffer) => this.#receiver?.received(chunk));
  }

  /** How many bytes are in those calls of write of which not everything has gone out yet. */
  get unwritten(): number {
    return this.#socket.writableLength;
  }

  /** Writes; false says that more should wait for drained. */
  write(bytes: Buffer): boolean {
    return this.#socket.write(bytes);
  }

  /** Ends the connection; the receiver hears no more of it. */
  destroy(): void {
    this.#receiver = undefined;
    this.#socket.destroy();
  }
}

/**
 * Resolves once the event loop has looked at every socket. What came on an idle connection before that is then
 * known: its end, or bytes that nobody asked for, which would be taken for the next answer.
 */
export async function polled(): Promise<void> {
  // The first of these may run in the turn whose poll is over.
  await new Promise(setImmediate);
  await new Promise(setImmediate);
}
