import assert from "node:assert/strict";
import { test } from "node:test";
import { tooMany } from "./recorded.mjs";
import { question, startBot, until } from "./rig.mjs";

/** The texts of the messages in a chat, oldest first. @param {any} server @param {number} chat */
const texts = (server, chat) =>
  [...server.messages.values()].filter((m) => m.chat.id === chat).map((m) => m.text);

/** @param {any} server @param {string} text */
const said = (server, text) =>
  until(() => [...server.messages.values()].find((m) => m.text.includes(text)));

test("a prompt runs, and its turn is one message that changes", async (t) => {
  const { bot, server, gateway } = await startBot(t);
  server.write(1, "make *tea*");
  await until(() => gateway.prompts_.length);
  assert.deepEqual(gateway.prompts_,
    [{ session: "s1", text: "make *tea*", who: "@person1 (telegram 1)" }]);
  bot.began("s1", "[from provider chat]\nmake *tea*");
  await said(server, "make *tea*");
  bot.turns.called("s1", { tool: "bash", result: { type: "success" } });
  bot.turns.said("s1", "Done: <b>*tea*</b> [x](http://evil.example)");
  bot.turns.end("s1", "");
  const m = await said(server, "✔ tea (s1)");
  assert.match(m.text, /1 call of tools, last bash\n\nDone: <b>\*tea\*<\/b>/);
  assert.deepEqual([m.parse_mode, m.link_preview_options], [undefined, { is_disabled: true }]);
  assert.deepEqual(m.entities, [{ type: "bold", offset: 0, length: "✔ tea (s1)".length }]);
  assert.equal(texts(server, 1).length, 1, "messages to the person");
  assert.equal(bot.state.prompts.length, 0, "prompts that wait");
});

test("strangers, other chats and unmentioned talk start nothing", async (t) => {
  const { bot, server, gateway, logged } = await startBot(t);
  const group = (/** @type {number} */ id) => ({ chat: { id, type: "group" } });
  const mention = (/** @type {number} */ id, /** @type {string} */ text) =>
    ({ ...group(id), entities: [{ type: "mention", offset: text.indexOf("@"),
      length: "@tap_test_bot".length }] });
  for (let i = 0; i < 3; i++) server.write(9, "let me in");
  server.write(1, "just talking", group(-10));
  server.write(9, "@tap_test_bot hi", mention(-10, "@tap_test_bot hi"));
  server.write(2, "@tap_test_bot hi", mention(-77, "@tap_test_bot hi"));
  server.update({ message: { message_id: 1, chat: { id: -10, type: "channel" },
    text: "no sender" } });
  server.write(1, "go, @Tap_Test_Bot!", mention(-10, "go, @Tap_Test_Bot!"));
  await until(() => gateway.prompts_.length);
  assert.deepEqual(gateway.prompts_.map((p) => p.text), ["go, !"]);
  await said(server, "Sorry");
  await bot.outbox.settled();
  assert.deepEqual([9, -77, -10].map((chat) => texts(server, chat).length), [1, 1, 0], "refusals");
  assert.deepEqual(logged, ["refused: user 9 in chat 9", "refused: user 2 in chat -77"]);
});

test("commands choose the session", async (t) => {
  const { bot, server, gateway } = await startBot(t);
  await bot.started("s2", "milk");
  server.write(1, "who gets this?");
  await said(server, "Choose a session");
  server.write(1, "/use s9");
  await said(server, "No such session");
  server.write(1, "/use s2");
  await said(server, "This chat uses milk (s2)");
  server.write(1, "/sessions");
  await said(server, "tea (s1)\n→ milk (s2)");
  server.write(1, "warm it");
  await until(() => gateway.prompts_.length);
  assert.equal(gateway.prompts_[0].session, "s2");
  server.write(1, "/stop");
  await said(server, "tapctl sessions interrupt s2");
  bot.ended("s2");
  await said(server, "milk (s2) has ended");
  server.write(1, "again");
  await said(server, "Session s2 doesn't run");
  assert.equal(gateway.prompts_.length, 1, "prompts");
});

test("a permission is answered once, by who may, with its own button", async (t) => {
  const { bot, server, gateway } = await startBot(t);
  const command = "rm -rf `*`\n</code> \u202e";
  bot.questions.asked("s1", question("q1", "permission", "run a command", { detail: command }));
  const m = await said(server, "run a command");
  assert.equal(m.chat.id, -10);
  const { offset, length } = m.entities.find((/** @type {any} */ e) => e.type === "pre");
  assert.equal(m.text.slice(offset, offset + length), "rm -rf `*`\n</code> \\u{202e}");
  await until(() => bot.state.questions.q1.places.length);
  const replied = async (/** @type {() => void} */ press) => {
    const before = server.calls.length;
    press();
    await until(() => server.calls.slice(before).some((/** @type {any} */ c) =>
      c.method === "answerCallbackQuery"));
    return server.calls.findLast((/** @type {any} */ c) =>
      c.method === "answerCallbackQuery").body.text;
  };
  const once = "Allow once";
  assert.match(await replied(() => server.press(9, "run a command", once)), /Sorry/);
  const forged = { data: `${bot.state.questions.q1.secret.slice(1)}.0` };
  assert.match(await replied(() => server.press(1, "run a command", once, forged)),
    /not of a question here/);
  const forwarded = { message: { message_id: 5, chat: { id: 1, type: "private" } } };
  assert.match(await replied(() => server.press(1, "run a command", once, forwarded)),
    /not of a question here/);
  assert.match(await replied(() => server.press(1, "run a command", once, { message: undefined })),
    /Sorry|not of a/);
  assert.deepEqual(gateway.answers, [], "answers");
  const answer = { question: "q1", decision: "once", person: "@person1 (telegram 1)" };
  assert.equal(await replied(() => server.press(1, "run a command", once)), "You answered: once");
  assert.deepEqual(gateway.answers, [answer]);
  bot.questions.ended("q1", { reason: "answered", by: "provider:chat",
    person: "@person1 (telegram 1)" });
  await said(server, "— answered by @person1 (telegram 1)");
  assert.deepEqual(m.reply_markup.inline_keyboard, [], "buttons afterwards");
  const late = { data: `${bot.state.questions.q1.secret}.0` };
  const tooLate = await replied(() => server.press(2, "run a command", once, late));
  assert.equal(tooLate, "Too late: answered by @person1 (telegram 1).");
  assert.equal(gateway.answers.length, 1, "answers");
});

test("an input takes a button or a reply, and a long permission has no button", async (t) => {
  const { bot, server, gateway } = await startBot(t);
  bot.questions.asked("s1", question("q1", "input", "Which?", { choices: ["red", "green"] }));
  await until(() => bot.state.questions.q1.places.length);
  server.press(1, "Which?", "2. green");
  await until(() => gateway.answers.length);
  bot.questions.asked("s1", question("q2", "input", "Name it", { freeform: true }));
  const place = await until(() => bot.state.questions.q2.places[0]);
  const reply = { message_id: Number(place.id), from: { id: 7001 } };
  server.write(1, "Bob", { chat: { id: -10, type: "group" }, reply_to_message: reply });
  await until(() => gateway.answers.length === 2);
  assert.deepEqual(gateway.answers.map((a) => a.text), ["green", "Bob"]);
  server.write(2, "blue", { reply_to_message: { message_id: 4 } });
  await until(() => gateway.prompts_.length);
  bot.questions.asked("s1", question("q3", "permission", "run",
    { detail: `echo ${"x".repeat(4096)}` }));
  const long = await said(server, "too long to be shown here (4104 characters)");
  assert.deepEqual(long.reply_markup.inline_keyboard, [], "buttons");
  assert.match(long.text, /tapctl sessions answer s1 --question q3/);
  bot.questions.asked("s1", question("q4", "permission", "list", { detail: "ls" }));
  const own = await until(() => bot.state.questions.q4.places.find((p) => p.chat === "2"));
  server.write(2, "yes", { reply_to_message: { message_id: Number(own.id) } });
  await said(server, "takes no text");
  assert.deepEqual([gateway.answers.length, gateway.prompts_.length], [2, 1],
    "answers and prompts");
});

test("a bot that starts again repeats nothing and loses nothing", async (t) => {
  const first = await startBot(t);
  const { server, dir, gateway } = first;
  server.write(1, "one");
  await until(() => gateway.prompts_.length === 1 && first.bot.state.prompts.length === 0);
  first.bot.questions.asked("s1", question("q1", "permission", "run a command", { detail: "ls" }));
  first.bot.questions.asked("s1", question("q2", "permission", "write a file", { detail: "x" }));
  await until(() => ["q1", "q2"].every((id) => first.bot.state.questions[id].places.length === 2));
  first.bot.began("s1", "a long turn");
  await until(() => first.bot.state.turns.s1?.places.length === 2);
  await first.stop();
  const old = [...server.updates];
  server.write(1, "two");

  const { bot } = await startBot(t, { server, dir, gateway, begin: (b) => {
    b.questions.asked("s1", question("q1", "permission", "run a command", { detail: "ls" }));
    return b.started("s1", "tea");
  } });
  for (const update of old) server.raw(update); // twice
  await until(() => gateway.prompts_.length === 2);
  assert.deepEqual(gateway.prompts_.map((p) => p.text), ["one", "two"]);
  await said(server, "— it ended while I was away");
  assert.equal([...server.messages.values()].filter((m) => m.text.includes("run a command")).length,
    2, "questions");
  server.press(1, "run a command", "Deny");
  await until(() => gateway.answers.length);
  bot.turns.end("s1", "");
  await said(server, "✔ tea (s1)\n> a long turn\n\n(I was away while it ran.");
  assert.deepEqual(bot.state.turns, {});
});

test("a prompt that may be lost is told of, and one that was not sent runs", async (t) => {
  const { bot, server, gateway } = await startBot(t, { begin() {} });
  const prompt = { chat: "1", session: "s1", who: "Ada" };
  bot.state.prompts.push(
    { id: "5", text: "the first", isSent: true, ...prompt },
      { id: "6", text: "the second", ...prompt },
    { id: "4", text: "in the gateway", isSent: true, ...prompt },
  );
  gateway.stored.add("4");
  await bot.started("s1", "tea");
  await said(server, "may not have run. Send it again if no answer comes:\nthe first");
  await until(() => gateway.prompts_.length);
  assert.deepEqual(gateway.prompts_.map((p) => p.text), ["the second"]);
  bot.began("s1", "in the gateway");
  assert.deepEqual(bot.state.prompts, []);
});

test("a prompt waits for a gateway that is away", async (t) => {
  const { bot, server, gateway } = await startBot(t);
  gateway.onPrompt = () => {
    throw Object.assign(new Error("away"), { code: "NOT_SENT" });
  };
  server.write(1, "one");
  await until(() => gateway.prompts_.length);
  await until(() => !bot.isConnected);
  gateway.onPrompt = () => ({ fate: "delivered", reason: "" });
  await bot.started("s1", "tea");
  await until(() => bot.state.prompts.length === 0);
  assert.deepEqual(gateway.prompts_.map((p) => p.text), ["one", "one"]);
});

test("an id that came before is ignored, but for a week of silence", async (t) => {
  for (const [heard, wanted] of /** @type {const} */ ([
    [Date.now(), ["new"]], [Date.now() - 7 * 24 * 3600_000, ["old", "new"]],
  ])) {
    const { server, gateway } = await startBot(t, { begin: (b) => {
      Object.assign(b.state.service, { offset: 5000, heard });
      return b.started("s1", "tea");
    } });
    const say = (/** @type {string} */ text) =>
      ({ text, from: { id: 1 }, chat: { id: 1, type: "private" } });
    await until(() => server.isPolled);
    server.raw({ update_id: 7, message: say("old") });
    server.raw({ update_id: 5000, message: say("new") });
    await until(() => gateway.prompts_.some((p) => p.text === "new"));
    assert.deepEqual(gateway.prompts_.map((p) => p.text), wanted);
  }
});

test("a flood drops no question", async (t) => {
  const { bot, server, logged } = await startBot(t);
  server.fail("sendMessage", tooMany(1));
  bot.say("-10", "the first");
  bot.questions.asked("s1", question("q1", "permission", "run a command", { detail: "ls" }));
  for (let i = 0; i < 600; i++) bot.say("-10", `line ${i}`);
  await until(() => logged.some((l) => l.includes("the oldest is dropped")));
  await said(server, "run a command");
});

test("who left the list hears no more", async (t) => {
  const first = await startBot(t);
  const { server, dir } = first;
  server.write(2, "/use s1");
  await said(server, "This chat uses tea (s1)");
  assert.deepEqual(first.bot.following("s1"), ["-10", "2"]);
  await first.stop();
  const { bot } = await startBot(t, { server, dir, env: { CHAT_USERS: "1" } });
  assert.deepEqual(bot.following("s1"), ["-10"]);
});

test("what the gateway does not run is said", async (t) => {
  const { bot, server, gateway } = await startBot(t);
  gateway.onPrompt = () => ({ fate: "surfaced", reason: "paused: too many injects" });
  server.write(1, "one");
  await said(server, "Not run: paused: too many injects.");
  gateway.onPrompt = () => {
    throw Object.assign(new Error("INVALID_SESSION: it has ended"), { code: "INVALID_SESSION" });
  };
  server.write(1, "two");
  await said(server, "Not run: INVALID_SESSION: it has ended");
  assert.deepEqual(bot.state.prompts, []);
});

test("limits, wrong updates and failures of the service cost nothing", async (t) => {
  const { bot, server, gateway, logged } = await startBot(t);
  /** @type {number[]} */
  const waits = [];
  bot.outbox.wait = async (ms = 0) => (waits.push(ms), /** @type {any} */ (undefined));
  server.fail("sendMessage", tooMany(7));
  server.fail("sendMessage", { status: 502, body: "<html>Bad Gateway</html>" });
  for (const wrong of [{}, { update_id: "x" }, null, 7]) server.raw(wrong);
  server.update({ message: { from: {} } });
  server.update({ callback_query: { id: "x", from: { id: 1 } } });
  server.write(1, "/sessions");
  await said(server, "tea (s1)");
  assert.deepEqual(waits.slice(0, 2), [7000, 2000], "waits before the message was sent again");
  const description = "Forbidden: bot was blocked by the user";
  server.fail("sendMessage", { status: 403, body: { ok: false, error_code: 403, description } });
  server.write(2, "/help");
  await until(() => logged.some((l) => l.includes(description)));
  bot.began("s1", "x".repeat(10_000));
  bot.turns.said("s1", "😀".repeat(5000));
  bot.turns.end("s1", "");
  const m = await said(server, "the rest: tapctl sessions log s1");
  assert.ok(m.text.length <= 4096 && m.text.isWellFormed(), `${m.text.length} units`);
  for (let i = 0; i < 60; i++) bot.turns.notify("s1", "denials", `⛔ bash: denial ${i}`);
  await said(server, "denial 59");
  await bot.outbox.settled();
  const denials = texts(server, -10).filter((text) => text.includes("denial"));
  assert.ok(denials.length <= 4, `60 denials at once made ${denials.length} messages`);
  assert.equal(gateway.prompts_.length, 0);
  assert.ok(!logged.join().includes("token-of-the-bot"), `a log without the token: ${logged}`);
});

test("a refused token ends the bot", async (t) => {
  await assert.rejects(startBot(t, { env: { TELEGRAM_BOT_TOKEN: "7001:wrong" } }),
    /^ApiError: getMe: Unauthorized$/);
});
