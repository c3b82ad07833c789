// One connection to a gateway, without the messages on it: the socket, its timers, and the sessions
// that it is bound to.

import WebSocket from "ws";
import { CLOSE_TIMEOUT, dial } from "./discover.mjs";
import { CancelError, FatalError, ProviderError, RefusedError, asError } from "./errors.mjs";
import { ANSWER_TIMEOUT, MAX_MESSAGE } from "./wire.mjs";

/** @import { Endpoint } from "./discover.mjs" */
/** @import { Binding, Message } from "./model.mjs" */
/** @import { Run } from "./run.mjs" */

const MAX_UNREAD = 64 * 1024 * 1024; // bytes that may wait in memory for a gateway that does not read
const TAKEN_OVER = 4001; // the close code of a connection whose reconnect token a newer one used

// Milliseconds.
const PING_EVERY = 15_000;
const PONG_TIMEOUT = 10_000;
const RECONNECT_WINDOW = 30_000;

/**
 * A joined session, until its end.
 * @typedef {object} Bound
 * @property {Binding} binding
 * @property {AbortController} stop
 * @property {boolean} ending
 * @property {boolean} started onConnected was started, or will never be
 * @property {Promise<unknown>} returned settles when onConnected has returned
 */

/** One connection from dialling to its end. The class Connection handles its messages. */
export class Link {
  /** @type {"sessions" | "hello" | "ack" | "bound" | "ending"} its state (docs/protocol.md, "States") */
  state = "sessions";
  providerId = "";
  persistDir = "";
  helloSession = "";
  authenticatedAt = 0;
  /** @type {Map<string, Bound>} by session; at most one unless the provider is for all sessions */
  bindings = new Map();
  open = false; // a session is bound, so pushes and queries may be sent
  wasBound = false;
  over = false;
  /** Is aborted at the end of the connection. */
  stop = new AbortController();
  /** @type {Error | undefined} why this side cut the connection */
  broken;
  /** @type {Record<string, NodeJS.Timeout | undefined>} */
  #timers = {};
  #count = 0;

  /** @param {Run} run @param {Endpoint} to @param {string} restoring the reconnect token for auth, or "" */
  constructor(run, to, restoring) {
    this.run = run;
    this.p = run.p;
    this.log = run.p.log;
    this.to = to;
    this.restoring = restoring;
    this.all = run.p.options.session === "all";
  }

  /** Handles a message of the gateway. @param {string} _data */
  receive(_data) {}

  /** Sends the gateway the changes of the offer since the last one sent. */
  offerChanged() {}

  /**
   * Serves until the connection is lost, given up, or the run is stopped.
   * @returns {Promise<{ lasted: number, accepted: boolean, error: Error }>}
   */
  async serve() {
    const { signal } = this.run.stopping;
    try {
      this.ws = await dial(this.to, signal);
    } catch (e) {
      return { lasted: 0, accepted: false, error: asError(e) };
    }
    const { ws } = this;
    const closed = new Promise((done) => ws.once("close", (code, reason) => {
      // Coming back would take the place from the newer connection again.
      if (code === TAKEN_OVER) {
        const why = "a newer connection took over with this one's reconnect token";
        this.broken ??= new FatalError(new Error(`${this.to.url}: ${why}`));
      }
      done(`${reason} (${code})`);
    }));
    const stopped = () => this.finish(new CancelError("stopped"));
    signal.addEventListener("abort", stopped);
    ws.on("message", (data, isBinary) => {
      if (isBinary) this.log.warn("the gateway sent a binary frame; ignored");
      else this.receive(String(data));
    });
    ws.on("error", (e) => (this.broken ??= e));
    ws.on("pong", () => this.timer("pong", 0));
    this.#ping();
    const { name, options: { instance } } = this.p;
    this.trySend(
      this.restoring
        ? { type: "auth", reconnectToken: this.restoring, name, ...(instance && { instance }) }
        : { type: "auth", token: this.to.token },
    );
    this.expectAnswer();
    const why = await closed;
    signal.removeEventListener("abort", stopped);
    this.finish();
    const error = this.broken instanceof FatalError ? this.broken
      : this.#named(this.broken ?? new Error(`connection lost: the gateway closed it: ${why}`));
    const accepted = this.authenticatedAt > 0;
    return { lasted: accepted ? Date.now() - this.authenticatedAt : 0, accepted, error };
  }

  /** @param {Error} error */
  #named(error) {
    if (!(error instanceof RefusedError)) error.message = `${this.to.url}: ${error.message}`;
    return error;
  }

  /** Sets the timer of a name; 0 ends it. @param {string} name @param {number} ms @param {() => void} [f] */
  timer(name, ms, f) {
    clearTimeout(this.#timers[name]);
    this.#timers[name] = ms && f && !this.over ? setTimeout(f, ms) : undefined;
  }

  /** Cuts the connection unless the timer "answer" is ended in time. */
  expectAnswer() {
    this.timer("answer", ANSWER_TIMEOUT,
      () => this.fail(new Error(`no answer within ${ANSWER_TIMEOUT / 1000} s`)));
  }

  #ping() {
    this.timer("ping", PING_EVERY, () => {
      this.timer("pong", PONG_TIMEOUT,
        () => this.fail(new Error("the gateway does not answer pings")));
      this.ws?.ping();
      this.#ping();
    });
  }

  /** Cuts the connection. @param {Error} error */
  fail(error) {
    this.broken ??= error;
    this.finish();
  }

  /**
   * Ends the connection, with a goodbye if the provider stops, and releases its calls and bindings.
   * @param {Error} [why] of a provider that stops
   */
  finish(why) {
    if (this.over) return;
    const { ws, run } = this;
    const stopping = (why ?? this.broken) instanceof FatalError || run.stopped;
    const open = ws?.readyState === WebSocket.OPEN;
    if (open && stopping) this.trySend({ type: "goodbye", reason: "shutting down" });
    this.over = true;
    for (const name of Object.keys(this.#timers)) this.timer(name, 0);
    const reason = new CancelError(stopping ? "stopped" : "disconnected");
    if (run.reconnect?.until === 0) run.reconnect.until = Date.now() + RECONNECT_WINDOW;
    this.open = false;
    this.release(reason);
    const { onDisconnected } = this.p.options;
    if (this.wasBound && onDisconnected) run.callback("onDisconnected", onDisconnected);
    if (!open || !stopping) {
      ws?.terminate();
      return;
    }
    const timer = setTimeout(() => ws.terminate(), CLOSE_TIMEOUT);
    ws.once("close", () => clearTimeout(timer));
    ws.close(1000);
  }

  /** Releases the connection's calls and bindings. @param {CancelError} reason */
  release(reason) {
    this.stop.abort(reason);
    for (const b of this.bindings.values()) b.stop.abort(reason);
  }

  /**
   * Sends a message. Returns the error of one that is too large.
   * @param {Message} m
   */
  trySend(m) {
    return this.sendText(JSON.stringify(m), MAX_MESSAGE, m.type);
  }

  /**
   * Sends the text of a message. Returns the error of one that is too large.
   * @param {string} json @param {number} limit @param {string} type @returns {ProviderError | undefined}
   */
  sendText(json, limit, type) {
    if (json.length * 3 > limit && Buffer.byteLength(json) > limit) {
      const size = Buffer.byteLength(json);
      return new ProviderError("PAYLOAD_TOO_LARGE",
        `this ${type} is ${size} bytes, over the limit of ${limit}`);
    }
    const { ws } = this;
    if (this.over || ws?.readyState !== WebSocket.OPEN) return undefined; // the close tells of the loss
    ws.send(json);
    if (ws.bufferedAmount > MAX_UNREAD) this.fail(new Error("the gateway does not read"));
    return undefined;
  }

  /** Makes an id for a request. @param {string} kind */
  nextId(kind) {
    return `${kind}-${++this.#count}`;
  }

  /** The sessions that answer a message about one session, or about all (""). @param {string} [session] */
  sessionsFor(session) {
    return new Set(session ? [session] : this.bindings.keys());
  }
}
