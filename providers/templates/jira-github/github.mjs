// Issues of a GitHub repository (REST API, version 2022-11-28).

import { Api } from "./api.mjs";

/**
 * @typedef {object} Issue an issue, with foreign texts
 * @property {string} id
 * @property {string} title
 * @property {string} status
 * @property {boolean} closed
 * @property {string[]} labels
 * @property {string} assignee
 * @property {number} comments how many there are
 * @property {number} updated milliseconds since 1970
 * @property {string} url
 *
 * @typedef {{ author: string, text: string }} Comment
 * @typedef {{ name: string, closes: boolean }} Status
 */

const STATES = {
  open: { state: "open" },
  closed: { state: "closed", state_reason: "completed" },
  "not planned": { state: "closed", state_reason: "not_planned" },
};

export class GitHubIssues {
  /**
   * @param {{ api: string, repo: string, labels: string[], assignee: string, statusLabels: string[] }} options
   * @param {() => string} token
   * @param {() => number} [now]
   */
  constructor({ api, repo, labels, assignee, statusLabels }, token, now) {
    if (!/^[\w-]+\/(?!\.\.?$)[\w.-]+$/.test(repo))
      throw new Error(`--repo is ${JSON.stringify(repo)}, want OWNER/NAME`);
    this.api = new Api(
      "GitHub",
      api || "https://api.github.com",
      () => ({
        Accept: "application/vnd.github+json",
        "X-GitHub-Api-Version": "2022-11-28",
        "User-Agent": "tapgw-jira-github",
        Authorization: `Bearer ${token()}`,
      }),
      now,
    );
    this.path = `/repos/${repo}/issues`;
    this.statusLabels = statusLabels;
    const query = new URLSearchParams({ state: "open", sort: "updated", direction: "desc",
      per_page: "100" });
    if (labels.length) query.set("labels", labels.join(","));
    if (assignee) query.set("assignee", assignee);
    this.query = `${this.path}?${query}`;
  }

  /** @param {AbortSignal} [signal] @returns {Promise<Issue[]>} */
  async list(signal) {
    const all = await this.api.list(this.query, signal);
    return all.filter((i) => !i.pull_request).map((i) => this.#issue(i)); // pull requests are issues, too
  }

  /** @param {any} i @returns {Issue} */
  #issue(i) {
    const labels = (i.labels ?? []).map((/** @type {any} */ l) => String(l.name ?? l));
    const status = labels.find((/** @type {string} */ l) => this.statusLabels.includes(l));
    return {
      id: `#${i.number}`,
      title: String(i.title ?? ""),
      labels,
      closed: i.state === "closed",
      status: i.state === "closed" ? (i.state_reason === "not_planned" ? "not planned" : "closed") : (status ?? "open"),
      assignee: (i.assignees ?? []).map((/** @type {any} */ a) => a.login).join(", "),
      comments: i.comments ?? 0,
      updated: Date.parse(i.updated_at),
      url: String(i.html_url ?? ""),
    };
  }

  /** @param {string} id */
  #at(id) {
    return `${this.path}/${id.slice(1)}`;
  }

  /** @param {string} id @param {AbortSignal} [signal] */
  async one(id, signal) {
    return this.#issue(await this.api.get(this.#at(id), signal));
  }

  /**
   * Returns an issue's text and its newest comments.
   * @param {string} id @param {number} last @param {AbortSignal} [signal]
   * @returns {Promise<{ issue: Issue, text: string, talk: Comment[] }>}
   */
  async read(id, last, signal) {
    const found = await this.api.get(this.#at(id), signal);
    const page = Math.max(1, Math.ceil((found.comments ?? 0) / 100)); // the newest ones are on the last page
    const talk = await this.api.get(`${this.#at(id)}/comments?per_page=100&page=${page}`, signal);
    return {
      issue: this.#issue(found),
      text: String(found.body ?? ""),
      talk: talk
        .slice(-last)
        .map((/** @type {any} */ c) =>
          ({ author: String(c.user?.login ?? ""), text: String(c.body ?? "") })),
    };
  }

  /** @param {string} id @param {string} text @param {AbortSignal} [signal] */
  async comment(id, text, signal) {
    await this.api.send("POST", `${this.#at(id)}/comments`, { body: text }, signal);
  }

  /** @returns {Promise<Status[]>} */
  async statuses() {
    const states = Object.keys(STATES).map((name) => ({ name, closes: name !== "open" }));
    return [...states, ...this.statusLabels.map((name) => ({ name, closes: false }))];
  }

  /**
   * Opens or closes an issue, or gives it one of the labels that stand for a status and removes the others.
   * @param {string} id @param {string} name one of statuses @param {AbortSignal} [signal]
   */
  async setStatus(id, name, signal) {
    if (name in STATES) {
      await this.api.send("PATCH", this.#at(id), STATES[/** @type {keyof STATES} */ (name)],
        signal);
      return;
    }
    const { labels } = await this.one(id, signal);
    await this.api.send("POST", `${this.#at(id)}/labels`, { labels: [name] }, signal);
    for (const other of labels.filter((l) => this.statusLabels.includes(l) && l !== name)) {
      await this.api.send("DELETE", `${this.#at(id)}/labels/${encodeURIComponent(other)}`,
        undefined, signal);
    }
  }

  /**
   * Names a pull request in a comment, from which GitHub makes the link. It does so once.
   * @param {string} id @param {string} url @param {AbortSignal} [signal]
   */
  async link(id, url, signal) {
    const text = `Pull request: ${url}`;
    const { talk } = await this.read(id, 100, signal);
    if (!talk.some((c) => c.text.trim() === text)) await this.comment(id, text, signal);
  }
}
