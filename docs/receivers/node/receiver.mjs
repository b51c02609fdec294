// An endpoint for weir's raw format that keeps each record once: node receiver.mjs ADDRESS FILE.
//
// A record counts as received when its line is on stable storage; only then is it answered with 200. What comes
// again under the same Idempotency-Key is answered with 200 and not kept.
import { createServer } from "node:http";
import { fdatasyncSync, openSync, readFileSync, writeSync } from "node:fs";

const [address, path] = process.argv.slice(2);
const file = openSync(path, "a+", 0o600);
const text = readFileSync(path, "utf8");
const seen = new Set();
for (const line of text.split("\n")) {
	try {
		seen.add(JSON.parse(line).key);
	} catch {
		// the end of the file, or a line torn by a crash: it was never answered
	}
}
if (text !== "" && !text.endsWith("\n")) writeAll(Buffer.from("\n"));

function writeAll(bytes) {
	for (let at = 0; at < bytes.length;) at += writeSync(file, bytes, at);
}

function keep(key, body) {
	if (seen.has(key)) return;
	writeAll(Buffer.from(JSON.stringify({ key, body: body.toString("base64") }) + "\n"));
	try {
		fdatasyncSync(file);
	} catch {
		process.exit(1); // what a failed sync left behind is not known: start again from the file
	}
	seen.add(key);
}

const server = createServer(async (request, response) => {
	try {
		const parts = [];
		for await (const part of request) parts.push(part);
		keep(request.headers["idempotency-key"], Buffer.concat(parts));
		response.writeHead(200).end();
	} catch {
		response.writeHead(503).end(); // weir sends it again
	}
});
const colon = address.lastIndexOf(":");
server.listen(Number(address.slice(colon + 1)), address.slice(0, colon), () => console.log("receiving"));
