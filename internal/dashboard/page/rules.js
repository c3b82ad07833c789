// How the page shows rules and what they decided.

import { h, reconcile, setText } from "./dom.js";
import { date, duration, moment, oneLine, plain } from "./format.js";

// ruleText says which calls a rule is about.
export function ruleText({ match, index }) {
  const parts = Object.entries(match).map(([what, pattern]) => `${what} ${pattern}`);
  return plain(`${parts.join(", ") || "any call"} (rule ${index + 1})`);
}

const isOf = (r, g) => g.provider === r.provider && g.session === r.session &&
  JSON.stringify(g.rule) === JSON.stringify(r.rule);

// drawRules shows rules in the rows of a table, each with its last decision among those of gates.
export function drawRules(rows, rules, gates, labelOf) {
  reconcile(rows, rules, (r) => JSON.stringify(r), (r) =>
    h("tr", h("th", { scope: "row" }, plain(r.provider), r.hook &&
      h("span.sub", "a hook of yours")),
      h("td", r.rule.action, r.rule.failOpen && h("span.sub", "allows if it does not answer")),
      h("td.said", ruleText(r.rule)), h("td.of"), h("td.last")),
    (tr, r) => {
      setText(tr.querySelector(".of"), plain(labelOf(r.session)));
      const g = gates.find((it) => isOf(r, it)), cell = tr.querySelector(".last");
      if (cell.dataset.at === (g?.at ?? "")) return;
      cell.dataset.at = g?.at ?? "";
      cell.replaceChildren(...(g ? decision(g) : ["none lately"]));
    });
}

// rulesTable makes the table of drawRules.
export const rulesTable = (rows) =>
  h("div.wide", { tabindex: "0", role: "group", "aria-label": "Table of rules" },
    h("table.grid.stack",
      h("thead", h("tr", ["Of", "Action", "Calls", "Session", "Last decision"].map((t) =>
        h("th", { scope: "col" }, t)))),
      rows));

// decision shows one decision: what, about which call, when, how long it took, and why.
export const decision = (g) => [
  h("time", { datetime: g.at, title: date(g.at) }, moment(g.at)), " ",
  h("span", { class: `decision ${g.decision}` }, g.decision), " ", h("code", plain(g.tool)), " ",
  h("code.hint", plain(oneLine(g.args, 120))), " ", h("span.sub", duration(g.durationMs)),
  g.reason ? h("div.said", plain(g.reason)) : ""];
