import { providers } from "./api.js";
import { action, confirm } from "./dialogs.js";
import { h, reconcile, setText } from "./dom.js";
import { address, ago, count, date, decoded, distance, duration, elsewhere, plain, share,
  tail } from "./format.js";
import { ProviderDetail } from "./provider.js";

// How a provider of no file is, in the place of a reason.
const whyNoFile = "No file names it: only who started it can start it again.";
const whyOwn = "A part of the gateway.";

// itemsOf lists what the view shows: each connection with the file that names it, if one does, what
// files name that is not connected, and what other gateways share that serves no session here.
function itemsOf({ configured, providers: connected, cluster }) {
  const files = configured ?? [];
  const of = (p) => files.find((c) => c.connected.includes(p.id));
  const items = files.flatMap((c) => {
    const own = connected.filter((p) => of(p) === c);
    return own.length ? own.map((p) => ({ c, p })) : [{ c }];
  });
  for (const p of connected) if (!of(p)) items.push({ p });
  for (const p of elsewhere(cluster, "providers"))
    if (!connected.some((it) => it.gateway === p.gateway && it.name === p.name &&
      it.instance === p.instance))
      items.push({ p: { ...p, isFar: true } });
  return items.map(({ c, p }) =>
    ({ c, p, name: c?.name ?? p.name, key: `${c?.file} ${c?.name} ${p?.id}` }));
}

// actionButtons makes the buttons of a provider, and returns a function that shows those that would
// do something now.
export function actionButtons(name, box) {
  const button = (label, run, kind) =>
    action(label, run, { class: kind, "aria-label": `${label} ${plain(name)}` });
  let isFiled = true;
  const all = {
    start: button("Start", () => providers.steer(name, "start")),
    restart: button("Restart", () => providers.steer(name, "restart")),
    stop: button("Stop…", () =>
      confirm("Stop the provider?",
        `${plain(name)} is told to leave; its tools leave every session. ${
          isFiled ? "It stays stopped until somebody starts it, or the gateway starts again." : whyNoFile}`,
        "Stop provider", () => providers.steer(name, "stop")), "danger"),
  };
  box.append(...Object.values(all));
  return ({ c, p }) => {
    isFiled = Boolean(c || p?.own);
    const now = c ? c.actions : p && !p.isFar ? ["stop"] : [];
    for (const [action, b] of Object.entries(all)) b.hidden = !now.includes(action);
  };
}

// stateOf is how a provider is, and why.
export function stateOf({ c, p }) {
  if (c) return { state: c.state, why: c.reason ?? "" };
  if (p?.gateway) return { state: p.doubtful ? "doubtful" : p.state,
    why: `On gateway ${p.gateway}.` };
  return { state: p?.state ?? "", why: p ? (p.own ? whyOwn : whyNoFile) : "" };
}

// nextStart is an element that says when a provider is started again.
export const nextStart = (ts) =>
  h("span.next", { hidden: !ts }, "Next start ", ts &&
    h("time", { datetime: ts, title: date(ts) }));

// ProvidersView lists all providers: those that files name, in whatever state they are, and those
// that are connected.
export class ProvidersView {
  constructor(element, app) {
    this.app = app;
    this.element = element;
    this.rows = h("tbody");
    this.none = h("p.empty", "No file names a provider, and none is connected.");
    this.table = h("div.wide", { tabindex: "0", role: "group", "aria-label": "Table of providers" },
      h("table.grid.stack",
        h("thead",
          h("tr",
            ["Provider", "State", "Session", "Tools", "In flight", "Calls", "p50", "p99", "Errors",
              "Connected",
              "Actions"].map((t, i) => h("th", { scope: "col", class: i >= 4 &&
                i <= 8 ? "number" : null }, t)))),
        this.rows));
    this.detail = new ProviderDetail(app);
    element.classList.add("page");
    element.append(h("h2", "Providers"), this.none, this.table, this.detail.element);
    for (const name of ["providers", "configured", "sessions", "tools", "diagnostics", "status",
      "cluster"])
      app.on(name, () => this.draw());
    setInterval(() => this.tick(), 1000);
  }

  update(rest) {
    this.detail.show(decoded(rest));
    this.draw();
  }

  hide() {
    this.detail.show("");
  }

  tick() {
    if (this.element.hidden || document.hidden) return;
    for (const el of this.element.querySelectorAll(".next time")) setText(el,
      distance(el.dateTime));
  }

  draw() {
    const { configured, sessions, diagnostics } = this.app.state;
    if (this.element.hidden || !configured) return;
    const items = itemsOf(this.app.state);
    this.none.hidden = items.length > 0;
    this.table.hidden = !items.length;
    const labels = new Map(sessions.map((s) => [s.id, s.label || s.id]));
    const figures = new Map((diagnostics?.providers ?? []).map((p) => [p.id, p]));
    reconcile(this.rows, items, (it) => it.key, (it) => this.row(it), (tr, it) => {
      const { c, p } = it, f = figures.get(p?.id), { state, why } = stateOf(it);
      const texts = {
        about: [c?.kind, p?.trust, c?.file && tail(c.file)].filter(Boolean).join(" · "),
        chip: state,
        whyText: why,
        session: !p ? "" : p.session === "all" ? "all" : (labels.get(p.session) ?? p.session),
        tools: p ? count(p.tools, "tool") : "",
        inflight: p?.inFlight ?? "",
        calls: f?.calls ?? "",
        p50: f ? duration(f.p50Ms) : "",
        p99: f ? duration(f.p99Ms) : "",
        errors: f ? share(f.errors, f.calls) : "",
        since: p ? ago(p.connectedAt) : "",
      };
      for (const [name, value] of Object.entries(texts)) {
        const el = tr.querySelector(`.${name}`);
        setText(el, plain(String(value)));
        if (el.localName === "td") el.classList.toggle("none", value === "");
      }
      tr.querySelector(".chip").className = `chip ${state}`;
      tr.querySelector(".errors").classList.toggle("bad", Boolean(f?.errors));
      tr.querySelector(".inflight").classList.toggle("some", p?.inFlight > 0);
      const next = tr.querySelector(".next");
      if (next.querySelector("time")?.dateTime !== c?.startsAt) next.replaceWith(nextStart(c?.startsAt));
      tr.showActions(it);
      tr.classList.toggle("chosen", it.name === this.detail.name);
    });
    this.detail.update(items.filter((it) => it.name === this.detail.name));
    this.tick();
  }

  row({ c, p, name }) {
    const cell = (className, label) => h("td", { class: className, data: label && { label } });
    const buttons = h("td.buttons");
    const isSource = c?.kind === "source";
    const tr = h("tr",
      h("th", { scope: "row" },
        h("a", { href: p?.isFar ? null : address(isSource ? "sources" : "providers", name) },
          plain(name)),
        p?.instance && h("span.sub", plain(p.instance)),
        h("span.sub.about", { title: c && plain(c.file) })),
      h("td.state", h("span.chip"), h("span.sub.whyText"), nextStart()),
      cell("session", "Session"), cell("tools"),
      [["inflight", "In flight"], ["calls", "Calls"], ["p50", "p50"], ["p99", "p99"],
        ["errors", "Errors"]].map(
        ([name, label]) => cell(`${name} number`, label)),
      h("td.since", { title: p && date(p.connectedAt), data: { label: "Connected" } }), buttons);
    tr.showActions = actionButtons(name, buttons);
    return tr;
  }
}
