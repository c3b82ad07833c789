// Every name of this package in docs/tap.md is a name that it has.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import * as sdk from "../index.mjs";

const [document] = (process.env.DOCUMENTS ?? "../../docs/providers.md").split(":");
const types = readFileSync(new URL("../lib/model.mjs", import.meta.url), "utf8");
const { name } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));

const known = new Set([
  ...Object.keys(sdk),
  ...Object.getOwnPropertyNames(sdk.Provider.prototype),
  ...Object.keys(new sdk.Provider("names", {})),
  ...[...types.matchAll(/@property \{.*\} \[?(\w+)/g)].map((m) => m[1]), // options, contexts and receipts
]);

/** The names in a cell of the table: `a`, `a(b)`, `a({ b, c })`, `x.a`, and `import { a } from "b"`. @param {string} cell */
function names(cell) {
  return [...cell.matchAll(/`([^`]+)`/g)].flatMap(([, code]) => {
    const braces = code.match(/\{ (.*) \}/)?.[1].split(", ") ?? [];
    const head = code.match(/^(?:\w+\.)?(\w+)(?:\(.*\))?$/)?.[1];
    return head ? [head, ...braces] : braces;
  }).filter((word) => !["await", "true", "false"].includes(word));
}

test("tap.md names what is there", () => {
  const [, table] = readFileSync(join(dirname(document), "tap.md"), "utf8").split("\n## A provider of the original SDK\n");
  const rows = table.split("\n")
    .filter((line) => line.startsWith("| ")).slice(1).map((line) => line.split("|").map((cell) => cell.trim()));
  const found = rows.flatMap(([, there, here]) => names(/^(the same|they)/.test(here) ? `${there} ${here}` : here));
  assert.ok(found.length > 40, `got ${found.length} names, want more than 40`);
  assert.deepEqual(found.filter((word) => !known.has(word)), [], "names that the package does not have, want none");
  assert.ok(rows[0][2].endsWith(`from "${name}"\``), `the package is called ${name}, want it in ${rows[0][2]}`);
});
