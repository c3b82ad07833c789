// Issues of Jira Cloud (REST API, version 3). Its long texts are documents in the Atlassian
// Document Format.

import { Api } from "./api.mjs";

/** @typedef {import("./github.mjs").Issue} Issue @typedef {import("./github.mjs").Status} Status */

const PAGE = 50;
const MAX_ISSUES = 500;
const MAX_DEPTH = 50;
const BLOCKS = ["paragraph", "heading", "codeBlock", "listItem", "tableRow", "rule", "mediaSingle",
  "taskItem"];

/** @param {string} s */
const jqlText = (s) => `"${s.replace(/[\\"]/g, "\\$&")}"`;

/**
 * Makes the query that selects issues.
 * @param {{ jql: string, project: string, labels: string[], assignee: string }} options
 */
export function makeJQL({ jql, project, labels, assignee }) {
  if (jql) return jql;
  const parts = ["statusCategory != Done"];
  if (project) parts.push(`project = ${jqlText(project)}`);
  for (const label of labels) parts.push(`labels = ${jqlText(label)}`);
  if (assignee) parts.push(`assignee = ${assignee === "me" ? "currentUser()" : jqlText(assignee)}`);
  return `${parts.join(" AND ")} ORDER BY updated DESC`;
}

/**
 * Returns the text of a document.
 * @param {any} node
 * @param {number} [depth]
 * @returns {string}
 */
export function textOf(node, depth = 0) {
  if (typeof node === "string") return node;
  if (!node || typeof node !== "object" || depth > MAX_DEPTH) return "";
  const inner = Array.isArray(node.content)
    ? node.content.map((/** @type {any} */ n) => textOf(n, depth + 1)).join("")
    : "";
  switch (node.type) {
    case "text":
      return String(node.text ?? "");
    case "hardBreak":
      return "\n";
    case "mention":
    case "status":
    case "emoji":
      return String(node.attrs?.text ?? node.attrs?.shortName ?? "");
    case "inlineCard":
    case "blockCard":
      return String(node.attrs?.url ?? "");
    case "listItem":
      return `- ${inner.trimEnd()}\n`;
  }
  return BLOCKS.includes(node.type) ? `${inner}\n` : inner;
}

/**
 * Makes a document of a text: a paragraph for each part between empty lines.
 * @param {string} text
 */
export function documentOf(text) {
  const content = text.split(/\n{2,}/).map((part) => ({
    type: "paragraph",
    content: part
      .split("\n")
      .flatMap((line, i) => [...(i ? [{ type: "hardBreak" }] : []),
        ...(line ? [{ type: "text", text: line }] : [])]),
  }));
  return { type: "doc", version: 1, content };
}

export class JiraIssues {
  /**
   * @param {{ api: string, jql: string, project: string, labels: string[], assignee: string }} options
   * @param {() => string} token
   * @param {() => string} user "" for a token that stands alone
   * @param {() => number} [now]
   */
  constructor(options, token, user, now) {
    if (!options.api) throw new Error("--api is missing: https://SITE.atlassian.net");
    this.jql = makeJQL(options);
    this.api = new Api(
      "Jira",
      options.api,
      () => ({
        Accept: "application/json",
        "User-Agent": "tapgw-jira-github",
        Authorization: user() ? `Basic ${Buffer.from(`${user()}:${token()}`).toString("base64")}` : `Bearer ${token()}`,
      }),
      now,
    );
  }

  /** @param {AbortSignal} [signal] @returns {Promise<Issue[]>} */
  async list(signal) {
    const all = [];
    let nextPageToken = "";
    do {
      const query = new URLSearchParams({
        jql: this.jql,
        maxResults: String(PAGE),
        fields: "summary,status,labels,assignee,updated,comment",
        ...(nextPageToken && { nextPageToken }),
      });
      const page = await this.api.get(`/rest/api/3/search/jql?${query}`, signal);
      if (!Array.isArray(page?.issues)) throw new Error("Jira answers with something else than issues");
      all.push(...page.issues);
      nextPageToken = page.isLast ? "" : (page.nextPageToken ?? "");
    } while (nextPageToken && all.length < MAX_ISSUES);
    return all.map((i) => this.#issue(i));
  }

  /** @param {any} i @returns {Issue} */
  #issue(i) {
    const f = i.fields ?? {};
    return {
      id: String(i.key),
      title: String(f.summary ?? ""),
      status: String(f.status?.name ?? ""),
      closed: f.status?.statusCategory?.key === "done",
      labels: (f.labels ?? []).map(String),
      assignee: String(f.assignee?.displayName ?? ""),
      comments: f.comment?.total ?? 0,
      updated: Date.parse(f.updated),
      url: `${this.api.base}/browse/${i.key}`,
    };
  }

  /** @param {string} id */
  #at(id) {
    return `/rest/api/3/issue/${encodeURIComponent(id)}`;
  }

  /** @param {string} id @param {AbortSignal} [signal] */
  async one(id, signal) {
    return this.#issue(
      await this.api.get(`${this.#at(id)}?fields=summary,status,labels,assignee,updated,comment`,
        signal),
    );
  }

  /**
   * Returns an issue's text and its newest comments.
   * @param {string} id @param {number} last @param {AbortSignal} [signal]
   * @returns {Promise<{ issue: Issue, text: string, talk: import("./github.mjs").Comment[] }>}
   */
  async read(id, last, signal) {
    const found = await this.api.get(
      `${this.#at(id)}?fields=summary,status,labels,assignee,updated,comment,description`,
      signal,
    );
    const talk = await this.api.get(`${this.#at(id)}/comment?orderBy=-created&maxResults=${last}`,
      signal);
    return {
      issue: this.#issue(found),
      text: textOf(found.fields?.description),
      talk: (talk.comments ?? []).reverse().map((/** @type {any} */ c) => ({
        author: String(c.author?.displayName ?? ""),
        text: textOf(c.body).trimEnd(),
      })),
    };
  }

  /** @param {string} id @param {string} text @param {AbortSignal} [signal] */
  async comment(id, text, signal) {
    await this.api.send("POST", `${this.#at(id)}/comment`, { body: documentOf(text) }, signal);
  }

  /** @param {string} id @param {AbortSignal} [signal] */
  async #transitions(id, signal) {
    const { transitions = [] } = await this.api.get(`${this.#at(id)}/transitions`, signal);
    return transitions.map((/** @type {any} */ t) => ({
      id: String(t.id),
      name: String(t.to?.name ?? t.name),
      closes: t.to?.statusCategory?.key === "done",
    }));
  }

  /**
   * Returns the statuses that an issue can go to now.
   * @param {string} id @param {AbortSignal} [signal]
   * @returns {Promise<Status[]>}
   */
  async statuses(id, signal) {
    return this.#transitions(id, signal);
  }

  /** @param {string} id @param {string} name one of statuses @param {AbortSignal} [signal] */
  async setStatus(id, name, signal) {
    const found = (await this.#transitions(id, signal)).find((/** @type {any} */ t) =>
      t.name === name);
    if (!found) throw new Error(`${id} can't go to ${name} any more`);
    await this.api.send("POST", `${this.#at(id)}/transitions`, { transition: { id: found.id } },
      signal);
  }

  /**
   * Adds a link to a pull request. A second one of the same URL replaces the first.
   * @param {string} id @param {string} url @param {AbortSignal} [signal]
   */
  async link(id, url, signal) {
    const object = { url, title: `Pull request ${new URL(url).pathname.slice(1)}`.slice(0, 250) };
    await this.api.send(
      "POST",
      `${this.#at(id)}/remotelink`,
      { globalId: url.slice(0, 255), relationship: "pull request", object },
      signal,
    );
  }
}
