// Runs every block of the documents that are named in DOCUMENTS, against a gateway that confirms
// everything.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { listen, pairedToken, token } from "./gateway.mjs";

const root = fileURLToPath(new URL("..", import.meta.url));
const documents = (process.env.DOCUMENTS ?? join(root, "README.md")).split(":");

/**
 * Answers a provider's messages, until it leaves.
 * @param {import("./gateway.mjs").Peer} peer
 * @param {() => void} bound
 */
async function confirm(peer, bound) {
  for (;;) {
    const { type, requestId, queryId, broadcast, mode } = await peer.next();
    if (type === "goodbye") return;
    if (mode === "pair") peer.send({ type: "auth.pairing", prompt: "The code" });
    else if (type === "auth.confirm") peer.send({ type: "sessions", token: pairedToken,
      active: [] });
    else if (type === "auth") peer.send({ type: "sessions",
      active: [{ id: "s1", label: "one", cwd: "/s1" }] });
    if (type === "hello") {
      peer.send({ type: "hello.ack", protocolVersion: 2, providerId: "p-1", sessionId: "s1",
        reconnectToken: "rt-1" });
      bound();
    }
    if (requestId) {
      const fate = broadcast ? "surfaced" : "delivered";
      peer.send({ type: "ack", requestId, sessionId: "s1", revision: 2, seq: 1, fate });
    }
    const event = { ts: "2026-11-22T10:00:00Z", event: "behind=0", level: "keep" };
    if (queryId) peer.send({ type: "stream.history", queryId,
      streams: { "git-watch@doc": [event] } });
  }
}

/** A whole program runs until it is stopped. @param {string} block */
const isWhole = (block) => /\b(createProvider|WebSocket)\(/.test(block);

/** A whole program stands as it is; a part gets a provider that is bound. @param {string} block */
function program(block) {
  if (isWhole(block)) return block;
  const imports = block.match(/^import .*$/gm) ?? [];
  return `import { createProvider } from "tapgw-provider";
${imports.join("\n")}
let bound;
const onConnected = new Promise((done) => (bound = done));
const provider = createProvider("doc", { onConnected: bound });
await onConnected;
${block.replace(/^import .*$/gm, "")}
await provider.disconnect();
`;
}

/** @param {string} block */
async function run(block) {
  const gateway = await listen();
  const dir = mkdtempSync(join(root, "block-"));
  const file = join(dir, "block.mjs");
  writeFileSync(file, program(block));
  const env = { ...process.env, COPILOT_HOME: dir, TAP_GATEWAY_URL: gateway.url,
    TAP_PROVIDER_TOKEN: token };
  const child = spawn(process.execPath, [file], { env, stdio: ["pipe", "pipe", "pipe"] });
  let output = "";
  child.stdout.on("data", (data) => {
    output += data;
    if (String(data).includes("The code")) child.stdin.write("123456\n");
  });
  child.stderr.on("data", (data) => (output += data));
  const ended = once(child, "exit");
  void (async () => {
    for (;;) {
      const peer = await gateway.accept();
      void confirm(peer, () => isWhole(block) && setImmediate(() => child.kill("SIGINT")));
    }
  })();
  const [code] = await ended;
  rmSync(dir, { recursive: true });
  await gateway.stop();
  assert.equal(code, 0, output);
  assert.doesNotMatch(output, /failed|rror/);
}

for (const document of documents) {
  const blocks = readFileSync(document, "utf8").split("\n```js\n").slice(1).map((b) =>
    b.split("\n```")[0]);
  assert.ok(blocks.length > 0, `${document} has ${blocks.length} blocks, want at least one`);
  for (const [i, block] of blocks.entries()) {
    test(`${basename(document)}, block ${i + 1}`, { concurrency: 4 }, () => run(block));
  }
}
