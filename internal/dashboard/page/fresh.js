import { toast } from "./dialogs.js";

// A thing that asks does nothing for so long after it came or moved, in ms: a person who presses
// twice means the first thing, and not the next one that takes its place.
export const freshTime = 1000;

// guardFresh makes the buttons in the children of a list do nothing for the pointer until the child
// stands where it is for freshTime. Then it has the class ready. A person who scrolls moves it in
// no layout, which does not count. Keys press what the person gave the focus, wherever it moves,
// and one that is held presses once.
export function guardFresh(list) {
  const isReady = (child) => {
    const place = JSON.stringify(child.getBoundingClientRect()),
      now = performance.now();
    let layout = "";
    for (let e = child; e; e = e.parentElement) layout += [e.offsetTop, e.offsetLeft,
      e.scrollHeight, ""];
    if (child.place !== place && child.layout !== layout) child.movedAt = now;
    Object.assign(child, { place, layout });
    return child.classList.toggle("ready", now - child.movedAt >= freshTime);
  };
  setInterval(() => [...list.children].forEach(isReady), 100);
  list.addEventListener("click", (e) => {
    const child = e.target.closest("button")?.closest(".card, li");
    if (!child || !e.detail || isReady(child)) return;
    e.preventDefault();
    e.stopPropagation();
    toast("It has just come: press again.");
  }, true);
  list.addEventListener("keydown", (e) => e.repeat && e.key === "Enter" && e.preventDefault(),
    true);
}
