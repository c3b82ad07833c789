// Where a provider logs.

import { format } from "node:util";

/** @import { Logger } from "./model.mjs" */

/** @type {Logger} */
export const silentLogger = { debug() {}, info() {}, warn() {}, error() {} };

/**
 * Escapes control characters, which a terminal obeys: arguments of the model's can be in errors.
 * @param {string} s
 */
const visible = (s) =>
  s.replace(/[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (c) =>
    `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );

/** @param {string} name @returns {Logger} */
export function stderrLogger(name) {
  const line = (/** @type {unknown[]} */ ...args) => console.error("%s",
    visible(format(`[${name}]`, ...args)));
  return { debug() {}, info: line, warn: line, error: line };
}
