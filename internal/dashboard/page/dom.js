// Building the document without ever parsing text as markup.

// h makes an element. Members of props: "class", "on…" for listeners, "data" for
// data attributes; true and false set and leave out an attribute; the rest are
// attributes. Children are nodes or texts; null, undefined and false are none.
export function h(tag, props, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) el.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(el.dataset, value);
    else if (name === "value") el.value = value;
    else el.setAttribute(name, value === true ? "" : value);
  }
  el.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return el;
}

// setText changes a text only when it differs: a selection in it survives, and
// screen readers hear no repetition.
export function setText(el, text) {
  if (el.textContent !== text) el.textContent = text;
}

// reconcile makes parent's children those of items, in order. Elements are kept
// by key, so that what has the focus keeps it.
export function reconcile(parent, items, key, make, update) {
  const old = new Map();
  for (const child of parent.children) old.set(child.dataset.key, child);
  let at = parent.firstElementChild;
  for (const item of items) {
    const k = String(key(item));
    let el = old.get(k);
    if (el) {
      old.delete(k);
    } else {
      el = make(item);
      el.dataset.key = k;
    }
    update?.(el, item);
    if (el === at) at = at.nextElementSibling;
    else parent.insertBefore(el, at);
  }
  // What is used stands before; keys that came twice leave elements that no key finds.
  while (at) {
    const gone = at;
    at = at.nextElementSibling;
    gone.remove();
  }
}

// arrows moves the focus among a list's items with the arrow keys, Home and End.
export function arrows(list, selector) {
  list.addEventListener("keydown", (e) => {
    const items = [...list.querySelectorAll(selector)];
    const i = items.indexOf(e.target.closest(selector));
    const to = { ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: items.length - 1 }[e.key];
    if (i < 0 || to === undefined || !items[to]) return;
    e.preventDefault();
    items[to].focus();
  });
}

// copyButton copies what text returns.
export function copyButton(text) {
  const button = h("button", {
    class: "copy", type: "button",
    onclick: async () => {
      try {
        await navigator.clipboard.writeText(text());
        button.textContent = "Copied";
      } catch {
        button.textContent = "Not allowed";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    },
  }, "Copy");
  return button;
}
