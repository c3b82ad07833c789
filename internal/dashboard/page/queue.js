import { sessions } from "./api.js";
import { action, dialog, field } from "./dialogs.js";
import { h, reconcile, setText } from "./dom.js";
import { oneLine, plain } from "./format.js";
import { guardFresh } from "./fresh.js";

// Queue shows the prompts that a session has not begun, with what a person can do with each. back()
// has the focus when the prompt has gone that had it.
export class Queue {
  constructor(app, sessionOf, back) {
    this.app = app;
    this.sessionOf = sessionOf;
    this.back = back;
    this.element = h("ul.queue", { "aria-label": "Prompts that wait", hidden: true });
    guardFresh(this.element);
    app.on("queue", () => this.update());
  }

  update() {
    const id = this.sessionOf(),
      items = this.app.state.queue.filter((it) => it.session === id),
      hadFocus = this.element.contains(document.activeElement);
    reconcile(this.element, items, (it) => `${it.session} ${it.id} ${it.sent ?? ""}`, chip,
      (el, it) => {
      el.waiting = it;
      setText(el.querySelector(".what"), plain(oneLine(it.prompt, 300)));
    });
    this.element.hidden = !items.length;
    if (hadFocus && !this.element.contains(document.activeElement)) this.back().focus();
  }
}

function chip(it) {
  const from = it.source.startsWith("provider:") && it.source.slice("provider:".length);
  const button = (label, run) => action(label, () => run(el.waiting));
  const el = h("li", { class: it.sent ? "sent" : "" },
    h("span.what"),
    h("span.from", [from && `from ${plain(from)}`,
      it.attachments && `with ${it.attachments.map((path) => plain(path.split("/").at(-1))).join(", ")}`,
      it.sent && "the agent takes it up at its next step"].filter(Boolean).join(", ")),
    !it.sent && h("span.row",
      !from && button("Edit", edit),
      button("Send it now", (q) => sessions.sendQueued(q.session, q.id)),
      button("Cancel", (q) => sessions.cancelQueued(q.session, q.id))));
  return el;
}

// edit changes a prompt in a dialog, which keeps what was written if the agent has got the prompt
// meanwhile.
function edit(q) {
  const text = h("textarea", { id: "queued-prompt", rows: "6", value: q.prompt });
  return dialog("Change the prompt that waits", [field("Prompt", text)],
    [["Save", () => sessions.editQueued(q.session, q.id, text.value), "primary"]]);
}
