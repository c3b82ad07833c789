// Finding the gateway and its token, and connecting to it (docs/protocol.md, "Tokens").

import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { isIP } from "node:net";
import { join, resolve } from "node:path";
import WebSocket from "ws";
import { FatalError, RefusedError, asError } from "./errors.mjs";
import { MAX_FRAME, text } from "./wire.mjs";

/** @import { Options } from "./model.mjs" */

const DIAL_TIMEOUT = 5000; // milliseconds
export const CLOSE_TIMEOUT = 1000;

/** @param {string} name @param {string} [url] */
export function checkURL(name, url) {
  if (!url) return;
  if (!URL.canParse(url)) throw new Error(`${name}: ${JSON.stringify(url)} is not a URL`);
  if (!/^(wss?|https?):$/.test(new URL(url).protocol)) {
    throw new Error(`${name}: ${JSON.stringify(url)} must begin with ws:// or wss://`);
  }
}

const stateDir = () => join(resolve(process.env.COPILOT_HOME || join(homedir(), ".copilot")),
  "extensions", "tap");

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
export function gatewayURL(o) {
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
export function endpoints(o) {
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
export const isPaired = (e) => e.token.startsWith("ext-tok-");

/** @param {Endpoint} a @param {Endpoint} b */
export const sameEndpoint = (a, b) => a.url === b.url && a.token === b.token &&
  a.gateway === b.gateway;

/** @param {string} url */
export function isHere(url) {
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
      const want = createHmac("sha256",
        key).update(`tapgw proof 1\n${nonce}\n${reached}`).digest("hex");
      const proven = given.length === want.length &&
        timingSafeEqual(Buffer.from(given), Buffer.from(want));
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
export function dial(to, signal) {
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
      answer.on("data", (/** @type {string} */ part) =>
        (body += part.slice(0, 1024 - body.length)));
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
