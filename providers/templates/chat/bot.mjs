// Commands that people may give the bot, and their effects. Turns and questions have files of their
// own.

import { cut, split } from "./api.mjs";
import { Outbox } from "./outbox.mjs";
import { Questions } from "./questions.mjs";
import { Turns } from "./turns.mjs";

/** @import { Content, Incoming, Press } from "./service.mjs" */

/**
 * @typedef {object} Gateway the gateway's functions that the bot needs
 * @property {(session: string, text: string, prompt: Prompt) => Promise<{ fate: string, reason: string }>} prompt
 *   resolves when the session has taken the prompt, or will not; fails with NOT_SENT if the gateway can't have it
 * @property {(session: string) => Promise<Set<string>>} prompts ids of those that the gateway has; when it resolves,
 *   the gateway has told of the session's open questions
 * @property {(question: string, answer: import("tapgw-provider").Answer) => Promise<void>} answer fails with an error
 *   that has a code
 *
 * @typedef {object} Prompt a prompt that a person wrote, until its turn begins
 * @property {string} id
 * @property {string} chat
 * @property {string} session
 * @property {string} who
 * @property {string} text
 * @property {boolean} [isSent] it was given to the gateway, which may have it
 *
 * @typedef {{ chat: string, id: string }} Place a message
 * @typedef {object} State the state that outlives the bot
 * @property {Record<string, any>} service
 * @property {Record<string, { session?: string, user?: string }>} chats the session that a chat uses, and the person
 *   whose own chat it is
 * @property {Prompt[]} prompts oldest first
 * @property {Record<string, { prompt: string, places: Place[] }>} turns by session: the messages of its turn
 * @property {Record<string, import("./questions.mjs").Asked>} questions by id
 */

const REFUSE_AGAIN = 24 * 3600_000; // milliseconds until the same person is refused with a word again
const MAX_REFUSALS = 20; // an hour
const PAUSE = 1000; // before a prompt is tried again that came too fast

const HELP = `Write a prompt, and the session works on it.
/sessions lists the sessions.
/use ID chooses the session for this chat; /use all reports of all of them.
/stop takes back the prompts that wait.`;

export class Bot {
  /** @type {Map<string, string>} labels of the sessions that run, by id */
  sessions = new Map();
  /** @type {Map<string, number>} */
  #refused = new Map();
  #isDelivering = false;
  isConnected = false;

  /**
   * @param {import("./config.mjs").Config} config
   * @param {import("./service.mjs").Service} service
   * @param {import("./store.mjs").Store} store
   * @param {Gateway} gateway
   * @param {(line: string) => void} log
   * @param {AbortSignal} signal
   */
  constructor(config, service, store, gateway, log, signal) {
    this.config = config;
    this.service = service;
    this.store = store;
    this.gateway = gateway;
    this.log = log;
    this.signal = signal;
    this.state = /** @type {State} */ (Object.assign(store.data, {
      service: {}, chats: {}, prompts: [], turns: {}, questions: {}, ...store.data,
    }));
    this.outbox = new Outbox(service, log, signal, (message) => {
      this.turns.sent(message);
      this.questions.sent(message);
    });
    this.turns = new Turns(this);
    this.questions = new Questions(this);
  }

  /** Takes events of the service until it is told to stop. @param {AbortSignal} signal */
  listen(signal) {
    return this.service.listen(this.state.service, () => this.store.save(),
      (event) => this.handle(event), signal);
  }

  /** Saves changes that no event made. Changes that must be on the disk before an event is done are saved with it. */
  save() {
    this.store.save().catch((e) => this.log(`saving: ${e.message}`));
  }

  /** Chats that get the reports of a session. @param {string} session */
  following(session) {
    const { chats } = this.state;
    const { users } = this.config; // a person may have left it
    const own = Object.keys(chats).filter((chat) => users.includes(chats[chat].user ?? ""));
    return [...new Set([...this.config.chats, ...own])].filter((chat) => (chats[chat]?.session ??
      session) === session);
  }

  /** @param {string} session */
  label(session) {
    const label = this.sessions.get(session);
    return label && label !== session ? `${label} (${session})` : session;
  }

  /** @param {string} chat @param {string} text */
  say(chat, text) {
    for (const piece of split(text, this.service.limit)) this.outbox.post(chat, { parts: [piece] });
  }

  // People

  /** @param {Incoming | Press} event */
  async handle(event) {
    if (event.type === "message" && !event.isPrivate && !event.isMentioned) return;
    if (!this.#isAllowed(event)) {
      await this.#refuse(event);
      return;
    }
    if (event.type === "press") {
      await this.questions.pressed(event);
      return;
    }
    if (event.isPrivate) (this.state.chats[event.chat] ??= {}).user = event.user;
    const [, command, argument] = /^\/(\w+)\s*([^]*)$/.exec(event.text) ?? [];
    if (command) this.#command(event.chat, command, argument.trim());
    else if (event.replyTo && (await this.questions.replied(event))) return;
    else if (event.text) this.#prompt(event);
    else this.say(event.chat, "I read only text.");
    this.questions.post(); // the chat may be new, or follow another session
  }

  /** @param {Incoming | Press} event */
  #isAllowed({ user, chat, isPrivate }) {
    return this.config.users.includes(user) && (isPrivate || this.config.chats.includes(chat));
  }

  /**
   * Says no, once a day to each person and to few in an hour: strangers can't make the bot flood a chat.
   * @param {Incoming | Press} event
   */
  async #refuse(event) {
    const now = Date.now();
    for (const [user, at] of this.#refused) if (now - at > REFUSE_AGAIN) this.#refused.delete(user);
    if (this.#refused.has(event.user)) return;
    const recent = [...this.#refused.values()].filter((at) => now - at < 3600_000).length;
    if (recent >= MAX_REFUSALS) return;
    this.#refused.set(event.user, now);
    this.log(`refused: user ${event.user} in chat ${event.chat}`);
    const text = "Sorry, I work only for the people and in the chats that my owner named.";
    if (event.type === "message") this.say(event.chat, text);
    else await event.reply(text).catch((e) => this.log(e.message));
  }

  /** @param {string} chat @param {string} command @param {string} argument */
  #command(chat, command, argument) {
    if (command === "sessions") this.say(chat, this.#list(chat));
    else if (command === "use") this.say(chat, this.#use(chat, argument));
    else if (command === "stop") this.say(chat, this.#stop(chat));
    else this.say(chat, HELP);
  }

  /** @param {string} chat */
  #list(chat) {
    if (this.sessions.size === 0) return "No session runs.";
    const chosen = this.state.chats[chat]?.session;
    return [...this.sessions.keys()].map((id) =>
      `${id === chosen ? "→ " : ""}${this.label(id)}`).join("\n");
  }

  /** @param {string} chat @param {string} wanted */
  #use(chat, wanted) {
    if (wanted === "all") {
      this.#choose(chat, undefined);
      return "This chat follows all sessions.";
    }
    const found = this.sessions.has(wanted) ? [wanted]
      : [...this.sessions.keys()].filter((id) => wanted && id.startsWith(wanted));
    if (found.length > 1) return `Several sessions begin so.\n${this.#list(chat)}`;
    if (found.length === 0) return `No such session.\n${this.#list(chat)}`;
    this.#choose(chat, found[0]);
    return `This chat uses ${this.label(found[0])}.`;
  }

  /** @param {string} chat @param {string | undefined} session */
  #choose(chat, session) {
    this.state.chats[chat] = { ...this.state.chats[chat], session };
  }

  /** @param {string} chat */
  #stop(chat) {
    const before = this.state.prompts.length;
    this.state.prompts = this.state.prompts.filter((p) => p.chat !== chat || p.isSent);
    const session = this.state.chats[chat]?.session ?? [...this.sessions.keys()][0] ?? "ID";
    return `I took back ${before - this.state.prompts.length} prompts that waited here. A provider can't interrupt a ` +
      `turn: do it on the gateway's page, or with\ntapctl sessions interrupt ${session}`;
  }

  // Prompts

  /** @param {Incoming} event */
  #prompt({ id, chat, user, who, text }) {
    const session = this.state.chats[chat]?.session ??
      (this.sessions.size === 1 ? [...this.sessions.keys()][0] : "");
    if (!session) {
      this.say(chat, this.sessions.size ? `Choose a session with /use ID.\n${this.#list(chat)}` : "No session runs.");
    } else if (!this.sessions.has(session)) {
      this.say(chat, `Session ${session} doesn't run. Choose one with /use ID.\n${this.#list(chat)}`);
    } else {
      this.state.prompts.push({ id, chat, session, who: this.person(user, who), text });
      setImmediate(() => void this.deliver()); // after it was saved with its event
    }
  }

  /** Names a person for the timeline; who is the name they chose. @param {string} user @param {string} who */
  person(user, who) {
    const name = [...who.replace(/[\p{C}\p{Z}]+/gu, " ").trim()].slice(0, 16).join("");
    return `${name} (${this.service.name} ${user})`.trim();
  }

  /** Gives the prompts that wait to their sessions, those of a session in their order. */
  async deliver() {
    if (this.#isDelivering || !this.isConnected) return;
    this.#isDelivering = true;
    try {
      await this.store.save();
      for (let p; (p = this.#next()); ) {
        p.isSent = true;
        await this.store.save();
        void this.#hand(p);
      }
    } catch (e) {
      this.log(`saving: ${e instanceof Error ? e.message : e}`);
    } finally {
      this.#isDelivering = false;
    }
  }

  #next() {
    return this.isConnected && this.state.prompts.find((p) => !p.isSent &&
      this.sessions.has(p.session));
  }

  /** @param {Prompt} p */
  async #hand(p) {
    try {
      const { fate, reason } = await this.gateway.prompt(p.session, p.text, p);
      if (fate === "surfaced" || fate === "dropped") this.say(p.chat,
        `Not run: ${reason || "its session has ended"}.`);
    } catch (e) {
      if (this.signal.aborted) return;
      const error = /** @type {Error & { code?: string }} */ (e);
      if (error.code === "RATE_LIMITED") {
        setTimeout(() => this.#again(p), PAUSE).unref();
        return;
      }
      if (error.code === "DISCONNECTED") return; // #recover asks for the outcome
      if (error.code === "NOT_SENT") {
        this.isConnected = p.isSent = false;
        return;
      }
      if (error.code === "INVALID_SESSION") this.sessions.delete(p.session);
      this.say(p.chat, `Not run: ${error.message}`);
    }
    this.#forget(p);
  }

  /** @param {Prompt} p */
  #again(p) {
    p.isSent = false;
    void this.deliver();
  }

  /** @param {Prompt} p */
  #forget(p) {
    this.state.prompts = this.state.prompts.filter((one) => one !== p);
    this.save();
  }

  /** A turn begins: a prompt that it contains has arrived. @param {string} session @param {string} text */
  began(session, text) {
    const p = this.state.prompts.find((one) => one.isSent && one.session === session &&
      text.includes(one.text));
    if (p) this.#forget(p);
    this.turns.begin(session, text);
  }

  // Sessions

  /** A session is bound, for the first time or again. @param {string} session @param {string} label */
  async started(session, label) {
    this.sessions.set(session, label);
    this.isConnected = true;
    this.turns.resume(session);
    await this.#recover(session);
    this.questions.recover(session);
    await this.deliver();
  }

  /**
   * Finds out about prompts that were on their way when the connection or the bot ended. The gateway that stored one
   * will run it; otherwise only the person can know whether it ran.
   * @param {string} session
   */
  async #recover(session) {
    const stored = await this.gateway.prompts(session);
    for (const p of this.state.prompts.filter((one) => one.isSent && one.session === session)) {
      if (stored.has(p.id)) continue;
      this.say(p.chat, "A restart came while I handed this over, and it may not have run. Send it again if no answer " +
        `comes:\n${cut(p.text, 200, "and more")}`);
      this.#forget(p);
    }
  }

  /** The connection is lost; the gateway's sessions may go on. */
  disconnected() {
    this.isConnected = false;
    this.questions.disconnected();
  }

  /** @param {string} session */
  ended(session) {
    const label = this.label(session);
    for (const p of this.state.prompts) {
      if (p.session === session && !p.isSent) this.say(p.chat,
        `This waits until ${label} runs again:\n${p.text}`);
    }
    this.turns.end(session, "the session has ended");
    this.sessions.delete(session);
    for (const [chat, { session: used }] of Object.entries(this.state.chats)) {
      if (used === session) this.say(chat, `${label} has ended.`);
    }
  }
}
