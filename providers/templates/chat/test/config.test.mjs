import assert from "node:assert/strict";
import { mkdtempSync, readdirSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { cut, split } from "../api.mjs";
import { readConfig } from "../config.mjs";
import { Store } from "../store.mjs";

test("what is wrong in the variables is named", () => {
  const good = { CHAT_SERVICE: "telegram", CHAT_USERS: "1, 2", TELEGRAM_BOT_TOKEN: "7:x" };
  const { users, api, events } = readConfig(good);
  assert.deepEqual([users, api, events.size], [["1", "2"], "https://api.telegram.org", 4]);
  for (const [change, message] of /** @type {const} */ ([
    [{ CHAT_SERVICE: "irc" }, "CHAT_SERVICE: must be telegram or slack"],
    [{ CHAT_USERS: "" }, "CHAT_USERS: is missing: write the ids of the people who may use the bot"],
    [{ CHAT_USERS: "@ada" }, 'CHAT_USERS: "@ada" is no id of this service'],
    [{ CHAT_CHATS: "C1" }, 'CHAT_CHATS: "C1" is no id of this service'],
    [{ CHAT_EVENTS: "turns,all" }, 'CHAT_EVENTS: "all" is none of turns, errors, denials, pushes'],
    [{ CHAT_API: "http://api.example" }, 'CHAT_API: "http://api.example" is not an https:// URL'],
    [{ CHAT_SERVICE: "slack", CHAT_USERS: "U1" },
      'SLACK_BOT_TOKEN: is not set; in the provider file write env = { SLACK_BOT_TOKEN = "${SLACK_BOT_TOKEN}" }'],
    [{ TELEGRAM_BOT_TOKEN: "7:x y" }, "TELEGRAM_BOT_TOKEN: holds a character that no token has"],
  ])) assert.throws(() => readConfig({ ...good, ...change }), { message });
});

test("texts are cut and split between characters", () => {
  assert.equal(cut("short", 5, "more"), "short");
  assert.equal(cut("😀😀😀😀😀😀", 11, "more"), "😀… (more)");
  assert.deepEqual(split("ab\ncd\n😀😀", 4), ["ab", "cd", "😀😀"]);
  assert.deepEqual(split("😀😀😀", 3), ["😀", "😀", "😀"]);
});

test("the state is private, whole, and says when it is broken", async () => {
  const dir = mkdtempSync(join(tmpdir(), "chat-"));
  const file = join(dir, "state.json");
  const store = new Store(file);
  store.data.n = 1;
  const first = store.save();
  store.data.n = 2;
  await Promise.all([first, store.save(), store.save()]);
  const found = [new Store(file).data, statSync(file).mode & 0o777, readdirSync(dir)];
  assert.deepEqual(found, [{ n: 2 }, 0o600, ["state.json"]]);
  writeFileSync(file, "{");
  assert.throws(() => new Store(file), /state\.json: is no JSON: move it away to begin anew/);
});
