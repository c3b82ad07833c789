import { signOutEvents } from "./api.js";
import { stream } from "./link.js";

const waitFirst = 500,
  waitMost = 8000; // ms before the next attempt
const unseen = 5000; // ms after which a page that nobody sees lets go

// follow reads an event stream of the admin API until close() is called. After a lost connection it
// goes on behind the last event. on(name, data, id) gets events, state(text) gets "live" and
// "lost", gone() is called if nothing is there.
//
// With lines, the answer is lines of JSON without names: there is no going on, so begin() is called
// before each answer. With seen, a hidden page lets go of the stream until it is visible: nobody
// reads what it would draw.
export function follow(path, { on, state, gone, seen, lines, begin }) {
  let id = "",
    wait = waitFirst,
    reading,
    timer,
    isWaiting,
    leaving;
  const open = async () => {
    clearTimeout(timer);
    isWaiting = false;
    const { signal } = (reading = new AbortController());
    try {
      const response = await stream(path, id, signal);
      if (response.status === 401) return signOutEvents.dispatchEvent(new Event("signedout"));
      if (response.status === 404 && gone) return gone();
      if (!response.ok) throw new Error(`the gateway answered ${response.status}`);
      state?.("live");
      wait = waitFirst;
      begin?.();
      for await (const event of (lines ? jsonLines : events)(response.body)) {
        if (signal.aborted) return;
        if (event.id) id = event.id;
        if (!event.data) continue;
        try {
          on(event.event, JSON.parse(event.data), event.id);
        } catch (e) {
          reportError(e); // of ours: the connection is not to blame
        }
      }
    } catch {
      // The connection is lost, for whatever reason.
    }
    if (signal.aborted) return;
    state?.("lost");
    isWaiting = true;
    timer = setTimeout(open, wait);
    wait = Math.min(wait * 2, waitMost);
  };
  const leave = () => {
    clearTimeout(timer);
    isWaiting = false;
    reading?.abort();
    reading = null;
  };
  const updateVisibility = () => {
    clearTimeout(leaving);
    if (document.hidden) leaving = setTimeout(leave, unseen);
    else if (!reading) open();
  };
  if (seen) document.addEventListener("visibilitychange", updateVisibility);
  const retry = () => isWaiting && open();
  addEventListener("online", retry);
  open();
  return {
    // to follows another path from its beginning.
    to(other) {
      path = other;
      id = "";
      if (!reading) return; // it is opened when the page is seen
      leave();
      open();
    },
    close() {
      document.removeEventListener("visibilitychange", updateVisibility);
      removeEventListener("online", retry);
      clearTimeout(leaving);
      leave();
    },
  };
}

// jsonLines yields the data of each line until the stream ends.
async function* jsonLines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const all = (rest + value).split("\n");
    rest = all.pop();
    for (const data of all) yield { data };
  }
}

// events yields the fields of each event until the stream ends.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const fields = {};
      for (const line of block.split("\n")) {
        const at = line.indexOf(": ");
        if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
      }
      yield fields;
    }
  }
}
