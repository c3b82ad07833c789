import { gateway, loadLate, sessions } from "./api.js";
import { toast } from "./dialogs.js";
import { copyButton, h, reconcile, setText } from "./dom.js";
import { check, outcomes, preview } from "./filter.js";
import { address, count, date, oneLine, plain, time } from "./format.js";

const eventsShown = 300; // events at most
const droppedEvery = 2000; // ms between two looks at what filters dropped

// StreamsView shows the events that were pushed into a session, and what a filter would do with
// them.
export class StreamsView {
  constructor(element, app) {
    this.app = app;
    this.element = element;
    this.rules = [{ match: "", outcome: "drop" }];
    this.session = h("select", {
      id: "streams-session",
      onchange: () => {
        location.hash = address("streams", this.session.value);
      },
    });
    this.stream = h("select", { id: "streams-stream", onchange: () => this.update() });
    this.body = h("tbody");
    this.none = h("p.empty");
    this.ruleList = h("ol.rules");
    this.summary = h("p.hint", { role: "status" });
    this.json = h("code");
    this.head = h("th", { scope: "col" }, "With the filter");
    this.table = h("div.wide", { tabindex: "0", role: "group", "aria-label": "Table of events" },
      h("table.grid.stack.events",
        h("thead",
          h("tr", h("th", { scope: "col" }, "Time"), h("th", { scope: "col" }, "Level"), this.head,
            h("th", { scope: "col" }, "Stream"), h("th", { scope: "col" }, "Event"))),
        this.body));
    this.rates = h("details.tester", { ontoggle: () => this.drawRates() },
      h("summary", "Push rates"),
      h("div"));
    element.classList.add("page");
    element.append(
      h("div.headline", h("h2", "Streams"), h("label", { for: "streams-session" }, "Session"),
        this.session, h("label", { for: "streams-stream" }, "Stream"), this.stream),
      h("details.tester", { open: true },
        h("summary", "Filter tester"),
        h("div",
          h("p.hint",
            "Patterns are regular expressions. The first rule whose pattern is found in an event's text decides. " +
              "This is a preview on the events below, in the browser's engine: nothing is set, " +
              "of the events that a filter dropped the last 100 are here, with 2 KiB of their text, and the gateway gives each match a millisecond.",
          ),
          this.ruleList,
          h("div.row", h("button", { onclick: () => this.add() }, "Add a rule"),
            this.summary),
          h("div.code", h("pre", { tabindex: "0", role: "group", "aria-label": "Message" },
            this.json),
            copyButton(() => this.json.textContent)))),
      this.rates,
      this.table,
      this.none);
    this.drawRules();
    this.dropped = [];
    setInterval(() => document.hidden || element.hidden || this.readDropped(), droppedEvery);
    app.on("sessions", () => this.update());
    app.on("feed", () => this.update());
    app.on("news", () => this.update());
  }

  // load reads the session's stored events from before it was followed.
  async load(feed) {
    this.loaded = feed;
    this.kept = [];
    this.dropped = [];
    this.drawRates();
    if (!feed) return;
    try {
      const kept = await sessions.history(feed.id, 100);
      if (feed === this.app.feed) this.kept = kept;
    } catch (e) {
      if (feed === this.app.feed && !feed.ended) toast(e.message, "error");
    }
    this.update();
    this.readDropped();
  }

  // readDropped reads which events the filters of the session dropped.
  async readDropped() {
    const { feed } = this.app;
    if (!feed || feed.ended) return;
    const { dropped } = await sessions.filters(feed.id).catch(() => ({ dropped: this.dropped }));
    if (feed !== this.app.feed || JSON.stringify(dropped) === JSON.stringify(this.dropped)) return;
    this.dropped = dropped;
    this.update();
  }

  // drawRates draws how many events came into each stream over time, if somebody looks.
  async drawRates() {
    const box = this.rates.lastChild, feed = this.app.feed;
    box.replaceChildren();
    if (!this.rates.open || !feed) return;
    const { pushFigures } = await loadLate(() => import("./figures.js"));
    if (feed === this.app.feed) box.replaceChildren(pushFigures(feed.id));
  }

  events() {
    const name = (e) => `${e.stream}@${e.provider}`;
    const key = (e) => `${e.ts} ${name(e)} ${e.text}`;
    const all = new Map();
    for (const e of this.kept) {
      const it = { ...e, text: e.event || e.prompt || "" };
      all.set(key(it), it);
    }
    for (const e of this.app.feed?.timeline.rows ?? []) all.set(key(e), e);
    for (const e of this.dropped) all.set(`${key({ ...e, text: e.event })} dropped`,
      { ...e, text: e.event, level: "drop" });
    const list = [...all.entries()].map(([k, e]) => ({ ...e, key: k, name: name(e) }));
    return list.sort((a, b) => (a.ts < b.ts ? 1 : a.ts > b.ts ? -1 : 0));
  }

  update() {
    if (this.element.hidden) return;
    if (this.loaded !== this.app.feed) this.load(this.app.feed);
    const { sessions: list } = this.app.state;
    const options = (select, values, chosen) => {
      reconcile(select, values, ([v]) => v, ([v, text]) => h("option", { value: v }, text),
        (o, [, text]) => setText(o, text));
      select.value = chosen;
    };
    options(this.session, list.map((s) => [s.id, s.label || s.id]), this.app.feed?.id ?? "");
    const all = this.events();
    const names = [...new Set(all.map((e) => e.name))].sort();
    options(this.stream, [["", "all"], ...names.map((n) => [n, n])],
      names.includes(this.stream.value) ? this.stream.value : "");
    this.list = all.filter((e) => !this.stream.value || e.name === this.stream.value).slice(0,
      eventsShown);
    setText(this.none,
      list.length ? (this.list.length ? "" : "Nothing was pushed into this session yet.") : "No session runs.");
    this.table.hidden = !this.list.length;
    reconcile(
      this.body,
      this.list,
      (e) => e.key,
      (e) =>
        h("tr", h("td", h("time", { datetime: e.ts, title: date(e.ts) }, time(e.ts))),
          h("td.why", h("span", { class: `level ${e.level}` },
            e.level === "drop" ? "dropped" : e.level),
            e.level === "drop" && h("span.sub",
              plain(`by rule ${e.rule + 1}: ${oneLine(e.match, 60)}`))),
          h("td.outcome"),
          h("td.source", e.name), h("td.said", oneLine(e.text, 400))),
    );
    this.test();
  }

  add() {
    this.rules.push({ match: "", outcome: "keep" });
    this.drawRules();
    this.ruleList.lastChild.querySelector("input").focus();
  }

  drawRules() {
    this.ruleList.replaceChildren(
      ...this.rules.map((rule, i) =>
        h("li",
          h("div.row",
            h("input.mono", {
              "aria-label": `Pattern of rule ${i + 1}`,
              "aria-describedby": `rule-fault-${i}`,
              spellcheck: "false",
              autocomplete: "off",
              value: rule.match,
              oninput: (e) => {
                rule.match = e.target.value;
                this.test();
              },
            }),
            h("select", {
              "aria-label": `Outcome of rule ${i + 1}`,
              onchange: (e) => {
                rule.outcome = e.target.value;
                this.test();
              },
            },
              outcomes.map((o) => h("option", { value: o, selected: o === rule.outcome }, o))),
            h("button", {
              "aria-label": `Remove rule ${i + 1}`,
              onclick: () => {
                this.rules.splice(i, 1);
                this.drawRules();
              },
            }, "×")),
          h("p.fault", { id: `rule-fault-${i}` })),
      ),
    );
    this.test();
  }

  // test shows what the rules do with the events on the page.
  async test() {
    const faults = check(this.rules);
    for (const [i, li] of [...this.ruleList.children].entries())
      setText(li.querySelector(".fault"), this.rules[i].match ? faults[i] : "");
    const rules = this.rules.filter((r, i) => !faults[i]);
    const name = this.stream.value || this.list?.[0]?.name;
    const stream = JSON.stringify(name ? name.split("@")[0] : "STREAM");
    const lines = rules.map((r) => `\n  ${JSON.stringify(r)}`);
    setText(this.json, `{"type": "filter.set", "stream": ${stream}, "rules": [${lines}]}`);
    const events = this.list ?? [];
    const run = (this.run = {});
    const decided =
      rules.length && events.length
        ? gateway.isTrusted && await preview( // whose worker is loaded each time
            rules,
            events.map((e) => e.text),
          )
        : events.map(() => -1);
    if (run !== this.run) return; // another one began
    const index = rules.map((r) => this.rules.indexOf(r) + 1);
    const tally = {};
    for (const [i, tr] of [...this.body.children].entries()) {
      const rule = decided?.[i] ?? -1;
      const cell = tr.querySelector(".outcome");
      const outcome = rule >= 0 ? rules[rule].outcome : "";
      tr.classList.toggle("matched", rule >= 0);
      tr.classList.toggle("dropped", outcome === "drop");
      if (outcome) tally[outcome] = (tally[outcome] ?? 0) + 1;
      if (cell.dataset.is === `${outcome}${rule}`) continue;
      cell.dataset.is = `${outcome}${rule}`;
      cell.replaceChildren(
        ...(outcome
          ? [h("span", { class: `level ${outcome}` }, outcome),
            h("span.hint", ` rule ${index[rule]}`)]
          : []),
      );
    }
    const matched = Object.values(tally).reduce((a, b) => a + b, 0);
    setText(
      this.summary,
      decided === null
        ? "The patterns take too long. In the gateway one that does counts as not matching."
        : `${matched} of ${count(events.length, "event")} match${
            matched
              ? `: ${Object.entries(tally)
                  .map(([o, n]) => `${n} ${o}`)
                  .join(", ")}`
              : ""
          }`,
    );
  }
}
