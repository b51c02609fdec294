/** A server that does on each connection what a test says. */

import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import * as net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as codec from "../src/codec.js";
import { MessageType } from "../src/codec.js";

export const WATCHDOG_MS = 20_000;

export const frame = (type: number, payload: Uint8Array = new Uint8Array()) => codec.encodeFrame(type, 1, payload);
export const ACK = frame(MessageType.Ack);
export const HEALTHY = frame(MessageType.HealthCheckResponse);
export const nack = (reason: number, version = 1) => frame(MessageType.Nack, codec.encodeNack(reason, version));
export const ackBatch = (...acked: boolean[]) => frame(MessageType.AckBatch, codec.encodeAckBatch(acked));
export function ackTracked(payload: Uint8Array, index = 1n, segment = "shard_00/seg"): Buffer {
  const recordId = codec.recordId(segment, index, payload);
  return frame(MessageType.AckTracked, codec.encodeCoordinate({ segment, index, recordId }));
}

/** A moment that others wait for. */
export class Moment {
  come!: () => void;
  readonly came = new Promise<void>((resolve) => (this.come = resolve));
}

export interface Frame {
  type: number;
  durability: number;
  payload: Buffer;
}

/** The server's side of a connection. */
export class Peer {
  #bytes = Buffer.alloc(0);
  #ended = false;
  #wake: () => void = () => undefined;

  constructor(readonly socket: net.Socket) {
    const end = () => {
      this.#ended = true;
      this.#wake();
    };
    socket.on("data", (chunk) => {
      this.#bytes = Buffer.concat([this.#bytes, chunk]);
      this.#wake();
    });
    socket.on("end", end);
    socket.on("close", end);
    socket.on("error", end); // the client went away
  }

  /** Exactly n bytes, or undefined at the end of the connection. */
  async read(n: number): Promise<Buffer | undefined> {
    while (this.#bytes.length < n) {
      if (this.#ended) return undefined;
      await new Promise<void>((resolve) => (this.#wake = resolve));
    }
    const bytes = this.#bytes.subarray(0, n);
    this.#bytes = this.#bytes.subarray(n);
    return bytes;
  }

  /** How many bytes came and were not read. */
  get unread(): number {
    return this.#bytes.length;
  }

  async frame(): Promise<Frame | undefined> {
    const head = await this.read(codec.HEADER_BYTES);
    if (head === undefined) return undefined;
    const { type, durability, payloadBytes } = codec.decodeHeader(head);
    const body = await this.read(payloadBytes + codec.TRAILER_BYTES);
    return body && { type, durability, payload: Buffer.from(codec.decodePayload(body)) };
  }

  write(bytes: Uint8Array): void {
    if (!this.socket.destroyed) this.socket.write(bytes);
  }

  /** Resolves at the end of the connection. */
  async gone(): Promise<void> {
    while (!this.#ended) await new Promise<void>((resolve) => (this.#wake = resolve));
  }
}

export type Handler = (peer: Peer) => Promise<void>;

/** Answers one frame with each reply, then closes. */
export function answering(...replies: Uint8Array[]): Handler {
  return async (peer) => {
    for (const reply of replies) {
      if ((await peer.frame()) === undefined) return;
      peer.write(reply);
    }
  };
}

/** Answers one frame with each reply, then waits for the client to go. */
export function replying(...replies: Uint8Array[]): Handler {
  return async (peer) => {
    await answering(...replies)(peer);
    await peer.gone();
  };
}

/** Answers every push with an Ack. */
export const acking: Handler = async (peer) => {
  while ((await peer.frame()) !== undefined) peer.write(ACK);
};

/** Handles connection i with handler i; the last handler serves all that follow. */
export class Server {
  connections = 0;
  readonly handled: Promise<void>[] = [];
  readonly #dir: string;
  readonly #listener: net.Server;
  readonly #open = new Set<net.Socket>();
  readonly #faults: unknown[] = [];

  private constructor(handlers: Handler[]) {
    this.#dir = mkdtempSync(join(tmpdir(), "weir-"));
    this.#listener = net.createServer({ allowHalfOpen: true }, (socket) => {
      const handler = handlers[Math.min(this.connections++, handlers.length - 1)]!;
      this.#open.add(socket);
      const over = () =>
        new Promise<void>((resolve) =>
          socket.closed ? resolve() : socket.once("close", resolve).end(() => socket.destroy()),
        );
      this.handled.push(
        handler(new Peer(socket)).then(over, (error: unknown) => {
          this.#faults.push(error);
          return over();
        }),
      );
    });
  }

  /** Runs a test with a server, and checks that no handler failed. */
  static async with(handlers: Handler[], test: (server: Server) => Promise<void>, path?: string): Promise<void> {
    const server = new Server(handlers);
    await new Promise<void>((resolve) => server.#listener.listen(path ?? server.path, resolve));
    try {
      await test(server);
    } finally {
      server.#listener.close();
      for (const socket of server.#open) socket.destroy();
      await Promise.all(server.handled);
      rmSync(server.#dir, { recursive: true });
      assert.deepEqual(server.#faults, []);
    }
  }

  get path(): string {
    return join(this.#dir, "weir.sock");
  }
}
