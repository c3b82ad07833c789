import { providers } from "./api.js";
import { h } from "./dom.js";
import { element as entryElement } from "./entries.js";
import { follow } from "./follow.js";
import { plain } from "./format.js";
import { WindowedList } from "./list.js";

const linesFirst = 500; // at first
const logMost = 5000;

// ProviderLog shows the log of what a provider file names, as it grows. said() is called for each
// line.
export class ProviderLog {
  constructor(said) {
    this.said = said;
    this.scroller = h("div.timeline", { tabindex: "0", role: "region", "aria-label": "Log" });
    this.latest = h("button.latest", { hidden: true, onclick: () => this.list.follow(true) },
      "Latest ↓");
    this.list = new WindowedList(this.scroller, entryElement, (n) => (this.latest.hidden = n < 0));
    this.quiet = h("p.empty", "It has said nothing yet.");
    this.element = h("div.stage", this.scroller, this.quiet, this.latest);
  }

  // show follows the log of a name, until it is called again; "" follows none. gone is said if no
  // file has the name.
  show(name, gone) {
    this.source?.close();
    this.source = null;
    this.fill([]);
    if (!name) return;
    this.source = follow(providers.log(name, linesFirst), {
      seen: true,
      lines: true,
      begin: () => this.fill([]),
      on: (_, line) => this.line(line),
      gone: () => this.fill([{ kind: "note", level: "error", source: "page", text: gone }]),
    });
  }

  fill(entries) {
    this.list.reset(entries);
    this.quiet.hidden = entries.length > 0;
  }

  line({ ts, level, source, message }) {
    this.quiet.hidden = true;
    this.list.append([{ kind: "note", ts, level, source, text: plain(message) }]);
    this.list.trim(logMost);
    this.said?.();
  }
}
