// Questions of sessions, as messages with buttons. The first answer wins, wherever it was given.

import { randomBytes } from "node:crypto";
import { textOf } from "./api.mjs";

/** @import { Bot, Place } from "./bot.mjs" */
/** @import { Message } from "./outbox.mjs" */
/** @import { Button, Content, Incoming, Part, Press } from "./service.mjs" */

const MAX_BUTTONS = 20;
const MAX_KEPT = 200; // questions that have ended, for buttons that are pressed late
const ROOM = 400; // UTF-16 units for where and how it is answered
const MAX_LABEL = 40; // characters; the message has the whole choice

/**
 * @typedef {Pick<import("tapgw-provider").Question,
 *   "id" | "kind" | "message" | "detail" | "choices" | "freeform">} Question
 * @typedef {{ decision?: "once" | "session" | "deny", text?: string }} Choice
 *
 * @typedef {object} Asked a question that chats were shown, and how it ended
 * @property {string} session
 * @property {string} secret begins the buttons' data, so that it can't be guessed
 * @property {Button[]} buttons
 * @property {Choice[]} choices the answer of each button
 * @property {boolean} takesText a reply to the message answers it
 * @property {Part[]} parts
 * @property {Place[]} places messages that show it
 * @property {string} [ended] how
 */

export class Questions {
  /** @type {Map<Message, string>} ids of questions whose messages are on their way */
  #posted = new Map();
  /** @type {Set<string>} ids of those that the gateway told of since the last connection */
  #told = new Set();

  /** @param {Bot} bot */
  constructor(bot) {
    this.bot = bot;
  }

  /**
   * A session asks. The gateway tells again of open questions after a reconnect.
   * @param {string} session @param {Question} q
   */
  asked(session, q) {
    const { questions } = this.bot.state;
    this.#told.add(q.id);
    if (!questions[q.id]) {
      const secret = randomBytes(12).toString("base64url");
      questions[q.id] = { session, secret, places: [], ...this.#show(session, q, secret) };
      this.#prune();
      this.bot.save();
    }
    this.post();
  }

  /** Shows open questions in the chats that follow their sessions and don't have them. */
  post() {
    const { state, outbox } = this.bot;
    for (const [id, q] of Object.entries(state.questions)) {
      if (q.ended !== undefined || !this.#told.has(id)) continue;
      const onTheirWay = [...this.#posted].filter(([, posted]) => posted === id).map(([message]) =>
        message);
      for (const chat of this.bot.following(q.session)) {
        if ([...q.places, ...onTheirWay].some((p) => p.chat === chat)) continue;
        this.#posted.set(outbox.post(chat, { parts: q.parts, buttons: q.buttons }), id);
      }
    }
  }

  /**
   * Makes a question's message. It is whole, or has no buttons: people allow only actions that they see whole.
   * @param {string} session @param {Question} q @param {string} secret
   * @returns {{ parts: Part[], choices: Choice[], buttons: Button[], takesText: boolean }}
   */
  #show(session, q, secret) {
    const head = `❓ ${this.bot.label(session).slice(0, 200)}`;
    const where = `Answer it on the gateway's page, or with\ntapctl sessions answer ${session} --question ${q.id}`;
    const offered = offers(q);
    /** @type {Part[]} */
    const parts = [
      { text: head, style: "bold" }, `\n${spell(q.message)}\n`,
      ...(q.detail ? [/** @type {Part} */ ({ text: spell(q.detail), style: "code" }), "\n"] : []),
      ...q.choices.map((c, i) => `${i + 1}. ${spell(c)}\n`),
    ];
    if (textOf({ parts }).length > this.bot.service.limit - ROOM) {
      const size = [q.message, q.detail, ...q.choices].join("").length;
      const text = `\nIt is too long to be shown here (${size} characters).\n${where}`;
      return { parts: [{ text: head, style: "bold" }, text], choices: [], buttons: [],
        takesText: false };
    }
    const takesText = q.kind === "input" && (q.freeform || q.choices.length === 0);
    if (takesText) parts.push("Reply to this message with your answer.");
    if (q.kind === "form" || offered.length > MAX_BUTTONS) parts.push(where);
    const shown = offered.length > MAX_BUTTONS ? [] : offered;
    const buttons = shown.map(({ label }, i) => ({ label, data: `${secret}.${i}` }));
    return { parts, choices: shown.map((o) => o.choice), buttons, takesText };
  }

  /** Keeps few of the questions that have ended, or whose session may never come back. */
  #prune() {
    const { questions } = this.bot.state;
    const old = Object.keys(questions).filter((id) => questions[id].ended !== undefined ||
      !this.#told.has(id));
    for (const id of old.slice(0, -MAX_KEPT)) delete questions[id];
  }

  /** @param {Message} message */
  sent(message) {
    const id = this.#posted.get(message);
    if (!id) return;
    this.#posted.delete(message);
    const q = this.bot.state.questions[id];
    q.places.push({ chat: message.chat, id: message.id });
    this.bot.save();
  }

  /** @param {Press} press */
  async pressed(press) {
    const [secret, number] = press.data.split(".");
    const [id, q] = this.#find(({ secret: s }) => s === secret);
    const choice = q?.choices[Number(number)];
    const isHere = q?.places.some((p) => p.chat === press.chat && p.id === press.message);
    const said = q && isHere && (choice || q.ended !== undefined) ? await this.#answer(id, q,
      choice ?? {}, press)
      : "This button is not of a question here.";
    await press.reply(said).catch((e) => this.bot.log(e.message));
  }

  /** Takes a reply to a question's message. Returns whether it was one. @param {Incoming} event */
  async replied(event) {
    const { chat, replyTo } = event;
    const [id, q] = this.#find(({ places }) => places.some((p) => p.chat === chat &&
      p.id === replyTo));
    if (!q) return false;
    const isText = q.takesText || q.ended !== undefined;
    this.bot.say(chat, isText ? await this.#answer(id, q, { text: event.text }, event)
      : "This question takes no text. If it has buttons, press one.");
    return true;
  }

  /** @param {(q: Asked) => boolean} is @returns {[string, Asked] | [string, undefined]} */
  #find(is) {
    return Object.entries(this.bot.state.questions).find(([, q]) => is(q)) ?? ["", undefined];
  }

  /**
   * @param {string} id @param {Asked} q @param {Choice} choice @param {Press | Incoming} by
   * @returns {Promise<string>} the reply to the person
   */
  async #answer(id, q, choice, { user, who }) {
    if (q.ended !== undefined) return `Too late: ${q.ended}.`;
    try {
      await this.bot.gateway.answer(id, { ...choice, person: this.bot.person(user, who) });
      return `You answered: ${choice.decision ?? choice.text}`;
    } catch (e) {
      this.bot.signal.throwIfAborted();
      const { code, message } = /** @type {Error & { code?: string }} */ (e);
      if (q.ended !== undefined) return `Too late: ${q.ended}.`; // it was told of while the answer was on its way
      return code === "DISCONNECTED" ? "The gateway is away. Try again in a moment." : `Not answered: ${message}`;
    }
  }

  /**
   * A question has ended: its messages lose their buttons and say how.
   * @param {string} id @param {{ reason: string, by?: string, person?: string }} end
   */
  ended(id, { reason, by = "", person = "" }) {
    const q = this.bot.state.questions[id];
    if (!q || q.ended !== undefined) return;
    const who = person || (by === "user" ? "the gateway's user" : by.replace(/^provider:/, ""));
    q.ended = reason === "answered" ? `answered by ${who || "somebody"}` : ENDS[reason] ?? reason;
    const content = { parts: [...q.parts, `\n— ${q.ended}`] };
    for (const [message, posted] of this.#posted) if (posted === id) message.update(content);
    for (const place of q.places) this.bot.outbox.at(place.chat, place.id).update(content);
    Object.assign(q, { parts: [], buttons: [], choices: [] });
    this.bot.save();
  }

  /** The gateway has told of a session's open questions: the others ended while it was away. @param {string} session */
  recover(session) {
    for (const [id, q] of Object.entries(this.bot.state.questions)) {
      if (q.session === session && q.ended === undefined && !this.#told.has(id)) this.ended(id,
        { reason: "away" });
    }
  }

  /** The connection is lost. */
  disconnected() {
    this.#told.clear();
  }
}

/** @type {Record<string, string>} */
const ENDS = {
  expired: "nobody answered in time", withdrawn: "the session does not wait for it any more",
  "session.ended": "the session has ended", away: "it ended while I was away",
};

/** The buttons of a question. @param {Question} q @returns {{ label: string, choice: Choice }[]} */
function offers(q) {
  /** @type {{ label: string, choice: Choice }} */
  const decline = { label: "Decline", choice: { decision: "deny" } };
  if (q.kind === "permission") {
    return [
      { label: "Allow once", choice: { decision: "once" } },
      { label: "Allow for the session", choice: { decision: "session" } },
      { label: "Deny", choice: { decision: "deny" } },
    ];
  }
  if (q.kind === "form") return [decline];
  const choices = q.choices.map((text, i) => {
    const label = `${i + 1}. ${spell(text)}`;
    return { label: label.length > MAX_LABEL ? `${label.slice(0, MAX_LABEL - 1)}…` : label,
      choice: { text } };
  });
  return [...choices, decline];
}

/** Spells out invisible characters, and those that change how others look. @param {string} text */
const spell = (text) => text.replace(/[^\P{C}\n\t]|[\p{Zl}\p{Zp}]/gu,
  (c) => `\\u{${c.codePointAt(0)?.toString(16)}}`);
