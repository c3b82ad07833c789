import { goals } from "./api.js";
import { attempt, dialog, field } from "./dialogs.js";
import { h, reconcile, setText } from "./dom.js";
import { address, count, date, decoded, distance, duration, moment, oneLine, plain,
  short } from "./format.js";
import { addressOf } from "./record.js";
import { setBar, timeScale } from "./waterfall.js";

const stateTexts = { active: "active", met: "met", budget: "out of budget", stopped: "stopped",
  blocked: "blocked" };
const turnPauseLeast = 60_000; // ms; a shorter pause between turns is not folded

// GoalsView lists the goals, and shows one: its contract with the evidence, its budget and its
// turns.
export class GoalsView {
  constructor(element, app) {
    this.app = app;
    this.element = element;
    const start = () =>
      h("button.primary", { onclick: () => startGoal(app) }, "New goal…");
    this.rows = h("tbody");
    this.table = h("table.grid.stack", { hidden: true },
      h("thead",
        h("tr", ["Goal", "Session", "State", "Turns", "Started", "Why", "Actions"].map((t) =>
          h("th", { scope: "col" }, t)))),
      this.rows);
    this.none = h("div.start", { hidden: true },
      h("p", "There is no goal. A goal keeps a session at work until checks show that it is met: a file is ",
        "there, a command has ended well, an event has come. What the model says is no evidence."),
      h("p", start()),
      h("p.hint", "In a terminal: ",
        h("code", `tapctl goals start --session ID --check '{"call": "make test"}' "the tests pass"`)));
    this.detail = h("section.detail", { hidden: true, "aria-label": "Goal" });
    element.classList.add("page");
    element.append(h("div.headline", h("h2", "Goals"), start()), this.none, this.table,
      this.detail);
    for (const name of ["goals", "sessions"]) app.on(name, () => this.draw());
    setInterval(() => this.tick(), 1000);
  }

  update(rest) {
    this.id = decoded(rest);
    this.draw();
  }

  tick() {
    if (this.element.hidden || document.hidden) return;
    for (const el of this.element.querySelectorAll("time.distance")) setText(el,
      distance(el.dateTime));
  }

  draw() {
    const list = this.app.state.goals?.toSorted((a, b) => (a.startedAt < b.startedAt ? 1 : -1));
    if (this.element.hidden || !list) return;
    this.none.hidden = list.length > 0;
    this.element.querySelector(".headline button").hidden = !list.length;
    this.table.hidden = !list.length;
    this.labels = new Map(this.app.state.sessions.map((s) => [s.id, s.label || s.id]));
    reconcile(this.rows, list, (g) => g.id, (g) => this.row(g), (tr, g) => {
      setText(tr.querySelector(".session"), this.labelOf(g));
      setText(tr.querySelector(".spent"), `${g.spent.turns} of ${g.budget.turns}`);
      setText(tr.querySelector(".why"), plain(g.reason ?? ""));
      tr.querySelector(".why").classList.toggle("none", !g.reason);
      showState(tr.querySelector(".chip"), g);
      tr.querySelector("button").hidden = g.state !== "active";
      tr.classList.toggle("chosen", g.id === this.id);
    });
    this.show(list.find((g) => g.id === this.id));
    this.tick();
  }

  labelOf(g) {
    return plain(this.labels.get(g.session) ?? oneLine(g.session, 13));
  }

  row(g) {
    const cell = (className, label, ...content) => h("td", { class: className, data: { label } },
      content);
    const stop = h("button.danger", { "aria-label": `Stop ${oneLine(g.contract.text, 60)}`,
      onclick: () => attempt(stop, () => stopDialog(g)) }, "Stop…");
    return h("tr",
      h("th", { scope: "row" },
        h("a", { href: address("goals", g.id) }, plain(oneLine(g.contract.text, 100)))),
      cell("session", "Session"), cell("", "State", h("span.chip")), cell("spent", "Turns"),
      cell("", "Started", h("time.distance", { datetime: g.startedAt, title: date(g.startedAt) })),
      cell("why", "Why"), h("td.buttons", stop));
  }

  // show shows one goal, or none.
  show(g) {
    const now = JSON.stringify([g, g && this.labelOf(g)]);
    if (now === this.shown) return;
    this.shown = now;
    const focus = this.detail.contains(document.activeElement) &&
      document.activeElement.getAttribute("href");
    this.detail.hidden = !g;
    this.detail.replaceChildren(...(g ? this.parts(g) : []));
    if (focus) this.detail.querySelector(`a[href="${CSS.escape(focus)}"]`)?.focus();
  }

  parts(g) {
    const chip = h("span.chip");
    showState(chip, g);
    const runs = this.labels.has(g.session);
    return [
      h("div.headline", h("h2", "The goal"), chip,
        runs && h("a", { href: address("sessions", g.session) }, "Its session"),
        h("a", { href: addressOf({ session: g.session }) }, "Records of the session"),
        h("a.close", { href: "#/goals" }, "Close")),
      h("p.contract", plain(g.contract.text)),
      g.reason && h("p", h("strong", g.endedAt ? "It ended: " : "It waits: "), plain(g.reason)),
      h("p.meta", `Started by ${g.by === "model" ? "the model" : "a person"} ${date(g.startedAt)}`,
        g.endedAt && `, ended ${date(g.endedAt)}`),
      h("div.halves",
        h("section", { "aria-label": "Checks" }, h("h3", "Checks"), checks(g)),
        h("section", { "aria-label": "Budget" }, h("h3", "Budget"), budget(g))),
      h("section", { "aria-label": "Turns" }, h("h3", "Turns"), turns(g)),
    ].filter(Boolean);
  }
}

function showState(chip, g) {
  setText(chip, stateTexts[g.state] ?? g.state);
  chip.className = `chip ${g.state}`;
}

// checkSubject is what a check is about, as the gateway names it in the evidence.
function checkSubject({ description, file, stream, call }) {
  if (description) return description;
  if (file) return `file ${file.path}`;
  if (stream) return `stream ${stream.channel}`;
  return `call ${call?.command || call?.contains || call?.pattern || call?.tool || ""}`;
}

// checks lists the checks of a contract with what the last look at each of them showed.
function checks(g) {
  const seen = g.evidence ?? [];
  return h("ul.checks", g.contract.checks.map((check, i) => {
    const e = seen[i];
    const state = !e ? "not looked at" : e.holds ? "holds" : "missing";
    return h("li", { class: e?.holds ? "ok" : "" },
      h("span.mark", { role: "img", "aria-label": state }, !e ? "○" : e.holds ? "✓" : "✗"), " ",
      h("strong", plain(checkSubject(check))),
      e?.why && h("div.why", plain(e.why)),
      h("details", h("summary", e ? `The check, looked at ${moment(e.at)}` : "The check"),
        h("code", plain(JSON.stringify(check)))));
  }));
}

// budget shows how much of each limit is used.
function budget(g) {
  const rows = [
    ["Turns", g.spent.turns, g.budget.turns, String],
    ["Time", g.spent.timeMs ?? 0, g.budget.timeMs, duration],
    ["Tokens", g.spent.tokens ?? 0, g.budget.tokens, short],
  ];
  return h("dl.budgets", rows.map(([name, used, limit, text]) => {
    const meter = limit > 0 &&
      h("meter", { min: "0", max: String(limit), "aria-label": `${name} used` });
    if (meter) Object.assign(meter, { high: limit * 0.8, value: Math.min(used, limit) });
    return h("div", h("dt", name),
      h("dd", meter, limit > 0 ? `${text(used)} of ${text(limit)}` : `${text(used)}, without a limit`));
  }));
}

// turns is the timeline of a goal: its turns with what was missing after each.
function turns(g) {
  if (!g.iterations?.length) return h("p.empty", "It had no turn yet.");
  const now = Date.now();
  const spans = g.iterations.map((it) => ({
    it, from: Date.parse(it.startedAt), to: it.endedAt ? Date.parse(it.endedAt) : now,
  }));
  const { place, pauses } = timeScale(spans, turnPauseLeast);
  const folded = pauses.reduce((sum, p) => sum + p.to - p.from, 0);
  return [
    pauses.length > 0 &&
      h("p.hint", `${count(pauses.length, "pause")} between turns folded, together ${duration(folded)}`),
    h("ol.turns", spans.map((s) => {
      const { it } = s;
      const missing = it.missing ?? [];
      const bar = h("span", { class: `ran ${it.reason ? "failed" : missing.length || !it.endedAt ? "open" : ""}` });
      setBar(bar, s, place);
      return h("li",
        h("div.head", h("strong", `Turn ${it.n}`), h("time", { datetime: it.startedAt,
          title: date(it.startedAt) }, moment(it.startedAt)),
        h("span.sub", it.endedAt ? duration(s.to - s.from) : "running"),
        h("span", { class: missing.length ? "sub" : "ok" },
          !it.endedAt ? "" : missing.length ? `${count(missing.length, "check")} missing` : "nothing missing")),
        h("div.lane", { "aria-hidden": "true" }, bar),
        it.reason && h("p.fault", plain(it.reason)),
        missing.length > 0 && h("ul", missing.map((m) => h("li", plain(m)))));
    })),
  ].flat().filter(Boolean);
}

function stopDialog(g) {
  const reason = h("input", { id: "goal-reason", autocomplete: "off" });
  return dialog("Stop the goal?", [
    h("p", "The session goes on, but nobody keeps it at this goal."),
    field("Why (may be empty)", reason),
  ], [["Stop goal", () => goals.stop(g.id, reason.value.trim()), "danger"]]);
}

// The kinds of checks that the dialog offers, each with its fields: a name, a label and whether it
// must be given.
const checkKinds = [
  ["call", "a command has ended well", [["command", "The whole command", true]]],
  ["file", "a file is there", [["path", "Path below the session's directory", true],
    ["contains", "With this text"]]],
  ["stream", "an event has come", [["channel", "Stream", true], ["contains", "With this text"]]],
  ["json", "a check as JSON", [["json", `For example {"call": {"tool": "deploy"}}`, true]]],
];

// checkField makes the fields of one check. value() is the check.
function checkField(n, remove) {
  const id = (name) => `check-${n}-${name}`;
  const fields = h("div.fields");
  let inputs;
  const offer = () => {
    const [, , list] = checkKinds.find(([k]) => k === kind.value);
    inputs = list.map(([name, label, required]) =>
      [name, h("input", { id: id(name), required, autocomplete: "off", spellcheck: "false" }),
        label]);
    fields.replaceChildren(...inputs.map(([, input, label]) => field(label, input)));
  };
  const kind = h("select", { "aria-label": `Check ${n}`, onchange: offer },
    checkKinds.map(([value, text]) => h("option", { value }, text)));
  const element = h("fieldset.check-field", h("legend.hidden", `Check ${n}`),
    h("div.row", kind,
      h("button", { "aria-label": `Remove check ${n}`, onclick: () => remove(element) }, "×")),
    fields);
  offer();
  return {
    element,
    value: () => {
      if (kind.value === "json") {
        try {
          return JSON.parse(inputs[0][1].value);
        } catch (e) {
          throw new Error(`Check ${n} is no JSON: ${e.message}`);
        }
      }
      const given = inputs.map(([name, input]) => [name, input.value.trim()]).filter(([, value]) =>
        value);
      return { [kind.value]: Object.fromEntries(given) };
    },
  };
}

// startGoal asks for a goal, starts it and opens it.
async function startGoal(app) {
  const { sessions } = app.state;
  if (!sessions.length)
    return dialog("New goal", h("p", "A goal is for a session, and none runs. ",
      h("a", { href: "#/sessions", onclick: (e) => e.target.closest("dialog").close() },
        "Start one"), " first."));
  const chosen = app.feed?.id ?? sessions.find((s) => s.foreground)?.id;
  const session = h("select", { id: "goal-session" },
    sessions.map((s) => h("option", { value: s.id, selected: s.id === chosen }, s.label || s.id)));
  const text = h("textarea", { id: "goal-text", rows: "2", required: true });
  const number = (id, value) => h("input", { id, type: "number", min: "1", step: "1", value });
  const limits = { turns: number("goal-turns", "50"), minutes: number("goal-minutes"),
    tokens: number("goal-tokens") };
  let list = [], made = 0;
  const box = h("div.fields");
  const remove = (element) => {
    list = list.filter((c) => c.element !== element);
    element.remove();
    more.focus();
  };
  const add = () => {
    const check = checkField(++made, remove);
    list.push(check);
    box.append(check.element);
    return check;
  };
  const more = h("button", { onclick: () => add().element.querySelector("select").focus() },
    "Add a check");
  add();
  const start = async () => {
    const n = (input) => (input.value ? Number(input.value) : undefined);
    const minutes = n(limits.minutes);
    const { id } = await goals.start({
      session: session.value, text: text.value.trim(), checks: list.map((c) => c.value()),
        turns: n(limits.turns),
      timeMs: minutes && minutes * 60_000, tokens: n(limits.tokens),
    });
    location.hash = address("goals", id);
  };
  await dialog("New goal", [
    field("Session", session), field("What must be true", text),
    h("p.hint", "It is met when all of these checks hold. They are looked up, never run."),
    box, h("div.row", more),
    h("p.hint", "It ends when one of these is used up. What is empty has no limit."),
    h("div.row.limits", field("Turns", limits.turns), field("Minutes", limits.minutes),
      field("Tokens", limits.tokens)),
  ], [["Start", start, "primary"]]);
}
