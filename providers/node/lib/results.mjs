// Results of tool calls.

import { ProviderError, asError } from "./errors.mjs";

/** @import { Part } from "./model.mjs" */

const RESULT_CODES = ["NOT_FOUND", "TIMEOUT", "CANCELLED", "DISCONNECTED", "UNAUTHORIZED",
  "INTERNAL"];

/** A result of several parts, see contentResult. */
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
 * @param {Part[]} parts @param {unknown} [data] a value for programs beside them
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

/** Writes the result of a call whose handler has returned. @param {string} id @param {any} out */
export function success(id, out) {
  if (out instanceof FileResult) {
    if (!out.wire.path) throw new TypeError("the result is a file without a path");
    return JSON.stringify({ type: "tool.result", id, file: out.wire });
  }
  if (out instanceof ContentResult) {
    return JSON.stringify({ type: "tool.result", id, content: out.content, data: out.data ??
      undefined });
  }
  return `{"type":"tool.result","id":${JSON.stringify(id)},"data":${JSON.stringify(out) ?? "null"}}`;
}

/** Writes the result of a call whose handler has thrown. @param {string} id @param {unknown} e */
export function failure(id, e) {
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
