// Binding to sessions, and leaving them.

import { ACK_WAIT, FIRST_RETRY } from "./changes.mjs";
import { isPaired } from "./discover.mjs";
import { CancelError, FatalError, NotPairedError } from "./errors.mjs";
import { wireTransform } from "./offer.mjs";
import { LIKELY_WAIT } from "./requests.mjs";
import { MAX_EVENTS, report } from "./run.mjs";
import { PROTOCOL_VERSION, text } from "./wire.mjs";

/** @import { Calls } from "./calls.mjs" */
/** @import { Changes } from "./changes.mjs" */
/** @import { ProviderError } from "./errors.mjs" */
/** @import { Bound, Link } from "./link.mjs" */
/** @import { Message, Session } from "./model.mjs" */
/** @import { Change } from "./offer.mjs" */
/** @import { Questions } from "./questions.mjs" */
/** @import { Requests } from "./requests.mjs" */

// Milliseconds.
const MAX_RETRY = 15_000; // before a refused hello is sent again; a gateway takes ten in a minute
const SHUTDOWN_DEADLINE = 10_000;

/**
 * A session that a provider of all sessions is about to join.
 * @typedef {object} Joining
 * @property {AbortController} stop ends prepareSession
 * @property {boolean} ready prepareSession has returned
 * @property {boolean} asked session.ready, or hello, was sent
 * @property {Bound} [bound] set once the gateway has answered
 */

/** The sessions that the gateway has, and the bindings of one connection to them. */
export class Sessions {
  /** @type {Session[]} */
  #active = [];
  /** @type {Set<string>} sessions that have ended and are still in the list */
  #ended = new Set();
  /** @type {Set<string>} sessions of the list that the gateway refused to bind */
  #unbindable = new Set();
  /** @type {Map<string, Joining>} */
  #joining = new Map();
  #retryIn = FIRST_RETRY;

  /**
   * @param {Link} link
   * @param {{ calls: Calls, changes: Changes, questions: Questions, requests: Requests }} parts of the connection
   */
  constructor(link, { calls, changes, questions, requests }) {
    this.link = link;
    this.p = link.p;
    this.run = link.run;
    this.calls = calls;
    this.changes = changes;
    this.questions = questions;
    this.requests = requests;
  }

  /**
   * Stores a new list of sessions, and binds to one of them if it is time to.
   * @param {Session[]} list @param {boolean} greeting it is sessions, which answers auth, not sessions.updated
   */
  onSessions(list, greeting) {
    if (!Array.isArray(list)) throw new TypeError("active is no list");
    if (this.link.state === "sessions") {
      if (!greeting) return;
      this.link.timer("answer", 0);
      this.link.state = "hello";
      this.link.authenticatedAt = Date.now();
      this.run.accepted();
    }
    const before = this.#active;
    this.#active = list;
    this.#unbindable.clear();
    for (const id of this.#ended) if (!this.#find(id)) this.#ended.delete(id);
    for (const { id } of before) {
      if (this.#find(id)) continue;
      this.run.prepared.delete(id);
      this.p.offer.perSession.delete(id);
      this.p.sent?.perSession.delete(id);
    }
    for (const [id, b] of this.link.bindings) {
      if (this.#find(id) || b.ending) continue; // else it has ended without a warning
      b.stop.abort(new CancelError("session ended"));
      this.calls.cancel(id);
      this.#endBinding(b);
    }
    if (this.link.over) return;
    if (this.link.all && this.link.state === "bound") this.#join();
    if (this.link.all && this.link.state === "ack") this.#prepare();
    this.changes.send();
    this.#bind();
  }

  /** @param {string} id */
  #find(id) {
    return this.#active.find((s) => s.id === id);
  }

  /** Chooses the session to bind to, or "". */
  #pick() {
    if (this.#ended.size > 0) return ""; // it is still in the list; another list follows
    const { session, pickSession } = this.p.options;
    if (this.link.all) return this.#active.length > 0 && !this.#unbindable.has("all") &&
      this.#prepare() ? "all" : "";
    let id = session ?? "";
    if (!id && pickSession) {
      try {
        id = pickSession([...this.#active]);
      } catch (e) {
        this.link.log.error("pickSession failed:", e);
      }
    } else if (!id) {
      const last = this.run.session;
      if (this.#find(last) && !this.#unbindable.has(last)) return last;
      // A session without a directory is one that this provider may not bind to. The first one is
      // tried anyway.
      return this.#active.find((s, i) => !this.#unbindable.has(s.id) && (i === 0 || s.cwd))?.id ??
        "";
    }
    return id && this.#find(id) && !this.#unbindable.has(id) ? id : "";
  }

  /** Sends hello if the state allows it and there is a session. */
  #bind() {
    if (this.link.state !== "hello" || this.link.over) return;
    this.link.timer("retry", 0);
    const session = this.#pick();
    if (!session) return;
    const { name, options, offer, listeners } = this.p;
    const { instance, startupContext, metadata, concurrency, onQuestion } = options;
    const asked = onQuestion ? ["question.asked", "question.ended"] : [];
    this.link.helloSession = session;
    this.link.state = "ack";
    for (const j of this.#joining.values()) j.asked = true; // this hello asks for all
    const error = this.link.trySend({
      type: "hello", name, protocolVersion: PROTOCOL_VERSION, session,
      ...(instance && { instance }), ...(this.link.restoring &&
        { reconnectToken: this.link.restoring }),
      ...(startupContext && { startup_context: startupContext }), ...(metadata && { metadata }),
      ...(concurrency && { concurrency }),
      // Present even if empty, because after a reconnect the gateway restores missing fields.
      context: offer.context,
      tools: offer.tools.map((t) => t.wire),
      hooks: {
        ...(offer.rules.length > 0 && { onPreToolUse: offer.rules.map((r) => r.wire) }),
        ...(offer.transforms.size > 0 && {
          transforms: Object.fromEntries([...offer.transforms].map(([s, t]) =>
            [s, wireTransform(t)])),
        }),
      },
      subscribe: [...new Set([...listeners.keys(), ...asked])].sort(),
    });
    this.p.changing = this.link;
    if (error) this.link.fail(new FatalError(error));
    this.link.expectAnswer();
  }

  /** Begins a binding, or the bindings to all sessions. @param {Message} m */
  onHelloAck(m) {
    if (this.link.state !== "ack") return;
    this.link.timer("answer", 0);
    this.link.state = "bound";
    this.#retryIn = FIRST_RETRY;
    this.link.restoring = "";
    this.link.providerId = text(m.providerId);
    this.link.persistDir = text(m.persistDir);
    // Gateways of the core profile send no reconnect token and do not answer updates.
    this.changes.confirmed = Boolean(m.reconnectToken);
    this.requests.receiptWait = this.changes.confirmed ? LIKELY_WAIT : ACK_WAIT;
    this.run.reconnect = m.reconnectToken ? { token: m.reconnectToken, to: this.link.to,
      until: 0 } : undefined;
    this.link.wasBound = true;
    if (this.link.all) {
      this.link.open = true;
      this.link.log.info(`bound to all sessions as ${this.link.providerId}`);
      this.#join();
    } else {
      this.run.session = this.link.helloSession;
      this.#openBinding(this.#newBinding(this.link.helloSession));
    }
    this.changes.send();
  }

  /** @param {string} sessionId @returns {Bound} */
  #newBinding(sessionId) {
    const stop = new AbortController();
    const { providerId, persistDir } = this.link;
    const cwd = this.#find(sessionId)?.cwd ?? "";
    const bound = {
      binding: { sessionId, providerId, cwd, persistDir, signal: stop.signal },
      stop, ending: false, started: false, returned: Promise.resolve(),
    };
    this.link.bindings.set(sessionId, bound);
    return bound;
  }

  /** Sends the parts that a hello can't contain, such as filters, and then starts the binding. @param {Bound} b */
  #openBinding(b) {
    const { offer, queue } = this.p;
    const session = b.binding.sessionId;
    /** @type {Change[]} */
    const first = [];
    for (const [stream, rules] of offer.filters) {
      const message = () => ({ type: "filter.set", stream, rules });
      first.push({ what: `setting the filter of ${stream}`, session, message });
    }
    const { tools, context } = offer.perSession.get(session) ?? {};
    if (tools) {
      const message = () => ({ type: "tools.update", tools: tools.map((t) => t.wire) });
      first.push({ what: "updating the tools", session, message });
    }
    if (context !== undefined) {
      first.push({ what: "setting the context", session,
        message: () => ({ type: "context.update", context }) });
    }
    queue.unshift(...first, { what: "", session: "", then: () => this.#startBinding(b) });
  }

  /** @param {Bound} b */
  #startBinding(b) {
    if (b.started) return;
    b.started = true;
    this.link.open = true;
    this.link.log.info(`bound to session ${b.binding.sessionId} as ${this.link.providerId}`);
    const { onConnected } = this.p.options;
    if (onConnected) b.returned = this.run.guard("onConnected", () => onConnected(b.binding));
  }

  /** Sends the gateway the changes of the offer since the last one sent. */
  offerChanged() {
    if (this.link.state === "hello") this.#bind(); // a hello that was refused may be accepted now
    if (this.link.state !== "bound") return;
    if (this.link.all) this.#join(); // a session.ready that was refused may be accepted now
    this.changes.send();
  }

  /** Handles a change of a bound session's state. @param {Message} m */
  onLifecycle(m) {
    if (this.link.state !== "bound") return;
    let b = this.link.bindings.get(m.sessionId);
    if (!b && m.state === "started" && this.link.all) b = this.#joined(m.sessionId);
    if (!b || b.ending) return;
    const { onSessionIdle } = this.p.options;
    if (m.state === "idle" && onSessionIdle) {
      const { sessionId, signal } = b.binding;
      this.run.callback("onSessionIdle", () => onSessionIdle({ sessionId, signal, deadline: 0 }));
    }
    if (m.state === "shutdown.pending") this.#beginEnding(b,
      m.deadline > 0 ? m.deadline : SHUTDOWN_DEADLINE);
  }

  /**
   * Cancels everything that runs for a session that is about to end. When all of it has returned, or the deadline has
   * passed, the session may end.
   * @param {Bound} b
   * @param {number} deadline
   */
  #beginEnding(b, deadline) {
    const { sessionId } = b.binding;
    this.link.log.info(`session ${sessionId} is ending`);
    b.ending = true;
    b.started = true;
    this.#ended.add(sessionId);
    if (!this.link.all) {
      this.link.state = "ending";
      this.changes.unlink();
    }
    b.stop.abort(new CancelError("session ended"));
    this.#joining.get(sessionId)?.stop.abort(new CancelError("session ended"));
    this.#joining.delete(sessionId);
    const answered = this.calls.cancel(sessionId);
    const late = new AbortController();
    const { onShutdown } = this.p.options;
    const state = { sessionId, deadline, signal: late.signal };
    const cleaned = this.run.callback("onShutdown", () => onShutdown?.(state));
    const finish = () => {
      if (this.link.over || this.link.bindings.get(sessionId) !== b) return;
      this.link.timer(`end ${sessionId}`, 0);
      late.abort(new CancelError("timeout"));
      this.link.trySend({ type: "shutdown.ready", sessionId });
      this.#endBinding(b);
      this.#bind();
    };
    this.link.timer(`end ${sessionId}`, deadline, finish);
    const { signal } = this.link.stop;
    signal.addEventListener("abort", () => late.abort(signal.reason), { signal: late.signal });
    void Promise.all([cleaned, b.returned, ...answered]).then(finish);
  }

  /** Removes a binding whose session has ended. @param {Bound} b */
  #endBinding(b) {
    const { sessionId } = b.binding;
    this.link.bindings.delete(sessionId);
    this.requests.endSession(sessionId);
    this.changes.endSession(sessionId);
    if (this.link.all) {
      this.changes.send();
      return;
    }
    this.changes.unlink();
    this.link.open = false;
    this.run.session = "";
    this.run.reconnect = undefined;
    this.link.state = "hello";
    if (isPaired(this.link.to)) this.link.fail(new FatalError(new NotPairedError(`session ${sessionId} has ended`)));
  }

  /** Starts prepareSession for the sessions that need it; true if it has returned for all of them. */
  #prepare() {
    for (const [id, j] of this.#joining) {
      if (this.#find(id)) continue;
      j.stop.abort(new CancelError("session ended"));
      this.#joining.delete(id);
    }
    let done = true;
    for (const s of this.#active) {
      const j = this.#joining.get(s.id);
      if ((this.link.bindings.has(s.id) && !j) || this.#ended.has(s.id)) continue;
      done = (j ?? this.#prepareOne(s)).ready && done;
    }
    return done;
  }

  /** @param {Session} s @returns {Joining} */
  #prepareOne(s) {
    /** @type {Joining} */
    const j = { stop: new AbortController(), ready: false, asked: false };
    this.#joining.set(s.id, j);
    const { prepareSession } = this.p.options;
    if (!prepareSession || this.run.prepared.has(s.id)) {
      j.ready = true;
      return j;
    }
    void this.run.guard("prepareSession", () => prepareSession(s, j.stop.signal)).then(() => {
      if (this.link.over || this.#joining.get(s.id) !== j) return;
      j.ready = true;
      this.run.prepared.add(s.id);
      if (this.link.state === "bound") {
        this.#join();
        this.changes.send();
      }
      this.#bind();
    });
    return j;
  }

  /** Sends session.ready for the sessions that are prepared, and opens the bindings that are confirmed. */
  #join() {
    this.#prepare();
    for (const { id } of this.#active) {
      const j = this.#joining.get(id);
      if (!j?.ready) continue;
      if (j.bound) {
        this.#joining.delete(id);
        this.#openBinding(j.bound);
      } else if (!j.asked) {
        j.asked = true;
        this.link.trySend({ type: "session.ready", sessionId: id });
      }
    }
  }

  /** Makes the binding to a session after the gateway has joined both. @param {string} id */
  #joined(id) {
    const s = this.#find(id);
    if (!s) return undefined;
    const j = this.#joining.get(id) ?? this.#prepareOne(s); // it may have started after the hello
    j.asked = true;
    const bound = this.#newBinding(id);
    j.bound = bound;
    this.#join();
    this.changes.send();
    return bound;
  }

  /** Gives an event to its listeners, in order for each session. @param {Message} m */
  onEvent({ sessionId, event, data }) {
    const b = this.link.bindings.get(sessionId);
    if (event === "question.asked" && b) this.questions.onAsked(b, data);
    if (event === "question.ended") this.questions.onEnded(data);
    const signal = b?.stop.signal ?? this.link.stop.signal;
    for (const listener of this.p.listeners.get(event) ?? []) {
      if (this.run.listen(sessionId, () => listener({ ...data, sessionId }, signal))) continue;
      const why = `${event} of session ${sessionId} was dropped: ${MAX_EVENTS} events wait for listeners`;
      report(this.p, new Error(why));
    }
  }

  /** Notes a refused session.ready. It is sent again when the offer or the list has changed. @param {Message} m */
  onNotReady({ sessionId }) {
    for (const [id, j] of this.#joining) if (!j.bound &&
      (!sessionId || id === sessionId)) j.asked = false;
  }

  /**
   * Chooses after a refused hello: give up, try another session, or try again later.
   * @param {string} code @param {ProviderError} error
   */
  onHelloError(code, error) {
    this.link.timer("answer", 0);
    this.link.state = "hello";
    this.changes.unlink();
    error.message = `binding to session ${this.link.helloSession}: ${error.message}`;
    if (["INVALID_JSON", "PAYLOAD_TOO_LARGE", "UNAUTHORIZED"].includes(code)) {
      this.link.fail(new FatalError(error));
      return;
    }
    if (code === "INVALID_SESSION") {
      if (isPaired(this.link.to)) {
        this.link.fail(new FatalError(new NotPairedError(error.message)));
        return;
      }
      // It has ended or is not open to this provider. A new list comes when anything changes, and
      // clears this.
      this.#unbindable.add(this.link.helloSession);
      this.link.log.info(`session not bound: ${error.message}`);
      this.#bind();
      return;
    }
    report(this.p, error);
    this.link.timer("retry", this.#retryIn, () => this.offerChanged());
    this.#retryIn = Math.min(2 * this.#retryIn, MAX_RETRY);
  }

  /** Stops prepareSession, after the connection. @param {CancelError} reason */
  end(reason) {
    for (const j of this.#joining.values()) j.stop.abort(reason);
  }
}
