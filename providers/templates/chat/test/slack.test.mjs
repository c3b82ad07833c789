import assert from "node:assert/strict";
import { test } from "node:test";
import { escape, unescape } from "../slack.mjs";
import { textOf, tooMany } from "./recorded.mjs";
import { question, startBot, until } from "./rig.mjs";

const service = "slack";

/** @param {any} server @param {string} text */
const said = (server, text) =>
  until(() => [...server.messages.values()].find((m) => textOf(m).includes(text)));

/** A bot whose socket is open. @param {import("node:test").TestContext} t @param {any} [options] */
async function connected(t, options) {
  const started = await startBot(t, { service, ...options });
  await until(() => started.server.sockets.length);
  return started;
}

test("a prompt runs, in text that no markup changes", async (t) => {
  const { bot, server, gateway } = await connected(t);
  server.write("U1", "fetch <https://a.example/?x=1&amp;y=2|a.example> &amp; see <#C123|general>");
  await until(() => gateway.prompts_.length);
  const text = "fetch https://a.example/?x=1&y=2 & see #general";
  assert.deepEqual(gateway.prompts_, [{ session: "s1", text, who: "U1 (slack U1)" }]);
  bot.began("s1", text);
  bot.turns.said("s1", "<!channel> & `*all*`");
  bot.turns.end("s1", "");
  const m = await said(server, "✔ tea (s1)");
  assert.match(textOf(m), /<!channel> & `\*all\*`$/);
  assert.ok(!m.text.includes("<!"), `the notification shows no markup: ${m.text}`);
  const post = server.calls.find((/** @type {any} */ c) => c.method === "chat.postMessage").body;
  assert.deepEqual([post.unfurl_links, post.unfurl_media, post.channel], [false, false, "C1"]);
  assert.equal(server.open.size, 0, "envelopes that are not acknowledged");
});

test("strangers, other bots, and events that come twice start nothing", async (t) => {
  const { bot, server, gateway, logged } = await connected(t);
  server.write("U9", "let me in");
  server.write("U1", "I am a bot", { bot_id: "B1" });
  server.write("U1", "changed", { subtype: "message_changed" });
  server.write("U1", "talking", { channel: "C1", channel_type: "channel" });
  server.raw("{no JSON");
  server.raw({ type: "something new" });
  server.envelope("events_api", null);
  server.write("U1", { toString: 1 });
  server.envelope("interactive", { type: "view_submission" });
  server.write("U1", "once", { event_id: "Ev1" });
  server.write("U1", "once", { event_id: "Ev1" });
  server.write("U1", "<@U0BOT> go", { type: "app_mention", channel: "C1",
    channel_type: undefined });
  server.write("U1", "<@U0BOT> go", { type: "app_mention", channel: "C2",
    channel_type: undefined });
  await until(() => gateway.prompts_.length === 2);
  await until(() => server.open.size === 0);
  assert.deepEqual(gateway.prompts_.map((p) => p.text), ["once", "go"]);
  assert.deepEqual(logged.filter((l) => l.startsWith("refused")),
    ["refused: user U9 in chat DU9", "refused: user U1 in chat C2"]);
  assert.equal(logged.filter((l) => /^event \w+ is ignored/.test(l)).length, 1,
    `wrong events: ${logged}`);
});

test("a permission is answered by a button", async (t) => {
  const { bot, server, gateway } = await connected(t);
  const command = "cat <<X ``` *x* <!channel>";
  bot.questions.asked("s1", question("q1", "permission", "run a command", { detail: command }));
  const place = await until(() => bot.state.questions.q1.places[0]);
  const { blocks } = server.messages.get(place.id);
  const code = blocks[0].elements.find((/** @type {any} */ e) => e.type === "rich_text_preformatted");
  assert.deepEqual(code.elements, [{ type: "text", text: command }]);
  server.press("U9", "run a command", "Allow once");
  await server.called((/** @type {any} */ c) => c.method === "chat.postEphemeral" && c.body.user === "U9");
  server.press("U1", "run a command", "Allow once", { value: "guess.0" });
  await server.called((/** @type {any} */ c) => /not of a question/.test(c.body.text) && c.body.user === "U1");
  server.press("U1", "run a command", "Allow for the session");
  await until(() => gateway.answers.length);
  assert.deepEqual(gateway.answers,
    [{ question: "q1", decision: "session", person: "u1 (slack U1)" }]);
  bot.questions.ended("q1", { reason: "answered", by: "user" });
  const m = await said(server, "— answered by the gateway's user");
  assert.equal(m.blocks.length, 1, "blocks without the buttons");
  gateway.onAnswer = () => assert.fail("an answer to a question that is over");
  server.press("U2", "run a command", "", { value: `${bot.state.questions.q1.secret}.0` });
  await server.called((/** @type {any} */ c) => /^Too late: answered by the gateway's user/.test(c.body.text));
});

test("the socket is refreshed, and what was not acknowledged comes again", async (t) => {
  const { bot, server, gateway, logged } = await connected(t);
  const [old] = server.sockets;
  server.raw({ type: "disconnect", reason: "refresh_requested", debug_info: {} });
  await until(() => server.sockets.some((/** @type {any} */ s) => s !== old));
  const event = { type: "message", channel_type: "im", channel: "DU1", user: "U1", text: "on the old one", ts: "1" };
  old.send(JSON.stringify({ envelope_id: "e0", type: "events_api", payload: { event_id: "Ev0", event } }));
  await until(() => gateway.prompts_.length === 1);
  server.fail("apps.connections.open", tooMany(0));
  for (const socket of server.sockets) socket.terminate();
  server.write("U1", "while nobody listens");
  await until(() => gateway.prompts_.length === 2);
  assert.deepEqual(gateway.prompts_.map((p) => p.text), ["on the old one", "while nobody listens"]);
  assert.deepEqual(logged, ["apps.connections.open: ratelimited"]);
});

test("a bot that starts again remembers what it had", async (t) => {
  const first = await connected(t);
  const { server, dir, gateway } = first;
  server.write("U1", "one", { event_id: "Ev1" });
  await until(() => gateway.prompts_.length === 1);
  await first.stop();
  await until(() => server.sockets.length === 0);
  server.write("U1", "one", { event_id: "Ev1" });
  server.write("U1", "two");
  await connected(t, { server, dir, gateway });
  await until(() => gateway.prompts_.length === 2);
  await until(() => server.open.size === 0);
  assert.deepEqual(gateway.prompts_.map((p) => p.text), ["one", "two"]);
});

test("commands come as slash commands, too", async (t) => {
  const { bot, server } = await connected(t);
  server.envelope("slash_commands", { command: "/sessions", text: "", user_id: "U1", channel_id: "DU1" });
  await said(server, "tea (s1)");
  server.envelope("slash_commands", { command: "/use", text: "s1", user_id: "U1", channel_id: "C1" });
  await said(server, "This chat uses tea (s1)");
});

test("a socket without TLS is not opened", async (t) => {
  const { bot, server } = await connected(t);
  const url = "ws://socket.example/link/?ticket=secret";
  server.fail("apps.connections.open", { status: 200, body: { ok: true, url } });
  const { signal } = new AbortController();
  await assert.rejects(bot.service.listen({}, async () => {}, async () => {}, signal), (/** @type {Error} */ e) =>
    e.message === "apps.connections.open: its answer names no secure address");
});

test("text is escaped and read as Slack wants it", () => {
  assert.equal(escape("a < b && <!channel>"), "a &lt; b &amp;&amp; &lt;!channel&gt;");
  assert.equal(unescape("&amp;lt; <mailto:a@b.example|a@b.example> <@U1>"), "&lt; mailto:a@b.example <@U1>");
});

test("a refused token ends the bot", async (t) => {
  const refused = startBot(t, { service, env: { SLACK_BOT_TOKEN: "xoxb-wrong" } });
  await assert.rejects(refused, /^ApiError: auth.test: invalid_auth$/);
  const { bot } = await connected(t);
  bot.config.appToken = "xapp-wrong";
  const { signal } = new AbortController();
  await assert.rejects(bot.listen(signal), /^ApiError: apps.connections.open: invalid_auth$/);
});
