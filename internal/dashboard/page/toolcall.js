import { tools } from "./api.js";
import { codeBlock } from "./code.js";
import { h, reconcile, setText } from "./dom.js";
import { date, duration, oneLine, plain, time } from "./format.js";
import { SchemaForm } from "./schemaform.js";

const resultsMost = 20;
const resultMost = 20_000; // characters of a result that are shown

const hints = [["readOnlyHint", "only reads"], ["destructiveHint", "may destroy"],
  ["idempotentHint", "twice is as once"],
  ["openWorldHint", "reaches out"]];

// cutBlock shows a text as code, and how much of it is left out.
function cutBlock(text, label) {
  const rest = text.length - resultMost;
  return [codeBlock(plain(text.slice(0, resultMost)), label),
    rest > 0 && h("p.hint", `and ${rest.toLocaleString()} characters more`)];
}

const indented = (value) => JSON.stringify(value, null, 2);

// partsOf shows the parts of a result: texts as texts, and of the others what they are.
const partsOf = (content) => content.flatMap((part) =>
  part.type === "text" ? cutBlock(part.text, "text") : cutBlock(indented(part), part.type));

// ToolCall shows a tool with its schema, and calls it in a session as the session's model would.
export class ToolCall {
  constructor(app) {
    this.app = app;
    this.session = h("select", { "aria-label": "Session" });
    this.where = h("label.row", "Session", this.session);
    this.about = h("div.about-tool");
    this.run = h("button.primary", { type: "submit" }, "Call");
    this.cancel = h("button", { hidden: true, onclick: () => this.abort?.abort() }, "Cancel");
    this.state = h("span.hint", { role: "status" });
    this.results = h("ol.call-results", { "aria-label": "Results" });
    this.formBox = h("div");
    this.form = h("form", {
      novalidate: true,
      onsubmit: (e) => {
        e.preventDefault();
        if (!this.abort) this.call();
      },
      onkeydown: (e) => {
        if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) this.form.requestSubmit(this.run);
      },
    }, this.where, this.formBox, h("div.row", this.run, this.cancel, this.state));
    this.element = h("div.tool-call", this.about, this.form, this.results);
  }

  // update is told the tool as each session has it.
  update(list) {
    const labels = new Map(this.app.state.sessions.map((s) => [s.id, s.label || s.id]));
    const chosen = this.session.value || this.app.state.sessions.find((s) => s.foreground)?.id;
    reconcile(this.session, list, (t) => t.session, (t) => h("option", { value: t.session }),
      (o, t) => setText(o, plain(labels.get(t.session) ?? t.session)));
    this.session.value = list.some((t) => t.session === chosen) ? chosen : list[0].session;
    this.where.hidden = list.length < 2;
    this.tools = list;
    const [t] = list, is = JSON.stringify([t.name, t.description, t.parameters, t.outputSchema,
      t.annotations, t.title]);
    if (is === this.shown) return;
    this.shown = is;
    this.fields = new SchemaForm(t.parameters);
    this.formBox.replaceChildren(this.fields.element);
    const said = hints.flatMap(([name, label]) => (t.annotations?.[name] ? [label] : []));
    this.about.replaceChildren(
      h("p.described", plain(t.description)),
      said.length ? h("p.hint", `It ${said.join(", ")}: so says its provider.`) : "",
      h("details", h("summary", "Schema"),
        cutBlock(indented(t.parameters), "Schema of the arguments"),
        t.outputSchema ? [h("p.hint", "Of its results:"), cutBlock(indented(t.outputSchema),
          "Schema of the results")]
          : []));
  }

  async call() {
    const args = this.fields.value();
    if (args === undefined) return;
    const [{ name }] = this.tools, session = this.session.value,
      label = this.session.selectedOptions[0].textContent;
    const abort = (this.abort = new AbortController()), ts = new Date().toISOString(),
      begun = performance.now();
    this.run.disabled = true;
    this.cancel.hidden = false;
    setText(this.state, "It runs…");
    let r;
    try {
      r = await tools.call(session, name, { args }, abort.signal);
    } catch (e) {
      r = { error: e.message, errorCode: e.code };
      if (abort.signal.aborted) r = { error: "You cancelled it.", errorCode: "CANCELLED" };
    }
    r.durationMs ??= performance.now() - begun;
    this.abort = null;
    this.run.disabled = false;
    if (document.activeElement === this.cancel ||
      document.activeElement === document.body) this.run.focus();
    this.cancel.hidden = true;
    const outcome = r.errorCode ?? (r.error ? "failed" : "ok");
    setText(this.state, `${outcome} in ${duration(r.durationMs)}`);
    const failed = outcome !== "ok";
    if (r.errorCode === "INVALID_ARGUMENTS") this.fields.refuse(r.error);
    this.results.prepend(h("li", { class: failed ? "failed" : "ok" },
      h("p.head", h("time", { datetime: ts, title: date(ts) }, time(ts)), " ",
        h("strong.outcome", outcome), " ", h("span.sub", duration(r.durationMs)), " ",
        h("span.sub", plain(label)), " ",
        h("button.link", { onclick: () => this.refill(args) }, "Use these arguments")),
      h("details", h("summary", h("code", plain(oneLine(JSON.stringify(args), 100)))),
        cutBlock(indented(args), "Arguments")),
      r.error && h("p.fault", plain(r.error)),
      r.content?.length ? partsOf(r.content) : [],
      !failed && (!r.content?.length || typeof r.data !== "string")
        ? cutBlock(typeof r.data === "string" ? r.data : (indented(r.data) ?? "null"),
          "Result") : []));
    while (this.results.children.length > resultsMost) this.results.lastChild.remove();
  }

  refill(args) {
    this.fields.json.value = indented(args);
    this.fields.readJSON();
    this.run.focus();
  }
}
