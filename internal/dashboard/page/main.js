import { ActivityView } from "./activity.js";
import { get, post, signOutEvents } from "./api.js";
import { announce, attempt } from "./dialogs.js";
import { h, reconcile, setText } from "./dom.js";
import { Feed } from "./feed.js";
import { follow } from "./follow.js";
import { count } from "./format.js";
import { help, key, listen } from "./keys.js";
import { ProvidersView } from "./providers.js";
import { SessionsView, startDialog } from "./sessions.js";
import { signIn } from "./signin.js";
import { StreamsView } from "./streams.js";
import { Waiting } from "./waiting.js";

const narrow = 800; // pixels, as in the stylesheet
const refresh = 2000; // ms between two readings of the diagnostics, while a view shows them

// App holds the gateway's state and dispatches an event when a part of it changes: the events of
// /api/v1/events by their names, "diagnostics", "feed" when another session is followed, and "news" when
// something happened in that session.
class App {
  constructor() {
    this.state = {
      status: null, sessions: [], providers: [], pairings: [], questions: [], tools: [], diagnostics: null,
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

const decoded = (part) => {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
};

const titles = { sessions: "Sessions", providers: "Providers", streams: "Streams", activity: "Activity",
  recordings: "Recordings" };

// recordings is a view whose module is loaded when somebody looks at it, since few people ever do.
const recordings = {
  element: h("section", { class: "view recording", "aria-label": "Recordings" }),
  load() {
    this.loading ??= import("./recordings.js").then(({ RecordingsView }) => new RecordingsView(this.element));
    return this.loading;
  },
  update() {
    this.load();
  },
};

// acceptFiles opens a recording that is dropped anywhere on the page.
function acceptFiles() {
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

function run() {
  const app = new App();
  const views = {
    sessions: new SessionsView(app), providers: new ProvidersView(app), streams: new StreamsView(app),
    activity: new ActivityView(app), recordings,
  };
  const links = Object.fromEntries(
    Object.entries(titles).map(([name, title]) => [name, h("a", { href: `#/${name}` }, title)]),
  );
  const connection = h("span", { class: "connection", role: "status" });
  const version = h("span", { class: "version" });
  const banners = h("div", { class: "banners" });
  const main = h("main", null, Object.values(views).map((v) => v.element));
  document.body.replaceChildren(
    h("header", { class: "bar" },
      h("h1", null, "tapgw"),
      h("nav", { "aria-label": "Views" }, Object.values(links)),
      connection,
      version,
      h("button", { type: "button", class: "ghost", "aria-label": "Keys", title: "Keys (?)", onclick: help }, "?"),
      h("button", {
        type: "button",
        class: "ghost",
        onclick: (e) => attempt(e.target, () => post("/signout").then(() => location.reload())),
      }, "Sign out")),
    banners,
    new Waiting(app).element,
    main,
  );

  let shown;
  const route = () => {
    let [, name, id] = location.hash.split("/");
    if (!views[name]) [name, id] = ["sessions"];
    if (id !== undefined) id = decoded(id);
    if (id !== undefined) app.choose(id);
    else if (name === "sessions") app.choose(null);
    else if (name === "streams" && !app.feed)
      app.choose((app.state.sessions.find((s) => s.foreground) ?? app.state.sessions[0])?.id);
    if (shown !== name) {
      shown = name;
      for (const [n, a] of Object.entries(links)) {
        views[n].element.hidden = n !== name;
        n === name ? a.setAttribute("aria-current", "page") : a.removeAttribute("aria-current");
      }
      refreshDiagnostics();
    }
    views[name].update();
  };

  app.on("feed", () => {
    links.sessions.href = app.feed ? `#/sessions/${encodeURIComponent(app.feed.id)}` : "#/sessions";
  });

  let timer;
  const refreshDiagnostics = async () => {
    clearTimeout(timer);
    if (!document.hidden && (shown === "activity" || shown === "providers")) {
      await get("/diagnostics").then((d) => app.set("diagnostics", d), () => {});
      clearTimeout(timer);
      timer = setTimeout(refreshDiagnostics, refresh);
    }
  };
  document.addEventListener("visibilitychange", refreshDiagnostics);

  app.on("status", () => {
    const { status } = app.state;
    setText(version, status.version);
    const faults = status.faults.map((f) => `${f.file}:${f.line}:${f.column}: ${f.message}`);
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
      ...(faults.length
        ? [
            {
              key: faults.join(), level: "error", text: `${count(faults.length, "fault")} in config files`,
              lines: faults,
            },
          ]
        : []),
    ];
    reconcile(
      banners,
      list,
      (b) => b.key,
      ({ level, text, lines }) =>
        h("div", { class: `banner ${level}` },
          lines
            ? h(
                "details",
                { open: innerWidth > narrow },
                h("summary", null, text),
                h("ul", { tabindex: "0" }, lines.map((l) => h("li", null, h("code", null, l)))),
              )
            : text),
    );
  });
  app.on("sessions", () => {
    // A session that ended may run again with the same id.
    const { feed } = app,
      now = app.state.sessions.find((s) => s.id === feed?.id);
    if (now && feed.ended && feed.createdAt !== now.createdAt) app.follow(now.id);
    else if (now) feed.createdAt = now.createdAt;
    // The only session is opened at once.
    if (shown === "sessions" && !app.feed && app.state.sessions.length === 1 && innerWidth > narrow)
      location.replace(`#/sessions/${encodeURIComponent(app.state.sessions[0].id)}`);
    else if (shown === "streams" && !app.feed) route();
  });

  let lastState;
  const showConnection = (state) => {
    connection.className = `connection ${state}`;
    setText(connection, state === "live" ? "Live" : "Connection lost, trying again…");
    if (lastState && lastState !== state)
      announce(state === "live" ? "The connection is back" : "The connection to the gateway is lost");
    lastState = state;
  };
  const stream = follow("/api/v1/events", { state: showConnection, on: (name, data) => app.set(name, data) });

  signOutEvents.addEventListener(
    "signedout",
    () => {
      stream.close();
      app.feed?.close();
      location.reload();
    },
    { once: true },
  );

  for (const [i, [name, title]] of Object.entries(titles).entries())
    key(String(i + 1), `show ${title.toLowerCase()}`, () => links[name].click());
  key("j", "the next session", () => views.sessions.step(1));
  key("k", "the session before", () => views.sessions.step(-1));
  key("/", "write a prompt", () => views.sessions.session.prompt.focus());
  key("f", "find in the timeline", async () =>
    (shown === "recordings" ? await recordings.load() : views.sessions.session).find.focus());
  key("i", "interrupt the turn", () => views.sessions.session.interrupt.click());
  key("e", "follow the end of the timeline", () => views.sessions.session.list.follow(true));
  key("n", "start a session", () => startDialog(app));
  key("?", "this list", help);
  listen();
  acceptFiles();
  addEventListener("hashchange", route);
  route();
}

get("/status").then(run, (e) =>
  document.body.replaceChildren(
    e.status === 401
      ? signIn()
      : h("main", { class: "signin" }, h("h1", null, "tapgw"), h("p", { class: "fault" }, e.message)),
  ),
);
