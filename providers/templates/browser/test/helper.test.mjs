// Tests of the helper: rules, and which pages and hosts it answers.

import assert from "node:assert/strict";
import { request } from "node:http";
import test from "node:test";
import { Script } from "node:vm";
import { createHelper, isAllowed, listen, readRules } from "../helper.mjs";

const { signal } = new AbortController();
const rules = readRules(`
# a comment
http://localhost:3000 document\\.title
https://shop.example  app\\.state\\(\\d+\\)
http://localhost:4000 (a+)+b
`);

test("a rule allows a whole script, in pages of its origin", () => {
  for (const [script, origin, want] of [
    ["document.title", "http://localhost:3000", true],
    ["document.title", undefined, true],
    ["document.title", "http://localhost:4000", false],
    ["document.title;alert(1)", "http://localhost:3000", false],
    ["alert(1)\ndocument.title", "http://localhost:3000", false],
    ["document.title\n", "http://localhost:3000", false],
    ["app.state(12)", "https://shop.example", true],
    ["document,title", "http://localhost:3000", false],
    ["x".repeat(70_000), undefined, false],
    [undefined, undefined, false],
  ]) assert.equal(isAllowed(rules, script, origin), want, `${script} in ${origin}`);
});

test("a pattern that explodes allows nothing", () => {
  assert.equal(isAllowed(rules, "a".repeat(40), "http://localhost:4000"), false);
});

test("a wrong rule is named by its line", () => {
  for (const [text, want] of [
    ["\nhttp://localhost:3000", /line 2: want an origin/],
    ["localhost:3000 x", /line 1: localhost:3000 is no origin/],
    ["http://localhost:3000/app x", /line 1: http:\/\/localhost:3000\/app is no origin/],
    ["http://localhost:3000 (", /line 1: Invalid regular expression/],
  ]) assert.throws(() => readRules(text), want);
});

/** Asks the helper. fetch does not let a program choose the header Host. */
const ask = (port, method, path, headers = {}, body = "") => new Promise((done, failed) => {
  const asking = request({ port, host: "127.0.0.1", method, path, headers }, async (response) => {
    let text = "";
    for await (const part of response) text += part;
    done({ status: response.statusCode, headers: response.headers, text });
  });
  asking.on("error", failed).end(body);
});

test("pages get the script, and an answer for their own origin only", async (t) => {
  const server = createHelper({ gateway: "ws://127.0.0.1:1</script>", rules });
  t.after(() => (server.closeAllConnections(), server.close()));
  const port = await listen(server, 0, signal, () => {});
  const tab = await ask(port, "GET", "/tab.js");
  assert.ok(tab.text.includes(`("ws://127.0.0.1:1</script>", "http://127.0.0.1:${port}", // `),
    tab.text);
  new Script(tab.text); // it is a program
  const page = await ask(port, "GET", "/");
  const [, link] = /href="javascript:([^"]+)"/.exec(page.text);
  assert.equal(decodeURIComponent(link), tab.text);
  assert.equal((await ask(port, "GET", "/tab.js", { Host: "evil.example" })).status, 421);
  assert.equal((await ask(port, "GET", "/../helper.mjs")).status, 404);
  for (const [origin, script, want] of [
    ["http://localhost:3000", "document.title", true], ["http://localhost:3000", "alert(1)", false],
    ["https://evil.example", "document.title", false], ["null", "document.title", false],
    ["", "document.title", false], ["http://localhost:3000", "x".repeat(200_000), false],
  ]) {
    const { text, headers } = await ask(port, "POST", "/allowed", origin ? { Origin: origin } : {},
      script);
    assert.equal(JSON.parse(text).allowed, want, `${script.slice(0, 20)} from ${origin}`);
    assert.equal(headers["access-control-allow-origin"], origin || "null");
  }
});

test("it waits for its port", async (t) => {
  const [first, second] = [0, 0].map(() => createHelper({ gateway: "ws://127.0.0.1:1", rules }));
  const port = await listen(first, 0, signal, () => {});
  let waiting;
  const complained = new Promise((done) => {
    waiting = listen(second, port, signal, done);
  });
  assert.match(await complained, /is taken/);
  first.close();
  assert.equal(await waiting, port);
  t.after(() => second.close());
});
