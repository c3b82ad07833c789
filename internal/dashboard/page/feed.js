import { sessions } from "./api.js";
import { follow } from "./follow.js";
import { Timeline } from "./timeline.js";

const backlog = 8000; // things that happened that are asked for at first
const keep = 20_000; // entries that are kept here
const slice = 10; // ms of work before the browser may draw

// Feed follows one session. It dispatches "reset" when its timeline begins anew,
// and "news" ({added, changed} in detail) at most once a frame.
export class Feed extends EventTarget {
  constructor(id) {
    super();
    this.id = id;
    this.keep = keep;
    this.reset();
    this.source = follow(sessions.events(id, backlog), { seen: true, on: (name, data) => this.hear(name, data), gone: () => this.hear("ended", {}) });
  }

  reset() {
    this.queue = [];
    this.timeline = new Timeline();
    this.dispatchEvent(new Event("reset"));
  }

  hear(name, data) {
    // Another session has the name by now: what follows is all of it.
    if (name === "gap" && !Object.keys(data).length) this.reset();
    if (name === "ended") this.close();
    this.queue.push([name, data]);
    this.soon();
  }

  // soon works on what came before the next frame; where there is none, because
  // nobody sees the page, in a while.
  soon() {
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
    if (this.queue.length) this.soon();
    const detail = this.timeline.take();
    this.timeline.forget(keep);
    this.dispatchEvent(new CustomEvent("news", { detail }));
  }

  // close ends the following; what came stays.
  close() {
    this.ended = true;
    this.source?.close();
  }
}
