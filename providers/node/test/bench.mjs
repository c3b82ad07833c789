// The provider of the benchmarks: node bench.mjs sdk, or bare for a ws client without any logic
// that answers the same frames. It prints how many milliseconds the import and the connection took,
// by the clock and of processor time.
const begin = performance.now();
const used = process.cpuUsage();
function say() {
  const { user, system } = process.cpuUsage(used);
  console.log((performance.now() - begin).toFixed(1), ((user + system) / 1000).toFixed(1));
}
const tool = { name: "echo", description: "Says it again", parameters: { type: "object" } };

async function sdk() {
  const { createProvider } = await import("../index.mjs");
  const handler = (/** @type {any} */ { text }) => text;
  createProvider("bench", { tools: [{ ...tool, handler }], onConnected: say, silent: true });
}

async function bare() {
  const { default: WebSocket } = await import("ws");
  const ws = new WebSocket(String(process.env.TAP_GATEWAY_URL), { perMessageDeflate: false });
  const send = (/** @type {any} */ m) => ws.send(JSON.stringify(m));
  ws.on("open", () => send({ type: "auth", token: process.env.TAP_PROVIDER_TOKEN }));
  ws.on("message", (data) => {
    const m = JSON.parse(String(data));
    if (m.type === "tool.call") send({ type: "tool.result", id: m.id, data: m.args.text });
    else if (m.type === "sessions") {
      send({ type: "hello", name: "bench", protocolVersion: 2, session: "s1", tools: [tool] });
    }
    if (m.type === "hello.ack") say();
  });
}

await (process.argv[2] === "sdk" ? sdk() : bare());
