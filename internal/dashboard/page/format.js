// How times, sizes and names are written.

const clock = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });

export const time = (ts) => (ts ? clock.format(new Date(ts)) : "");
export const date = (ts) => (ts ? full.format(new Date(ts)) : "");

// duration of milliseconds, at most four characters and a unit.
export function duration(ms) {
  if (ms === undefined || ms === null || Number.isNaN(ms)) return "–";
  if (ms < 10) return `${Math.round(ms * 10) / 10} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
  return `${Math.floor(ms / 3_600_000)} h ${Math.round((ms % 3_600_000) / 60_000)} min`;
}

// ago of a time, in words short enough for a table.
export function ago(ts) {
  const s = Math.max(0, (Date.now() - new Date(ts)) / 1000);
  if (s < 60) return "just now";
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86_400)} d`;
}

// distance of a time from now, such as "5 min ago" or "in 2 h".
export function distance(ts) {
  const ms = new Date(ts) - Date.now();
  if (ms > 0) return `in ${ms < 60_000 ? `${Math.ceil(ms / 1000)} s` : ago(Date.now() - ms)}`;
  return ms > -60_000 ? "just now" : `${ago(ts)} ago`;
}

// moment is a time with its day, unless that is today.
const dayAndTime = new Intl.DateTimeFormat(undefined, {
  month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
    hourCycle: "h23",
});
export const moment = (ts) =>
  new Date(ts).toDateString() === new Date().toDateString() ? time(ts) : dayAndTime.format(new Date(ts));

export const share = (part, whole) => (whole ? `${Math.round((1000 * part) / whole) / 10} %` : "–");
export const count = (n, one, many = `${one}s`) => `${n} ${n === 1 ? one : many}`;

// pretty indents JSON and returns any other text unchanged.
export function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

// tail returns the last two parts of a path.
export function tail(path) {
  const parts = (path ?? "").split(/[\\/]/).filter(Boolean);
  return plain(parts.length > 2 ? `…/${parts.slice(-2).join("/")}` : (path ?? ""));
}

// short writes a large number with a unit, such as 12.3K.
const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
export const short = (n) => compact.format(n);

// decoded is a part of the address as it was before it was escaped.
export function decoded(part = "") {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const oneLine = (text, most = 120) => {
  const line = text.replace(/\s+/g, " ").trim();
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
};

// plain spells out control characters and those that change the direction of text: they could make
// a command look like another one. Line ends and tabs stay.
export const plain = (text) =>
  text.replace(/\p{Bidi_Control}|[\x00-\x08\x0b-\x1f\x7f-\x9f]/gu,
    (c) => `\\u${c.codePointAt(0).toString(16).padStart(4, "0")}`);

// address leads to a thing of a view, such as a session.
export const address = (view, id) => `#/${view}/${encodeURIComponent(id)}`;

export const isObject = (v) => typeof v === "object" && v !== null && !Array.isArray(v);

// elsewhere lists the sessions or the providers of other gateways of the cluster.
export const elsewhere = (cluster, kind) =>
  cluster?.[kind].filter((it) => it.gateway !== cluster.name) ?? [];
