// The Node SDK for writing a provider: a process that gives tools, events, rules and prompt text to the
// sessions of a coding agent, through a gateway. docs/providers.md explains it by task.
//
// A provider has one run at a time (class Run), a run has one connection at a time (class Connection), and a
// connection has the calls that are in flight (class Call). What the provider offers (class Offer) outlives them.

import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { isIP } from "node:net";
import { join, resolve } from "node:path";
import { format } from "node:util";
import WebSocket from "ws";

const PROTOCOL_VERSION = 2;
const MIB = 1024 * 1024;
const MAX_FRAME = 16 * MIB;
const TAKEN_OVER = 4001; // the close code of a connection whose reconnect token a newer one used
const MAX_RESULT = 5 * MIB;
const MAX_MESSAGE = 2 * MIB;
const MAX_UNREAD = 64 * MIB; // what may wait in memory for a gateway that does not read
const RESULT_CODES = ["NOT_FOUND", "TIMEOUT", "CANCELLED", "DISCONNECTED", "UNAUTHORIZED", "INTERNAL"];
const MAX_TOOLS = 100;
const MAX_EVENTS = 1000; // events of a session that wait for a slow listener

// Milliseconds.
const DIAL_TIMEOUT = 5000;
const ANSWER_TIMEOUT = 10_000; // for sessions, hello.ack and acks
const LIKELY_WAIT = 5000; // for the first receipt of a gateway that is likely to give them
const ACK_WAIT = 250; // for an answer that may not come: gateways of the core profile answer only refusals
const PING_EVERY = 15_000;
const PONG_TIMEOUT = 10_000;
const CLOSE_TIMEOUT = 1000;
const FIRST_WAIT = 200;
const MAX_WAIT = 5000;
const MAX_WAIT_HERE = 800; // on this machine an attempt costs nothing, and people wait for the gateway's return
const REFUSED_WAIT = 30_000; // a refused token is not sent again before
const STOP_GRACE = 5000;
const CANCEL_GRACE = 2000; // how long a cancelled handler may run on before its call is answered without it
const FIRST_RETRY = 1000; // before a refused hello is sent again; a gateway takes ten in a minute
const MAX_RETRY = 15_000;
const GATE_TIMEOUT = 5000;
const TRANSFORM_TIMEOUT = 2000;
const RECONNECT_WINDOW = 30_000;
const SHUTDOWN_DEADLINE = 10_000;
const MAX_TOOL_TIMEOUT = 3_600_000;

/**
 * @typedef {Record<string, any>} Message one JSON object of the wire (docs/protocol.md)
 * @typedef {"keep" | "surface" | "inject"} Level how far an event goes into a session
 * @typedef {{ id: string, label: string, cwd?: string, foreground?: boolean }} Session
 *
 * @typedef {object} Binding a session that the provider is bound to
 * @property {string} sessionId
 * @property {string} providerId the gateway's id of this provider
 * @property {string} cwd the session's working directory
 * @property {string} persistDir a directory for files that outlive the session; "" for a provider that may have none
 * @property {AbortSignal} signal is aborted when the binding ends
 *
 * @typedef {object} SessionState a change of a bound session
 * @property {string} sessionId
 * @property {AbortSignal} signal of onShutdown: is aborted at the deadline
 * @property {number} deadline of onShutdown: how many milliseconds cleaning up may take; else 0
 *
 * @typedef {object} CallContext what a handler knows of its call
 * @property {string} callId
 * @property {string} sessionId the session that calls
 * @property {string} providerId
 * @property {string} tool
 * @property {string} traceparent W3C trace context of the caller, or ""
 * @property {string} persistDir see Binding
 * @property {AbortSignal} signal is aborted when nobody waits for the result any more; its reason is a CancelError
 * @property {(message: string) => void} progress shows a line in the session's timeline
 *
 * @typedef {object} Tool
 * @property {string} name 1 to 64 letters, digits, "_" or "-"
 * @property {string} description tells the model what the tool does
 * @property {object} [parameters] a JSON Schema of an object, or a schema that can write one, as zod's can
 * @property {(args: any, call: CallContext) => any} [handler] answers a call; without it onToolCall does
 * @property {number} [timeout] of a call, 1 to 3600000 milliseconds; five minutes if left out
 * @property {boolean} [validate] false: the gateway does not check the arguments
 * @property {string} [title] the name for people
 * @property {Annotations} [annotations] hints about what the tool does
 * @property {object} [outputSchema] a JSON Schema of the results, which are then objects
 *
 * @typedef {object} Annotations hints about what a tool does; no gate goes by them, MCP clients may
 * @property {boolean} [readOnlyHint] true: it changes nothing
 * @property {boolean} [destructiveHint] false: it adds, and destroys nothing
 * @property {boolean} [idempotentHint] true: a second call with the same arguments changes nothing more
 * @property {boolean} [openWorldHint] false: it reaches nothing outside its own domain
 *
 * @typedef {object} Match the calls that a rule is about: every part that is there must match
 * @property {string} [tool] a name or a glob; "shell", "edit" and "read" stand for the session's own tools
 * @property {string} [args] a JavaScript regular expression on the arguments as compact JSON
 * @property {string} [file] a glob for the file that the call names
 * @property {string} [provider] the provider that owns the tool
 *
 * @typedef {object} GateCall a tool call that a gate decides about
 * @property {string} callId of this question
 * @property {string} sessionId
 * @property {string} tool
 * @property {any} args
 * @property {string} traceparent
 * @property {AbortSignal} signal is aborted when the gateway decides without the gate
 *
 * @typedef {object} Question what a session asks its user. Its texts are the model's or a tool's: show those of a
 *   permission whole, since the person allows all of it
 * @property {string} id never used twice
 * @property {string} sessionId
 * @property {"permission" | "input" | "form" | string} kind
 * @property {string} message
 * @property {string} detail of a permission: all that will be done; else ""
 * @property {string[]} choices of an input: what to choose from
 * @property {boolean} freeform of an input: an answer that is no choice is allowed
 * @property {Record<string, unknown>} [schema] of a form: the JSON Schema of its content
 * @property {Date} askedAt
 * @property {Date} expiresAt unanswered by then, it is refused
 * @property {AbortSignal} signal is aborted when the question is over, with a QuestionEnded, or the binding
 * @property {(answer: Answer) => Promise<void>} answer resolves if this answer counts, and rejects with a
 *   ProviderError: INVALID_STATE if the question is over, INVALID_JSON for an answer that it does not take
 *
 * @typedef {object} Answer
 * @property {"once" | "session" | "deny"} [decision] of a permission; "deny" also declines an input or a form
 * @property {string} [text] of an input; with "deny": the reason, for the model
 * @property {Record<string, unknown>} [content] of a form
 * @property {string} [person] who answered, for the timeline, in at most 100 bytes; nobody checks it
 *
 * @typedef {{ decision: "allow" | "deny" | "context", reason?: string }} Decision
 * @typedef {{ sessionId: string, name: string, current: string, signal: AbortSignal }} Section
 * @typedef {{ match: string, outcome: Level | "drop" }} FilterRule
 * @typedef {{ session?: string }} InSession the change is for this session only
 *
 * @typedef {object} PushOptions
 * @property {string} [stream] the stream that stores the event; the provider's name if left out
 * @property {Record<string, unknown>} [metadata] is stored with the event
 * @property {string} [prompt] starts a turn with this text, whatever the level
 * @property {string} [session] the id of the session; a provider of all sessions names it or broadcasts
 * @property {boolean} [broadcast] the event is for every bound session
 * @property {boolean} [waitDelivered] wait until a queued event has another fate
 *
 * @typedef {object} Receipt what the gateway did with an event
 * @property {string} sessionId the session that got it; "all" if the gateway keeps it for the next one
 * @property {number} seq the event's number in the session
 * @property {"stored" | "surfaced" | "queued" | "delivered" | "dropped" | ""} fate "" from a gateway without receipts
 * @property {string} reason why it went less far than its level
 * @property {Receipt[]} [each] of a broadcast: the receipt of each session
 *
 * @typedef {{ streams?: string[], last?: number, session?: string }} Query
 * @typedef {object} Entry an event that a stream keeps
 * @property {string} stream
 * @property {string} provider the provider that the stream belongs to
 * @property {Date} time
 * @property {string} text
 * @property {Level} level
 * @property {Record<string, unknown>} [metadata]
 * @property {string} prompt
 *
 * @typedef {object} Logger
 * @property {(...args: unknown[]) => void} debug
 * @property {(...args: unknown[]) => void} info
 * @property {(...args: unknown[]) => void} warn
 * @property {(...args: unknown[]) => void} error
 *
 * @typedef {object} Options
 * @property {Tool[]} [tools]
 * @property {(tool: string, args: any, call: CallContext) => any} [onToolCall] answers the calls of tools without
 *   a handler
 * @property {(binding: Binding) => unknown} [onConnected] runs when a session is bound, and may run as long as it
 * @property {() => unknown} [onDisconnected] runs when a connection with a bound session is lost
 * @property {(state: SessionState) => unknown} [onSessionIdle] the session waits for a prompt
 * @property {(state: SessionState) => unknown} [onShutdown] cleans up; the session may end when it has returned
 * @property {(question: Question) => unknown} [onQuestion] runs for each question of a bound session that waits for an
 *   answer, several at a time, and anew after a reconnect; it needs the grant "questions" of the provider's file
 * @property {(code: string, message: string, error: Error) => unknown} [onError] gets what the provider survives,
 *   and the error that ends it
 * @property {string} [gatewayUrl] instead of TAP_GATEWAY_URL and gateway.json
 * @property {string} [token] instead of TAP_PROVIDER_TOKEN and .provider-token
 * @property {string} [tokenFile] a file with the token, read for each connection
 * @property {string} [instance] distinguishes several running providers of one name
 * @property {Record<string, unknown>} [metadata] describes this instance to the model: title, url
 * @property {string} [session] the only session to bind to, or "all"
 * @property {(active: Session[]) => string} [pickSession] chooses the session to bind to; "" waits for another list
 * @property {(session: Session, signal: AbortSignal) => unknown} [prepareSession] runs before a provider of all
 *   sessions joins one
 * @property {string} [context] is added to each prompt of the user
 * @property {string} [startupContext] is added to the first prompt of a session
 * @property {{ max?: number, scope?: "instance" | "provider" | "tool" }} [concurrency] calls that the gateway sends
 *   at once
 * @property {number} [maxCalls] calls that run at once in this process; 64 if left out
 * @property {boolean} [autoConnect] false: nothing happens before connect()
 * @property {boolean} [silent] true: nothing is logged
 * @property {Logger} [logger] instead of lines on stderr
 */

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
 * Makes the error NOT_FOUND, for a tool that did not find what its arguments name.
 * @param {string} message
 */
export const notFound = (message) => new ProviderError("NOT_FOUND", message);

/**
 * A result of several parts, see contentResult.
 * @typedef {object} Part
 * @property {"text" | "image" | "audio" | "resource"} type
 * @property {string} [text] of a text, or of a resource that is text
 * @property {Uint8Array} [data] the bytes of an image, a sound or a resource
 * @property {string} [mimeType] required for an image and a sound
 * @property {string} [uri] of a resource
 * @property {string} [name] of a resource, for people
 * @property {string} [description] of a resource
 * @property {{ path: string, mimeType?: string, ttl?: number }} [file] in the persistDir, in place of data
 */
class ContentResult {
  /** @param {Part[]} parts @param {unknown} data */
  constructor(parts, data) {
    this.content = parts.map(({ data: bytes, ...part }) => ({
      ...part,
      ...(bytes && { data: Buffer.from(bytes).toString("base64") }),
    }));
    this.data = data;
  }
}

/**
 * A result of several parts, of which a model gets those that it can take.
 * @param {Part[]} parts @param {unknown} [data] what programs get beside them
 */
export const contentResult = (parts, data) => new ContentResult(parts, data);

/** A result in a file, see fileResult. */
class FileResult {
  /** @param {string} path @param {{ mimeType?: string, ttl?: number }} options */
  constructor(path, { mimeType, ttl }) {
    this.wire = { path, ...(mimeType && { mimeType }), ...(ttl && { ttl: Math.ceil(ttl) }) };
  }
}

/**
 * Makes a result of a file in the binding's persistDir, up to 64 MiB.
 * @param {string} path absolute
 * @param {{ mimeType?: string, ttl?: number }} [options] ttl: seconds until the file may go
 */
export const fileResult = (path, options = {}) => new FileResult(path, options);

/**
 * Makes a result that the model sees as an image.
 * @param {Uint8Array} data
 * @param {string} [mimeType]
 */
export const imageResult = (data, mimeType = "image/png") => ({
  image: `data:${mimeType};base64,${Buffer.from(data).toString("base64")}`,
});

/**
 * Lets a call run. A text is given to the model with it.
 * @param {string} [text]
 * @returns {Decision}
 */
export const allow = (text) => (text ? { decision: "context", reason: text } : { decision: "allow" });

/**
 * Stops a call, with a reason for the model.
 * @param {string} [reason]
 * @returns {Decision}
 */
export const deny = (reason) => ({ decision: "deny", ...(reason && { reason }) });

/** An error that ends the run: waiting does not help. */
class FatalError extends Error {
  /** @param {Error} cause */
  constructor(cause) {
    super(cause.message, { cause });
    this.error = cause;
  }
}

/** The gateway does not know the token. */
class RefusedError extends ProviderError {
  name = "RefusedError";
  /** @param {string} why */
  constructor(why) {
    super("AUTH_FAILED", `the gateway refused the token: ${why}`);
  }
}

/**
 * A promise whose failure is reported if nobody waits for it, instead of ending the process.
 * @template T
 * @extends {Promise<T>}
 */
class Outcome extends Promise {
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

/** @param {unknown} e @returns {Error} */
const asError = (e) => (e instanceof Error ? e : new Error(String(e)));

/** @param {unknown} e */
const codeOf = (e) => (e instanceof ProviderError ? e.code : "INTERNAL");

/** @param {Message} m */
const fromGateway = (m) =>
  new ProviderError(m.code, m.message ? `${m.code}: ${m.message}` : m.code, { retryable: m.code === "RATE_LIMITED" });

/** @param {unknown} v */
const text = (v) => (typeof v === "string" ? v : "");

// ---- Finding the gateway

/** @param {string} name @param {string} [url] */
function checkURL(name, url) {
  if (!url) return;
  if (!URL.canParse(url)) throw new Error(`${name}: ${JSON.stringify(url)} is not a URL`);
  if (!/^(wss?|https?):$/.test(new URL(url).protocol)) {
    throw new Error(`${name}: ${JSON.stringify(url)} must begin with ws:// or wss://`);
  }
}

const stateDir = () => join(resolve(process.env.COPILOT_HOME || join(homedir(), ".copilot")), "extensions", "tap");

/** @param {string} file */
function readText(file) {
  try {
    return readFileSync(file, "utf8").trim();
  } catch {
    return "";
  }
}

/**
 * A gateway and the token for it.
 * @typedef {object} Endpoint
 * @property {string} url
 * @property {string} token
 * @property {string} gateway the text of its files: a later gateway at the same address is another
 * @property {boolean} fixedToken the token comes from the options or a pairing; no other is ever tried
 * @property {boolean} fromUser neither URL nor token comes from the gateway's files: a tunnel is the user's own
 */

/** @param {Options} o @returns {{ url: string, info: string }} */
function gatewayURL(o) {
  const { TAP_GATEWAY_URL: env } = process.env;
  if (!o.gatewayUrl) {
    try {
      checkURL("TAP_GATEWAY_URL", env);
    } catch (e) {
      throw new FatalError(asError(e));
    }
  }
  const file = join(stateDir(), "gateway.json");
  const info = readText(file);
  let fromFile = "";
  try {
    fromFile = text(JSON.parse(info).url);
    checkURL("url", fromFile);
  } catch {
    fromFile = ""; // not there, or not written completely
  }
  const url = o.gatewayUrl || env || fromFile;
  if (url) return { url, info };
  throw new Error(`no gateway has written ${file} yet; start one, or set TAP_GATEWAY_URL`);
}

/**
 * Returns the gateways and tokens to try as of now. There are two if the environment has a token but no URL: the
 * token may be one of an earlier gateway. A process with both was started by that gateway and connects only to it.
 * @param {Options} o
 * @returns {Endpoint[]}
 */
function endpoints(o) {
  const { url, info } = gatewayURL(o);
  const env = o.tokenFile ? "" : process.env.TAP_PROVIDER_TOKEN || "";
  const file = o.tokenFile || join(stateDir(), ".provider-token");
  const fileToken = readText(file);
  const given = o.token || env;
  const urlNamed = Boolean(o.gatewayUrl || process.env.TAP_GATEWAY_URL);
  const common = { url, gateway: info + fileToken, fixedToken: Boolean(o.token) };
  const found = [];
  if (given) found.push({ ...common, token: given, fromUser: urlNamed });
  if (fileToken && fileToken !== given && (!given || (!o.token && !process.env.TAP_GATEWAY_URL))) {
    found.push({ ...common, token: fileToken, fromUser: false });
  }
  if (found.length) return found;
  throw new Error(`no token: no gateway has written ${file} yet; start one, or set TAP_PROVIDER_TOKEN`);
}

/** @param {Endpoint} e */
const isPaired = (e) => e.token.startsWith("ext-tok-");

/** @param {Endpoint} a @param {Endpoint} b */
const sameEndpoint = (a, b) => a.url === b.url && a.token === b.token && a.gateway === b.gateway;

/** @param {string} url */
function isHere(url) {
  const host = new URL(url).hostname;
  return host === "localhost" || host === "[::1]" || /^127\./.test(host);
}

/** @param {string | Buffer} data */
const sha256 = (data) => createHash("sha256").update(data).digest();

/**
 * A question to a gateway whether it knows the token (docs/protocol.md, "Is it your gateway?").
 * @param {Endpoint} to
 */
function question(to) {
  const key = sha256(to.token);
  const nonce = randomBytes(16).toString("hex");
  return {
    header: `${sha256(key).toString("hex").slice(0, 16)} ${nonce}`,
    /** @param {import("node:http").IncomingMessage} answer */
    check(answer) {
      const [given, reached = ""] = String(answer.headers["tapgw-proof"] ?? "").split(" ");
      const want = createHmac("sha256", key).update(`tapgw proof 1\n${nonce}\n${reached}`).digest("hex");
      const proven = given.length === want.length && timingSafeEqual(Buffer.from(given), Buffer.from(want));
      if (!proven) throw new Error("it could not prove that it knows the token");
      const { remoteAddress = "", remotePort } = answer.socket;
      const host = remoteAddress.replace(/^::ffff:(?=\d+\.)/, "").replace(/%.*$/, "");
      const dialled = `${isIP(host) === 6 ? `[${host}]` : host}:${remotePort}`;
      if (dialled !== reached && !to.fromUser) {
        throw new Error(
          `it passes connections on: ${dialled} was dialled, and the gateway was reached at ${reached}; ` +
            "if that is a tunnel of yours, give both the URL and the token",
        );
      }
    },
  };
}

/**
 * Says why a server refused the upgrade to a WebSocket.
 * @param {import("node:http").IncomingMessage} answer
 * @param {string} body
 */
function refusal(answer, body) {
  try {
    const { code, message } = JSON.parse(body).error;
    if (code === "AUTH_FAILED") return new RefusedError(text(message));
    if (text(message)) return new Error(message);
  } catch {
    // It is no gateway of ours.
  }
  return new Error(`it answered ${answer.statusCode} ${answer.statusMessage}; is it a gateway?`);
}

/**
 * Opens a WebSocket to a gateway. If there is a token, the gateway first proves that it knows it.
 * @param {Endpoint} to
 * @param {AbortSignal} signal
 * @returns {Promise<WebSocket>}
 */
function dial(to, signal) {
  return new Promise((done, failed) => {
    const asked = question(to);
    const ws = new WebSocket(to.url, {
      headers: to.token ? { "Tapgw-Prove": asked.header } : {},
      handshakeTimeout: DIAL_TIMEOUT,
      maxPayload: MAX_FRAME,
      perMessageDeflate: false,
    });
    /** @type {Error | undefined} */
    let why;
    const giveUp = (/** @type {Error} */ e) => {
      why ??= e;
      ws.terminate();
    };
    const stop = () => giveUp(asError(signal.reason));
    signal.addEventListener("abort", stop);
    ws.on("upgrade", (answer) => {
      try {
        if (to.token) asked.check(answer);
      } catch (e) {
        giveUp(new Error(`the server at ${to.url} is not the gateway of the token: ${asError(e).message}`));
      }
    });
    ws.on("unexpected-response", (_request, answer) => {
      let body = "";
      answer.setEncoding("utf8");
      answer.on("data", (/** @type {string} */ part) => (body += part.slice(0, 1024 - body.length)));
      answer.on("close", () => giveUp(refusal(answer, body)));
    });
    ws.on("error", (e) => (why ??= new Error(`connecting to ${to.url}: ${e.message || asError(e).name}`)));
    ws.once("close", () => {
      signal.removeEventListener("abort", stop);
      failed(why ?? new Error(`connecting to ${to.url}: the server hung up`));
    });
    ws.once("open", () => {
      if (why) return;
      signal.removeEventListener("abort", stop);
      done(ws);
    });
    if (signal.aborted) stop();
  });
}

// ---- What a provider offers

/** @param {unknown} value */
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * Returns a tool as the gateway gets it, and throws the first mistake in it.
 * @param {Tool} tool
 * @returns {{ definition: Tool, wire: Message, parse?: (args: any) => any }}
 */
function prepareTool(tool) {
  const wrong = (/** @type {string} */ why) => new TypeError(`tool ${JSON.stringify(tool.name)}: ${why}`);
  if (typeof tool.name !== "string" || !/^[A-Za-z0-9_-]{1,64}$/.test(tool.name)) {
    throw wrong('its name must be 1 to 64 letters, digits, "_" or "-"');
  }
  if (!tool.description) throw wrong("it needs a description: the model chooses by it");
  const { timeout, validate, title, annotations, outputSchema } = tool;
  if (timeout !== undefined && !(Number.isInteger(timeout) && timeout >= 1 && timeout <= MAX_TOOL_TIMEOUT)) {
    throw wrong(`its timeout is ${timeout}, but must be 1 to ${MAX_TOOL_TIMEOUT} milliseconds`);
  }
  if (title !== undefined && typeof title !== "string") throw wrong("its title must be a text");
  if (annotations !== undefined && !isObject(annotations)) throw wrong("its annotations must be an object");
  if (outputSchema !== undefined && !isObject(outputSchema)) throw wrong("its outputSchema must be an object");
  const { schema, parse } = readSchema(tool.parameters, wrong);
  return {
    definition: tool,
    parse,
    wire: {
      name: tool.name,
      description: tool.description,
      parameters: schema,
      ...(timeout && { timeout }),
      ...(validate === false && { validate }),
      ...(title && { title }),
      ...(annotations && { annotations }),
      ...(outputSchema && { outputSchema }),
    },
  };
}

/**
 * Returns the JSON Schema of a tool's parameters. A schema object such as zod's writes its own, and reads arguments.
 * @param {any} schema
 * @param {(why: string) => Error} wrong
 * @returns {{ schema: object, parse?: (args: any) => any }}
 */
function readSchema(schema, wrong) {
  if (schema === undefined || schema === null) return { schema: { type: "object" } };
  if (typeof schema !== "object" && typeof schema !== "function") throw wrong("its parameters must be an object");
  const standard = schema["~standard"];
  if (!standard) {
    if (Array.isArray(schema) || typeof schema === "function") throw wrong("its parameters must be a JSON Schema");
    return { schema };
  }
  const write = standard.jsonSchema?.input ?? (schema.toJSONSchema && (() => schema.toJSONSchema({ io: "input" })));
  if (!write) throw wrong("its schema cannot write itself as JSON Schema: give the JSON Schema as parameters");
  const parse = async (/** @type {any} */ args) => {
    const result = await standard.validate(args);
    if (!result.issues) return result.value;
    const issues = result.issues.map((/** @type {any} */ i) => {
      const path = (i.path ?? []).map((/** @type {any} */ p) => p?.key ?? p).join(".");
      return path ? `${path}: ${i.message}` : i.message;
    });
    throw new ProviderError("INTERNAL", `wrong arguments: ${issues.join("; ")}`);
  };
  return { schema: write({ target: "draft-2020-12" }), parse };
}

/** @typedef {ReturnType<typeof prepareTool>} PreparedTool */

/**
 * What a provider gives its sessions. It is not changed once it is sent: a change makes a copy.
 */
class Offer {
  /** @type {PreparedTool[]} */
  tools = [];
  /** @type {Rule[]} */
  rules = [];
  /** @type {Map<string, Transform>} by section */
  transforms = new Map();
  context = "";
  /** @type {Map<string, FilterRule[]>} by stream; an empty list removes an older filter */
  filters = new Map();
  /** @type {Map<string, { tools?: PreparedTool[], context?: string }>} what single sessions have instead, by id */
  perSession = new Map();

  clone() {
    const o = Object.assign(new Offer(), this);
    o.transforms = new Map(this.transforms);
    o.filters = new Map(this.filters);
    o.perSession = new Map(this.perSession);
    return o;
  }

  /** @param {string} session */
  toolsIn(session) {
    return this.perSession.get(session)?.tools ?? this.tools;
  }

  /** @param {string} session @param {{ tools?: PreparedTool[], context?: string }} special */
  setSpecial(session, special) {
    this.perSession.set(session, { ...this.perSession.get(session), ...special });
  }

  /**
   * Changes the tools of one session, or of all ("").
   * @param {string} session
   * @param {(tools: PreparedTool[]) => PreparedTool[]} edit
   */
  changeTools(session, edit) {
    const limited = (/** @type {PreparedTool[]} */ tools) => {
      const edited = edit(tools);
      if (edited.length <= MAX_TOOLS) return edited;
      throw new Error(`${edited.length} tools are over the limit of ${MAX_TOOLS}: use another provider`);
    };
    if (session) {
      this.setSpecial(session, { tools: limited(this.toolsIn(session)) });
      return;
    }
    this.tools = limited(this.tools);
    for (const [id, special] of this.perSession) {
      if (special.tools) this.setSpecial(id, { tools: limited(special.tools) });
    }
  }

  /** @param {string} session */
  toolsUpdate(session) {
    const special = [...this.perSession.values()].some((s) => s.tools);
    return session || !special ? { tools: this.toolsIn(session).map((t) => t.wire) } : undefined;
  }
}

/** @typedef {{ action: string, content?: string, rewrite?: (s: Section) => any }} Transform */

/** @param {Transform} t */
const wireTransform = ({ action, content }) => (action === "callback" ? { action } : { action, content });

/** A rule of a provider about tool calls. deny(), addContext() and gate() of a provider make one. */
export class Rule {
  /** The revision of the session's state in which the rule is in force; 0 if no session was bound. */
  revision = 0;
  #change;
  /**
   * @param {(what: string, edit: (rules: Rule[]) => Rule[]) => Promise<number>} change
   * @param {Message} wire
   * @param {(call: GateCall) => any} [decide] of a gate
   */
  constructor(change, wire, decide) {
    this.#change = change;
    this.wire = wire;
    this.decide = decide;
  }
  /** Removes the rule. To replace a rule without a gap, add the new one first. */
  remove() {
    return this.#change("removing a rule", (rules) => rules.filter((r) => r !== this));
  }
}

/**
 * A change of the offer on its way to the gateway. Changes are sent one after the other.
 * @typedef {object} Change
 * @property {string} what for errors
 * @property {string} session "": all bound sessions
 * @property {(o: Offer) => void} [apply] changes a copy of the offer
 * @property {(o: Offer) => Message} [message] makes the message to the gateway
 * @property {() => void} [then] runs when its turn has come; such a change has neither apply nor message
 * @property {(revision: number) => void} [done]
 * @property {(error: Error) => void} [failed] without it, nobody waits, and errors are reported
 */

// ---- The provider

/** A provider, running or not; createProvider makes one. */
export class Provider {
  /** @type {Run | undefined} */
  #run;
  #closed = Promise.resolve();
  /** @type {Map<string, ((event: any, signal: AbortSignal) => any)[]>} */
  #listeners = new Map();
  #gates = 0;
  /** @type {Shared} */
  #shared;

  /** @param {string} name @param {Options} options */
  constructor(name, options) {
    // The gateway spells names this way.
    const normal = name.toLowerCase().replace(/[^a-z0-9._-]+/g, "-").replace(/^-+|-+$/g, "");
    if (!/^[a-z0-9][a-z0-9._-]{0,63}$/.test(normal)) {
      throw new TypeError("a provider's name must be 1 to 64 letters, digits, '.', '_' or '-'");
    }
    checkURL("gatewayUrl", options.gatewayUrl);
    if (options.metadata) JSON.stringify(options.metadata);
    this.name = name;
    const log = options.silent ? silentLogger : options.logger ?? stderrLogger(name);
    this.#shared = {
      name, options, log, listeners: this.#listeners, offer: new Offer(), sent: undefined, queue: [],
      changing: undefined, pushing: undefined, paired: undefined,
    };
    this.#shared.offer.context = options.context ?? "";
    this.#shared.offer.tools = uniqueTools(options.tools ?? []);
  }

  /** Whether a session is bound. */
  get connected() {
    return this.#shared.pushing !== undefined;
  }

  /** The gateway's id of this provider; null while no session is bound. */
  get providerId() {
    return this.#shared.pushing?.providerId ?? null;
  }

  /** The id of the bound session, "all", or null. */
  get sessionId() {
    return this.#shared.pushing?.helloSession ?? null;
  }

  /**
   * Settles when the provider has stopped: it resolves after disconnect(), and rejects where waiting can't help, such
   * as a refused token of the options, a wrong offer, or a pairing that has ended.
   */
  get closed() {
    return this.#closed;
  }

  /** Begins to find the gateway and to serve. Returns closed. */
  connect() {
    if (this.#run) return this.#closed;
    const run = new Run(this.#shared);
    this.#run = run;
    this.#closed = run.serve().finally(() => (this.#run = undefined));
    this.#closed.catch(() => {}); // it was reported, and is there for those who wait
    return this.#closed;
  }

  /**
   * Says goodbye and stops. Running handlers are cancelled and have five seconds to return.
   * @returns {Promise<void>} resolves when the provider has stopped
   */
  async disconnect() {
    this.#run?.stop();
    await this.#closed.catch(() => {});
  }

  // Events

  /** Tells the model of an event, in a turn of its own. @param {string} event @param {PushOptions} [options] */
  push(event, options) {
    return this.pushEvent("inject", event, options);
  }

  /** Shows an event in the session's timeline. @param {string} event @param {PushOptions} [options] */
  surface(event, options) {
    return this.pushEvent("surface", event, options);
  }

  /** Stores an event in its stream. @param {string} event @param {PushOptions} [options] */
  keep(event, options) {
    return this.pushEvent("keep", event, options);
  }

  /**
   * Sends an event to a session. The promise fails with a NotConnectedError, or a ProviderError with the gateway's
   * code. If nobody waits for it, onError gets the error.
   * @param {Level} level
   * @param {string} event what happened; may be empty if there is a prompt
   * @param {PushOptions} [options]
   * @returns {Promise<Receipt>}
   */
  pushEvent(level, event, options = {}) {
    const { stream, metadata, prompt, session, broadcast, waitDelivered = false } = options;
    const message = {
      level,
      ...(event && { event }), ...(prompt && { prompt }), ...(stream && { stream }), ...(metadata && { metadata }),
      ...(session && { sessionId: session }), ...(broadcast && { broadcast }),
    };
    return this.#outcome("pushing", async () => {
      if (!event && !prompt) throw new ProviderError("INVALID_JSON", "an event needs a text or a prompt");
      return this.#bound().push(message, waitDelivered);
    });
  }

  /**
   * Makes the gateway filter the events of a stream: the first rule that matches decides. No rules remove the filter.
   * @param {string} stream
   * @param {FilterRule[]} rules
   */
  setFilter(stream, rules) {
    const list = [...rules];
    return this.#change({
      what: `setting the filter of ${stream}`, session: "",
      apply: (o) => o.filters.set(stream, list),
      message: () => ({ type: "filter.set", stream, rules: list }),
    });
  }

  /**
   * Reads streams, the newest event first.
   * @param {Query} [query] streams: names, or "stream@provider"; all of this provider if left out
   * @returns {Promise<Entry[]>}
   */
  query({ streams, last, session } = {}) {
    const message = { ...(streams && { streams }), ...(last && { last }), ...(session && { sessionId: session }) };
    return this.#outcome("querying", async () => this.#bound().query(message));
  }

  /**
   * Calls listener with each event of one type, those of one session in order: "tool.execution_complete",
   * "user.message", "assistant.message", "assistant.intent", "session.error" or "event.pushed". An event has sessionId
   * beside the fields of its type.
   * On a running provider it has an effect from the next connection on.
   * @param {string} event
   * @param {(event: Message & { sessionId: string }, signal: AbortSignal) => any} listener
   */
  subscribe(event, listener) {
    this.#listeners.set(event, [...(this.#listeners.get(event) ?? []), listener]);
  }

  // Tools

  /**
   * Adds a tool or replaces the tool of that name. Resolves with the revision of the session's state that has it; 0
   * while no session is bound.
   * @param {Tool} tool
   * @param {InSession} [where]
   */
  addTool(tool, { session = "" } = {}) {
    const prepared = prepareTool(tool);
    const { name } = tool;
    return this.#change({
      what: `adding tool ${name}`, session,
      apply: (o) => o.changeTools(session, (tools) => {
        const i = tools.findIndex((t) => t.wire.name === name);
        return i < 0 ? [...tools, prepared] : tools.with(i, prepared);
      }),
      message: (o) => ({ type: "tools.update", ...(o.toolsUpdate(session) ?? { tools: [prepared.wire], remove: [] }) }),
    });
  }

  /**
   * Removes a tool; running calls of it go on to their end.
   * @param {string} name
   * @param {InSession} [where]
   */
  removeTool(name, { session = "" } = {}) {
    return this.#change({
      what: `removing tool ${name}`, session,
      apply: (o) => o.changeTools(session, (tools) => tools.filter((t) => t.wire.name !== name)),
      message: (o) => ({ type: "tools.update", ...(o.toolsUpdate(session) ?? { remove: [name] }) }),
    });
  }

  /**
   * Replaces all tools in one step.
   * @param {Tool[]} tools
   * @param {InSession} [where]
   */
  updateTools(tools, { session = "" } = {}) {
    const prepared = uniqueTools(tools);
    return this.#change({
      what: "updating the tools", session,
      apply: (o) => o.changeTools(session, () => prepared),
      message: () => ({ type: "tools.update", tools: prepared.map((t) => t.wire) }),
    });
  }

  // Rules

  /** Denies the calls that match, with a reason for the model. @param {Match} match @param {string} reason */
  deny(match, reason) {
    return this.#addRule("adding a rule", { match, action: "deny", reason });
  }

  /** Gives the model a text with the calls that match. @param {Match} match @param {string} content */
  addContext(match, content) {
    return this.#addRule("adding a rule", { match, action: "context", content });
  }

  /**
   * Asks decide about each call that matches, before the call runs. The call is denied unless decide returns allow()
   * within five seconds.
   * @param {Match} match
   * @param {(call: GateCall) => Decision | Promise<Decision>} decide
   * @param {{ failOpen?: boolean }} [options] failOpen: calls that got no answer are allowed
   */
  gate(match, decide, { failOpen = false } = {}) {
    const gateId = `gate-${++this.#gates}`;
    return this.#addRule("adding a gate", { match, action: "gate", gateId, ...(failOpen && { failOpen }) }, decide);
  }

  // The prompt

  /** Replaces the text that is added to each prompt of the user. @param {string} context @param {InSession} [where] */
  setContext(context, { session = "" } = {}) {
    return this.#change({
      what: "setting the context", session,
      apply: (o) => {
        if (session) {
          o.setSpecial(session, { context });
          return;
        }
        o.context = context;
        for (const id of o.perSession.keys()) o.setSpecial(id, { context: undefined });
      },
      message: () => ({ type: "context.update", context }),
    });
  }

  /** Adds a text to the end of a section of the system prompt. @param {string} section @param {string} content */
  append(section, content) {
    return this.#transform(section, { action: "append", content });
  }

  /** Adds a text to the beginning of a section. @param {string} section @param {string} content */
  prepend(section, content) {
    return this.#transform(section, { action: "prepend", content });
  }

  /** Puts a text in place of a section. @param {string} section @param {string} content */
  replace(section, content) {
    return this.#transform(section, { action: "replace", content });
  }

  /**
   * Makes a function write a section for each prompt. It has two seconds; if it fails, the section stays as it is.
   * @param {string} section
   * @param {(section: Section) => string | Promise<string>} rewrite
   */
  transform(section, rewrite) {
    return this.#transform(section, { action: "callback", rewrite });
  }

  /** Removes the provider's change of a section. @param {string} section */
  removeTransform(section) {
    return this.#transform(section, undefined);
  }

  // Pairing

  /**
   * Gets a token for a provider that has none: the gateway shows a code, and ask asks the user for it. connect() then
   * uses the token. A wrong code is the ProviderError AUTH_FAILED: pair() again.
   * @param {(prompt: string, signal: AbortSignal) => string | Promise<string>} ask
   * @returns {Promise<string>} the token, for a program that may restart
   */
  async pair(ask) {
    const { options } = this.#shared;
    let url;
    try {
      ({ url } = gatewayURL(options));
    } catch (e) {
      throw e instanceof FatalError ? e.error : e;
    }
    const fromUser = Boolean(options.gatewayUrl || process.env.TAP_GATEWAY_URL);
    const to = { url, token: "", gateway: "", fixedToken: true, fromUser };
    const token = await pairing(this.#shared, to, ask);
    this.#shared.paired = { ...to, token };
    return token;
  }

  #bound() {
    if (!this.#shared.pushing) throw new NotConnectedError();
    return this.#shared.pushing;
  }

  /**
   * @template T
   * @param {string} what
   * @param {() => Promise<T>} run
   */
  #outcome(what, run) {
    return Outcome.of(run(), (error) => report(this.#shared, error, what));
  }

  /** @param {Change} change @returns {Promise<number>} */
  #change(change) {
    const done = new Promise((ok, failed) => {
      submit(this.#shared, { ...change, done: ok, failed });
    });
    return Outcome.of(done, (error) => report(this.#shared, error, change.what));
  }

  /** @param {string} what @param {(rules: Rule[]) => Rule[]} edit */
  #changeRules = (what, edit) =>
    this.#change({
      what, session: "",
      apply: (o) => void (o.rules = edit(o.rules)),
      message: (o) => ({ type: "hooks.update", onPreToolUse: o.rules.map((r) => r.wire) }),
    });

  /**
   * @param {string} what
   * @param {Message} wire
   * @param {(call: GateCall) => any} [decide]
   * @returns {Promise<Rule>}
   */
  #addRule(what, wire, decide) {
    const rule = new Rule(this.#changeRules, wire, decide);
    const added = this.#changeRules(what, (rules) => [...rules, rule]);
    return Outcome.of(
      added.then((revision) => Object.assign(rule, { revision })),
      (error) => report(this.#shared, error, what),
    );
  }

  /** @param {string} section @param {Transform | undefined} t */
  #transform(section, t) {
    if (!section) throw new TypeError("changing a section of the prompt: its name is empty");
    return this.#change({
      what: `changing section ${section}`, session: "",
      apply: (o) => void (t ? o.transforms.set(section, t) : o.transforms.delete(section)),
      message: () => ({ type: "hooks.update", transforms: { [section]: t ? wireTransform(t) : null } }),
    });
  }
}

/**
 * Makes a provider and connects it, unless autoConnect is false.
 * @param {string} name who it is, to the gateway and to other providers
 * @param {Options} [options]
 */
export function createProvider(name, options = {}) {
  const provider = new Provider(name, options);
  if (options.autoConnect !== false) provider.connect();
  return provider;
}

export default createProvider;

/** @param {Tool[]} tools */
function uniqueTools(tools) {
  const names = new Set();
  for (const { name } of tools) {
    if (names.has(name)) throw new TypeError(`tool ${JSON.stringify(name)}: stands twice in the list`);
    names.add(name);
  }
  return tools.map(prepareTool);
}

/** @type {Logger} */
const silentLogger = { debug() {}, info() {}, warn() {}, error() {} };

/**
 * Escapes what a terminal obeys, for arguments of the model's can be in errors.
 * @param {string} s
 */
const visible = (s) =>
  s.replace(/[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (c) =>
    `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );

/** @param {string} name @returns {Logger} */
function stderrLogger(name) {
  const line = (/** @type {unknown[]} */ ...args) => console.error("%s", visible(format(`[${name}]`, ...args)));
  return { debug() {}, info: line, warn: line, error: line };
}

/**
 * What a provider, its run and its connection share.
 * @typedef {object} Shared
 * @property {string} name
 * @property {Options} options
 * @property {Logger} log
 * @property {Map<string, ((event: any, signal: AbortSignal) => any)[]>} listeners
 * @property {Offer} offer the gateway has it, or gets it next
 * @property {Offer | undefined} sent the gateway has got it and not confirmed it
 * @property {Change[]} queue
 * @property {Connection | undefined} changing sends the queue; without it, changes happen without a gateway
 * @property {Connection | undefined} pushing sends pushes and queries
 * @property {Endpoint | undefined} paired the gateway that pair() got a token from
 */

/** Gives an error to onError. @param {Shared} p @param {Error} error @param {string} [what] */
function report(p, error, what) {
  p.log.warn(what ? `${what}: ${error.message}` : error.message);
  try {
    const returned = p.options.onError?.(codeOf(error), error.message, error);
    Promise.resolve(returned).catch((e) => p.log.error("onError failed:", e));
  } catch (e) {
    p.log.error("onError failed:", e);
  }
}

/** Queues a change, or makes it at once while there is no connection. @param {Shared} p @param {Change} change */
function submit(p, change) {
  if (!p.changing) {
    applyOffline(p, change);
    return;
  }
  p.queue.push(change);
  p.changing.offerChanged();
}

/** @param {Shared} p @param {Change} change */
function applyOffline(p, change) {
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
const lookup = (p, find) => find(p.offer) ?? (p.sent && find(p.sent));

// ---- One run

/** One run of a provider: it connects again and again until it is stopped or waiting can't help. */
class Run {
  /** @type {{ token: string, to: Endpoint, until: number } | undefined} what restores a binding; until: 0 while up */
  reconnect;
  /** The last bound session, until it ends. */
  session = "";
  /** @type {Set<string>} sessions that prepareSession has run for */
  prepared = new Set();
  /** @type {{ to: Endpoint, at: number }[]} */
  refused = [];
  failing = false;
  #far = false; // the last gateway is not on this machine
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
    this.calls = new Dispatcher(shared.options.maxCalls || 64);
  }

  stop() {
    this.stopping.abort(new CancelError("stopped"));
  }

  get stopped() {
    return this.stopping.signal.aborted;
  }

  async serve() {
    await null; // the program may say more about the provider before it connects
    try {
      for (let attempt = 0; !this.stopped; attempt++) {
        const { lasted, error } = await this.#tryEndpoints();
        if (this.stopped) break;
        if (error instanceof FatalError) throw error.error;
        if (lasted >= MAX_WAIT) attempt = 0;
        this.#reportFailure(error);
        await this.#sleep(this.#backoff(attempt));
      }
    } catch (e) {
      report(this.p, asError(e), "stopped");
      throw e;
    } finally {
      await this.#settled();
    }
  }

  /** The wait before an attempt. The jitter only shortens it. @param {number} attempt */
  #backoff(attempt) {
    const most = this.#far ? MAX_WAIT : MAX_WAIT_HERE;
    const wait = Math.min(FIRST_WAIT * 1.5 ** attempt, most);
    return wait / 2 + (Math.random() * wait) / 2;
  }

  /** @param {number} ms @returns {Promise<void>} */
  #sleep(ms) {
    return new Promise((done) => {
      const { signal } = this.stopping;
      const end = () => {
        clearTimeout(timer);
        signal.removeEventListener("abort", end);
        done();
      };
      const timer = setTimeout(end, ms);
      signal.addEventListener("abort", end);
      if (signal.aborted) end();
    });
  }

  /**
   * Tries each endpoint once until one accepts the provider, and serves that connection until its end.
   * @returns {Promise<{ lasted: number, error: Error }>}
   */
  async #tryEndpoints() {
    let found;
    try {
      found = this.p.paired ? [this.p.paired] : endpoints(this.p.options);
    } catch (e) {
      return { lasted: 0, error: asError(e) };
    }
    this.#far = found.some((e) => !isHere(e.url));
    const errors = [];
    for (const to of found) {
      const before = this.refused.find((r) => sameEndpoint(r.to, to));
      if (before && Date.now() - before.at < REFUSED_WAIT) {
        errors.push(new RefusedError("the same token was refused before"));
        continue;
      }
      const { lasted, accepted, error } = await this.#connect(to);
      if (accepted || this.stopped || error instanceof FatalError) return { lasted, error };
      errors.push(error);
    }
    const error = errors.length === 1 ? errors[0] : new Error(errors.map((e) => e.message).join("; "));
    return { lasted: 0, error };
  }

  /** Serves an endpoint, with the reconnect token first; if that is refused, the token follows. @param {Endpoint} to */
  async #connect(to) {
    const r = this.reconnect;
    if (r && sameEndpoint(r.to, to) && (r.until === 0 || Date.now() < r.until)) {
      const ended = await new Connection(this, to, r.token).serve();
      if (ended.accepted || !(ended.error instanceof RefusedError)) return ended;
    }
    this.reconnect = undefined;
    const ended = await new Connection(this, to, "").serve();
    if (!(ended.error instanceof RefusedError)) return ended;
    if (isPaired(to)) return { ...ended, error: new FatalError(new NotPairedError(ended.error.message)) };
    if (to.fixedToken) return { ...ended, error: new FatalError(ended.error) };
    this.refused = [...this.refused.filter((old) => !sameEndpoint(old.to, to)), { to, at: Date.now() }];
    return ended;
  }

  /** Reports the end of a connection, or the first of several attempts that fail. @param {Error} error */
  #reportFailure(error) {
    if (this.failing) {
      this.p.log.debug(`not connected: ${error.message}`);
      return;
    }
    this.failing = true;
    report(this.p, error, "not connected; trying again");
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

  /** Ends the wait of #settled if nothing runs any more. */
  settle() {
    if (this.#busy === 0 && this.calls.running === 0) this.#idle?.();
  }

  /** Waits for functions of the user's that still run, and leaves behind those that ignore their signal. */
  async #settled() {
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

/** Runs at most limit calls at once; the others wait in their order. */
class Dispatcher {
  running = 0;
  /** @type {Set<Call>} */
  #queue = new Set();

  /** @param {number} limit */
  constructor(limit) {
    this.limit = limit;
  }

  /** @param {Call} call */
  start(call) {
    if (this.running >= this.limit) {
      this.#queue.add(call);
      return;
    }
    this.running++;
    void this.#work(call);
  }

  /** Removes a call that has not begun; false if it has. @param {Call} call */
  remove(call) {
    return this.#queue.delete(call);
  }

  /** @param {Call} call */
  async #work(call) {
    await call.run();
    this.running--;
    const [next] = this.#queue;
    if (next) {
      this.#queue.delete(next);
      this.start(next);
    } else {
      call.connection.run.settle();
    }
  }
}

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

  /** @param {Connection} connection @param {Message} m */
  constructor(connection, m) {
    this.connection = connection;
    this.callId = m.id;
    this.sessionId = m.sessionId;
    this.tool = m.tool;
    this.args = m.args ?? {};
    this.traceparent = m.traceparent ?? "";
    // As it is now: a change of the offer does not change a call.
    this.prepared = lookup(connection.p, (o) => o.toolsIn(m.sessionId).find((t) => t.wire.name === m.tool));
  }

  // CallContext

  get providerId() {
    return this.connection.providerId;
  }

  get persistDir() {
    return this.connection.persistDir;
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
    this.connection.trySend({ type: "tool.progress", id: this.callId, message: String(message) });
  }

  async run() {
    if (this.answered) return;
    let result;
    try {
      result = success(this.callId, await this.#handle());
    } catch (e) {
      if (!this.cancelled && !(e instanceof ProviderError)) this.connection.log.warn(`tool ${this.tool} failed:`, e);
      result = failure(this.callId, e);
    }
    this.answer(result);
  }

  #handle() {
    const { prepared, connection: { p: { options } } } = this;
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
    if (this.connection.run.calls.remove(this)) {
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
    const { connection, callId, cancelled } = this;
    connection.calls.delete(callId);
    if (!result || cancelled) result = failure(callId, new ProviderError("CANCELLED", "Cancelled"));
    const error = connection.sendText(result, MAX_RESULT, "tool.result");
    if (error) {
      const why = new Error(`${error.message}; return a file, or less`);
      connection.sendText(failure(callId, why), MAX_RESULT, "tool.result");
    }
    for (const f of this.whenAnswered) f();
  }
}

/**
 * Makes what a handler gets. A handler may take it apart, so its functions need no this.
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

/** Writes the result of a call whose handler has returned. @param {string} id @param {any} out */
function success(id, out) {
  if (out instanceof FileResult) {
    if (!out.wire.path) throw new TypeError("the result is a file without a path");
    return JSON.stringify({ type: "tool.result", id, file: out.wire });
  }
  if (out instanceof ContentResult) {
    return JSON.stringify({ type: "tool.result", id, content: out.content, data: out.data ?? undefined });
  }
  return `{"type":"tool.result","id":${JSON.stringify(id)},"data":${JSON.stringify(out) ?? "null"}}`;
}

/** Writes the result of a call whose handler has thrown. @param {string} id @param {unknown} e */
function failure(id, e) {
  const error = asError(e);
  const coded = e instanceof ProviderError ? e : error.cause instanceof ProviderError ? error.cause : undefined;
  const code = coded ? coded.code : error.name === "TimeoutError" ? "TIMEOUT" : "INTERNAL";
  const errorCode = RESULT_CODES.includes(code) ? code : "INTERNAL";
  return JSON.stringify({
    type: "tool.result",
    id,
    error: String(error.message || errorCode),
    errorCode,
    ...(coded?.retryable && { retryable: true }),
  });
}

// ---- One connection

/**
 * A change that the gateway has got and not answered yet.
 * @typedef {{ change: Change, id: string, type: string, due: Set<string>, revision: number }} SentChange
 *
 * A push, query or answer that waits for its answers, one of each session.
 * @typedef {object} Request
 * @property {string} type
 * @property {Set<string>} due the sessions that have not answered
 * @property {boolean} untilDelivered
 * @property {Receipt[]} receipts
 * @property {Message} [history]
 * @property {Error} [error]
 * @property {() => void} end
 *
 * A session that a provider of all sessions is about to join.
 * @typedef {object} Joining
 * @property {AbortController} stop ends prepareSession
 * @property {boolean} ready prepareSession has returned
 * @property {boolean} asked session.ready, or hello, was sent
 * @property {Bound} [bound] set once the gateway has answered
 *
 * A joined session, until its end.
 * @typedef {object} Bound
 * @property {Binding} binding
 * @property {AbortController} stop
 * @property {boolean} ending
 * @property {boolean} started onConnected was started, or will never be
 * @property {Promise<unknown>} returned settles when onConnected has returned
 * @property {Map<string, AbortController>} questions those that wait, by id
 */

/** One connection to a gateway, from dialling to its end. */
class Connection {
  /** @type {"sessions" | "hello" | "ack" | "bound" | "ending"} what it waits for, or is (docs/protocol.md, "States") */
  state = "sessions";
  /** @type {Map<string, Call>} */
  calls = new Map();
  providerId = "";
  persistDir = "";
  helloSession = "";
  authenticatedAt = 0;
  /** @type {Session[]} */
  active = [];
  /** @type {Set<string>} sessions that have ended and are still in the list */
  ended = new Set();
  /** @type {Set<string>} sessions of the list that the gateway refused to bind */
  unbindable = new Set();
  /** @type {Map<string, Bound>} by session; at most one unless the provider is for all sessions */
  bindings = new Map();
  /** @type {Map<string, Joining>} */
  joining = new Map();
  /** @type {SentChange | undefined} */
  sent;
  /** @type {Map<string, Request>} */
  requests = new Map();
  confirmsUpdates = false;
  givesReceipts = false;
  receiptWait = ACK_WAIT; // of a push, while it is not known whether the gateway gives receipts
  wasBound = false;
  paused = false;
  count = 0;
  retryIn = FIRST_RETRY;
  over = false;
  /** Is aborted at the end of the connection. */
  stop = new AbortController();
  /** @type {Error | undefined} why this side cut the connection */
  broken;
  /** @type {Record<string, NodeJS.Timeout | undefined>} */
  timers = {};

  /** @param {Run} run @param {Endpoint} to @param {string} restoring the reconnect token for auth, or "" */
  constructor(run, to, restoring) {
    this.run = run;
    this.p = run.p;
    this.log = run.p.log;
    this.to = to;
    this.restoring = restoring;
    this.all = run.p.options.session === "all";
  }

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
    const closed = new Promise((done) => ws.once("close", (code, why) => {
      // Coming back would take the place from the newer connection again.
      if (code === TAKEN_OVER) {
        this.broken ??= new FatalError(new Error(`${this.to.url}: a newer connection took over with this one's reconnect token`));
      }
      done(`${why} (${code})`);
    }));
    const stopped = () => this.finish(new CancelError("stopped"));
    signal.addEventListener("abort", stopped);
    ws.on("message", (data, isBinary) => {
      if (isBinary) this.log.warn("the gateway sent a binary frame; ignored");
      else this.#receive(String(data));
    });
    ws.on("error", (e) => (this.broken ??= e));
    ws.on("pong", () => this.#timer("pong", 0));
    this.#ping();
    const { name, options: { instance } } = this.p;
    this.trySend(
      this.restoring
        ? { type: "auth", reconnectToken: this.restoring, name, ...(instance && { instance }) }
        : { type: "auth", token: this.to.token },
    );
    this.#expectAnswer();
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
  #timer(name, ms, f) {
    clearTimeout(this.timers[name]);
    this.timers[name] = ms && f && !this.over ? setTimeout(f, ms) : undefined;
  }

  #expectAnswer() {
    this.#timer("answer", ANSWER_TIMEOUT, () => this.fail(new Error(`no answer within ${ANSWER_TIMEOUT / 1000} s`)));
  }

  #ping() {
    this.#timer("ping", PING_EVERY, () => {
      this.#timer("pong", PONG_TIMEOUT, () => this.fail(new Error("the gateway does not answer pings")));
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
   * Ends the connection, with a goodbye if the provider stops, and releases what belongs to it.
   * @param {Error} [why] of a provider that stops
   */
  finish(why) {
    if (this.over) return;
    const { ws, run } = this;
    const stopping = (why ?? this.broken) instanceof FatalError || run.stopped;
    const open = ws?.readyState === WebSocket.OPEN;
    if (open && stopping) this.trySend({ type: "goodbye", reason: "shutting down" });
    this.over = true;
    for (const name of Object.keys(this.timers)) this.#timer(name, 0);
    const reason = new CancelError(stopping ? "stopped" : "disconnected");
    if (run.reconnect?.until === 0) run.reconnect.until = Date.now() + RECONNECT_WINDOW;
    if (this.p.pushing === this) this.p.pushing = undefined;
    this.#unlink();
    this.stop.abort(reason);
    for (const b of this.bindings.values()) b.stop.abort(reason);
    for (const j of this.joining.values()) j.stop.abort(reason);
    for (const call of [...this.calls.values()]) call.abort(reason.reason);
    for (const r of this.requests.values()) {
      r.error ??= new NotConnectedError("the connection ended before the gateway answered");
      r.end();
    }
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

  /**
   * Sends a message. Returns the error of one that is too large.
   * @param {Message} m
   */
  trySend(m) {
    return this.sendText(JSON.stringify(m), MAX_MESSAGE, m.type);
  }

  /** @param {string} json @param {number} limit @param {string} type @returns {ProviderError | undefined} */
  sendText(json, limit, type) {
    if (json.length * 3 > limit && Buffer.byteLength(json) > limit) {
      const size = Buffer.byteLength(json);
      return new ProviderError("PAYLOAD_TOO_LARGE", `this ${type} is ${size} bytes, over the limit of ${limit}`);
    }
    const { ws } = this;
    if (this.over || ws?.readyState !== WebSocket.OPEN) return undefined; // the close tells of the loss
    ws.send(json);
    if (ws.bufferedAmount > MAX_UNREAD) this.fail(new Error("the gateway does not read"));
    return undefined;
  }

  // Receiving

  /** @param {string} data */
  #receive(data) {
    if (this.over) return;
    let m;
    try {
      m = JSON.parse(data);
    } catch {
      m = undefined;
    }
    if (typeof m?.type !== "string") {
      this.log.warn("ignoring a message of the gateway that is none");
      return;
    }
    try {
      this.#handle(m);
    } catch (e) {
      this.log.warn(`ignoring a wrong ${m.type} of the gateway:`, e);
    }
  }

  /** @param {Message} m */
  #handle(m) {
    switch (m.type) {
      case "tool.call":
        return this.#handleCall(m);
      case "tool.cancel":
        return this.calls.get(m.id)?.abort(text(m.reason)); // else its result was sent
      case "sessions":
        return this.#handleSessions(m.active, true);
      case "sessions.updated":
        return this.#handleSessions(m.active, false);
      case "hello.ack":
        return this.#handleHelloAck(m);
      case "gate.check":
        return this.#handleGate(m);
      case "transform.request":
        return this.#handleTransform(m);
      case "session.event":
        return this.#handleEvent(m);
      case "session.lifecycle":
        return this.#handleLifecycle(m);
      case "ack":
        return this.sent && this.sent.id === m.requestId ? this.#handleConfirmation(m) : this.#handleReceipt(m);
      case "stream.history":
        return this.#handleHistory(m);
      case "error":
        return this.#handleError(m);
      default:
        this.log.debug(`ignoring ${m.type}`); // newer gateways say more
    }
  }

  /** @param {Message} m */
  #handleCall(m) {
    const { id, tool, sessionId, args = {} } = m;
    const named = [id, tool, sessionId].every((v) => typeof v === "string");
    if (!named || typeof args !== "object" || Array.isArray(args)) {
      throw new TypeError("its id, tool, sessionId or args has the wrong type");
    }
    if (this.calls.has(m.id)) {
      this.log.warn(`ignoring call ${m.id}, which the gateway sent twice`);
      return;
    }
    const call = new Call(this, m);
    this.calls.set(m.id, call);
    this.run.calls.start(call);
  }

  // Sessions and bindings

  /** @param {Session[]} list @param {boolean} greeting it is sessions, which answers auth, not sessions.updated */
  #handleSessions(list, greeting) {
    if (!Array.isArray(list)) throw new TypeError("active is no list");
    if (this.state === "sessions") {
      if (!greeting) return;
      this.#timer("answer", 0);
      this.state = "hello";
      this.authenticatedAt = Date.now();
      this.run.failing = false;
      this.run.refused = [];
      this.run.reconnect = undefined; // its token is void now
    }
    const before = this.active;
    this.active = list;
    this.unbindable.clear();
    for (const id of this.ended) if (!this.#find(id)) this.ended.delete(id);
    for (const { id } of before) {
      if (this.#find(id)) continue;
      this.run.prepared.delete(id);
      this.p.offer.perSession.delete(id);
      this.p.sent?.perSession.delete(id);
    }
    for (const [id, b] of this.bindings) {
      if (this.#find(id) || b.ending) continue; // else it has ended without a warning
      b.stop.abort(new CancelError("session ended"));
      this.#cancelCalls(id);
      this.#endBinding(b);
    }
    if (this.over) return;
    if (this.all && this.state === "bound") this.#join();
    if (this.all && this.state === "ack") this.#prepare();
    this.#sendChanges();
    this.#bind();
  }

  /** @param {string} id */
  #find(id) {
    return this.active.find((s) => s.id === id);
  }

  /** Chooses the session to bind to; "" if there is none. */
  #pick() {
    if (this.ended.size > 0) return ""; // it is still in the list; another list follows
    const { session, pickSession } = this.p.options;
    if (this.all) return this.active.length > 0 && !this.unbindable.has("all") && this.#prepare() ? "all" : "";
    let id = session ?? "";
    if (!id && pickSession) {
      try {
        id = pickSession([...this.active]);
      } catch (e) {
        this.log.error("pickSession failed:", e);
      }
    } else if (!id) {
      const last = this.run.session;
      if (this.#find(last) && !this.unbindable.has(last)) return last;
      // A session without a directory is one that this provider may not bind to. The first one is tried anyway.
      return this.active.find((s, i) => !this.unbindable.has(s.id) && (i === 0 || s.cwd))?.id ?? "";
    }
    return id && this.#find(id) && !this.unbindable.has(id) ? id : "";
  }

  /** Sends hello if the state allows it and there is a session. */
  #bind() {
    if (this.state !== "hello" || this.over) return;
    this.#timer("retry", 0);
    const session = this.#pick();
    if (!session) return;
    const { name, options, offer, listeners } = this.p;
    const { instance, startupContext, metadata, concurrency, onQuestion } = options;
    const asked = onQuestion ? ["question.asked", "question.ended"] : [];
    this.helloSession = session;
    this.state = "ack";
    for (const j of this.joining.values()) j.asked = true; // this hello asks for all
    const error = this.trySend({
      type: "hello", name, protocolVersion: PROTOCOL_VERSION, session,
      ...(instance && { instance }), ...(this.restoring && { reconnectToken: this.restoring }),
      ...(startupContext && { startup_context: startupContext }), ...(metadata && { metadata }),
      ...(concurrency && { concurrency }),
      // Present even if empty, because after a reconnect the gateway restores missing fields.
      context: offer.context,
      tools: offer.tools.map((t) => t.wire),
      hooks: {
        ...(offer.rules.length > 0 && { onPreToolUse: offer.rules.map((r) => r.wire) }),
        ...(offer.transforms.size > 0 && {
          transforms: Object.fromEntries([...offer.transforms].map(([s, t]) => [s, wireTransform(t)])),
        }),
      },
      subscribe: [...new Set([...listeners.keys(), ...asked])].sort(),
    });
    this.p.changing = this;
    if (error) this.fail(new FatalError(error));
    this.#expectAnswer();
  }

  /** @param {Message} m */
  #handleHelloAck(m) {
    if (this.state !== "ack") return;
    this.#timer("answer", 0);
    this.state = "bound";
    this.retryIn = FIRST_RETRY;
    this.restoring = "";
    this.providerId = text(m.providerId);
    this.persistDir = text(m.persistDir);
    // Gateways of the core profile send no reconnect token and do not answer updates.
    this.confirmsUpdates = Boolean(m.reconnectToken);
    this.receiptWait = this.confirmsUpdates ? LIKELY_WAIT : ACK_WAIT;
    this.run.reconnect = m.reconnectToken ? { token: m.reconnectToken, to: this.to, until: 0 } : undefined;
    this.wasBound = true;
    if (this.all) {
      this.p.pushing = this;
      this.log.info(`bound to all sessions as ${this.providerId}`);
      this.#join();
    } else {
      this.run.session = this.helloSession;
      this.#openBinding(this.#newBinding(this.helloSession));
    }
    this.#sendChanges();
  }

  /** @param {string} sessionId @returns {Bound} */
  #newBinding(sessionId) {
    const stop = new AbortController();
    const { providerId, persistDir } = this;
    const cwd = this.#find(sessionId)?.cwd ?? "";
    const bound = {
      binding: { sessionId, providerId, cwd, persistDir, signal: stop.signal },
      stop, ending: false, started: false, returned: Promise.resolve(), questions: new Map(),
    };
    this.bindings.set(sessionId, bound);
    return bound;
  }

  /** Sends what the hello could not contain, such as filters, and then starts the binding. @param {Bound} b */
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
      first.push({ what: "setting the context", session, message: () => ({ type: "context.update", context }) });
    }
    queue.unshift(...first, { what: "", session: "", then: () => this.#startBinding(b) });
  }

  /** @param {Bound} b */
  #startBinding(b) {
    if (b.started) return;
    b.started = true;
    this.p.pushing = this;
    this.log.info(`bound to session ${b.binding.sessionId} as ${this.providerId}`);
    const { onConnected } = this.p.options;
    if (onConnected) b.returned = this.run.guard("onConnected", () => onConnected(b.binding));
  }

  /** Sends the gateway what it does not have yet of the offer. */
  offerChanged() {
    if (this.state === "hello") this.#bind(); // a hello that was refused may be accepted now
    if (this.state !== "bound") return;
    if (this.all) this.#join(); // a session.ready that was refused may be accepted now
    this.#sendChanges();
  }

  /** @param {Message} m */
  #handleLifecycle(m) {
    if (this.state !== "bound") return;
    let b = this.bindings.get(m.sessionId);
    if (!b && m.state === "started" && this.all) b = this.#joined(m.sessionId);
    if (!b || b.ending) return;
    const { onSessionIdle } = this.p.options;
    if (m.state === "idle" && onSessionIdle) {
      const { sessionId, signal } = b.binding;
      this.run.callback("onSessionIdle", () => onSessionIdle({ sessionId, signal, deadline: 0 }));
    }
    if (m.state === "shutdown.pending") this.#beginEnding(b, m.deadline > 0 ? m.deadline : SHUTDOWN_DEADLINE);
  }

  /**
   * Cancels everything that runs for a session that is about to end. When all of it has returned, or the deadline has
   * passed, the session may end.
   * @param {Bound} b
   * @param {number} deadline
   */
  #beginEnding(b, deadline) {
    const { sessionId } = b.binding;
    this.log.info(`session ${sessionId} is ending`);
    b.ending = true;
    b.started = true;
    this.ended.add(sessionId);
    if (!this.all) {
      this.state = "ending";
      this.#unlink();
    }
    b.stop.abort(new CancelError("session ended"));
    this.joining.get(sessionId)?.stop.abort(new CancelError("session ended"));
    this.joining.delete(sessionId);
    const answered = this.#cancelCalls(sessionId);
    const late = new AbortController();
    const { onShutdown } = this.p.options;
    const state = { sessionId, deadline, signal: late.signal };
    const cleaned = this.run.callback("onShutdown", () => onShutdown?.(state));
    const finish = () => {
      if (this.over || this.bindings.get(sessionId) !== b) return;
      this.#timer(`end ${sessionId}`, 0);
      late.abort(new CancelError("timeout"));
      this.trySend({ type: "shutdown.ready", sessionId });
      this.#endBinding(b);
      this.#bind();
    };
    this.#timer(`end ${sessionId}`, deadline, finish);
    this.stop.signal.addEventListener("abort", () => late.abort(this.stop.signal.reason), { signal: late.signal });
    void Promise.all([cleaned, b.returned, ...answered]).then(finish);
  }

  /** Removes a binding whose session has ended. @param {Bound} b */
  #endBinding(b) {
    const { sessionId } = b.binding;
    this.bindings.delete(sessionId);
    this.#endSession(sessionId);
    if (this.all) {
      this.#sendChanges();
      return;
    }
    this.#unlink();
    this.p.pushing = undefined;
    this.run.session = "";
    this.run.reconnect = undefined;
    this.state = "hello";
    if (isPaired(this.to)) this.fail(new FatalError(new NotPairedError(`session ${sessionId} has ended`)));
  }

  /** Cancels the calls of a session. @param {string} session @returns {Promise<void>[]} settled when answered */
  #cancelCalls(session) {
    const calls = [...this.calls.values()].filter((c) => c.sessionId === session);
    const answered = calls.map((c) => /** @type {Promise<void>} */ (new Promise((done) => c.whenAnswered.push(done))));
    for (const c of calls) c.abort("session ended");
    return answered;
  }

  // All sessions

  /** Starts prepareSession for the sessions that need it; true if it has returned for all of them. */
  #prepare() {
    for (const [id, j] of this.joining) {
      if (this.#find(id)) continue;
      j.stop.abort(new CancelError("session ended"));
      this.joining.delete(id);
    }
    let done = true;
    for (const s of this.active) {
      const j = this.joining.get(s.id);
      if ((this.bindings.has(s.id) && !j) || this.ended.has(s.id)) continue;
      done = (j ?? this.#prepareOne(s)).ready && done;
    }
    return done;
  }

  /** @param {Session} s @returns {Joining} */
  #prepareOne(s) {
    /** @type {Joining} */
    const j = { stop: new AbortController(), ready: false, asked: false };
    this.joining.set(s.id, j);
    const { prepareSession } = this.p.options;
    if (!prepareSession || this.run.prepared.has(s.id)) {
      j.ready = true;
      return j;
    }
    void this.run.guard("prepareSession", () => prepareSession(s, j.stop.signal)).then(() => {
      if (this.over || this.joining.get(s.id) !== j) return;
      j.ready = true;
      this.run.prepared.add(s.id);
      if (this.state === "bound") {
        this.#join();
        this.#sendChanges();
      }
      this.#bind();
    });
    return j;
  }

  /** Sends session.ready for the sessions that are prepared, and opens the bindings that are confirmed. */
  #join() {
    this.#prepare();
    for (const { id } of this.active) {
      const j = this.joining.get(id);
      if (!j?.ready) continue;
      if (j.bound) {
        this.joining.delete(id);
        this.#openBinding(j.bound);
      } else if (!j.asked) {
        j.asked = true;
        this.trySend({ type: "session.ready", sessionId: id });
      }
    }
  }

  /** Makes the binding to a session after the gateway has joined both. @param {string} id */
  #joined(id) {
    const s = this.#find(id);
    if (!s) return undefined;
    const j = this.joining.get(id) ?? this.#prepareOne(s); // it may have started after the hello
    j.asked = true;
    const bound = this.#newBinding(id);
    j.bound = bound;
    this.#join();
    this.#sendChanges();
    return bound;
  }

  // Changes

  /** Sends the queued changes, one at a time. */
  #sendChanges() {
    const { p } = this;
    while (this.state === "bound" && !this.sent && !this.paused && !this.over && p.queue.length > 0) {
      const change = /** @type {Change} */ (p.queue.shift());
      if (this.#isObsolete(change)) continue;
      if (change.then) {
        change.then();
        continue;
      }
      const id = `update-${++this.count}`;
      const o = p.offer.clone();
      let m;
      try {
        change.apply?.(o);
        m = { ...change.message?.(o), requestId: id, ...(change.session && { sessionId: change.session }) };
      } catch (e) {
        this.#endChange(change, 0, asError(e));
        continue;
      }
      p.sent = o;
      const { type } = /** @type {Message} */ (m);
      this.sent = { change, id, type, due: this.#sessionsFor(change.session), revision: 0 };
      const error = this.trySend(m);
      if (error || this.sent.due.size === 0) this.#finishChange(error); // without a session there is no answer
      else if (this.confirmsUpdates) this.#expectAnswer();
      else this.#timer("silence", ACK_WAIT, () => this.#settleSilently());
    }
  }

  #settleSilently() {
    if (this.sent) this.#finishChange();
    this.#sendChanges();
  }

  /** Whether a change restores something in a session that has ended. @param {Change} change */
  #isObsolete({ done, session }) {
    const b = this.bindings.get(session);
    return !done && session !== "" && (!b || b.ending);
  }

  /** The sessions that answer a message about one session, or about all (""). @param {string} [session] */
  #sessionsFor(session) {
    return new Set(session ? [session] : this.bindings.keys());
  }

  /** @param {Message} m */
  #handleConfirmation(m) {
    const { sent, p } = this;
    if (!sent) return;
    if (p.sent) p.offer = p.sent; // later messages of the gateway are based on it
    p.sent = undefined;
    sent.revision = Math.max(sent.revision, m.revision ?? 0);
    sent.due.delete(m.sessionId);
    if (m.sessionId && sent.due.size > 0) return;
    this.#finishChange();
    this.#sendChanges();
  }

  /** Ends the sent change: the gateway has confirmed it, or error says why not. @param {Error} [error] */
  #finishChange(error) {
    const { sent, p } = this;
    if (!sent) return;
    this.#timer("answer", 0);
    this.#timer("silence", 0);
    this.sent = undefined;
    if (p.sent && !error) p.offer = p.sent;
    p.sent = undefined;
    if (error && codeOf(error) === "RATE_LIMITED") {
      p.queue.unshift(sent.change); // the gateway accepts it a second later
      this.paused = true;
      this.#timer("retry", FIRST_RETRY, () => {
        this.paused = false;
        this.offerChanged();
      });
      return;
    }
    this.#endChange(sent.change, sent.revision, error);
  }

  /** @param {Change} change @param {number} revision @param {Error} [error] */
  #endChange(change, revision, error) {
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
  #unlink() {
    const { p, sent } = this;
    this.paused = false;
    this.sent = undefined;
    if (p.changing !== this) return;
    p.changing = undefined;
    if (p.sent) p.offer = p.sent;
    p.sent = undefined;
    if (sent) {
      this.#timer("answer", 0);
      this.#timer("silence", 0);
      sent.change.done?.(sent.revision);
    }
    for (const change of p.queue.splice(0)) applyOffline(p, change);
  }

  // Pushes and queries

  /** @param {Message} message @param {boolean} untilDelivered @returns {Promise<Receipt>} */
  async push(message, untilDelivered) {
    let due = this.#sessionsFor(message.sessionId);
    const { broadcast } = message;
    if (broadcast && due.size === 0 && (message.level !== "keep" || message.prompt)) throw new NotConnectedError();
    if (broadcast ? due.size === 0 : due.size !== 1) due = new Set([""]); // one answer comes: kept, or refused
    const requestId = `push-${++this.count}`;
    const r = await this.#request(requestId, { type: "push", requestId, ...message }, due, untilDelivered);
    /** @type {Receipt} */
    const none = { sessionId: "", seq: 0, fate: "", reason: "" };
    if (r.error) throw broadcast ? Object.assign(r.error, { each: r.receipts }) : r.error;
    return broadcast ? { ...none, each: r.receipts } : r.receipts[0] ?? none;
  }

  /** @param {Message} message @returns {Promise<Entry[]>} */
  async query(message) {
    const queryId = `query-${++this.count}`;
    const due = new Set([message.sessionId ?? ""]);
    const r = await this.#request(queryId, { type: "stream.query", queryId, ...message }, due, false);
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
  async #request(id, message, due, untilDelivered) {
    /** @type {NodeJS.Timeout | undefined} */
    let silent;
    /** @type {Request} */
    const r = { type: message.type, due, untilDelivered, receipts: [], end() {} };
    const answered = new Promise((done) => (r.end = () => done(undefined)));
    this.requests.set(id, r);
    const error = this.trySend(message);
    if (error) {
      r.error = error;
      r.end();
    } else if (!this.givesReceipts && message.type === "push") {
      silent = setTimeout(() => {
        this.receiptWait = ACK_WAIT; // after a silence the next ones are silent, too
        if (!this.givesReceipts) r.end();
      }, this.receiptWait);
    }
    await answered;
    clearTimeout(silent);
    this.requests.delete(id);
    return r;
  }

  /** @param {Message} m */
  #handleReceipt(m) {
    this.givesReceipts = true;
    const r = this.requests.get(m.requestId);
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
   * Gives an error to the request that it is about. One without a request id is about the only request of its
   * type.
   * @param {Message} m
   * @param {Error} error
   */
  #failRequest(m, error) {
    let r = this.requests.get(m.requestId);
    if (!r && !m.requestId) {
      const candidates = [...this.requests.values()].filter((other) => other.type === m.replyTo);
      if (candidates.length === 1) r = candidates[0];
    }
    if (!r || r.due.size === 0) return false;
    r.error ??= error;
    this.#noteAnswer(r, r.due.has(m.sessionId) ? m.sessionId : "");
    return true;
  }

  /** @param {Message} m */
  #handleHistory(m) {
    const r = this.requests.get(m.queryId);
    if (r?.type !== "stream.query") return;
    r.history = m;
    this.#noteAnswer(r, "");
  }

  /** Ends what waits for the answer of a session that has ended. @param {string} session */
  #endSession(session) {
    for (const r of this.requests.values()) {
      if (!r.due.has(session)) continue;
      r.error ??= new ProviderError("INVALID_SESSION", `session ${JSON.stringify(session)} has ended`);
      this.#noteAnswer(r, session);
    }
    if (this.sent?.due.delete(session) && this.sent.due.size === 0) this.#finishChange();
  }

  // Gates, sections and events

  /**
   * Runs a function that has a time limit. Its signal is aborted at the limit and at the end of the connection; then
   * nobody waits any more, and undefined is returned.
   * @template T
   * @param {string} what
   * @param {number} ms
   * @param {(signal: AbortSignal) => T | Promise<T>} f
   * @returns {Promise<{ value?: T, error?: Error } | undefined>}
   */
  async #limited(what, ms, f) {
    const late = new AbortController();
    const ended = () => late.abort(this.stop.signal.reason);
    this.stop.signal.addEventListener("abort", ended);
    const timer = setTimeout(() => {
      this.log.warn(`${what} did not answer within ${ms / 1000} s`);
      late.abort(new CancelError("timeout"));
    }, ms);
    const result = await this.run.guard(what, () => f(late.signal));
    clearTimeout(timer);
    this.stop.signal.removeEventListener("abort", ended);
    return late.signal.aborted ? undefined : result;
  }

  /** @param {Message} m */
  async #handleGate({ callId, gateId, sessionId, tool, args, traceparent = "" }) {
    const { decide } = lookup(this.p, (o) => o.rules.find((r) => r.decide && r.wire.gateId === gateId)) ?? {};
    const answer = (/** @type {Decision} */ { decision, reason }) =>
      this.trySend({ type: "gate.result", callId, gateId, decision, ...(reason && { reason }) });
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

  /** @param {Message} m */
  async #handleTransform({ callId, sessionId, section, current = "" }) {
    const { rewrite } = lookup(this.p, (o) => {
      const t = o.transforms.get(section);
      return t?.rewrite && t;
    }) ?? {};
    const answer = (/** @type {string} */ content) => this.trySend({ type: "transform.result", callId, content });
    if (!rewrite) {
      answer(current);
      return;
    }
    const result = await this.#limited(`the function of section ${section}`, TRANSFORM_TIMEOUT, (signal) =>
      rewrite({ sessionId, name: section, current, signal }),
    );
    if (!result) return; // the section stayed as it was
    if (typeof result.value === "string" && !answer(result.value)) return;
    if (!result.error) this.log.error(`section ${section} stays as it is: its function returned no text, or too much`);
    answer(current);
  }

  /** @param {Message} m */
  #handleEvent({ sessionId, event, data }) {
    if (event === "question.asked") this.#handleQuestion(sessionId, data);
    if (event === "question.ended") this.#handleQuestionEnd(sessionId, data);
    const signal = this.bindings.get(sessionId)?.stop.signal ?? this.stop.signal;
    for (const listener of this.p.listeners.get(event) ?? []) {
      if (this.run.listen(sessionId, () => listener({ ...data, sessionId }, signal))) continue;
      const why = `${event} of session ${sessionId} was dropped: ${MAX_EVENTS} events wait for listeners`;
      report(this.p, new Error(why));
    }
  }

  /** @param {string} sessionId @param {Message} m */
  #handleQuestion(sessionId, m) {
    const { onQuestion } = this.p.options;
    const b = this.bindings.get(sessionId);
    const { id, kind, message, detail = "", choices = [], freeform = false, schema, askedAt, expiresAt } = m;
    if (!onQuestion || !b || b.ending || b.questions.has(id)) return;
    if (![id, kind, message].every((v) => typeof v === "string")) throw new TypeError("its id, kind or message is none");
    const stop = new AbortController();
    b.questions.set(id, stop);
    const leave = () => stop.abort(b.stop.signal.reason);
    b.stop.signal.addEventListener("abort", leave, { signal: stop.signal });
    const question = {
      id, sessionId, kind, message, detail, choices, freeform, ...(schema && { schema }),
      askedAt: new Date(askedAt), expiresAt: new Date(expiresAt), signal: stop.signal,
      answer: (/** @type {Answer} */ answer) =>
        Outcome.of(this.#answer(id, sessionId, answer), (e) => report(this.p, e, `answering question ${id}`)),
    };
    void this.run.guard("onQuestion", () => onQuestion(question));
  }

  /** @param {string} sessionId @param {Message} m */
  #handleQuestionEnd(sessionId, m) {
    const questions = this.bindings.get(sessionId)?.questions;
    const stop = questions?.get(m.id);
    questions?.delete(m.id);
    stop?.abort(new QuestionEnded({ reason: text(m.reason), by: text(m.by), person: text(m.person) }));
  }

  /** @param {string} question @param {string} sessionId @param {Answer} answer @returns {Promise<void>} */
  async #answer(question, sessionId, { decision, text, content, person }) {
    if (this.over) throw new NotConnectedError();
    const requestId = `answer-${++this.count}`;
    const message = {
      type: "question.answer", requestId, question, ...(decision && { decision }), ...(text && { text }),
      ...(content && { content }), ...(person && { person }),
    };
    const r = await this.#request(requestId, message, new Set([sessionId]), false);
    if (r.error) throw r.error;
  }

  // Errors

  /** @param {Message} m */
  #handleError(m) {
    const error = fromGateway(m);
    const { code, replyTo, requestId } = m;
    if (code === "AUTH_FAILED") {
      this.fail(this.state === "sessions" ? new RefusedError(text(m.message)) : error);
    } else if (code === "UNSUPPORTED_VERSION") {
      error.message = `the gateway speaks another version: ${error.message}`;
      this.fail(new FatalError(error));
    } else if (this.state === "ack" && (!replyTo || replyTo === "hello")) {
      this.#handleHelloError(code, error);
    } else if (this.sent && (requestId ? requestId === this.sent.id : replyTo === this.sent.type)) {
      this.#finishChange(error);
      this.#sendChanges();
    } else if (!this.#failRequest(m, error)) {
      if (replyTo === "session.ready") this.#notReady(m);
      if (isOutdated(m)) this.log.debug(`the gateway refused ${replyTo}: ${error.message}`);
      else report(this.p, error, "the gateway refused");
    }
  }

  /** Notes a refused session.ready. It is sent again when the offer or the list has changed. @param {Message} m */
  #notReady({ sessionId }) {
    for (const [id, j] of this.joining) if (!j.bound && (!sessionId || id === sessionId)) j.asked = false;
  }

  /** Chooses after a refused hello: give up, try another session, or try again later.
   * @param {string} code @param {ProviderError} error */
  #handleHelloError(code, error) {
    this.#timer("answer", 0);
    this.state = "hello";
    this.#unlink();
    error.message = `binding to session ${this.helloSession}: ${error.message}`;
    if (["INVALID_JSON", "PAYLOAD_TOO_LARGE", "UNAUTHORIZED"].includes(code)) {
      this.fail(new FatalError(error));
      return;
    }
    if (code === "INVALID_SESSION") {
      if (isPaired(this.to)) {
        this.fail(new FatalError(new NotPairedError(error.message)));
        return;
      }
      // It has ended or is not open to this provider. A new list comes when anything changes, and clears this.
      this.unbindable.add(this.helloSession);
      this.log.info(`session not bound: ${error.message}`);
      this.#bind();
      return;
    }
    report(this.p, error);
    this.#timer("retry", this.retryIn, () => this.offerChanged());
    this.retryIn = Math.min(2 * this.retryIn, MAX_RETRY);
  }
}

/** Whether an error only means that a message was about something that had just ended. @param {Message} m */
function isOutdated({ code, replyTo }) {
  return (
    ["INVALID_STATE", "INVALID_SESSION", "UNKNOWN_CALL_ID"].includes(code) &&
    ["shutdown.ready", "tool.progress", "tool.result", "gate.result", "transform.result", "session.ready",
      "tools.update", "hooks.update", "context.update", "filter.set"].includes(replyTo)
  );
}

/** @param {Message} m @returns {Entry[]} */
function entries(m) {
  const found = [];
  for (const [key, list] of Object.entries(m.streams ?? {})) {
    const [stream, provider = ""] = key.split("@");
    for (const { ts, event = "", level, metadata, prompt = "" } of list) {
      found.push({ stream, provider, time: new Date(ts), text: event, level, ...(metadata && { metadata }), prompt });
    }
  }
  // Each list is sorted, and sort keeps the order of what is equal.
  const byStream = (/** @type {Entry} */ a, /** @type {Entry} */ b) =>
    a.stream < b.stream ? -1 : Number(a.stream > b.stream);
  return found.sort((a, b) => b.time.getTime() - a.time.getTime() || byStream(a, b));
}

/**
 * Gets a token from a gateway that shows its user a code.
 * @param {Shared} p
 * @param {Endpoint} to
 * @param {(prompt: string, signal: AbortSignal) => string | Promise<string>} ask
 * @returns {Promise<string>}
 */
async function pairing(p, to, ask) {
  const ended = new AbortController();
  const ws = await dial(to, ended.signal);
  const { instance, session } = p.options;
  const send = (/** @type {Message} */ m) => ws.send(JSON.stringify(m));
  try {
    return await new Promise((done, failed) => {
      const giveUp = (/** @type {Error} */ e) => {
        ended.abort(e);
        failed(e);
      };
      let timer = setTimeout(giveUp, ANSWER_TIMEOUT, new Error("no answer to auth"));
      ws.on("error", giveUp);
      ws.on("close", (_code, why) => {
        clearTimeout(timer);
        giveUp(new Error(`the gateway closed the connection: ${why}`));
      });
      ws.on("message", (data) => {
        const m = JSON.parse(String(data));
        if (m.type === "error") giveUp(fromGateway(m));
        if (m.type === "sessions") m.token ? done(m.token) : giveUp(new Error("the gateway gave no token"));
        if (m.type !== "auth.pairing") return;
        clearTimeout(timer);
        Promise.resolve()
          .then(() => ask(m.prompt, ended.signal))
          .then((code) => {
            timer = setTimeout(giveUp, ANSWER_TIMEOUT, new Error("no answer to the code"));
            send({ type: "auth.confirm", code: String(code).trim() });
          })
          .catch((e) => giveUp(ended.signal.aborted ? ended.signal.reason : e));
      });
      const named = session && session !== "all" ? { session } : {};
      send({ type: "auth", mode: "pair", name: p.name, ...(instance && { instance }), ...named });
    });
  } finally {
    const timer = setTimeout(() => ws.terminate(), CLOSE_TIMEOUT);
    ws.once("close", () => clearTimeout(timer));
    ws.readyState === WebSocket.CLOSED ? clearTimeout(timer) : ws.close(1000);
  }
}
