// A stand-in for tapgw in tests: one session, to which it binds one provider.
import { createHash, createHmac } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { WebSocketServer } from "ws";

/** The token that the stand-in wants from the provider. */
export const token = "ptk-test";

/** Its answers, by the type of the message. @type {Record<string, object>} */
const answers = {
  auth: { type: "sessions", active: [{ id: "s1", label: "test", cwd: "/" }] },
  hello: { type: "hello.ack", protocolVersion: 2, providerId: "p1", sessionId: "s1",
    reconnectToken: "rt-1" },
};

/** Shows the provider that this gateway knows the token. @param {import("node:http").IncomingMessage} request */
function proof({ headers, socket }) {
  const nonce = String(headers["tapgw-prove"]).split(" ")[1];
  const address = `${socket.localAddress}:${socket.localPort}`;
  const key = createHash("sha256").update(token).digest();
  return `${createHmac("sha256", key).update(`tapgw proof 1\n${nonce}\n${address}`).digest("hex")} ${address}`;
}

/** Starts a stand-in on a free port. */
export async function startGateway() {
  const server = createServer();
  const sockets = new WebSocketServer({ server });
  sockets.on("headers", (headers, request) => headers.push(`Tapgw-Proof: ${proof(request)}`));
  /** @type {Promise<import("ws").WebSocket>} */
  const bound = new Promise((done) => sockets.on("connection", (ws) => ws.on("message", (data) => {
    const { type } = JSON.parse(String(data));
    if (answers[type]) ws.send(JSON.stringify(answers[type]));
    if (type === "hello") done(ws);
  })));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = /** @type {import("node:net").AddressInfo} */ (server.address());
  return {
    url: `ws://127.0.0.1:${port}`,
    /** Calls a tool of the provider and returns its result. @param {string} tool @param {object} args */
    async call(tool, args) {
      const ws = await bound;
      const answer = new Promise((done) => ws.on("message", function read(data) {
        const m = JSON.parse(String(data));
        if (m.type !== "tool.result") return;
        ws.off("message", read);
        done(m);
      }));
      ws.send(JSON.stringify({ type: "tool.call", id: "c1", sessionId: "s1", tool, args }));
      const { data, error } = await answer;
      if (error) throw new Error(error);
      return data;
    },
    async stop() {
      for (const ws of sockets.clients) ws.terminate();
      server.close();
      await once(server, "close");
    },
  };
}
