import { loadLate, persisted } from "./api.js";
import { attempt } from "./dialogs.js";
import { codeBlock } from "./code.js";
import { arrows, h, reconcile, setText } from "./dom.js";
import { address, ago, date, elsewhere, plain, tail } from "./format.js";
import { SessionView } from "./session.js";

const groupStorage = "tapgw.groups";

// What sessions can be grouped by, with the name of a session's group.
const groupings = {
  none: () => "",
  repository: (s) => plain(s.repository || tail(s.cwd)),
  state: (s) => s.state,
  host: (s) => s.host,
};

// What a person may want next, each with its command.
const firstSteps = [
  ["See what is missing", "tapgw doctor"],
  ["Give sessions tools with a provider", "tapgw new provider hello --lang python"],
  ["Make the Copilot CLIs of your terminals sessions", "tapgw install copilot"],
];

const offered = 200; // sessions that ended, the newest


// foldable makes a heading that folds what is below it.
function foldable(body, onfold) {
  const name = h("span"), count = h("span.sub");
  const button = h("button.fold", { onclick: () => onfold() }, name, count);
  return h("div.group", h("h3", button), body);
}

function showFold(group, name, count, isOpen) {
  const [{ firstChild: button }, body] = group.children;
  setText(button.firstChild, name);
  setText(button.lastChild, count);
  button.setAttribute("aria-expanded", String(isOpen));
  body.hidden = !isOpen;
}

// openStart opens the dialog of a new session.
export const openStart = (app) => loadLate(() => import("./start.js")).then((m) =>
  m.startDialog(app));

// SessionsView shows the list of sessions and the session that is chosen.
export class SessionsView {
  constructor(app) {
    this.app = app;
    this.folded = new Set(); // names of groups
    this.items = h("div.items");
    arrows(this.items, ".fold, a");
    this.none = h("p.empty", { hidden: true });
    this.session = new SessionView(app);
    this.pick = h("p.empty.pick", "Choose a session.");
    this.search = h("input", {
      type: "search", placeholder: "Search",
        "aria-label": "Search label, id, directory and repository",
      oninput: () => this.update(),
    });
    this.grouping = h("select", {
      "aria-label": "Group by",
      onchange: () => {
        localStorage.setItem(groupStorage, this.grouping.value);
        this.update();
      },
    }, Object.keys(groupings).map((g) =>
      h("option", { value: g, selected: g === localStorage.getItem(groupStorage) },
        g === "none" ? "no groups" : `by ${g}`)));
    this.filter = h("div.row.filter", this.search, this.grouping);
    this.endedItems = h("ul.choices");
    this.fault = h("p.fault");
    this.ended = foldable(h("div", this.fault, this.endedItems), () => {
      this.stored = this.stored ? null : [];
      this.update();
      if (this.stored) this.loadEnded();
    });
    this.first = h("section.first", { "aria-label": "First steps", hidden: true },
      h("h2", "Start here"),
      h("p", "Here you see all that an agent does, and step in."),
      h("button.primary.large", { onclick: () => openStart(app) }, "Start a session"),
      h("h3", "Next steps, in a terminal"),
      firstSteps.map(([text, command]) => [h("p", text), codeBlock(command)]).flat());
    this.element = h("div.view.sessions",
      h("section.side", { "aria-label": "Sessions" },
        h("header", h("h2", "Sessions"),
          h("button", { onclick: () => openStart(app) }, "New…")),
        this.filter,
        this.items,
        this.none,
        this.ended),
      this.session.element,
      this.pick,
      this.first);
    app.on("sessions", () => {
      this.isKnown = true;
      const ids = app.state.sessions.map((s) => s.id).join();
      if (this.stored && ids !== this.ids) this.loadEnded();
      this.ids = ids;
      this.update();
    });
    for (const name of ["questions", "cluster"]) app.on(name, () => this.update());
    app.on("feed", () => {
      this.session.show(app.feed);
      this.update();
    });
  }

  // loadEnded lists the sessions that ended.
  async loadEnded() {
    const asked = (this.asked = {});
    try {
      const stored = await persisted.list(offered);
      if (asked !== this.asked) return;
      if (this.stored) this.stored = stored;
      this.fault.textContent = "";
    } catch (e) {
      this.fault.textContent = e.message;
    }
    this.update();
  }

  matches(s) {
    const text = [s.label, s.summary, s.id, s.cwd, s.repository].join("\n").toLowerCase();
    return this.search.value.toLowerCase().split(/\s+/).every((word) => text.includes(word));
  }

  update() {
    const { sessions, cluster } = this.app.state, { feed } = this.app,
      isSearch = Boolean(this.search.value.trim()),
      list = [...sessions, ...elsewhere(cluster, "sessions")].filter((s) => this.matches(s)),
      by = groupings[this.grouping.value],
      groups = Map.groupBy(list, (s) => s.gateway ? `on ${s.gateway}` : by(s)),
      focused = document.activeElement.closest?.(".items li")?.dataset.key;
    setText(this.none, sessions.length ? "No session matches." :
      "No session runs. Start one here, or with tapctl sessions start.");
    this.none.hidden = !this.isKnown || list.length > 0;
    this.filter.hidden = !sessions.length && !this.stored;
    this.pick.hidden = Boolean(feed) || !sessions.length;
    this.first.hidden = Boolean(feed) || sessions.length > 0 || !this.isKnown;
    this.element.classList.toggle("chosen", Boolean(feed));
    reconcile(this.items, [...groups.keys()].sort(), (name) => name, (name) =>
      foldable(h("ul"), () => {
        if (!this.folded.delete(name)) this.folded.add(name);
        this.update();
      }),
    (group, name) => {
      const of = groups.get(name);
      group.firstChild.hidden = !name;
      showFold(group, name, of.length, isSearch || !this.folded.has(name));
      this.fill(group.lastChild, of);
    });
    // A session that moved to another group keeps the focus.
    if (focused && !this.items.contains(document.activeElement))
      this.items.querySelector(`[data-key="${CSS.escape(focused)}"] a`)?.focus();
    this.showEnded();
    this.ended.hidden = !this.isKnown;
    this.session.update(this.isKnown);
  }

  fill(ul, list) {
    const { questions } = this.app.state;
    reconcile(
      ul,
      list,
      (s) => s.id,
      ({ id, gateway }) =>
        h("li",
          h("a", { href: gateway ? null : address("sessions", id) }, h("span.dot", { role: "img" }),
            h("span.label"), h("span.tags"), h("span.sub"),
            h("span.sub.path")),
          h("button.ghost", {
            title: "Rename",
            hidden: Boolean(gateway),
            onclick: async () =>
              (await loadLate(() => import("./start.js"))).rename(
                this.app.state.sessions.find((s) => s.id === id) ?? { id },
              ),
          }, "✎")),
      (li, s) => {
        const a = li.firstChild;
        const [dot, label, tags, sub, path] = a.children;
        dot.className = `dot ${s.state}`;
        dot.setAttribute("aria-label", s.state);
        setText(label, s.label || s.id);
        li.lastChild.setAttribute("aria-label", `Rename ${s.label || s.id}`);
        const asks = questions.some((q) => q.session === s.id);
        const waits = s.waitsFor?.length && plain(`waits for ${s.waitsFor.join(", ")}`);
        setText(tags, asks ? "asks you" : waits || (s.foreground ? "foreground" : ""));
        tags.classList.toggle("asks", asks);
        setText(sub, [s.model || "no model", s.host, ago(s.createdAt), s.doubtful && "doubtful"]
          .filter(Boolean).join(" · "));
        setText(path, tail(s.cwd));
        a.title = plain(s.gateway ? `tapctl --gateway ${s.gateway} sessions log ${s.id}` :
          `${s.id}\n${s.cwd}\nsince ${date(s.createdAt)}`);
        const chosen = s.id === this.app.feed?.id;
        if (chosen === a.hasAttribute("aria-current")) return;
        chosen ? a.setAttribute("aria-current", "page") : a.removeAttribute("aria-current");
        if (chosen) a.scrollIntoView({ block: "nearest" });
      },
    );
  }

  showEnded() {
    const list = (this.stored ?? []).filter((s) =>
      !this.app.state.sessions.some((it) => it.id === s.id) && this.matches(s));
    showFold(this.ended, "Ended", !this.stored ? "" : this.stored.length < offered ? list.length :
      `the newest ${offered}`, Boolean(this.stored));
    reconcile(this.endedItems, list, (s) => s.id + s.state, (s) => {
      const name = plain(s.label || s.summary || s.id);
      const b = h("button", {
        "aria-label": `Resume ${name}`,
        onclick: () => attempt(b,
          async () => (await loadLate(() => import("./start.js"))).resume(s)),
      }, "Resume");
      return h("li",
        h("div", h("strong", name),
          h("div.sub", [s.state === "inUse" && "in use elsewhere", s.model, tail(s.cwd), s.branch,
            ago(s.usedAt)].filter(Boolean).join(" · "))),
        b);
    });
  }

  // step chooses the session by places further down the list.
  step(by) {
    const list = [...this.items.querySelectorAll("ul:not([hidden]) > li:has(a[href])")].map((li) =>
      li.dataset.key);
    const i = list.indexOf(this.app.feed?.id);
    const to = list[i < 0 ? 0 : i + by];
    if (to) location.hash = address("sessions", to);
  }
}
