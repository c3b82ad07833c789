// Figures: pictures of numbers. Each has a caption with the main numbers in words, and a table of
// all of them; the picture itself is hidden from screen readers. A module that is loaded when
// somebody looks.

import { records, sessions } from "./api.js";
import { h, setText } from "./dom.js";
import { count, date, duration, moment, oneLine, plain, share, short } from "./format.js";
import { TraceView } from "./trace.js";

const tall = 72; // pixels of a picture
const mostColumns = 100; // of what is counted by turn
const mostFigures = 20; // of tools, and of streams
const lately = 86_400_000; // ms: records that are older are not asked for

const sum = (list) => list.reduce((a, b) => a + b, 0);
const amount = (n) => String(Math.round(n * 100) / 100);

function svg(tag, attributes, ...children) {
  const el = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes ?? {})) el.setAttribute(name, value);
  el.append(...children.flat());
  return el;
}

const rect = (part, x, y, width, height) =>
  svg("rect", { class: `part-${part}`, x: `${x}%`, y: `${y}%`, width: `${width}%`,
    height: `${height}%` });

const plot = (height, ...content) =>
  svg("svg", { class: "plot", "aria-hidden": "true", width: "100%", height }, ...content);

// columns draws a column for each item {parts, title, lead}: its parts stand on each other, the
// first one below. A click calls lead; the keyboard has the same in the table.
function columns(items, ...more) {
  const most = Math.max(...items.map((it) => sum(it.parts))) || 1;
  const width = 100 / Math.max(items.length, 12);
  return plot(tall, items.map(({ parts, title, lead }, i) => {
    let y = 100;
    const bars = parts.map((n, part) => {
      const height = (100 * n) / most;
      return rect(part, i * width, (y -= height), width * 0.85, height);
    });
    const column = svg("g", lead ? { class: "leads" } : null, svg("title", null, title), bars);
    if (lead) column.addEventListener("click", lead);
    return column;
  }), ...more);
}

// legend names the parts of columns, from below.
const legend = (names) => h("p.hint.row", names.map((name, part) =>
  h("span", svg("svg", { class: "swatch", "aria-hidden": "true" }, rect(part, 0, 0, 100, 100)), " ",
    name)));

// figure makes a figure. heads are those of its table; a cell may be a node.
function figure(title, words, pictures, heads, rows) {
  const cell = (value, i) => h(i ? "td" : "th", i ? { "data-label": heads[i] } : { scope: "row" },
    value);
  return h("figure", h("figcaption", h("strong", title), ` ${words}`), pictures,
    h("details", h("summary", "Table"),
      h("div.wide", { tabindex: "0", role: "group", "aria-label": `Table: ${title}` },
        h("table.grid.stack",
          h("thead", h("tr", heads.map((t) => h("th", { scope: "col" }, t)))),
          h("tbody", rows.map((row) => h("tr", row.map(cell))))))));
}

// ends says below a picture where it begins and ends.
const ends = (from, to) => h("p.hint", `from the left: ${from} to ${to}`);

const nothing = (text) => h("p.empty", text);

// Context and tokens, by turn.

const contextParts = ["systemTokens", "toolTokens", "messageTokens"];

function contextFigure({ context, turns }, turnLink, leadOf) {
  if (!context.tokens) return nothing("The host has not told how full the context is.");
  const isTold = contextParts.some((name) => context[name]);
  const parts = (c) => (isTold ? contextParts.map((name) => c[name]) : [c.tokens]);
  const names = isTold ? ["system prompt", "tools", "messages"] : ["tokens"];
  let x = 0;
  const whole = Math.max(context.limit, context.tokens);
  const bar = parts(context).map((n, part) => {
    const width = (100 * n) / whole;
    return rect(part, (x += width) - width, 0, width, 100);
  });
  const told = turns.filter((t) => t.context.tokens);
  return figure("Context", `${short(context.tokens)} of ${short(context.limit)} tokens ` +
    `(${share(context.tokens, context.limit)})${isTold ?
      `: ${names.map((name, i) => `${name} ${short(parts(context)[i])}`).join(", ")}` : ""}.`,
  [
    plot(14, rect("rest", 0, 0, 100, 100), bar),
    legend(names),
    columns(told.map((t) => ({ parts: parts(t.context),
      title: `Turn ${t.turn}: ${short(t.context.tokens)} tokens`,
      lead: leadOf(t) }))),
    ...(told.length ? [ends(`turn ${told[0].turn}`, `turn ${told.at(-1).turn}`)] : []),
  ],
  ["Turn", "Tokens", ...names.slice(0, isTold ? 3 : 0), "Of the limit"],
  told.map((t) => [turnLink(t), String(t.context.tokens),
    ...(isTold ? parts(t.context).map(String) : []),
    share(t.context.tokens, t.context.limit)]));
}

function tokensFigure({ total, turns }, turnLink, leadOf) {
  if (!turns.length) return nothing("No model was called since the gateway started.");
  const priced = ["cost", "aiCredits"].find((name) => total[name]);
  const price = { cost: "premium requests", aiCredits: "AI credits" }[priced];
  const item = (t, parts, text) => ({ parts, title: `Turn ${t.turn}: ${text}`, lead: leadOf(t) });
  return figure("Tokens and cost",
    `${count(total.calls, "call")} of models${total.failures ? `, ${total.failures} failed` : ""}: ` +
      `${short(total.inputTokens)} tokens in, ${short(total.cacheReadTokens)} of them from the cache, ` +
      `${short(total.outputTokens)} out; ${price ? `${amount(total[priced])} ${price}` : "no cost was told"}.`,
    [
      legend(["in", "in, from the cache", "out"]),
      columns(turns.map((t) => item(t,
        [Math.max(0, t.inputTokens - t.cacheReadTokens), Math.min(t.cacheReadTokens, t.inputTokens),
          t.outputTokens],
        `${short(t.inputTokens)} in, ${short(t.outputTokens)} out`))),
      ...(price
        ? [h("p.hint", `Cost, in ${price}`),
          columns(turns.map((t) => item(t, [t[priced]], `${amount(t[priced])} ${price}`)))]
        : []),
      ends(`turn ${turns[0].turn}`, `turn ${turns.at(-1).turn}`),
    ],
    ["Turn", "Calls", "In", "From the cache", "Out", "Cost", "AI credits", "Model time"],
    turns.map((t) => [turnLink(t), String(t.calls), String(t.inputTokens),
      String(t.cacheReadTokens),
      String(t.outputTokens), amount(t.cost), amount(t.aiCredits), duration(t.durationMs)]));
}

// The waterfall of a turn.

const callKinds = ["model", "built-in", "provider"];
const kindOf = (r) => (r.kind === "call" ? callKinds[r.provider ? 2 : 1] : r.kind);

// turnRecords are what is recorded of a turn, newest first, with the calls of models in it.
async function turnRecords(turn, modelCalls) {
  const from = new Date(Date.parse(turn.ts) - (turn.durationMs ?? 0)).toISOString();
  const found = await records({ session: turn.session, since: from, until: turn.ts, last: 2000 });
  const calls = modelCalls
    .filter(({ endedAt, durationMs }) =>
      Date.parse(endedAt) >= Date.parse(from) &&
        Date.parse(endedAt) - durationMs < Date.parse(turn.ts))
    .map(({ model, endedAt, messageId, failed, ...c }) =>
      ({ ts: endedAt, kind: "model", session: turn.session,
      trace: turn.trace, parent: turn.span, tool: model, outcome: failed ? "failed" : "ok",
        ...c }));
  const shown = found.records.filter((r) =>
    ["call", "gate"].includes(r.kind) || (r.kind === "turn" && r.ts === turn.ts &&
      r.id === turn.id));
  return [...shown, ...calls].sort((a, b) => Date.parse(b.ts) - Date.parse(a.ts));
}

async function turnFigure(app, turns, modelCalls, leadOf) {
  if (!turns.length) return nothing("The records have no turn of this session. One is there when it has ended.");
  const trace = new TraceView(app, { kindOf, leadOf });
  const words = h("span");
  let run;
  const draw = async () => {
    const turn = turns[select.value];
    const mine = (run = {});
    const list = await turnRecords(turn, modelCalls).catch(() => null);
    if (mine !== run) return;
    trace.element.hidden = !list;
    if (!list) return setText(words, "The records can't be read now.");
    setText(words, `${duration(turn.durationMs ?? 0)}: ${callKinds.map((kind) => {
      const of = list.filter((r) => kindOf(r) === kind);
      return `${count(of.length, `${kind} call`)} ${duration(sum(of.map((r) => r.durationMs ?? 0)))}`;
    }).join(", ")}.`);
    trace.show(list, false, `Turn of ${moment(turn.ts)}`);
  };
  const select = h("select", { id: "figure-turn", onchange: draw }, turns.map((t, i) =>
    h("option", { value: String(i) },
      oneLine(`${moment(t.ts)}, prompt of ${plain(t.by ?? "somebody")}, ${duration(t.durationMs ?? 0)}`))));
  await draw();
  return h("figure",
    h("figcaption", h("label", { for: "figure-turn" }, h("strong", "A turn")), " ", select, " ",
      words),
    trace.element);
}

// entryOf finds the entry of a timeline that a record is of. Calls of providers have an id of the
// gateway's there, and are found by their tool and the time at which they began, as all else is.
function entryOf(entries, r) {
  const to = Date.parse(r.ts), from = to - (r.durationMs ?? 0);
  const away = (e) => Math.abs(Date.parse(e.ts) - from);
  const nearest = (list) => list.reduce((a, b) => (a && away(a) <= away(b) ? a : b), undefined);
  const of = (kind) => entries.filter((e) => e.kind === kind);
  const within = (e) => Date.parse(e.ts) >= from && Date.parse(e.ts) <= to + 100;
  if (r.kind === "turn") return nearest(of("prompt"));
  if (r.kind === "first call") return of("prompt").findLast((e) => Date.parse(e.ts) <= to);
  if (r.kind === "model") return entries.find((e) => ["message", "reasoning",
    "tool"].includes(e.kind) && within(e));
  return of("tool").find((e) => e.id === r.id) ??
    nearest(of("tool").filter((e) => e.name === r.tool));
}

// sessionFigures makes the figures of a session. entries is its timeline; reveal(entry) shows one
// of them.
export async function sessionFigures(app, id, entries, reveal) {
  const [usage, turns] = await Promise.all([
    sessions.usage(id, true).catch(() => ({ total: {}, turns: [], context: {} })), // it has ended
    records({ session: id, kind: "turn", last: mostColumns }).catch(() => ({ records: [] })),
  ]);
  const leadOf = (r) => {
    const entry = entryOf(entries, r);
    return entry && (() => reveal(entry));
  };
  const turnLead = (t) => leadOf({ kind: "first call", ts: t.startedAt });
  const turnLink = (t) => {
    const onclick = turnLead(t);
    return onclick ? h("button.link", { onclick }, `Turn ${t.turn}`) : `Turn ${t.turn}`;
  };
  const shown = { ...usage, turns: usage.turns.slice(-mostColumns) };
  return [contextFigure(shown, turnLink, turnLead), tokensFigure(shown, turnLink, turnLead),
    await turnFigure(app, turns.records, usage.modelCalls ?? [], leadOf)];
}

// Calls and pushes over time.

// overTime counts records in equal times, from that of the oldest one until now. isBad tells those
// that are drawn, and counted, apart.
function overTime(title, list, from, what, bad, isBad, more = "") {
  const step = Math.max(1000, (Date.now() - from) / 40);
  const times = Array.from({ length: Math.floor((Date.now() - from) / step) + 1 }, (_, i) =>
    ({ at: from + i * step, parts: [0, 0] }));
  for (const r of list) {
    const at = Math.min(times.length - 1,
      Math.max(0, Math.floor((Date.parse(r.ts) - from) / step)));
    times[at].parts[Number(isBad(r))]++;
  }
  for (const t of times) t.title = `${moment(t.at)}: ${count(sum(t.parts), what)}, ${t.parts[1]} ${bad}`;
  const failed = list.filter(isBad).length;
  const peak = Math.max(...times.map((t) => sum(t.parts)));
  return figure(title, `${count(list.length, what)} since ${moment(from)}, ${failed} ${bad} ` +
    `(${share(failed, list.length)}); at most ${peak} in ${duration(step)}.${more}`,
  [columns(times), ends(moment(from), "now")],
  ["From", `${what[0].toUpperCase()}${what.slice(1)}s`, bad[0].toUpperCase() + bad.slice(1)],
  times.filter((t) => sum(t.parts)).map((t) => [moment(t.at),
    ...[sum(t.parts), t.parts[1]].map(String)]));
}

const oldest = (list) => Date.parse(list.at(-1).ts);

// lastDay asks for the records of the last day, newest first.
const lastDay = (query) => records({ ...query, since: new Date(Date.now() - lately).toISOString(),
  last: 2000 });

// figuresOf makes a box that fills itself.
function figuresOf(query, none, make) {
  const box = h("div.figures", h("p.hint", "Reading the records…"));
  lastDay(query).then(
    ({ records: list }) => box.replaceChildren(...(list.length ? make(list) : [nothing(none)])),
    (e) => box.replaceChildren(nothing(e.message)));
  return box;
}

const groupedBy = (list, key) =>
  [...Map.groupBy(list, key)].sort((a, b) => b[1].length - a[1].length).slice(0, mostFigures);

// percentile of sorted numbers, as the gateway has it in its diagnostics.
const percentile = (sorted, percent) => sorted[Math.floor(((sorted.length - 1) * percent) / 100)];

// toolFigure is a histogram of how long calls of a tool took. Each column is twice as long a time
// as the one before.
export function toolFigure(name, calls) {
  const times = calls.map((r) => r.durationMs ?? 0).sort((a, b) => a - b);
  const step = (ms) => Math.log2(Math.max(ms, 0.001));
  const first = Math.floor(step(times[0]));
  const bins = Array.from({ length: Math.floor(step(times.at(-1))) - first + 1 }, (_, i) =>
    ({ from: 2 ** (first + i), parts: [0] }));
  for (const ms of times) bins[Math.floor(step(ms)) - first].parts[0]++;
  for (const b of bins) b.title = `${duration(b.from)} to ${duration(2 * b.from)}: ${count(b.parts[0], "call")}`;
  const [p50, p99] = [50, 99].map((percent) => percentile(times, percent));
  const mark = (kind, ms) => {
    const x = `${((step(ms) - first) * 100) / Math.max(bins.length, 12)}%`;
    return svg("line", { class: kind, x1: x, x2: x, y1: "0", y2: "100%" });
  };
  return figure(name, `${count(calls.length, "call")}: p50 ${duration(p50)} (line), p99 ${duration(p99)} (dashed).`,
    [columns(bins, mark("p50", p50), mark("p99", p99)),
      ends(duration(bins[0].from),
        `${duration(2 * bins.at(-1).from)}, each column twice the one before`)],
    ["Took", "Calls"], bins.map((b) => [`${duration(b.from)} to ${duration(2 * b.from)}`,
      String(b.parts[0])]));
}

// providerFigures makes the figures of a provider: its calls and failures over time, and how long
// each tool took.
export const providerFigures = (name) =>
  figuresOf({ kind: "call", provider: name },
    "The records have no call of this provider in the last day.",
    (list) => [
      overTime("Calls", list, oldest(list), "call", "failed", (r) => r.outcome === "failed"),
      ...groupedBy(list, (r) => r.tool).map(([tool, calls]) => toolFigure(plain(tool ?? ""),
        calls)),
    ]);

// pushFigures makes the figures of a session's streams: how many events were pushed into each, over
// time.
export const pushFigures = (session) =>
  figuresOf({ kind: "push", session }, "The records have no event of this session in the last day.",
    (list) => {
    // A queued event has a second record, when it is delivered.
    const queued = new Set();
    const once = list.toReversed().filter((r) => {
      const key = `${r.stream}@${r.provider} ${r.seq}`;
      if (queued.delete(key)) return false;
      if (r.fate === "queued") queued.add(key);
      return true;
    });
    return groupedBy(once, (r) => `${r.stream}@${r.provider}`).map(([name, events]) =>
      overTime(plain(name), events, oldest(list), "event", "dropped", (r) => r.fate === "dropped"));
  });
