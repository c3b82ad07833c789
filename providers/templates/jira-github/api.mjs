// A JSON API over HTTP: one request at a time, repeated with its ETag, and not while the server
// asks for a pause.

import { clean } from "./text.mjs";

const MAX_BODY = 16 * 1024 * 1024;
const MAX_PAGES = 10;
const MAX_CACHED = 200;
const TIMEOUT = 20_000;
const FIRST_WAIT = 5000;
const LIMIT_WAIT = 60_000; // after a rate limit that names no time
const MAX_WAIT = 900_000;

/** An answer that is no success. */
export class ApiError extends Error {
  /** @param {string} name @param {number} status @param {string} message */
  constructor(name, status, message) {
    super(`${name} answers ${status} ${clean(message)}`.trim());
    this.status = status;
  }
}

/**
 * Checks the base URL of an API: the token goes there.
 * @param {string} text
 */
export function checkBase(text) {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (!url || url.username || url.password || url.search || url.hash) {
    throw new Error(`--api ${JSON.stringify(text)} is not the URL of an API`);
  }
  const isHere = url.protocol === "http:" &&
    ["127.0.0.1", "localhost", "[::1]"].includes(url.hostname);
  if (url.protocol !== "https:" && !isHere)
    throw new Error(`--api ${JSON.stringify(text)} must be https: the token goes there`);
  return text.replace(/\/+$/, "");
}

export class Api {
  /** @type {Map<string, { etag: string, body: any, next: string }>} */
  #cache = new Map();
  #failures = 0;
  #last = Promise.resolve();
  /** No request before this time, in milliseconds. */
  blocked = 0;

  /**
   * @param {string} name for errors
   * @param {string} base
   * @param {() => Record<string, string>} headers makes the headers, with the token
   * @param {() => number} [now]
   */
  constructor(name, base, headers, now = Date.now) {
    this.name = name;
    this.base = checkBase(base);
    this.headers = headers;
    this.now = now;
  }

  /**
   * Reads one answer.
   * @param {string} path @param {AbortSignal} [signal]
   */
  async get(path, signal) {
    return (await this.#ask("GET", this.base + path, undefined, signal)).body;
  }

  /**
   * Reads the pages of a list that the header Link names.
   * @param {string} path @param {AbortSignal} [signal]
   */
  async list(path, signal) {
    const all = [];
    let next = this.base + path;
    for (let page = 0; next && page < MAX_PAGES; page++) {
      const answer = await this.#ask("GET", next, undefined, signal);
      if (!Array.isArray(answer.body)) throw new Error(`${this.name} answers with something else than a list`);
      all.push(...answer.body);
      next = answer.next;
      if (next && new URL(next, this.base).origin !== new URL(this.base).origin) {
        throw new Error(`${this.name} names a next page on another server`);
      }
    }
    return all;
  }

  /**
   * Changes something. It is never sent twice.
   * @param {string} method @param {string} path @param {unknown} [body] @param {AbortSignal} [signal]
   */
  async send(method, path, body, signal) {
    return (await this.#ask(method, this.base + path, body, signal)).body;
  }

  /** @param {string} method @param {string} url @param {unknown} body @param {AbortSignal} [signal] */
  #ask(method, url, body, signal) {
    const turn = this.#last.then(() => this.#fetch(method, url, body, signal));
    this.#last = turn.then(
      () => undefined,
      () => undefined,
    );
    return turn;
  }

  /** @param {string} method @param {string} url @param {unknown} body @param {AbortSignal} [signal] */
  async #fetch(method, url, body, signal) {
    signal?.throwIfAborted();
    if (this.blocked > this.now()) {
      throw new Error(`${this.name} is not asked again before ${new Date(this.blocked).toISOString()}`);
    }
    const old = method === "GET" ? this.#cache.get(url) : undefined;
    /** @type {Record<string, string>} */
    const headers = { ...this.headers(), ...(old?.etag && { "If-None-Match": old.etag }) };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const limit = AbortSignal.timeout(TIMEOUT);
    let answer, data;
    try {
      answer = await fetch(url, {
        method,
        headers,
        body: body === undefined ? undefined : JSON.stringify(body),
        redirect: method === "GET" ? "follow" : "error",
        signal: signal ? AbortSignal.any([signal, limit]) : limit,
      });
      data = await read(answer);
    } catch (e) {
      signal?.throwIfAborted();
      this.#backOff(FIRST_WAIT);
      const why = /** @type {any} */ (e);
      const cause = clean(why.cause?.code ?? why.cause?.message ?? why.message);
      throw new Error(`asking ${this.name} at ${new URL(url).host}: ${cause}`);
    }
    if (answer.status === 304 && old) {
      this.#failures = 0;
      return old;
    }
    if (!answer.ok) throw this.#refused(answer, data);
    this.#failures = 0;
    const got = {
      etag: answer.headers.get("etag") ?? "",
      body: parse(data),
      next: nextPage(answer.headers.get("link")),
    };
    if (method === "GET") {
      if (this.#cache.size >= MAX_CACHED) this.#cache.clear();
      this.#cache.set(url, got);
    }
    return got;
  }

  /** @param {Response} answer @param {string} data */
  #refused(answer, data) {
    const said = parse(data);
    const message = said?.message ??
      [...(said?.errorMessages ?? []), ...Object.values(said?.errors ?? {})].join("; ");
    const { status, headers } = answer;
    const after = headers.get("retry-after");
    const isLimit =
      status === 429 ||
      (status === 403 &&
        (after !== null || headers.get("x-ratelimit-remaining") === "0" ||
          /rate limit/i.test(message)));
    if (isLimit || (status >= 500 && after !== null)) this.#limit(after, headers);
    else if (status >= 500) this.#backOff(FIRST_WAIT);
    else if (status === 401) this.#backOff(LIMIT_WAIT);
    return new ApiError(this.name, status, message);
  }

  /** @param {string | null} after @param {Headers} headers */
  #limit(after, headers) {
    const reset = headers.get("x-ratelimit-reset") ?? "";
    const seconds = Number(after ?? NaN);
    // GitHub writes seconds since 1970, Jira a date.
    const until = /^\d+$/.test(reset) ? Number(reset) * 1000 : Date.parse(reset);
    if (seconds >= 0) this.blocked = this.now() + Math.min(seconds, 86_400) * 1000;
    else if (until > this.now()) this.blocked = Math.min(until + 1000, this.now() + 86_400_000);
    else this.#backOff(LIMIT_WAIT);
  }

  /** @param {number} first */
  #backOff(first) {
    this.blocked = this.now() + Math.min(first * 2 ** this.#failures, MAX_WAIT);
    this.#failures = Math.min(this.#failures + 1, 20);
  }
}

/** @param {Response} answer */
async function read(answer) {
  const parts = [];
  let size = 0;
  for await (const part of answer.body ?? []) {
    size += part.length;
    if (size > MAX_BODY) throw new Error(`an answer is over ${MAX_BODY} bytes`);
    parts.push(part);
  }
  return Buffer.concat(parts).toString("utf8");
}

/** @param {string} data */
function parse(data) {
  try {
    return JSON.parse(data);
  } catch {
    return null;
  }
}

/** @param {string | null} link */
const nextPage = (link) => /<([^>]*)>\s*;[^,]*\brel="next"/.exec(link ?? "")?.[1] ?? "";
