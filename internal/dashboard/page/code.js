import { copyButton, h } from "./dom.js";

// Blocks of code: a label, switches, and colours. One pattern for a group of languages that are
// written alike knows comments, strings, numbers and words, not grammar.

const mostPainted = 20_000; // characters of code that gets colours
const mostAtOnce = 2000; // characters of code that gets them before it is shown
const settled = 200; // ms without a change after which longer code gets them: a message may still stream

const words = "as async await break case catch class const continue def default defer do elif else enum export extends " +
  "false False fn for from func function go if impl import in interface let match mut new nil None null package pub " +
  "public return self static struct switch this throw true True try type use var void while with yield";

// None of these patterns goes back over the same characters, but for at most 500 behind a quotation
// mark: a lifetime of Rust begins with one, and nothing ends it.
const string = String.raw`"(?:[^"\\\n]|\\.)*"`;
const group = (comment, strings, word = words.replaceAll(" ", "|")) => new RegExp(
  String.raw`(?<comment>${comment})|${strings}|(?<string>${string}?|'(?:[^'\\\n]|\\.){0,500}')|(?<number>\b\d[\w.]*)|` +
    String.raw`(?<word>\b(?:${word})\b)`, "g");
const blockComment = String.raw`|/\*(?:[^*]|\*(?!/))*(?:\*/)?`;

const languages = {};
for (const [pattern, names] of [
  [group(`//.*${blockComment}`, "(?<text>`(?:[^`\\\\]|\\\\[^])*`?)"),
    "c cpp c++ cs csharp css dart go h java javascript js jsx kotlin kt mjs php rs rust scala swift ts tsx typescript"],
  [group(String.raw`(?<![^\s;({])#.*`, `(?<text>"""[^]*?(?:"""|$))`),
    "bash dockerfile makefile perl py python r rb ruby sh shell toml yaml yml"],
  [group(`--.*${blockComment}`, "(?!)", "[A-Z]{2,}"), "sql"],
  [group("(?!)", String.raw`(?<key>${string}(?=\s*:))`), "json jsonc"],
  [/(?<comment>^(?:diff |index |--- |\+\+\+ ).*)|(?<number>^@@.*)|(?<added>^\+.*)|(?<removed>^-.*)/gm, "diff patch"],
]) for (const name of names.split(" ")) languages[name] = pattern;

const patternOf = (language) => language && Object.hasOwn(languages, language.toLowerCase()) &&
  languages[language.toLowerCase()];

// isKnown tells whether code of a language gets colours.
export const isKnown = (language) => Boolean(patternOf(language));

// painted returns the nodes of code in colours.
function painted(code, pattern) {
  const nodes = [];
  let at = 0;
  for (const m of code.matchAll(pattern)) {
    const [kind] = Object.entries(m.groups).find(([, text]) => text !== undefined);
    nodes.push(code.slice(at, m.index), h("span", { class: `t-${kind}` }, m[0]));
    at = m.index + m[0].length;
  }
  return [...nodes, code.slice(at)];
}

// What the person chose for all blocks: the style sheet applies it and says it on the buttons.
const codeLook = document.documentElement.dataset;
for (const name of ["wrap", "tab"]) codeLook[name] = localStorage.getItem(`tapgw.${name}`) ?? "";

const next = { wrap: { "": "on" }, tab: { "": "8", 8: "2" } }; // after each choice; else the default, ""

const choice = (name, label, title) => h("button", {
  class: `ghost ${name}`, title,
  onclick: () => localStorage.setItem(`tapgw.${name}`, (codeLook[name] = next[name][codeLook[name]] ?? "")),
}, label);

// codeBlock shows code. label is shown above it; language, by which it gets colours, is the same
// unless it is given.
export function codeBlock(code, label, language = label) {
  const text = h("code", code),
    pattern = code.length <= mostPainted && patternOf(language),
    paint = () => text.replaceChildren(...painted(code, pattern));
  if (pattern) code.length <= mostAtOnce ? paint() : setTimeout(() => text.isConnected && paint(), settled);
  return h("div.code",
    h("div.head",
      h("span", label || "code"),
      code.includes("\t") && choice("tab", "Tab", "How wide a tab is"),
      choice("wrap", "Wrap", "Whether long lines of code are wrapped"),
      copyButton(() => code)),
    h("pre", { tabindex: "0", role: "group", "aria-label": label ? `Code, ${label}` : "Code" }, text));
}
