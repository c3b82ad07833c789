// The state that outlives the connections of a run: the offer, the queue of its changes, and the
// functions of the user's.

import { CancelError, asError, codeOf } from "./errors.mjs";

/** @import { Endpoint } from "./discover.mjs" */
/** @import { Logger, Options } from "./model.mjs" */
/** @import { Change, Offer } from "./offer.mjs" */

export const MAX_EVENTS = 1000; // events of a session that wait for a slow listener
const STOP_GRACE = 5000; // milliseconds

/**
 * The state that a provider, its runs and their connections share.
 * @typedef {object} Shared
 * @property {string} name
 * @property {Options} options
 * @property {Logger} log
 * @property {Map<string, ((event: any, signal: AbortSignal) => any)[]>} listeners
 * @property {Offer} offer the gateway has it, or gets it next
 * @property {Offer | undefined} sent the gateway has got it and not confirmed it
 * @property {Change[]} queue
 * @property {{ offerChanged: () => void } | undefined} changing the connection that sends the queue; without it,
 *   changes happen without a gateway
 * @property {Endpoint | undefined} paired the gateway that pair() got a token from
 */

/** Gives an error to onError. @param {Shared} p @param {Error} error @param {string} [what] */
export function report(p, error, what) {
  p.log.warn(what ? `${what}: ${error.message}` : error.message);
  try {
    const returned = p.options.onError?.(codeOf(error), error.message, error);
    Promise.resolve(returned).catch((e) => p.log.error("onError failed:", e));
  } catch (e) {
    p.log.error("onError failed:", e);
  }
}

/** Queues a change, or makes it at once while there is no connection. @param {Shared} p @param {Change} change */
export function submit(p, change) {
  if (!p.changing) {
    applyOffline(p, change);
    return;
  }
  p.queue.push(change);
  p.changing.offerChanged();
}

/** Makes a change without a gateway. @param {Shared} p @param {Change} change */
export function applyOffline(p, change) {
  if (!change.apply) {
    change.done?.(0);
    return;
  }
  try {
    const o = p.offer.clone();
    change.apply(o);
    p.offer = o;
    change.done?.(0);
  } catch (e) {
    change.failed?.(asError(e));
  }
}

/**
 * Searches the offers that the gateway may be using: the confirmed one, then the one that was sent.
 * @template T
 * @param {Shared} p
 * @param {(o: Offer) => T | undefined} find
 */
export const lookup = (p, find) => find(p.offer) ?? (p.sent && find(p.sent));

/** The part of a run that its connections use: the state that one leaves to the next, and the user's functions. */
export class Run {
  /** @type {{ token: string, to: Endpoint, until: number } | undefined} restores a binding; until: 0 while up */
  reconnect;
  /** The last bound session, until it ends. */
  session = "";
  /** @type {Set<string>} sessions that prepareSession has run for */
  prepared = new Set();
  /** @type {{ to: Endpoint, at: number }[]} when each token was refused */
  refused = [];
  failing = false; // the last attempt failed, and that was reported
  stopping = new AbortController();
  #busy = 0;
  /** @type {(() => void) | undefined} */
  #idle;
  #last = Promise.resolve();
  /** @type {Map<string, { waiting: number, last: Promise<void> }>} */
  #events = new Map();

  /** @param {Shared} shared */
  constructor(shared) {
    this.p = shared;
    this.calls = new Dispatcher(shared.options.maxCalls || 64, () => this.settle());
  }

  /** Ends the run. */
  stop() {
    this.stopping.abort(new CancelError("stopped"));
  }

  get stopped() {
    return this.stopping.signal.aborted;
  }

  /** Notes that a gateway has accepted auth. */
  accepted() {
    this.failing = false;
    this.refused = [];
    this.reconnect = undefined; // its token is void now
  }

  /**
   * Runs a function of the user's. A failure is logged and returned.
   * @param {string} what
   * @param {() => any} f
   * @returns {Promise<{ value?: any, error?: Error }>}
   */
  async guard(what, f) {
    this.#busy++;
    try {
      return { value: await f() };
    } catch (e) {
      const error = asError(e);
      if (error.name !== "AbortError") this.p.log.error(`${what} failed:`, e); // else it was told to stop
      return { error };
    } finally {
      this.#busy--;
      this.settle();
    }
  }

  /** Runs a callback after the earlier ones. @param {string} what @param {() => any} f @returns {Promise<void>} */
  callback(what, f) {
    this.#last = this.#last.then(() => this.guard(what, f)).then(() => {});
    return this.#last;
  }

  /** Runs a listener after the earlier ones of its session; false if too many wait. @param {string} session
   * @param {() => any} f */
  listen(session, f) {
    const queue = this.#events.get(session) ?? { waiting: 0, last: Promise.resolve() };
    if (queue.waiting >= MAX_EVENTS) return false;
    queue.waiting++;
    queue.last = queue.last.then(() => this.guard("a listener", f)).then(() => {
      if (--queue.waiting === 0) this.#events.delete(session);
    });
    this.#events.set(session, queue);
    return true;
  }

  /** Ends the wait of settled() if nothing runs any more. */
  settle() {
    if (this.#busy === 0 && this.calls.running === 0) this.#idle?.();
  }

  /** Waits for functions of the user's that still run, and leaves behind those that ignore their signal. */
  async settled() {
    if (this.#busy === 0 && this.calls.running === 0) return;
    await new Promise((done) => {
      const timer = setTimeout(() => {
        this.p.log.warn("a function did not return when its signal was aborted; leaving it behind");
        done(undefined);
      }, STOP_GRACE);
      this.#idle = () => {
        clearTimeout(timer);
        done(undefined);
      };
    });
  }
}

/** @typedef {{ run: () => Promise<void> }} Job a call */

/** Runs at most limit calls at once; the others wait in their order. */
class Dispatcher {
  running = 0;
  /** @type {Set<Job>} */
  #queue = new Set();

  /** @param {number} limit @param {() => void} idle is called when the queue is empty and a call has ended */
  constructor(limit, idle) {
    this.limit = limit;
    this.idle = idle;
  }

  /** @param {Job} call */
  start(call) {
    if (this.running >= this.limit) {
      this.#queue.add(call);
      return;
    }
    this.running++;
    void this.#work(call);
  }

  /** Removes a call that has not begun; false if it has. @param {Job} call */
  remove(call) {
    return this.#queue.delete(call);
  }

  /** @param {Job} call */
  async #work(call) {
    await call.run();
    this.running--;
    const [next] = this.#queue;
    if (next) {
      this.#queue.delete(next);
      this.start(next);
    } else {
      this.idle();
    }
  }
}
