// Questions of a session, and the answers that people give elsewhere.

import { NotConnectedError, Outcome, QuestionEnded } from "./errors.mjs";
import { report } from "./run.mjs";
import { text } from "./wire.mjs";

/** @import { Bound, Link } from "./link.mjs" */
/** @import { Answer, Message } from "./model.mjs" */
/** @import { Requests } from "./requests.mjs" */

/** The questions of one connection that wait for an answer. */
export class Questions {
  /** @type {Map<string, AbortController>} by id */
  #waiting = new Map();

  /** @param {Link} link @param {Requests} requests */
  constructor(link, requests) {
    this.link = link;
    this.requests = requests;
  }

  /** Gives a question of a session to onQuestion, once. @param {Bound} b @param {Message} m */
  onAsked(b, m) {
    const { onQuestion } = this.link.p.options;
    const { id, kind, message, detail = "", choices = [], freeform = false, schema, askedAt,
      expiresAt } = m;
    if (!onQuestion || b.ending || this.#waiting.has(id)) return;
    if (![id, kind, message].every((v) => typeof v === "string")) {
      throw new TypeError("its id, kind or message is no text");
    }
    const { sessionId } = b.binding;
    const stop = new AbortController();
    this.#waiting.set(id, stop);
    const leave = () => {
      this.#waiting.delete(id);
      stop.abort(b.stop.signal.reason);
    };
    b.stop.signal.addEventListener("abort", leave, { signal: stop.signal });
    const question = {
      id, sessionId, kind, message, detail, choices, freeform, ...(schema && { schema }),
      askedAt: new Date(askedAt), expiresAt: new Date(expiresAt), signal: stop.signal,
      answer: (/** @type {Answer} */ answer) =>
        Outcome.of(this.#answer(id, sessionId, answer),
          (e) => report(this.link.p, e, `answering question ${id}`)),
    };
    void this.link.run.guard("onQuestion", () => onQuestion(question));
  }

  /** Aborts the signal of a question that is over. @param {Message} m */
  onEnded(m) {
    const stop = this.#waiting.get(m.id);
    this.#waiting.delete(m.id);
    stop?.abort(new QuestionEnded({ reason: text(m.reason), by: text(m.by),
      person: text(m.person) }));
  }

  /** @param {string} question @param {string} sessionId @param {Answer} answer @returns {Promise<void>} */
  async #answer(question, sessionId, { decision, text, content, person }) {
    if (this.link.over) throw new NotConnectedError();
    const requestId = this.link.nextId("answer");
    const message = {
      type: "question.answer", requestId, question, ...(decision && { decision }),
        ...(text && { text }),
      ...(content && { content }), ...(person && { person }),
    };
    const r = await this.requests.request(requestId, message, new Set([sessionId]), false);
    if (r.error) throw r.error;
  }
}
