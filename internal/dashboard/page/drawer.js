import { announce, toast } from "./dialogs.js";
import { h, setText } from "./dom.js";
import { address, oneLine, plain } from "./format.js";
import { Asks, waitingFor } from "./waiting.js";

const notesMost = 3; // notifications at once

// Drawer shows all that waits for a person over all sessions, and says elsewhere that something
// does: on its button, in the tab's title and icon, and in a notification if the person has allowed
// that.
export class Drawer {
  // asksOfSession() returns the cards of the session that is shown.
  constructor(app, asksOfSession) {
    this.app = app;
    this.asksOfSession = asksOfSession;
    this.known = new Set();
    this.button = h("button.waits", { title: "All that waits for you (w)",
      onclick: () => this.toggle() }, "0 waiting");
    this.title = h("h2", { id: "drawer-title", tabindex: "-1" }, "Waiting for you");
    this.none = h("p.empty", "Nothing waits for you. Questions of all sessions come here.");
    this.asks = new Asks(app, "Questions and codes", () => "", () => this.title);
    this.allow = h("button", { onclick: () => this.askToNotify() }, "Notify me of questions");
    this.said = h("p.hint");
    const close = h("button.ghost", { onclick: () => this.box.close() }, "Close");
    this.box = h("dialog.drawer", {
      "aria-labelledby": "drawer-title",
      onclose: () => this.box.remove(),
      onclick: (e) => (e.target === this.box || e.target.matches("a.of")) && this.box.close(),
    },
      h("div.dialog", h("header.headline", this.title, close), this.none, this.asks.element,
        this.allow, this.said));
    for (const name of ["pairings", "questions"]) app.on(name, () => this.update());
    addEventListener("hashchange", () => this.box.close());
  }

  update() {
    const all = waitingFor(this.app.state),
      fresh = all.filter((it) => !this.known.has(it.key)),
      count = all.length;
    this.known = new Set(all.map((it) => it.key));
    this.count = count;
    this.none.hidden = count > 0;
    setText(this.button, `${count} waiting`);
    this.button.classList.toggle("some-wait", count > 0);
    document.title = count ? `(${count}) tapgw` : "tapgw";
    document.querySelector("link[rel=icon]").href = `page/icon${count ? "-waiting" : ""}.svg`;
    if (fresh.length) announce(`${this.text(fresh[0])} ${count} waiting for you`);
    if (document.hidden && globalThis.Notification?.permission === "granted")
      for (const it of fresh.slice(0, notesMost)) this.notify(it);
  }

  text(it) {
    const of = plain(oneLine(this.asks.label(it.session), 60));
    return it.code ? `${plain(it.provider)} wants into ${of}.` : `${of} asks: ${plain(oneLine(it.message, 200))}`;
  }

  // toggle opens the drawer, or closes it.
  toggle() {
    if (this.box.open) return this.box.close();
    document.body.append(this.box);
    this.showPermission();
    this.box.showModal();
    this.title.focus();
  }

  // next moves the focus to the next card: of the session that is shown, or else of all.
  next() {
    const cards = () =>
      [...(this.box.open ? this.asks : this.asksOfSession()).element.children]
        .filter((c) => c.checkVisibility() && !c.answered);
    if (!cards().length && this.count && !this.box.open) this.toggle();
    const i = cards().indexOf(document.activeElement.closest(".card"));
    cards()[(i + 1) % cards().length]?.focus();
  }

  // decide presses a button of the card that has the focus. Without one, and where the button is
  // out of sight and so perhaps a part of what it allows, it only goes there: a key never answers
  // what the person has not seen.
  decide(e, selector) {
    const card = document.activeElement.closest(".card");
    if (e.repeat) return;
    if (!card) return this.next();
    const button = card.querySelector(selector) ?? card.querySelector("input, select, button");
    if (!button) return;
    const { top, bottom, left } = button.getBoundingClientRect();
    const isSeen = document.elementFromPoint(left + 8, (top + bottom) / 2) === button;
    isSeen && button.matches(selector) ? button.click() : button.focus();
  }

  showPermission() {
    const { permission } = globalThis.Notification ?? {};
    this.allow.hidden = permission !== "default";
    setText(this.said, {
      default: "While this tab is hidden, a notification of your system then says what a session asks.",
      granted: "Notifications are on while this tab is hidden. Your browser's settings of this page turn them off.",
      denied: "Your browser blocks notifications of this page. Its settings of this page allow them.",
    }[permission] ?? "");
  }

  async askToNotify() {
    await Notification.requestPermission();
    this.showPermission();
    this.title.focus();
  }

  notify(it) {
    let note;
    try {
      note = new Notification("tapgw", { body: this.text(it), tag: it.key, icon: "page/icon.svg" });
    } catch {
      return; // browsers of phones have none for a page
    }
    note.onclick = () => {
      note.close();
      window.focus();
      this.go(it);
    };
  }

  // go shows the session of a question, and the question in it.
  go(it) {
    const hash = address("sessions", it.session);
    const show = () => {
      const card = [...this.asksOfSession().element.children].find((c) => c.dataset.key === it.key);
      card ? card.focus() : toast("This question is over.");
    };
    this.box.close();
    if (location.hash === hash) return show();
    addEventListener("hashchange", show, { once: true });
    location.hash = hash;
  }
}
