import { providers } from "./api.js";
import { attempt, confirm } from "./dialogs.js";
import { h, reconcile, setText } from "./dom.js";
import { ago, count, date, duration, share } from "./format.js";

// ProvidersView lists the connected providers with their tools and response times.
export class ProvidersView {
  constructor(app) {
    this.app = app;
    this.rows = h("tbody");
    this.none = h("p", { class: "empty" }, "No provider is connected.");
    this.table = h("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Table of providers" },
      h("table", { class: "grid stack" },
        h("thead", null,
          h("tr", null,
            ["Provider", "Trust", "State", "Session", "Tools", "In flight", "Calls", "p50", "p99", "Errors",
              "Connected", ""].map((t, i) =>
              h("th", { scope: "col", class: i >= 5 && i <= 9 ? "number" : null },
                t || h("span", { class: "hidden" }, "Actions")),
            ))),
        this.rows));
    this.element = h("div", { class: "view page" }, h("h2", null, "Providers"), this.table, this.none);
    for (const name of ["providers", "sessions", "tools", "diagnostics"]) app.on(name, () => this.update());
  }

  update() {
    const { providers: list, sessions, diagnostics } = this.app.state;
    this.none.hidden = list.length > 0;
    this.table.hidden = !list.length;
    const labels = new Map(sessions.map((s) => [s.id, s.label || s.id]));
    const figures = new Map((diagnostics?.providers ?? []).map((p) => [p.id, p]));
    reconcile(
      this.rows,
      list,
      (p) => p.id,
      (p) => this.row(p),
      (tr, p) => {
        const f = figures.get(p.id);
        const text = {
          trust: p.trust,
          state: p.state,
          session: p.session === "all" ? "all" : (labels.get(p.session) ?? p.session),
          tools: count(p.tools, "tool"),
          inflight: p.inFlight,
          calls: f?.calls ?? "–",
          p50: duration(f?.p50Ms),
          p99: duration(f?.p99Ms),
          errors: f ? share(f.errors, f.calls) : "–",
          since: ago(p.connectedAt),
        };
        for (const [name, value] of Object.entries(text)) setText(tr.querySelector(`.${name}`), String(value));
        tr.querySelector(".errors").classList.toggle("bad", Boolean(f?.errors));
        tr.querySelector(".inflight").classList.toggle("some", p.inFlight > 0);
        const open = tr.querySelector(".tools");
        open.disabled = !p.tools;
        if (open.getAttribute("aria-expanded") === "true") this.showTools(tr, p);
      },
    );
  }

  row(p) {
    const open = h("button", {
      type: "button",
      class: "tools link",
      "aria-expanded": "false",
      onclick: () => {
        const on = open.getAttribute("aria-expanded") === "false";
        open.setAttribute("aria-expanded", String(on));
        if (on)
          this.showTools(tr, this.app.state.providers.find((it) => it.id === p.id));
        else tr.querySelector(".toollist").replaceChildren();
        this.showFigures(tr.querySelector(".toolfigures"), on && p.name);
      },
    });
    const restart = h("button",
      { type: "button", onclick: () => attempt(restart, () => providers.steer(p.name, "restart")) }, "Restart");
    const stop = h("button", {
      type: "button",
      class: "danger",
      onclick: () =>
        attempt(stop, () =>
          confirm("Stop the provider?", `${p.name} is told to leave; its tools leave every session.`, "Stop provider",
            () => providers.steer(p.name, "stop")),
        ),
    }, "Stop…");
    const tr = h("tr", null,
      h("th", { scope: "row" }, h("span", null, p.name), p.instance && h("span", { class: "sub" }, p.instance),
        h("div", { class: "toollist" }), h("div", { class: "toolfigures" })),
      h("td", { class: "trust" }),
      h("td", { class: "state" }),
      h("td", { class: "session", "data-label": "Session" }),
      h("td", null, open),
      [["inflight", "In flight"], ["calls", "Calls"], ["p50", "p50"], ["p99", "p99"], ["errors", "Errors"]].map(
        ([c, label]) => h("td", { class: `${c} number`, "data-label": label })),
      h("td", { class: "since", title: date(p.connectedAt), "data-label": "Connected" }),
      h("td", { class: "buttons" }, restart, stop));
    return tr;
  }

  // showFigures draws how the calls of a provider went, or with no name takes that away.
  async showFigures(box, name) {
    box.replaceChildren();
    if (!name) return;
    const { providerFigures } = await import("./figures.js");
    box.replaceChildren(providerFigures(name));
  }

  showTools(tr, p) {
    const tools = new Map(
      this.app.state.tools
        .filter((t) => t.provider === p?.name && (p.session === "all" || t.session === p.session))
        .map((t) => [t.name, t]),
    );
    reconcile(
      tr.querySelector(".toollist"),
      [...tools.values()],
      (t) => t.name,
      (t) =>
        h("div", { title: t.description }, h("code", null, t.name), " ", h("span", { class: "hint" }, t.description)),
    );
  }
}
