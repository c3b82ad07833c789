import { codeBlock } from "./code.js";
import { h } from "./dom.js";

// Markdown as models write it: CommonMark with tables, tasks and strikethrough. No text is parsed
// as HTML, images are links, and links lead to http, https and mailto only, and never to this
// gateway. Blocks are read line by line in one pass, and marks with a stack, so that the time grows
// with the length only.

// render shows a text in an element. When it is called again with a longer text, it reads only the
// end again and keeps the blocks that did not change, so that a message can stream.
export function render(el, source) {
  source = source.replace(/\r\n?/g, "\n");
  const old = el.shown ?? { source: "", blocks: [], links: "" };
  // More text changes at most the last block and the one before it.
  const blocks = source.startsWith(old.source) ? old.blocks.slice(0, -2) : [];
  let same = blocks.length;
  const from = same ? old.blocks[same].from : 0;
  for (const block of parseBlocks(source.slice(from))) blocks.push({ ...block,
    from: block.from + from });
  const definitions = new Map(blocks.flatMap((b) => b.definitions ?? []).reverse()); // the first one counts
  const links = JSON.stringify([...definitions]);
  const relinked = links !== old.links;
  if (relinked) same = 0;
  while (!relinked && same < old.blocks.length &&
    blocks[same]?.source === old.blocks[same].source) {
    blocks[same].nodes = old.blocks[same++].nodes;
  }
  for (const { nodes } of old.blocks.slice(same)) for (const node of nodes) node.remove();
  for (const block of blocks.slice(same)) {
    block.nodes = make(block, definitions);
    el.append(...block.nodes);
  }
  el.shown = { source, blocks, links };
}

const maxDepth = 24; // of quotes, lists and items in each other

// None of these patterns backtracks over the same characters: a line may be long.
const fence = /^ {0,3}(?:(`{3,})(?=[^`]*$)|(~{3,}))(.*)$/;
const heading = /^ {0,3}(#{1,6})(?:[ \t](.*))?$/;
const underline = /^ {0,3}(=+|-+)[ \t]*$/;
const rule = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const quote = /^ {0,3}> ?/;
const item = /^( {0,3})([-*+]|\d{1,9}[.)])(?=[ \t]|$)/;
const delimiters = /^\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$/;
const definition = /^\[((?:[^\]\\]|\\.)+)\]:[ \t]*<?([^\s<>]+)>?(?:[ \t]+(?:"[^"]*"|'[^']*'|\([^)]*\)))?[ \t]*$/;
const isBlank = (line) => !/[^ \t]/.test(line);

// indentOf returns how many columns of space a line begins with; dedent removes at most so many.
function indentOf(line) {
  let columns = 0;
  for (let i = 0; ; i++) {
    if (line[i] === " ") columns++;
    else if (line[i] === "\t") columns += 4 - (columns % 4);
    else return columns;
  }
}

function dedent(line, most) {
  let columns = 0,
    i = 0;
  for (; columns < most && (line[i] === " " || line[i] === "\t"); i++) {
    columns += line[i] === " " ? 1 : 4 - (columns % 4);
  }
  return " ".repeat(Math.max(0, columns - most)) + line.slice(i);
}

const closes = (marks) => new RegExp(`^ {0,3}${marks[0]}{${marks.length},}[ \\t]*$`);

// untab replaces the tabs among the marks at the beginning of a line. Columns of tabs count from
// the line's beginning.
function untab(line) {
  for (let m, n = 0; n < maxDepth && (m = /^[ >*+\-\d.)]*\t/.exec(line)); n++) {
    const at = m[0].length - 1;
    line = line.slice(0, at) + " ".repeat(4 - (at % 4)) + line.slice(at + 1);
  }
  return line;
}

// parseBlocks returns the blocks of a text. Each has its place in the text, and its source, by
// which render compares it.
function parseBlocks(text) {
  const root = { kind: "root", children: [] };
  const open = [root]; // the blocks that the next line may go on with, from the outermost to the innermost
  let wasBlank = false,
    from = 0;
  // close ends all blocks but the outermost n, and a list that gets no item now.
  const close = (n, forItem) => {
    open.length = n;
    if (!forItem && open.at(-1).kind === "list") open.pop();
  };
  const add = (block) => {
    const parent = open.at(-1);
    if (wasBlank && parent.children.length) {
      if (parent.kind === "list") parent.loose = true;
      else if (parent.kind === "item") open.at(-2).loose = true;
    }
    parent.children.push(block);
    open.push(block);
    block.from = from;
    return block;
  };
  const readLine = (line) => {
    let rest = open.at(-1).lines && open.at(-1).kind !== "p" ? line : untab(line),
      depth = 1;
    for (; depth < open.length; depth++) {
      const b = open[depth];
      if (b.kind === "quote") {
        const m = quote.exec(rest);
        if (!m) break;
        rest = rest.slice(m[0].length);
      } else if (b.kind === "item") {
        const indent = indentOf(rest);
        if (isBlank(rest)) {
          if (!b.children.length) break;
        } else if (indent >= b.width) {
          rest = dedent(rest, b.width);
        } else if (indent >= 2 && b.ordered && /^ *[-*+] /.test(rest)) {
          b.width = indent; // CommonMark wants three columns below "1."; models mean this too
          rest = dedent(rest, indent);
        } else {
          break;
        }
      } else if (b.kind !== "list") {
        break;
      }
    }
    const leaf = open[depth];
    if (leaf?.kind === "fence") {
      if (leaf.end.test(rest)) {
        leaf.closed = true;
        open.length = depth;
      } else {
        leaf.lines.push(dedent(rest, leaf.indent));
      }
      return false;
    }
    const empty = isBlank(rest);
    if (leaf?.kind === "indented" && (empty || indentOf(rest) >= 4)) {
      leaf.lines.push(dedent(rest, 4));
      return empty;
    }
    if (empty) {
      open.length = depth;
      return true;
    }
    let paragraph = leaf?.kind === "p" ? leaf : null;
    const tip = open.at(-1);
    let lazy = tip.kind === "p"; // a paragraph goes on, also where the marks of its quote or item are missing
    for (let m; ;) {
      const indent = indentOf(rest);
      if (indent >= 4) {
        if (lazy) break;
        close(depth);
        add({ kind: "indented", lines: [dedent(rest, 4)] });
        return false;
      }
      if (open.length < maxDepth && (m = quote.exec(rest))) {
        close(depth);
        add({ kind: "quote", children: [] });
        rest = rest.slice(m[0].length);
      } else if ((m = heading.exec(rest))) {
        close(depth);
        add({ kind: "heading", level: m[1].length, text: headingText(m[2] ?? "") });
        open.pop();
        return false;
      } else if ((m = fence.exec(rest))) {
        close(depth);
        add({
          kind: "fence", lines: [], indent, language: m[3].trim().split(/\s/, 1)[0],
          end: closes(m[1] ?? m[2]),
        });
        return false;
      } else if (paragraph && (m = underline.exec(rest))) {
        paragraph.kind = "heading";
        paragraph.level = m[1][0] === "=" ? 1 : 2;
        paragraph.text = paragraph.lines.join("\n").trim();
        open.pop();
        return false;
      } else if (rule.test(rest)) {
        close(depth);
        add({ kind: "rule" });
        open.pop();
        return false;
      } else if (open.length < maxDepth && (m = item.exec(rest)) &&
        (!paragraph || interrupts(m, rest))) {
        close(depth, true);
        const mark = m[2].at(-1),
          number = parseInt(m[2], 10),
          after = rest.slice(m[0].length);
        const space = indentOf(after),
          gap = isBlank(after) || space > 4 ? 1 : space;
        let parent = open.at(-1);
        if (parent.kind === "list" && parent.mark !== mark) {
          open.pop();
          parent = null;
        }
        if (parent?.kind !== "list") {
          add({ kind: "list", mark, ordered: number >= 0, number, children: [] });
        }
        add({ kind: "item", ordered: number >= 0, width: indent + m[2].length + gap,
          children: [] });
        rest = dedent(after, gap);
      } else {
        break;
      }
      depth = open.length;
      lazy = paragraph = null;
      if (isBlank(rest)) return false;
    }
    if (lazy) {
      tip.lines.push(rest);
    } else {
      close(depth);
      add({ kind: "p", lines: [rest] });
    }
    return false;
  };
  for (const line of text.split("\n")) {
    wasBlank = readLine(line);
    from += line.length + 1;
  }
  for (const [i, b] of root.children.entries()) {
    b.source = text.slice(b.from, root.children[i + 1]?.from);
    if (b.kind !== "p") continue;
    b.source = b.source.trimEnd();
    for (let m; (m = definition.exec(b.lines[0]?.trim().slice(0, 4096))); b.lines.shift()) {
      (b.definitions ??= []).push([label(m[1]), m[2]]);
    }
  }
  return root.children;
}

// interrupts reports whether an item may stand right below a line of text.
const interrupts = ([all, , mark], line) => !isBlank(line.slice(all.length)) && /^1?\D/.test(mark);

const label = (text) => text.trim().replace(/\s+/g, " ").toLowerCase();

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

// make returns the nodes of a block.
function make(b, links) {
  const all = (children) => children.flatMap((c) => make(c, links));
  switch (b.kind) {
    case "quote":
      return [h("blockquote", all(b.children))];
    case "heading":
      return [h(`h${Math.min(6, b.level + 2)}`, null, inline(b.text, links))];
    case "rule":
      return [h("hr")];
    case "fence":
      return [codeBlock(b.lines.join("\n"), b.language, b.closed ? b.language : "")];
    case "indented":
      return [codeBlock(b.lines.join("\n").replace(/^\s*\n/, "").trimEnd())];
    case "list":
      return [h(b.ordered ? "ol" : "ul", b.ordered && b.number !== 1 ? { start: b.number } : null,
        b.children.map((it) => listItem(it, b.loose, links)))];
  }
  const at = b.lines.findIndex((line, i) => i > 0 && delimiters.test(line.trim()) &&
    b.lines[i - 1].includes("|") &&
    cells(line).length === cells(b.lines[i - 1]).length);
  const text = b.lines.slice(0, at < 0 ? b.lines.length : at - 1).map((l) =>
    l.trimStart()).join("\n").trimEnd();
  return [...(text ? [h("p", inline(text, links))] : []),
    ...(at < 0 ? [] : [tableOf(b.lines.slice(at - 1), links)])];
}

function listItem({ children }, loose, links) {
  const [first, ...others] = children;
  const task = first?.kind === "p" && /^\s*\[([ xX])\](?=\s|$)/.exec(first.lines[0]);
  const rest = task && { ...first, lines: [first.lines[0].slice(task[0].length),
    ...first.lines.slice(1)] };
  const nodes = (rest ? [rest, ...others] : children).flatMap((c) => make(c, links))
    .flatMap((node) => (!loose && node.tagName === "P" ? [...node.childNodes] : [node]));
  return h("li", { class: task ? "task" : null },
    task &&
      h("span", { role: "img", "aria-label": task[1] === " " ? "not done" : "done" },
        task[1] === " " ? "☐" : "☑"),
    task && " ",
    nodes);
}

// cells returns the cells of a row. A row with more cells than the table has columns is split
// again, without the bars in code; what is still too much goes into the last cell, since nothing
// may be lost.
function cells(line, most = Infinity) {
  const text = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  let all = text.split(/(?<!\\)\|/);
  if (all.length > most) all = text.match(/(?:`+[^`]*`+|\\.|[^|])+|(?<=\||^)(?=\||$)/g);
  if (all.length > most) all.splice(most - 1, Infinity, all.slice(most - 1).join("|"));
  return all.map((c) => c.trim().replaceAll("\\|", "|"));
}

function tableOf([head, marks, ...rows], links) {
  const align = cells(marks).map((m) => (m.endsWith(":") ? (m.startsWith(":") ? "center" : "right") : null));
  const cell = (tag) => (text, i) => h(tag, { class: align[i] }, inline(text, links));
  return h("div.wide", { tabindex: "0", role: "group", "aria-label": "Table" },
    h("table",
      h("thead", h("tr", cells(head).map(cell("th")))),
      h("tbody",
        rows.map((row) => {
          const texts = cells(row, align.length);
          return h("tr", align.map((_, i) => cell("td")(texts[i] ?? "", i)));
        }))));
}

const nestMost = 8; // of emphasis and links in each other
const special = /[\\`*_~[\]<&\n]|!\[|https?:\/\//g;
const mark = /[\p{P}\p{S}]/u;
const entities = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };
const entity = /&(?:(amp|lt|gt|quot|apos|nbsp)|#(\d{1,7})|#[xX]([\da-fA-F]{1,6}));/y;
const lineBreak = /<br *\/?>/iy;
const webAddress = /https?:\/\/(?:\[[\da-fA-F:.]+\])?[^\s<>"`[\]\u3000-\u303f\uff00-\uff65]+/y;
const title = /[ \t\n]+(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\((?:[^()\\]|\\.)*\))/y;

// at matches a sticky pattern at a place of a text.
const matchAt = (pattern, text, at) => {
  pattern.lastIndex = at;
  return pattern.exec(text);
};

// inline returns the nodes of a text with its marks and links, by the algorithm of CommonMark:
// marks wait on a list until others close them.
function inline(text, links) {
  const out = document.createDocumentFragment();
  const hopeless = new Set(); // runs of backticks that nothing closes from here on
  const first = {}; // before the marks that wait
  let last = first,
    bracket = null, // the innermost "[" that waits
    plain = "",
    i = 0;
  const put = (node) => {
    if (plain) out.append(plain);
    plain = "";
    out.append(node);
    return out.lastChild;
  };
  while (i < text.length) {
    special.lastIndex = i;
    const m = special.exec(text);
    plain += text.slice(i, m?.index);
    if (!m) break;
    i = m.index;
    const [c] = m;
    let found;
    if (c === "\\") {
      if (text[i + 1] === "\n") put(h("br"));
      else if (/[!-/:-@[-`{-~]/.test(text[i + 1] ?? "")) plain += text[i + 1];
      else {
        plain += c;
        i--;
      }
      i += 2;
    } else if (c === "\n") {
      const hard = plain.endsWith("  ");
      plain = plain.trimEnd();
      hard ? put(h("br")) : (plain += " ");
      i++;
    } else if (c === "`") {
      const marks = matchAt(/`+/y, text, i)[0];
      const end = hopeless.has(marks.length) ? -1 : closing(text, marks, i + marks.length);
      if (end >= 0) {
        const code = text.slice(i + marks.length, end).replaceAll("\n", " ");
        put(h("code", /^ .*[^ ].* $/.test(code) ? code.slice(1, -1) : code));
        i = end + marks.length;
      } else {
        hopeless.add(marks.length);
        plain += marks;
        i += marks.length;
      }
    } else if (c === "&" && (found = matchAt(entity, text, i))) {
      const code = found[2] ? Number(found[2]) : parseInt(found[3], 16);
      plain += entities[found[1]] ??
        (code > 0 && code < 0x110000 ? String.fromCodePoint(code) : "\ufffd");
      i += found[0].length;
    } else if (c === "<" && (found = matchAt(lineBreak, text, i))) {
      put(h("br"));
      i += found[0].length;
    } else if (c === "<" && (found = matchAt(webAddress, text, i + 1)) &&
      text[i + 1 + found[0].length] === ">") {
      put(anchor(found[0], [found[0]]));
      i += found[0].length + 2;
    } else if (c.startsWith("http")) {
      const href = /\w/.test(text[i - 1] ?? "") ? "" : withoutEnd(matchAt(webAddress, text,
        i)?.[0] ?? "");
      href.length > c.length ? put(anchor(href, [href])) : (plain += c);
      i += Math.max(c.length, href.length);
    } else if (c === "[" || c === "![") {
      i += c.length;
      bracket = { node: put(document.createTextNode(c)), image: c !== "[", last, at: i, live: true,
        outer: bracket };
    } else if (c === "]" && bracket) {
      const { node, image, at, live, outer } = bracket;
      const to = live && target(text, i, label(text.slice(at, Math.min(i, at + 999))), links);
      if (to && plain) put("");
      const content = to && between(node, null),
        nest = to && nestOf(content) + 1;
      if (to && nest <= nestMost) {
        emphasize(bracket.last);
        last = bracket.last;
        last.next = null;
        const wrap = anchor(to.href, node.nextSibling ? between(node, null) : [to.href]);
        wrap.nest = nest;
        for (const inner of wrap.querySelectorAll("a, .dead")) inner.replaceWith(...inner.childNodes);
        node.replaceWith(wrap);
        // A link holds no others.
        if (!image) for (let b = outer; b?.live; b = b.outer) if (!b.image) b.live = false;
        i = to.end;
      } else {
        plain += c;
        i++;
      }
      bracket = outer;
    } else if (/[*_~]/.test(c)) {
      let size = 1;
      while (text[i + size] === c) size++;
      const before = charBefore(text, i),
        after = charAfter(text, i + size);
      const space = (s) => !s || /\s/.test(s);
      const left = !space(after) && (!mark.test(after) || space(before) || mark.test(before));
      const right = !space(before) && (!mark.test(before) || space(after) || mark.test(after));
      const word = c === "_";
      i += size;
      if (c === "~" ? size === 2 : left || right) {
        last = last.next = {
          node: put(document.createTextNode(c.repeat(size))), c, size, left: size, prev: last,
            next: null,
          opens: left && (!word || !right || mark.test(before)),
          closes: right && (!word || !left || mark.test(after)),
        };
      } else {
        plain += c.repeat(size);
      }
    } else {
      plain += c;
      i += c.length;
    }
  }
  if (plain) out.append(plain);
  emphasize(first);
  out.normalize();
  return out;
}

const charBefore = (text, i) => (/[\udc00-\udfff]/.test(text[i - 1] ?? "") ? text.slice(i - 2,
  i) : text[i - 1]);
const charAfter = (text, i) => (i < text.length ? String.fromCodePoint(text.codePointAt(i)) : "");

// emphasize makes the elements of the marks behind one.
function emphasize(first) {
  const floors = new Map(); // by kind of closing mark: nothing opens it at or before this one
  for (let closer = first.next; closer;) {
    const { c, closes, opens, size } = closer;
    const kind = `${c}${opens}${size % 3}`;
    let opener = closes ? closer.prev : first;
    const floor = floors.get(kind) ?? first;
    while (opener !== first && opener !== floor && !(opener.c === c && opener.opens &&
      fits(opener, closer))) {
      opener = opener.prev;
    }
    if (opener === first || opener === floor) {
      if (closes) floors.set(kind, closer.prev);
      if (closes && !opens) unlink(closer);
      closer = closer.next;
      continue;
    }
    opener.next = closer;
    closer.prev = opener;
    const n = Math.min(2, opener.left, closer.left),
      inner = between(opener.node, closer.node),
      nest = nestOf(inner) + 1;
    if (nest <= nestMost) {
      const el = h(c === "~" ? "del" : n === 2 ? "strong" : "em", null, inner);
      el.nest = nest;
      opener.node.after(el);
    }
    for (const it of [opener, closer]) {
      it.left = nest > nestMost ? 0 : it.left - n;
      if (nest <= nestMost) it.node.data = c.repeat(it.left);
      if (!it.left) unlink(it);
    }
    if (!closer.left) closer = closer.next;
  }
}

const fits = (a, b) => a.c !== "~" && (a.closes || b.opens) ? b.size % 3 === 0 ||
  (a.size + b.size) % 3 !== 0 : true;

function unlink(it) {
  it.prev.next = it.next;
  if (it.next) it.next.prev = it.prev;
}

// between returns the nodes behind one, up to another.
function between(node, end) {
  const all = [];
  for (let n = node.nextSibling; n !== end; n = n.nextSibling) all.push(n);
  return all;
}

const nestOf = (nodes) => nodes.reduce((most, n) => Math.max(most, n.nest ?? 0), 0);

// closing finds the run of backticks that closes one; -1 if there is none.
function closing(text, marks, from) {
  for (let at = text.indexOf(marks, from); at >= 0; at = text.indexOf(marks, at)) {
    let end = at + marks.length;
    if (text[end] !== "`") return at;
    while (text[end] === "`") end++;
    at = end;
  }
  return -1;
}

// withoutEnd returns an address without what follows it in a sentence.
function withoutEnd(href) {
  let end = endWithout(href, /[.,;:!?'"*_~]/);
  const count = (c) => href.slice(0, end).split(c).length;
  for (let extra = count(")") - count("("); extra > 0 && href[end - 1] === ")"; extra--) {
    end = endWithout(href.slice(0, end - 1), /[.,;:!?'"*_~]/);
  }
  return href.slice(0, end);
}

// target returns where the link goes whose label ends at a bracket, and where it ends.
function target(text, at, name, links) {
  if (text[at + 1] === "(") {
    const to = direct(text.slice(at + 1, at + 5000));
    if (to) return { href: to.href, end: at + 1 + to.end };
  }
  const other = matchAt(/\]\[([^[\]]{0,999})\]/y, text, at);
  const href = links.get((other && label(other[1])) || name);
  return href && { href, end: at + (other ? other[0].length : 1) };
}

// direct reads (href "title").
function direct(text) {
  let i = 1,
    level = 0;
  const skip = () => {
    while (/[ \t\n]/.test(text[i] ?? "")) i++;
  };
  skip();
  const from = i;
  if (text[i] === "<") {
    i = text.indexOf(">", i) + 1;
    if (!i || text.slice(from, i).includes("\n")) return null;
  } else {
    for (; i < text.length && level < 32; i++) {
      if (text[i] === "\\") i++;
      else if (text[i] === "(") level++;
      else if (text[i] === ")" && --level < 0) break;
      else if (/[\s<>]/.test(text[i])) break;
    }
  }
  const href = text[from] === "<" ? text.slice(from + 1, i - 1) : text.slice(from, i);
  i += matchAt(title, text, i)?.[0].length ?? 0;
  skip();
  if (level > 0 || text[i] !== ")" || i === from) return null;
  return { href: href.replace(/\\([!-/:-@[-`{-~])/g, "$1").replaceAll("&amp;", "&"), end: i + 1 };
}

// isOwn reports whether an address leads to this gateway, by the page's name or any loopback name.
// The URL parser has normalized its spelling.
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
  return h("span.dead", { title: href }, label);
}
