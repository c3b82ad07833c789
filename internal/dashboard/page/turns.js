import { count, duration, short } from "./format.js";

// The turns of a timeline: what is said about each, and folding. A turn is known by its prompt.

const mostTools = 4; // names of tools that are said of a turn

// turnText says how long a prompt's turn took, what it called and what it used.
export function turnText({ ts, all, usage }) {
  const calls = new Map(),
    tools = all.filter((e) => e.kind === "tool"),
    failed = tools.filter((e) => e.error).length,
    last = all.at(-1);
  for (const { name = "a tool" } of tools) calls.set(name, (calls.get(name) ?? 0) + 1);
  const names = [...calls].sort((a, b) => b[1] - a[1]).map(([name, n]) =>
    (n > 1 ? `${name} ${n}` : name));
  if (names.length > mostTools) names.splice(mostTools, Infinity, "…");
  const price = [["cost", "premium request"], ["aiCredits", "AI credit"]].find(([name]) =>
    usage?.[name]);
  return [
    duration(Math.max(0, new Date(last.idle ?? last.ended ?? last.ts) - new Date(ts))),
    tools.length ? `${count(tools.length, "call")} (${names.join(", ")})${failed ? `, ${failed} failed` : ""}` : "no calls",
    usage && `${short(usage.inputTokens)} tokens in, ${short(usage.outputTokens)} out`,
    price && count(Math.round(100 * usage[price[0]]) / 100, price[1]),
  ].filter(Boolean).join(" · ");
}

// isFolded tells whether an entry is out of sight with its turn.
export const isFolded = (entry) => entry.turn?.folded && entry.turn !== entry;

// Turns folds the turns of a SessionView.
export class Turns {
  counted = []; // by the host, of each turn

  constructor(view) {
    this.view = view;
    view.scroller.addEventListener("click", (e) => {
      const prompt = e.target.closest(".turn")?.closest("article").entry;
      if (prompt) this.fold([prompt], !prompt.folded, prompt);
    });
  }

  get prompts() {
    return (this.view.feed?.timeline.entries ?? []).filter((e) => e.kind === "prompt");
  }

  // fold folds or unfolds turns. The entry that the person looks at stays where it is, and gets the
  // focus that an entry had.
  fold(prompts, folded, keep) {
    const was = document.activeElement;
    for (const e of prompts) e.folded = folded;
    this.view.refill(keep);
    const el = this.view.list.mounted(keep);
    if (!was.isConnected) ((was.matches(".turn") && el?.querySelector(".turn")) || el)?.focus();
    el?.scrollIntoView({ block: "nearest" });
  }

  // toggle folds the turn that the person is in, or unfolds it; toggleAll does it with all.
  toggle() {
    const prompt = this.here()?.turn;
    if (prompt) this.fold([prompt], !prompt.folded, prompt);
  }

  toggleAll() {
    const { prompts } = this,
      here = this.here();
    this.fold(prompts, prompts.some((e) => !e.folded), here?.turn ?? here);
  }

  // here is the entry that has the focus, or the first one in sight.
  here() {
    return document.activeElement.closest(".timeline article")?.entry ??
      this.view.list.inSight()[0];
  }

  // use takes what the host counted: it says when the first call of each turn ended, and no
  // prompt's id. Without that it does so for prompts that have come since.
  use(counted = this.counted) {
    this.counted = counted;
    const { prompts } = this,
      begun = prompts.map((e) => Date.parse(e.ts));
    for (const e of prompts) e.usage = undefined;
    let i = 0;
    for (const of of counted) {
      const at = Date.parse(of.startedAt);
      while (begun[i + 1] <= at) i++;
      if (!(begun[i] <= at)) continue;
      const sum = prompts[i].usage ??= { inputTokens: 0, outputTokens: 0, cost: 0, aiCredits: 0 };
      for (const name in sum) sum[name] += of[name];
    }
    for (const e of prompts) this.view.list.change(e);
  }
}
