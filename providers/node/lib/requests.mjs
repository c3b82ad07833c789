// Pushes, queries and answers to questions, and the gateway's answers to them.

import { ACK_WAIT } from "./changes.mjs";
import { NotConnectedError, ProviderError } from "./errors.mjs";

/** @import { Link } from "./link.mjs" */
/** @import { Entry, Message, Receipt } from "./model.mjs" */

export const LIKELY_WAIT = 5000; // milliseconds for the first receipt of a gateway that is likely to give them

/**
 * A push, query or answer that waits for its answers, one of each session.
 * @typedef {object} Request
 * @property {string} type
 * @property {Set<string>} due the sessions that have not answered
 * @property {boolean} untilDelivered
 * @property {Receipt[]} receipts
 * @property {Message} [history]
 * @property {Error} [error]
 * @property {() => void} end
 */

/** The requests of one connection. */
export class Requests {
  /** @type {Map<string, Request>} */
  #waiting = new Map();
  #givesReceipts = false;
  receiptWait = ACK_WAIT; // of a push, while it is not known whether the gateway gives receipts

  /** @param {Link} link */
  constructor(link) {
    this.link = link;
  }

  /**
   * Sends a push, and returns the receipt, or those of a broadcast.
   * @param {Message} message @param {boolean} untilDelivered @returns {Promise<Receipt>}
   */
  async push(message, untilDelivered) {
    let due = this.link.sessionsFor(message.sessionId);
    const { broadcast } = message;
    if (broadcast && due.size === 0 &&
      (message.level !== "keep" || message.prompt)) throw new NotConnectedError();
    if (broadcast ? due.size === 0 : due.size !== 1) due = new Set([""]); // one answer comes: kept, or refused
    const requestId = this.link.nextId("push");
    const r = await this.request(requestId, { type: "push", requestId, ...message }, due,
      untilDelivered);
    /** @type {Receipt} */
    const none = { sessionId: "", seq: 0, fate: "", reason: "" };
    if (r.error) throw broadcast ? Object.assign(r.error, { each: r.receipts }) : r.error;
    return broadcast ? { ...none, each: r.receipts } : r.receipts[0] ?? none;
  }

  /** Reads streams. @param {Message} message @returns {Promise<Entry[]>} */
  async query(message) {
    const queryId = this.link.nextId("query");
    const due = new Set([message.sessionId ?? ""]);
    const r = await this.request(queryId, { type: "stream.query", queryId, ...message }, due,
      false);
    if (r.error) throw r.error;
    return entries(r.history ?? {});
  }

  /**
   * Sends a request and waits for its answers.
   * @param {string} id
   * @param {Message} message
   * @param {Set<string>} due
   * @param {boolean} untilDelivered
   * @returns {Promise<Request>}
   */
  async request(id, message, due, untilDelivered) {
    /** @type {NodeJS.Timeout | undefined} */
    let silent;
    /** @type {Request} */
    const r = { type: message.type, due, untilDelivered, receipts: [], end() {} };
    const answered = new Promise((done) => (r.end = () => done(undefined)));
    this.#waiting.set(id, r);
    const error = this.link.trySend(message);
    if (error) {
      r.error = error;
      r.end();
    } else if (!this.#givesReceipts && message.type === "push") {
      silent = setTimeout(() => {
        this.receiptWait = ACK_WAIT; // after a silence the next ones are silent, too
        if (!this.#givesReceipts) r.end();
      }, this.receiptWait);
    }
    await answered;
    clearTimeout(silent);
    this.#waiting.delete(id);
    return r;
  }

  /** Gives a receipt to the request that it is about. @param {Message} m */
  onReceipt(m) {
    this.#givesReceipts = true;
    const r = this.#waiting.get(m.requestId);
    if (r?.type === "question.answer") this.#noteAnswer(r, "");
    if (r?.type !== "push") return;
    const { sessionId = "", seq = 0, fate = "", reason = "" } = m;
    if (r.untilDelivered && fate === "queued") return;
    r.receipts.push({ sessionId, seq, fate, reason });
    this.#noteAnswer(r, sessionId);
  }

  /** Notes that a session has answered; "" stands for all. @param {Request} r @param {string} session */
  #noteAnswer(r, session) {
    if (r.due.size === 1 || session === "") r.due.clear();
    r.due.delete(session);
    if (r.due.size === 0) r.end();
  }

  /**
   * Gives an error to the request that it is about, or returns false. One without a request id is about the only
   * request of its type.
   * @param {Message} m
   * @param {Error} error
   */
  refuse(m, error) {
    let r = this.#waiting.get(m.requestId);
    if (!r && !m.requestId) {
      const candidates = [...this.#waiting.values()].filter((other) => other.type === m.replyTo);
      if (candidates.length === 1) r = candidates[0];
    }
    if (!r || r.due.size === 0) return false;
    r.error ??= error;
    this.#noteAnswer(r, r.due.has(m.sessionId) ? m.sessionId : "");
    return true;
  }

  /** Gives an answer to the query that it is about. @param {Message} m */
  onHistory(m) {
    const r = this.#waiting.get(m.queryId);
    if (r?.type !== "stream.query") return;
    r.history = m;
    this.#noteAnswer(r, "");
  }

  /** Ends the requests that wait for the answer of a session that has ended. @param {string} session */
  endSession(session) {
    for (const r of this.#waiting.values()) {
      if (!r.due.has(session)) continue;
      r.error ??= new ProviderError("INVALID_SESSION",
        `session ${JSON.stringify(session)} has ended`);
      this.#noteAnswer(r, session);
    }
  }

  /** Ends all requests, after the connection. */
  end() {
    for (const r of this.#waiting.values()) {
      r.error ??= new NotConnectedError("the connection ended before the gateway answered");
      r.end();
    }
  }
}

/** @param {Message} m @returns {Entry[]} */
function entries(m) {
  const found = [];
  for (const [key, list] of Object.entries(m.streams ?? {})) {
    const [stream, provider = ""] = key.split("@");
    for (const { ts, event = "", level, metadata, prompt = "" } of list) {
      found.push({ stream, provider, time: new Date(ts), text: event, level,
        ...(metadata && { metadata }), prompt });
    }
  }
  // Each list is sorted, and sort keeps the order of equal entries.
  const byStream = (/** @type {Entry} */ a, /** @type {Entry} */ b) =>
    a.stream < b.stream ? -1 : Number(a.stream > b.stream);
  return found.sort((a, b) => b.time.getTime() - a.time.getTime() || byStream(a, b));
}
