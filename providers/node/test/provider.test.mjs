import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, beforeEach, describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import { CancelError, createProvider, NotConnectedError, ProviderError } from "../index.mjs";
import { listen, token } from "./gateway.mjs";

const home = mkdtempSync(join(tmpdir(), "tap-"));
after(() => rmSync(home, { recursive: true }));
beforeEach(() => {
  process.env.COPILOT_HOME = home;
  delete process.env.TAP_GATEWAY_URL;
  delete process.env.TAP_PROVIDER_TOKEN;
});

/**
 * Starts a gateway and a provider that is bound to it.
 * @param {import("node:test").TestContext} t
 * @param {import("../index.mjs").Options} options
 */
async function start(t, options) {
  const gateway = await listen();
  const provider = createProvider("p", { gatewayUrl: gateway.url, token, silent: true,
    ...options });
  t.after(async () => {
    await provider.disconnect();
    await gateway.stop();
  });
  const peer = await gateway.accept();
  const hello = await peer.bind();
  while (!provider.connected) await sleep(1); // it has the answer
  return { gateway, provider, peer, hello };
}

describe("the names of the original SDK", () => {
  test("tools without a handler are answered by onToolCall", async (t) => {
    /** @type {any[]} */
    const seen = [];
    const { provider, peer } = await start(t, {
      tools: [{ name: "greet", description: "Say hello", parameters: { type: "object" } }],
      onToolCall(tool, args, { callId, sessionId, providerId }) {
        seen.push(tool, callId, sessionId, providerId);
        return `Hello, ${args.name}!`;
      },
    });
    peer.call("greet", { name: "Ada" });
    assert.deepEqual(await peer.next(), { type: "tool.result", id: "c1", data: "Hello, Ada!" });
    assert.deepEqual(seen, ["greet", "c1", "s1", "p-1"]);
    const { name, connected, providerId, sessionId } = provider;
    assert.deepEqual([name, connected, providerId, sessionId], ["p", true, "p-1", "s1"]);
  });

  test("push, surface, keep and pushEvent name their level", async (t) => {
    const { provider, peer } = await start(t, {});
    const sent = [
      provider.push("a"), provider.surface("b", { stream: "ci" }), provider.keep("c"),
        provider.pushEvent("keep", "d"),
    ];
    for (const [level, event] of [["inject", "a"], ["surface", "b"], ["keep", "c"],
      ["keep", "d"]]) {
      const m = await peer.next("push");
      assert.deepEqual([m.level, m.event], [level, event]);
      peer.send({ type: "ack", requestId: m.requestId, sessionId: "s1", seq: 1, fate: "stored" });
    }
    assert.equal((await Promise.all(sent)).length, 4);
  });

  test("callbacks tell of the connection and its session", async (t) => {
    /** @type {string[]} */
    const told = [];
    const { gateway, provider, peer } = await start(t, {
      onConnected: ({ sessionId }) => told.push(`connected ${sessionId}`),
      onDisconnected: () => told.push("disconnected"),
      onSessionIdle: ({ sessionId }) => told.push(`idle ${sessionId}`),
      onError: (code, message) => told.push(`${code} ${message}`),
    });
    peer.send({ type: "session.lifecycle", sessionId: "s1", state: "idle" });
    peer.send({ type: "error", code: "SURPRISE", message: "what?" });
    peer.call("nothing");
    await peer.next("tool.result");
    peer.ws.terminate();
    await (await gateway.accept()).bind();
    while (told.length < 6) await sleep(1);
    const lost = told.findIndex((s) => s.startsWith("INTERNAL"));
    assert.match(told.splice(lost, 1)[0], /connection lost/);
    const want = ["SURPRISE SURPRISE: what?", "connected s1", "connected s1", "disconnected",
      "idle s1"];
    assert.deepEqual(told.sort(), want);
    await provider.disconnect();
    assert.equal(provider.connected, false);
  });

  test("a push that nobody waits for reports its failure and does not end the process",
    async () => {
    /** @type {string[]} */
    const codes = [];
    const provider = createProvider("p", { autoConnect: false, silent: true,
      onError: (code) => codes.push(code) });
    provider.push("lost");
    await assert.rejects(provider.push("known"), NotConnectedError);
    while (codes.length === 0) await sleep(1);
    assert.deepEqual(codes, ["DISCONNECTED"]);
  });
});

describe("tools", () => {
  test("a zod schema is written as JSON Schema and reads the arguments", async (t) => {
    const parameters = z.object({ name: z.string().describe("who"), times: z.number().default(2) });
    const { peer, hello } = await start(t, {
      tools: [{ name: "greet", description: "d", parameters, handler: ({ name, times }) =>
        name.repeat(times) }],
    });
    const [{ parameters: schema }] = hello.tools;
    assert.deepEqual(schema.required, ["name"]);
    assert.equal(schema.properties.name.description, "who");
    peer.call("greet", { name: "ab" });
    assert.equal((await peer.next()).data, "abab");
    peer.call("greet", { name: 7 }, "c2");
    const wrong = await peer.next();
    assert.equal(wrong.errorCode, "INTERNAL");
    assert.match(wrong.error, /^wrong arguments: name: /);
  });

  for (const [why, tool] of /** @type {[RegExp, any][]} */ ([
    [/its name must be/, { name: "a b", description: "d" }],
    [/needs a description/, { name: "a" }],
    [/timeout is 0/, { name: "a", description: "d", timeout: 0 }],
    [/must be a JSON Schema/, { name: "a", description: "d", parameters: [] }],
    [/cannot write itself/, { name: "a", description: "d",
      parameters: { "~standard": { validate() {} } } }],
  ])) {
    test(`a wrong tool is refused: ${why.source}`, () => {
      assert.throws(() => createProvider("p", { autoConnect: false, tools: [tool] }), why);
    });
  }

  test("values that are no JSON fail, and undefined is null", async (t) => {
    const values = { none: undefined, big: 1n, loop: /** @type {any} */ ({}), f() {} };
    values.loop.self = values.loop;
    const tools = Object.entries(values).map(([name, v]) =>
      ({ name, description: "d", handler: () => v }));
    const { peer } = await start(t, { tools });
    for (const [name, want] of [["none", null], ["f", null], ["big", /BigInt/],
      ["loop", /circular/i]]) {
      peer.call(String(name), {}, String(name));
      const m = await peer.next("tool.result");
      if (want === null) assert.equal(m.data, null);
      else assert.match(m.error, /** @type {RegExp} */ (want));
    }
  });

  test("a cancelled handler sees why, and is answered for after its grace", async (t) => {
    /** @type {Promise<unknown>} */
    let reason = Promise.resolve();
    const { peer } = await start(t, {
      tools: [{
        name: "stuck", description: "d",
        handler: (_args, { signal }) => {
          reason = new Promise((done) => signal.addEventListener("abort",
            () => done(signal.reason)));
          return new Promise(() => {});
        },
      }],
    });
    peer.call("stuck");
    peer.call("nothing", {}, "c2");
    await peer.next("tool.result");
    peer.send({ type: "tool.cancel", id: "c1", sessionId: "s1", reason: "interrupted" });
    assert.equal((await peer.next("tool.result")).errorCode, "CANCELLED");
    const error = await reason;
    assert.ok(error instanceof CancelError, `the abort's reason is ${error}, want a CancelError`);
    assert.deepEqual([error.reason, error.name], ["interrupted", "AbortError"]);
  });
});

describe("finding the gateway", () => {
  const dir = join(home, "extensions", "tap");
  const write = (/** @type {string} */ url, /** @type {string} */ secret) => {
    mkdirSync(dir, { recursive: true });
    writeFileSync(join(dir, "gateway.json"), JSON.stringify({ url }));
    writeFileSync(join(dir, ".provider-token"), `${secret}\n`);
  };

  test("the files are found, also when they come later", async (t) => {
    rmSync(dir, { recursive: true, force: true });
    const gateway = await listen();
    const provider = createProvider("p", { silent: true });
    t.after(async () => {
      await provider.disconnect();
      await gateway.stop();
    });
    write(gateway.url, token);
    const peer = await gateway.accept();
    assert.deepEqual(await peer.next(), { type: "auth", token });
  });

  test("a server that does not know the token does not get it", async (t) => {
    const gateway = await listen();
    write(gateway.url, "ptk-other");
    /** @type {Promise<string>} */
    const why = new Promise((done) => {
      const provider = createProvider("p",
        { silent: true, onError: (_code, message) => done(message) });
      t.after(async () => {
        await provider.disconnect();
        await gateway.stop();
      });
    });
    assert.match(await why, /is not the gateway of the token/);
  });

  test("a token of an earlier gateway in the environment gives way to the file's", async (t) => {
    const gateway = await listen();
    write(gateway.url, token);
    process.env.TAP_PROVIDER_TOKEN = "ptk-earlier";
    const provider = createProvider("p", { silent: true });
    t.after(async () => {
      await provider.disconnect();
      await gateway.stop();
    });
    await gateway.accept(); // does not know the first
    assert.deepEqual(await (await gateway.accept()).next(), { type: "auth", token });
  });

  for (const gatewayUrl of ["nonsense", "ftp://x"]) {
    test(`a wrong URL is refused: ${gatewayUrl}`, () => {
      assert.throws(() => createProvider("p", { gatewayUrl, autoConnect: false }), /gatewayUrl: /);
    });
  }
});

test("what a handler fails with reaches the terminal without control characters", async (t) => {
  const lines = t.mock.method(console, "error", () => {});
  const { peer } = await start(t, {
    silent: false,
    tools: [{
      name: "fail", description: "d",
      handler({ text }) {
        throw new Error(text);
      },
    }],
  });
  peer.call("fail", { text: "\u001b]0;owned\u0007 \u202e" });
  assert.equal((await peer.next("tool.result")).error, "\u001b]0;owned\u0007 \u202e");
  const printed = lines.mock.calls.map((c) => c.arguments.join(" ")).join("\n");
  assert.match(printed, /\\u001b\]0;owned\\u0007 \\u202e/);
  assert.doesNotMatch(printed, /[\u001b\u0007\u202e]/);
});

for (const [name, ok] of /** @type {[string, boolean][]} */ ([
  ["hello", true], ["My Provider", true], ["@scope/name", true], ["", false], ["-", false],
    ["a".repeat(65), false],
])) {
  test(`the name ${JSON.stringify(name)} is ${ok ? "taken" : "refused"}`, () => {
    const make = () => createProvider(name, { autoConnect: false });
    if (ok) make();
    else assert.throws(make, /a provider's name must be/);
  });
}

test("a refused token of the options ends the run with the gateway's error", async (t) => {
  const gateway = await listen();
  t.after(() => gateway.stop());
  const provider = createProvider("p", { gatewayUrl: gateway.url, token, silent: true });
  const peer = await gateway.accept();
  await peer.next("auth");
  peer.send({ type: "error", code: "AUTH_FAILED", message: "unknown token", replyTo: "auth" });
  await assert.rejects(provider.closed, (e) => e instanceof ProviderError &&
    e.code === "AUTH_FAILED");
});
