import { providers, records, sources } from "./api.js";
import { action, confirm, toast } from "./dialogs.js";
import { copyButton, h, reconcile, setText } from "./dom.js";
import { address, date, decoded, distance, moment, oneLine, plain, tail } from "./format.js";
import { ProviderLog } from "./log.js";
import { addressOf, keyOf } from "./record.js";

const eventsMost = 50;
const settle = 300; // ms after something happened before the events are read again

const sample = `kind = "source"
run = ["make", "build"]
every = "2m"
compare = "exit"    # an event when it begins to fail, and when it works again
level = "inject"`;

const canRun = (s) => s.kind !== "files" && s.kind !== "webhook";
const isOff = (s) => s.state === "stopped" || s.state === "failed";

// SourcesView lists the sources of events, and shows the log and the events of one.
export class SourcesView {
  constructor(element, app) {
    this.app = app;
    this.rows = h("tbody");
    this.table = h("table.grid.stack", { hidden: true },
      h("thead",
        h("tr",
          ["Source", "Kind", "State", "Session", "Stream", "Last run", "Next run", "Runs", "Why",
            "Actions"].map((t) =>
            h("th", { scope: "col" }, t)))),
      this.rows);
    this.none = h("div.start", { hidden: true },
      h("p", "No file names a source. A source wakes a session when something happens: a command fails, a page ",
        "changes, it is two in the morning. This file makes one:"),
      h("div.code",
        h("pre", { tabindex: "0", role: "group", "aria-label": "A sample" },
          h("code", `# ~/.config/tapgw/providers/build.toml\n${sample}`)),
        copyButton(() => sample)),
      h("p.hint", "The gateway takes it at once. ", h("code", "tapctl sources try FILE"),
        " shows before what it would do, and ", h("code", "tapctl sources import"),
        " makes such files of a tap.config.json."));
    this.detail = new SourceDetail(app);
    element.classList.add("page");
    element.append(h("h2", "Sources"), this.none, this.table, this.detail.element);
    for (const name of ["sources", "sessions"]) app.on(name, () => this.draw());
    setInterval(() => this.tick(), 1000);
    this.element = element;
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
    for (const el of this.rows.querySelectorAll("time[datetime]")) setText(el,
      distance(el.dateTime));
  }

  draw() {
    const list = this.app.state.sources;
    if (this.element.hidden || !list) return;
    this.none.hidden = list.length > 0;
    this.table.hidden = !list.length;
    const labels = new Map(this.app.state.sessions.map((s) => [s.id, s.label || s.id]));
    reconcile(this.rows, list, (s) => `${s.file} ${s.name} ${s.session}`, (s) => this.row(s),
      (tr, s) => {
      const texts = {
        kind: s.kind, session: labels.get(s.session) ?? s.session, stream: s.stream,
          runs: String(s.runs),
        why: s.reason ?? "",
      };
      for (const [name, text] of Object.entries(texts)) {
        const cell = tr.querySelector(`.${name}`);
        setText(cell, plain(text));
        cell.classList.toggle("none", !text);
      }
      const state = tr.querySelector(".chip");
      setText(state, s.state);
      state.className = `chip ${s.state}`;
      for (const [name, ts] of [["last", s.lastRunAt], ["next", s.nextRunAt]]) {
        const cell = tr.querySelector(`.${name}`);
        cell.classList.toggle("none", !ts);
        if (cell.firstChild?.dateTime !== ts)
          cell.replaceChildren(...(ts ? [h("time", { datetime: ts, title: date(ts) })] : []));
      }
      const [run, start, stop] = tr.querySelector(".buttons").children;
      run.hidden = !canRun(s) || isOff(s) || s.state === "running";
      start.hidden = !isOff(s);
      stop.hidden = s.state === "stopped";
      tr.classList.toggle("chosen", s.name === this.detail.name);
    });
    this.detail.update(list);
    this.tick();
  }

  row({ name, file }) {
    const button = (label, run, kind) => action(label, run,
      { class: kind, "aria-label": `${label} ${name}` });
    const cell = (className, label, ...content) => h("td", { class: className, data: { label } },
      content);
    return h("tr",
      h("th", { scope: "row" }, h("a", { href: address("sources", name) }, plain(name)),
        h("span.sub.path", { title: plain(file) }, plain(tail(file)))),
      cell("kind", "Kind"), cell("", "State", h("span.chip")), cell("session", "Session"),
      cell("stream", "Stream"), cell("last", "Last run"), cell("next", "Next run"),
        cell("runs", "Runs"),
      cell("why", "Why"),
      h("td.buttons",
        button("Run now", () => sources.run(name)),
        button("Start", () => providers.steer(name, "start")),
        button("Stop…", () =>
          confirm("Stop the source?",
            `${name} makes no events until somebody starts it, or the gateway starts again.`,
            "Stop source", () => providers.steer(name, "stop")), "danger")));
  }
}

// SourceDetail shows the log of one source as it grows, and its last events.
class SourceDetail {
  constructor(app) {
    this.app = app;
    this.name = "";
    this.title = h("h2");
    this.log = new ProviderLog(() => this.readSoon());
    this.events = h("ol.said-list");
    this.none = h("p.empty");
    this.links = h("p.row");
    this.element = h("section.detail", { hidden: true },
      h("div.headline", this.title, this.links, h("a.close", { href: "#/sources" }, "Close")),
      h("div.halves",
        h("section", { "aria-label": "Log of the source" }, h("h3", "Log"),
          this.log.element),
        h("section", { "aria-label": "Events of the source" }, h("h3", "Events"), this.events,
          this.none)));
  }

  show(name) {
    if (name === this.name) return;
    this.name = name;
    this.element.hidden = !name;
    this.log.show(name, "No file names this source now.");
    this.events.replaceChildren();
    setText(this.none, "");
    if (!name) return;
    setText(this.title, plain(name));
    this.links.replaceChildren(
      h("a", { href: addressOf({ provider: name }) }, "Its records"));
    this.read();
  }

  // update is told when any source changed: this one may have made events.
  update(list) {
    if (!this.name) return;
    const now = JSON.stringify(list.filter((s) => s.name === this.name));
    if (now !== this.was) this.readSoon();
    this.was = now;
  }

  readSoon() {
    this.soon ??= setTimeout(() => {
      this.soon = undefined;
      if (this.name) this.read();
    }, settle);
  }

  async read() {
    const { name } = this;
    let found;
    try {
      found = await records({ kind: "push", provider: name, last: eventsMost });
    } catch (e) {
      if (name === this.name && e.status) toast(e.message, "error");
      return;
    }
    if (name !== this.name) return;
    setText(this.none,
      found.records.length ? "" : "The records have no event of it. Streams has what running sessions got.");
    const labels = new Map(this.app.state.sessions.map((s) => [s.id, s.label || s.id]));
    const event = (r) => {
      const level = r.fate === "dropped" ? "drop" : r.level;
      return h("li",
        h("time", { datetime: r.ts, title: date(r.ts) }, moment(r.ts)), " ",
        h("span", { class: `level ${level}` }, level), " ",
        h("span.sub", `${r.fate} · ${plain(labels.get(r.session) ?? r.session ?? "")}`),
        h("div.said", plain(oneLine(r.event || r.prompt || r.reason || "", 400))));
    };
    reconcile(this.events, found.records, keyOf, event);
  }
}
