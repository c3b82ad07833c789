// A provider in its smallest form: one tool.
import { pathToFileURL } from "node:url";
import { createProvider } from "tapgw-provider";

/** @param {{ name?: string }} args */
const greet = ({ name = "world" }) => `Hello, ${name}!`;

/** @param {import("tapgw-provider").Options} [options] */
export const start = (options) => createProvider("hello", {
  tools: [{
    name: "greet_hello",
    description: "Greet someone by name",
    parameters: { type: "object",
      properties: { name: { type: "string", description: "who to greet" } } },
    handler: greet,
  }],
  ...options,
});

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const provider = start();
  for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => provider.disconnect());
  await provider.closed;
}
