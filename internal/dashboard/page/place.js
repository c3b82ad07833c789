import { toast } from "./dialogs.js";
import { h } from "./dom.js";
import { address } from "./format.js";

// The address of an entry is that of its session, and the id of the event that the entry began
// with. All readers of a session get the same ids: its birth, and numbers, the last of which grows
// by one with each event.
const parsePlace = (id = "") => {
  const parts = id.split(".");
  return { birth: parts[0], order: Number(parts[5]) };
};

export const isBefore = (id, other) => parsePlace(id).order < parsePlace(other).order;
export const isOfOneSession = (id, other) => parsePlace(id).birth === parsePlace(other).birth;

// linkTime makes the time of an entry's element lead to the entry, and copy its address.
export function linkTime(el, session, entry) {
  const time = el.querySelector("time");
  if (!entry.place || !time) return el;
  const a = h("a", {
    href: `${address("sessions", session)}/${entry.place}`, tabindex: "-1",
    title: "Copy the address of this entry", onclick: () => copy(a.href),
  }, ...time.childNodes);
  time.append(a);
  return el;
}

// copyAddress copies the address of the entry of an element.
export function copyAddress(el) {
  const a = el?.querySelector("time > a");
  if (a) copy(a.href);
  else toast("Choose an entry: this one has no address.");
}

function copy(address) {
  navigator.clipboard.writeText(address).then(
    () => toast("The entry's address is copied. It opens in each browser that is signed in to this gateway."),
    () => toast(`The browser does not let this page copy. The entry is at ${address}`),
  );
}
