// The SDK under fire: connections cut anywhere, thousands of calls that are cancelled, and nothing
// left behind.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { createProvider } from "../index.mjs";
import { listen, token } from "./gateway.mjs";

/** The sockets and timers that are open now. */
const open = () => process.getActiveResourcesInfo().filter((r) =>
  /TCP|Timeout|Immediate/.test(r)).sort();

/** Waits until only the resources of before are open. @param {string[]} before */
async function settles(before) {
  for (let tries = 0; tries < 200 && open().length > before.length; tries++) await sleep(10);
  assert.deepEqual(open(), before, "open resources after the end");
}

const tools = [
  { name: "echo", description: "d", handler: (/** @type {any} */ { text }) => text },
  {
    name: "slow", description: "d",
    handler: (/** @type {any} */ _args, /** @type {{ signal: AbortSignal }} */ { signal }) =>
      new Promise((_done, failed) => signal.addEventListener("abort", () => failed(signal.reason))),
  },
];

/**
 * Serves one connection of which the gateway's side is cut after so many bytes, then one that lives.
 * @param {number} bytes
 */
async function cutAfter(bytes) {
  const gateway = await listen();
  let left = bytes;
  gateway.server.once("connection", (socket) => {
    const write = socket.write.bind(socket);
    socket.write = /** @type {any} */ ((/** @type {any} */ data, /** @type {any} */ ...rest) => {
      const whole = Buffer.from(data,
        typeof rest[0] === "string" ? /** @type {any} */ (rest[0]) : undefined);
      const part = whole.subarray(0, left);
      left -= part.length;
      const more = write(part);
      if (part.length < whole.length) socket.destroySoon();
      const done = rest.at(-1);
      if (typeof done === "function") process.nextTick(done);
      return more;
    });
  });
  const provider = createProvider("p", { gatewayUrl: gateway.url, token, tools, silent: true });
  /** @type {Record<string, number>} */
  const answers = {};
  const serve = async () => {
    const peer = await gateway.accept();
    await peer.bind();
    peer.call("echo", { text: "é" }, "c1");
    const m = await peer.next("tool.result");
    answers[m.id] = (answers[m.id] ?? 0) + 1;
    return true;
  };
  // The first connection may die before or after the gateway knows it.
  await Promise.any([serve(), serve()]);
  const whole = left > 0;
  await provider.disconnect();
  await gateway.stop();
  return { whole, answers };
}

test("a connection that is cut at any byte is made anew", async () => {
  const before = open();
  const step = 64;
  let whole = false;
  for (let from = 0; !whole; from += step) {
    const all = await Promise.all(Array.from({ length: step }, (_, i) => cutAfter(from + i)));
    const counts = all.flatMap(({ answers }) => Object.entries(answers));
    for (const [id, n] of counts) assert.equal(n, 1, `answers of ${id}`);
    whole = all.every((r) => r.whole);
  }
  await settles(before);
});

for (const maxCalls of [64, 20_000]) {
  test(`10,000 calls that are cancelled end once each, ${maxCalls} at a time`, async () => {
    const before = open();
    const gateway = await listen();
    const provider = createProvider("p", { gatewayUrl: gateway.url, token, tools, maxCalls,
      silent: true });
    const peer = await gateway.accept();
    await peer.bind();
    const n = 10_000;
    for (let i = 0; i < n; i++) peer.call("slow", {}, `c${i}`);
    for (let i = 0; i < n; i++) {
      const reason = i % 2 ? "timeout" : "interrupted";
      peer.send({ type: "tool.cancel", id: `c${(i * 7919) % n}`, sessionId: "s1", reason });
    }
    const ended = new Set();
    for (let i = 0; i < n; i++) {
      const m = await peer.next("tool.result");
      assert.equal(m.errorCode, "CANCELLED");
      assert.ok(!ended.has(m.id), `${m.id} was answered twice, want once`);
      ended.add(m.id);
    }
    peer.call("echo", { text: "still here" }, "last");
    assert.deepEqual(await peer.next(), { type: "tool.result", id: "last", data: "still here" });
    await provider.disconnect();
    await gateway.stop();
    await settles(before);
  });
}

test("calls in flight at a lost connection end there, and the next connection has none of them",
  async () => {
  const before = open();
  const gateway = await listen();
  let aborted = 0;
  const provider = createProvider("p", {
    gatewayUrl: gateway.url, token, maxCalls: 20_000, silent: true,
    tools: [{
      name: "slow", description: "d",
      handler: (_args, { signal }) =>
        new Promise((_done, failed) => signal.addEventListener("abort",
          () => failed(++aborted && signal.reason))),
    }],
  });
  const n = 10_000;
  const peer = await gateway.accept();
  await peer.bind();
  for (let i = 0; i < n; i++) peer.call("slow", {}, `c${i}`);
  peer.call("nothing", {}, "last");
  await peer.next("tool.result");
  peer.ws.terminate();
  const next = await gateway.accept();
  await next.bind();
  next.call("nothing", {}, "again");
  assert.equal((await next.next("tool.result")).id, "again");
  assert.equal(aborted, n);
  await provider.disconnect();
  await gateway.stop();
  await settles(before);
});

test("a provider that stops ends its calls and leaves nothing open", async () => {
  const before = open();
  const gateway = await listen();
  const provider = createProvider("p", { gatewayUrl: gateway.url, token, tools, silent: true });
  const peer = await gateway.accept();
  await peer.bind();
  peer.call("slow");
  peer.call("nothing", {}, "c2");
  await peer.next("tool.result");
  const stopped = provider.disconnect();
  assert.equal((await peer.next()).type, "goodbye");
  await stopped;
  await gateway.stop();
  await settles(before);
});

test("a gateway that does not answer pings is left and dialled again", async (t) => {
  const gateway = await listen({ autoPong: false });
  const provider = createProvider("p", { gatewayUrl: gateway.url, token, tools, silent: true });
  const peer = await gateway.accept();
  await peer.bind();
  peer.call("echo", { text: "before" });
  await peer.next("tool.result");
  t.mock.timers.enable({ apis: ["setTimeout"] });
  // The ping's timer is older than the clock of the test, so the connection is made anew under it
  // first.
  peer.ws.terminate();
  await peer.closed;
  const again = async () => {
    const next = gateway.accept();
    let found = false;
    void next.then(() => (found = true));
    while (!found) {
      await new Promise((done) => setImmediate(done));
      t.mock.timers.tick(100);
    }
    return next;
  };
  const second = await again();
  await second.bind();
  second.call("echo", { text: "second" }, "c2");
  await second.next("tool.result");
  const third = await again(); // nothing but the ping's silence ends the second
  await third.bind();
  t.mock.timers.reset();
  await provider.disconnect();
  await gateway.stop();
});
