import { h } from "./dom.js";
import { dialog } from "./dialogs.js";

// The keys that work while no field has the focus.
const allKeys = [];
const keysStorage = "tapgw.keys";

// key adds one, which works in the drawer too if inDrawer says so.
export const key = (name, does, run, inDrawer) => allKeys.push({ name, does, run, inDrawer });

const typing = (el) => el.closest("input, textarea, select, [contenteditable]");

export function listen() {
  document.addEventListener("keydown", (e) => {
    if (e.key === "Escape" && typing(e.target)) {
      const card = e.target.closest(".card");
      return card ? card.focus() : e.target.blur();
    }
    const box = document.querySelector("dialog[open]");
    if (e.ctrlKey || e.metaKey || e.altKey || e.isComposing || typing(e.target)) return;
    const it = allKeys.find((k) => k.name === e.key &&
      (!box || (k.inDrawer && box.matches(".drawer"))));
    if (!it || (localStorage.getItem(keysStorage) === "off" && it.name !== "?")) return;
    e.preventDefault();
    it.run(e);
  });
}

export function help() {
  const rows = [...allKeys.map(({ name, does }) => [name, does]), ["Ctrl Enter", "send the prompt"],
    ["@", "in the prompt: name a file; / at its start: a command"],
    ["Esc", "leave a field, close a dialog"],
      ["↑ ↓", "move in a list; in the prompt, to earlier ones"]];
  const off = h("input", {
    type: "checkbox",
    checked: localStorage.getItem(keysStorage) !== "off",
    onchange: (e) => localStorage.setItem(keysStorage, e.target.checked ? "on" : "off"),
  });
  dialog("Keys", [
    h("table.keys",
      h("tbody",
        rows.map(([name, does]) =>
          h("tr", h("th", { scope: "row" }, name.split(" ").map((k) => h("kbd", k))),
            h("td", does)),
        ))),
    h("label.check", off, "Single keys do something"),
  ]);
}
