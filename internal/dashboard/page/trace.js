import { arrows, h, setText } from "./dom.js";
import { count, date, duration, plain } from "./format.js";
import { keyOf, outcome, recordParts, subject } from "./record.js";
import { setBar, timeScale } from "./waterfall.js";

const rowsAtOnce = 500;
const deepest = 12; // steps that are indented
const pauseLeast = 1000, // ms; a shorter pause is not folded,
  pauseShare = 0.2; // nor one that is less than this of the time in which something ran

// spansOf orders the records of a trace, oldest first, as a tree, depth first. A span has its
// record, from and to in ms, its depth, and inner: the spans in it. It stands below the span that
// its record names as parent; without one, below the shortest one that was running all the while.
export function spansOf(records) {
  const spans = records
    .map((record) => ({ record, to: Date.parse(record.ts), inner: [] }))
    .filter(({ to }) => to)
    .map((s) => ({ ...s, from: s.to - (s.record.durationMs > 0 ? s.record.durationMs : 0) }))
    .sort((a, b) => a.from - b.from || b.to - a.to);
  const byID = new Map();
  for (const s of spans) if (s.record.span && !byID.has(s.record.span)) byID.set(s.record.span, s);
  const around = [], outer = [];
  for (const s of spans) {
    while (around.length && around.at(-1).to < s.to) around.pop();
    const { parent } = s.record;
    const above = parent ? byID.get(parent) : around.at(-1);
    above && above !== s ? above.inner.push(s) : outer.push(s);
    if (s.to > s.from) around.push(s);
  }
  const list = [];
  const take = (from, depth) => {
    const left = from.map((s) => [s, depth]).reverse();
    while (left.length) {
      const [s, d] = left.pop();
      if (s.depth !== undefined) continue;
      s.depth = d;
      list.push(s);
      for (const it of s.inner.toReversed()) left.push([it, d + 1]);
    }
  };
  take(outer, 0);
  // Parents that name each other in a circle have nobody above them.
  for (const s of spans) if (s.depth === undefined) take([s], 0);
  return list;
}

// scaleOf makes the axis: times in which nothing happens but that something longer goes on are
// pauses.
function scaleOf(spans) {
  const leaves = spans.filter((s) => !s.inner.length);
  const busy = leaves.reduce((sum, s) => sum + s.to - s.from, 0);
  const edges = spans.filter((s) => s.inner.length)
    .flatMap((s) => [{ from: s.from, to: s.from }, { from: s.to, to: s.to }]);
  return timeScale([...leaves, ...edges], Math.max(pauseLeast, busy * pauseShare));
}

// TraceView shows the records of one trace as a waterfall: a table whose last column is the
// picture. A bar and its name unfold the record. kindOf names the kind of a record; if
// leadOf(record) returns a function, they call that instead.
export class TraceView {
  constructor(app, { kindOf = (r) => r.kind, leadOf } = {}) {
    Object.assign(this, { app, kindOf, leadOf });
    this.open = new Set();
    this.limit = rowsAtOnce;
    this.caption = h("caption");
    this.axis = h("div.scale", { "aria-hidden": "true" });
    this.rows = h("tbody", { role: "rowgroup" });
    const head = (label, kind) => h("th", { scope: "col", role: "columnheader", class: kind },
      label);
    this.table = h("table.trace", { role: "table" },
      this.caption,
      h("thead", { role: "rowgroup" },
        h("tr", { role: "row" }, head("What"), head("Start", "number"), head("Took", "number"),
          head("Outcome"),
          h("td.picture", { role: "cell" }, this.axis))),
      this.rows);
    arrows(this.rows, "button.what");
    this.rest = h("button", {
      hidden: true,
      onclick: () => {
        this.limit += rowsAtOnce;
        this.draw();
      },
    });
    this.element = h("section.page", { "aria-label": "Trace", hidden: true }, this.table,
      this.rest);
  }

  // show shows records of one trace, newest first. cut says that there are older ones, name what
  // they are.
  show(records, cut, name) {
    const id = name ?? `Trace ${plain(records[0]?.trace ?? "")}`;
    if (id !== this.id) {
      this.open.clear();
      this.limit = rowsAtOnce;
    }
    Object.assign(this, { id, cut, spans: spansOf(records.toReversed()) });
    this.draw();
  }

  draw() {
    const { spans } = this;
    if (!spans.length) return;
    const focus = document.activeElement?.closest?.(".trace tr")?.dataset.key;
    this.start = spans.reduce((at, s) => Math.min(at, s.from), Infinity);
    const end = spans.reduce((at, s) => Math.max(at, s.to), 0);
    const { pauses, place } = scaleOf(spans);
    const folded = pauses.reduce((sum, p) => sum + p.to - p.from, 0);
    setText(this.caption, [
      `${this.id}: ${count(spans.length, "record")} in ${duration(end - this.start)}`,
      `from ${date(this.start)}`,
      pauses.length > 0 && `folded: ${count(pauses.length, "pause")} of together ${duration(folded)}`,
      this.cut && "the trace has older records, which are not here",
    ].filter(Boolean).join("; "));
    // Labels that would overlap are left out.
    let free = 0;
    this.axis.replaceChildren(...pauses.filter((p) => p.x >= free &&
      (free = p.x + 0.18)).map((p) => {
      const label = h("span", `⋯ ${duration(p.to - p.from)}`);
      label.style.left = `${Math.min(p.x, 0.82) * 100}%`;
      return label;
    }));
    // The pauses are bands behind all bars.
    const band = ({ x, width }) => {
      const [a, b] = [`${x * 100}%`, `${(x + width) * 100}%`];
      return `transparent ${a}, var(--fold) ${a}, var(--fold) ${b}, transparent ${b}`;
    };
    this.table.style.setProperty("--pauses",
      pauses.length ? `linear-gradient(to right, ${pauses.map(band).join(", ")})` : "none");
    this.rows.replaceChildren(...spans.slice(0, this.limit).map((s) => this.row(s, place)));
    const left = spans.length - this.limit;
    this.rest.hidden = left <= 0;
    setText(this.rest, `Show ${Math.min(left, rowsAtOnce)} of ${left.toLocaleString()} more`);
    if (focus) [...this.rows.children].find((tr) =>
      tr.dataset.key === focus)?.querySelector("button.what").focus();
  }

  row(s, place) {
    const r = s.record;
    const key = keyOf(r);
    const { text, bad } = outcome(r);
    const parts = h("div.parts");
    const show = (open) => {
      if (!lead) what.setAttribute("aria-expanded", String(open));
      parts.replaceChildren(...(open ? recordParts(this.app, r) : []));
    };
    const toggle = () => {
      const open = !this.open.delete(key);
      if (open) this.open.add(key);
      show(open);
    };
    const lead = this.leadOf?.(r);
    const kind = plain(this.kindOf(r));
    const what = h("button.what.link", { onclick: lead ?? toggle },
      h("span.hidden", `Level ${s.depth + 1}: `), h("span.chip", kind), " ", subject(r));
    const cell = (kind, ...content) => h("td", { role: "cell", class: kind }, content);
    const bar = h("span",
      { class: `ran ${bad ? "failed" : kind} ${s.inner.length ? "outer" : ""}`,
        title: subject(r) });
    setBar(bar, s, place);
    const name = h("th", { scope: "row", role: "rowheader" }, what,
      r.provider !== subject(r) && h("span.sub", plain(r.provider ?? "")), parts);
    name.style.paddingLeft = `${10 + 14 * Math.min(s.depth, deepest)}px`;
    show(this.open.has(key));
    return h("tr", { role: "row", data: { key } },
      name,
      cell("number", `+${duration(s.from - this.start)}`),
      cell("number", s.to > s.from ? duration(s.to - s.from) : ""),
      cell(bad ? "outcome bad" : "outcome", text),
      h("td.picture", { "aria-hidden": "true", onclick: () => what.click() },
        h("div.lane", bar)));
  }
}
