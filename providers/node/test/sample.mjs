// The samples of testdata/sdk/README.md: node sample.mjs NAME. Their tools make the provider act as
// a scenario demands.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { allow, contentResult, createProvider, deny, fileResult, imageResult, ProviderError,
  QuestionEnded } from "../index.mjs";

const [, , name] = process.argv;

/** @type {Record<string, import("../index.mjs").Options>} */
const options = {
  echo: {},
  listener: {},
  answerer: {
    async onQuestion(q) {
      questions.set(q.id, q);
      const say = (/** @type {string} */ text) => provider.keep(text, { session: q.sessionId });
      const schema = q.schema ? JSON.stringify(q.schema) : "";
      const until = q.expiresAt.toISOString().replace(/\.\d+/, "");
      say(`asked: ${q.kind}: ${q.message}: ${q.detail}: [${q.choices.join(", ")}] free=${q.freeform} schema=${schema} ` +
        `until ${until}`);
      if (q.message === "Answer it.") {
        await q.answer({ text: "by itself" });
        say("answered by itself");
        return;
      }
      q.signal.onabort = () => {
        const end = q.signal.reason;
        if (end instanceof QuestionEnded) say(`ended: ${end.reason} by ${end.by}: ${end.person}`);
      };
    },
  },
  all: {
    session: "all",
    onConnected: ({ sessionId }) => provider.keep(`bound to ${sessionId}`, { session: sessionId }),
  },
  instance: {
    instance: "tab-1",
    metadata: { title: "Tab 1" },
    concurrency: { max: 2, scope: "provider" },
    startupContext: "At first.",
    context: "Always.",
  },
  paired: {},
};

/** @param {import("../index.mjs").Receipt} r */
const show = ({ sessionId, seq, fate, reason }) => ({ session: sessionId, seq, fate, reason });

/** @param {string} name */
const named = (name) => ({
  name,
  description: "Says its name",
  handler: () => name,
  ...(name === "described" && {
    title: "The title",
    annotations: { readOnlyHint: true, openWorldHint: false },
    outputSchema: { type: "object" },
  }),
});

/** @type {Map<string, import("../index.mjs").Question>} */
const questions = new Map();

/** @type {import("../index.mjs").Rule[]} */
let rules = [];

/** @param {Promise<import("../index.mjs").Rule>} adding */
async function added(adding) {
  const rule = await adding;
  rules.push(rule);
  return rule.revision;
}

/** @type {Record<string, (args: any, call: import("../index.mjs").CallContext) => any>} */
const handlers = {
  echo: ({ text = "" }) => text,
  value: ({ value }) => value,
  large: ({ size }) => "x".repeat(size),
  parts: () => contentResult([
    { type: "text", text: "look" },
    { type: "image", mimeType: "image/png", data: Buffer.from("png") },
    { type: "resource", uri: "mem://a", name: "a" },
  ], { n: 1 }),
  image: () => imageResult(Buffer.from("png")),
  slow: (_, { signal }) => new Promise((_done, failed) =>
    (signal.onabort = () => failed(signal.reason))),
  fail({ code, text, retryable }) {
    throw new ProviderError(code, text, { retryable });
  },
  crash() {
    throw new Error("it broke");
  },
  progress({ lines = [] }, { progress }) {
    for (const line of lines) progress(line);
    return "done";
  },
  file({ text = "" }, { persistDir }) {
    const path = join(persistDir, "report.txt");
    writeFileSync(path, text);
    return fileResult(path, { mimeType: "text/plain" });
  },
  async push({ event = "", level = "surface", wait, ...rest }) {
    const receipt = await provider.pushEvent(level, event, { ...rest, waitDelivered: wait });
    return receipt.each ? receipt.each.map(show) : show(receipt);
  },
  filter: ({ stream, rules = [] }) => provider.setFilter(stream, rules),
  async query(args) {
    const found = await provider.query(args);
    return found.map((e) => {
      const metadata = e.metadata ? JSON.stringify(e.metadata) : "";
      return `${e.stream}@${e.provider} ${e.level} ${e.text} ${e.prompt} ${metadata}`;
    });
  },
  context: ({ text = "", ...where }) => provider.setContext(text, where),
  add_tool: ({ name, ...where }) => provider.addTool(named(name), where),
  remove_tool: ({ name, ...where }) => provider.removeTool(name, where),
  set_tools: ({ names = [], ...where }) => provider.updateTools(names.map(named), where),
  deny: ({ match = {}, text = "" }) => added(provider.deny(match, text)),
  explain: ({ match = {}, text = "" }) => added(provider.addContext(match, text)),
  gate: ({ match = {}, failOpen }) => added(provider.gate(match, ({ args }) => decide(args),
    { failOpen })),
  async remove_rules() {
    let revision = 0;
    for (const rule of rules.splice(0)) revision = await rule.remove();
    return revision;
  },
  async answer({ question, ...answer }) {
    try {
      await questions.get(question)?.answer(answer);
      return "answered";
    } catch (e) {
      if (!(e instanceof ProviderError)) throw e;
      return `refused: ${e.message}`; // CODE: MESSAGE
    }
  },
  section({ section, action, text = "" }) {
    if (action === "remove") return provider.removeTransform(section);
    if (action !== "callback") return provider[/** @type {"append"} */ (action)](section, text);
    return provider.transform(section, ({ current }) => {
      if (current === "fail") throw new Error("no text for this");
      return current.toUpperCase();
    });
  },
};

/** @param {{ decide: string, text: string }} args @returns {any} */
function decide({ decide, text }) {
  if (decide === "allow") return allow();
  if (decide === "explain") return allow(text);
  if (decide === "deny") return deny(text);
  if (decide === "fail") throw new Error(text);
}

const provider = createProvider(name, {
  ...options[name],
  autoConnect: false,
  token: process.env.TAP_PROVIDER_TOKEN, // from the user, as it were
  silent: true,
  tools: Object.entries(handlers).map(([tool, handler]) => ({
    name: tool, description: `The sample tool ${tool}`, handler,
  })),
});
if (name === "listener") {
  /** @param {string} event @param {(e: any) => string} text */
  const say = (event, text) => provider.subscribe(event,
    (e) => provider.keep(text(e), { session: e.sessionId }));
  say("user.message", (e) => `user: ${e.content}`);
  say("assistant.message", (e) => `assistant: ${e.content} (${e.toolRequests?.length ?? 0})`);
  say("tool.execution_complete",
    ({ tool, provider: by = "", result: { type, code, output = "" } }) =>
    `tool: ${tool} by ${by}: failed=${type !== "success"}${code ? ` ${code}` : ""}: ${output}`);
  say("assistant.intent", (e) => `intent: ${e.intent}`);
  say("session.error", (e) => `error: ${e.message}`);
  say("event.pushed", (e) => `pushed: ${e.stream}@${e.provider} ${e.level}: ${e.event}`);
}
process.once("SIGTERM", () => provider.disconnect());
if (name === "paired") await provider.pair(() => "123456");
await provider.connect();
