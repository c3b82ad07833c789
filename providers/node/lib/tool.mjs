// Tools, and their schemas.

import { ProviderError } from "./errors.mjs";

/** @import { Message, Tool } from "./model.mjs" */

const MAX_TOOL_TIMEOUT = 3_600_000; // milliseconds

/** @param {unknown} value */
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * Returns a tool as the gateway gets it, and throws the first mistake in it.
 * @param {Tool} tool
 * @returns {{ definition: Tool, wire: Message, parse?: (args: any) => any }}
 */
export function prepareTool(tool) {
  const wrong = (/** @type {string} */ why) =>
    new TypeError(`tool ${JSON.stringify(tool.name)}: ${why}`);
  if (typeof tool.name !== "string" || !/^[A-Za-z0-9_-]{1,64}$/.test(tool.name)) {
    throw wrong('its name must be 1 to 64 letters, digits, "_" or "-"');
  }
  if (!tool.description) throw wrong("it needs a description: the model chooses by it");
  const { timeout, validate, title, annotations, outputSchema } = tool;
  if (timeout !== undefined && !(Number.isInteger(timeout) && timeout >= 1 &&
    timeout <= MAX_TOOL_TIMEOUT)) {
    throw wrong(`its timeout is ${timeout}, but must be 1 to ${MAX_TOOL_TIMEOUT} milliseconds`);
  }
  if (title !== undefined && typeof title !== "string") throw wrong("its title must be a text");
  if (annotations !== undefined &&
    !isObject(annotations)) throw wrong("its annotations must be an object");
  if (outputSchema !== undefined &&
    !isObject(outputSchema)) throw wrong("its outputSchema must be an object");
  const { schema, parse } = readSchema(tool.parameters, wrong);
  return {
    definition: tool,
    parse,
    wire: {
      name: tool.name,
      description: tool.description,
      parameters: schema,
      ...(timeout && { timeout }),
      ...(validate === false && { validate }),
      ...(title && { title }),
      ...(annotations && { annotations }),
      ...(outputSchema && { outputSchema }),
    },
  };
}

/**
 * Returns the JSON Schema of a tool's parameters. A schema object such as zod's writes its own, and reads arguments.
 * @param {any} schema
 * @param {(why: string) => Error} wrong
 * @returns {{ schema: object, parse?: (args: any) => any }}
 */
function readSchema(schema, wrong) {
  if (schema === undefined || schema === null) return { schema: { type: "object" } };
  if (typeof schema !== "object" &&
    typeof schema !== "function") throw wrong("its parameters must be an object");
  const standard = schema["~standard"];
  if (!standard) {
    if (Array.isArray(schema) ||
      typeof schema === "function") throw wrong("its parameters must be a JSON Schema");
    return { schema };
  }
  const write = standard.jsonSchema?.input ??
    (schema.toJSONSchema && (() => schema.toJSONSchema({ io: "input" })));
  if (!write) throw wrong("its schema cannot write itself as JSON Schema: give the JSON Schema as parameters");
  const parse = async (/** @type {any} */ args) => {
    const result = await standard.validate(args);
    if (!result.issues) return result.value;
    const issues = result.issues.map((/** @type {any} */ i) => {
      const path = (i.path ?? []).map((/** @type {any} */ p) => p?.key ?? p).join(".");
      return path ? `${path}: ${i.message}` : i.message;
    });
    throw new ProviderError("INTERNAL", `wrong arguments: ${issues.join("; ")}`);
  };
  return { schema: write({ target: "draft-2020-12" }), parse };
}

/** @typedef {ReturnType<typeof prepareTool>} PreparedTool */

/** Prepares the tools of a list, in which each name may stand once. @param {Tool[]} tools */
export function uniqueTools(tools) {
  const names = new Set();
  for (const { name } of tools) {
    if (names.has(name)) throw new TypeError(`tool ${JSON.stringify(name)}: stands twice in the list`);
    names.add(name);
  }
  return tools.map(prepareTool);
}
