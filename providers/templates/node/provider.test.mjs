import assert from "node:assert/strict";
import { test } from "node:test";
import { startGateway, token } from "./gateway.mjs";
import { start } from "./provider.mjs";

test("greet_hello greets", async () => {
  const gateway = await startGateway();
  const provider = start({ gatewayUrl: gateway.url, token });
  try {
    assert.equal(await gateway.call("greet_hello", { name: "Ada" }), "Hello, Ada!");
    assert.equal(await gateway.call("greet_hello", {}), "Hello, world!");
  } finally {
    await provider.disconnect();
    await gateway.stop();
  }
});
