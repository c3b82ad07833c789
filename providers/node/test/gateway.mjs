// A scripted gateway for the tests, which knows two tokens.
import { createHash, createHmac } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { WebSocketServer } from "ws";

export const token = "ptk-1";
export const pairedToken = "ext-tok-1";

/** @param {string | Buffer} data */
const sha256 = (data) => createHash("sha256").update(data).digest();
const keys = [token, pairedToken].map(sha256);

/** @param {import("node:http").IncomingMessage} request */
function proof({ headers, socket }) {
  const [id, nonce] = String(headers["tapgw-prove"]).split(" ");
  const address = `${socket.localAddress}:${socket.localPort}`;
  const key = keys.find((k) => sha256(k).toString("hex").startsWith(id)) ?? keys[0];
  return `${createHmac("sha256", key).update(`tapgw proof 1\n${nonce}\n${address}`).digest("hex")} ${address}`;
}

/** One connection of a provider, from the gateway's side. */
export class Peer {
  /** @type {any[]} */
  #messages = [];
  /** @type {((m: any) => void)[]} */
  #waiting = [];
  closed;

  /** @param {import("ws").WebSocket} ws */
  constructor(ws) {
    this.ws = ws;
    ws.on("message", (data) => {
      const m = JSON.parse(String(data));
      const next = this.#waiting.shift();
      next ? next(m) : this.#messages.push(m);
    });
    ws.on("error", () => {}); // the tests cut connections
    this.closed = once(ws, "close");
  }

  /** @param {any} m */
  send(m) {
    this.ws.send(JSON.stringify(m));
  }

  /** Takes the next message. @param {string} [type] @returns {Promise<any>} */
  async next(type) {
    const m = this.#messages.shift() ?? (await new Promise((done) => this.#waiting.push(done)));
    if (type && m.type !== type) throw new Error(`got ${JSON.stringify(m)}, want a ${type}`);
    return m;
  }

  /** Binds the provider to the session s1. @returns {Promise<any>} its hello */
  async bind() {
    await this.next("auth");
    this.send({ type: "sessions", active: [{ id: "s1", label: "one", cwd: "/s1" }] });
    const hello = await this.next("hello");
    this.send({
      type: "hello.ack", protocolVersion: 2, providerId: "p-1", sessionId: "s1",
        reconnectToken: "rt-1",
      persistDir: "/d",
    });
    return hello;
  }

  /** @param {string} tool @param {any} [args] @param {string} [id] */
  call(tool, args = {}, id = "c1") {
    this.send({ type: "tool.call", id, sessionId: "s1", tool, args });
  }
}

/** Listens on a free port. @param {{ autoPong?: boolean }} [options] autoPong: it answers pings */
export async function listen({ autoPong = true } = {}) {
  const server = createServer();
  const wss = new WebSocketServer({ server, autoPong });
  /** @type {Peer[]} */
  const peers = [];
  /** @type {((p: Peer) => void)[]} */
  const waiting = [];
  wss.on("headers", (headers, request) => headers.push(`Tapgw-Proof: ${proof(request)}`));
  wss.on("connection", (ws) => {
    const peer = new Peer(ws);
    const next = waiting.shift();
    next ? next(peer) : peers.push(peer);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const at = /** @type {import("node:net").AddressInfo} */ (server.address()).port;
  return {
    server,
    url: `ws://127.0.0.1:${at}`,
    /** Waits for the next connection. @returns {Promise<Peer>} */
    accept: async () => peers.shift() ?? new Promise((done) => waiting.push(done)),
    async stop() {
      for (const ws of wss.clients) ws.terminate();
      server.close();
      wss.close();
      server.closeAllConnections();
      await once(server, "close");
    },
  };
}
