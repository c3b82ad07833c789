import { h, setText } from "./dom.js";

const pause = 150; // ms without a key before the search begins
const searchAgain = 500; // ms between two searches while entries come

// Find finds a text in the entries of a timeline. It marks each place in the document, counts the
// entries that have the text, and goes from one to the next, also to those that are not in the
// document.
export class Find {
  // list is the WindowedList. entries() returns those that may be found, in order, reveal(entry)
  // shows one without the focus, and isLoading() tells whether older ones are on their way. begun()
  // is called when a search begins.
  constructor(list, { entries, reveal, isLoading, begun }) {
    Object.assign(this, { list, entries, reveal, isLoading, begun });
    this.matches = [];
    this.field = h("input", {
      type: "search", "aria-label": "Find in the timeline", placeholder: "Find",
      oninput: () => {
        clearTimeout(this.typed);
        this.typed = setTimeout(() => this.search(), pause);
      },
      onkeydown: (e) => this.keyed(e),
    });
    this.count = h("span.count", { role: "status" });
    const button = (text, label, by) =>
      h("button.ghost", { "aria-label": label, title: label, onclick: () => this.step(by) },
        text);
    this.buttons = [button("↑", "Previous match (Shift Enter)", -1),
      button("↓", "Next match (Enter)", 1)];
    this.element = h("div.find", { role: "search" }, this.field, this.count, this.buttons);
    this.observer = new MutationObserver(() => this.markSoon());
    this.show();
  }

  // isActive tells whether somebody looks for something.
  get isActive() {
    return Boolean(this.pattern);
  }

  focus() {
    this.element.closest(".session")?.classList.add("unfolded"); // a phone hides it
    this.field.focus();
    this.field.select();
  }

  keyed(e) {
    if (e.key === "Escape") {
      e.stopPropagation();
      const { at, list } = this;
      this.clear();
      (list.elements.get(at) ?? list.scroller).focus({ preventScroll: true });
    } else if (e.key === "Enter" && !e.isComposing) {
      e.preventDefault();
      if (this.typed) this.search();
      else this.step(e.shiftKey ? -1 : 1);
    }
  }

  // clear ends the search.
  clear() {
    this.field.value = "";
    this.search();
  }

  search() {
    clearTimeout(this.typed);
    this.typed = null;
    const text = this.field.value.trim().replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&").replace(/\s+/g,
      "\\s+");
    this.pattern = text && new RegExp(text, "giu");
    this.observer.disconnect();
    if (this.pattern) {
      this.observer.observe(this.list.content, { childList: true, characterData: true,
        subtree: true });
      this.begun();
    }
    this.look();
    if (!this.matches.includes(this.at)) this.at = null;
    if (this.matches.length) this.go(this.at ?? this.nearest());
    else this.mark();
    this.show();
  }

  // changed is called when entries came, went or changed.
  changed() {
    if (!this.pattern || this.later) return;
    this.later = setTimeout(() => {
      this.later = null;
      const had = this.matches.length;
      this.look();
      if (!had && this.matches.length) this.go(this.matches.at(-1));
      this.show();
    }, searchAgain);
  }

  look() {
    const { pattern } = this,
      has = (text) => typeof text === "string" && text.search(pattern) >= 0;
    this.matches = !pattern ? [] : this.entries().filter((e) =>
      [e.text, e.name, e.args, e.source, e.label, e.result?.content, e.error?.message,
        ...(e.steps ?? []), ...(e.tries ?? [])].some(has) ||
      // As it reads, without the marks of Markdown.
      (e.kind === "message" && has(e.text.replace(/[*_`~]+/g, ""))));
  }

  // nearest is the last match above the end of what the person sees, else the first one.
  nearest() {
    const all = this.entries(),
      until = all.indexOf(this.list.inSight().at(-1));
    return (until >= 0 && all.slice(0, until + 1).findLast((e) => this.matches.includes(e))) || this.matches[0];
  }

  // step goes to the match by places further down, and from the end to the beginning.
  step(by) {
    const n = this.matches.length;
    if (n) this.go(this.matches.at((this.matches.indexOf(this.at) + by) % n));
    this.show();
  }

  go(entry) {
    this.at = entry;
    this.reveal(entry);
    const el = this.list.elements.get(entry);
    if (!el) return;
    let [place] = ranges(el, this.pattern);
    if (!place) {
      // It is in what the entry does not show yet.
      for (const summary of el.querySelectorAll("details:not([open]) > summary")) summary.click();
      for (const b of el.querySelectorAll(".body button")) if (/^show all/i.test(b.textContent)) b.click();
      [place] = ranges(el, this.pattern);
    }
    if (place) center(place);
    this.mark();
  }

  show() {
    const n = this.matches.length,
      i = this.matches.indexOf(this.at) + 1,
      further = this.isLoading() ? ", looking further back…" : "";
    setText(this.count, !this.pattern ? "" : (n ? `${i || "–"} of ${n}` : "not found") + further);
    for (const b of this.buttons) b.hidden = !this.pattern;
  }

  markSoon() {
    this.marking ??= requestAnimationFrame(() => this.mark());
  }

  // mark marks the places in the document. Older browsers can't.
  mark() {
    this.marking = null;
    if (!globalThis.Highlight) return;
    const found = new Highlight(),
      here = new Highlight();
    here.priority = 1;
    if (this.pattern) {
      for (const [entry, el] of this.list.elements)
        for (const range of ranges(el, this.pattern)) (entry === this.at ? here : found).add(range);
    }
    CSS.highlights.set("found", found);
    CSS.highlights.set("found-here", here);
  }
}

// center scrolls all that a range is in, so that the range is in the middle: its element may be a
// file.
function center(range) {
  for (let el = range.startContainer.parentElement; el; el = el.parentElement) {
    if (el.scrollHeight <= el.clientHeight || !/auto|scroll/.test(getComputedStyle(el).overflowY)) continue;
    const box = el.getBoundingClientRect();
    el.scrollTop += range.getBoundingClientRect().top - (box.top + box.bottom) / 2;
  }
}

const marksMost = 1000; // places in an entry

// ranges returns where the text of an element matches, also where it is in several nodes.
function ranges(el, pattern) {
  const walker = document.createTreeWalker(el.querySelector(".body"), NodeFilter.SHOW_TEXT),
    nodes = [];
  let text = "";
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (node.parentElement.closest("button")) continue;
    nodes.push({ node, from: text.length });
    text += node.data;
  }
  const found = [];
  let i = 0;
  const place = (at, isEnd) => {
    while (nodes[i + 1] && nodes[i + 1].from + (isEnd ? 1 : 0) <= at) i++;
    return [nodes[i].node, at - nodes[i].from];
  };
  for (const m of text.matchAll(pattern)) {
    if (found.length === marksMost) break;
    const range = new Range();
    range.setStart(...place(m.index, false));
    range.setEnd(...place(m.index + m[0].length, true));
    found.push(range);
  }
  return found;
}
