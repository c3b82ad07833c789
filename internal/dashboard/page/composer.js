import { h } from "./dom.js";

const sendStorage = "enter";
const mayEnter = () => localStorage[sendStorage] === "sends";

// sendKey makes the choice of the key that sends. Shift Enter is always a new line, Ctrl Enter
// always sends.
export function sendKey() {
  const ctrl = /Mac/.test(navigator.platform) ? "⌘" : "Ctrl";
  const select = h("select.send-key", {
    "aria-label": "Key that sends",
    onchange: () => { localStorage[sendStorage] = select.value; },
    onfocus: () => { select.value = mayEnter() ? "sends" : ""; },
  },
    h("option", { value: "" }, `${ctrl} Enter sends`),
    h("option", { value: "sends", selected: mayEnter() }, "Enter sends"));
  return select;
}

// composes says whether a key is an input method's. Safari ends the composition before the Enter
// that ended it.
const composes = (e) => e.isComposing || e.keyCode === 229;

// sends says whether a key sends the prompt.
export const sends = (e) => e.key === "Enter" && !composes(e) && !e.shiftKey && !e.altKey &&
  (e.ctrlKey || e.metaKey || mayEnter());

// Earlier gives the prompt box earlier prompts with ArrowUp on its first line and ArrowDown on its
// last. What was written into each of them stays, and so does the draft below them. list() has the
// prompts, oldest first.
export class Earlier {
  constructor(box, list, shown) {
    Object.assign(this, { box, list, shown });
    box.addEventListener("keydown", (e) => this.key(e));
  }

  key(e) {
    const { box } = this,
      step = { ArrowUp: -1, ArrowDown: 1 }[e.key],
      at = box.selectionStart;
    if (!step || e.defaultPrevented || composes(e) || e.shiftKey || e.ctrlKey || e.metaKey ||
      e.altKey ||
      at !== box.selectionEnd ||
        (step < 0 ? box.value.slice(0, at) : box.value.slice(at)).includes("\n")) return;
    if (!this.lines) {
      this.lines = [...this.list().filter((text, i, all) => text !== all[i - 1]), box.value];
      this.at = this.lines.length - 1;
    }
    const to = this.at + step;
    if (!(to in this.lines)) return;
    e.preventDefault();
    this.lines[this.at] = box.value;
    this.at = to;
    box.value = this.lines[to];
    const end = step < 0 ? box.value.split("\n", 1)[0].length : box.value.length;
    box.setSelectionRange(end, end);
    this.shown();
  }

  // end forgets what was written into earlier prompts, and returns the draft that stood below them.
  end() {
    const draft = this.lines && this.at < this.lines.length - 1 ? this.lines.at(-1) : "";
    this.lines = null;
    return draft;
  }
}
