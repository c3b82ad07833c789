// Slack: a socket (Socket Mode) that brings events, and the Web API for messages.

import { setTimeout as sleep } from "node:timers/promises";
import WebSocket from "ws";
import { ApiError, post, textOf } from "./api.mjs";

/** @import { Content, Handle, Incoming, Press, Service } from "./service.mjs" */

const PING_EVERY = 15_000; // milliseconds
const PONG_TIMEOUT = 10_000;
const HELLO_TIMEOUT = 20_000;
const CLOSE_TIMEOUT = 500;
const FIRST_WAIT = 1000;
const MAX_WAIT = 30_000;
const MAX_SEEN = 1000; // ids of events that are remembered, for those that come twice
const MAX_LABEL = 75; // characters of a button
const MAX_NOTICE = 200; // characters of a message that a notification shows

/** Errors of the Web API after which the same request may succeed. */
const PASSING = ["internal_error", "fatal_error", "service_unavailable", "request_timeout",
  "ratelimited"];

/** @implements {Service} */
export class Slack {
  name = "slack";
  limit = 3000; // of one text of a block; that of a message is higher
  #me = "";

  /** @param {import("./config.mjs").Config} config @param {(line: string) => void} log @param {AbortSignal} signal */
  constructor(config, log, signal) {
    this.config = config;
    this.log = log;
    this.signal = signal;
  }

  /** A channel takes a message a second; updates of messages count for all channels together. */
  pace() {
    return 1200;
  }

  async start() {
    this.#me = String((await this.#call("auth.test", {})).user_id);
  }

  /**
   * @param {Record<string, any>} state @param {() => Promise<void>} save @param {Handle} handle
   * @param {AbortSignal} signal
   */
  async listen(state, save, handle, signal) {
    /** @type {string[]} */
    state.seen ??= [];
    let last = Promise.resolve(); // events are handed over in order, also those of two sockets
    /** @type {Error | undefined} */
    let failure;
    const take = (/** @type {any} */ envelope, /** @type {() => void} */ acknowledge) => {
      last = last.then(() => this.#take(envelope, acknowledge, state, save, handle)).catch((e) => {
        failure ??= e; // nothing can be kept: the state can't be saved
      });
      return last;
    };
    for (let attempt = 0; !signal.aborted && !failure; attempt++) {
      try {
        const { url } = await this.#call("apps.connections.open", {}, this.config.appToken);
        const began = Date.now();
        await this.#socket(String(url), take, signal);
        if (Date.now() - began > MAX_WAIT) attempt = -1;
        if (attempt <= 0) continue; // the service asked for a new socket: at once
      } catch (e) {
        if (signal.aborted) break;
        if (e instanceof ApiError && !e.isPassing) throw e;
        this.log(e instanceof Error ? e.message : String(e));
        const seconds = e instanceof ApiError ? e.retryAfter : undefined;
        if (seconds !== undefined) await sleep(seconds * 1000, undefined,
          { signal }).catch(() => {});
      }
      const wait = Math.min(FIRST_WAIT * 2 ** attempt, MAX_WAIT);
      await sleep(wait, undefined, { signal }).catch(() => {});
    }
    await last;
    if (failure) throw failure;
  }

  /**
   * Serves one socket until it ends, or until the service says that it will: then the next one is opened at once, and
   * this one still hands over its messages.
   * @param {string} url holds a secret
   * @param {(envelope: any, acknowledge: () => void) => Promise<void>} take
   * @param {AbortSignal} signal
   * @returns {Promise<void>}
   */
  #socket(url, take, signal) {
    if (!this.#isTrusted(url)) {
      throw new ApiError("apps.connections.open: its answer names no secure address",
        { status: 200 });
    }
    return new Promise((done, failed) => {
      const ws = new WebSocket(url, { maxPayload: 4 << 20, followRedirects: false });
      /** @type {NodeJS.Timeout | undefined} */
      let pong;
      let greeted = false;
      const late = setTimeout(() => ws.terminate(), HELLO_TIMEOUT);
      const ping = setInterval(() => {
        pong ??= setTimeout(() => ws.terminate(), PONG_TIMEOUT);
        if (ws.readyState === WebSocket.OPEN) ws.ping();
      }, PING_EVERY);
      const stop = () => {
        ws.close(1000);
        setTimeout(() => ws.terminate(), CLOSE_TIMEOUT);
      };
      signal.addEventListener("abort", stop);
      ws.on("pong", () => (clearTimeout(pong), (pong = undefined)));
      ws.on("message", (data) => {
        const m = parse(String(data));
        if (m?.type === "hello") {
          greeted = true;
          clearTimeout(late);
        } else if (m?.type === "disconnect") {
          done();
        } else if (typeof m?.envelope_id === "string") {
          void take(m, () => {
            if (ws.readyState === WebSocket.OPEN) ws.send(JSON.stringify({ envelope_id: m.envelope_id }));
          });
        } else {
          this.log("a message of the socket that is none is ignored");
        }
      });
      ws.on("error", () => {}); // close follows; the text of an error may hold the address
      ws.on("close", (code) => {
        for (const timer of [late, ping, pong]) clearTimeout(timer);
        signal.removeEventListener("abort", stop);
        if (greeted) done();
        else failed(new ApiError(`the socket ended before its hello (${code})`));
      });
    });
  }

  /** Whether the address of a socket keeps its secret: TLS, or a test on this machine. @param {string} url */
  #isTrusted(url) {
    if (!URL.canParse(url)) return false;
    const { protocol, hostname } = new URL(url);
    const api = new URL(this.config.api);
    return protocol === "wss:" || (protocol === "ws:" && api.protocol === "http:" &&
      hostname === api.hostname);
  }

  /**
   * Hands an envelope over and acknowledges it once its event can't be lost. Slack repeats unacknowledged ones,
   * so an event may come twice.
   * @param {any} envelope @param {() => void} acknowledge @param {Record<string, any>} state
   * @param {() => Promise<void>} save @param {Handle} handle
   */
  async #take(envelope, acknowledge, state, save, handle) {
    const { type, payload } = envelope;
    if (type === "interactive") acknowledge(); // it does not come again, and the person waits
    const id = String(payload?.event_id ?? envelope.envelope_id);
    if (!state.seen.includes(id)) {
      try {
        const event = this.#read(id, type, payload);
        if (event) await handle(event);
      } catch (e) {
        this.signal.throwIfAborted(); // it comes again
        this.log(`event ${id} is ignored: ${e instanceof Error ? e.message : e}`);
      }
      state.seen = [...state.seen.slice(1 - MAX_SEEN), id];
      await save();
    }
    if (type !== "interactive") acknowledge();
  }

  /** @param {string} id @param {string} type @param {any} payload @returns {Incoming | Press | undefined} */
  #read(id, type, payload) {
    if (type === "events_api") return this.#readMessage(id, payload?.event);
    if (type === "slash_commands" && payload?.user_id) {
      const { channel_id: chat, user_id: user, command, text } = payload;
      const isPrivate = String(chat).startsWith("D");
      return {
        type: "message", id, chat: String(chat), user: String(user), who: String(user), replyTo: "",
          isPrivate,
        isMentioned: true, text: `${command} ${text ?? ""}`.trim(),
      };
    }
    if (type !== "interactive" || payload?.type !== "block_actions" ||
      !payload.user?.id) return undefined;
    const chat = String(payload.channel?.id ?? "");
    const user = String(payload.user.id);
    return {
      type: "press", id, chat, user, who: String(payload.user.username ?? user),
        isPrivate: chat.startsWith("D"),
      message: String(payload.message?.ts ?? ""), data: String(payload.actions?.[0]?.value ?? ""),
      reply: (text) => this.#call("chat.postEphemeral",
        { channel: chat, user, text: escape(text) }),
    };
  }

  /** Reads a message to the bot: one in a person's own chat with it, or one that mentions it. @param {string} id
   * @param {any} event @returns {Incoming | undefined} */
  #readMessage(id, event) {
    const isPrivate = event?.type === "message" && event.channel_type === "im";
    if (!isPrivate && event?.type !== "app_mention") return undefined;
    if (!event.user || event.bot_id || event.user === this.#me) return undefined; // the bot's own messages come, too
    if (event.subtype && event.subtype !== "file_share" &&
      event.subtype !== "thread_broadcast") return undefined;
    const user = String(event.user);
    return {
      type: "message", id, chat: String(event.channel), user, who: user, isPrivate,
        isMentioned: true,
      text: unescape(String(event.text ?? "").replaceAll(`<@${this.#me}>`, "")).trim(),
      replyTo: event.thread_ts && event.thread_ts !== event.ts ? String(event.thread_ts) : "",
    };
  }

  /** @param {string} chat @param {Content} content */
  async send(chat, content) {
    const { ts } = await this.#call("chat.postMessage", {
      channel: chat, ...body(content), unfurl_links: false, unfurl_media: false,
    });
    return String(ts);
  }

  /** @param {string} chat @param {string} id @param {Content} content */
  async edit(chat, id, content) {
    await this.#call("chat.update", { channel: chat, ts: id, ...body(content) });
  }

  /** @param {string} method @param {object} request @param {string} [token] @returns {Promise<any>} */
  async #call(method, request, token = this.config.token) {
    const { status, retryAfter, answer } = await post(method, `${this.config.api}/${method}`,
      request, {
      headers: { Authorization: `Bearer ${token}` }, signal: this.signal,
    });
    if (answer.ok === true) return answer;
    const code = String(answer.error ?? (status === 429 ? "ratelimited" : `status ${status}`));
    throw new ApiError(`${method}: ${code}`, {
      status: PASSING.includes(code) ? 503 : Math.max(status, 200), code, retryAfter,
    });
  }
}

/** @param {string} text @returns {any} */
function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Writes the three characters that are markup in every text of Slack. @param {string} text */
export const escape = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g,
  "&gt;");

/** Reads the text that a person wrote: links are as they were typed. @param {string} text */
export const unescape = (text) =>
  text.replace(/<((?:https?|mailto):[^|>]*)(?:\|[^>]*)?>/g, "$1").replace(/<#C[A-Z0-9]+\|([^>]*)>/g,
    "#$1")
    .replace(/&lt;/g, "<").replace(/&gt;/g, ">").replace(/&amp;/g, "&");

/**
 * The text as a rich_text block, in which no character is markup. The field text is for notifications.
 * @param {Content} content
 */
function body(content) {
  /** @type {any[]} */
  const elements = [];
  for (const part of content.parts) {
    const { text, style } = typeof part === "string" ? { text: part, style: "" } : part;
    if (!text) continue;
    const element = { type: "text", text, ...(style === "bold" && { style: { bold: true } }) };
    const last = elements.at(-1);
    if (style === "code") elements.push({ type: "rich_text_preformatted", elements: [element] });
    else if (last?.type === "rich_text_section") last.elements.push(element);
    else elements.push({ type: "rich_text_section", elements: [element] });
  }
  const buttons = (content.buttons ?? []).map(({ label, data }, i) => ({
    type: "button", action_id: `button-${i}`, value: data,
    text: { type: "plain_text",
      text: label.length > MAX_LABEL ? `${label.slice(0, MAX_LABEL - 1)}…` : label },
  }));
  const notice = textOf(content);
  return {
    text: escape(notice.length > MAX_NOTICE ? `${notice.slice(0, MAX_NOTICE - 1)}…` : notice),
    blocks: [{ type: "rich_text", elements },
      ...(buttons.length > 0 ? [{ type: "actions", elements: buttons }] : [])],
  };
}
