// The Bot API of Telegram: long polling for updates, and a request for each message.

import { setTimeout as sleep } from "node:timers/promises";
import { ApiError, cut, post, textOf } from "./api.mjs";

/** @import { Content, Handle, Incoming, Press, Service } from "./service.mjs" */

const POLL = 50; // seconds that the service may hold a request for updates
const PATIENCE = 5000; // milliseconds before updates are asked for again after a failure
const QUIET = 6 * 24 * 3600_000; // after a week without updates their ids may begin anywhere
const MAX_TOAST = 200; // characters that answerCallbackQuery shows

/** @implements {Service} */
export class Telegram {
  name = "telegram";
  limit = 4096;
  #me = { id: 0, username: "" };

  /** @param {import("./config.mjs").Config} config @param {(line: string) => void} log @param {AbortSignal} signal */
  constructor(config, log, signal) {
    this.base = `${config.api}/bot${config.token}`;
    this.log = log;
    this.signal = signal;
  }

  /** A group takes 20 messages a minute, a person one a second. @param {string} chat */
  pace(chat) {
    return chat.startsWith("-") ? 3000 : 1000;
  }

  async start() {
    const { id, username } = await this.#call("getMe", {});
    this.#me = { id, username: String(username) };
  }

  /**
   * @param {Record<string, any>} state @param {() => Promise<void>} save @param {Handle} handle
   * @param {AbortSignal} signal
   */
  async listen(state, save, handle, signal) {
    while (!signal.aborted) {
      if (Date.now() - (state.heard ?? 0) > QUIET) state.offset = 0;
      try {
        const updates = await this.#call("getUpdates", {
          offset: state.offset ?? 0, timeout: POLL, allowed_updates: ["message", "callback_query"],
        }, { timeout: (POLL + 10) * 1000, signal });
        await this.#take(Array.isArray(updates) ? updates : [], state, save, handle);
      } catch (e) {
        if (signal.aborted) return;
        if (!(e instanceof ApiError) || e.status === 401 || e.status === 404) throw e;
        this.log(e.message);
        const wait = e.retryAfter === undefined ? PATIENCE : e.retryAfter * 1000;
        await sleep(wait, undefined, { signal }).catch(() => {});
      }
    }
  }

  /**
   * Hands over updates. The offset is saved after each, with the changes of the update: the service repeats what a bot
   * that stopped had not taken, and nothing else.
   * @param {any[]} updates @param {Record<string, any>} state @param {() => Promise<void>} save @param {Handle} handle
   */
  async #take(updates, state, save, handle) {
    for (const update of updates) {
      const id = update?.update_id;
      if (!Number.isSafeInteger(id)) {
        this.log("an update without an id is ignored");
        continue;
      }
      if (id < (state.offset ?? 0)) continue; // it came before
      try {
        const event = this.#read(update);
        if (event) await handle(event);
      } catch (e) {
        this.signal.throwIfAborted();
        this.log(`update ${id} is ignored: ${e instanceof Error ? e.message : e}`);
      }
      Object.assign(state, { offset: id + 1, heard: Date.now() });
      await save();
    }
  }

  /** @param {any} update @returns {Incoming | Press | undefined} */
  #read({ update_id, message, callback_query: press }) {
    const id = String(update_id);
    if (message?.from && message.chat) return this.#readMessage(id, message);
    if (!press?.from) return undefined;
    const at = press.message?.chat;
    return {
      type: "press", id, chat: String(at?.id ?? ""), user: String(press.from.id),
        who: nameOf(press.from),
      message: String(press.message?.message_id ?? ""), data: String(press.data ?? ""),
      isPrivate: at?.type === "private",
      reply: (text) => this.#call("answerCallbackQuery", {
        callback_query_id: press.id, text: cut(text, MAX_TOAST, "…"), show_alert: text.length > 60,
      }),
    };
  }

  /** @param {string} id @param {any} m @returns {Incoming} */
  #readMessage(id, m) {
    const name = `@${this.#me.username}`.toLowerCase();
    let text = typeof m.text === "string" ? m.text : "";
    let isMentioned = m.reply_to_message?.from?.id === this.#me.id;
    const entities = Array.isArray(m.entities) ? m.entities : [];
    for (const { type, offset, length } of entities.toReversed()) {
      const word = text.slice(offset, offset + length).toLowerCase();
      if ((type === "mention" && word === name) ||
        (type === "bot_command" && word.endsWith(name))) {
        isMentioned = true;
        const end = offset + length;
        text = text.slice(0, end - name.length) + text.slice(end);
      }
    }
    return {
      type: "message", id, chat: String(m.chat.id), user: String(m.from.id), who: nameOf(m.from),
        text: text.trim(),
      isPrivate: m.chat.type === "private", isMentioned,
        replyTo: String(m.reply_to_message?.message_id ?? ""),
    };
  }

  /** @param {string} chat @param {Content} content */
  async send(chat, content) {
    const { message_id } = await this.#call("sendMessage", { chat_id: chat, ...body(content) });
    return String(message_id);
  }

  /** @param {string} chat @param {string} id @param {Content} content */
  async edit(chat, id, content) {
    try {
      await this.#call("editMessageText", { chat_id: chat, message_id: Number(id),
        ...body(content) });
    } catch (e) {
      if (!(e instanceof ApiError && /not modified/.test(e.message))) throw e; // a retry after a lost answer
    }
  }

  /**
   * @param {string} method @param {object} request @param {{ timeout?: number, signal?: AbortSignal }} [options]
   * @returns {Promise<any>}
   */
  async #call(method, request, { timeout, signal = this.signal } = {}) {
    const { status, retryAfter, answer } = await post(method, `${this.base}/${method}`, request,
      { signal, timeout });
    if (answer.ok === true) return answer.result;
    throw new ApiError(`${method}: ${answer.description ?? `status ${status}`}`, {
      status: answer.error_code ?? status, retryAfter: answer.parameters?.retry_after ?? retryAfter,
    });
  }
}

/** @param {any} from */
const nameOf = (from) => String(from.username ? `@${from.username}` : from.first_name ?? "");

/**
 * The text with its styles as entities, which say where a style is: no character of the text is markup. Previews of
 * links stay off, since the service would fetch whatever address a model writes.
 * @param {Content} content
 */
function body(content) {
  const entities = [];
  let offset = 0;
  for (const part of content.parts) {
    const { text, style } = typeof part === "string" ? { text: part, style: "" } : part;
    if (style && text) entities.push({ type: style === "code" ? "pre" : "bold", offset,
      length: text.length });
    offset += text.length;
  }
  return {
    text: textOf(content), entities, link_preview_options: { is_disabled: true },
    reply_markup: {
      inline_keyboard: (content.buttons ?? []).map(({ label, data }) =>
        [{ text: label, callback_data: data }]),
    },
  };
}
