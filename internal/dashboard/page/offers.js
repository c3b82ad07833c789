import { sessions } from "./api.js";
import { announce } from "./dialogs.js";
import { h, reconcile, setText } from "./dom.js";
import { count, plain } from "./format.js";

const offersPause = 120; // ms without a key before the gateway is asked

// Offers shows what may stand at the caret of the prompt box: files of the session's directory
// behind an @, and the commands of its host behind a slash at the beginning, with the words that
// they take. sessionOf() is the id of the session that is shown; took(path) is called with a file
// that somebody chose.
export class Offers {
  constructor(box, sessionOf, took) {
    Object.assign(this, { box, sessionOf, took, items: [] });
    this.list = h("ul", {
      id: "offers", role: "listbox", "aria-label": "Offers", onpointerdown: (e) =>
        e.preventDefault(),
    });
    this.note = h("p.hint");
    this.element = h("div.offers", { hidden: true }, this.list, this.note);
    // A text area is a combobox in all but the role, which HTML gives to fields of one line only.
    for (const [name, value] of [["autocomplete", "list"], ["haspopup", "listbox"],
      ["controls", "offers"]])
      box.setAttribute(`aria-${name}`, value);
    this.show([]);
    box.addEventListener("input", () => this.look());
    for (const name of ["blur", "click"]) box.addEventListener(name, () => this.show([]));
    box.addEventListener("keydown", (e) => this.key(e), { capture: true });
  }

  // look asks for what may stand at the caret.
  look() {
    const { box } = this,
      id = this.sessionOf(),
      before = box.value.slice(0, box.selectionStart),
      [, file] = /(?:^|\s)@(\S*)$/.exec(before) ?? [],
      [, name] = /^\/(\S*)$/.exec(before) ?? [],
      [, command, word] = /^\/(\S+)\s(\S*)$/.exec(before) ?? [];
    clearTimeout(this.timer);
    this.turn = {};
    if ((file ?? name ?? word) === undefined ||
      box.selectionStart !== box.selectionEnd) return this.show([]);
    const { turn } = this;
    this.timer = setTimeout(async () => {
      let items = [], note = "";
      try {
        if (file !== undefined) {
          const found = await sessions.files(id, file);
          items = found.files.map((path) => ({ text: `@${path}`, label: path, path }));
          note = items.length && found.more ? "There are more: write more of the name." : "";
        } else {
          const all = await this.commands(id, name === ""),
            of = word !== undefined && all.find((c) => isCalled(c, command));
          items = (of ? (of.choices ?? []).map((c) => [c.name, c.description])
            : name === undefined ? [] : all.map((c) => [`/${c.name}`, c.description, c.hint]))
            .filter(([text]) => text.includes(of ? word : name))
            .map(([text, about, hint = ""]) => ({ text, label: `${text} ${hint}`, about }));
        }
      } catch (e) {
        note = e.message;
      }
      if (turn === this.turn)
        this.show(items, note, before.length - (file ?? word ??
          name).length - (word === undefined ? 1 : 0));
    }, offersPause);
  }

  // commands are those of a session's host. They are asked for anew when somebody begins to write
  // one.
  commands(id, anew) {
    if (anew || this.of !== id) {
      this.of = id;
      this.all = sessions.commands(id);
      this.all.catch(() => (this.of = null));
    }
    return this.all;
  }

  // command is the command that a text calls and what stands behind it, if the session's host has
  // it.
  async command(id, text) {
    const [, name, input] = /^\/(\S+)\s*(.*)$/s.exec(text) ?? [];
    return name && (await this.commands(id).catch(() => [])).some((c) => isCalled(c, name)) &&
      { name, input };
  }

  // show offers items in place of what stands between a place and the caret. The first one is
  // chosen, and note stands below.
  show(items, note = "", from = 0) {
    clearTimeout(this.timer);
    this.turn = null;
    Object.assign(this, { items, from });
    reconcile(this.list, items, (it) => it.text, (it) =>
      h("li", { role: "option", onclick: () => this.take(it) },
        h("span", plain(it.label)), it.about && h("span.sub", plain(it.about))));
    setText(this.note, note);
    this.list.hidden = !items.length;
    this.element.hidden = !items.length && !note;
    this.choose(0);
    if (items.length || note) announce(items.length ? `${count(items.length, "offer")}, ↑ ↓` : note);
  }

  choose(at) {
    const { box, items, list } = this;
    this.at = at;
    [...list.children].forEach((el, i) => {
      el.id = `offer-${i}`;
      el.setAttribute("aria-selected", i === at);
    });
    if (!items.length) return box.removeAttribute("aria-activedescendant");
    box.setAttribute("aria-activedescendant", `offer-${at}`);
    list.children[at].scrollIntoView({ block: "nearest" });
  }

  key(e) {
    const { items, at, box } = this,
      step = { ArrowUp: -1, ArrowDown: 1 }[e.key];
    if (this.element.hidden || e.isComposing || e.ctrlKey || e.metaKey || e.altKey ||
      e.shiftKey) return;
    if (step && items.length) this.choose((at + step + items.length) % items.length);
    else if (/^(Arrow|Home|End|Page)/.test(e.key)) return this.show([]); // the caret goes elsewhere
    else if (e.key === "Escape") this.show([]);
    else if (["Enter", "Tab"].includes(e.key) && items.length &&
      box.value !== items[at].text) this.take(items[at]);
    else return;
    e.preventDefault();
    e.stopImmediatePropagation();
  }

  // take writes what was offered in place of what stands at the caret.
  take({ text, path }) {
    const { box } = this, end = box.selectionStart;
    if (path) this.took(path);
    box.setRangeText(`${text} `, this.from, end, "end");
    box.focus();
    box.dispatchEvent(new Event("input"));
  }
}

const isCalled = (command, name) => command.name === name || command.aliases?.includes(name);
