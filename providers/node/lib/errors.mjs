// Errors of the SDK, and the promises that report theirs.

/** @import { Message } from "./model.mjs" */

/** An error with a code. A handler throws one to say how it failed; the gateway's refusals are such errors. */
export class ProviderError extends Error {
  name = "ProviderError";
  /**
   * @param {string} code NOT_FOUND, TIMEOUT, CANCELLED, UNAUTHORIZED or INTERNAL for a tool; any code of the gateway
   * @param {string} [message]
   * @param {{ retryable?: boolean, cause?: unknown }} [options] retryable: a second try may succeed
   */
  constructor(code, message = "", options = {}) {
    super(message || code, "cause" in options ? { cause: options.cause } : undefined);
    this.code = code;
    this.retryable = options.retryable ?? false;
  }
}

/** No session is bound: the gateway is not running, or has no session. Its code is DISCONNECTED. */
export class NotConnectedError extends ProviderError {
  name = "NotConnectedError";
  constructor(message = "not bound to a session") {
    super("DISCONNECTED", message);
  }
}

/** The session of a pairing, or its gateway, has ended. Call pair() and connect() again. */
export class NotPairedError extends ProviderError {
  name = "NotPairedError";
  /** @param {string} why */
  constructor(why) {
    super("AUTH_FAILED", `the pairing is over: ${why}`);
  }
}

/**
 * The reason of an aborted signal. Its own reason is timeout, interrupted or rebind for a call that the gateway
 * cancelled; session ended, disconnected or stopped.
 */
export class CancelError extends Error {
  name = "AbortError";
  code = "ABORT_ERR";
  /** @param {string} reason */
  constructor(reason) {
    super(`cancelled: ${reason}`);
    this.reason = reason;
  }
}

/** The reason of a question's signal when the question is over. */
export class QuestionEnded extends CancelError {
  /** @param {{ reason: string, by?: string, person?: string }} end */
  constructor({ reason, by = "", person = "" }) {
    super(by ? `the question was ${reason} by ${by}` : `the question is over: ${reason}`);
    /** "answered", "expired", "withdrawn" or "session.ended"; there may be others. */
    this.reason = reason;
    /** Of an answered one: "user", or "provider:NAME". */
    this.by = by;
    /** Who answered, as that provider says; "" if it does not. */
    this.person = person;
  }
}

/**
 * Makes the error NOT_FOUND, for a tool whose arguments name something that does not exist.
 * @param {string} message
 */
export const notFound = (message) => new ProviderError("NOT_FOUND", message);

/** An error that ends the run: waiting does not help. */
export class FatalError extends Error {
  /** @param {Error} cause */
  constructor(cause) {
    super(cause.message, { cause });
    this.error = cause;
  }
}

/** The gateway does not know the token. */
export class RefusedError extends ProviderError {
  name = "RefusedError";
  /** @param {string} why */
  constructor(why) {
    super("AUTH_FAILED", `the gateway refused the token: ${why}`);
  }
}

/**
 * A promise whose failure is reported if no caller waits for it, instead of ending the process.
 * @template T
 * @extends {Promise<T>}
 */
export class Outcome extends Promise {
  awaited = false;
  static get [Symbol.species]() {
    return Promise;
  }
  /** @type {Promise<T>["then"]} */
  then(ok, failed) {
    this.awaited = true;
    return super.then(ok, failed);
  }
  /**
   * @template T
   * @param {Promise<T>} promise
   * @param {(error: Error) => void} report
   * @returns {Promise<T>}
   */
  static of(promise, report) {
    /** @type {Outcome<T>} */
    const outcome = new Outcome((ok, failed) => promise.then(ok, failed));
    super.prototype.then.call(outcome, undefined, (/** @type {Error} */ error) =>
      setImmediate(() => outcome.awaited || report(error)),
    );
    return outcome;
  }
}

/** Returns a thrown value as an Error. @param {unknown} e @returns {Error} */
export const asError = (e) => (e instanceof Error ? e : new Error(String(e)));

/** Returns the code that onError gets with an error. @param {unknown} e */
export const codeOf = (e) => (e instanceof ProviderError ? e.code : "INTERNAL");

/** Makes the error of an error message. @param {Message} m */
export const fromGateway = (m) =>
  new ProviderError(m.code, m.message ? `${m.code}: ${m.message}` : m.code,
    { retryable: m.code === "RATE_LIMITED" });
