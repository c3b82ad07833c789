// A bot on a recorded server, with a gateway that the test plays.

import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Bot } from "../bot.mjs";
import { readConfig } from "../config.mjs";
import { Slack } from "../slack.mjs";
import { Store } from "../store.mjs";
import { Telegram } from "../telegram.mjs";
import { APP_TOKEN, SlackServer, TelegramServer, TOKEN } from "./recorded.mjs";

/** The messages that the gateway of a test got, and its answers. */
export class FakeGateway {
  /** @type {any[]} */
  prompts_ = [];
  /** @type {any[]} */
  answers = [];
  /** @type {Set<string>} */
  stored = new Set();
  /** @type {(session: string, text: string) => any} */
  onPrompt = () => ({ fate: "delivered", reason: "" });
  /** @type {(answer: any) => void} */
  onAnswer = () => {};

  /** @type {import("../bot.mjs").Gateway["prompt"]} */
  async prompt(session, text, { id, who }) {
    this.prompts_.push({ session, text, who });
    this.stored.add(id);
    return this.onPrompt(session, text);
  }
  async prompts() {
    return this.stored;
  }
  /** @type {import("../bot.mjs").Gateway["answer"]} */
  async answer(question, answer) {
    this.onAnswer(answer);
    this.answers.push({ question, ...answer });
  }
}

/**
 * Runs a bot until the test's end.
 * @param {import("node:test").TestContext} t
 * @param {{ service?: "telegram" | "slack", dir?: string, server?: TelegramServer | SlackServer, env?: any,
 *   gateway?: FakeGateway, begin?: (bot: Bot) => any }} [options] dir: of an earlier bot, for one that starts again.
 *   begin: the gateway's first messages to it; that there is session s1 if left out
 */
export async function startBot(t, options = {}) {
  const { service: name = "telegram", env, gateway = new FakeGateway() } = options;
  const begin = options.begin ?? ((b) => b.started("s1", "tea"));
  const server = options.server ?? new { slack: SlackServer, telegram: TelegramServer }[name]();
  if (!server.url) await server.start();
  if (!options.server) t.after(() => server.stop());
  const dir = options.dir ?? mkdtempSync(join(tmpdir(), "chat-"));
  const ids = name === "slack" ? { CHAT_USERS: "U1,U2", CHAT_CHATS: "C1" }
    : { CHAT_USERS: "1,2", CHAT_CHATS: "-10" };
  const config = readConfig({
    CHAT_SERVICE: name, CHAT_API: server.url, ...ids,
    TELEGRAM_BOT_TOKEN: TOKEN, SLACK_BOT_TOKEN: TOKEN, SLACK_APP_TOKEN: APP_TOKEN, ...env,
  });
  const stopping = new AbortController();
  /** @type {string[]} */
  const logged = [];
  const log = (/** @type {string} */ line) => void logged.push(line);
  const service = new (name === "slack" ? Slack : Telegram)(config, log, stopping.signal);
  service.pace = () => 0;
  const bot = new Bot(config, service, new Store(join(dir, "state.json")), gateway, log,
    stopping.signal);
  await service.start();
  await begin(bot);
  /** @type {unknown} */
  let failure;
  const listening = bot.listen(stopping.signal).catch((e) => {
    if (!stopping.signal.aborted) failure = e;
  });
  let isStopped = false;
  const stop = async () => {
    if (isStopped) return;
    isStopped = true;
    stopping.abort();
    await listening;
    await bot.store.save();
    if (failure) throw failure;
  };
  t.after(stop);
  return { bot, server: /** @type {any} */ (server), gateway, dir, logged, stop };
}

/**
 * A question of a session.
 * @param {string} id @param {"permission" | "input" | "form"} kind @param {string} message
 * @param {{ detail?: string, choices?: string[], freeform?: boolean }} [more]
 */
export const question = (id, kind, message, { detail = "", choices = [], freeform = false } = {}) =>
  ({ id, kind, message, detail, choices, freeform });

/** Waits until a condition holds. @param {() => any} is */
export async function until(is) {
  for (;;) {
    const value = is();
    if (value) return value;
    await new Promise((done) => setTimeout(done, 5));
  }
}
