import { get, persisted, sessions } from "./api.js";
import { attempt, dialog } from "./dialogs.js";
import { arrows, h, reconcile, setText } from "./dom.js";
import { ago, date, tail } from "./format.js";
import { SessionView } from "./session.js";

// SessionsView shows the list of sessions and the session that is chosen.
export class SessionsView {
  constructor(app) {
    this.app = app;
    this.items = h("ul", { class: "items" });
    arrows(this.items, "a");
    this.none = h("p", { class: "empty" }, "No session runs. Start one here, or with tapctl sessions start.");
    this.session = new SessionView(app);
    this.pick = h("p", { class: "empty pick" }, "Choose a session.");
    const resume = h("button", { type: "button", class: "ghost", onclick: () => attempt(resume, resumeDialog) },
      "Resume…");
    this.element = h("div", { class: "view sessions" },
      h("section", { class: "side", "aria-label": "Sessions" },
        h("header", null, h("h2", null, "Sessions"), resume,
          h("button", { type: "button", onclick: () => startDialog(app) }, "New…")),
        this.items,
        this.none),
      this.session.element,
      this.pick);
    app.on("sessions", () => this.update());
    app.on("questions", () => this.update());
    app.on("feed", () => {
      this.session.show(app.feed);
      this.update();
    });
  }

  update() {
    const { sessions: list, questions } = this.app.state;
    this.none.hidden = list.length > 0;
    this.pick.hidden = Boolean(this.app.feed) || !list.length;
    this.element.classList.toggle("chosen", Boolean(this.app.feed));
    reconcile(
      this.items,
      list,
      (s) => s.id,
      (s) =>
        h("li", null,
          h("a", { href: `#/sessions/${encodeURIComponent(s.id)}` }, h("span", { class: "dot", role: "img" }),
            h("span", { class: "label" }), h("span", { class: "tags" }), h("span", { class: "sub" }),
            h("span", { class: "sub path" }))),
      (li, s) => {
        const a = li.firstChild;
        const [dot, label, tags, sub, path] = a.children;
        dot.className = `dot ${s.state}`;
        dot.setAttribute("aria-label", s.state);
        setText(label, s.label || s.id);
        const asks = questions.some((q) => q.session === s.id);
        setText(tags, asks ? "asks you" : s.foreground ? "foreground" : "");
        tags.classList.toggle("asks", asks);
        setText(sub, [s.model || "no model", s.host, ago(s.createdAt)].join(" · "));
        setText(path, tail(s.cwd));
        a.title = `${s.id}\n${s.cwd}\nsince ${date(s.createdAt)}`;
        const chosen = s.id === this.app.feed?.id;
        if (chosen === a.hasAttribute("aria-current")) return;
        chosen ? a.setAttribute("aria-current", "page") : a.removeAttribute("aria-current");
        if (chosen) a.scrollIntoView({ block: "nearest" });
      },
    );
    this.session.update();
  }

  // step chooses the session by places further down the list.
  step(by) {
    const list = this.app.state.sessions;
    const i = list.findIndex((s) => s.id === this.app.feed?.id);
    const to = list[i < 0 ? 0 : i + by];
    if (to) location.hash = `#/sessions/${encodeURIComponent(to.id)}`;
  }
}

const remembered = "tapgw.start";

// startDialog asks for the settings of a new session, starts it and opens it.
export async function startDialog(app) {
  let last = {};
  try {
    last = JSON.parse(localStorage.getItem(remembered)) ?? {};
  } catch {
    // No session was started in this browser yet.
  }
  const cwds = [...new Set([last.cwd, ...app.state.sessions.map((s) => s.cwd)].filter(Boolean))];
  const host = h("select", { id: "start-host", onchange: () => offer() },
    ["copilot", "local"].map((v) =>
      h("option", { value: v, selected: v === last.host }, v === "local" ? "local (no model)" : v),
    ));
  const models = h("datalist", { id: "start-models" });
  const model = h("input", {
    id: "start-model", list: "start-models", autocomplete: "off", spellcheck: "false", value: last.model ?? "",
  });
  const cwd = h("input", {
    id: "start-cwd", list: "start-cwds", autocomplete: "off", spellcheck: "false", required: true, value: cwds[0] ?? "",
  });
  const label = h("input", { id: "start-label", autocomplete: "off" });
  const modelField = h("div", { class: "field" }, h("label", { for: "start-model" }, "Model (empty: the default)"),
    model, models);
  const offer = async () => {
    modelField.hidden = host.value === "local";
    if (modelField.hidden || models.childElementCount) return;
    const list = await get(`/models?host=${host.value}`).catch(() => []);
    models.replaceChildren(...list.map((m) => h("option", { value: m.id }, m.name)));
  };
  offer();
  if (!cwds.length) {
    // The gateway's own directory is the default.
    fetch("/api/config")
      .then((r) => r.json())
      .then(({ repoRoot }) => {
        if (!cwd.value) cwd.value = repoRoot ?? "";
      })
      .catch(() => {});
  }
  await dialog(
    "New session",
    [
      h("div", { class: "field" }, h("label", { for: "start-host" }, "Host"), host),
      modelField,
      h("div", { class: "field" }, h("label", { for: "start-cwd" }, "Working directory (absolute)"), cwd,
        h("datalist", { id: "start-cwds" }, cwds.map((c) => h("option", { value: c })))),
      h("div", { class: "field" }, h("label", { for: "start-label" }, "Label (empty: the directory's name)"), label),
    ],
    [
      [
        "Start",
        async () => {
          const request = {
            host: host.value, model: host.value === "local" ? "" : model.value.trim(), cwd: cwd.value.trim(),
            label: label.value.trim(),
          };
          const { id } = await sessions.start(request);
          localStorage.setItem(remembered,
            JSON.stringify({ host: request.host, model: model.value.trim(), cwd: request.cwd }));
          location.hash = `#/sessions/${encodeURIComponent(id)}`;
        },
        "primary",
      ],
    ],
  );
}

const offered = 50; // sessions that ended, the newest

// resumeDialog lists the sessions that ended, resumes one and opens it.
async function resumeDialog() {
  const list = (await persisted.list(offered)).filter((s) => s.state === "stored");
  const item = (s) => {
    const b = h("button", {
      type: "button",
      onclick: () =>
        attempt(b, async () => {
          const { id } = await persisted.resume(s.id);
          location.hash = `#/sessions/${encodeURIComponent(id)}`;
          b.closest("dialog").close();
        }),
    }, "Resume");
    return h("li", null,
      h("div", null, h("strong", null, s.label || s.summary || s.id),
        h("div", { class: "sub" }, [s.model, tail(s.cwd), s.branch, ago(s.usedAt)].filter(Boolean).join(" · "))),
      b);
  };
  await dialog(
    "Resume a session",
    list.length
      ? h("ul", { class: "choices", tabindex: "0" }, list.map(item))
      : h("p", { class: "hint" }, "There is none to resume."),
  );
}
