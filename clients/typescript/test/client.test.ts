/** What the client makes of a server that does what it should not. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as codec from "../src/codec.js";
import { MessageType } from "../src/codec.js";
import * as weir from "../src/index.js";
import { Client, Reason, keyOf } from "../src/index.js";
import { Turns } from "../src/turns.js";
import {
  ACK,
  HEALTHY,
  Moment,
  Server,
  WATCHDOG_MS,
  ackBatch,
  ackTracked,
  acking,
  answering,
  frame,
  nack,
  type Frame,
  type Handler,
} from "./fake.js";

const codes = JSON.parse(
  readFileSync(new URL("../../../../conformance/vectors/codes.json", import.meta.url), "utf8"),
) as { reasons: { number: number; name: string }[] };

const x = Buffer.from("x");
const nine = Array.from({ length: 9 }, (_, i) => Buffer.from(String(i)));
const push = (client: Client) => client.push(x);
const tracked = (client: Client) => client.pushTracked(x);
const batch = (client: Client) => client.pushBatch(nine);
type Call = (client: Client) => Promise<unknown>;

/** Runs a test with a client of a server with these handlers. */
function run(
  name: string,
  handlers: Handler[],
  body: (client: Client, server: Server) => Promise<void>,
  timeoutMs = WATCHDOG_MS,
): void {
  void test(name, () =>
    Server.with(handlers, async (server) => {
      const client = new Client({ path: server.path, timeoutMs });
      try {
        await body(client, server);
      } finally {
        await client.close();
      }
    }),
  );
}

/** The error with which a call rejects. */
async function failure<T>(call: Promise<unknown>, kind: new (...args: never[]) => T): Promise<T> {
  try {
    await call;
  } catch (error) {
    assert.ok(error instanceof kind, `${String(error)} is no ${kind.name}`);
    return error;
  }
  return assert.fail("it did not reject");
}

const seen: (Frame | undefined)[] = [];
run(
  "every call",
  [
    async (peer) => {
      const bits = [..."101100001"].map((c) => c === "1");
      for (const reply of [ACK, ACK, ackTracked(Buffer.from("three"), 7n), ackBatch(...bits), HEALTHY]) {
        seen.push(await peer.frame());
        peer.write(reply);
      }
    },
  ],
  async (client) => {
    await client.push(Buffer.from("one"));
    await client.push(Uint8Array.from(Buffer.from("two")), weir.BUFFERED);
    const at = await client.pushTracked(Buffer.from("three"));
    assert.deepEqual([at.segment, at.index], ["shard_00/seg", 7n]);
    assert.equal(keyOf(at), "sha256:" + Buffer.from(at.recordId).toString("hex"));
    const bits = await client.pushBatch(nine);
    assert.deepEqual(bits, [true, false, true, true, false, false, false, false, true]);
    await client.health();
    assert.deepEqual(
      seen.map((f) => f && [f.type, f.durability, f.payload.toString("latin1")]),
      [
        [MessageType.Push, 1, "one"],
        [MessageType.Push, 3, "two"],
        [MessageType.PushTracked, 1, "three"],
        [MessageType.PushBatch, 1, codec.encodeBatch(nine).toString("latin1")],
        [MessageType.HealthCheck, 1, ""],
      ],
    );
  },
);

run(
  "the tier of a reply means nothing",
  [answering(codec.encodeFrame(MessageType.Ack, 3, new Uint8Array()), ACK)],
  async (client, server) => {
    await client.push(x, weir.DURABLE);
    await client.push(x, weir.BUFFERED);
    assert.equal(server.connections, 1);
  },
);

function flipped(bytes: Buffer, at: number): Buffer {
  const copy = Buffer.from(bytes);
  copy[at]! ^= 1;
  return copy;
}

const bits = (...tail: number[]) => frame(MessageType.AckBatch, Buffer.from([1, 9, 0, 0xff, ...tail]));
const wrong: [string, Call, Buffer, string | undefined][] = [
  ["nothing", push, Buffer.alloc(0), undefined],
  ["half a header", push, ACK.subarray(0, 9), undefined],
  ["half a payload", tracked, ackTracked(x).subarray(0, 40), undefined],
  ["garbage", push, Buffer.from("HTTP/1.1 400 Bad Request\r\n\r\n"), "BadMagic"],
  ["version", push, flipped(ACK, 4), "VersionMismatch"],
  ["header CRC", push, flipped(ACK, 12), "HeaderCrcMismatch"],
  ["payload CRC", push, flipped(ACK, 19), "PayloadCrcMismatch"],
  ["unknown type", push, frame(0x0a), "UnknownMessageType"],
  ["ack of a batch", push, ackBatch(true), "UnexpectedReply"],
  ["health response", push, HEALTHY, "UnexpectedReply"],
  ["ack of a health check", (client) => client.health(), ACK, "UnexpectedReply"],
  ["a push", push, frame(MessageType.Push, x), "UnexpectedReply"],
  ["ack of a tracked push", tracked, ACK, "UnexpectedReply"],
  ["ack of a batch as one", batch, ACK, "UnexpectedReply"],
  ["ack with a payload", push, frame(MessageType.Ack, x), "PayloadTooLarge"],
  ["long nack", push, frame(MessageType.Nack, Buffer.from([6, 0, 0])), "PayloadTooLarge"],
  ["nack without a reason", push, frame(MessageType.Nack), "Truncated"],
  ["nack without its version", push, frame(MessageType.Nack, Buffer.from([2])), "LengthMismatch"],
  ["coordinate of another record", tracked, ackTracked(Buffer.from("y")), "UnexpectedReply"],
  ["coordinate version", tracked, frame(MessageType.AckTracked, Buffer.alloc(43, 2)), "UnsupportedVersion"],
  ["another count", batch, ackBatch(...Array<boolean>(10).fill(true)), "LengthMismatch"],
  ["padding", batch, bits(3), "PaddingNotZero"],
  ["bitmap too short", batch, bits(), "LengthMismatch"],
  ["bitmap too long", batch, bits(1, 0), "LengthMismatch"],
];
for (const [name, call, reply, verdict] of wrong) {
  // The good reply that follows must not be taken for the answer to the next push.
  const replies = verdict === undefined ? reply : Buffer.concat([reply, ACK]);
  const handlers = [answering(replies), answering(nack(Reason.EmptyPayload))];
  run("a wrong reply poisons the connection: " + name, handlers, async (client) => {
    const error = await failure(call(client), weir.UnknownOutcomeError);
    assert.equal(error.state, "unknown");
    assert.equal(error instanceof weir.ProtocolError ? error.verdict : undefined, verdict);
    await failure(client.push(x), weir.RefusedError);
  });
}

const long: [string, Call, number, number][] = [
  ["push", push, MessageType.Ack, 2 ** 32 - 1],
  ["nack", push, MessageType.Nack, 3],
  ["tracked", tracked, MessageType.AckTracked, 299],
  ["batch", batch, MessageType.AckBatch, 260],
  ["a tracked length for a batch", batch, MessageType.AckBatch, 298],
];
for (const [name, call, type, length] of long) {
  const head = frame(type).subarray(0, codec.HEADER_BYTES);
  head.writeUInt32LE(length, 8);
  head.writeUInt32LE(codecCrc(head.subarray(0, 12)), 12);
  // The payload never comes, so the verdict can only come from the header.
  const silent: Handler = async (peer) => {
    await peer.frame();
    peer.write(head);
    await peer.gone();
  };
  run("an overlong reply is refused by its header: " + name, [silent], async (client) => {
    assert.equal((await failure(call(client), weir.ProtocolError)).verdict, "PayloadTooLarge");
  });
}

function codecCrc(bytes: Uint8Array): number {
  return codec.encodeFrame(MessageType.Push, 1, bytes).readUInt32LE(codec.HEADER_BYTES + bytes.length);
}

const names = new Map(codes.reasons.map(({ number, name }) => [number, name]));
for (const reason of [...names.keys(), 0x00, 0x0a, 0xff]) {
  run(`nack ${codec.reasonName(reason)}`, [answering(nack(reason, 7), ACK), acking], async (client, server) => {
    const error = await failure(client.push(x), weir.WeirError);
    await client.push(x);
    assert.equal(server.connections, reason === Reason.InternalError ? 1 : 2);
    if (reason === Reason.InternalError) {
      assert.equal(error.constructor, weir.TransientError);
      assert.equal(error.state, "unknown");
    } else if (names.has(reason)) {
      assert.ok(error instanceof weir.RefusedError);
      assert.deepEqual([error.state, error.reason, error.reasonName], ["refused", reason, names.get(reason)]);
    } else {
      const byte = "0x" + Buffer.from([reason]).toString("hex").toUpperCase();
      assert.ok(error instanceof weir.UnknownReasonError);
      assert.deepEqual([error.state, error.reason, error.reasonName], ["unknown", reason, byte]);
      assert.match(error.message, new RegExp(byte));
    }
  });
}

const third = Buffer.from(ACK);
third[4] = 3;
run("a version mismatch says both", [answering(nack(Reason.VersionMismatch, 2)), answering(third)], async (client) => {
  const error = await failure(client.push(x), weir.VersionMismatchError);
  assert.deepEqual([error.daemonVersion, error.clientVersion, error.name], [2, 1, "VersionMismatchError"]);
  assert.match(error.message, /v2.*v1/);
  assert.match((await failure(client.push(x), weir.ProtocolError)).message, /v3.*v1/);
});

const givenUp = new Moment();
run(
  "a late reply is not the next one",
  [
    async (peer) => {
      await peer.frame();
      await givenUp.came;
      peer.write(ACK);
    },
    answering(nack(Reason.PayloadTooLarge)),
  ],
  async (client, server) => {
    await failure(client.push(x), weir.TimedOutError);
    givenUp.come();
    await server.handled[0];
    // Under load this call may be late, too; it must not be acked.
    const error = await failure(client.push(x), weir.WeirError);
    assert.ok(error instanceof weir.RefusedError || error instanceof weir.TimedOutError);
  },
  50,
);

run(
  "a reply that nobody asked for is not the next one",
  [answering(Buffer.concat([ACK, ACK]), nack(Reason.PayloadTooLarge)), answering(nack(Reason.EmptyPayload))],
  async (client) => {
    await client.push(x);
    assert.equal((await failure(client.push(x), weir.RefusedError)).reason, Reason.EmptyPayload);
  },
);

const acked = new Moment();
run(
  "neither if it comes later",
  [
    async (peer) => {
      await peer.frame();
      peer.write(ACK);
      await acked.came;
      peer.socket.write(ACK, () => written.come());
      await peer.frame();
    },
    answering(nack(Reason.EmptyPayload)),
  ],
  async (client) => {
    await client.push(x);
    acked.come();
    await written.came;
    await failure(client.push(x), weir.RefusedError);
  },
);
const written = new Moment();

run("a connection that ended while idle is replaced", [answering(ACK), acking], async (client, server) => {
  await client.push(x);
  await server.handled[0];
  await client.push(x);
});

run(
  "a large frame refused by its header",
  [
    async (peer) => {
      await peer.read(codec.HEADER_BYTES);
      peer.socket.pause();
      peer.write(nack(Reason.PayloadTooLarge));
    },
  ],
  async (client) => {
    const error = await failure(client.push(Buffer.alloc(4 << 20)), weir.RefusedError);
    assert.equal(error.reason, Reason.PayloadTooLarge);
  },
);

run(
  "an ack to a frame that was not written is none",
  [
    async (peer) => {
      await peer.read(codec.HEADER_BYTES);
      peer.socket.pause();
      peer.write(ACK);
      await peer.gone();
    },
  ],
  async (client) => {
    const error = await failure(client.push(Buffer.alloc(4 << 20)), weir.ProtocolError);
    assert.equal(error.verdict, "UnexpectedReply");
  },
);

void test("checks before it sends", async () => {
  const client = new Client({ path: "/nowhere" });
  const big = Buffer.alloc(codec.MAX_PAYLOAD_BYTES + 1);
  const half = big.subarray(0, 8 << 20);
  const calls: [Promise<unknown>, number][] = [
    [client.push(Buffer.alloc(0)), Reason.EmptyPayload],
    [client.push(big), Reason.PayloadTooLarge],
    [client.pushTracked(Buffer.alloc(0)), Reason.EmptyPayload],
    [client.pushBatch([]), Reason.BadBatchFraming],
    [client.pushBatch([x, Buffer.alloc(0)]), Reason.EmptyPayload],
    [client.pushBatch(Array<Buffer>(2049).fill(x)), Reason.PayloadTooLarge],
    [client.pushBatch([half, half]), Reason.PayloadTooLarge],
  ];
  for (const [call, reason] of calls) assert.equal((await failure(call, weir.RefusedError)).reason, reason);
  await failure(client.push("text" as never), TypeError);
  await failure(client.push(x, 2 as never), TypeError);
  await failure(client.push(x), weir.ConnectError);
});

void test("nobody listens", async () => {
  await failure(new Client({ path: "/nowhere/weir.sock" }).health(), weir.ConnectError);
  const error = await failure(new Client({ path: "/" + "long".repeat(50) }).health(), weir.ConnectError);
  assert.match(error.message, /the path has more than/); // some versions of Node would connect to another path
});

run("closed", [answering(HEALTHY)], async (client) => {
  await client.health();
  await client.close();
  await client.close();
  await failure(client.health(), weir.ClosedError);
});

void test("the default path is WEIR_SOCKET", () =>
  Server.with([answering(HEALTHY)], async (server) => {
    process.env.WEIR_SOCKET = server.path;
    const client = new Client();
    delete process.env.WEIR_SOCKET;
    await client.health();
    await client.close();
  }));

const tracking: Handler = async (peer) => {
  for (let f = await peer.frame(); f !== undefined; f = await peer.frame()) peer.write(ackTracked(f.payload));
};
run("calls that overlap take turns", [tracking], async (client, server) => {
  // Each answer reaches its own call: the id in it is checked against the record.
  await Promise.all(Array.from({ length: 100 }, (_, i) => client.pushTracked(Buffer.from(String(i)))));
  assert.equal(server.connections, 1);
});

void test("a turn that does not come in time", async () => {
  const turns = new Turns();
  assert.equal(await turns.take(), true);
  const order: number[] = [];
  const second = turns.take(WATCHDOG_MS).then(() => order.push(2));
  assert.equal(await turns.take(1), false);
  const third = turns.take().then(() => order.push(3));
  turns.pass();
  await second;
  assert.deepEqual(order, [2]);
  turns.pass();
  await third;
  turns.pass();
  assert.equal(await turns.take(), true);
});
