// What pictures of a time have in common: an axis on which the pauses are folded.

const foldEach = 0.05, // of the width, for each pause
  foldAll = 0.3; // and for all pauses at most

// timeScale places times on an axis from 0 to 1. ranges, each {from, to} in ms, are when something
// ran. Where nothing ran for longer than least, the axis is folded: pauses has these ranges, each
// with its place x and its width. parts has the others; place(t) is where a time is.
export function timeScale(ranges, least) {
  const parts = [];
  for (const { from, to } of ranges.toSorted((a, b) => a.from - b.from)) {
    const last = parts.at(-1);
    if (last && from <= last.to + least) last.to = Math.max(last.to, to);
    else parts.push({ from, to });
  }
  const total = parts.reduce((sum, p) => sum + p.to - p.from, 0);
  const folds = parts.length - 1;
  const folded = folds < 1 ? 0 : total ? Math.min(foldAll, foldEach * folds) : 1;
  const pauses = [];
  let x = 0;
  for (const [i, p] of parts.entries()) {
    Object.assign(p, { x, width: total ? ((p.to - p.from) / total) * (1 - folded) : 0 });
    x += p.width;
    if (i === folds) break;
    pauses.push({ from: p.to, to: parts[i + 1].from, x, width: folded / folds });
    x += folded / folds;
  }
  const all = [...parts, ...pauses].sort((a, b) => a.from - b.from || a.to - b.to);
  const place = (t) => {
    const at = all.find((it) => t <= it.to) ?? all.at(-1);
    const share = at.to > at.from ? (t - at.from) / (at.to - at.from) : 0;
    return at.x + Math.min(1, Math.max(0, share)) * at.width;
  };
  return { parts, pauses, place };
}

// setBar draws a range as a bar: an element with class ran in a lane.
export function setBar(bar, { from, to }, place) {
  const at = place(from);
  bar.style.left = `min(${at * 100}%, 100% - 3px)`;
  bar.style.width = `max(3px, ${(place(to) - at) * 100}%)`;
}
