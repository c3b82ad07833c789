import { toast } from "./dialogs.js";

// A thing that asks does nothing for so long after it came or moved, in ms: a person who presses twice means the first
// thing, and not the next one that takes its place.
export const freshTime = 1000;

// guardFresh makes the buttons in the children of a list do nothing for the pointer until the child stands where it is
// for freshTime. It has the class ready then. Keys press what the person gave the focus, wherever it moves, and one that
// is held presses once.
export function guardFresh(list) {
  const isReady = (child) => {
    const place = JSON.stringify(child.getBoundingClientRect()),
      now = performance.now();
    if (child.place !== place) child.movedAt = now;
    child.place = place;
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
  list.addEventListener("keydown", (e) => e.repeat && e.key === "Enter" && e.preventDefault(), true);
}
