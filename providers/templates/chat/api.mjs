// Requests to a chat service, and how they fail.

/** @import { Content } from "./service.mjs" */

/** A request that failed. No text of it holds a token: URLs of one service contain it. */
export class ApiError extends Error {
  name = "ApiError";
  /**
   * @param {string} message
   * @param {{ status?: number, code?: string, retryAfter?: number }} [why] status: of HTTP; 0 without an answer.
   *   code: the service's name of the error. retryAfter: seconds to wait before another try.
   */
  constructor(message, { status = 0, code = "", retryAfter } = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfter = retryAfter;
  }
  /** Whether the same request may succeed later. */
  get isPassing() {
    return this.retryAfter !== undefined || this.status === 0 || this.status >= 500;
  }
}

/**
 * Posts JSON and returns the JSON of the answer, whatever its status.
 * @param {string} what names the request in errors
 * @param {string} url
 * @param {object} body
 * @param {{ headers?: Record<string, string>, signal: AbortSignal, timeout?: number }} options timeout: milliseconds
 * @returns {Promise<{ status: number, retryAfter: number | undefined, answer: any }>}
 */
export async function post(what, url, body, { headers = {}, signal, timeout = 20_000 }) {
  let status = 0;
  try {
    const response = await fetch(url, {
      method: "POST", redirect: "error", body: JSON.stringify(body),
      headers: { "Content-Type": "application/json; charset=utf-8", ...headers },
      signal: AbortSignal.any([signal, AbortSignal.timeout(timeout)]),
    });
    status = response.status;
    const seconds = Number(response.headers.get("Retry-After") ?? NaN);
    const retryAfter = status === 429 ? (seconds >= 0 ? seconds : 1) : undefined;
    const text = await response.text();
    if (status === 429 && !text.startsWith("{")) return { status, retryAfter, answer: {} };
    const answer = JSON.parse(text);
    if (typeof answer !== "object" || answer === null) throw new SyntaxError("no object");
    return { status, retryAfter, answer };
  } catch (e) {
    signal.throwIfAborted();
    const error = /** @type {Error & { cause?: { code?: string } }} */ (e);
    const why = error instanceof SyntaxError ? `status ${status}, and the answer is not JSON`
      : error.name === "TimeoutError" ? "no answer in time" : `no connection (${error.cause?.code ?? error.name})`;
    throw new ApiError(`${what}: ${why}`, { status: error instanceof SyntaxError &&
      status >= 400 ? status : 0 });
  }
}

/**
 * A text in one service's units, cut at a limit; the cut is marked.
 * @param {string} text
 * @param {number} limit UTF-16 units
 * @param {string} rest where the rest is
 */
export function cut(text, limit, rest) {
  if (text.length <= limit) return text;
  const note = `… (${rest})`;
  return text.slice(0, boundary(text, limit - note.length)) + note;
}

/** Splits a text at line ends into pieces of at most limit units. @param {string} text @param {number} limit */
export function split(text, limit) {
  const pieces = [];
  while (text.length > limit) {
    const line = text.lastIndexOf("\n", limit);
    const at = line > 0 ? line : boundary(text, limit);
    pieces.push(text.slice(0, at));
    text = text.slice(line > 0 ? at + 1 : at);
  }
  return [...pieces, text];
}

/** The place at or before at that does not halve a character. @param {string} text @param {number} at */
const boundary = (text, at) => (/[\ud800-\udbff]/.test(text[at - 1] ?? "") ? at - 1 : at);

/** The parts of a content as one text. @param {Content} content */
export const textOf = (content) =>
  content.parts.map((p) => (typeof p === "string" ? p : p.text)).join("");
