// A provider for tapgw in one file: it gives the agent's session a tool, greet.
//
//     npm install ws
//     node hello.mjs
//
// It waits for the gateway and for a session, serves calls until the session
// ends, and then waits for the next one. Ctrl-C or SIGTERM: it says goodbye. A
// gateway that refuses its token ends it: the same one would be refused again.
import { createHash, createHmac, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import WebSocket from "ws";

const RETRY_MS = 1000;

// The tools: what the model sees, and the function that runs. A signal that is
// aborted means that nobody waits for the result any more.
const tools = [
  {
    name: "greet",
    description: "Greet someone by name",
    parameters: {
      type: "object",
      properties: {
        name: { type: "string", description: "Who to greet" },
        seconds: { type: "number", minimum: 0, description: "How long to think first" },
      },
      required: ["name"],
    },
    async run({ name, seconds = 0 }, signal) {
      await sleep(seconds * 1000, undefined, { signal });
      return `Hello, ${name}!`;
    },
  },
];

// The environment says where the gateway is, else the gateway's own files do.
// They are read anew for each connection: each gateway has a token of its own.
// Without either no gateway runs: another user's may have the usual port.
function discover() {
  const dir = join(process.env.COPILOT_HOME || join(homedir(), ".copilot"), "extensions", "tap");
  const read = (file) => {
    try {
      return readFileSync(join(dir, file), "utf8").trim();
    } catch {
      return "";
    }
  };
  const info = read("gateway.json");
  return {
    url: process.env.TAP_GATEWAY_URL || (info && JSON.parse(info).url),
    token: process.env.TAP_PROVIDER_TOKEN || read(".provider-token"),
  };
}

// A gateway proves that it knows the token before it is sent that, at the address
// that was dialled (docs/protocol.md, "Is it your gateway?").
function question(token) {
  const key = createHash("sha256").update(token).digest();
  const id = createHash("sha256").update(key).digest("hex").slice(0, 16);
  const nonce = randomBytes(16).toString("hex");
  return {
    header: `${id} ${nonce}`,
    isAnsweredBy({ headers, socket }) {
      const [proof, address] = (headers["tapgw-proof"] ?? "").split(" ");
      const want = createHmac("sha256", key).update(`tapgw proof 1\n${nonce}\n${address}`).digest("hex");
      const host = socket.remoteFamily === "IPv6" ? `[${socket.remoteAddress}]` : socket.remoteAddress;
      const tunnel = process.env.TAP_GATEWAY_URL && process.env.TAP_PROVIDER_TOKEN; // the user's own
      return proof === want && (tunnel || address === `${host}:${socket.remotePort}`);
    },
  };
}

let ws; // the present connection
let stopping = false;

function connect() {
  const { url, token } = discover();
  if (!url || !token) {
    setTimeout(connect, RETRY_MS); // no gateway has written them yet
    return;
  }
  const calls = new Map(); // id of a call in flight: its AbortController
  let bound = false;
  let refused = false;

  const asked = question(token);
  const conn = new WebSocket(url, { headers: { "Tapgw-Prove": asked.header } });
  ws = conn;
  const send = (message) => {
    if (conn.readyState === WebSocket.OPEN) conn.send(JSON.stringify(message));
  };
  const hello = (sessions) => {
    if (bound || sessions.length === 0) return; // the gateway says when there is one
    send({
      type: "hello",
      name: "hello-node",
      protocolVersion: 2,
      session: sessions[0].id, // the gateway puts the best one first
      tools: tools.map(({ run, ...definition }) => definition),
    });
  };
  // Each call gets exactly one result, whatever its tool does.
  const call = async ({ id, tool, args }) => {
    const controller = new AbortController();
    calls.set(id, controller);
    let result;
    try {
      const known = tools.find((t) => t.name === tool);
      result = known
        ? { data: await known.run(args, controller.signal) }
        : { error: `no tool ${tool}`, errorCode: "NOT_FOUND" };
    } catch (err) {
      result = { error: String(err?.message ?? err), errorCode: "INTERNAL" };
    }
    if (controller.signal.aborted) result = { error: "Cancelled", errorCode: "CANCELLED" };
    calls.delete(id);
    send({ type: "tool.result", id, ...result });
  };

  conn.on("upgrade", (answer) => {
    if (asked.isAnsweredBy(answer)) return;
    console.error(`the server at ${url} is not the gateway of the token`);
    conn.terminate();
  });
  conn.on("unexpected-response", (request, answer) => {
    if (answer.statusCode === 401) {
      console.error("gateway: AUTH_FAILED: it does not know the token");
      refused = true;
    }
    request.destroy();
    conn.terminate();
  });
  conn.on("open", () => send({ type: "auth", token }));
  conn.on("message", (raw) => {
    const msg = JSON.parse(raw);
    switch (msg.type) {
      case "sessions":
      case "sessions.updated":
        hello(msg.active);
        break;
      case "hello.ack":
        bound = true;
        console.log(`bound to session ${msg.sessionId} as ${msg.providerId}`);
        break;
      case "tool.call":
        call(msg);
        break;
      case "tool.cancel":
        console.log(`cancelled: ${msg.reason}`);
        calls.get(msg.id)?.abort();
        break;
      case "session.lifecycle":
        if (msg.state !== "shutdown.pending") break;
        console.log("the session ends");
        send({ type: "goodbye", reason: "session ending" });
        conn.close();
        break;
      case "error":
        console.error(`gateway: ${msg.code}: ${msg.message}`);
        if (msg.code === "AUTH_FAILED") refused = true;
        break;
      default: // newer gateways say more
    }
  });
  conn.on("error", () => {}); // the close that follows is what counts
  conn.on("close", () => {
    for (const controller of calls.values()) controller.abort();
    if (refused && discover().token === token) { // else a new gateway has written its own
      console.error(`stopping: the gateway at ${url} refused the token; start this again with the right one`);
      process.exit(1);
    }
    if (!stopping) setTimeout(connect, RETRY_MS);
  });
}

for (const signal of ["SIGINT", "SIGTERM"]) {
  process.on(signal, () => {
    stopping = true;
    if (!ws) process.exit(0);
    if (ws.readyState === WebSocket.OPEN) ws.send(JSON.stringify({ type: "goodbye", reason: signal }));
    ws.close();
    setTimeout(() => process.exit(0), 500).unref(); // a gateway that does not answer the close
    ws.once("close", () => process.exit(0));
  });
}
connect();
