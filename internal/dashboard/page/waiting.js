import { sessions } from "./api.js";
import { attempt } from "./dialogs.js";
import { h, reconcile, setText } from "./dom.js";
import { address, plain } from "./format.js";
import { freshTime, guardFresh } from "./fresh.js";

// A detail of more characters than this gets a line with its length.
const longDetail = 2000;

// waitingFor returns what waits for a person: questions, then pairing codes.
export function waitingFor({ pairings, questions }) {
  return [...questions.map((q) => ({ ...q, key: `q ${q.id}` })),
    ...pairings.map((p) => ({ ...p, key: `p ${p.provider} ${p.code}` }))];
}

// Asks shows as cards what waits for a person and is of a session, or of any if sessionOf() returns
// nothing. back() has the focus when the last card has gone that had it.
export class Asks {
  constructor(app, label, sessionOf, back) {
    this.app = app;
    this.sessionOf = sessionOf;
    this.back = back;
    this.element = h("section.asking", {
      tabindex: "-1", "aria-label": label, hidden: true,
      onfocusout: () => setTimeout(() => this.update()),
    });
    guardFresh(this.element);
    for (const name of ["pairings", "questions", "sessions"]) app.on(name, () => this.update());
    setInterval(() => this.tick(), 1000);
  }

  update() {
    const of = this.sessionOf(),
      items = waitingFor(this.app.state).filter((it) => !of || it.session === of),
      cards = [...this.element.children],
      waits = new Set(items.map((it) => it.key)),
      active = document.activeElement,
      here = active.closest(".card");
    let answered, kept = 0;
    for (const card of cards) {
      if (waits.has(card.dataset.key)) {
        kept++;
        continue;
      }
      if (!card.overAt) {
        this.end(card);
        if (card.answered && (active === document.body || card.contains(active))) answered = card;
      }
      // A question that is over leaves its place for a moment, so that no other one comes under the
      // pointer. It stays while the person is in it, with what is written there.
      const isWritten = card === here && !card.answered;
      if (card.of !== of || !isWritten && performance.now() - card.overAt >= freshTime) continue;
      items.splice(kept++, 0, { key: card.dataset.key });
    }
    reconcile(this.element, items, (it) => it.key, (it) => this.card(it, of),
      (card, it) => it.session && setText(card.querySelector(".of"), this.label(it.session)));
    this.element.hidden = !items.length;
    if (answered) (waits.size ? this.element : this.back()).focus({ preventScroll: true });
    this.tick();
  }

  // end shows that a card is over, and takes it away a little later.
  end(card) {
    card.overAt = performance.now();
    card.append(h("p.over", { role: "status" }, "This is over."));
    for (const button of card.querySelectorAll("button")) button.disabled = true;
    setTimeout(() => this.update(), freshTime);
  }

  label(id) {
    const s = this.app.state.sessions.find((it) => it.id === id);
    return s?.label || id;
  }

  tick() {
    for (const left of this.element.querySelectorAll("[data-expires]")) {
      const s = Math.max(0, Math.ceil((new Date(left.dataset.expires) - Date.now()) / 1000));
      setText(left, `${Math.floor(s / 60)}:${String(s % 60).padStart(2, "0")}`);
    }
  }

  card(it, session) {
    return Object.assign(this.makeCard(it), { tabIndex: -1, of: session });
  }

  makeCard(it) {
    const of = h("a.of", { href: address("sessions", it.session) });
    const left = it.expiresAt && h("span.left", { data: { expires: it.expiresAt } });
    if (it.code) {
      return h("article.card.pairing",
        h("p", h("strong", it.provider), " wants into ", of, ". Type this code into it:"),
        h("p", h("output.code-digits", it.code), left));
    }
    return h("article", { class: `card question ${it.kind}` },
      h("p.head", of, " asks", left),
      h("p.text", plain(it.message)),
      // The whole detail stands before the buttons, so that nobody allows something unseen.
      it.detail && h("pre", plain(it.detail)),
      it.detail?.length > longDetail &&
        h("p.head", `${it.detail.length.toLocaleString()} characters, to here`),
      (asking[it.kind] ?? asking.input)(it));
  }
}

async function answer(q, button, members) {
  const card = button.closest(".card");
  if (card.answered) return;
  card.answered = true;
  await attempt(button, () => sessions.answer(q.session,
    { question: q.id, ...members }).catch((e) => {
    card.answered = false;
    throw e;
  }));
  if (!card.answered && document.activeElement === document.body) button.focus();
}

// answerButton makes a button that answers a question.
function answerButton(q, label, members, kind = "") {
  const b = h("button", { class: kind, onclick: () => answer(q, b, members) }, label);
  return b;
}

const declineButton = (q) => answerButton(q, "Decline", { decision: "deny" }, "danger");

const asking = {
  permission: (q) => {
    const why = "Why not? (the model reads it)";
    const reason = h("input", { "aria-label": why, placeholder: why, autocomplete: "off" });
    const deny = h("button.danger", { type: "submit" }, "Deny");
    return h("form", {
      onsubmit: (e) => {
        e.preventDefault();
        answer(q, deny, { decision: "deny", text: reason.value.trim() || undefined });
      },
    },
      h("div.row", answerButton(q, "Allow once", { decision: "once" }, "primary"),
        answerButton(q, "Allow for this session", { decision: "session" })),
      h("div.row", reason, deny));
  },

  input: (q) => {
    const choices = (q.choices ?? []).map((text) => answerButton(q, plain(text), { text }));
    const decline = declineButton(q);
    if (choices.length && !q.freeform) return h("div.row", choices, decline);
    const text = h("input", { "aria-label": q.message, required: true, autocomplete: "off" });
    const b = h("button.primary", { type: "submit" }, "Answer");
    return h("form", {
      onsubmit: (e) => {
        e.preventDefault();
        answer(q, b, { text: text.value });
      },
    },
      choices.length > 0 && h("div.row", choices),
      h("div.row", text, b, decline));
  },

  form: (q) => {
    const fields = Object.entries(q.schema?.properties ?? {}).map(([name, schema]) =>
      formField(q, name, schema));
    const b = h("button.primary", { type: "submit" }, "Answer");
    return h("form.fields", {
      onsubmit: (e) => {
        e.preventDefault();
        const content = fields.map(({ name, value }) => [name, value()]).filter(([, value]) =>
          value !== undefined);
        answer(q, b, { content: Object.fromEntries(content) });
      },
    },
      fields.map((f) => f.element),
      h("div.row", b, declineButton(q)));
  },
};

// labelText is how a label of a form reads, which a program from anywhere may have sent.
const labelText = (label) => plain(String(label));

// choices returns the values that a schema allows, with their labels; undefined if it allows any
// value.
function choices({ enum: values, enumNames, oneOf, anyOf }) {
  if (values) return values.map((value, i) =>
    ({ value, label: labelText(enumNames?.[i] ?? value) }));
  const named = oneOf ?? anyOf;
  if (named?.every((it) => it.const !== undefined))
    return named.map((it) => ({ value: it.const, label: labelText(it.title ?? it.const) }));
}

// Types of inputs by the format of a schema.
const formats = new Map([["email", "email"], ["uri", "url"], ["date", "date"]]);

let fields = 0;

// formField makes the input for one property of a form, and value() to read it.
function formField(q, name, schema) {
  const id = `form-${++fields}-${name}`;
  const required = (q.schema.required ?? []).includes(name);
  const hint = schema.description && h("span.hint", labelText(schema.description));
  const one = choices(schema),
    many = schema.type === "array" && choices(schema.items ?? {});
  let input, value;
  if (many) {
    const boxes = many.map((it) =>
      h("input", { type: "checkbox", checked: [schema.default].flat().includes(it.value) }),
    );
    return {
      name,
      value: () => {
        const chosen = many.filter((_, i) => boxes[i].checked).map((it) => it.value);
        return chosen.length || required ? chosen : undefined;
      },
      element: h("fieldset.field", h("legend", labelText(schema.title ?? name)),
        many.map((it, i) => h("label.check", boxes[i], it.label)), hint),
    };
  } else if (one) {
    input = h("select", { id, required }, h("option", { value: "" }),
      one.map((it, i) => h("option", { value: String(i), selected: it.value === schema.default },
        it.label)));
    value = () => one[input.value || -1]?.value;
  } else if (schema.type === "boolean") {
    input = h("input", { id, type: "checkbox", checked: schema.default === true });
    value = () => input.checked;
  } else if (schema.type === "number" || schema.type === "integer") {
    input = h("input", {
      id, type: "number", required, step: schema.type === "integer" ? "1" : "any",
        min: schema.minimum,
      max: schema.maximum, value: schema.default ?? "",
    });
    value = () => (input.value === "" ? undefined : Number(input.value));
  } else {
    input = h("input", {
      id, type: formats.get(schema.format), required, minlength: schema.minLength,
        maxlength: schema.maxLength,
      value: schema.default ?? "", autocomplete: "off",
    });
    value = () => input.value || undefined;
  }
  return {
    name,
    value,
    element: h("div.field", h("label", { for: id }, labelText(schema.title ?? name)), input, hint),
  };
}
