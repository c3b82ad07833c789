import { loadLate, sessions } from "./api.js";
import { Attached } from "./attach.js";
import { Earlier, sendKey, sends } from "./composer.js";
import { action, announce, confirm, toast } from "./dialogs.js";
import { h, setText } from "./dom.js";
import { element } from "./entries.js";
import { Find } from "./find.js";
import { oneLine, plain, share, short } from "./format.js";
import { WindowedList } from "./list.js";
import { Offers } from "./offers.js";
import { copyAddress, isBefore, isOfOneSession, linkTime } from "./place.js";
import { Queue } from "./queue.js";
import { isFolded, Turns } from "./turns.js";
import { Asks } from "./waiting.js";

// The toggles above a timeline, with the kinds of entries that they hide.
const toggleKinds = [["Reasoning", ["reasoning"]], ["Tools", ["tool"]], ["Events", ["push"]],
  ["Notes", ["note"]]];

const nearTop = 1500; // pixels

const draft = (id) => `draft ${id}`;

// SessionView shows one session: what it is, what happens in it, and a prompt box.
export class SessionView {
  constructor(app) {
    this.app = app;
    this.hiddenKinds = new Set();

    this.title = h("h2");
    this.chip = h("span.chip");
    this.meta = h("p.meta");
    this.usage = h("span");
    const late = async (name) => (await loadLate(() => import("./start.js")))[name](this.session);
    this.interrupt = action("Interrupt", () => sessions.interrupt(this.id), { class: "now" });
    this.front = action("Make foreground", () => sessions.foreground(this.id));
    this.model = action("Model…", () => late("changeModel"));
    this.rename = action("Rename…", () => late("rename"));
    this.resume = action("Resume", () => late("resume"), { class: "now" });
    this.stop = action("Stop…", () => this.askStop(), { class: "danger" });

    const toggles = this.toggles = toggleKinds.map(([label, kinds]) => {
      const b = h("button.toggle", {
        "aria-pressed": "true",
        onclick: () => {
          const on = b.getAttribute("aria-pressed") === "false";
          b.setAttribute("aria-pressed", String(on));
          for (const k of kinds) on ? this.hiddenKinds.delete(k) : this.hiddenKinds.add(k);
          this.refill();
        },
      },
        label);
      return b;
    });

    this.scroller = h("div.timeline", { tabindex: "0", role: "region", "aria-label": "Timeline" });
    this.latest = h("button.latest", { hidden: true, onclick: () => this.list.follow(true) });
    this.list = new WindowedList(this.scroller, (entry) => linkTime(element(entry), this.id, entry),
      (n) => {
      this.latest.hidden = n < 0;
      this.feed?.readsEnd(n < 0 && !this.find?.isActive && !this.wanted);
      setText(this.latest, n > 0 ? `${n} new ↓` : "Latest ↓");
    });
    this.scroller.addEventListener("scroll", () => this.loadOlder(), { passive: true });
    this.find = new Find(this.list, {
      entries: () => this.feed?.timeline.entries.filter((e) => !this.hiddenKinds.has(e.kind)) ?? [],
      reveal: (entry) => this.reveal(entry, false),
      isLoading: () => this.feed?.hasOlder(),
      begun: () => {
        this.feed?.readsEnd(false);
        this.loadOlder();
      },
    });
    this.turns = new Turns(this);
    this.foldAll = h("button.toggle", { onclick: () => this.turns.toggleAll() }, "Fold turns");
    this.empty = h("p.empty");

    this.prompt = h("textarea", {
      id: "prompt",
      rows: "2",
      "aria-label": "Prompt",
      oninput: () => this.edited(),
      onkeydown: (e) => {
        if (!sends(e)) return;
        e.preventDefault();
        this.send("enqueue");
      },
    });
    this.earlier = new Earlier(this.prompt, () => (this.feed?.timeline.entries ?? [])
      .filter((e) => e.kind === "prompt" && e.who === "user").map((e) => e.text),
        () => this.buttons());
    this.attached = new Attached(() => this.id, () => this.session?.attachments);
    this.offers = new Offers(this.prompt, () => this.id,
      (path) => this.attached.here.named.add(path));
    this.submit = h("button.primary", { type: "submit" }, "Send");
    this.steer = h("button", {
      hidden: true,
      title: "Add the prompt to the running turn",
      onclick: () => this.send("immediate"),
    }, "Send now");
    this.composer = h("form.composer", {
      onsubmit: (e) => {
        e.preventDefault();
        this.send("enqueue");
      },
    },
      this.offers.element,
      this.attached.list,
      this.prompt,
      h("div.row",
        sendKey(), this.attached.button, this.attached.input, h("span.hint"), this.steer,
          this.submit));
    this.attached.accept(this.composer);

    this.figures = h("div.figures", { tabindex: "0", role: "group", "aria-label": "Figures" });
    this.figuresBox = h("details.figures-box", { ontoggle: () => this.drawFigures() },
      h("summary", "Figures"), this.figures);

    this.asks = new Asks(app, "Questions of this session", () => this.id ?? "none",
      () => this.scroller);
    this.queue = new Queue(app, () => this.id, () => this.prompt);
    const more = h("button.more", {
      "aria-expanded": "false",
      onclick: () => more.setAttribute("aria-expanded", this.element.classList.toggle("unfolded")),
    }, "More");

    this.element = h("section.session", { "aria-label": "Session", hidden: true },
      h("header",
        h("a.back", { href: "#/sessions" }, "‹ Sessions"),
        h("div.heading", this.title, this.chip),
        more,
        this.meta,
        h("div.buttons", this.interrupt, this.resume, this.front, this.model, this.rename,
          this.stop),
        h("div.tools", h("div.toggles", { role: "group", "aria-label": "Show" }, toggles),
          this.foldAll, this.find.element),
        this.figuresBox),
      h("div.stage", this.scroller, this.empty, this.latest),
      this.asks.element,
      this.queue.element,
      this.composer);
  }

  // show follows another session, or none.
  show(feed) {
    this.feed = feed;
    this.id = feed?.id;
    this.element.hidden = !feed;
    this.asks.update();
    this.queue.update();
    if (!feed) return;
    this.earlier.end();
    this.offers.show([]);
    this.prompt.value = sessionStorage.getItem(draft(this.id)) ?? "";
    this.refill();
    this.find.clear();
    this.wanted = null;
    feed.addEventListener("reset", () => feed === this.feed && this.refill());
    feed.addEventListener("news", (e) => feed === this.feed && this.news(e.detail));
    feed.addEventListener("older", (e) => feed === this.feed && this.addOlder(e.detail));
    this.update();
  }

  // drawFigures draws what the session used and how long its calls took, if somebody looks. It
  // takes nothing away from under a person's hands.
  async drawFigures() {
    const { id, figures } = this;
    if (!this.figuresBox.open || !this.feed) return;
    const isRead = figures.matches(":focus-within") || figures.querySelector("details[open]");
    if (isRead && figures.firstChild) return;
    try {
      const { sessionFigures } = await loadLate(() => import("./figures.js"));
      const made = await sessionFigures(this.app, id, this.feed.timeline.entries,
        (entry) => this.reveal(entry));
      if (id !== this.id) return;
      figures.replaceChildren(...made);
    } catch (e) {
      if (id === this.id) figures.replaceChildren(h("p.empty", e.message));
    }
  }

  // reveal shows an entry of the timeline, whatever was hidden, and gives it the focus unless that
  // is to stay.
  reveal(entry, focus = true) {
    if (!this.shows(entry)) {
      if (entry.turn) entry.turn.folded = false;
      if (this.hiddenKinds.has(entry.kind)) {
        this.hiddenKinds.clear();
        for (const b of this.toggles) b.setAttribute("aria-pressed", "true");
      }
      this.refill();
    }
    this.list.reveal(entry, focus);
  }

  // goTo shows the entry that began with an event, once it is there: older ones are loaded until it
  // is.
  goTo(place) {
    this.wanted = place;
    this.feed?.readsEnd(false);
    this.seek();
  }

  seek() {
    const { wanted, feed } = this,
      entries = wanted && feed ? feed.timeline.entries.filter((e) => e.place &&
        e.kind !== "mark") : [],
      [first] = entries;
    if (!first) return;
    const isHere = isOfOneSession(first.place, wanted),
      isOlder = isBefore(wanted, first.place);
    if (isHere && isOlder && feed.hasOlder()) return feed.loadOlder();
    if (isHere && isBefore(entries.at(-1).place, wanted) && !feed.ended) return;
    this.wanted = null;
    if (!isHere) return toast("The entry of this address is gone: the session has begun anew since.");
    if (isOlder) toast("The gateway keeps the entry of this address no more. This is the oldest that it has.");
    this.reveal(entries.findLast((e) => !isBefore(wanted, e.place)) ?? first);
  }

  // copyAddress copies the address of the entry that has the focus, else of the last one in sight.
  copyAddress() {
    copyAddress(document.activeElement.closest(".entry") ??
      this.list.elements.get(this.list.inSight().findLast((e) => e.place && e.ts)));
  }

  shows(entry) {
    return !this.hiddenKinds.has(entry.kind) && !isFolded(entry);
  }

  // refill shows the entries again that are to be shown: from their end, or where an entry is that
  // the person reads.
  refill(keep) {
    const entries = this.feed?.timeline.entries ?? [];
    this.list.reset(entries.filter((e) => this.shows(e)), keep);
    this.updateEmpty();
    this.find.changed();
    this.seek();
    this.loadOlder();
  }

  news({ added, changed }) {
    for (const entry of changed) this.list.change(entry);
    for (const e of this.list.elements.keys()) if (e.kind === "prompt") this.list.change(e);
    this.list.append(added.filter((e) => this.shows(e)));
    this.list.trim(this.feed.keep);
    if (added.some((e) => e.kind === "prompt")) this.turns.use();
    this.updateEmpty();
    this.find.changed();
    this.seek();
    this.loadOlder();
  }

  // loadOlder asks for what is older when the person has scrolled up to the top, or looks for a
  // text in all of it.
  loadOlder() {
    if ((!this.list.following && this.scroller.scrollTop < nearTop) ||
      this.find.isActive) this.feed?.loadOlder();
  }

  // addOlder adds entries above the others.
  addOlder(entries) {
    this.list.prepend(entries.filter((e) => this.shows(e)));
    this.turns.use();
    this.updateEmpty();
    this.find.changed();
    this.seek();
    this.loadOlder();
  }

  updateEmpty() {
    const all = this.feed?.timeline.entries.length ?? 0;
    setText(this.empty,
      this.list.blocks.length ? "" : all ? "Nothing that you show matches." : "Nothing has happened yet.");
    this.scroller.dataset.entries = all;
  }

  // update shows the session's state from the list of sessions. Until that is known nothing is
  // seen, so that nothing moves when it comes.
  update(isKnown = this.isKnown) {
    this.isKnown = isKnown;
    this.element.classList.toggle("unknown", !isKnown);
    if (!this.feed) return;
    const s = this.app.state.sessions.find((it) => it.id === this.id);
    const was = this.session;
    this.session = s ?? { ...(was?.id === this.id ? was : { id: this.id, label: this.id }),
      state: "ended" };
    const { label, state, model, host, cwd, foreground, waitsFor } = this.session;
    setText(this.title, label || this.id);
    setText(this.chip, state);
    this.chip.className = `chip ${state}`;
    this.meta.replaceChildren(
      ...[model || "no model", host, cwd].filter(Boolean).map((t, i) =>
        h("span", { class: i === 2 ? "path" : "" }, plain(t))),
      ...(foreground ? [h("span.tag", "foreground")] : []),
      ...(waitsFor?.length ? [h("span.tag", { title: "Calls wait for it, and are then denied." },
        plain(`waits for ${waitsFor.join(", ")}`))] : []),
      this.usage,
    );
    const over = !s || state === "ending";
    for (const b of [this.interrupt, this.front, this.model, this.rename,
      this.stop]) b.hidden = over;
    this.resume.hidden = Boolean(s || (host && host !== "copilot"));
    this.interrupt.hidden ||= state !== "busy";
    this.front.hidden ||= foreground;
    this.model.hidden ||= host === "local";
    this.composer.hidden = over;
    if (was?.id !== this.id) {
      setText(this.usage, "");
      this.turns.counted = [];
      this.figures.replaceChildren();
    }
    if (was?.id !== this.id || was.state !== state) {
      this.showUsage();
      this.drawFigures();
    }
    if (was?.id === this.id && was.state === "busy" && state === "idle") this.turnEnded();
    this.attached.draw();
    this.buttons();
  }

  // showUsage reads and shows how many tokens the session used.
  async showUsage() {
    const { id, host } = this.session;
    const u = host === "local" || this.composer.hidden ? null : await sessions.usage(id).catch(() =>
      null);
    if (id !== this.id || !u?.total.calls) return;
    this.turns.use(u.turns);
    const context = u.contextLimit ? `, context ${share(u.contextTokens, u.contextLimit)}` : "";
    setText(this.usage, `${short(u.total.inputTokens)} tokens in, ${short(u.total.outputTokens)} out${context}`);
  }

  turnEnded() {
    const last = this.feed.timeline.entries.findLast((e) => e.kind === "message" && e.text);
    announce(`${this.session.label} is idle. ${last ? oneLine(last.text, 200) : ""}`);
  }

  // edited keeps what is in the prompt box for this tab, so that it is there after a reload.
  edited() {
    sessionStorage.setItem(draft(this.id), this.prompt.value);
    this.buttons();
  }

  buttons() {
    const busy = this.session?.state === "busy";
    this.steer.hidden = !busy;
    setText(this.submit, busy ? "Queue" : "Send");
    this.submit.disabled = this.steer.disabled = !this.prompt.value.trim();
  }

  async send(mode) {
    const { id } = this,
      text = this.prompt.value;
    if (!text.trim() || this.sending) return;
    this.sending = true;
    this.offers.show([]);
    this.list.follow(true);
    try {
      const { attachments, sent } = await this.attached.request(text, this.session.cwd),
        command = text.startsWith("/") && await this.offers.command(id, text);
      if (command && attachments.length) throw new Error("A command takes no files: remove them first.");
      await (command ? sessions.run(id, command) : sessions.query(id, text, mode, attachments));
      sent();
      if (sessionStorage.getItem(draft(id)) === text) sessionStorage.removeItem(draft(id));
      if (id === this.id && this.prompt.value === text) {
        this.prompt.value = this.earlier.end();
        if (this.prompt.value) this.edited();
      }
    } catch (e) {
      toast(e.message, "error");
    } finally {
      this.sending = false;
      this.buttons();
    }
  }

  askStop() {
    const { id, label } = this.session;
    return confirm("Stop the session?",
      `“${label}” ends for all who take part in it. Providers have ten seconds to clean up.`,
        "Stop session",
      () => sessions.stop(id));
  }
}
