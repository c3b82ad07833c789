import { get, persisted, sessions } from "./api.js";
import { dialog, field, toast } from "./dialogs.js";
import { h } from "./dom.js";
import { address } from "./format.js";

const remembered = "tapgw.start"; // of the last start
const drafted = "tapgw.draft"; // of the one that is written
const secrets = ["providerKey", "githubToken"]; // kept nowhere
const efforts = ["low", "medium", "high", "xhigh", "max"];

const open = (id) => {
  location.hash = address("sessions", id);
};

const inputOf = (given) => (name, props) =>
  h("input", {
    id: `start-${name}`, name, autocomplete: "off", spellcheck: "false", value: given[name] ??
      "", ...props,
  });

// effortSelect offers the efforts that a model knows.
function effortSelect(chosen) {
  const select = h("select", { id: "start-effort", name: "effort" });
  select.offer = (known) => {
    const now = select.value || chosen;
    select.replaceChildren(...["", ...known].map((e) =>
      h("option", { value: e, selected: e === now }, e || "the model's own")));
  };
  return select;
}

// modelFields makes the fields of how a session reaches its model; given has what stands in them.
function modelFields(given, input) {
  const models = h("datalist", { id: "start-models" }), note = h("p.hint");
  let list = [];
  const effort = effortSelect(given.effort);
  const offer = () => {
    const known = list.find((m) => m.id === model.value)?.efforts;
    effort.offer(known?.length ? known : efforts);
  };
  const model = input("model", { list: models.id, oninput: offer });
  offer();
  get("/models?host=copilot").then((found) => {
    list = found;
    models.append(...list.map((m) => h("option", { value: m.id }, m.name)));
    offer();
  }, (e) => note.append(`The models can't be listed: ${e.message}`));
  return h("div.fields",
    field("Model (empty: the default)", model, models, note), field("Reasoning effort", effort),
    h("details", { open: given.profile || given.providerUrl ? true : null },
      h("summary", "Profile, model endpoint, account"),
      h("div.fields",
        field("Profile of tapgw.toml", input("profile")),
        field("Model endpoint of your own (URL, OpenAI wire)",
          input("providerUrl", { inputmode: "url" })),
        field("Its key", input("providerKey", { type: "password" })),
        field("GitHub token of another account", input("githubToken", { type: "password" })))));
}

// ask shows a dialog. send(request) gets what is written in its fields, by the API's names. keep
// gets it, but for secrets, while it is written.
function ask(title, content, label, send, keep, error) {
  const form = h("div.fields", { oninput: () => keep?.(written(form, secrets)) }, content);
  return dialog(title, form, [[label, () => send(written(form, [])), "primary"]], error);
}

const written = (form, without) =>
  Object.fromEntries([...form.querySelectorAll("[name]")]
    .map(({ name, type, value, checked }) => [name, type === "checkbox" ? checked : value.trim()])
    .filter(([name, value]) => value && !without.includes(name)));

// startDialog asks for the settings of a new session, starts it, gives it its first prompt and
// opens it. What is written stays for the next time until it has started.
export async function startDialog(app) {
  const given = JSON.parse(sessionStorage.getItem(drafted) ?? localStorage.getItem(remembered)) ??
    {};
  const cwds = [...new Set([given.cwd, ...app.state.sessions.map((s) => s.cwd)].filter(Boolean))];
  const input = inputOf(given), model = modelFields(given, input);
  const choose = () => (model.hidden = host.value === "local");
  const host = h("select", { id: "start-host", name: "host", onchange: choose },
    ["copilot", "local"].map((v) =>
      h("option", { value: v, selected: v === given.host },
        v === "local" ? "local (no model)" : v)));
  choose();
  const cwd = input("cwd", { list: "start-cwds", required: true, value: cwds[0] ?? "" });
  if (!cwds.length) {
    // The gateway's own directory is the default, but not in a field that somebody is in: it would
    // join what they type.
    fetch("/api/config").then((r) => r.json()).then(({ repoRoot }) => {
      if (document.activeElement !== cwd) cwd.value ||= repoRoot ?? "";
    }).catch(() => {});
  }
  const keep = (all) => sessionStorage.setItem(drafted, JSON.stringify(all));
  await ask("New session", [
    field("Host", host),
    field("Working directory (absolute)", cwd, h("datalist", { id: "start-cwds" },
      cwds.map((c) => h("option", { value: c })))),
    field("First prompt (may be empty)",
      h("textarea", { id: "start-prompt", name: "prompt", rows: "2", value: given.prompt ?? "" })),
    field("Label (empty: the directory's name)", input("label")),
    model,
  ], "Start", async ({ prompt, ...request }) => {
    const { host, cwd, label, providerKey, githubToken, ...rest } = request;
    const { id } = await sessions.start(host === "local" ? { host, cwd, label } : request);
    localStorage.setItem(remembered, JSON.stringify({ host, cwd, ...rest }));
    sessionStorage.removeItem(drafted);
    if (prompt) {
      await sessions.query(id, prompt).catch((e) => {
        sessionStorage.setItem(`draft ${id}`, prompt);
        if (app.feed?.id === id) app.follow(id);
        toast(`Its first prompt stands in the prompt box: ${e.message}`, "error");
      });
    }
    open(id);
  }, keep);
}

// resume resumes a session that ended and opens it. What it lacks for that is asked for.
export async function resume({ id, label, cwd }) {
  const send = async (request) => {
    await persisted.resume(id, request);
    open(id);
  };
  try {
    return await send();
  } catch (e) {
    if (e.code !== "INVALID_JSON") throw e;
    const input = inputOf({});
    return ask(`Resume ${label || id}`, [
      h("p.hint", "What you leave empty is as it was."),
      field("Working directory (absolute)", input("cwd", { placeholder: cwd })),
      modelFields({}, input),
      h("label.check", h("input", { type: "checkbox", name: "continuePendingWork" }),
        "Make the pending tool calls again"),
    ], "Resume", send, null, e);
  }
}

// rename asks for another label of a session.
export const rename = ({ id, label }) =>
  ask("Rename the session",
    field("Label", inputOf({ label })("label", { required: true, maxlength: "200" })),
    "Rename", (request) => sessions.rename(id, request.label));

// changeModel asks for another model of a session.
export async function changeModel(session) {
  const models = await get(`/models?host=${encodeURIComponent(session.host)}`);
  const effort = effortSelect();
  const box = field("Reasoning effort", effort);
  const efforts = () => {
    const known = models.find((m) => m.id === model.value)?.efforts ?? [];
    box.hidden = !known.length;
    effort.offer(known);
  };
  const model = h("select", { id: "model", name: "model", onchange: efforts },
    models.map((m) =>
      h("option", { value: m.id, selected: m.id === session.model },
        m.name && m.name !== m.id ? `${m.name} (${m.id})` : m.id)));
  efforts();
  await ask("Change the model", [field("Model", model), box], "Change",
    (request) => sessions.model(session.id, request.model, request.effort));
}
