import { h, reconcile, setText } from "./dom.js";
import { date, duration, oneLine, plain, time } from "./format.js";
import { drawRules, ruleText, rulesTable } from "./rules.js";
import { setBar, timeScale } from "./waterfall.js";

// ActivityView shows the last calls, gates, errors and push budgets.
export class ActivityView {
  constructor(element, app) {
    this.app = app;
    this.most = h("select", { id: "calls-most", onchange: () => this.update() },
      [25, 50, 100, 200].map((n) => h("option", { value: String(n) }, `last ${n}`)));
    this.calls = h("ol.waterfall");
    this.axis = h("div.axis", { "aria-hidden": "true" });
    const section = (title, none, ...content) => {
      const empty = h("p.empty", none);
      return {
        empty,
        element: h("section", { "aria-label": title },
          h("div.headline", h("h2", title), ...content.slice(1)), content[0], empty),
      };
    };
    const table = (label, heads, body) =>
      h("div.wide", { tabindex: "0", role: "group", "aria-label": `Table: ${label}` },
        h("table.grid.stack", h("thead", h("tr", heads.map((t) => h("th", { scope: "col" }, t)))),
          body));
    this.gates = h("tbody");
    this.rules = h("tbody");
    this.errors = h("tbody");
    this.pushes = h("tbody");
    this.sections = {
      calls: section("Calls", "No tool of a provider was called yet.",
        h("div", this.axis, this.calls),
        h("label.hidden", { for: "calls-most" }, "How many calls"), this.most),
      rules: section("Rules", "No rule is in force in a session.", rulesTable(this.rules)),
      gates: section("Gates", "No gate was asked yet.",
        table("gates", ["Time", "Decision", "Tool", "Provider", "Session", "Took", "Reason"],
          this.gates)),
      errors: section("Errors", "Nothing went wrong lately.",
        table("errors", ["Time", "Code", "Provider", "Session", "Message"], this.errors)),
      pushes: section("Push budgets", "Nobody pushed lately.",
        table("push budgets", ["Provider", "Session", "Used this second", "Refused"], this.pushes)),
    };
    element.classList.add("page");
    element.append(...Object.values(this.sections).map((s) => s.element));
    app.on("diagnostics", () => this.update());
    app.on("sessions", () => this.update());
  }

  update() {
    const d = this.app.state.diagnostics;
    if (!d) return;
    const labels = new Map(this.app.state.sessions.map((s) => [s.id, s.label]));
    const labelOf = (id) => labels.get(id) || id || "";
    const show = (name, list) => {
      const { element, empty } = this.sections[name];
      empty.hidden = list.length > 0;
      element.classList.toggle("none", !list.length);
    };
    for (const name of ["calls", "gates", "errors", "pushes"]) show(name, d[name] ?? []);
    show("rules", this.app.state.rules);
    drawRules(this.rules, this.app.state.rules, d.gates ?? [], labelOf);
    this.waterfall((d.calls ?? []).slice(0, Number(this.most.value)), labelOf);

    const cells = (tr, texts) => texts.forEach((t, i) => setText(tr.children[i], String(t ?? "")));
    const when = (ts) => h("td", h("time", { datetime: ts, title: date(ts) }, time(ts)));
    reconcile(
      this.gates,
      d.gates ?? [],
      (g) => `${g.at} ${g.provider} ${g.rule.index} ${g.tool} ${g.session}`,
      (g) =>
        h("tr", when(g.at), h("td", h("span", { class: `decision ${g.decision}` }, g.decision)),
          h("td", h("code", g.tool), h("span.sub", plain(oneLine(g.args, 40)))),
          h("td", g.provider, h("span.sub", ruleText(g.rule))), h("td", labelOf(g.session)),
          h("td.number", duration(g.durationMs)), h("td", g.reason ?? "")),
    );
    reconcile(
      this.errors,
      d.errors ?? [],
      (e) => `${e.at} ${e.code} ${e.provider} ${e.session} ${e.message}`,
      (e) =>
        h("tr", when(e.at), h("td", h("span.code-word", e.code)),
          h("td", e.provider ?? ""), h("td", labelOf(e.session)), h("td", e.message)),
    );
    reconcile(
      this.pushes,
      d.pushes ?? [],
      (p) => `${p.provider} ${p.session}`,
      () => h("tr", h("td"), h("td"), h("td.budget", h("meter", { min: "0" }), h("span")), h("td")),
      (tr, p) => {
        cells(tr, [p.provider, labelOf(p.session)]);
        const [meter, text] = tr.children[2].children;
        Object.assign(meter, { max: p.limit, high: p.limit * 0.8, value: p.used });
        meter.setAttribute("aria-label", `used by ${p.provider}`);
        setText(text, `${p.used} of ${p.limit}`);
        setText(tr.children[3], String(p.dropped));
        tr.children[3].classList.toggle("bad", p.dropped > 0);
      },
    );
  }

  // waterfall draws calls as bars on a time axis. Pauses in which no call ran are drawn short, so
  // that calls of yesterday remain legible.
  waterfall(calls, labelOf) {
    const spans = calls.map((c) => ({
      ...c,
      from: Date.parse(c.startedAt),
      to: Date.parse(c.startedAt) + Math.max(0, c.durationMs ?? 0),
    }));
    const { parts, place } = timeScale(spans, 1000);
    // Labels that would overlap are left out.
    let free = 0;
    reconcile(
      this.axis,
      parts.filter((b) => b.x >= free && (free = b.x + 0.09)),
      (b) => b.from,
      (b) => h("span", time(b.from)),
      (el, b) => {
        el.style.left = `${Math.min(b.x, 0.93) * 100}%`;
      },
    );
    reconcile(
      this.calls,
      spans,
      (c) => c.id || `${c.startedAt} ${c.tool}`,
      () =>
        h("li", h("time"), h("code"), h("span.sub"),
          h("span.lane", h("span.ran")), h("span.took"),
          h("span.outcome")),
      (li, c) => {
        const [when, tool, who, lane, took, outcome] = li.children;
        setText(when, time(c.startedAt));
        when.title = date(c.startedAt);
        setText(tool, c.tool);
        setText(who, `${c.provider} · ${labelOf(c.session)}`);
        setText(took, duration(c.durationMs));
        setText(outcome, c.errorCode || c.outcome);
        li.className = c.outcome === "ok" ? "ok" : "failed";
        setBar(lane.firstChild, c, place);
      },
    );
  }
}
