import { codeBlock, isKnown } from "./code.js";
import { copyButton, h, setText } from "./dom.js";
import { date, duration, oneLine, pretty, time } from "./format.js";
import { render as markdown } from "./markdown.js";
import { turnText } from "./turns.js";

// How many characters of a result, and of a message, are shown until the person asks for all.
const maxText = 20_000;
const maxMessage = 32_000;

// element makes the element of a timeline's entry. Its refresh(), if it has one, shows a change of
// the entry.
export function element(entry) {
  const { body, refresh } = (entryKinds[entry.kind] ?? entryKinds.note)(entry);
  const el = h("article", { class: `entry ${entry.kind}` },
    h("time", { datetime: entry.ts, title: date(entry.ts) }, time(entry.ts)), h("div.body", body));
  el.entry = entry;
  el.refresh = refresh && (() => refresh(el));
  el.refresh?.();
  return el;
}

const entryKinds = {
  prompt: (e) => {
    const turn = h("button.ghost.turn");
    return {
      body: [h("div.who", e.who === "user" ? "You" : "A provider's prompt"),
        h("div.said", folded(e.text)), turn],
      refresh: (el) => {
        el.classList.toggle("from-provider", e.who !== "user");
        turn.setAttribute("aria-expanded", String(!e.folded));
        setText(turn, turnText(e));
      },
    };
  },

  reasoning: (e) => {
    const what = h("span"),
      text = h("div.thought");
    const box = details(e, [what], text, () => !e.done);
    return {
      body: box,
      refresh: () => {
        setText(what,
          e.done ? `Reasoned${e.ended ? ` for ${duration(new Date(e.ended) - new Date(e.ts))}` : ""}` : "Reasoning…");
        box.applyOpen();
        if (box.open) setText(text, e.text);
      },
    };
  },

  message: (e) => {
    const text = h("div.markdown");
    const more = h("button", { hidden: true, onclick: () => {
      e.whole = true;
      more.closest("article").refresh();
    } });
    return {
      body: [text, more, copyButton(() => e.text)],
      refresh: (el) => {
        el.hidden = e.done && !e.text.trim();
        el.classList.toggle("streaming", !e.done);
        more.hidden = e.whole || e.text.length <= maxMessage;
        setText(more, `Show all (${Math.round(e.text.length / 1000).toLocaleString()} kB)`);
        markdown(text, more.hidden ? e.text : beginning(e.text, maxMessage));
      },
    };
  },

  tool: (e) => {
    const state = h("span.state", { role: "img" }),
      took = h("span.took");
    const parts = h("div.parts");
    const about = h("span.brief");
    const box = details(e, [state, h("code.name", e.name ?? "a tool"), about, took], parts,
      () => false);
    let shownState;
    return {
      body: box,
      refresh: (el) => {
        const is = e.error ? "failed" : e.done ? "ok" : "running";
        state.className = `state ${is}`;
        state.setAttribute("aria-label", is);
        setText(took, e.error?.code ??
          (e.done && e.ended ? duration(e.took ?? new Date(e.ended) - new Date(e.ts)) : ""));
        setText(about, (!e.done && oneLine(e.steps?.at(-1) ?? "", 160)) || briefArgs(e.args));
        el.classList.toggle("nested", Boolean(e.parent));
        const now = `${is} ${e.text.length} ${e.steps?.length} ${box.open}`;
        if (now === shownState) return;
        shownState = now;
        if (!box.open) return;
        parts.replaceChildren(part("Arguments", codeBlock(pretty(e.args ?? "{}"), "JSON")),
          ...(e.steps ? [part("Progress", stepList(e.steps))] : []),
          ...(e.text && !e.result ? [part("So far", h("pre", { tabindex: "0" }, e.text))] : []),
          ...(e.error ? [part("Error", h("p.fault", e.error.message))] : []),
          ...(e.result ? [part("Result", result(e))] : []));
      },
    };
  },

  push: (e) => ({
    body: [
      h("span", { class: `level ${e.level}` }, e.level),
      " ",
      h("span.source", e.label),
      " ",
      h("span.said", folded(e.text)),
      e.metadata &&
        h("details.more", h("summary", "metadata"),
          codeBlock(JSON.stringify(e.metadata, null, 2), "JSON")),
    ],
  }),

  note: (e) => {
    const it = () =>
      e.kind === "push"
        ? entryKinds.push(e).body
        : [h("span.source", e.source), " ", h("span", { class: `said ${e.level}` }, folded(e.text)),
          e.tries?.length > 1 && details(e, `${e.tries.length} attempts`, stepList(e.tries),
            () => false)];
    return {
      body: [],
      refresh: (el) => {
        el.className = `entry ${e.kind}`;
        el.lastChild.replaceChildren(...it().filter(Boolean));
      },
    };
  },

  error: (e) => ({ body: h("p.fault", h("strong", "Error "), e.text) }),
  mark: (e) => ({ body: e.text }),
};

// details folds content. entry.unfolded keeps the person's choice when the element is made again;
// without one, open() decides.
function details(entry, summary, content, open) {
  const box = h("details", h("summary", summary), content);
  box.applyOpen = () => {
    box.open = entry.unfolded ?? open();
  };
  box.applyOpen();
  box.addEventListener("click", (e) => {
    if (!e.target.closest("summary")) return;
    e.preventDefault();
    entry.unfolded = !box.open;
    box.open = entry.unfolded;
    box.closest("article").refresh();
  });
  return box;
}

const stepList = (texts) => h("ol.steps", texts.map((t) => h("li", t)));

// beginning returns whole lines of a text, if they are not too long.
function beginning(text, most) {
  const end = text.lastIndexOf("\n", most);
  return text.slice(0, end > most / 2 ? end + 1 : most);
}

const part = (title, content) => h("div.part", h("h3", title), content);

// The arguments that say most about a call, in order.
const mainArguments = ["command", "path", "file_path", "filePath", "file", "pattern", "query",
  "url"];

// briefArgs returns the arguments of a call, a JSON text, as one line.
function briefArgs(args) {
  try {
    const it = JSON.parse(args || "{}");
    const most = mainArguments.find((k) => typeof it[k] === "string" && it[k]);
    if (most) return oneLine(it[most], 160);
    const entries = Object.entries(it);
    if (!entries.length) return "";
    const text = (v) => (typeof v === "string" ? v : JSON.stringify(v));
    return oneLine(entries.length === 1 ? text(entries[0][1]) : entries.map(([k, v]) =>
      `${k}: ${text(v)}`).join(", "),
      160);
  } catch {
    return oneLine(args ?? "", 160);
  }
}

function result({ args, result: { content, detailedContent } }) {
  const text = pretty(detailedContent || content || "");
  return text ? codeBlockFolded(text, languageOf(text, args)) : h("p.none", "empty");
}

// languageOf guesses what the result of a call, in which JSON is indented, is written in.
function languageOf(text, args = "") {
  if (/^\s*(?:diff --git |@@ -|--- .*\n\+\+\+ )/.test(text)) return "diff";
  if (/^(?:\{\n {2}"|\[\n {2})/.test(text)) return "JSON";
  const [, extension] = /"(?:path|file_path|filePath|file)":\s*"[^"]*\.(\w+)"/.exec(args) ?? [];
  return isKnown(extension) ? extension : "";
}

// codeBlockFolded shows a text, or the beginning of a long one with a button for the rest.
export function codeBlockFolded(text, language = "JSON") {
  const label = language || "result";
  if (text.length <= maxText) return codeBlock(text, label, language);
  const box = h("div",
    codeBlock(text.slice(0, maxText), label, language),
    h("button", { onclick: () => box.replaceChildren(codeBlock(text, label, language)) },
      `Show all ${text.length.toLocaleString()} characters`));
  return box;
}

// folded returns a text, or the beginning of a long one with a button for the rest.
function folded(text) {
  const most = 2000;
  if (text.length <= most) return text;
  const box = h("span", `${text.slice(0, most)}… `,
    h("button.link", { onclick: () => box.replaceChildren(text) }, "show all"));
  return box;
}
