// Pairing: a token for a provider without one (docs/protocol.md, "Pairing").

import WebSocket from "ws";
import { CLOSE_TIMEOUT, dial } from "./discover.mjs";
import { fromGateway } from "./errors.mjs";
import { ANSWER_TIMEOUT } from "./wire.mjs";

/** @import { Endpoint } from "./discover.mjs" */
/** @import { Message } from "./model.mjs" */
/** @import { Shared } from "./run.mjs" */

/**
 * Gets a token from a gateway that shows its user a code.
 * @param {Shared} p
 * @param {Endpoint} to
 * @param {(prompt: string, signal: AbortSignal) => string | Promise<string>} ask
 * @returns {Promise<string>}
 */
export async function pair(p, to, ask) {
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
