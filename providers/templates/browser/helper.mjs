// The parts that pages need besides a gateway: the script for them, and the user's rules for the
// scripts of the model.

import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { setTimeout } from "node:timers/promises";
import { createContext, Script } from "node:vm";

const MAX_SCRIPT = 64 * 1024;
const MATCH_TIMEOUT = 200; // milliseconds
const [TAB, LOOK] = ["tab.js", "look.js"].map((name) => readFileSync(new URL(name, import.meta.url),
  "utf8").trim());

/** @typedef {{ origin: string, pattern: RegExp, text: string }} Rule */

/**
 * Reads the user's rules: a line for each, with an origin, a space, and a regular expression that a whole script must
 * match.
 * @param {string} text
 * @returns {Rule[]}
 */
export function readRules(text) {
  const rules = [];
  for (const [i, line] of text.split("\n").entries()) {
    const [, origin, pattern] = /^(\S+)\s+(.+)$/.exec(line.trim()) ?? [];
    if (!line.trim() || line.trim().startsWith("#")) continue;
    try {
      if (!pattern) throw new Error("want an origin, a space and a regular expression");
      if (new URL(origin).origin !== origin) throw new Error(`${origin} is no origin such as http://localhost:3000`);
      rules.push({ origin, pattern: new RegExp(`^(?:${pattern})$`), text: line.trim() });
    } catch (e) {
      throw new Error(`BROWSER_ALLOW, line ${i + 1}: ${e.message}`);
    }
  }
  return rules;
}

/**
 * Returns whether a rule allows a script, in pages of an origin; without an origin: in any page.
 * @param {Rule[]} rules @param {string} script @param {string} [origin]
 */
export function isAllowed(rules, script, origin) {
  if (typeof script !== "string" || script.length > MAX_SCRIPT) return false;
  return rules.some((rule) => (!origin || rule.origin === origin) && matches(rule.pattern, script));
}

const matching = new Script("pattern.test(script)");

/** @param {RegExp} pattern @param {string} script */
function matches(pattern, script) {
  try {
    return matching.runInContext(createContext({ pattern, script }),
      { timeout: MATCH_TIMEOUT }) === true;
  } catch {
    return false; // a pattern that takes too long on this script
  }
}

/** @param {string} gateway @param {string} helper */
function tabScript(gateway, helper) {
  const values = `(${JSON.stringify(gateway)}, ${JSON.stringify(helper)}, ${LOOK})`;
  return TAB.replace('("GATEWAY", "HELPER", LOOK)', () => values);
}

/** @param {string} text */
const escape = (text) => text.replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

/** @param {string} gateway @param {string} helper */
const page = (gateway, helper) => `<!doctype html><meta charset="utf-8"><title>tapgw: connect a page</title>
<h1>Connect a page</h1>
<p>Drag this link to your bookmarks, and click it there in any page:
<a href="${escape(`javascript:${encodeURIComponent(tabScript(gateway, helper))}`)}">connect to tapgw</a></p>
<p>Or put this into a page of your own:</p>
<pre>${escape(`<script src="${helper}/tab.js"></script>`)}</pre>`;

/**
 * Makes the server. It listens on loopback only, and does not answer requests to another host name.
 * @param {{ gateway: string, rules: Rule[] }} options
 */
export function createHelper({ gateway, rules }) {
  return createServer((request, response) => {
    const { port } = /** @type {import("node:net").AddressInfo} */ (request.socket.address());
    const host = request.headers.host ?? "";
    const answer = (status, type, body, more = {}) => {
      response.writeHead(status, { "Content-Type": `${type}; charset=utf-8`,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff", ...more });
      response.end(body);
    };
    if (![`127.0.0.1:${port}`, `localhost:${port}`].includes(host)) {
      answer(421, "text/plain", "this is no public server\n");
      return;
    }
    const here = `http://${host}`;
    const { origin = "" } = request.headers;
    const cors = { "Access-Control-Allow-Origin": origin || "null", Vary: "Origin" };
    const route = `${request.method} ${request.url}`;
    if (route === "GET /") {
      answer(200, "text/html", page(gateway, here), { "X-Frame-Options": "DENY" });
    } else if (route === "GET /tab.js") {
      answer(200, "text/javascript", tabScript(gateway, here),
        { "Cross-Origin-Resource-Policy": "cross-origin" });
    } else if (route === "OPTIONS /allowed") {
      answer(204, "text/plain", "", { ...cors, "Access-Control-Allow-Private-Network": "true" });
    } else if (route === "POST /allowed") {
      readBody(request).then((script) => {
        const allowed = script !== null && Boolean(origin) && isAllowed(rules, script, origin);
        const reason = allowed ? "" : `no rule of the user allows this script in pages of ${origin || "no origin"}`;
        answer(200, "application/json", JSON.stringify({ allowed, reason }), cors);
      }, () => response.destroy());
    } else {
      answer(404, "text/plain", "there is / and /tab.js\n");
    }
  });
}

/**
 * Reads a script, null if it is too long.
 * @param {import("node:http").IncomingMessage} request
 */
async function readBody(request) {
  const parts = [];
  let size = 0;
  for await (const part of request) {
    size += part.length;
    if (size <= MAX_SCRIPT) parts.push(part);
  }
  return size <= MAX_SCRIPT ? Buffer.concat(parts).toString() : null;
}

/**
 * Listens. While another process has the port, such as the version that this one replaces, it tries again.
 * @param {import("node:http").Server} server @param {number} port @param {AbortSignal} signal ends the attempts
 * @param {(message: string) => void} complain
 * @returns {Promise<number>} the port
 */
export async function listen(server, port, signal, complain) {
  for (let attempt = 0; ; attempt++) {
    try {
      server.listen(port, "127.0.0.1");
      await once(server, "listening", { signal });
      return /** @type {import("node:net").AddressInfo} */ (server.address()).port;
    } catch (e) {
      if (e.code !== "EADDRINUSE") throw e;
      if (!attempt) complain(`port ${port} is taken; trying until it is free, or set BROWSER_PORT`);
      await setTimeout(200, undefined, { signal });
    }
  }
}
