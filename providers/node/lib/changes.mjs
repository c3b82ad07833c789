// Sending the changes of the offer, one after the other.

import { asError, codeOf } from "./errors.mjs";
import { applyOffline, report } from "./run.mjs";

/** @import { Link } from "./link.mjs" */
/** @import { Message } from "./model.mjs" */
/** @import { Change } from "./offer.mjs" */

// Milliseconds.
export const FIRST_RETRY = 1000; // before something that was refused for now is sent again
export const ACK_WAIT = 250; // for an answer that may not come: gateways of the core profile answer only refusals

/**
 * A change that the gateway has got and not answered yet.
 * @typedef {{ change: Change, id: string, type: string, due: Set<string>, revision: number }} SentChange
 */

/** The changes of the offer on one connection. */
export class Changes {
  /** @type {SentChange | undefined} */
  #sent;
  #paused = false; // a change was refused with RATE_LIMITED
  confirmed = false; // the gateway answers updates, as gateways of the core profile do not

  /** @param {Link} link */
  constructor(link) {
    this.link = link;
    this.p = link.p;
  }

  /** Sends the queued changes, one at a time. */
  send() {
    const { p } = this;
    while (this.link.state === "bound" && !this.#sent && !this.#paused && !this.link.over &&
      p.queue.length > 0) {
      const change = /** @type {Change} */ (p.queue.shift());
      if (this.#isObsolete(change)) continue;
      if (change.then) {
        change.then();
        continue;
      }
      const id = this.link.nextId("update");
      const o = p.offer.clone();
      let m;
      try {
        change.apply?.(o);
        m = { ...change.message?.(o), requestId: id,
          ...(change.session && { sessionId: change.session }) };
      } catch (e) {
        this.#end(change, 0, asError(e));
        continue;
      }
      p.sent = o;
      const { type } = /** @type {Message} */ (m);
      this.#sent = { change, id, type, due: this.link.sessionsFor(change.session), revision: 0 };
      const error = this.link.trySend(m);
      if (error || this.#sent.due.size === 0) this.#finish(error); // without a session there is no answer
      else if (this.confirmed) this.link.expectAnswer();
      else this.link.timer("silence", ACK_WAIT, () => {
        this.#finish(); // a gateway of the core profile did not refuse it
        this.send();
      });
    }
  }

  /** Whether a change restores something in a session that has ended. @param {Change} change */
  #isObsolete({ done, session }) {
    const b = this.link.bindings.get(session);
    return !done && session !== "" && (!b || b.ending);
  }

  /** Notes that a session has the sent change; returns false if the ack is about another message. @param {Message} m */
  confirm(m) {
    const { p } = this;
    const sent = this.#sent;
    if (!sent || sent.id !== m.requestId) return false;
    if (p.sent) p.offer = p.sent; // later messages of the gateway are based on it
    p.sent = undefined;
    sent.revision = Math.max(sent.revision, m.revision ?? 0);
    sent.due.delete(m.sessionId);
    if (m.sessionId && sent.due.size > 0) return true;
    this.#finish();
    this.send();
    return true;
  }

  /** Ends the sent change: the gateway has confirmed it, or error says why not. @param {Error} [error] */
  #finish(error) {
    const { p } = this;
    const sent = this.#sent;
    if (!sent) return;
    this.link.timer("answer", 0);
    this.link.timer("silence", 0);
    this.#sent = undefined;
    if (p.sent && !error) p.offer = p.sent;
    p.sent = undefined;
    if (error && codeOf(error) === "RATE_LIMITED") {
      p.queue.unshift(sent.change); // the gateway accepts it a second later
      this.#paused = true;
      this.link.timer("retry", FIRST_RETRY, () => {
        this.#paused = false;
        this.link.offerChanged();
      });
      return;
    }
    this.#end(sent.change, sent.revision, error);
  }

  /** Gives a change its result. @param {Change} change @param {number} revision @param {Error} [error] */
  #end(change, revision, error) {
    if (!error) {
      change.done?.(revision);
      return;
    }
    error.message = `${change.what}: ${error.message}`;
    if (change.failed) change.failed(error);
    else if (!this.#isObsolete(change)) report(this.p, error);
  }

  /**
   * Stops sending changes on this connection. The queued changes, and the one that the gateway has not answered, are
   * part of the next hello.
   */
  unlink() {
    const { p } = this;
    const sent = this.#sent;
    this.#paused = false;
    this.#sent = undefined;
    if (p.changing !== this.link) return;
    p.changing = undefined;
    if (p.sent) p.offer = p.sent;
    p.sent = undefined;
    if (sent) {
      this.link.timer("answer", 0);
      this.link.timer("silence", 0);
      sent.change.done?.(sent.revision);
    }
    for (const change of p.queue.splice(0)) applyOffline(p, change);
  }

  /** Ends the sent change if a refusal is about it; else it returns false. @param {Message} m @param {Error} error */
  refuse({ requestId, replyTo }, error) {
    const sent = this.#sent;
    if (!sent || (requestId ? requestId !== sent.id : replyTo !== sent.type)) return false;
    this.#finish(error);
    this.send();
    return true;
  }

  /** Ends the change that waits for the answer of a session that has ended. @param {string} session */
  endSession(session) {
    if (this.#sent?.due.delete(session) && this.#sent.due.size === 0) this.#finish();
  }
}
