import { signedOut } from "./api.js";

const waitFirst = 500, waitMost = 8000; // ms before the next attempt
const silence = 40_000; // ms; the gateway says something every 15 s
const unseen = 5000; // ms after which a page that nobody sees lets go

// follow reads an event stream until it is closed, and goes on where it was when
// the connection was lost. on(name, data) hears events, state(text) hears "live"
// and "lost", gone() hears that there is nothing to follow.
//
// A browser has six connections to one place, for all its tabs: where seen is
// true, a page that nobody sees gives its own back until it is looked at.
// EventSource could not go on then, and does not tell why it was refused.
export function follow(url, { on, state, gone, seen }) {
  let id = "", wait = waitFirst, reading, timer, leaving;
  const open = async () => {
    clearTimeout(timer);
    const { signal } = (reading = new AbortController());
    const lost = new AbortController();
    try {
      const response = await fetch(url, { headers: id ? { "Last-Event-ID": id } : {}, signal: AbortSignal.any([signal, lost.signal]) });
      if (response.status === 401) return signedOut.dispatchEvent(new Event("signedout"));
      if (response.status === 404 && gone) return gone();
      if (!response.ok) throw new Error(`the gateway answered ${response.status}`);
      state?.("live");
      wait = waitFirst;
      for await (const event of events(response.body, lost)) {
        if (event.id) id = event.id;
        if (!event.data) continue;
        try {
          on(event.event, JSON.parse(event.data));
        } catch (e) {
          reportError(e); // of ours: the connection is not to blame
        }
      }
    } catch {
      // lost; why does not matter
    }
    if (signal.aborted) return;
    state?.("lost");
    timer = setTimeout(open, wait);
    wait = Math.min(wait * 2, waitMost);
  };
  const leave = () => {
    clearTimeout(timer);
    reading?.abort();
    reading = null;
  };
  const look = () => {
    clearTimeout(leaving);
    if (document.hidden) leaving = setTimeout(leave, unseen);
    else if (!reading) open();
  };
  if (seen) document.addEventListener("visibilitychange", look);
  open();
  return {
    close() {
      document.removeEventListener("visibilitychange", look);
      clearTimeout(leaving);
      leave();
    },
  };
}

// events reads the fields of each event, until the stream ends or is silent for
// too long, which aborts it.
async function* events(body, lost) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", timer;
  try {
    for (;;) {
      timer = setTimeout(() => lost.abort(), silence);
      const { done, value } = await reader.read();
      clearTimeout(timer);
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
  } finally {
    clearTimeout(timer);
  }
}
