import { h } from "./dom.js";

// Entries are shown and removed in blocks of this size. An entry that was never shown counts with
// an estimated height; blocks are kept up to margin pixels from the visible part.
const blockSize = 40;
const estimatedHeight = 30;
const margin = 800;

const topOf = (el) => el.getBoundingClientRect().top;

// WindowedList shows any number of entries. Only those near the visible part are in the document.
// With onBehind, it follows its end until the person scrolls up.
export class WindowedList {
  // scroller is the element that scrolls. make(entry) returns an entry's element, whose refresh(),
  // if it has one, shows a change. onBehind(n) gets the number of entries that came since the
  // person left the end, -1 while the end is followed.
  constructor(scroller, make, onBehind) {
    this.scroller = scroller;
    this.make = make;
    this.onBehind = onBehind;
    this.content = h("div.blocks");
    scroller.append(this.content);
    const near = { root: scroller, rootMargin: `${margin}px 0px` };
    this.observer = new IntersectionObserver((seen) => this.updateMounted(seen), near);
    new ResizeObserver(() => this.pin()).observe(this.content);
    new ResizeObserver(() => this.resized()).observe(scroller);
    scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
    this.reset([]);
  }

  // reset shows other entries: their end, or with keep the place of that entry.
  reset(entries, keep) {
    const was = this.elements?.get(keep);
    const place = was && topOf(was);
    this.observer.disconnect();
    this.content.replaceChildren();
    this.blocks = [];
    this.elements = new Map(); // entry → its element, while it is in the document
    this.missed = 0;
    this.append(entries);
    const kept = this.mounted(keep);
    if (kept) {
      this.follow(false);
      if (was) this.scroller.scrollTop += topOf(kept) - place;
    } else if (this.onBehind) {
      this.follow(true);
    } else {
      this.scroller.scrollTop = 0;
    }
  }

  // mounted returns the element of an entry, which is in the document then.
  mounted(entry) {
    const block = this.blocks.find((b) => b.entries.includes(entry));
    if (!block) return;
    if (!block.mounted) this.mount(block);
    const el = this.elements.get(entry);
    el.tabIndex = -1;
    return el;
  }

  // inSight returns the entries that the person sees, from the top.
  inSight() {
    const { top, bottom } = this.scroller.getBoundingClientRect();
    return [...this.elements].map(([entry, el]) => [el.getBoundingClientRect(), entry])
      .filter(([box]) => box.height && box.top < bottom && box.bottom > top + 4)
      .sort(([a], [b]) => a.top - b.top).map(([, entry]) => entry);
  }

  get length() {
    return this.blocks.reduce((n, b) => n + b.entries.length, 0);
  }

  append(entries) {
    for (const entry of entries) {
      let block = this.blocks.at(-1);
      if (!block || block.entries.length === blockSize) block = this.addBlock();
      block.entries.push(entry);
      if (block.mounted) block.element.append(this.makeElement(entry));
      else this.reserveHeight(block);
    }
    if (this.onBehind && !this.following && entries.length) {
      this.missed += entries.length;
      this.onBehind(this.missed);
    }
  }

  // prepend adds entries before the first one.
  prepend(entries) {
    this.keepPlace(() => {
      for (const entry of entries.toReversed()) {
        let [block] = this.blocks;
        if (!block || block.entries.length === blockSize) block = this.addBlock(true);
        block.entries.unshift(entry);
        if (block.mounted) block.element.prepend(this.makeElement(entry));
        else this.reserveHeight(block);
      }
    });
  }

  // keepPlace makes a change above what the person sees, which stays where it is. Not all browsers
  // do that themselves, and none right after a jump.
  keepPlace(change) {
    const seen = !this.following && this.scroller.scrollTop > 0 &&
      this.elements.get(this.inSight()[0]);
    const was = seen && topOf(seen);
    change();
    if (seen?.isConnected && topOf(seen) !== was) this.scroller.scrollTop += topOf(seen) - was;
  }

  // change shows a change of an entry.
  change(entry) {
    const el = this.elements.get(entry);
    if (!el) return;
    if (el.refresh) return el.refresh();
    const now = this.makeElement(entry);
    el.replaceWith(now);
  }

  // trim removes whole blocks of the oldest entries while more than most entries are left.
  trim(most) {
    while (this.length > most + blockSize) {
      const block = this.blocks.shift();
      for (const entry of block.entries) this.elements.delete(entry);
      this.observer.unobserve(block.element);
      block.element.remove();
    }
  }

  follow(on) {
    this.following = on;
    this.scroller.classList.toggle("following", on);
    if (on) this.missed = 0;
    this.onBehind(on ? -1 : this.missed);
    if (on) this.pin();
  }

  // reveal scrolls to an entry and, if focus says so, gives it the focus.
  reveal(entry, focus = true) {
    const el = this.mounted(entry);
    if (!el) return;
    this.follow(false);
    if (focus) el.focus({ preventScroll: true });
    el.scrollIntoView({ block: "center" });
  }

  mount(block) {
    block.mounted = true;
    block.element.style.height = "";
    block.element.replaceChildren(...block.entries.map((e) => this.makeElement(e)));
  }

  addBlock(first) {
    const block = { entries: [], element: h("div.block"), mounted: false, height: 0 };
    block.element.block = block;
    first ? this.blocks.unshift(block) : this.blocks.push(block);
    first ? this.content.prepend(block.element) : this.content.append(block.element);
    this.observer.observe(block.element);
    return block;
  }

  makeElement(entry) {
    const el = this.make(entry);
    this.elements.set(entry, el);
    return el;
  }

  reserveHeight(block) {
    block.element.style.height = `${block.height || block.entries.length * estimatedHeight}px`;
  }

  // resized observes the blocks again when the view was hidden before, since nothing is near in a
  // hidden view.
  resized() {
    if (this.hidden && this.scroller.clientHeight) {
      for (const { element, mounted } of this.blocks) {
        if (!mounted) continue;
        this.observer.unobserve(element);
        this.observer.observe(element);
      }
    }
    this.hidden = !this.scroller.clientHeight;
    this.pin();
  }

  // updateMounted adds and removes the entries of blocks that came near or went away. In a hidden
  // view all stay.
  updateMounted(seen) {
    if (!this.scroller.clientHeight) return;
    this.keepPlace(() => {
      for (const { target: { block }, isIntersecting, boundingClientRect } of seen) {
        if (isIntersecting === block.mounted) continue;
        if (isIntersecting) {
          this.mount(block);
        } else {
          block.mounted = false;
          block.height = boundingClientRect.height;
          for (const entry of block.entries) this.elements.delete(entry);
          block.element.replaceChildren();
          this.reserveHeight(block);
        }
      }
    });
    this.pin();
  }

  pin() {
    if (this.following) this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  // scrolled stops following when the person scrolls up, but not when the content grows or shrinks.
  scrolled() {
    if (!this.onBehind) return;
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    const left = scrollHeight - clientHeight - scrollTop;
    if (!this.following && left < 4) this.follow(true);
    else if (this.following && scrollTop < (this.last ?? 0) - 2 && left > 4) this.follow(false);
    this.last = scrollTop;
  }
}
