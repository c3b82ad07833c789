// Calls, gates and sections of the prompt: the user's functions that the gateway asks for.

import { CancelError, ProviderError, notFound } from "./errors.mjs";
import { deny } from "./model.mjs";
import { failure, success } from "./results.mjs";
import { lookup } from "./run.mjs";
import { MAX_RESULT, text } from "./wire.mjs";

/** @import { Link } from "./link.mjs" */
/** @import { CallContext, Decision, Message } from "./model.mjs" */

// Milliseconds.
const CANCEL_GRACE = 2000; // how long a cancelled handler may run on before its call is answered without it
const GATE_TIMEOUT = 5000;
const TRANSFORM_TIMEOUT = 2000;

/** One tool.call, from its arrival to its only result. */
class Call {
  /** @type {CancelError | undefined} */
  cancelled;
  answered = false;
  /** @type {(() => void)[]} */
  whenAnswered = [];
  /** @type {AbortController | undefined} */
  #controller;
  /** @type {NodeJS.Timeout | undefined} */
  #grace;

  /** @param {Calls} calls @param {Message} m */
  constructor(calls, m) {
    this.calls = calls;
    this.link = calls.link;
    this.callId = m.id;
    this.sessionId = m.sessionId;
    this.tool = m.tool;
    this.args = m.args ?? {};
    this.traceparent = m.traceparent ?? "";
    // As it is now: a change of the offer does not change a call.
    this.prepared = lookup(calls.p,
      (o) => o.toolsIn(m.sessionId).find((t) => t.wire.name === m.tool));
  }

  // CallContext

  get providerId() {
    return this.link.providerId;
  }

  get persistDir() {
    return this.link.persistDir;
  }

  /** It is made only for the handlers that ask for it. */
  get signal() {
    if (!this.#controller) {
      this.#controller = new AbortController();
      if (this.cancelled) this.#controller.abort(this.cancelled);
    }
    return this.#controller.signal;
  }

  /** @param {string} message */
  progress(message) {
    if (!message || this.answered || this.cancelled) return;
    this.link.trySend({ type: "tool.progress", id: this.callId, message: String(message) });
  }

  async run() {
    if (this.answered) return;
    let result;
    try {
      result = success(this.callId, await this.#handle());
    } catch (e) {
      if (!this.cancelled && !(e instanceof ProviderError)) this.link.log.warn(`tool ${this.tool} failed:`, e);
      result = failure(this.callId, e);
    }
    this.answer(result);
  }

  #handle() {
    const { prepared, link: { p: { options } } } = this;
    if (!prepared) throw notFound(`this provider has no tool ${JSON.stringify(this.tool)}`);
    const { handler } = prepared.definition;
    /** @type {(args: any) => any} */
    const f = (args) => {
      if (handler) return handler.call(prepared.definition, args, context(this));
      if (options.onToolCall) return options.onToolCall(this.tool, args, context(this));
      throw new ProviderError("INTERNAL", `tool ${JSON.stringify(this.tool)} has no handler`);
    };
    return prepared.parse ? prepared.parse(this.args).then(f) : f(this.args);
  }

  /** Cancels the call. If the handler does not return in time, the call is answered without it. @param {string} why */
  abort(why) {
    if (this.cancelled || this.answered) return;
    this.cancelled = new CancelError(why);
    this.#controller?.abort(this.cancelled);
    if (this.link.run.calls.remove(this)) {
      this.answer(undefined);
    } else if (!this.answered) {
      this.#grace = setTimeout(() => this.answer(undefined), CANCEL_GRACE);
    }
  }

  /** Sends the result. Later ones are ignored, and a cancelled call is CANCELLED. @param {string} [result] */
  answer(result) {
    if (this.answered) return;
    this.answered = true;
    clearTimeout(this.#grace);
    const { link, callId, cancelled } = this;
    this.calls.delete(callId);
    if (!result || cancelled) result = failure(callId, new ProviderError("CANCELLED", "Cancelled"));
    const error = link.sendText(result, MAX_RESULT, "tool.result");
    if (error) {
      const why = new Error(`${error.message}; return a file, or less`);
      link.sendText(failure(callId, why), MAX_RESULT, "tool.result");
    }
    for (const f of this.whenAnswered) f();
  }
}

/**
 * Makes the call for a handler. A handler may take it apart, so its functions need no this.
 * @param {Call} call
 * @returns {CallContext}
 */
function context(call) {
  return {
    callId: call.callId,
    sessionId: call.sessionId,
    providerId: call.providerId,
    tool: call.tool,
    traceparent: call.traceparent,
    persistDir: call.persistDir,
    get signal() {
      return call.signal;
    },
    progress: (message) => call.progress(message),
  };
}

/** The calls of one connection, and the questions of the gateway that have a time limit. */
export class Calls {
  /** @type {Map<string, Call>} */
  #running = new Map();

  /** @param {Link} link */
  constructor(link) {
    this.link = link;
    this.p = link.p;
  }

  /** Starts a call. @param {Message} m */
  onCall(m) {
    const { id, tool, sessionId, args = {} } = m;
    const named = [id, tool, sessionId].every((v) => typeof v === "string");
    if (!named || typeof args !== "object" || Array.isArray(args)) {
      throw new TypeError("its id, tool, sessionId or args has the wrong type");
    }
    if (this.#running.has(m.id)) {
      this.link.log.warn(`ignoring call ${m.id}, which the gateway sent twice`);
      return;
    }
    const call = new Call(this, m);
    this.#running.set(m.id, call);
    this.link.run.calls.start(call);
  }

  /** Cancels a call, unless its result was sent. @param {Message} m */
  onCancel(m) {
    this.#running.get(m.id)?.abort(text(m.reason));
  }

  /** Forgets a call that is answered. @param {string} id */
  delete(id) {
    this.#running.delete(id);
  }

  /** Cancels the calls of a session. @param {string} session @returns {Promise<void>[]} settled when answered */
  cancel(session) {
    const calls = [...this.#running.values()].filter((c) => c.sessionId === session);
    const answered = calls.map((c) =>
      /** @type {Promise<void>} */ (new Promise((done) => c.whenAnswered.push(done))));
    for (const c of calls) c.abort("session ended");
    return answered;
  }

  /** Cancels all calls. @param {CancelError} reason */
  end({ reason }) {
    for (const call of [...this.#running.values()]) call.abort(reason);
  }

  /**
   * Runs a function that has a time limit. Its signal is aborted at the limit and at the end of the connection; then
   * no caller waits any more, and undefined is returned.
   * @template T
   * @param {string} what
   * @param {number} ms
   * @param {(signal: AbortSignal) => T | Promise<T>} f
   * @returns {Promise<{ value?: T, error?: Error } | undefined>}
   */
  async #limited(what, ms, f) {
    const late = new AbortController();
    const ended = () => late.abort(this.link.stop.signal.reason);
    this.link.stop.signal.addEventListener("abort", ended);
    const timer = setTimeout(() => {
      this.link.log.warn(`${what} did not answer within ${ms / 1000} s`);
      late.abort(new CancelError("timeout"));
    }, ms);
    const result = await this.link.run.guard(what, () => f(late.signal));
    clearTimeout(timer);
    this.link.stop.signal.removeEventListener("abort", ended);
    return late.signal.aborted ? undefined : result;
  }

  /** Asks a gate of the user's about a call. @param {Message} m */
  async onGate({ callId, gateId, sessionId, tool, args, traceparent = "" }) {
    const { decide } = lookup(this.p, (o) => o.rules.find((r) => r.decide &&
      r.wire.gateId === gateId)) ?? {};
    const answer = (/** @type {Decision} */ { decision, reason }) =>
      this.link.trySend({ type: "gate.result", callId, gateId, decision,
        ...(reason && { reason }) });
    if (!decide) {
      answer(deny(`Provider ${this.p.name} has no gate ${JSON.stringify(gateId)}.`));
      return;
    }
    const result = await this.#limited("a gate", GATE_TIMEOUT, (signal) =>
      decide({ callId, sessionId, tool, args, traceparent, signal }),
    );
    if (!result) return; // the gateway has decided without the gate
    const { value, error } = result;
    const decided = ["allow", "deny", "context"].includes(value?.decision);
    const decision = error ? deny(error.message) : decided ? value : deny("The gate did not decide.");
    if (answer(decision)) answer(deny("The gate's answer is too large to be sent."));
  }

  /** Writes a section of the prompt with a function of the user's. @param {Message} m */
  async onTransform({ callId, sessionId, section, current = "" }) {
    const { rewrite } = lookup(this.p, (o) => {
      const t = o.transforms.get(section);
      return t?.rewrite && t;
    }) ?? {};
    const answer = (/** @type {string} */ content) =>
      this.link.trySend({ type: "transform.result", callId, content });
    if (!rewrite) {
      answer(current);
      return;
    }
    const result = await this.#limited(`the function of section ${section}`, TRANSFORM_TIMEOUT,
      (signal) =>
      rewrite({ sessionId, name: section, current, signal }),
    );
    if (!result) return; // the section stayed as it was
    if (typeof result.value === "string" && !answer(result.value)) return;
    if (!result.error) {
      this.link.log.error(`section ${section} stays as it is: its function returned no text, or too much`);
    }
    answer(current);
  }
}
