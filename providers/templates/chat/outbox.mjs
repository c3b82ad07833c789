// Messages on their way to chats: in order, as fast as the service takes them, and never twice at
// once.

import { setTimeout as sleep } from "node:timers/promises";
import { ApiError } from "./api.mjs";

/** @import { Content, Service } from "./service.mjs" */

const MAX_WAITING = 500; // messages of a chat, while the service refuses them
const MAX_BACKOFF = 30_000; // milliseconds

/** A message that is in a chat or on its way there. */
export class Message {
  isQueued = false;
  hasFailed = false;
  /** @param {Outbox} outbox @param {string} chat @param {string} id "" until it was sent @param {Content} content */
  constructor(outbox, chat, id, content) {
    this.outbox = outbox;
    this.chat = chat;
    this.id = id;
    this.content = content;
  }

  /** Gives it another content. Of several in a row, the service gets the last. @param {Content} content */
  update(content) {
    this.content = content;
    this.outbox.queue(this);
  }
}

/**
 * @typedef {object} Line the messages that wait for one chat
 * @property {Message[]} waiting
 * @property {number} next when the service takes the next request
 * @property {boolean} isRunning
 */

export class Outbox {
  /** @type {Map<string, Line>} */
  #lines = new Map();
  #running = new Set();

  /**
   * @param {Service} service
   * @param {(line: string) => void} log
   * @param {AbortSignal} signal
   * @param {(message: Message) => void} sent is called when a new message has its id
   */
  constructor(service, log, signal, sent, wait = sleep) {
    this.service = service;
    this.log = log;
    this.signal = signal;
    this.sent = sent;
    this.wait = wait;
  }

  /** @param {string} chat @param {Content} content */
  post(chat, content) {
    const message = new Message(this, chat, "", content);
    this.queue(message);
    return message;
  }

  /** The message with an id, which is in the chat. @param {string} chat @param {string} id */
  at(chat, id) {
    for (const message of this.#lines.get(chat)?.waiting ??
      []) if (message.id === id) return message;
    return new Message(this, chat, id, { parts: [] });
  }

  /** @param {Message} message */
  queue(message) {
    if (message.isQueued || message.hasFailed || this.signal.aborted) return;
    const line = this.#lines.get(message.chat) ?? { waiting: [], next: 0, isRunning: false };
    this.#lines.set(message.chat, line);
    if (line.waiting.length >= MAX_WAITING) {
      this.log(`chat ${message.chat}: ${MAX_WAITING} messages wait; the oldest is dropped`);
      const oldest = line.waiting.findIndex((m) => !m.content.buttons?.length); // no question is
      const [dropped] = line.waiting.splice(Math.max(oldest, 0), 1);
      Object.assign(dropped, { isQueued: false, hasFailed: !dropped.id });
    }
    message.isQueued = true;
    line.waiting.push(message);
    if (line.isRunning) return;
    line.isRunning = true;
    const run = this.#run(line).catch((e) => this.signal.aborted ||
      this.log(`sending: ${e.message}`));
    this.#running.add(run);
    void run.then(() => this.#running.delete(run));
  }

  /** Resolves when nothing is on its way. */
  async settled() {
    while (this.#running.size > 0) await Promise.all(this.#running);
  }

  /** @param {Line} line */
  async #run(line) {
    try {
      while (line.waiting.length > 0) {
        const early = line.next - Date.now();
        if (early > 0) await this.wait(early, undefined, { signal: this.signal });
        const [message] = line.waiting.splice(0, 1);
        message.isQueued = false; // a change from here on is another request
        await this.#deliver(message);
        line.next = Date.now() + this.service.pace(message.chat);
      }
    } finally {
      line.isRunning = false;
    }
  }

  /** @param {Message} message */
  async #deliver(message) {
    for (let attempt = 0; ; attempt++) {
      try {
        if (message.id) {
          await this.service.edit(message.chat, message.id, message.content);
        } else {
          message.id = await this.service.send(message.chat, message.content);
          this.sent(message);
        }
        return;
      } catch (e) {
        this.signal.throwIfAborted();
        if (!(e instanceof ApiError)) throw e;
        if (attempt === 0) this.log(`chat ${message.chat}: ${e.message}`);
        if (!e.isPassing) {
          message.hasFailed = true;
          return;
        }
        const backoff = Math.min(1000 * 2 ** attempt, MAX_BACKOFF);
        const wait = e.retryAfter === undefined ? backoff : e.retryAfter * 1000;
        await this.wait(wait, undefined, { signal: this.signal });
      }
    }
  }
}
