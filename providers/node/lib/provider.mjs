// The provider.

import { checkURL, gatewayURL } from "./discover.mjs";
import { FatalError, NotConnectedError, Outcome, ProviderError } from "./errors.mjs";
import { silentLogger, stderrLogger } from "./log.mjs";
import { Offer, Rule, wireTransform } from "./offer.mjs";
import { pair } from "./pair.mjs";
import { report, submit } from "./run.mjs";
import { Runner } from "./runner.mjs";
import { prepareTool, uniqueTools } from "./tool.mjs";

/**
 * @import {
 *   Decision, Entry, FilterRule, GateCall, InSession, Level, Match, Message, Options, PushOptions, Query, Receipt,
 *   Section, Tool,
 * } from "./model.mjs"
 */
/** @import { Change, Transform } from "./offer.mjs" */
/** @import { Shared } from "./run.mjs" */

/** A provider, running or not; createProvider makes one. */
export class Provider {
  /** @type {Runner | undefined} */
  #run;
  #closed = Promise.resolve();
  /** @type {Map<string, ((event: any, signal: AbortSignal) => any)[]>} */
  #listeners = new Map();
  #gates = 0;
  /** @type {Shared} */
  #shared;

  /** @param {string} name @param {Options} options */
  constructor(name, options) {
    // The gateway spells names this way.
    const normal = name.toLowerCase().replace(/[^a-z0-9._-]+/g, "-").replace(/^-+|-+$/g, "");
    if (!/^[a-z0-9][a-z0-9._-]{0,63}$/.test(normal)) {
      throw new TypeError("a provider's name must be 1 to 64 letters, digits, '.', '_' or '-'");
    }
    checkURL("gatewayUrl", options.gatewayUrl);
    if (options.metadata) JSON.stringify(options.metadata);
    this.name = name;
    const log = options.silent ? silentLogger : options.logger ?? stderrLogger(name);
    this.#shared = {
      name, options, log, listeners: this.#listeners, offer: new Offer(), sent: undefined,
        queue: [],
      changing: undefined, paired: undefined,
    };
    this.#shared.offer.context = options.context ?? "";
    this.#shared.offer.tools = uniqueTools(options.tools ?? []);
  }

  /** Whether a session is bound. */
  get connected() {
    return this.#connection !== undefined;
  }

  /** The gateway's id of this provider; null while no session is bound. */
  get providerId() {
    return this.#connection?.providerId ?? null;
  }

  /** The id of the bound session, "all", or null. */
  get sessionId() {
    return this.#connection?.helloSession ?? null;
  }

  /**
   * Settles when the provider has stopped: it resolves after disconnect(), and rejects where waiting can't help, such
   * as a refused token of the options, a wrong offer, or a pairing that has ended.
   */
  get closed() {
    return this.#closed;
  }

  /** Begins to find the gateway and to serve. Returns closed. */
  connect() {
    if (this.#run) return this.#closed;
    const run = new Runner(this.#shared);
    this.#run = run;
    this.#closed = run.serve().finally(() => (this.#run = undefined));
    this.#closed.catch(() => {}); // it was reported, and is there for those who wait
    return this.#closed;
  }

  /**
   * Says goodbye and stops. Running handlers are cancelled and have five seconds to return.
   * @returns {Promise<void>} resolves when the provider has stopped
   */
  async disconnect() {
    this.#run?.stop();
    await this.#closed.catch(() => {});
  }

  // Events

  /** Tells the model of an event, in a turn of its own. @param {string} event @param {PushOptions} [options] */
  push(event, options) {
    return this.pushEvent("inject", event, options);
  }

  /** Shows an event in the session's timeline. @param {string} event @param {PushOptions} [options] */
  surface(event, options) {
    return this.pushEvent("surface", event, options);
  }

  /** Stores an event in its stream. @param {string} event @param {PushOptions} [options] */
  keep(event, options) {
    return this.pushEvent("keep", event, options);
  }

  /**
   * Sends an event to a session. The promise fails with a NotConnectedError, or a ProviderError with the gateway's
   * code. If no caller waits for it, onError gets the error.
   * @param {Level} level
   * @param {string} event the event's text; may be empty if there is a prompt
   * @param {PushOptions} [options]
   * @returns {Promise<Receipt>}
   */
  pushEvent(level, event, options = {}) {
    const { stream, metadata, prompt, session, broadcast, waitDelivered = false } = options;
    const message = {
      level,
      ...(event && { event }), ...(prompt && { prompt }), ...(stream && { stream }),
        ...(metadata && { metadata }),
      ...(session && { sessionId: session }), ...(broadcast && { broadcast }),
    };
    return this.#outcome("pushing", async () => {
      if (!event && !prompt) throw new ProviderError("INVALID_JSON",
        "an event needs a text or a prompt");
      return this.#requests().push(message, waitDelivered);
    });
  }

  /**
   * Makes the gateway filter the events of a stream: the first rule that matches decides. No rules remove the filter.
   * @param {string} stream
   * @param {FilterRule[]} rules
   */
  setFilter(stream, rules) {
    const list = [...rules];
    return this.#change({
      what: `setting the filter of ${stream}`, session: "",
      apply: (o) => o.filters.set(stream, list),
      message: () => ({ type: "filter.set", stream, rules: list }),
    });
  }

  /**
   * Reads streams, the newest event first.
   * @param {Query} [query] streams: names, or "stream@provider"; all of this provider if left out
   * @returns {Promise<Entry[]>}
   */
  query({ streams, last, session } = {}) {
    const message = { ...(streams && { streams }), ...(last && { last }),
      ...(session && { sessionId: session }) };
    return this.#outcome("querying", async () => this.#requests().query(message));
  }

  /**
   * Calls listener with each event of one type, those of one session in order: "tool.execution_complete",
   * "user.message", "assistant.message", "assistant.intent", "session.error" or "event.pushed". An event has sessionId
   * beside the fields of its type.
   * On a running provider it has an effect from the next connection on.
   * @param {string} event
   * @param {(event: Message & { sessionId: string }, signal: AbortSignal) => any} listener
   */
  subscribe(event, listener) {
    this.#listeners.set(event, [...(this.#listeners.get(event) ?? []), listener]);
  }

  // Tools

  /**
   * Adds a tool or replaces the tool of that name. Resolves with the revision of the session's state that has it; 0
   * while no session is bound.
   * @param {Tool} tool
   * @param {InSession} [where]
   */
  addTool(tool, { session = "" } = {}) {
    const prepared = prepareTool(tool);
    const { name } = tool;
    return this.#change({
      what: `adding tool ${name}`, session,
      apply: (o) => o.changeTools(session, (tools) => {
        const i = tools.findIndex((t) => t.wire.name === name);
        return i < 0 ? [...tools, prepared] : tools.with(i, prepared);
      }),
      message: (o) => ({ type: "tools.update", ...(o.toolsUpdate(session) ??
        { tools: [prepared.wire], remove: [] }) }),
    });
  }

  /**
   * Removes a tool; running calls of it go on to their end.
   * @param {string} name
   * @param {InSession} [where]
   */
  removeTool(name, { session = "" } = {}) {
    return this.#change({
      what: `removing tool ${name}`, session,
      apply: (o) => o.changeTools(session, (tools) => tools.filter((t) => t.wire.name !== name)),
      message: (o) => ({ type: "tools.update", ...(o.toolsUpdate(session) ?? { remove: [name] }) }),
    });
  }

  /**
   * Replaces all tools in one step.
   * @param {Tool[]} tools
   * @param {InSession} [where]
   */
  updateTools(tools, { session = "" } = {}) {
    const prepared = uniqueTools(tools);
    return this.#change({
      what: "updating the tools", session,
      apply: (o) => o.changeTools(session, () => prepared),
      message: () => ({ type: "tools.update", tools: prepared.map((t) => t.wire) }),
    });
  }

  // Rules

  /** Denies the calls that match, with a reason for the model. @param {Match} match @param {string} reason */
  deny(match, reason) {
    return this.#addRule("adding a rule", { match, action: "deny", reason });
  }

  /** Gives the model a text with the calls that match. @param {Match} match @param {string} content */
  addContext(match, content) {
    return this.#addRule("adding a rule", { match, action: "context", content });
  }

  /**
   * Asks decide about each call that matches, before the call runs. The call is denied unless decide returns allow()
   * within five seconds.
   * @param {Match} match
   * @param {(call: GateCall) => Decision | Promise<Decision>} decide
   * @param {{ failOpen?: boolean }} [options] failOpen: calls that got no answer are allowed
   */
  gate(match, decide, { failOpen = false } = {}) {
    const gateId = `gate-${++this.#gates}`;
    return this.#addRule("adding a gate",
      { match, action: "gate", gateId, ...(failOpen && { failOpen }) }, decide);
  }

  // The prompt

  /** Replaces the text that is added to each prompt of the user. @param {string} context @param {InSession} [where] */
  setContext(context, { session = "" } = {}) {
    return this.#change({
      what: "setting the context", session,
      apply: (o) => {
        if (session) {
          o.setSpecial(session, { context });
          return;
        }
        o.context = context;
        for (const id of o.perSession.keys()) o.setSpecial(id, { context: undefined });
      },
      message: () => ({ type: "context.update", context }),
    });
  }

  /** Adds a text to the end of a section of the system prompt. @param {string} section @param {string} content */
  append(section, content) {
    return this.#transform(section, { action: "append", content });
  }

  /** Adds a text to the beginning of a section. @param {string} section @param {string} content */
  prepend(section, content) {
    return this.#transform(section, { action: "prepend", content });
  }

  /** Puts a text in place of a section. @param {string} section @param {string} content */
  replace(section, content) {
    return this.#transform(section, { action: "replace", content });
  }

  /**
   * Makes a function write a section for each prompt. It has two seconds; if it fails, the section stays as it is.
   * @param {string} section
   * @param {(section: Section) => string | Promise<string>} rewrite
   */
  transform(section, rewrite) {
    return this.#transform(section, { action: "callback", rewrite });
  }

  /** Removes the provider's change of a section. @param {string} section */
  removeTransform(section) {
    return this.#transform(section, undefined);
  }

  // Pairing

  /**
   * Gets a token for a provider without one: the gateway shows a code, and ask asks the user for it. connect() then
   * uses the token. A wrong code is the ProviderError AUTH_FAILED: pair() again.
   * @param {(prompt: string, signal: AbortSignal) => string | Promise<string>} ask
   * @returns {Promise<string>} the token, for a program that may restart
   */
  async pair(ask) {
    const { options } = this.#shared;
    let url;
    try {
      ({ url } = gatewayURL(options));
    } catch (e) {
      throw e instanceof FatalError ? e.error : e;
    }
    const fromUser = Boolean(options.gatewayUrl || process.env.TAP_GATEWAY_URL);
    const to = { url, token: "", gateway: "", fixedToken: true, fromUser };
    const token = await pair(this.#shared, to, ask);
    this.#shared.paired = { ...to, token };
    return token;
  }

  /** The connection, while a session is bound. */
  get #connection() {
    const connection = this.#run?.connection;
    return connection?.open ? connection : undefined;
  }

  #requests() {
    if (!this.#connection) throw new NotConnectedError();
    return this.#connection.requests;
  }

  /**
   * @template T
   * @param {string} what
   * @param {() => Promise<T>} run
   */
  #outcome(what, run) {
    return Outcome.of(run(), (error) => report(this.#shared, error, what));
  }

  /** @param {Change} change @returns {Promise<number>} */
  #change(change) {
    const done = new Promise((ok, failed) => {
      submit(this.#shared, { ...change, done: ok, failed });
    });
    return Outcome.of(done, (error) => report(this.#shared, error, change.what));
  }

  /** @param {string} what @param {(rules: Rule[]) => Rule[]} edit */
  #changeRules = (what, edit) =>
    this.#change({
      what, session: "",
      apply: (o) => void (o.rules = edit(o.rules)),
      message: (o) => ({ type: "hooks.update", onPreToolUse: o.rules.map((r) => r.wire) }),
    });

  /**
   * @param {string} what
   * @param {Message} wire
   * @param {(call: GateCall) => any} [decide]
   * @returns {Promise<Rule>}
   */
  #addRule(what, wire, decide) {
    const rule = new Rule(this.#changeRules, wire, decide);
    const added = this.#changeRules(what, (rules) => [...rules, rule]);
    return Outcome.of(
      added.then((revision) => Object.assign(rule, { revision })),
      (error) => report(this.#shared, error, what),
    );
  }

  /** @param {string} section @param {Transform | undefined} t */
  #transform(section, t) {
    if (!section) throw new TypeError("changing a section of the prompt: its name is empty");
    return this.#change({
      what: `changing section ${section}`, session: "",
      apply: (o) => void (t ? o.transforms.set(section, t) : o.transforms.delete(section)),
      message: () => ({ type: "hooks.update",
        transforms: { [section]: t ? wireTransform(t) : null } }),
    });
  }
}

/**
 * Makes a provider and connects it, unless autoConnect is false.
 * @param {string} name who it is, to the gateway and to other providers
 * @param {Options} [options]
 */
export function createProvider(name, options = {}) {
  const provider = new Provider(name, options);
  if (options.autoConnect !== false) provider.connect();
  return provider;
}
