// What the page shows of a record (docs/records.md), wherever that stands.

import { h } from "./dom.js";
import { codeBlockFolded } from "./entries.js";
import { address, oneLine, plain } from "./format.js";

// keyOf tells records apart.
export const keyOf = (r) =>
  JSON.stringify([r.ts, r.kind, r.session, r.provider, r.id, r.span, r.tool, r.stream, r.seq,
    r.fate, r.by, r.state,
    r.outcome, r.durationMs]);

// addressOf is where the page shows the records that a filter chooses.
export const addressOf = (filter) => {
  const given = Object.entries(filter).filter(([, value]) => value);
  return `#/records${given.length ? `/${new URLSearchParams(given)}` : ""}`;
};

// subject is what a record is about, in few words.
export function subject(r) {
  const texts = {
    session: r.label ?? oneLine(r.session ?? "", 13), turn: r.by && `prompt of ${r.by}`,
    call: [r.tool, r.command].filter(Boolean).join(": "),
    gate: `${r.tool}, by ${r.by}`,
    push: [r.stream, r.event || r.prompt].filter(Boolean).join(": "), source: r.stream ??
      r.provider,
    goal: r.label ?? r.id,
  };
  return plain(oneLine(texts[r.kind] ?? r.tool ?? r.id ?? "", 160));
}

// outcome is how it ended, and whether that is bad.
export function outcome(r) {
  const text = r.code || r.fate || r.state || r.outcome || "";
  return { text: plain(text), bad: Boolean(r.code) ||
    ["failed", "deny", "dropped"].includes(r.outcome ?? r.fate) };
}

// recordParts shows all members of a record, with links to what belongs to it.
export function recordParts(app, r) {
  const runs = app.state.sessions.some((s) => s.id === r.session);
  const link = (text, href) => h("a", { href }, text);
  return [
    h("p.row",
      r.trace && link("Its trace", addressOf({ trace: r.trace })),
      runs && link("Its session", address("sessions", r.session)),
      r.session && link("Records of the session", addressOf({ session: r.session })),
      r.provider && link("Records of the provider", addressOf({ provider: r.provider }))),
    codeBlockFolded(plain(JSON.stringify(r, null, 2))),
  ];
}
