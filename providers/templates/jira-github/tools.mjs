// The tools: two that read, and those that change something, as far as --allow names them.

import { ProviderError, notFound } from "../../node/index.mjs";
import { clean, outgoing, quote } from "./text.mjs";
import { line } from "./watcher.mjs";

const MAX_COMMENT = 16_000; // characters; Jira takes 32,767
const id = { type: "string", description: "the id of an issue, as issue_list shows it" };

/** @param {Record<string, object>} properties @param {string[]} [required] */
const schema = (properties, required = Object.keys(properties)) => ({
  type: "object",
  properties,
  required,
  additionalProperties: false,
});

/**
 * Makes the tools.
 * @param {import("./watcher.mjs").Watcher} watcher
 * @param {Set<string>} allowed of comment, status, close, link
 */
export function makeTools(watcher, allowed) {
  const { source } = watcher;

  /** Only issues that were selected: a text in one issue leads to no other. @param {string} name */
  const selected = (name) => {
    if (watcher.known.has(name)) return name;
    throw notFound(`no selected issue is called ${JSON.stringify(clean(name, 60))}: issue_list shows them`);
  };

  /**
   * Changes an issue and says how it is then.
   * @param {string} name @param {AbortSignal} signal @param {() => Promise<void>} work
   */
  const change = (name, signal, work) =>
    watcher.exclusive(async () => {
      await work();
      const issue = await watcher.refresh(name, signal).catch(() => null);
      return issue ? `Done.\n${quote([line(issue)], 1)}` : "Done. The issue's new state could not be read.";
    });

  const tools = [
    {
      name: "issue_list",
      description: "The issues of this session: id, status, title, labels",
      parameters: schema({}),
      handler: async (/** @type {any} */ _, /** @type {any} */ { signal }) => {
        await watcher.look(signal);
        return `${watcher.selected.length} issues.\n${quote(watcher.selected.slice(0, 200).map(line), 200)}`;
      },
    },
    {
      name: "issue_read",
      description: "An issue's text, its newest comments, and the statuses that it can go to",
      parameters: schema({ id }),
      handler: async (/** @type {any} */ args, /** @type {any} */ { signal }) => {
        const { issue, text, talk } = await source.read(selected(args.id), 10, signal);
        const names = (await source.statuses(args.id, signal)).map((s) => clean(s.name,
          60)).join(", ");
        return `${clean(issue.url)}\n${quote(
          [line(issue), text, ...talk.map((c) => `${c.author} says: ${c.text}`), `It can go to: ${names}`],
          400,
        )}`;
      },
    },
  ];
  if (allowed.has("comment")) {
    tools.push({
      name: "issue_comment",
      description: "Write a comment on an issue. Other people read it.",
      parameters: schema({ id, text: { type: "string", minLength: 1, maxLength: MAX_COMMENT } }),
      handler: (args, { signal }) =>
        change(selected(args.id), signal,
          () => source.comment(args.id, outgoing(args.text, MAX_COMMENT), signal)),
    });
  }
  if (allowed.has("status")) {
    tools.push({
      name: "issue_set_status",
      description: "Move an issue to another status; issue_read shows which there are",
      parameters: schema({ id, status: { type: "string", minLength: 1, maxLength: 100 } }),
      handler: (args, { signal }) =>
        change(selected(args.id), signal, async () => {
          const all = await source.statuses(args.id, signal);
          const found = all.find((s) => s.name.toLowerCase() === args.status.trim().toLowerCase());
          if (!found)
            throw notFound(`${args.id} can go to: ${all.map((s) => clean(s.name, 60)).join(", ") || "no status"}`);
          if (found.closes && !allowed.has("close")) {
            throw new ProviderError(
              "INTERNAL",
              `${clean(found.name, 60)} closes the issue, and --allow has no close: ask the user`,
            );
          }
          await source.setStatus(args.id, found.name, signal);
        }),
    });
  }
  if (allowed.has("link")) {
    tools.push({
      name: "issue_link_pull_request",
      description: "Link an issue to a pull request",
      parameters: schema({
        id,
        url: { type: "string", description: "the https URL of the pull request", maxLength: 1000 },
      }),
      handler: (args, { signal }) =>
        change(selected(args.id), signal, () => {
          const url = URL.canParse(args.url) ? new URL(args.url) : null;
          if (url?.protocol !== "https:" || url.username || url.password) {
            throw new ProviderError(
              "INTERNAL",
              `${JSON.stringify(clean(args.url))} is not the https URL of a pull request`,
            );
          }
          return source.link(args.id, url.href, signal);
        }),
    });
  }
  return tools;
}
