import { h } from "./dom.js";

// dialog shows a modal dialog and resolves when it is closed. actions are its buttons, each [label,
// run, class]; the last one is the default. The dialog closes after run, or shows the error that it
// threw, at the field that it names. An error to begin with is shown so, too.
export function dialog(title, content, actions = [], error) {
  return new Promise((resolve) => {
    const fault = h("p.fault", { role: "alert", id: "dialog-fault" });
    const buttons = actions.map(([label, run, kind], i) =>
      h("button", {
        type: i === actions.length - 1 ? "submit" : "button",
        class: kind ?? "",
        onclick: i === actions.length - 1 ? null : () => act(run),
      },
        label),
    );
    const act = async (run) => {
      fault.textContent = "";
      wrong?.removeAttribute("aria-invalid");
      for (const b of buttons) b.disabled = true;
      try {
        await run();
        box.close();
      } catch (e) {
        show(e);
      } finally {
        for (const b of buttons) b.disabled = false;
      }
    };
    let wrong;
    const show = ({ message }) => {
      const [, name, rest] = /^(\w+): (.*)/s.exec(message) ?? [];
      wrong = name && form.elements.namedItem(name);
      const folded = wrong?.closest("details");
      if (folded) folded.open = true;
      if (!wrong?.checkVisibility()) {
        foot.before(fault);
        fault.textContent = message;
        return;
      }
      wrong.after(fault);
      fault.textContent = rest;
      wrong.setAttribute("aria-invalid", "true");
      wrong.setAttribute("aria-errormessage", fault.id);
      wrong.focus();
    };
    const foot = h("div.actions",
      h("button", { onclick: () => box.close() }, actions.length ? "Cancel" : "Close"), buttons);
    const form = h("form", {
      onsubmit: (e) => {
        e.preventDefault();
        if (actions.length) act(actions.at(-1)[1]);
      },
    },
      content,
      fault,
      foot);
    const box = h("dialog", {
      "aria-labelledby": "dialog-title",
      onclose: () => {
        box.remove();
        resolve();
      },
      onclick: (e) => {
        if (e.target === box) box.close();
      },
    },
      h("div.dialog", h("h2", { id: "dialog-title" }, title), form));
    document.body.append(box);
    box.showModal();
    if (error) show(error);
  });
}

// field makes an input with its label; rest stands below.
export const field = (label, input, ...rest) =>
  h("div.field", h("label", { for: input.id }, label), input, rest);

export const confirm = (title, text, label, run) => dialog(title, [h("p", text)],
  [[label, run, "danger"]]);

const toasts = h("div.toasts", { role: "status" });

// toast shows a line for some seconds.
export function toast(text, level = "info") {
  if (!toasts.isConnected) document.body.append(toasts);
  const line = h("div", { class: `toast ${level}` }, text,
    h("button", { "aria-label": "Dismiss", onclick: () => line.remove() }, "×"));
  toasts.append(line);
  setTimeout(() => line.remove(), level === "info" ? 4000 : 12_000);
}

// attempt runs a button's action. The button is disabled meanwhile, and an error is shown as a
// toast.
export async function attempt(button, run) {
  button.disabled = true;
  try {
    return await run();
  } catch (e) {
    toast(e.message, "error");
  } finally {
    button.disabled = false;
  }
}

// action makes a button that does nothing more while it runs.
export function action(label, run, props) {
  const b = h("button", { ...props, onclick: () => attempt(b, run) }, label);
  return b;
}

const polite = h("div.hidden", { role: "status", "aria-live": "polite" });

// announce makes screen readers read a text that is visible on the page.
export function announce(text) {
  if (!polite.isConnected) document.body.append(polite);
  polite.textContent = text;
}
