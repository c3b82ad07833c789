// A part of Jira Cloud's REST API, version 3, as its documentation describes it. It is for tests:
// as a module, or as a program that prints its URL and takes changes at /control.

import { createServer } from "node:http";

const text = (/** @type {string} */ t) => ({
  type: "doc",
  version: 1,
  content: [{ type: "paragraph", content: [{ type: "text", text: t }] }],
});
const STATUSES = [
  ["11", "Start", "In Progress", "indeterminate"],
  ["21", "Finish", "Done", "done"],
  ["31", "Stop", "To Do", "new"],
];

export class Jira {
  /** @type {Map<string, any>} */
  issues = new Map();
  /** @type {string[]} */
  requests = [];
  /** @type {{ status: number, headers?: object, body?: object }[]} */
  refusals = [];
  pageSize = 50;
  #clock = Date.UTC(2026, 0, 1);

  /** @param {string} authorization the header that it takes */
  constructor(authorization) {
    this.authorization = authorization;
  }

  /** @param {string} key @param {{ title?: string, status?: string, comment?: string, text?: string }} change */
  put(key, { title, status, comment, text: body }) {
    const issue = this.issues.get(key) ?? { key, title: "", status: "To Do", text: "", comments: [],
      links: new Map() };
    this.issues.set(key, issue);
    Object.assign(issue, title !== undefined && { title }, status && { status },
      body !== undefined && { text: body });
    if (comment) issue.comments.push({ author: { displayName: "Ann" }, body: text(comment) });
    issue.updated = new Date((this.#clock += 1000)).toISOString().replace("Z", "+0000");
  }

  async listen() {
    this.server = createServer((request, response) => {
      let body = "";
      request
        .on("data", (part) => (body += part))
        .on("end", () => {
          const { status, headers = {}, body: out } = this.answer(request, body);
          response.writeHead(status, { "Content-Type": "application/json;charset=UTF-8",
            ...headers });
          response.end(out === undefined ? "" : JSON.stringify(out));
        });
    });
    await new Promise((done) => this.server?.listen(0, "127.0.0.1", () => done(undefined)));
    return `http://127.0.0.1:${/** @type {any} */ (this.server.address()).port}`;
  }

  close() {
    this.server?.closeAllConnections();
    return new Promise((done) => this.server?.close(done));
  }

  /**
   * @param {import("node:http").IncomingMessage} request @param {string} body
   * @returns {{ status: number, headers?: object, body?: any }}
   */
  answer(request, body) {
    const url = new URL(request.url ?? "", "http://x");
    if (url.pathname === "/control") {
      for (const [key, change] of Object.entries(JSON.parse(body))) this.put(key, change);
      return {
        status: 200,
        body: {
          requests: this.requests,
          issues: [...this.issues.values()].map((i) => ({ ...i, links: [...i.links.values()] })),
        },
      };
    }
    this.requests.push(`${request.method} ${request.url}`);
    const refusal = this.refusals.shift();
    if (refusal) return refusal;
    if (request.headers.authorization !== this.authorization) {
      return {
        status: 401,
        body: { errorMessages: ["Client must be authenticated to access this resource."],
          errors: {} },
      };
    }
    if (url.pathname === "/rest/api/3/search/jql") return this.search(url.searchParams);
    const [, key, what] = /^\/rest\/api\/3\/issue\/([^/]+)(?:\/(\w+))?$/.exec(url.pathname) ?? [];
    const issue = this.issues.get(decodeURIComponent(key ?? ""));
    if (!issue)
      return {
        status: 404,
        body: { errorMessages: ["Issue does not exist or you do not have permission to see it."],
          errors: {} },
      };
    return this.one(`${request.method} ${what ?? ""}`, issue, body ? JSON.parse(body) : {});
  }

  /** @param {URLSearchParams} query */
  search(query) {
    if (!/\w/.test((query.get("jql") ?? "").replace(/order by.*/i, ""))) {
      return { status: 400, body: { errorMessages: ["Unbounded JQL queries are not allowed here."],
        errors: {} } };
    }
    const all = [...this.issues.values()].filter((i) => i.status !== "Done");
    const from = Number(query.get("nextPageToken") ?? 0);
    const to = from + Math.min(this.pageSize, Number(query.get("maxResults") ?? 50));
    const isLast = to >= all.length;
    return {
      status: 200,
      body: {
        issues: all.slice(from, to).map((i) => this.shown(i)),
        isLast,
        ...(!isLast && { nextPageToken: String(to) }),
      },
    };
  }

  /** @param {any} i */
  shown(i) {
    const [, , , category] = STATUSES.find(([, , to]) => to === i.status) ?? [];
    return {
      id: "1" + i.key.replace(/\D/g, ""),
      key: i.key,
      fields: {
        summary: i.title,
        description: i.text ? text(i.text) : null,
        labels: ["backend"],
        assignee: null,
        updated: i.updated,
        status: { name: i.status, statusCategory: { key: category ?? "new" } },
        comment: { total: i.comments.length, comments: i.comments.slice(0, 20) },
      },
    };
  }

  /** @param {string} what @param {any} issue @param {any} body */
  one(what, issue, body) {
    switch (what) {
      case "GET ":
        return { status: 200, body: this.shown(issue) };
      case "GET comment":
        return { status: 200, body: { total: issue.comments.length,
          comments: [...issue.comments].reverse() } };
      case "POST comment":
        if (body.body?.type !== "doc" || body.body.version !== 1) {
          return { status: 400, body: { errorMessages: [],
            errors: { comment: "Comment body is not valid!" } } };
        }
        issue.comments.push({ author: { displayName: "Me" }, body: body.body });
        this.put(issue.key, {});
        return { status: 201, body: { id: "1" } };
      case "GET transitions":
        return {
          status: 200,
          body: {
            transitions: STATUSES.filter(([, , to]) =>
              to !== issue.status).map(([id, name, to, key]) => ({
              id,
              name,
              to: { name: to, statusCategory: { key } },
            })),
          },
        };
      case "POST transitions": {
        const found = STATUSES.find(([id]) => id === body.transition?.id);
        if (!found) return { status: 400, body: { errorMessages: ["The transition is not valid."],
          errors: {} } };
        this.put(issue.key, { status: found[2] });
        return { status: 204 };
      }
      case "POST remotelink": {
        const isNew = !issue.links.has(body.globalId);
        issue.links.set(body.globalId, body.object);
        return { status: isNew ? 201 : 200, body: { id: 1, self: "" } };
      }
    }
    return { status: 405 };
  }
}

if (process.argv[1]?.endsWith("jira.mjs")) {
  const jira = new Jira(`Basic ${Buffer.from(process.argv[2] ?? "").toString("base64")}`);
  console.log(await jira.listen());
  process.once("SIGTERM", () => jira.close());
}
