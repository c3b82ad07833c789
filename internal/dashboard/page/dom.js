// Functions that build the document. None parses a text as markup.

// h makes an element; a tag names its classes, as in "p.hint". In props, which may be left out,
// "on…" adds a listener, "data" sets data attributes, "value" the value, and every other name an
// attribute: true sets it empty; false, null and undefined leave it out. Children are nodes or
// texts; null, undefined and false are skipped. A button sends no form unless its type is submit.
export function h(tag, ...children) {
  const [name, ...classes] = tag.split("."), el = document.createElement(name);
  if (name === "button") el.type = name;
  if (classes.length) el.className = classes.join(" ");
  if (children[0]?.constructor === Object) {
    for (const [name, value] of Object.entries(children.shift())) {
      if (value === undefined || value === null || value === false) continue;
      if (name.startsWith("on")) el.addEventListener(name.slice(2), value);
      else if (name === "data") Object.assign(el.dataset, value);
      else if (name === "value") el.value = value;
      else el.setAttribute(name, value === true ? "" : value);
    }
  }
  el.append(...children.flat().filter((c) => c !== null && c !== undefined && c !== false));
  return el;
}

// setText changes an element's text only if it differs, so that a selection in it survives and
// screen readers do not repeat it.
export function setText(el, text) {
  if (el.textContent !== text) el.textContent = text;
}

// reconcile makes one child of parent for each item, in order. Elements are found again by key and
// kept, with the focus if they have it: those that are of no item go first, so that no other one
// has to move.
export function reconcile(parent, items, key, make, update) {
  const old = new Map();
  for (const child of parent.children) old.set(child.dataset.key, child);
  const keys = new Set(items.map((item) => String(key(item))));
  for (const [k, el] of old) if (!keys.has(k)) el.remove();
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
  // The elements in use stand before this one. A key that came twice leaves an element that old
  // does not have.
  while (at) {
    const unused = at;
    at = at.nextElementSibling;
    unused.remove();
  }
}

// arrows moves the focus among a list's items with the arrow keys, Home and End.
export function arrows(list, selector) {
  list.addEventListener("keydown", (e) => {
    const items = [...list.querySelectorAll(selector)].filter((el) => el.checkVisibility());
    const i = items.indexOf(e.target.closest(selector));
    const to = { ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: items.length - 1 }[e.key];
    if (i < 0 || to === undefined || !items[to]) return;
    e.preventDefault();
    items[to].focus();
  });
}

// copyButton makes a button that copies the result of text().
export function copyButton(text) {
  const button = h("button.copy", {
    onclick: async () => {
      try {
        await navigator.clipboard.writeText(text());
        button.textContent = "Copied";
      } catch {
        button.textContent = "Not allowed";
      }
      setTimeout(() => {
        button.textContent = "Copy";
      }, 1500);
    },
  }, "Copy");
  return button;
}
