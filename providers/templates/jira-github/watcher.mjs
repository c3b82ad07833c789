// Watches the selected issues: their changes, and the text for prompts.

import { clean, quote } from "./text.mjs";

/**
 * @typedef {import("./github.mjs").Issue} Issue
 * @typedef {"keep" | "surface" | "inject"} Level
 * @typedef {(level: Level, text: string, options: { metadata: Record<string, unknown> }) => Promise<unknown>} Push
 */

const SHOWN = 30; // issues in the context
const REPORTED = 5; // issues in one event
const MAX_CONTEXT = 6000; // bytes
const COMMENTS = 10;

/** @param {Issue} i */
export function line(i) {
  const more = [
    i.assignee && `for ${clean(i.assignee, 60)}`,
    i.labels.length && i.labels.map((l) => clean(l, 40)).join(", "),
  ];
  return (
    `${clean(i.id, 60)} [${clean(i.status, 40)}] ${clean(i.title, 150)}` +
    (more.some(Boolean) ? ` (${more.filter(Boolean).join("; ")})` : "")
  );
}

/**
 * Describes the changes between two states of an issue; "" without a change.
 * @param {Issue} before @param {Issue} after
 */
export function difference(before, after) {
  const parts = [];
  if (before.status !== after.status) parts.push(`status ${clean(before.status, 40)} → ${clean(after.status, 40)}`);
  if (before.title !== after.title) parts.push("another title");
  if (before.labels.join("\n") !== after.labels.join("\n"))
    parts.push(`labels: ${after.labels.map((l) => clean(l, 40)).join(", ")}`);
  if (before.assignee !== after.assignee) parts.push(`assignee: ${clean(after.assignee, 60) || "nobody"}`);
  if (after.comments > before.comments) parts.push(`${after.comments - before.comments} new comments`);
  if (!parts.length && after.updated > before.updated) parts.push("its text, or a field that is not shown");
  return after.updated >= before.updated ? parts.join("; ") : ""; // a search may be older than that change
}

export class Watcher {
  /** @type {Map<string, Issue>} the last state of every issue that was ever selected */
  known = new Map();
  /** @type {Issue[]} */
  selected = [];
  #isFirst = true;
  #context = "";
  /** @type {Promise<unknown>} */
  #turn = Promise.resolve();

  /**
   * @param {import("./github.mjs").GitHubIssues | import("./jira.mjs").JiraIssues} source
   * @param {{ context: boolean, push: boolean, level: Level }} options
   * @param {{ setContext: (text: string) => Promise<unknown>, pushEvent: Push }} provider
   */
  constructor(source, options, provider) {
    this.source = source;
    this.options = options;
    this.provider = provider;
  }

  /**
   * Runs one thing after the other: looks and the tools that change something.
   * @template T
   * @param {() => Promise<T>} work
   * @returns {Promise<T>}
   */
  exclusive(work) {
    const turn = this.#turn.then(work);
    this.#turn = turn.catch(() => {});
    return turn;
  }

  /**
   * Reads the issues, and reports changes. One that the gateway did not take is a change at the next look, too.
   * @param {AbortSignal} [signal]
   */
  look(signal) {
    return this.exclusive(async () => {
      this.selected = await this.source.list(signal);
      await this.#setContext();
      const changes = this.#isFirst ? [] : this.#changes();
      if (changes.length && this.options.push) await this.#report(changes, signal);
      for (const issue of this.selected) {
        const old = this.known.get(issue.id);
        if (!old || issue.updated >= old.updated) this.known.set(issue.id, issue);
      }
      for (const { gone, issue } of changes) if (gone) this.known.set(issue.id,
        { ...issue, closed: true });
      this.#isFirst = false;
    });
  }

  /** The changes since the last look. */
  #changes() {
    /** @type {{ issue: Issue, text: string, talk: number, gone?: boolean, isNew?: boolean }[]} */
    const changes = [];
    for (const issue of this.selected) {
      const old = this.known.get(issue.id);
      if (!old || (old.closed && !issue.closed)) {
        changes.push({ issue, text: "is new here", talk: 0, isNew: true });
        continue;
      }
      const text = difference(old, issue);
      if (text) changes.push({ issue, text, talk: Math.max(0, issue.comments - old.comments) });
    }
    const here = new Set(this.selected.map((i) => i.id));
    for (const issue of this.known.values()) {
      if (!here.has(issue.id) && !issue.closed) {
        changes.push({ issue, text: "is closed, or no longer selected", talk: 0, gone: true });
      }
    }
    return changes;
  }

  /** @param {{ issue: Issue, text: string, talk: number, isNew?: boolean }[]} changes @param {AbortSignal} [signal] */
  async #report(changes, signal) {
    const texts = [];
    for (const { issue, text, talk, isNew } of changes.slice(0, REPORTED)) {
      const parts = [line(issue)];
      if (isNew || talk) {
        const found = await this.source.read(issue.id, Math.min(talk || 1, COMMENTS), signal);
        if (isNew) parts.push(found.text);
        else parts.push(...found.talk.map((c) => `${c.author}: ${c.text}`));
      }
      texts.push(`Issue ${clean(issue.id, 60)}: ${text}.\n${quote(parts, 40)}`);
    }
    if (changes.length > REPORTED) texts.push(`${changes.length - REPORTED} more issues changed: issue_list has them.`);
    await this.provider.pushEvent(this.options.level, texts.join("\n\n"), {
      metadata: { issues: changes.slice(0, 50).map(({ issue }) => clean(issue.id, 60)) },
    });
  }

  async #setContext() {
    if (!this.options.context) return;
    const lines = this.selected.slice(0, SHOWN).map(line);
    let text = "";
    do {
      const more = this.selected.length - lines.length;
      text = lines.length
        ? `The issues of this session (issue_read has their texts).\n${quote(lines, SHOWN)}` +
          (more ? `\n${more} more: issue_list.` : "")
        : "";
    } while (Buffer.byteLength(text) > MAX_CONTEXT && lines.pop());
    if (text === this.#context) return;
    await this.provider.setContext(text);
    this.#context = text;
  }

  /**
   * Learns an issue's state after a change of our own, so that it is not reported.
   * @param {string} id @param {AbortSignal} [signal]
   */
  async refresh(id, signal) {
    const issue = await this.source.one(id, signal);
    this.known.set(id, issue);
    return issue;
  }
}
