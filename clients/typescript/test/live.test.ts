/** The client against the daemon that was built: it is killed and started again, and the ledger has to add up. */

import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { BUFFERED, Client, DURABLE, Producer, WeirError, keyOf, type State } from "../src/index.js";

const ROUNDS = 4;
const ACKS_A_ROUND = 3000;
const LIMIT_MS = 60_000;
const BENCH_MS = 600;

const root = fileURLToPath(new URL("../../../..", import.meta.url));

/** bin/weir on a folder of its own. */
class Daemon {
  readonly dir = mkdtempSync(join(tmpdir(), "weir-"));
  readonly socket = join(this.dir, "weir.sock");
  #process!: ChildProcess;

  constructor(readonly sink: string) {}

  async start(): Promise<void> {
    const log = openSync(join(this.dir, "weir.log"), "a");
    const args = ["run", "--data-dir", this.dir, "--admin", "", "--sink", this.sink];
    this.#process = spawn(process.env.WEIR_BIN ?? join(root, "bin", "weir"), args, { stdio: ["ignore", log, log] });
    await once(this.#process, "spawn");
    closeSync(log);
    await until(async () => {
      assert.equal(this.#process.exitCode, null, this.log());
      const client = new Client({ path: this.socket, timeoutMs: 5000 });
      return client.health().then(() => true, () => false).finally(() => client.close());
    });
  }

  log(): string {
    return readFileSync(join(this.dir, "weir.log"), "utf8");
  }

  async kill(): Promise<void> {
    const exit = once(this.#process, "exit");
    this.#process.kill("SIGKILL");
    await exit;
  }

  async close(): Promise<void> {
    const exit = once(this.#process, "exit");
    this.#process.kill("SIGTERM");
    const [code] = (await exit) as [number | null];
    assert.equal(code, 0, this.log());
    rmSync(this.dir, { recursive: true });
  }

  /** The ids under which each payload was delivered. */
  ids(): Map<string, string[]> {
    const found = new Map<string, string[]>();
    const path = join(this.dir, "delivered.jsonl");
    if (!existsSync(path)) return found;
    const lines = readFileSync(path, "utf8").split("\n");
    lines.pop(); // empty, or being written
    for (const line of lines) {
      const { payload, id } = JSON.parse(line) as { payload: string; id: string };
      const ids = found.get(payload);
      if (ids === undefined) found.set(payload, [id]);
      else ids.push(id);
    }
    return found;
  }
}

/** Polls until done. */
async function until(done: () => boolean | Promise<boolean>): Promise<void> {
  const limit = performance.now() + LIMIT_MS;
  while (!(await done())) {
    assert.ok(performance.now() < limit, "it did not happen");
    await sleep(20);
  }
}

async function withDaemon(sink: string, body: (daemon: Daemon) => Promise<void>): Promise<void> {
  const daemon = new Daemon(sink);
  await daemon.start();
  try {
    await body(daemon);
  } finally {
    await daemon.close();
  }
}

/** What the producers know: the payloads that were reported acked, and the keys of tracked ones. */
class Ledger {
  readonly acked = new Set<string>();
  readonly keys = new Map<string, string>();
  refused = 0;
  stopped = false;

  book(payload: string, state: State): void {
    if (state === "acked") this.acked.add(payload);
    if (state === "refused") this.refused++;
  }

  async produce(path: string): Promise<void> {
    const producer = new Producer({ path, maxBackoffMs: 100 });
    for (let i = 0; !this.stopped; i++) {
      const payload = `producer ${i}`;
      await producer.send(Buffer.from(payload), ({ state }) => this.book(payload, state), i % 2 ? BUFFERED : DURABLE);
    }
    await producer.close();
  }

  /** Pushes one at a time and in batches, with pauses only where the daemon is away. */
  async call(path: string): Promise<void> {
    const client = new Client({ path });
    for (let i = 0; !this.stopped; i++) {
      const payloads = Array.from({ length: 10 }, (_, k) => `call ${i}/${k}`);
      const [first, second, ...rest] = payloads.map((payload) => Buffer.from(payload));
      try {
        this.keys.set(payloads[0]!, keyOf(await client.pushTracked(first!)));
        this.book(payloads[0]!, "acked");
        await client.push(second!);
        this.book(payloads[1]!, "acked");
        const acked = await client.pushBatch(rest);
        acked.forEach((ok, k) => this.book(payloads[k + 2]!, ok ? "acked" : "unknown"));
      } catch (error) {
        assert.ok(error instanceof WeirError && error.state === "unknown", String(error));
        await sleep(5);
      }
    }
    await client.close();
  }
}

test("every acked record arrives", () =>
  withDaemon("file", async (daemon) => {
    const ledger = new Ledger();
    const jobs = Promise.all([ledger.produce(daemon.socket), ledger.call(daemon.socket)]);
    try {
      for (let round = 0; round <= ROUNDS; round++) {
        const enough = ledger.acked.size + ACKS_A_ROUND;
        await until(() => ledger.acked.size >= enough);
        if (round === ROUNDS) break;
        await daemon.kill();
        await daemon.start();
      }
    } finally {
      ledger.stopped = true;
      await jobs;
    }
    await until(() => {
      const ids = daemon.ids();
      return [...ledger.acked].every((payload) => ids.has(payload));
    });
    const ids = daemon.ids();
    assert.equal(ledger.refused, 0);
    for (const kind of ["producer", "call"]) assert.ok([...ledger.acked].some((payload) => payload.startsWith(kind)));
    // The key of a tracked push is the id that is delivered.
    for (const [payload, key] of ledger.keys) assert.ok(ids.get(payload)?.includes(key), payload);
  }));

test("the example", () =>
  withDaemon("file", async (daemon) => {
    const lines = Array.from({ length: 1234 }, (_, i) => `line ${i}`);
    const file = join(daemon.dir, "lines.txt");
    writeFileSync(file, lines.join("\n")); // the last one has no end
    const example = join(root, "clients", "typescript", "examples", "tail.mjs");
    const child = spawn(process.execPath, [example, "--socket", daemon.socket, file], { stdio: "inherit" });
    assert.deepEqual(await once(child, "exit"), [0, null]);
    await until(() => {
      const ids = daemon.ids();
      return lines.every((line) => ids.has(line));
    });
  }));

async function rate(push: () => Promise<number>): Promise<string> {
  const start = performance.now();
  let count = 0;
  while (performance.now() < start + BENCH_MS) count += await push();
  return ((1000 * count) / (performance.now() - start)).toFixed(0);
}

test("speed: printed, and nothing is asserted of it", (t) =>
  withDaemon("discard", async (daemon) => {
    const payload = Buffer.alloc(256);
    const batch = Array<Buffer>(1000).fill(payload);
    const client = new Client({ path: daemon.socket });
    const producer = new Producer({ path: daemon.socket, inFlight: 256 });
    const one = await rate(() => client.push(payload).then(() => 1));
    const many = await rate(async () => {
      for (let i = 0; i < 2048; i++) await producer.send(payload, () => undefined);
      return 2048;
    });
    const batches = await rate(async () => (await client.pushBatch(batch)).filter(Boolean).length);
    await producer.close();
    await client.close();
    t.diagnostic("TypeScript, durable, 256 bytes, 1 connection, records/s:");
    t.diagnostic(`${one} one at a time, ${many} with 256 in flight, ${batches} in batches of 1,000`);
  }));
