import { get, loadLate, post, signOutEvents } from "./api.js";
import { announce, attempt, toast } from "./dialogs.js";
import { h, reconcile, setText } from "./dom.js";
import { Drawer } from "./drawer.js";
import { Feed } from "./feed.js";
import { follow } from "./follow.js";
import { address, count, decoded, plain, time } from "./format.js";
import { help, key, listen } from "./keys.js";
import { lookButton } from "./look.js";
import { openStart, SessionsView } from "./sessions.js";
import { signedOut, signIn } from "./signin.js";

const narrow = 800; // pixels, as in the stylesheet
const briefLoss = 1500; // ms without the gateway, as when it restarts, that need no banner
const diagnosticsEvery = 2000; // ms between two readings of the diagnostics, while a view shows them

// The states of /api/v1/events that the page always follows. A view that shows another one names it
// as its state.
const followed = ["status", "sessions", "providers", "configured", "pairings", "questions", "tools",
  "queue",
  "cluster"];

// App holds the gateway's state and dispatches an event when a part of it changes: the events of
// /api/v1/events by their names, "diagnostics", "feed" when another session is followed, and "news"
// when something happened in that session. A state that is null is not known yet.
class App {
  constructor() {
    this.state = {
      status: null, sessions: [], providers: [], configured: null, pairings: [], questions: [],
        tools: [], sources: null,
      goals: null, diagnostics: null, queue: [], rules: [],
      cluster: null,
    };
    this.events = new EventTarget();
    this.feed = null;
  }

  on(name, run) {
    this.events.addEventListener(name, run);
  }

  set(name, value) {
    this.state[name] = value;
    this.events.dispatchEvent(new Event(name));
  }

  // choose follows a session, unless it is followed already; no id follows none.
  choose(id) {
    if ((this.feed?.id ?? "") !== (id ?? "")) this.follow(id);
  }

  follow(id) {
    this.feed?.close();
    this.feed = id ? new Feed(id) : null;
    if (this.feed) this.feed.createdAt = this.state.sessions.find((s) => s.id === id)?.createdAt;
    for (const name of ["news", "reset"])
      this.feed?.addEventListener(name, () => this.events.dispatchEvent(new Event("news")));
    this.events.dispatchEvent(new Event("feed"));
  }
}

const titles = { sessions: "Sessions", providers: "Providers", streams: "Streams",
  activity: "Activity",
  sources: "Sources", goals: "Goals", records: "Records", recordings: "Recordings" };

// late makes a view whose module is imported when somebody looks at it, since few people look at
// all of them. make makes the view with the module, in an element. state is what else of the
// gateway the view shows.
function late(name, importIt, make, state) {
  const element = h("section", { class: `view ${name}`, "aria-label": titles[name] });
  let view;
  const load = () => (view ??= loadLate(importIt).then((m) => make(m, element)).catch((e) => {
    view = null; // until the gateway answers
    throw e;
  }));
  return {
    element,
    state,
    load,
    update: (rest) => load().then((it) => it.update?.(rest), (e) => toast(e.message, "error")),
    hide: () => view?.then((it) => it.hide?.(), () => {}),
  };
}

// acceptFiles opens a recording that is dropped anywhere on the page.
function acceptFiles(recordings) {
  const hasFile = (e) => e.dataTransfer?.types.includes("Files");
  document.addEventListener("dragover", (e) => hasFile(e) && e.preventDefault());
  document.addEventListener("drop", (e) => {
    if (!hasFile(e)) return;
    e.preventDefault();
    const [file] = e.dataTransfer.files;
    location.hash = "#/recordings";
    if (file) recordings.load().then((view) => view.open(file));
  });
}

// run shows the page. The stream of events would bring the list of sessions later, over a slow link
// by half a second.
function run(list) {
  const app = new App();
  const views = {
    sessions: new SessionsView(app),
    providers: late("providers", () => import("./providers.js"), (m, el) => new m.ProvidersView(el,
      app)),
    streams: late("streams", () => import("./streams.js"), (m, el) => new m.StreamsView(el, app)),
    activity: late("activity", () => import("./activity.js"), (m, el) => new m.ActivityView(el,
      app)),
    sources: late("sources", () => import("./sources.js"), (m, el) => new m.SourcesView(el, app),
      "sources"),
    goals: late("goals", () => import("./goals.js"), (m, el) => new m.GoalsView(el, app), "goals"),
    records: late("records", () => import("./records.js"), (m, el) => new m.RecordsView(el, app)),
    recordings: late("recordings", () => import("./recordings.js"),
      (m, el) => new m.RecordingsView(el)),
  };
  const links = Object.fromEntries(
    Object.entries(titles).map(([name, title]) => [name, h("a", { href: `#/${name}` }, title)]),
  );
  const connection = h("span.connection", { role: "status" });
  const drawer = new Drawer(app, () => views.sessions.session.asks);
  const version = h("span.version");
  const banners = h("section.banners", { "aria-label": "Warnings" });
  const since = h("span");
  const lost = h("div.banner.warning.row", { hidden: true },
    h("span", "The gateway does not answer since ", since,
      ". What you see is of then; what you write stays. " +
      "If it has ended, open the page of a new one: ", h("code", "tapctl open")),
    h("button", { onclick: () => dispatchEvent(new Event("online")) }, "Try now"));
  const main = h("main", Object.values(views).map((v) => v.element));
  document.body.replaceChildren(
    h("header.bar",
      h("h1", "tapgw"),
      h("nav", { "aria-label": "Views" }, Object.values(links)),
      connection,
      version,
      drawer.button,
      lookButton,
      h("button.ghost", { "aria-label": "Keys", title: "Keys (?)", onclick: help }, "?"),
      h("button.ghost", {
        onclick: (e) => attempt(e.target, () => post("/signout").then(() => location.reload())),
      }, "Sign out")),
    lost,
    banners,
    main,
  );

  let shown, stream;
  const statesOf = (name) =>
    `/events?name=${[...followed, views[name].state].filter(Boolean).join("&name=")}`;
  const route = () => {
    let [, name, rest, place] = location.hash.split("/");
    if (!views[name]) [name, rest, place] = ["sessions"];
    const ofSession = name === "sessions" || name === "streams";
    if (ofSession && rest !== undefined) app.choose(decoded(rest));
    else if (name === "sessions") app.choose(null);
    else if (name === "streams" && !app.feed)
      app.choose((app.state.sessions.find((s) => s.foreground) ?? app.state.sessions[0])?.id);
    if (shown !== name) {
      views[shown]?.hide?.();
      if (stream && views[name].state !== views[shown]?.state) stream.to(statesOf(name));
      shown = name;
      links[name].scrollIntoView({ block: "nearest", inline: "nearest" });
      for (const [n, a] of Object.entries(links)) {
        views[n].element.hidden = n !== name;
        n === name ? a.setAttribute("aria-current", "page") : a.removeAttribute("aria-current");
      }
      refreshDiagnostics();
    }
    views[name].update(rest);
    if (name === "sessions" && place) views.sessions.session.goTo(place);
  };

  app.on("feed", () => {
    links.sessions.href = app.feed ? address("sessions", app.feed.id) : "#/sessions";
  });

  let timer;
  const refreshDiagnostics = async () => {
    clearTimeout(timer);
    if (!document.hidden && (shown === "activity" || shown === "providers")) {
      await Promise.all([get("/rules"), get("/diagnostics")]).then(([rules, diagnostics]) => {
        app.state.rules = rules;
        app.set("diagnostics", diagnostics);
      }, () => {});
      clearTimeout(timer);
      timer = setTimeout(refreshDiagnostics, diagnosticsEvery);
    }
  };
  document.addEventListener("visibilitychange", refreshDiagnostics);

  const warn = () => {
    const { status, configured } = app.state;
    if (!status || !configured) return;
    setText(version, (version.title = status.version));
    // What is wrong with a provider stands at the provider.
    const wrong = new Map();
    const faults = [];
    for (const f of status.faults) {
      const of = configured.filter((c) => c.file === f.file);
      const broken = of.filter((c) => c.state !== "running");
      for (const c of broken.length ? broken : of) wrong.set(`${c.file} ${c.name}`, c);
      if (!of.length) faults.push(`${f.file}:${f.line}:${f.column}: ${f.message}`);
    }
    const list = [
      ...(status.restOpen
        ? [
            {
              key: "open",
              level: "warning",
              text: 'The session API is open ([api] auth = "none"): every program on this machine can start, ' +
                "prompt and stop sessions without a token.",
            },
          ]
        : []),
      ...(wrong.size
        ? [
            {
              key: [...wrong.keys()].join("\n"), level: "error",
                text: `${count(wrong.size, "provider")} with a fault: `,
              links: [...wrong.values()].map(({ kind, name }) => h("a", {
                href: address(kind === "source" ? "sources" : "providers", name),
              }, plain(name))),
            },
          ]
        : []),
      ...(faults.length
        ? [
            {
              key: faults.join(), level: "error",
                text: `${count(faults.length, "fault")} in config files`,
              lines: faults,
            },
          ]
        : []),
    ];
    reconcile(
      banners,
      list,
      (b) => b.key,
      ({ level, text, links, lines }) =>
        h("div", { class: `banner ${level}` },
          links ? [text, links.flatMap((a, i) => (i ? [", ", a] : [a]))].flat() : lines
            ? h(
                "details",
                { open: innerWidth > narrow },
                h("summary", text),
                h("ul", { tabindex: "0" }, lines.map((l) => h("li", h("code", l)))),
              )
            : text),
    );
  };
  for (const name of ["status", "configured"]) app.on(name, warn);
  app.on("sessions", () => {
    // A session that ended may run again with the same id.
    const { feed } = app,
      now = app.state.sessions.find((s) => s.id === feed?.id);
    if (now && feed.ended && feed.createdAt !== now.createdAt) app.follow(now.id);
    else if (now) feed.createdAt = now.createdAt;
    // The only session is opened at once, unless the person is on the way to another view.
    const isList = shown === "sessions" && ["", "#/", "#/sessions"].includes(location.hash);
    if (isList && !app.feed && app.state.sessions.length === 1 && innerWidth > narrow)
      location.replace(address("sessions", app.state.sessions[0].id));
    else if (shown === "streams" && !app.feed) route();
  });

  let lastState, notice;
  const showConnection = (state) => {
    connection.className = `connection ${state}`;
    if (state !== lastState) {
      clearTimeout(notice);
      if (state === "live") lost.hidden = true;
      else notice = setTimeout(() => (lost.hidden = false), briefLoss);
      setText(since, time(new Date()));
    }
    setText(connection, state === "live" ? "Live" : "Connection lost, trying again…");
    if (lastState && lastState !== state)
      announce(state === "live" ? "The connection is back" : "The connection to the gateway is lost");
    lastState = state;
  };
  signOutEvents.addEventListener(
    "signedout",
    () => {
      stream.close();
      app.feed?.close();
      document.body.replaceChildren(signedOut()); // what answers now may be no gateway, so nothing is loaded from it
    },
    { once: true },
  );

  for (const [i, [name, title]] of Object.entries(titles).entries())
    key(String(i + 1), `show ${title.toLowerCase()}`, () => links[name].click());
  key("j", "the next session", () => views.sessions.step(1));
  key("k", "the session before", () => views.sessions.step(-1));
  key("/", "write a prompt", () => views.sessions.session.prompt.focus());
  key("f", "find in the timeline", async () =>
    ((await views[shown].load?.())?.find ?? views.sessions.session.find).focus());
  key("l", "copy the address of the entry", () => views.sessions.session.copyAddress());
  key("i", "interrupt the turn", () => views.sessions.session.interrupt.click());
  key("e", "follow the end of the timeline", () => views.sessions.session.list.follow(true));
  key("c", "fold the turn, or unfold it", () => views.sessions.session.turns.toggle());
  key("n", "start a session", () => openStart(app));
  key("s", "search the sessions", () => views.sessions.search.focus());
  key("w", "all that waits for you", () => drawer.toggle(), true);
  key("q", "the next question", () => drawer.next(), true);
  key("a", "allow what the chosen question asks", (e) => drawer.decide(e, ".permission .primary"),
    true);
  key("d", "deny it", (e) => drawer.decide(e, ".danger"), true);
  key("?", "this list", help);
  listen();
  acceptFiles(views.recordings);
  addEventListener("hashchange", route);
  route();
  app.set("sessions", list);
  stream = follow(statesOf(shown),
    { state: showConnection, on: (name, data) => app.set(name, data) });
}

get("/sessions").then(run, (e) =>
  document.body.replaceChildren(
    e.status === 401
      ? signIn()
      : h("main.signin", h("h1", "tapgw"), h("p.fault", e.message),
        h("button", { onclick: () => location.reload() }, "Try again")),
  ),
);
