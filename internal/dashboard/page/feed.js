import { sessions } from "./api.js";
import { follow } from "./follow.js";
import { Timeline } from "./timeline.js";

const backlog = 2000; // things that are requested at first, and each time that the person scrolls up
const keepEnd = 20_000; // entries that are kept while the person follows the end
const keepRead = 50_000; // entries that are kept while the person reads older ones: more than the gateway has
const retry = 5000; // ms after which older entries are asked for again when that failed
const slice = 10; // ms of work before the browser may draw

// Feed follows one session. It dispatches "reset" when its timeline begins anew, at most once a
// frame "news", whose detail has the entries added and changed, and "older", whose detail is
// entries from before the first one.
export class Feed extends EventTarget {
  constructor(id) {
    super();
    this.id = id;
    this.readsEnd(true);
    this.reset();
    this.source = follow(sessions.events(id, backlog), {
      seen: true,
      on: (name, data, id) => this.receive(name, data, id),
      gone: () => this.receive("ended", {}),
    });
  }

  // readsEnd says whether the person follows the end.
  readsEnd(yes) {
    this.keep = yes ? keepEnd : keepRead;
  }

  reset() {
    this.queue = [];
    this.timeline = new Timeline();
    this.whole = false; // whether nothing older is kept
    this.dispatchEvent(new Event("reset"));
  }

  receive(name, data, id) {
    // An empty gap means that the id is another session's now: its whole timeline follows.
    if (name === "gap" && !Object.keys(data).length) this.reset();
    if (name === "ended") this.close();
    this.queue.push([name, data, id]);
    this.scheduleWork();
  }

  // scheduleWork runs the queue before the next frame, or after a while if the page is hidden and
  // has no frames.
  scheduleWork() {
    if (this.planned) return;
    this.planned = true;
    let ran = false;
    const run = () => {
      if (ran) return;
      ran = true;
      this.planned = false;
      this.work();
    };
    requestAnimationFrame(run);
    setTimeout(run, 100);
  }

  work() {
    const until = performance.now() + slice;
    let n = 0;
    for (; n < this.queue.length &&
      performance.now() < until; n++) this.timeline.apply(...this.queue[n]);
    this.queue.splice(0, n);
    if (this.queue.length) this.scheduleWork();
    const detail = this.timeline.takeChanges();
    if (this.timeline.trim(this.keep)) this.whole = false;
    this.dispatchEvent(new CustomEvent("news", { detail }));
  }

  // hasOlder tells whether there is something before the first entry that can be loaded.
  hasOlder() {
    return !this.whole && Boolean(this.first()) &&
      this.timeline.entries.length + backlog <= keepRead;
  }

  // first is the first entry that has a place.
  first() {
    return this.timeline.entries.find((e) => e.place && e.kind !== "mark");
  }

  // loadOlder loads what happened before the first entry, as long as there is room for it.
  async loadOlder() {
    const { timeline } = this;
    const first = this.first();
    if (this.loading || !this.hasOlder()) return;
    this.loading = true;
    try {
      const { events, more } = await sessions.earlier(this.id, first.place, backlog);
      this.loading = false;
      if (timeline !== this.timeline || !timeline.entries.includes(first)) return;
      const older = new Timeline();
      for (const { event, data, id } of events) older.apply(event, data, id);
      this.whole = !more;
      const detail = timeline.join(older);
      // First, so that all entries of the timeline are shown when the news come.
      this.dispatchEvent(new CustomEvent("older", { detail }));
      this.dispatchEvent(new CustomEvent("news", { detail: timeline.takeChanges() }));
    } catch (e) {
      // What is here stays. A session that has ended took the rest with it.
      setTimeout(() => (this.loading = false), retry);
      if (e.status !== 404 || timeline !== this.timeline) return;
      this.whole = true;
      const mark = { kind: "mark", text: "What came before is gone: the session has ended." };
      timeline.entries.unshift(mark);
      this.dispatchEvent(new CustomEvent("older", { detail: [mark] }));
    }
  }

  // close stops following. The entries stay.
  close() {
    this.ended = true;
    this.source?.close();
  }
}
