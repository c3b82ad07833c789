// Events of sessions as messages: one for each turn, which changes while the turn runs, and one for
// each other event.

import { cut } from "./api.mjs";

/** @import { Bot } from "./bot.mjs" */
/** @import { Message } from "./outbox.mjs" */
/** @import { Content } from "./service.mjs" */

const MAX_PROMPT = 300; // UTF-16 units of a prompt that a turn's message shows
const MAX_LINE = 500; // and of another event
const MAX_LINES = 20; // events in one message

/**
 * @typedef {object} Turn
 * @property {string} prompt
 * @property {number} calls of tools, ended
 * @property {string} tool the last
 * @property {string} answer the model's last text
 * @property {Message[]} messages one in each chat that follows the session
 */

export class Turns {
  /** @type {Map<string, Turn>} by session */
  #turns = new Map();
  /** @type {Map<string, { message: Message, lines: string[] }>} the last notice of a kind to a chat */
  #notices = new Map();

  /** @param {Bot} bot */
  constructor(bot) {
    this.bot = bot;
  }

  /** @param {string} session @param {string} prompt */
  begin(session, prompt) {
    this.end(session, "");
    const { bot } = this;
    if (!bot.config.events.has("turns")) return;
    /** @type {Turn} */
    const turn = { prompt: cut(prompt.trim(), MAX_PROMPT, "and more"), calls: 0, tool: "",
      answer: "", messages: [] };
    this.#turns.set(session, turn);
    bot.state.turns[session] = { prompt: turn.prompt, places: [] };
    bot.save();
    const content = this.#show(session, turn, "▶");
    turn.messages = bot.following(session).map((chat) => bot.outbox.post(chat, content));
  }

  /** Takes up the turn that an earlier run of the bot has shown. @param {string} session */
  resume(session) {
    const shown = this.bot.state.turns[session];
    if (!shown || this.#turns.has(session)) return;
    const messages = shown.places.map(({ chat, id }) => this.bot.outbox.at(chat, id));
    const missed = "(I was away while it ran. All of it: tapctl sessions log)";
    this.#turns.set(session, { prompt: shown.prompt, calls: 0, tool: "", answer: missed,
      messages });
  }

  /** Notes where a turn's message is, for a bot that starts in mid-turn. @param {Message} message */
  sent(message) {
    for (const [session, turn] of this.#turns) {
      if (!turn.messages.includes(message)) continue;
      this.bot.state.turns[session].places.push({ chat: message.chat, id: message.id });
      this.bot.save();
    }
  }

  /**
   * @param {string} session
   * @param {{ tool: string, result: { type: string, output?: string, code?: string } }} call
   */
  called(session, { tool, result }) {
    if (result.code === "denied") this.notify(session, "denials",
      `⛔ ${tool}: ${result.output ?? "denied"}`);
    const turn = this.#turns.get(session);
    if (!turn) return;
    Object.assign(turn, { calls: turn.calls + 1, tool });
    this.#update(session, turn, "▶");
  }

  /** @param {string} session @param {string} text */
  said(session, text) {
    const turn = this.#turns.get(session);
    if (!turn || !text.trim()) return;
    turn.answer = text;
    this.#update(session, turn, "▶");
  }

  /**
   * A provider's event is in the timeline. One that starts a turn is the turn's prompt, and not told twice.
   * @param {string} session @param {{ provider: string, stream: string, level: string, event: string }} event
   */
  pushed(session, { provider, stream, level, event }) {
    if (level === "inject" && this.bot.config.events.has("turns")) return;
    this.notify(session, "pushes",
      `${stream === provider ? provider : `${stream}@${provider}`}: ${event}`);
  }

  /** Ends the turn of a session. @param {string} session @param {string} why it has no answer, "" if it may have one */
  end(session, why) {
    const turn = this.#turns.get(session);
    if (!turn) return;
    this.#turns.delete(session);
    this.#update(session, turn, "✔", why);
    delete this.bot.state.turns[session];
    this.bot.save();
  }

  /** @param {string} session @param {Turn} turn @param {string} sign @param {string} [why] */
  #update(session, turn, sign, why = "") {
    const content = this.#show(session, turn, sign, why);
    for (const message of turn.messages) message.update(content);
  }

  /** @param {string} session @param {Turn} turn @param {string} sign @param {string} [why] @returns {Content} */
  #show(session, turn, sign, why = "") {
    const head = `${sign} ${cut(this.bot.label(session), MAX_LINE, "…")}`;
    const prompt = `\n> ${turn.prompt.replaceAll("\n", "\n> ")}`;
    const { calls: n, tool } = turn;
    const calls = n ? `\n${n} ${n === 1 ? "call" : "calls"} of tools, last ${tool}` : "";
    const begin = prompt + calls;
    let answer = turn.answer.trim();
    if (sign === "✔" && !answer) answer = why || "The turn ended without an answer.";
    else if (why) answer += `\n(${why})`;
    const left = this.bot.service.limit - head.length - begin.length - 2;
    const shown = cut(answer, left, `the rest: tapctl sessions log ${session}`);
    return { parts: [{ text: head, style: "bold" }, begin, answer && `\n\n${shown}`] };
  }

  /**
   * Tells of something beside a turn. Events that come faster than the chat takes messages share one.
   * @param {string} session @param {"errors" | "denials" | "pushes"} kind @param {string} line
   */
  notify(session, kind, line) {
    const { bot } = this;
    if (!bot.config.events.has(kind)) return;
    for (const chat of bot.following(session)) {
      const key = `${kind} ${session} ${chat}`;
      const last = this.#notices.get(key);
      const waits = last?.message.isQueued && !last.message.id;
      const lines = [...(waits ? last.lines : []),
        cut(line, MAX_LINE, "and more")].slice(-MAX_LINES);
      const text = cut(lines.join("\n"), bot.service.limit - 1000, "and more");
      const style = /** @type {const} */ ("bold");
      const content = { parts: [{ text: cut(bot.label(session), MAX_LINE, "…"), style },
        `\n${text}`] };
      if (waits) last.message.update(content);
      this.#notices.set(key, { lines, message: waits ? last.message : bot.outbox.post(chat,
        content) });
    }
  }
}
