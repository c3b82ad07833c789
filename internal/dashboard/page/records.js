import { records } from "./api.js";
import { toast } from "./dialogs.js";
import { arrows, h, setText } from "./dom.js";
import { count, date, duration, moment, oneLine, plain } from "./format.js";
import { WindowedList } from "./list.js";
import { addressOf, keyOf, outcome, recordParts, subject } from "./record.js";
import { TraceView } from "./trace.js";

const page = 200; // records that are loaded at once
const answerMost = 10_000; // that an answer may have
const listMost = 20_000; // that the list has at most
const pollEvery = 2000; // ms until the page asks for new ones, while somebody looks
const overlap = 1000; // ms: records written at once are not quite in the order of their times

const recordKinds = ["session", "turn", "call", "gate", "push", "source", "goal", "webhook",
  "remote"];
const ages = [["15m", "15 minutes ago", 900], ["1h", "an hour ago", 3600],
  ["24h", "a day ago", 86_400],
  ["168h", "a week ago", 604_800]];
const recordOutcomes = ["ok", "failed", "allow", "deny", "context", "refused", "ignored", "stored",
  "queued", "delivered",
  "surfaced", "dropped"];

// The members of a filter, as they are in the address and in GET /records.
const members = ["since", "kind", "session", "provider", "tool", "outcome", "trace"];

// RecordsView shows what has happened, newest first, or one trace as a waterfall. The filter is in
// the address.
export class RecordsView {
  constructor(element, app) {
    this.app = app;
    this.element = element;
    const field = (name, label, input) => {
      this.inputs[name] = input;
      input.addEventListener("change", () => this.choose());
      return h("div.field", h("label", { for: input.id }, label), input);
    };
    const text = (name, label) => {
      this.lists[name] = h("datalist", { id: `records-${name}s` });
      return field(name, label, h("input", {
        id: `records-${name}`, list: `records-${name}s`, autocomplete: "off", spellcheck: "false",
      }));
    };
    const select = (name, label, options) =>
      field(name, label, h("select", { id: `records-${name}` },
        options.map(([v, t]) => h("option", { value: v }, t))));
    this.inputs = {};
    this.lists = {};
    this.form = h("form.filters", {
      "aria-label": "Filter",
      onsubmit: (e) => {
        e.preventDefault();
        this.choose();
      },
    },
      select("since", "Since", [["", "the oldest one"], ...ages]),
      select("kind", "Kind", [["", "all kinds"], ...recordKinds.map((k) => [k, k])]),
      text("session", "Session"), text("provider", "Provider"), text("tool", "Tool"),
      select("outcome", "Outcome", [["", "any"], ...recordOutcomes.map((o) => [o, o])]),
      field("trace", "Trace", h("input", { id: "records-trace", autocomplete: "off",
        spellcheck: "false" })),
      h("button", { type: "submit" }, "Show"),
      Object.values(this.lists));
    this.find = this.inputs.since;
    this.summary = h("span.hint", { role: "status" });
    this.back = h("a", { href: "#/records", hidden: true }, "All records");
    this.scroller = h("div.timeline",
      { tabindex: "0", role: "region", "aria-label": "List of records",
      onscroll: () => this.scrolled() });
    this.list = new WindowedList(this.scroller, (r) => this.row(r));
    arrows(this.scroller, "summary");
    this.fresh = h("button.latest.newest", { hidden: true, onclick: () => this.load() });
    this.none = h("div.start", { hidden: true });
    this.trace = new TraceView(app);
    this.stage = h("div.stage", this.scroller, this.fresh);
    element.append(
      h("header", h("div.headline", h("h2", "Records"), this.back, this.summary), this.form),
      this.none, this.trace.element, this.stage);
    app.on("sessions", () => this.suggest());
    document.addEventListener("visibilitychange", () => this.poll());
    this.reset();
  }

  reset() {
    this.records = []; // newest first
    this.keys = new Set();
    this.more = false;
    this.waiting = 0; // new ones that the list does not show
    this.list.reset([]);
    this.fresh.hidden = true;
  }

  update(rest) {
    this.shown = true;
    const given = new URLSearchParams(rest ?? "");
    const filter = Object.fromEntries(members.map((name) => [name, given.get(name) ?? ""]));
    const changed = JSON.stringify(filter) !== JSON.stringify(this.filter);
    this.filter = filter;
    for (const [name, input] of Object.entries(this.inputs)) {
      const value = filter[name];
      if (input.options && ![...input.options].some((o) => o.value === value))
        input.append(h("option", { value }, value));
      input.value = value;
    }
    this.back.hidden = !Object.values(filter).some(Boolean);
    this.suggest();
    changed || this.failed ? this.load() : this.poll();
  }

  hide() {
    this.shown = false;
    clearTimeout(this.timer);
  }

  // choose goes to the address of the filter that the person has set.
  choose() {
    const filter = Object.fromEntries(Object.entries(this.inputs).map(([name, input]) =>
      [name, input.value.trim()]));
    const { sessions } = this.app.state;
    const named = sessions.filter((s) => s.label === filter.session);
    if (named.length === 1 &&
      !sessions.some((s) => s.id === filter.session)) filter.session = named[0].id;
    const to = addressOf(filter);
    location.hash === to ? this.load() : (location.hash = to);
  }

  // query are the parameters of a request.
  query(more) {
    const { since, ...rest } = this.filter;
    const age = ages.find(([name]) => name === since);
    const from = age ? new Date(Date.now() - age[2] * 1000).toISOString() : since;
    return { ...rest, since: from, ...more };
  }

  // load begins anew, with the newest records.
  async load() {
    const found = await this.ask({ last: this.filter.trace ? answerMost : page });
    if (!found && !this.refused) return;
    this.reset();
    if (!found) return this.draw();
    this.unreadable = found.unreadable;
    this.add(found.records);
    this.more = found.more;
    this.draw();
  }

  // ask asks for records unless another request began meanwhile. It says why there is no answer.
  async ask(query) {
    const run = (this.run = {});
    clearTimeout(this.timer);
    this.asking = true;
    this.refused = ""; // why the gateway does not take the filter
    let found;
    try {
      found = await records(this.query(query));
    } catch (e) {
      if (run !== this.run) return;
      // The page says at its top that the gateway is away; the records come when it is back.
      if (e.status === 400 || e.status === 404) this.refused = e.message;
      else if (e.status && !this.failed) toast(e.message, "error");
      this.failed = true;
    }
    if (run !== this.run) return;
    this.asking = false;
    if (found) this.failed = false;
    this.timer = setTimeout(() => (this.failed && !this.records.length ? this.load() : this.poll()),
      pollEvery);
    return found;
  }

  // unseen are those of the records that are not there yet.
  unseen(list) {
    return list.filter((r) => !this.keys.has(keyOf(r)));
  }

  add(list, first) {
    for (const r of list) this.keys.add(keyOf(r));
    this.records = first ? [...list, ...this.records] : [...this.records, ...list];
    if (this.filter.trace) return;
    first ? this.list.prepend(list) : this.list.append(list);
  }

  // poll asks for new records, while somebody looks.
  async poll() {
    clearTimeout(this.timer);
    if (!this.shown || document.hidden || this.asking) return;
    const newest = this.records.reduce((at, r) => Math.max(at, Date.parse(r.ts)), 0);
    if (!newest) return this.load();
    const found = await this.ask({ since: new Date(newest - overlap).toISOString(),
      last: answerMost });
    if (!found) return;
    const fresh = this.unseen(found.records);
    if (!fresh.length) return;
    if (this.filter.trace) this.add(fresh, true);
    else if (this.isRead() || this.records.length + fresh.length > listMost ||
      found.more) this.waiting = fresh.length;
    else this.add(fresh, true);
    this.draw();
  }

  // isRead says whether the person reads what a new record would push away.
  isRead() {
    return this.scroller.scrollTop > 4 || this.scroller.querySelector("details[open]");
  }

  scrolled() {
    if (!this.more || this.asking || this.filter.trace) return;
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    if (scrollHeight - clientHeight - scrollTop < 1500) this.older();
  }

  // older loads the records before the oldest one that is there.
  async older(slack = overlap) {
    if (this.records.length >= listMost) return;
    const until = Date.parse(this.records.at(-1).ts) + slack;
    const known = this.records.filter((r) => Date.parse(r.ts) <= until).length;
    const found = await this.ask({ until: new Date(until).toISOString(),
      last: Math.min(answerMost, known + page) });
    if (!found) return;
    const list = this.unseen(found.records);
    if (!list.length && found.more && slack > 1) return this.older(1);
    this.more = found.more && list.length > 0;
    this.add(list);
    this.draw();
  }

  draw() {
    const n = this.records.length;
    const { trace } = this.filter;
    this.stage.hidden = Boolean(trace) || !n;
    this.trace.element.hidden = !trace || !n;
    if (trace && n) this.trace.show(this.records, this.more);
    this.fresh.hidden = !this.waiting;
    setText(this.fresh, `${this.waiting} new ↑`);
    setText(this.summary, [
      `${count(n, "record")}${this.more ? ", and older ones" : ""}`,
      n >= listMost && this.more && "the list ends here: set a filter to see more",
      this.unreadable && `${count(this.unreadable, "line")} of the files can't be read`,
    ].filter(Boolean).join("; "));
    this.scroller.dataset.entries = n;
    this.none.hidden = n > 0;
    if (!n) this.none.replaceChildren(...this.nothing());
    this.suggest();
    this.scrolled();
  }

  // nothing says what to do when there are no records.
  nothing() {
    if (Object.values(this.filter).some(Boolean))
      return [
        h("p", this.refused ||
          "No record matches this filter. [records] in tapgw.toml says how long they are kept."),
        h("p", h("a", { href: "#/records" }, "Show all records")),
      ];
    return [h("p",
      "Nothing is recorded yet. Each call, gate, push, turn and run of a source will be here, also after a restart."),
    h("p", h("a", { href: "#/sessions" }, "Start a session"), " and prompt it, or set ",
      h("code", "[records] enabled = true"), " in tapgw.toml if it says false.")];
  }

  // suggest offers the values that are known.
  suggest() {
    if (!this.shown) return;
    const { sessions } = this.app.state;
    const of = (name) => this.records.slice(0, 2000).map((r) => r[name]).filter(Boolean);
    const known = {
      session: [...sessions.map((s) => s.id), ...of("session")], provider: of("provider"),
        tool: of("tool"),
    };
    const labels = new Map(sessions.map((s) => [s.id, s.label]));
    for (const [name, list] of Object.entries(known)) {
      const values = [...new Set(list)].sort().slice(0, 100);
      if (String(values) === this.lists[name].dataset.values) continue;
      this.lists[name].dataset.values = String(values);
      this.lists[name].replaceChildren(...values.map((v) => h("option", { value: v },
        plain(labels.get(v) ?? v))));
    }
  }

  row(r) {
    const of = this.app.state.sessions.find((s) => s.id === r.session)?.label ||
      oneLine(r.session ?? "", 13);
    const { text, bad } = outcome(r);
    const content = h("div.parts");
    const box = h("details",
      h("summary",
        h("span.chip", plain(r.kind)), h("code.name", subject(r)),
        h("span.brief",
          [r.provider, of, r.reason].filter(Boolean).map((t) =>
            plain(oneLine(t, 120))).join(" · ")),
        r.durationMs > 0 && h("span.took", duration(r.durationMs)),
        h("span", { class: bad ? "outcome bad" : "outcome" }, text)),
      content);
    box.addEventListener("toggle",
      () => content.replaceChildren(...(box.open ? recordParts(this.app, r) : [])));
    return h("article.entry.tool.wire.record",
      h("time", { datetime: r.ts, title: date(r.ts) }, moment(r.ts)), h("div.body", box));
  }
}
