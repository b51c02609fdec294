// Push the lines of a file into weir, and with --follow those that are still to come.
//
//     node tail.mjs [--follow] [--socket PATH] FILE
//
// It ends once every line is on stable storage. A line that has no definite answer is pushed again, so it may arrive twice.

import { open } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Client, RefusedError, WeirError } from "weir-client";

const LINES = 500; // in one batch; a daemon takes 1024 by default
const READ_BYTES = 256 * 1024;
const POLL_MS = 200;
const MAX_PAUSE_MS = 5000;

/** Yields lines without their ends. A last line without one is complete only if nothing is to come. */
async function* lines(path, follow) {
  const file = await open(path);
  const chunk = Buffer.alloc(READ_BYTES);
  let rest = Buffer.alloc(0);
  for (;;) {
    const { bytesRead } = await file.read(chunk, 0, READ_BYTES);
    let from = 0;
    rest = Buffer.concat([rest, chunk.subarray(0, bytesRead)]);
    for (let end = rest.indexOf(10); end >= 0; end = rest.indexOf(10, from)) {
      yield rest.subarray(from, end);
      from = end + 1;
    }
    rest = rest.subarray(from);
    if (bytesRead > 0) continue;
    if (!follow) break;
    yield undefined; // nothing more for now
    await sleep(POLL_MS);
  }
  yield rest;
  await file.close();
}

/** Pushes until every line is acked. A RefusedError says that one of them never will be. */
async function push(client, batch) {
  for (let pause = 50; ; pause = Math.min(2 * pause, MAX_PAUSE_MS)) {
    try {
      const acked = await client.pushBatch(batch);
      batch = batch.filter((_, i) => !acked[i]);
      if (batch.length === 0) return;
    } catch (error) {
      if (!(error instanceof WeirError) || error instanceof RefusedError) throw error;
      console.error(error.message);
    }
    await sleep(pause * (0.5 + Math.random() / 2));
  }
}

const { values, positionals } = parseArgs({
  options: { follow: { type: "boolean", default: false }, socket: { type: "string" } },
  allowPositionals: true,
});
if (positionals.length !== 1) {
  console.error("usage: node tail.mjs [--follow] [--socket PATH] FILE");
  process.exit(2);
}
const client = new Client({ path: values.socket });
let batch = [];
for await (const line of lines(positionals[0], values.follow)) {
  if (line !== undefined && line.length > 0) batch.push(line);
  if (batch.length >= LINES || (line === undefined && batch.length > 0)) {
    await push(client, batch);
    batch = [];
  }
}
if (batch.length > 0) await push(client, batch);
await client.close();
