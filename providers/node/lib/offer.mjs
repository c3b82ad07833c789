// The offer of a provider to its sessions, and changes of it.

/** @import { FilterRule, GateCall, Message, Section } from "./model.mjs" */
/** @import { PreparedTool } from "./tool.mjs" */

const MAX_TOOLS = 100;

/** All that a provider offers its sessions. It is not changed once it is sent: a change makes a copy. */
export class Offer {
  /** @type {PreparedTool[]} */
  tools = [];
  /** @type {Rule[]} */
  rules = [];
  /** @type {Map<string, Transform>} by section */
  transforms = new Map();
  context = "";
  /** @type {Map<string, FilterRule[]>} by stream; an empty list removes an older filter */
  filters = new Map();
  /** @type {Map<string, { tools?: PreparedTool[], context?: string }>} the offers of single sessions, by id */
  perSession = new Map();

  clone() {
    const o = Object.assign(new Offer(), this);
    o.transforms = new Map(this.transforms);
    o.filters = new Map(this.filters);
    o.perSession = new Map(this.perSession);
    return o;
  }

  /** @param {string} session */
  toolsIn(session) {
    return this.perSession.get(session)?.tools ?? this.tools;
  }

  /** @param {string} session @param {{ tools?: PreparedTool[], context?: string }} special */
  setSpecial(session, special) {
    this.perSession.set(session, { ...this.perSession.get(session), ...special });
  }

  /**
   * Changes the tools of one session, or of all ("").
   * @param {string} session
   * @param {(tools: PreparedTool[]) => PreparedTool[]} edit
   */
  changeTools(session, edit) {
    const limited = (/** @type {PreparedTool[]} */ tools) => {
      const edited = edit(tools);
      if (edited.length <= MAX_TOOLS) return edited;
      throw new Error(`${edited.length} tools are over the limit of ${MAX_TOOLS}: use another provider`);
    };
    if (session) {
      this.setSpecial(session, { tools: limited(this.toolsIn(session)) });
      return;
    }
    this.tools = limited(this.tools);
    for (const [id, special] of this.perSession) {
      if (special.tools) this.setSpecial(id, { tools: limited(special.tools) });
    }
  }

  /** @param {string} session */
  toolsUpdate(session) {
    const special = [...this.perSession.values()].some((s) => s.tools);
    return session || !special ? { tools: this.toolsIn(session).map((t) => t.wire) } : undefined;
  }
}

/** @typedef {{ action: string, content?: string, rewrite?: (s: Section) => any }} Transform */

/** @param {Transform} t */
export const wireTransform = ({ action, content }) =>
  (action === "callback" ? { action } : { action, content });

/** A rule of a provider about tool calls. deny(), addContext() and gate() of a provider make one. */
export class Rule {
  /** The revision of the session's state in which the rule is in force; 0 if no session was bound. */
  revision = 0;
  #change;
  /**
   * @param {(what: string, edit: (rules: Rule[]) => Rule[]) => Promise<number>} change
   * @param {Message} wire
   * @param {(call: GateCall) => any} [decide] of a gate
   */
  constructor(change, wire, decide) {
    this.#change = change;
    this.wire = wire;
    this.decide = decide;
  }
  /** Removes the rule. To replace a rule without a gap, add the new one first. */
  remove() {
    return this.#change("removing a rule", (rules) => rules.filter((r) => r !== this));
  }
}

/**
 * A change of the offer on its way to the gateway. Changes are sent one after the other.
 * @typedef {object} Change
 * @property {string} what names the offer in errors
 * @property {string} session "": all bound sessions
 * @property {(o: Offer) => void} [apply] changes a copy of the offer
 * @property {(o: Offer) => Message} [message] makes the message to the gateway
 * @property {() => void} [then] runs when its turn has come; such a change has neither apply nor message
 * @property {(revision: number) => void} [done]
 * @property {(error: Error) => void} [failed] without it, no caller waits, and errors are reported
 */
