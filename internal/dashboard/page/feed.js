import { sessions } from "./api.js";
import { follow } from "./follow.js";
import { Timeline } from "./timeline.js";

const backlog = 8000; // events that are requested at first
const keep = 20_000; // entries that are kept here
const slice = 10; // ms of work before the browser may draw

// Feed follows one session. It dispatches "reset" when its timeline begins anew, and at most once a frame "news", whose
// detail has the entries added and changed.
export class Feed extends EventTarget {
  constructor(id) {
    super();
    this.id = id;
    this.keep = keep;
    this.reset();
    this.source = follow(sessions.events(id, backlog), {
      seen: true,
      on: (name, data) => this.receive(name, data),
      gone: () => this.receive("ended", {}),
    });
  }

  reset() {
    this.queue = [];
    this.timeline = new Timeline();
    this.dispatchEvent(new Event("reset"));
  }

  receive(name, data) {
    // An empty gap means that the id is another session's now: its whole timeline follows.
    if (name === "gap" && !Object.keys(data).length) this.reset();
    if (name === "ended") this.close();
    this.queue.push([name, data]);
    this.scheduleWork();
  }

  // scheduleWork runs the queue before the next frame, or after a while if the page is hidden and has no frames.
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
    for (; n < this.queue.length && performance.now() < until; n++) this.timeline.apply(...this.queue[n]);
    this.queue.splice(0, n);
    if (this.queue.length) this.scheduleWork();
    const detail = this.timeline.takeChanges();
    this.timeline.trim(keep);
    this.dispatchEvent(new CustomEvent("news", { detail }));
  }

  // close stops following. The entries stay.
  close() {
    this.ended = true;
    this.source?.close();
  }
}
