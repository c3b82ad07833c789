import { copyButton, h } from "./dom.js";

// A small Markdown: what models write, not all of CommonMark. No text is parsed as HTML, images are links, and links
// lead to http, https and mailto only, and never to this gateway.

// render shows a text in an element. When it is called again with a longer text it keeps the blocks that did not
// change, so that a message can stream.
export function render(el, source) {
  const old = el.blocks ?? [];
  const blocks = parse(source.replace(/\r\n?/g, "\n").split("\n"));
  let same = 0;
  while (same < old.length && same < blocks.length && old[same] === blocks[same].source) same++;
  while (el.childNodes.length > same) el.lastChild.remove();
  for (const block of blocks.slice(same)) el.append(block.make());
  el.blocks = blocks.map((b) => b.source);
}

const maxDepth = 12; // of quotes and lists in each other

// None of these patterns backtracks over the same characters: a line may be long.
const fence = /^ {0,3}(`{3,}|~{3,}(?!~))([^`]*)$/;
const heading = /^ {0,3}(#{1,6})(?:\s(.*))?$/;
const rule = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const quote = /^ {0,3}>/;
const item = /^( *)([-*+]|\d{1,9}[.)])(?:( +)|$)/;
const delimiters = /^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const blank = /^\s*$/;

const tableAt = (lines, i) =>
  lines[i].includes("|") &&
  lines[i + 1]?.includes("-") &&
  delimiters.test(lines[i + 1]) &&
  cells(lines[i]).length === cells(lines[i + 1]).length;
const interrupts = (lines, i) =>
  fence.test(lines[i]) ||
  heading.test(lines[i]) ||
  rule.test(lines[i]) ||
  quote.test(lines[i]) ||
  item.test(lines[i]) ||
  tableAt(lines, i);

// parse cuts lines into blocks. A block has its source, by which render compares it, and make() for its element.
function parse(lines, depth = 0) {
  const blocks = [];
  for (let i = 0, from; i < lines.length;) {
    if (blank.test(lines[i])) {
      i++;
      continue;
    }
    from = i;
    const add = (make) =>
      blocks.push({ source: lines.slice(from, i).join("\n") + (i < lines.length ? "\n" : ""), make });
    let m;
    if ((m = fence.exec(lines[i]))) {
      const [, marks, info] = m;
      const language = info.trim().split(/\s/, 1)[0];
      const end = new RegExp(`^ {0,3}${marks[0]}{${marks.length},}\\s*$`);
      for (i++; i < lines.length && !end.test(lines[i]);) i++;
      const code = lines.slice(from + 1, i).join("\n");
      i++;
      add(() => codeBlock(code, language));
    } else if ((m = heading.exec(lines[i]))) {
      const [, marks, rest = ""] = m;
      const text = headingText(rest);
      i++;
      add(() => h(`h${Math.min(6, marks.length + 2)}`, null, inline(text)));
    } else if (rule.test(lines[i])) {
      i++;
      add(() => h("hr"));
    } else if (depth < maxDepth && quote.test(lines[i])) {
      while (i < lines.length && !blank.test(lines[i]) && (quote.test(lines[i]) || !interrupts(lines, i))) i++;
      const inner = lines.slice(from, i).map((l) => l.replace(/^ {0,3}> ?/, ""));
      add(() =>
        h("blockquote", null, parse(inner, depth + 1).map((b) => b.make())),
      );
    } else if (depth < maxDepth && (m = item.exec(lines[i]))) {
      const ordered = /\d/.test(m[2]);
      i = listEnd(lines, i, ordered);
      const part = lines.slice(from, i);
      add(() => list(part, ordered, depth));
    } else if (tableAt(lines, i)) {
      for (i += 2; i < lines.length && !blank.test(lines[i]) && lines[i].includes("|");) i++;
      const part = lines.slice(from, i);
      add(() => table(part));
    } else {
      for (i++; i < lines.length && !blank.test(lines[i]) && !interrupts(lines, i);) i++;
      const text = lines
        .slice(from, i)
        .map((l) => l.trimStart())
        .join("\n")
        .trimEnd();
      add(() => h("p", null, inline(text)));
    }
  }
  return blocks;
}

// headingText returns the text of a heading without the marks that may close it.
function headingText(rest) {
  const text = rest.trim(),
    end = endWithout(text, /#/);
  return !end || /\s/.test(text[end - 1]) ? text.slice(0, end).trimEnd() : text;
}

// endWithout returns the end of a text without the last characters that match fits.
function endWithout(text, fits) {
  let end = text.length;
  while (end > 0 && fits.test(text[end - 1])) end--;
  return end;
}

const indentOf = (line) => line.length - line.trimStart().length;

// listEnd finds the end of a list: another kind of list, or a line behind an empty one that is not indented.
function listEnd(lines, i, ordered) {
  const base = indentOf(lines[i]);
  for (let gap = false; i < lines.length; i++) {
    if (blank.test(lines[i])) {
      gap = true;
      continue;
    }
    const m = item.exec(lines[i]);
    if (indentOf(lines[i]) <= base + 1) {
      if (m && !rule.test(lines[i]) ? /\d/.test(m[2]) !== ordered : gap || interrupts(lines, i)) break;
    }
    gap = false;
  }
  return i;
}

function list(lines, ordered, depth) {
  const base = indentOf(lines[0]);
  const items = [];
  let loose = false;
  for (const [n, line] of lines.entries()) {
    const m = item.exec(line);
    if (m && m[1].length <= base + 1) {
      if (items.length && blank.test(lines[n - 1])) loose = true;
      items.push({ number: parseInt(m[2], 10), width: m[0].length, lines: [line.slice(m[0].length)] });
    } else {
      const last = items.at(-1);
      last.lines.push(line.slice(Math.min(indentOf(line), last.width)));
    }
  }
  return h(
    ordered ? "ol" : "ul",
    ordered && items[0].number !== 1 ? { start: items[0].number } : null,
    items.map(({ lines: inner }) => {
      const task = /^\[([ xX])\] /.exec(inner[0]);
      if (task) inner[0] = inner[0].slice(4);
      const nodes = parse(inner, depth + 1).map((b) => b.make());
      if (!loose && nodes[0]?.tagName === "P") nodes.splice(0, 1, ...nodes[0].childNodes);
      return h("li", { class: task ? "task" : null },
        task &&
          h("span", { role: "img", "aria-label": task[1] === " " ? "not done" : "done" },
            task[1] === " " ? "☐" : "☑"),
        task && " ",
        nodes);
    }),
  );
}

function cells(line) {
  const text = line
    .trim()
    .replace(/^\|/, "")
    .replace(/(?<!\\)\|$/, "");
  return text.split(/(?<!\\)\|/).map((c) => c.trim().replaceAll("\\|", "|"));
}

function table([head, marks, ...rows]) {
  const align = cells(marks).map((m) => (m.endsWith(":") ? (m.startsWith(":") ? "center" : "right") : null));
  const cell = (tag) => (text, i) => h(tag, { class: align[i] }, inline(text));
  return h("div", { class: "wide", tabindex: "0", role: "group", "aria-label": "Table" },
    h("table", null,
      h("thead", null, h("tr", null, cells(head).map(cell("th")))),
      h("tbody", null,
        rows.map((r) =>
          h("tr", null, align.map((_, i) => cell("td")(cells(r)[i] ?? "", i))),
        ))));
}

export function codeBlock(code, language) {
  return h("div", { class: "code" },
    h("pre", { tabindex: "0", role: "group", "aria-label": language ? `Code, ${language}` : "Code" },
      h("code", null, code)),
    copyButton(() => code));
}

const nestMost = 8; // of emphasis and links in each other
const labelMost = 1000;
const punctuation = /[!-/:-@[-`{-~]/;
const entities = { amp: "&", lt: "<", gt: ">", quot: '"', "#39": "'", nbsp: "\u00a0" };
const entity = /^&(amp|lt|gt|quot|#39|nbsp);/;
const address = /^https?:\/\/[^\s<>"]+/;
const target = /^\(\s*(?=\S)<?((?:[^\s()<>]|\([^\s()<>]*\))*)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/;

// inline makes the nodes of a text with its marks and links.
function inline(text, nest = 0) {
  const nodes = [];
  const hopeless = new Set(); // marks that nothing closes from here on
  let plain = "";
  const put = (node, length) => {
    if (plain) nodes.push(plain);
    plain = "";
    nodes.push(node);
    i += length;
  };
  let i = 0;
  for (let before = 0; i < text.length;) {
    before = i;
    const c = text[i],
      rest = () => text.slice(i);
    if (c === "\\" && text[i + 1] === "\n") {
      put(h("br"), 2);
    } else if (c === "\\" && punctuation.test(text[i + 1] ?? "")) {
      plain += text[i + 1];
      i += 2;
    } else if (c === "&" && entity.test(text.slice(i, i + 6))) {
      const [whole, name] = entity.exec(text.slice(i, i + 6));
      plain += entities[name];
      i += whole.length;
    } else if (c === "\n") {
      const hard = plain.endsWith("  ");
      plain = plain.trimEnd();
      if (hard) put(h("br"), 1);
    } else if (c === "`") {
      const marks = /^`+/.exec(rest())[0];
      const end = hopeless.has(marks) ? -1 : closing(text, marks, i + marks.length, true);
      if (end >= 0) {
        const code = text.slice(i + marks.length, end).replaceAll("\n", " ");
        put(h("code", null, /^ .*[^ ].* $/.test(code) ? code.slice(1, -1) : code), end + marks.length - i);
      } else {
        hopeless.add(marks);
        plain += marks;
        i += marks.length;
      }
    } else if (c === "[" || (c === "!" && text[i + 1] === "[")) {
      const found = nest < nestMost && link(text, i + (c === "!" ? 1 : 0));
      if (found)
        put(
          anchor(found.href, found.label ? (c === "!" ? [found.label] : inline(found.label, nest + 1)) : [found.href]),
          found.end - i,
        );
    } else if (c === "<" && address.test(text.slice(i + 1, i + 10))) {
      const href = address.exec(text.slice(i + 1))[0];
      if (text[i + 1 + href.length] === ">") put(anchor(href, [href]), href.length + 2);
    } else if (c === "h" && !/\w/.test(text[i - 1] ?? "") && /^https?:\/\//.test(text.slice(i, i + 8))) {
      let href = address.exec(rest())?.[0] ?? "";
      href = href.slice(0, endWithout(href, /[.,;:!?'"*_~]/));
      if (!href.includes("(")) href = href.slice(0, endWithout(href, /\)/));
      if (href.length > 8) put(anchor(href, [href]), href.length);
    } else if ((c === "*" || c === "_" || (c === "~" && text[i + 1] === "~")) && nest < nestMost) {
      const marks = /^(\*{1,3}|_{1,3}|~~)/.exec(rest())[0];
      const opens = /\S/.test(text[i + marks.length] ?? " ") && !(c === "_" && /\w/.test(text[i - 1] ?? ""));
      const end = !opens || hopeless.has(marks) ? -1 : closing(text, marks, i + marks.length, false);
      if (end > i + marks.length) {
        const inner = inline(text.slice(i + marks.length, end), nest + 1);
        const em = {
          1: () => h("em", null, inner),
          2: () => h("strong", null, inner),
          3: () => h("strong", null, h("em", null, inner)),
        };
        put(c === "~" ? h("del", null, inner) : em[marks.length](), end + marks.length - i);
      } else {
        if (opens) hopeless.add(marks);
        plain += marks;
        i += marks.length;
      }
    }
    if (i === before) {
      plain += c === "\n" ? " " : c;
      i++;
    }
  }
  if (plain) nodes.push(plain);
  return nodes;
}

// closing finds the marks that close those at the beginning; -1 if there are none.
function closing(text, marks, from, code) {
  for (let at = text.indexOf(marks, from); at >= 0; at = text.indexOf(marks, at + 1)) {
    const end = at + marks.length;
    if (code || marks.length > 2 ? text[end] === marks[0] || text[at - 1] === marks[0] : false) continue;
    if (code) return at;
    if (/\s/.test(text[at - 1]) || text[at - 1] === "\\") continue;
    if (marks[0] === "_" && /\w/.test(text[end] ?? "")) continue;
    if (marks.length === 1 && (text[end] === marks || text[at - 1] === marks)) {
      while (text[at + 1] === marks) at++; // of a longer run
      continue;
    }
    return at;
  }
  return -1;
}

// link reads [label](href) at a bracket.
function link(text, open) {
  let level = 0,
    end = open;
  for (const most = Math.min(text.length, open + labelMost); end < most; end++) {
    if (text[end] === "\\") end++;
    else if (text[end] === "[") level++;
    else if (text[end] === "]" && --level === 0) break;
  }
  if (text[end] !== "]" || text[end + 1] !== "(") return null;
  const m = target.exec(text.slice(end + 1, end + 1 + 4096));
  return m && { label: text.slice(open + 1, end), href: m[1], end: end + 1 + m[0].length };
}

// isOwn reports whether an address leads to this gateway, by the page's name or any loopback name. The URL parser has
// normalized its spelling.
function isOwn({ protocol, hostname, port }) {
  const at = (protocol, port) => port || { "http:": "80", "https:": "443" }[protocol];
  const name = hostname.replace(/\.$/, "");
  const loopback = /^(.+\.)?localhost$|^(127|0)\.[\d.]+$|^\[::1?\]$|^\[::ffff:(7f[\da-f]{2}|0):[\da-f]+\]$/.test(name);
  return (loopback || name === location.hostname) && at(protocol, port) === at(location.protocol, location.port);
}

// anchor makes a link if its target is safe, otherwise its text and target.
function anchor(href, label) {
  if (/^(https?:\/\/|mailto:)/i.test(href) && URL.canParse(href) && !isOwn(new URL(href))) {
    return h("a", { href, target: "_blank", rel: "noopener noreferrer" }, label);
  }
  return h("span", { class: "dead", title: href }, label);
}
