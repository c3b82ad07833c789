import { count } from "./format.js";

// The entries of a session's timeline. The gateway sends three kinds of events that overlap: lines
// of its timeline, callbacks of the session, and pushed events. Here each thing that happened is
// one entry.

const recent = 200; // entries among which the first event of the same thing is looked for
const mostSteps = 200; // what is kept of what a provider tells of a call, and of attempts that follow each other

// Timeline turns the gateway's events into entries:
//
//	prompt     who (user, provider), text
//	reasoning  text, done
//	message    text, done
//	tool       name, args, parent, steps, result, error, done, ended, took
//	push       level, stream, provider, text, metadata, shown
//	note       level, source, text, tries
//	error      text
//	mark       text: a gap, or the end
//
// Each has its place, the id of the first event that it is from, and turn, the prompt whose turn it
// belongs to, unless it came between two turns. A prompt has all entries of its turn, and the last
// of these when the turn ended (idle). What a provider tells of a running call is in the call's
// steps, and attempts to reach the model that follow each other are one note, with all texts in
// tries.
export class Timeline {
  constructor() {
    this.entries = [];
    this.open = new Map(); // what has begun, by kind and id
    this.measures = []; // how long calls took that began before the first entry
    this.rows = []; // events of streams, oldest first
    this.added = []; // since takeChanges was called
    this.changed = new Set();
  }

  // takeChanges returns the entries that were added and changed since the last call.
  takeChanges() {
    const { added, changed } = this;
    this.added = [];
    this.changed = new Set();
    for (const entry of added) changed.delete(entry);
    this.setTurns();
    return { added, changed };
  }

  // trim removes the oldest entries while there are more than most, and returns whether there were.
  trim(most) {
    if (this.entries.length <= most) return false;
    this.entries.splice(0, this.entries.length - most);
    return true;
  }

  // join puts the entries of a timeline that ends where this one begins before its own, and returns
  // those that are new.
  join(older) {
    const near = this.entries.slice(0, recent);
    let list = older.entries;
    for (const [key, begun] of older.open) {
      const { kind, id, ts, name, args, parent, place, steps } = begun;
      const twin = near.find((e) => e.kind === kind && e.id === id);
      if (!twin) {
        if (this.over) begun.done = true;
        else this.open.set(key, begun);
        continue;
      }
      const text = twin.done && kind !== "tool" ? twin.text : begun.text + twin.text;
      this.change(twin, { ts, name, args, parent, place, text });
      if (steps) twin.steps = more(steps, twin.steps);
      list = list.filter((e) => e !== begun);
    }
    for (const [id, took] of this.measures) {
      const call = list.findLast((e) => e.kind === "tool" && e.id === id);
      if (call) call.took = took;
    }
    this.measures = older.measures;
    list = list.filter((e, i) => list.length - i > recent ||
      !near.some((twin) => this.unite(e, twin)));
    this.entries.unshift(...list);
    this.setTurns();
    return list;
  }

  // unite makes one entry of two, if the events of one thing came on both sides of where two
  // timelines join, and returns whether they did.
  unite(e, twin) {
    const shows = (push, note) => push.kind === "push" && !push.shown && note.kind === "note" &&
      isShownBy(push, note);
    const isTold = e.kind === twin.kind && e.kind !== "push" && e.text === twin.text &&
      !e.fromLine !== !twin.fromLine && !(e.id && twin.id);
    if (!isTold && !shows(e, twin) && !shows(twin, e)) return false;
    const { ts, place, id = twin.id } = e;
    this.change(twin, { ...(e.kind === "push" && e), ts, place, id, shown: true, fromLine: true });
    return true;
  }

  // setTurns says of each entry what turn it is in, since entries come at both ends and go.
  setTurns() {
    let turn;
    for (const e of this.entries) {
      if (e.kind === "mark") turn = undefined;
      else if (e.kind === "prompt") (turn = e).all = [];
      e.turn = turn;
      turn?.all.push(e);
      if (e.idle) turn = undefined;
    }
  }

  apply(name, data, id) {
    this.place = id;
    switch (name) {
      case "timeline":
        return this.line(data);
      case "live":
        return this.callback(data);
      case "stream":
        return this.pushed(data);
      case "gap":
        return this.add({ kind: "mark", text: gapText(data) });
      case "ended":
        for (const entry of this.open.values()) this.change(entry, { done: true });
        this.open.clear();
        this.over = true;
        return this.add({ kind: "mark", text: "The session has ended." });
    }
  }

  add(entry) {
    entry.place = this.place;
    this.entries.push(entry);
    this.added.push(entry);
    return entry;
  }

  change(entry, members) {
    Object.assign(entry, members);
    this.changed.add(entry);
  }

  // before finds one of the recent entries, the newest first.
  before(is) {
    for (let i = this.entries.length - 1, end = Math.max(0, i - recent); i >= end; i--) {
      if (is(this.entries[i])) return this.entries[i];
    }
  }

  line({ ts, level, source, message: text, toolCallId }) {
    let twin = toolCallId && this.call(toolCallId);
    if (twin) return this.change(twin,
      { steps: more(twin.steps, [text.slice(text.indexOf(": ") + 2)]) });
    switch (source) {
      case "user":
        return this.add({ kind: "prompt", who: "user", ts, text });
      case "assistant":
        twin = this.before(
          (e) => e.kind === "message" && !e.fromLine &&
            (e.text === text || (!e.done && text.startsWith(e.text))),
        );
        if (twin) return this.change(twin, { text, fromLine: true });
        return this.add({ kind: "message", ts, text, done: true, fromLine: true });
      case "session":
        if (level === "error") {
          twin = this.before((e) => e.kind === "error" && e.text === text && !e.fromLine);
          if (twin) return this.change(twin, { fromLine: true });
          return this.add({ kind: "error", ts, text, fromLine: true });
        }
        if (!ofAttempt.test(text)) break;
        twin = this.entries.at(-1);
        if (twin?.tries) return this.change(twin, { text, tries: more(twin.tries, [text]) });
        return this.add({ kind: "note", ts, level, source, text, tries: [text] });
      case "gateway":
        break;
      default:
        twin = this.before((e) => e.kind === "push" && !e.shown && isShownBy(e, { source, text }));
        if (twin) return this.change(twin, { shown: true });
    }
    return this.add({ kind: "note", ts, level, source, text });
  }

  pushed({ ts, stream, provider, level, event, prompt, metadata }) {
    const row = {
      kind: "push", ts, stream, provider, level, metadata, prompt, text: event || prompt || "",
      label: stream === provider ? provider : `${stream}@${provider}`,
    };
    this.rows.push(row);
    if (this.rows.length > 1000) this.rows.shift();
    const twin = this.before((e) => e.kind === "note" && isShownBy(row, e));
    if (twin) return this.change(twin, { ...row, shown: true });
    return this.add(row);
  }

  begin(kind, id, entry) {
    const made = this.add({ kind, id, text: "", done: false, ...entry });
    this.open.set(`${kind} ${id}`, made);
    return made;
  }

  find(kind, id, ts) {
    return this.open.get(`${kind} ${id}`) ?? this.begin(kind, id, { ts });
  }

  finish(kind, id, ts, members) {
    // The gateway may have fromLine a whole message before.
    const fromLine =
      kind === "message" &&
      !this.open.has(`${kind} ${id}`) &&
      this.before((e) => e.kind === kind && !e.id && e.text === members.text);
    if (fromLine) return this.change(fromLine, { id });
    const entry = this.find(kind, id, ts);
    this.open.delete(`${kind} ${id}`);
    this.change(entry, { ...members, done: true, ended: ts });
  }

  // call finds a call by its id, if it is not long ago.
  call(id) {
    return this.open.get(`tool ${id}`) ?? this.before((e) => e.kind === "tool" && e.id === id);
  }

  callback(e) {
    if (e.sessionError) {
      const twin = this.before((o) => o.kind === "error" && o.text === e.sessionError &&
        o.fromLine);
      return twin ? undefined : this.add({ kind: "error", ts: e.ts, text: e.sessionError });
    }
    const grow = (kind, id) => {
      const entry = this.find(kind, id, e.ts);
      this.change(entry, { text: entry.text + e.delta });
    };
    switch (e.callback) {
      case "onStartReasoning":
        return this.begin("reasoning", e.reasoningId, { ts: e.ts });
      case "onReasoning":
        return grow("reasoning", e.reasoningId);
      case "onEndReasoning":
        return this.finish("reasoning", e.reasoningId, e.ts, { text: e.completeContent });
      case "onStartMessage":
        return this.begin("message", e.messageId, { ts: e.ts });
      case "onMessage":
        return grow("message", e.messageId);
      case "onEndMessage":
        return this.finish("message", e.messageId, e.ts, { text: e.completeContent });
      case "onStartToolExecution":
        return this.begin("tool", e.toolCallId, {
          ts: e.ts, name: e.toolName, args: e.toolArguments, parent: e.parentToolCallId,
        });
      case "onToolExecution":
        return grow("tool", e.toolCallId);
      case "onEndToolExecution":
        return this.finish("tool", e.toolCallId, e.ts, {
          result: e.result, error: e.error, took: e.durationMs ?? this.call(e.toolCallId)?.took,
        });
      case "onIdle":
        if (this.entries.length) this.entries.at(-1).idle = e.ts;
        return;
      case undefined: {
        const call = this.call(e.toolCallId);
        return call ? this.change(call, { took: e.durationMs }) : this.measures.push([e.toolCallId,
          e.durationMs]);
      }
      case "onGeneratedUserPrompt":
        return this.add({ kind: "prompt", who: "provider", ts: e.ts, text: e.prompt });
    }
  }
}

// What the gateway says of an attempt to reach the model.
const ofAttempt = /^(?:a call of model .* failed|asking the model again)/;

// more adds texts to steps. The first steps stay, and the newest: those between make room.
const more = (steps = [], texts = []) => {
  const all = [...steps, ...texts];
  return all.length > mostSteps ? [...all.slice(0, mostSteps / 2), "…",
    ...all.slice(1 - mostSteps / 2)] : all;
};

// isShownBy tells whether a line of the gateway's timeline shows a push.
const isShownBy = (push, { source, text }) => push.label === source && clean(push.text) === text;

// gapText says how much of what is missing.
function gapText({ timeline, live, stream }) {
  const lost = [[timeline, "line"], [live, "message or call", "messages and calls"],
    [stream, "event"]]
    .filter(([n]) => n)
    .map(([n, one, many]) => count(n, one, many));
  return lost.length
    ? `Missing here, because the gateway keeps no more: ${lost.join(", ")}.`
    : "This is another session of the same name.";
}

// The escape sequences and control characters that the gateway removes from texts too.
const escapes = /\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00-\x08\x0b-\x1f\x7f]/g;
const clean = (text) => text.replace(escapes, "");
