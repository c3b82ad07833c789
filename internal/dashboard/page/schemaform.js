// A form for a value that a JSON Schema describes. What no field expresses is written as JSON: in a
// field of its own for a part, and for all beside the form. The gateway judges the value; its
// faults are shown at their fields.

import { h, setText } from "./dom.js";
import { isObject, plain } from "./format.js";

const depthMost = 6;
const fieldsMost = 300; // a schema that refers to itself would have no end
const itemsMost = 100;
const inputTypes = new Map([["email", "email"], ["uri", "url"], ["date", "date"],
  ["time", "time"]]);
let ids = 0;

const text = (v) => plain(typeof v === "string" ? v : JSON.stringify(v));
const unescaped = (part) => part.replaceAll("~1", "/").replaceAll("~0", "~");

// resolve follows references inside the schema.
function resolve(schema, root) {
  for (let hops = 0; isObject(schema) && typeof schema.$ref === "string" && hops < 20; hops++) {
    if (!schema.$ref.startsWith("#/")) return {};
    const target = schema.$ref.slice(2).split("/").reduce((at, part) => at?.[unescaped(part)],
      root);
    const { $ref, ...rest } = schema;
    schema = isObject(target) ? { ...target, ...rest } : {};
  }
  return isObject(schema) ? schema : {};
}

// choicesOf returns the values that a schema allows, with labels; undefined if it does not list
// them.
function choicesOf(schema) {
  if ("const" in schema) return [[schema.const, text(schema.const)]];
  if (Array.isArray(schema.enum)) return schema.enum.map((v) => [v, text(v)]);
  const named = schema.oneOf ?? schema.anyOf;
  if (Array.isArray(named) && named.length && named.every((it) => isObject(it) && "const" in it))
    return named.map((it) => [it.const, text(it.title ?? it.const)]);
}

function typeOf(schema, depth, form) {
  if (form.fields++ > fieldsMost || depth > depthMost) return "json";
  if (choicesOf(schema)) return "choice";
  const types = [schema.type ?? (isObject(schema.properties) ? "object" : [])].flat().filter((t) =>
    t !== "null");
  if (types.length !== 1) return "json";
  if (types[0] === "object") return isObject(schema.properties) ? "object" : "json";
  if (types[0] === "array") return isObject(schema.items) && !schema.prefixItems ? "array" : "json";
  return Object.hasOwn(fieldKinds, types[0]) ? types[0] : "json";
}

// leaf makes the field of a value without parts. read() returns what the input says, write(value)
// shows a value, or returns false if the input can't; the value is kept then until somebody changes
// the input.
function leaf(f, input, read, write) {
  let odd;
  input.addEventListener("input", () => {
    odd = undefined;
    setText(f.note, "");
    f.form.edited();
  });
  Object.assign(input, { id: f.id });
  input.setAttribute("aria-describedby", `${f.id}-about`);
  if (f.required) input.setAttribute("aria-required", "true");
  return {
    input,
    get: () => (odd ? odd.value : read()),
    set(value) {
      odd = write(value) === false ? { value } : undefined;
      setText(f.note, odd ? `As JSON: ${text(value).slice(0, 200)}` : "");
    },
  };
}

const fieldKinds = {
  choice(f) {
    const all = choicesOf(f.schema).slice(0, 1000);
    const input = h("select", h("option", { value: "" }, f.required ? "" : "not given"),
      all.map(([, label], i) => h("option", { value: String(i) }, label)));
    return leaf(f, input, () => (input.value === "" ? undefined : all[input.value][0]), (v) => {
      const i = all.findIndex(([it]) => JSON.stringify(it) === JSON.stringify(v));
      input.value = i < 0 ? "" : String(i);
      return v === undefined || i >= 0;
    });
  },

  boolean: (f) => fieldKinds.choice({ ...f, schema: { enum: [true, false] } }),

  string(f) {
    let isEmptyText = false; // "" was given
    const type = inputTypes.get(f.schema.format);
    const input = type ? h("input", { type, autocomplete: "off" }) : h("textarea",
      { rows: "1", spellcheck: "false" });
    input.addEventListener("input", () => (isEmptyText = false));
    return leaf(f, input,
      () => (input.value === "" && !isEmptyText && !f.isItem ? undefined : input.value),
      (v) => {
        isEmptyText = v === "";
        input.value = typeof v === "string" ? v : "";
        return v === undefined || input.value === v;
      });
  },

  number(f) {
    const input = h("input", { inputmode: "decimal", autocomplete: "off" });
    return leaf(f, input, () => {
      const s = input.value.trim();
      return s === "" ? undefined : Number.isFinite(Number(s)) ? Number(s) : s; // the gateway says what is wrong with it
    }, (v) => {
      input.value = typeof v === "number" ? String(v) : "";
      return v === undefined || typeof v === "number";
    });
  },

  integer: (f) => fieldKinds.number(f),

  json(f) {
    const input = h("textarea.mono", { rows: "2", spellcheck: "false", placeholder: "JSON" });
    return {
      ...leaf(f, input, () => {
        try {
          return input.value.trim() ? JSON.parse(input.value) : undefined;
        } catch {
          return undefined;
        }
      }, (v) => {
        input.value = v === undefined ? "" : JSON.stringify(v, null, 2);
      }),
      check() {
        try {
          if (input.value.trim()) JSON.parse(input.value);
        } catch (e) {
          return `is not JSON: ${e.message}`;
        }
      },
    };
  },

  array(f) {
    const list = h("ol.items-of");
    let items = [], isGiven = false, odd;
    const change = () => {
      isGiven = true;
      odd = undefined;
      setText(f.note, "");
      number();
      f.form.edited();
    };
    const number = () => items.forEach((it, i) => it.rename(`${f.label} ${i + 1}`));
    const add = (value) => {
      const item = new Field(f.form, { schema: f.schema.items, label: f.label, depth: f.depth + 1,
        isItem: true });
      const row = h("li.row", item.element,
        h("button", { "aria-label": `Remove an item of ${f.label}`, onclick: () => {
          items = items.filter((it) => it !== item);
          row.remove();
          more.focus();
          change();
        } }, "×"));
      items.push(item);
      list.append(row);
      if (value !== undefined) item.set(value);
      return item;
    };
    const more = h("button", { onclick: () => {
      const item = add();
      change();
      item.focus();
    } }, `Add to ${f.label}`);
    return {
      group: true,
      box: [list, more],
      get: () => (odd ? odd.value : items.length || isGiven ||
        f.required ? items.map((it) => it.get() ?? null) : undefined),
      set(value) {
        odd = value === undefined ||
          (Array.isArray(value) && value.length <= itemsMost) ? undefined : { value };
        setText(f.note, odd ? `As JSON: ${text(value).slice(0, 200)}` : "");
        isGiven = Array.isArray(value);
        items = [];
        list.replaceChildren();
        for (const v of (!odd && value) || []) add(v);
        number();
      },
      parts: () => items,
    };
  },

  object(f) {
    const required = Array.isArray(f.schema.required) ? f.schema.required : [];
    const fields = new Map(Object.entries(f.schema.properties).slice(0,
      fieldsMost).map(([name, schema]) =>
      [name, new Field(f.form, { schema, label: plain(name), depth: f.depth + 1,
        required: required.includes(name) })]));
    let more = {}, isGiven = false, odd;
    return {
      group: true,
      box: [...fields.values()].map((it) => it.element),
      get() {
        if (odd) return odd.value;
        const entries = [...fields].map(([name, it]) => [name, it.get()]).filter(([, v]) =>
          v !== undefined);
        const all = Object.fromEntries([...entries, ...Object.entries(more)]);
        return Object.keys(all).length || isGiven || f.required || f.isItem ? all : undefined;
      },
      set(value) {
        odd = value === undefined || isObject(value) ? undefined : { value };
        setText(f.note, odd ? `As JSON: ${text(value).slice(0, 200)}` : "");
        isGiven = isObject(value);
        const given = isGiven ? value : {};
        more = Object.fromEntries(Object.entries(given).filter(([name]) => !fields.has(name)));
        for (const [name, it] of fields) it.set(Object.hasOwn(given,
          name) ? given[name] : undefined);
      },
      parts: () => fields.values(),
      part: (name) => fields.get(name),
    };
  },
};

// Field is the field of a value or a part of it. get() returns undefined if nothing is given.
class Field {
  constructor(form, { schema, label, depth, required = false, isItem = false }) {
    this.form = form;
    this.schema = resolve(schema, form.schema);
    this.label = label;
    this.depth = depth;
    this.required = required;
    this.isItem = isItem;
    this.id = `arg-${++ids}`;
    this.note = h("span.hint");
    this.isDefault = "default" in this.schema;
    const kind = fieldKinds[typeOf(this.schema, depth, form)];
    Object.assign(this, kind(this));
    this.faultLine = h("span.fault");
    const { title, description } = this.schema;
    const about = h("span.about-field", { id: `${this.id}-about` },
      description && h("span.hint", text(description)), this.note, this.faultLine);
    this.name = h("span", title ? text(title) : label);
    const name = [this.name, title && text(title) !== label && h("code.hint", ` ${label}`),
      required && h("span.needed", " required")];
    this.element = this.group
      ? h("fieldset.field.nested", { tabindex: "-1" }, h("legend", name), about, this.box)
      : h("div.field", h("label", { for: this.id }, name), this.input, about);
    if (this.isDefault) this.set(this.schema.default);
  }

  rename(label) {
    this.label = label;
    setText(this.name, label);
  }

  focus() {
    (this.input ?? this.element).focus();
  }

  // judge shows what is wrong with what is written, at its field, and returns the first field with
  // a fault. Of what is left out nothing is required.
  judge(isLeftOut) {
    const isMissing = this.get() === undefined;
    let first = this.say(this.check?.() ??
      (this.required && isMissing && !isLeftOut ? "is required" : ""));
    for (const part of this.parts?.() ?? []) {
      const wrong = part.judge(isLeftOut || isMissing);
      first ??= wrong;
    }
    return first;
  }

  say(fault) {
    setText(this.faultLine, plain(fault));
    if (this.input) fault ? this.input.setAttribute("aria-invalid",
      "true") : this.input.removeAttribute("aria-invalid");
    return fault ? this : undefined;
  }
}

// SchemaForm is the form with its JSON beside it. Both say the same, whichever is written in.
export class SchemaForm {
  constructor(schema) {
    this.schema = isObject(schema) ? schema : {};
    this.fields = 0;
    const object = { type: "object", properties: {}, ...this.schema };
    this.root = new Field(this, { schema: object, label: "arguments", depth: 0, required: true });
    this.faultLine = h("p.fault", { role: "alert" });
    this.json = h("textarea.mono", { rows: "4", spellcheck: "false",
      "aria-label": "Arguments as JSON",
      oninput: () => this.readJSON() });
    this.box = h("details.as-json", h("summary", "As JSON"), this.json);
    const isForm = this.root.box?.length > 0;
    this.box.open = !isForm;
    this.element = h("div.schema-form", isForm && this.root.box, this.box, this.faultLine);
    this.edited();
  }

  // edited writes what the form says as JSON.
  edited() {
    if (!this.json) return;
    this.jsonFault = "";
    this.json.value = JSON.stringify(this.root.get(), null, 2);
  }

  readJSON() {
    try {
      const value = JSON.parse(this.json.value || "{}");
      if (!isObject(value)) throw new Error("it must be an object");
      this.root.set(value);
      this.root.judge(true);
      this.jsonFault = "";
    } catch (e) {
      this.jsonFault = `This is not JSON for arguments: ${e.message}`;
    }
    setText(this.faultLine, this.jsonFault);
  }

  // value returns the arguments, or undefined if something is wrong with them, which has the focus
  // then.
  value() {
    if (this.jsonFault) {
      this.box.open = true;
      this.json.focus();
      return undefined;
    }
    setText(this.faultLine, "");
    const wrong = this.root.judge();
    if (!wrong) return this.root.get();
    wrong.focus();
    return undefined;
  }

  // refuse shows what the gateway says about the arguments: places in the schema, and a text.
  refuse(message) {
    const [, path = "", why] = message.match(/^arguments of [^:]*: (?:(\/[^:]*): )?(.*)$/s) ?? [];
    if (why === undefined) return false;
    let at = this.root;
    const parts = path.split("/").slice(1).map(unescaped);
    while (at && parts[0] === "properties" && parts.length > 1) at = at.part?.(parts.splice(0,
      2)[1]);
    const lacks = why.match(/^required: missing properties: \["([^"]*)"/);
    if (lacks && at?.part?.(lacks[1])) {
      at = at.part(lacks[1]);
      at.say("is required");
    } else if (at && at !== this.root) {
      at.say(why);
    } else {
      setText(this.faultLine, plain(path ? `${path}: ${why}` : why));
    }
    if (at !== this.root) at?.focus();
    return true;
  }
}
