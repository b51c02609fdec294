/** What the producer reports, in order, whatever the server does. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { test } from "node:test";
import { HEADER_BYTES } from "../src/codec.js";
import * as weir from "../src/index.js";
import { BUFFERED, Producer, Reason, type Outcome, type ProducerOptions, type State } from "../src/index.js";
import { pushFrame } from "../src/exchange.js";
import { Backoff, Pipeline } from "../src/pipeline.js";
import { ACK, Moment, Server, WATCHDOG_MS, acking, nack, replying, type Frame, type Handler } from "./fake.js";

/** The outcomes in the order in which they came. */
class Tally {
  readonly got: [number, Outcome][] = [];

  report = (i: number) => (outcome: Outcome) => void this.got.push([i, outcome]);

  async send(producer: Producer, n: number, first = 0): Promise<void> {
    for (let i = first; i < first + n; i++) await producer.send(Buffer.from(String(i)), this.report(i));
  }

  /** Each record has one outcome, and they came in order. */
  states(): State[] {
    assert.deepEqual(
      this.got.map(([i]) => i),
      this.got.map((_, i) => i),
    );
    return this.got.map(([, outcome]) => outcome.state);
  }

  error(i: number): weir.WeirError | undefined {
    return this.got[i]?.[1].error;
  }
}

const all = (n: number, state: State) => Array<State>(n).fill(state);

function run(
  name: string,
  handlers: Handler[],
  body: (producer: Producer, tally: Tally, server: Server) => Promise<void>,
  options: ProducerOptions = {},
): void {
  void test(name, () =>
    Server.with(handlers, async (server) => {
      const producer = new Producer({ path: server.path, minBackoffMs: 1, maxBackoffMs: 1, timeoutMs: WATCHDOG_MS, ...options });
      try {
        await body(producer, new Tally(), server);
      } finally {
        await producer.close(0);
      }
    }),
  );
}

for (const inFlight of [1, 7, 256]) {
  const seen: Frame[] = [];
  run(
    `all acked in order, ${inFlight} in flight`,
    [
      async (peer) => {
        for (let f = await peer.frame(); f !== undefined; f = await peer.frame()) {
          seen.push(f);
          peer.write(ACK);
        }
      },
    ],
    async (producer, tally, server) => {
      await tally.send(producer, 1000);
      await producer.send(Buffer.from("buffered"), tally.report(1000), BUFFERED);
      await producer.flush();
      assert.deepEqual(tally.states(), all(1001, "acked"));
      const want = [...Array.from({ length: 1000 }, (_, i) => `${i} 1`), "buffered 3"];
      assert.deepEqual(seen.map((f) => `${f.payload.toString()} ${f.durability}`), want);
      assert.equal(server.connections, 1);
    },
    { inFlight },
  );
}

const go = new Moment();
run(
  "frames in flight are bounded",
  [
    async (peer) => {
      for (let i = 0; i < 4; i++) await peer.frame();
      await go.came;
      assert.equal(peer.unread, 0);
      for (let i = 0; i < 4; i++) peer.write(ACK);
      await acking(peer);
    },
  ],
  async (producer, tally) => {
    await tally.send(producer, 4);
    let taken = false;
    const fifth = tally.send(producer, 1, 4).then(() => (taken = true));
    const sixth = tally.send(producer, 1, 5);
    await new Promise((resolve) => setTimeout(resolve, 10));
    assert.equal(taken, false);
    go.come();
    await Promise.all([fifth, sixth]);
    await producer.flush();
    assert.deepEqual(tally.states(), all(6, "acked"));
  },
  { inFlight: 4 },
);

run(
  "a small record does not overtake a large one that waits",
  [acking],
  async (producer, tally) => {
    const sizes = [600, 600, 100, 2000, 1];
    await Promise.all(sizes.map((size, i) => producer.send(Buffer.alloc(size), tally.report(i))));
    await producer.flush();
    assert.deepEqual(tally.states(), all(5, "acked"));
  },
  { inFlightBytes: 1000 },
);

void test("bytes in flight are bounded", () => {
  const report = () => undefined;
  let pipeline = new Pipeline(100, 1000);
  assert.ok(pipeline.room(5000)); // alone
  pipeline.add(Buffer.alloc(5000), report);
  assert.ok(!pipeline.room(1));
  pipeline = new Pipeline(100, 1000);
  pipeline.add(Buffer.alloc(600), report);
  assert.ok(pipeline.room(400) && !pipeline.room(401));
  assert.equal(pipeline.handOut().length, 600);
  assert.ok(!pipeline.room(401)); // in flight counts, too
  pipeline.lost(new weir.TimedOutError());
  pipeline.abandon(new weir.ClosedError(""));
  assert.ok(pipeline.room(5000));
});

void test("an ack is taken only for a frame that can be out", () => {
  const fill = () => {
    const pipeline = new Pipeline(10, 1000);
    for (let i = 0; i < 3; i++) pipeline.add(Buffer.alloc(100), () => undefined);
    assert.equal(pipeline.handOut().length, 300);
    return pipeline;
  };
  // Of one write only the last frame is known not to be out.
  assert.equal(fill().received(Buffer.concat([ACK, ACK]), 300), undefined);
  assert.ok(fill().received(Buffer.concat([ACK, ACK, ACK]), 300) instanceof weir.ProtocolError);
  assert.equal(fill().received(Buffer.concat([ACK, ACK, ACK]), 0), undefined);
  // Of a write behind it nothing is.
  const two = fill();
  two.add(Buffer.alloc(100), () => undefined);
  two.add(Buffer.alloc(100), () => undefined);
  assert.equal(two.handOut().length, 200);
  assert.equal(two.received(Buffer.concat([ACK, ACK]), 500), undefined);
  assert.ok(two.received(Buffer.concat([ACK, ACK]), 200 + 1) instanceof weir.ProtocolError);
});

void test("a connection is useful if it brought a definite answer", () => {
  for (const [reply, useful] of [[ACK, true], [nack(Reason.EmptyPayload), true], [nack(Reason.InternalError), false]] as const) {
    const pipeline = new Pipeline(10, 1000);
    const tally = new Tally();
    for (let i = 0; i < 3; i++) pipeline.add(Buffer.alloc(100), tally.report(i));
    pipeline.handOut();
    pipeline.received(reply, 0);
    assert.equal(pipeline.lost(new weir.TimedOutError()), useful);
    assert.deepEqual(tally.states().slice(1), all(2, "unknown"));
  }
});

void test("a reply in pieces", () => {
  const pipeline = new Pipeline(10, 1000);
  const tally = new Tally();
  for (let i = 0; i < 3; i++) pipeline.add(pushFrame(Buffer.from("x"), 1), tally.report(i));
  pipeline.handOut();
  for (const byte of Buffer.concat([ACK, nack(Reason.InternalError), ACK])) {
    assert.equal(pipeline.received(Buffer.from([byte]), 0), undefined);
  }
  assert.deepEqual(tally.states(), ["acked", "unknown", "acked"]);
});

run(
  "a refusal ends the connection",
  [
    async (peer) => {
      for (let i = 0; i < 5; i++) await peer.frame();
      peer.write(Buffer.concat([ACK, nack(Reason.PayloadTooLarge), ACK])); // the last one belongs to nothing
    },
    acking,
  ],
  async (producer, tally, server) => {
    await tally.send(producer, 5);
    await producer.flush();
    assert.deepEqual(tally.states(), ["acked", "refused", ...all(3, "unknown")]);
    const error = tally.error(1);
    assert.ok(error instanceof weir.RefusedError && error.reason === Reason.PayloadTooLarge);
    await tally.send(producer, 5, 5);
    await producer.flush();
    assert.deepEqual(tally.states().slice(5), all(5, "acked"));
    assert.equal(server.connections, 2);
  },
);

for (const reason of [0x0a, 0xff]) {
  run(`an unknown reason is unknown: ${reason}`, [replying(nack(reason)), acking], async (producer, tally) => {
    await tally.send(producer, 1);
    await producer.flush();
    const error = tally.error(0);
    assert.deepEqual(tally.states(), ["unknown"]);
    assert.ok(error instanceof weir.UnknownReasonError && error.reason === reason);
  });
}

run(
  "a transient nack keeps the connection",
  [replying(ACK, nack(Reason.InternalError), ACK)],
  async (producer, tally, server) => {
    await tally.send(producer, 3);
    await producer.flush();
    assert.deepEqual(tally.states(), ["acked", "unknown", "acked"]);
    assert.equal(server.connections, 1);
  },
);

const broken: [string, Buffer][] = [
  ["half a reply", ACK.subarray(0, 11)],
  ["nothing", Buffer.alloc(0)],
  ["garbage", Buffer.concat([Buffer.alloc(40), ACK, ACK])],
  ["wrong type", Buffer.concat([pushFrame(Buffer.from("x"), 1), ACK, ACK])],
  ["flipped", Buffer.concat([ACK.subarray(0, 19), Buffer.from([1]), ACK, ACK])],
];
for (const [name, reply] of broken) {
  const handler: Handler = async (peer) => {
    for (let i = 0; i < 3; i++) await peer.frame();
    peer.write(Buffer.concat([ACK, reply]));
  };
  run("a broken reply ends the connection: " + name, [handler, acking], async (producer, tally) => {
    await tally.send(producer, 3);
    await producer.flush();
    assert.deepEqual(tally.states(), ["acked", "unknown", "unknown"]);
    await tally.send(producer, 3, 3);
    await producer.flush();
    assert.deepEqual(tally.states().slice(3), all(3, "acked"));
  });
}

const givenUp = new Moment();
run(
  "a late reply is not the next one",
  [
    async (peer) => {
      await peer.frame();
      await givenUp.came;
      peer.write(ACK);
    },
    replying(nack(Reason.EmptyPayload)),
  ],
  async (producer, tally, server) => {
    await tally.send(producer, 1);
    await producer.flush();
    assert.ok(tally.error(0) instanceof weir.TimedOutError);
    givenUp.come();
    await server.handled[0];
    await tally.send(producer, 1, 1);
    await producer.flush();
    assert.notEqual(tally.states()[1], "acked"); // refused, or late under load
  },
  { timeoutMs: 50 },
);

const acked = new Moment();
const written = new Moment();
run(
  "a reply that nobody asked for is not the next one",
  [
    async (peer) => {
      await peer.frame();
      peer.write(ACK);
      await acked.came;
      peer.socket.write(ACK, () => written.come());
      await peer.gone();
    },
    replying(nack(Reason.EmptyPayload)),
  ],
  async (producer, tally) => {
    await tally.send(producer, 1);
    await producer.flush();
    acked.come();
    await written.came;
    await tally.send(producer, 1, 1);
    await producer.flush();
    assert.deepEqual(tally.states(), ["acked", "refused"]);
  },
);

run(
  "an ack to a frame that was not written is none",
  [
    async (peer) => {
      await peer.read(HEADER_BYTES);
      peer.socket.pause();
      peer.write(ACK);
      await peer.gone();
    },
  ],
  async (producer, tally) => {
    await producer.send(Buffer.alloc(4 << 20), tally.report(0));
    await producer.flush();
    assert.deepEqual(tally.states(), ["unknown"]);
  },
);

run(
  "a large frame refused by its header",
  [
    async (peer) => {
      await peer.read(HEADER_BYTES);
      peer.socket.pause();
      peer.write(nack(Reason.PayloadTooLarge));
    },
  ],
  async (producer, tally) => {
    await producer.send(Buffer.alloc(4 << 20), tally.report(0));
    await producer.flush();
    assert.deepEqual(tally.states(), ["refused"]);
  },
);

run(
  "what was not written waits for the next connection",
  [async (peer) => void (await peer.read(100)), acking],
  async (producer, tally) => {
    for (let i = 0; i < 2; i++) await producer.send(Buffer.alloc(3 << 20), tally.report(i));
    await producer.flush();
    assert.deepEqual(tally.states(), ["unknown", "acked"]);
  },
);

run("a connection that ended while idle costs nothing", [
  async (peer) => {
    await peer.frame();
    peer.write(ACK);
  },
  acking,
], async (producer, tally, server) => {
  await tally.send(producer, 1);
  await producer.flush();
  await server.handled[0];
  await tally.send(producer, 300, 1);
  await producer.flush();
  assert.deepEqual(tally.states(), all(301, "acked"));
});

void test("records wait for a daemon", async () => {
  const dir = mkdtempSync(join(tmpdir(), "weir-"));
  const path = join(dir, "late.sock");
  const producer = new Producer({ path, minBackoffMs: 1, maxBackoffMs: 1 });
  const tally = new Tally();
  await tally.send(producer, 100);
  await new Promise((resolve) => setTimeout(resolve, 10)); // some tries
  assert.equal(tally.got.length, 0);
  await Server.with([acking], () => producer.flush(), path);
  assert.deepEqual(tally.states(), all(100, "acked"));
  await producer.close();
  rmSync(dir, { recursive: true });
});

run("close leaves no record without an outcome", [replying()], async (producer, tally) => {
  await tally.send(producer, 2);
  let rejected: unknown;
  const third = producer.send(Buffer.from("2"), tally.report(2)).catch((error: unknown) => (rejected = error));
  await producer.close(50);
  await third;
  assert.deepEqual(tally.states(), all(2, "unknown"));
  assert.ok(!(tally.error(0) instanceof weir.ClosedError));
  assert.ok(rejected instanceof weir.ClosedError);
  await assert.rejects(producer.send(Buffer.from("x"), tally.report(3)), weir.ClosedError);
}, { inFlight: 2 });

void test("close says what was not written", async () => {
  const producer = new Producer({ path: "/nowhere" });
  const tally = new Tally();
  await tally.send(producer, 3);
  await Promise.all([producer.close(10), producer.close(10)]);
  assert.deepEqual(tally.states(), all(3, "unknown"));
  assert.ok(tally.error(0) instanceof weir.ClosedError);
});

void test("checks before it takes", async () => {
  const producer = new Producer({ path: "/nowhere" });
  const tally = new Tally();
  await assert.rejects(producer.send(Buffer.alloc(0), tally.report(0)), weir.RefusedError);
  await assert.rejects(producer.send(Buffer.alloc((16 << 20) + 1), tally.report(0)), weir.RefusedError);
  await assert.rejects(producer.send("text" as never, tally.report(0)), TypeError);
  await producer.close();
  assert.equal(tally.got.length, 0);
});

void test("a report that throws changes nothing but is seen", async () => {
  const pipeline = new Pipeline(10, 1000);
  const tally = new Tally();
  const fault = new Error("mine");
  pipeline.add(Buffer.alloc(10), () => {
    throw fault;
  });
  pipeline.add(Buffer.alloc(10), tally.report(0));
  pipeline.handOut();
  const listeners = process.listeners("uncaughtException");
  process.removeAllListeners("uncaughtException");
  const thrown = new Promise((resolve) => process.once("uncaughtException", resolve));
  assert.equal(pipeline.received(Buffer.concat([ACK, ACK]), 0), undefined);
  assert.deepEqual(tally.states(), ["acked"]);
  assert.equal(await thrown, fault);
  for (const listener of listeners) process.on("uncaughtException", listener);
});

void test("back-off", () => {
  const backoff = new Backoff(100, 1000, () => 0);
  assert.deepEqual(
    Array.from({ length: 6 }, () => backoff.after(false)),
    [100, 200, 400, 800, 1000, 1000],
  );
  assert.equal(backoff.after(true), 0);
  assert.equal(backoff.after(false), 100);
  assert.equal(new Backoff(100, 1000, () => 0.5).after(false), 75);
  const long = new Backoff(50, 5000, () => 0);
  for (let i = 0; i < 5000; i++) long.after(false);
  assert.equal(long.after(false), 5000);
});
