// The modules of the package have layers: no module imports itself by way of others, not even for
// its types.
import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const lib = fileURLToPath(new URL("../lib", import.meta.url));

test("imports have no cycle", () => {
  const imports = new Map(readdirSync(lib).filter((name) => name.endsWith(".mjs")).map((name) => {
    const source = readFileSync(join(lib, name), "utf8");
    return [name, [...source.matchAll(/\b(?:from|import\()\s*"\.\/([^"]+)"/g)].map((m) => m[1])];
  }));
  assert.ok([...imports.values()].flat().length > 50, "imports are found, also those of types");
  for (let removed = true; removed;) {
    removed = false;
    for (const [name, imported] of imports) {
      if (!imported.some((other) => imports.has(other))) removed = imports.delete(name);
    }
  }
  assert.deepEqual([...imports.keys()], [], "modules in or above a cycle");
});
