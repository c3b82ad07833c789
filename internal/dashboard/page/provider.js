import { loadLate } from "./api.js";
import { h, reconcile, setText } from "./dom.js";
import { date, moment, oneLine, plain } from "./format.js";
import { ProviderLog } from "./log.js";
import { addressOf } from "./record.js";
import { decision, drawRules, ruleText, rulesTable } from "./rules.js";

// entry is an element of a list of what happened.
const entry = (ts, ...content) =>
  h("li", h("time", { datetime: ts, title: date(ts) }, moment(ts)), " ", content);

// ProviderDetail shows one provider: why it is as it is, its log, what went wrong and what its
// gates decided lately, its tools and how their calls went.
export class ProviderDetail {
  constructor(app) {
    this.app = app;
    this.name = "";
    this.title = h("h2");
    this.links = h("p.row");
    this.why = h("p.why-now");
    this.faults = h("ul.faults");
    this.log = new ProviderLog();
    this.noLog = h("p.empty", "The gateway has not started it: its log is where it was started.");
    this.errors = h("ol.said-list");
    this.noErrors = h("p.empty", "Nothing went wrong lately.");
    this.gates = h("ol.said-list");
    this.noGates = h("p.empty", "No gate or rule of it has decided lately.");
    this.rules = h("tbody");
    this.rulesPart = h("section", { "aria-label": "Rules of the provider" }, h("h3", "Rules"),
      rulesTable(this.rules));
    this.tools = h("div.toollist");
    this.noTools = h("p.empty", "It gives no tool to a session now.");
    this.figures = h("details.tester", { ontoggle: () => this.drawFigures() },
      h("summary", "Figures"), h("div.toolfigures"));
    const part = (label, ...content) => h("section", { "aria-label": `${label} of the provider` },
      h("h3", label), content);
    this.element = h("section.detail.provider", { hidden: true, "aria-label": "Provider" },
      h("div.headline", this.title, this.links,
        h("a.close", { href: "#/providers" }, "Close")),
      this.why, this.faults,
      part("Tools", this.tools, this.noTools),
      this.rulesPart,
      h("div.halves",
        part("Log", this.log.element, this.noLog),
        h("div", part("Last errors", this.errors, this.noErrors),
          part("Last decisions", this.gates, this.noGates))),
      this.figures);
  }

  show(name) {
    if (name === this.name) return;
    this.name = name;
    this.element.hidden = !name;
    this.isFiled = false;
    this.names = [];
    this.log.show("");
    this.tools.replaceChildren();
    this.figures.open = false;
    if (!name) return;
    setText(this.title, plain(name));
  }

  // update is told all that the list shows of the provider.
  update(items) {
    if (!this.name) return;
    const { status, diagnostics, tools } = this.app.state;
    const c = items.find((it) => it.c)?.c;
    const now = items.flatMap((it) => it.p?.name ?? []);
    if (now.length || !this.names.length) this.names = [...new Set([this.name, ...now])]; // else as it was before
    const isOurs = (it) => this.names.includes(it.provider);
    if (Boolean(c) !== this.isFiled) {
      this.isFiled = Boolean(c);
      this.log.show(c ? this.name : "", "No file names this provider now.");
    }
    this.log.element.hidden = !c;
    this.noLog.hidden = Boolean(c);
    const records = addressOf({ provider: this.names.at(-1) });
    if (this.links.firstChild?.hash !== records)
      this.links.replaceChildren(h("a", { href: records }, "Its records"));
    setText(this.why, items.length ? plain(c?.reason ??
      "") : "No file names it, and it is not connected.");
    const faults = (status?.faults ?? []).filter((f) => f.file === c?.file);
    reconcile(this.faults, faults, (f) => `${f.line} ${f.column} ${f.message}`,
      (f) => h("li.fault", h("code", `${plain(f.file)}:${f.line}:${f.column}`), " ",
        plain(f.message)));

    const errors = (diagnostics?.errors ?? []).filter(isOurs);
    this.noErrors.hidden = errors.length > 0;
    reconcile(this.errors, errors, (e) => `${e.at} ${e.code} ${e.message}`,
      (e) => entry(e.at, h("span.code-word", e.code), h("div.said", plain(e.message))));
    const gates = (diagnostics?.gates ?? []).filter(isOurs);
    this.noGates.hidden = gates.length > 0;
    reconcile(this.gates, gates, (g) => `${g.at} ${g.rule.index} ${g.tool} ${g.session}`,
      (g) => h("li", decision(g), h("div.sub", ruleText(g.rule))));
    const rules = this.app.state.rules.filter((r) => !r.hook && isOurs(r));
    this.rulesPart.hidden = !rules.length;
    const labels = new Map(this.app.state.sessions.map((s) => [s.id, s.label]));
    drawRules(this.rules, rules, gates, (id) => labels.get(id) || id);

    const byName = new Map();
    for (const t of tools.filter(isOurs)) byName.set(t.name, [...(byName.get(t.name) ?? []), t]);
    this.noTools.hidden = byName.size > 0;
    reconcile(this.tools, [...byName.values()], ([t]) => t.name, () => this.tool(),
      (el, list) => el.update(list));
  }

  // tool makes the element of a tool, whose form is made when somebody opens it.
  tool() {
    const name = h("code"), about = h("span.hint");
    let list, call;
    const el = h("details.tester", {
      ontoggle: async () => {
        if (!el.open || call) return;
        const { ToolCall } = await loadLate(() => import("./toolcall.js"));
        call ??= new ToolCall(this.app);
        call.update(list);
        el.append(call.element);
      },
    }, h("summary", name, " ", about));
    el.update = (now) => {
      list = now;
      setText(name, plain(list[0].title ?? list[0].name));
      setText(about, plain(oneLine(list[0].description, 160)));
      call?.update(list);
    };
    return el;
  }

  // drawFigures draws how the calls went, if somebody looks.
  async drawFigures() {
    const box = this.figures.lastChild, name = this.names.at(-1);
    box.replaceChildren();
    if (!this.figures.open) return;
    const { providerFigures } = await loadLate(() => import("./figures.js"));
    if (this.figures.open) box.replaceChildren(providerFigures(name));
  }
}
