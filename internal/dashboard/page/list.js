import { h } from "./dom.js";

// How many entries are shown and taken away together, what one is high before it
// was seen, and how far from what is seen they are kept, in pixels.
const blockSize = 40;
const guess = 30;
const margin = 800;

// WindowedList shows any number of entries, of which only those near the visible
// part are in the document. It follows its end until the person scrolls up.
export class WindowedList {
  // scroller is the element that scrolls. make(entry) returns an entry's element,
  // whose refresh, if it has one, shows a change. behind(n) hears how many entries
  // came since the end was left; -1 when the end is followed.
  constructor(scroller, make, behind) {
    this.scroller = scroller;
    this.make = make;
    this.behind = behind;
    this.content = h("div", { class: "blocks" });
    scroller.append(this.content);
    this.near = new IntersectionObserver((seen) => this.turn(seen), { root: scroller, rootMargin: `${margin}px 0px` });
    new ResizeObserver(() => this.pin()).observe(this.content);
    new ResizeObserver(() => this.resized()).observe(scroller);
    scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.reset([]);
  }

  reset(entries) {
    this.near.disconnect();
    this.content.replaceChildren();
    this.blocks = [];
    this.where = new Map(); // entry → its element, while it is in the document
    this.missed = 0;
    this.append(entries);
    this.follow(true);
  }

  get length() {
    return this.blocks.reduce((n, b) => n + b.entries.length, 0);
  }

  append(entries) {
    for (const entry of entries) {
      let block = this.blocks.at(-1);
      if (!block || block.entries.length === blockSize) block = this.grow();
      block.entries.push(entry);
      if (block.mounted) block.element.append(this.place(entry));
      else this.reserve(block);
    }
    if (!this.following && entries.length) {
      this.missed += entries.length;
      this.behind(this.missed);
    }
  }

  // change shows what became of an entry.
  change(entry) {
    const el = this.where.get(entry);
    if (!el) return;
    if (el.refresh) return el.refresh();
    const now = this.place(entry);
    el.replaceWith(now);
  }

  // forget drops the oldest entries, whole blocks of them, until at most so many
  // are left.
  forget(most) {
    while (this.length > most + blockSize) {
      const block = this.blocks.shift();
      for (const entry of block.entries) this.where.delete(entry);
      this.near.unobserve(block.element);
      block.element.remove();
    }
  }

  follow(on) {
    this.following = on;
    this.scroller.classList.toggle("following", on);
    if (on) this.missed = 0;
    this.behind(on ? -1 : this.missed);
    if (on) this.pin();
  }

  grow() {
    const block = { entries: [], element: h("div", { class: "block" }), mounted: false, height: 0 };
    block.element.block = block;
    this.blocks.push(block);
    this.content.append(block.element);
    this.near.observe(block.element);
    return block;
  }

  place(entry) {
    const el = this.make(entry);
    this.where.set(entry, el);
    return el;
  }

  reserve(block) {
    block.element.style.height = `${block.height || block.entries.length * guess}px`;
  }

  // resized looks anew at which blocks are near when the view was hidden before.
  resized() {
    if (this.hidden && this.scroller.clientHeight) {
      for (const { element, mounted } of this.blocks) {
        if (!mounted) continue;
        this.near.unobserve(element);
        this.near.observe(element);
      }
    }
    this.hidden = !this.scroller.clientHeight;
    this.pin();
  }

  // turn hears which blocks came near and which went away. While the view is
  // hidden none is near, and all stay.
  turn(seen) {
    if (!this.scroller.clientHeight) return;
    for (const { target: { block }, isIntersecting, boundingClientRect } of seen) {
      if (isIntersecting === block.mounted) continue;
      block.mounted = isIntersecting;
      if (isIntersecting) {
        block.element.style.height = "";
        block.element.replaceChildren(...block.entries.map((e) => this.place(e)));
      } else {
        block.height = boundingClientRect.height;
        for (const entry of block.entries) this.where.delete(entry);
        block.element.replaceChildren();
        this.reserve(block);
      }
    }
    this.pin();
  }

  pin() {
    if (this.following) this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  // scrolled tells the person, who scrolls up, from what grows and shrinks.
  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    const left = scrollHeight - clientHeight - scrollTop;
    if (!this.following && left < 4) this.follow(true);
    else if (this.following && scrollTop < (this.last ?? 0) - 2 && left > 4) this.follow(false);
    this.last = scrollTop;
  }
}
