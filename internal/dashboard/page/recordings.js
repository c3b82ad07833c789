import { announce } from "./dialogs.js";
import { arrows, h, setText } from "./dom.js";
import { codeBlockFolded } from "./entries.js";
import { count, date, isObject, oneLine, plain } from "./format.js";
import { WindowedList } from "./list.js";

// Limits of a file, which somebody else may have made.
const fileMost = 64 << 20; // bytes
const linesMost = 100_000;
const piece = 1 << 20; // bytes that are read at once

const contents = ["message", "text", "size", "closed", "gap", "end"];
const parties = ["gateway", "provider", "host"];

const optionsMost = 200; // of a list of choices


// textOf writes a value for a person. A value of a file is not trusted to be what it should be, or
// to have a text.
function textOf(value) {
  if (typeof value === "string") return value;
  try {
    return JSON.stringify(value ?? "").slice(0, 400);
  } catch {
    return "…"; // nested too deep
  }
}

// parseStart reads the first line of a recording (docs/recordings.md). It throws a text for the
// person.
function parseStart(line) {
  let start;
  try {
    start = JSON.parse(line);
  } catch {
    // said below
  }
  if (!isObject(start) || !Number.isInteger(start.recording) || !isObject(start.session))
    throw new Error("This is no recording: tapctl record writes one.");
  if (start.recording !== 1)
    throw new Error(`The recording has format ${textOf(start.recording)}, and this page shows format 1.`);
  return start;
}

// parseLine reads a further line and returns what the list shows of it. raw is the line, which is
// read again when the person opens the entry.
function parseLine(raw, number) {
  const broken = (why) => ({ kind: "fault", number, raw,
    brief: `Line ${number} is broken: ${why}` });
  let l;
  try {
    l = JSON.parse(raw);
  } catch (e) {
    return broken(e.message);
  }
  if (!isObject(l)) return broken("it is no object");
  const has = contents.filter((name) => l[name] !== undefined);
  if (has.length !== 1) return broken(`it has not one of ${contents.join(", ")}`);
  const [kind] = has;
  const entry = { kind, number, raw, ts: typeof l.ts === "string" ? l.ts : "" };
  if (kind === "gap") return { ...entry,
    brief: `Dropped here, as the reader was too slow: ${textOf(l.gap)} lines` };
  if (kind === "end") return { ...entry, brief: `The end: ${textOf(l.end)}` };
  if (!parties.includes(l.from) ||
    !parties.includes(l.to)) return broken("from and to must name a party");
  if (kind === "message" && !isObject(l.message)) return broken("message must be an object");
  const name = l.provider ? textOf(l.provider) : `connection ${textOf(l.conn)}`;
  return {
    ...entry,
    from: l.from === "provider" ? name : l.from,
    to: l.to === "provider" ? name : l.to,
    who: l.from === "host" || l.to === "host" ? "host" : name,
    type: kind === "message" ? textOf(l.message.type ?? l.message.callback ?? "no type") : kind,
    brief: briefOf(kind, l),
  };
}

// Members of a message that say most about it, in order.
const telling = ["errorCode", "code", "error", "message", "tool", "event", "state", "name",
  "prompt", "text", "reason",
  "decision", "section", "data", "delta", "toolName", "id"];

function briefOf(kind, l) {
  if (kind === "text") return textOf(l.text);
  if (kind === "size") return `${textOf(l.size)} bytes that were not kept`;
  if (kind === "closed") return l.closed?.code ? `${textOf(l.closed.code)} ${textOf(l.closed.reason)}` : "";
  const names = telling.filter((name) => Object.hasOwn(l.message, name) && l.message[name] !== "");
  return names.slice(0, 2).map((name) => textOf(l.message[name])).join(" · ");
}

// jsonText writes what a line holds for a person.
function jsonText(raw) {
  try {
    const l = JSON.parse(raw);
    return plain(JSON.stringify(l.message ?? l, null, 2));
  } catch {
    return plain(raw);
  }
}

// readRecording reads a file piece by piece, so that the page stays alive. progress(share) may
// return false to stop; then the result is null. It throws a text for the person.
export async function readRecording(file, progress = () => true) {
  if (file.size > fileMost)
    throw new Error(`The file has ${Math.ceil(file.size / (1 << 20))} MiB, and the page shows at most ` +
      `${fileMost >> 20} MiB. Cut lines off its end, but keep the first one.`);
  const decoder = new TextDecoder();
  const entries = [];
  let start, number = 0, rest = "", left = 0;
  const take = (line) => {
    number++;
    if (!start) start = parseStart(line);
    else if (line.trim() === "") return;
    else if (entries.length < linesMost) entries.push(parseLine(line, number));
    else left++;
  };
  for (let at = 0; at < file.size || at === 0; at += piece) {
    const bytes = await file.slice(at, at + piece).arrayBuffer();
    if (!progress(at / file.size)) return null;
    const lines = (rest + decoder.decode(bytes, { stream: at + piece < file.size })).split("\n");
    rest = lines.pop();
    lines.forEach(take);
  }
  if (rest !== "" || !start) take(rest);
  return { start, entries, left };
}

// RecordingsView shows a recording from a file of the person's, in the view's element.
export class RecordingsView {
  constructor(element) {
    this.entries = [];
    this.file = h("input", {
      type: "file",
      id: "recording-file",
      accept: ".jsonl,.ndjson,.json,.txt",
      onchange: () => this.file.files[0] && this.open(this.file.files[0]),
    });
    this.fault = h("p.fault", { role: "alert" });
    this.meta = h("p.meta");
    const refill = () => this.refill();
    this.who = h("select", { id: "recording-who", onchange: refill });
    this.type = h("select", { id: "recording-type", onchange: refill });
    this.find = h("input", {
      type: "search",
      id: "recording-find",
      oninput: () => {
        clearTimeout(this.finding);
        this.finding = setTimeout(refill, 150);
      },
    });
    this.summary = h("span.hint", { role: "status" });
    this.controls = h("div.headline", { hidden: true },
      h("label", { for: "recording-who" }, "Who"), this.who, h("label", { for: "recording-type" },
        "Type"), this.type,
      h("label", { for: "recording-find" }, "Find"), this.find, this.summary);
    this.scroller = h("div.timeline", { tabindex: "0", role: "region", "aria-label": "Messages" });
    this.list = new WindowedList(this.scroller, (e) => this.row(e));
    arrows(this.scroller, "summary");
    element.classList.add("recording");
    element.append(
      h("header",
        h("div.headline", h("h2", "Recordings"),
          h("label", { for: "recording-file" }, "Open a file, or drop it here"), this.file),
        h("p.hint", "A recording has what providers and the gateway said to each other: ",
          h("code", "tapctl record > bug.jsonl"),
            ". It is read here, in your browser, and sent nowhere."),
        this.fault, this.meta, this.controls),
      h("div.stage", this.scroller));
  }

  async open(file) {
    const run = (this.run = {});
    setText(this.fault, "");
    setText(this.meta, `Reading ${file.name}…`);
    let read;
    try {
      read = await readRecording(file, () => run === this.run);
    } catch (e) {
      if (run === this.run) this.show({ entries: [], left: 0 }, e.message ||
        "The file can't be read.");
      return;
    }
    if (read) this.show(read, "", file.name);
  }

  show({ start, entries, left }, fault, name) {
    this.start = start;
    this.entries = entries;
    const faults = entries.filter((e) => e.kind === "fault").length;
    setText(this.fault, fault || [faults && `${count(faults, "line")} can't be read: see below.`,
      left && `The page shows ${linesMost.toLocaleString()} lines, and ${left.toLocaleString()} more are in the file.`]
      .filter(Boolean).join(" "));
    const session = start?.session ?? {};
    setText(this.meta, start ? [plain(name),
      `session ${plain(textOf(session.label || session.id))}`,
      `gateway ${plain(textOf(start.gateway))}`, safeDate(start.ts), count(entries.length, "line")]
      .filter(Boolean).join(" · ") : "");
    this.controls.hidden = !start;
    const options = (select, all, values) => {
      const known = [...new Set(values.filter(Boolean))].sort().slice(0, optionsMost);
      select.replaceChildren(h("option", { value: "" }, all),
        ...known.map((v) => h("option", { value: v }, plain(oneLine(v, 60)))));
    };
    options(this.who, "everybody", entries.map((e) => e.who));
    options(this.type, "all types", entries.map((e) => e.type));
    this.find.value = "";
    this.refill();
    announce(fault || `The recording has ${count(entries.length, "line")}`);
  }

  refill() {
    const { value: who } = this.who,
      { value: type } = this.type,
      text = this.find.value.toLowerCase();
    const shown = this.entries.filter((e) =>
      (!who || e.who === who) && (!type || e.type === type) &&
        (!text || e.raw.toLowerCase().includes(text)));
    setText(this.summary, `${shown.length} of ${count(this.entries.length, "line")}`);
    this.list.reset(shown);
    this.scroller.dataset.entries = shown.length;
  }

  // since is when a line was written, counted from the first one.
  since(ts) {
    const ms = new Date(ts) - new Date(this.start.ts);
    return Number.isNaN(ms) ? "" : `+${(ms / 1000).toFixed(3)}`;
  }

  row(e) {
    const name = (text) => plain(oneLine(text, 40));
    const content = h("div.parts");
    const box = h("details",
      h("summary",
        e.from !== undefined && h("span.source", `${name(e.from)} → ${name(e.to)}`),
        e.type !== undefined && h("code.name", plain(oneLine(e.type, 60))),
        h("span.brief", plain(oneLine(e.brief, 200)))),
      content);
    box.addEventListener("toggle", () =>
      box.open ? content.replaceChildren(codeBlockFolded(jsonText(e.raw))) : content.replaceChildren());
    return h("article", { class: `entry tool wire ${e.kind}` },
      h("time", { datetime: e.ts || undefined, title: `line ${e.number}${e.ts ? `, ${safeDate(e.ts)}` : ""}` },
        e.ts ? this.since(e.ts) : `${e.number}`),
      h("div.body", box));
  }
}

// safeDate writes a time that somebody else wrote.
function safeDate(ts) {
  try {
    return date(ts);
  } catch {
    return "no time";
  }
}
