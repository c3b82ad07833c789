import { h } from "./dom.js";
import { dialog } from "./dialogs.js";

// The keys that work while no field has the focus.
const table = [];
const storage = "tapgw.keys";

export const key = (name, does, run) => table.push({ name, does, run });

const typing = (el) => el.closest("input, textarea, select, [contenteditable]");

export function listen() {
  document.addEventListener("keydown", (e) => {
    if (e.key === "Escape" && typing(e.target)) return e.target.blur();
    if (
      e.ctrlKey ||
      e.metaKey ||
      e.altKey ||
      e.isComposing ||
      typing(e.target) ||
      document.querySelector("dialog[open]")
    )
      return;
    const it = table.find((k) => k.name === e.key);
    if (!it || (localStorage.getItem(storage) === "off" && it.name !== "?")) return;
    e.preventDefault();
    it.run();
  });
}

export function help() {
  const rows = [...table.map(({ name, does }) => [name, does]), ["Ctrl Enter", "send the prompt"],
    ["Esc", "leave a field, close a dialog"], ["↑ ↓", "move in a list"]];
  const off = h("input", {
    type: "checkbox",
    checked: localStorage.getItem(storage) !== "off",
    onchange: (e) => localStorage.setItem(storage, e.target.checked ? "on" : "off"),
  });
  dialog("Keys", [
    h("table", { class: "keys" },
      h("tbody", null,
        rows.map(([name, does]) =>
          h("tr", null, h("th", { scope: "row" }, name.split(" ").map((k) => h("kbd", null, k))), h("td", null, does)),
        ))),
    h("label", { class: "check" }, off, "Single keys do something"),
  ]);
}
