// The helper of tabs that are providers: README.md says how. It holds the gate for their tool
// page_script, and serves the script that makes a tab a provider.

import { allow, createProvider, deny } from "../../node/index.mjs"; // in a copy of this directory: "tapgw-provider"
import { createHelper, isAllowed, listen, readRules } from "./helper.mjs";

const { BROWSER_ALLOW = "", BROWSER_PORT = "9402",
  TAP_GATEWAY_URL = "ws://127.0.0.1:9400" } = process.env;

function settings() {
  const port = Number(BROWSER_PORT);
  if (!Number.isInteger(port) || port < 0 || port > 65_535) {
    throw new Error(`BROWSER_PORT is ${JSON.stringify(BROWSER_PORT)}, want a port`);
  }
  return { port, rules: readRules(BROWSER_ALLOW) };
}

/** @param {{ port: number, rules: import("./helper.mjs").Rule[] }} settings */
async function main({ port, rules }) {
  const provider = createProvider("browser", {
    session: "all",
    tools: [{
      name: "page_scripts",
      description: "List the user's rules for page_script: an origin, and the expression that a script must match",
      parameters: { type: "object", additionalProperties: false },
      handler: () => rules.map((r) => r.text).join("\n") || "There is no rule, so no script runs.",
    }],
  });
  // The tools of a second site have its name at the end.
  const gated = provider.gate({ tool: "page_script*" }, ({ tool, args }) => {
    if (tool === "page_scripts" || isAllowed(rules, args.script)) return allow();
    return deny("No rule of the user allows this script. page_scripts lists what is allowed; ask the user for more.");
  });
  const server = createHelper({ gateway: TAP_GATEWAY_URL, rules });
  const end = () => void provider.disconnect();
  process.once("SIGTERM", end);
  process.once("SIGINT", end);
  await gated;
  const ended = new AbortController();
  const serving = listen(server, port, ended.signal, console.error).then(
    (p) => console.error(`pages connect by http://127.0.0.1:${p}/`),
    (e) => {
      if (!ended.signal.aborted) throw e;
    },
  );
  try {
    await Promise.race([provider.closed, serving.then(() => provider.closed)]);
  } finally {
    ended.abort();
    server.close();
    server.closeAllConnections();
    await provider.disconnect();
  }
}

try {
  await main(settings());
} catch (e) {
  console.error(`stopping: ${e.message}`);
  process.exitCode = 1;
}
