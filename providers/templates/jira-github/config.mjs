// The options of the command line.

import { parseArgs } from "node:util";
import { GitHubIssues } from "./github.mjs";
import { JiraIssues } from "./jira.mjs";

export const HELP = `Usage: main.mjs --source github|jira [options]

  --api URL           GitHub's API (https://api.github.com; https://HOST/api/v3 for an own server), or Jira's site
                      (https://SITE.atlassian.net)
  --repo OWNER/NAME   the repository, for GitHub
  --project KEY       the project, for Jira
  --label NAME        only issues with this label; several times for several labels
  --assignee WHO      only issues of this person: a login for GitHub; me, or an account id, for Jira
  --jql QUERY         Jira's own query, instead of the three above
  --token-env NAME    the variable with the token (GITHUB_TOKEN; JIRA_API_TOKEN)
  --user-env NAME     the variable with the e-mail address of Jira's token (JIRA_EMAIL)
  --as WAYS           how issues come in: context (in each prompt), push (when they change), or context,push (context)
  --level LEVEL       how far pushes go: keep, surface or inject (inject)
  --allow WHAT        what the agent may change: comment, status, link, close, with commas between (nothing)
  --status-label L    a label of GitHub that stands for a status; several times
  --interval SECONDS  how long to wait between two looks (60)
`;

/** The options that a source does not read: a selection that is ignored would select too much. */
const FOREIGN_OPTIONS = /** @type {const} */ ({
  github: ["project", "jql", "user-env"],
  jira: ["repo", "status-label"],
});

/** @param {string} name @param {string} value @param {string[]} words */
function wordsOf(name, value, words) {
  const found = value.split(",").filter(Boolean);
  const wrong = found.find((w) => !words.includes(w));
  if (wrong !== undefined) throw new Error(`--${name} has ${JSON.stringify(wrong)}, want ${words.join(", ")}`);
  return new Set(found);
}

/** @param {string[]} args @param {NodeJS.ProcessEnv} env */
export function configure(args, env) {
  const text = /** @type {const} */ ({ type: "string", default: "" });
  /** @type {{ type: "string", multiple: true, default: string[] }} */
  const list = { type: "string", multiple: true, default: [] };
  const { values: v } = parseArgs({
    args,
    options: {
      source: text,
      api: text,
      repo: text,
      project: text,
      label: list,
      assignee: text,
      jql: text,
      "token-env": text,
      "user-env": text,
      as: { type: "string", default: "context" },
      level: { type: "string", default: "inject" },
      allow: text,
      "status-label": list,
      interval: { type: "string", default: "60" },
      help: { type: "boolean", short: "h", default: false },
    },
  });
  if (v.help) return null;
  if (!v.source) throw new Error("--source is missing: github or jira");
  if (!["github", "jira"].includes(v.source))
    throw new Error(`--source is ${JSON.stringify(v.source)}, want github or jira`);
  for (const name of FOREIGN_OPTIONS[/** @type {"jira"} */ (v.source)])
    if (v[name].length > 0) throw new Error(`--${name} is not for --source ${v.source}`);
  if (!["keep", "surface", "inject"].includes(v.level))
    throw new Error(`--level is ${JSON.stringify(v.level)}, want keep, surface or inject`);
  const interval = Number(v.interval) * 1000;
  if (!(interval >= 100 && interval <= 86_400_000)) throw new Error("--interval must be from 0.1 to 86400 seconds");
  const ways = wordsOf("as", v.as, ["context", "push"]);
  /** The variable's value is read for each request, and is part of no error. @param {string} name */
  const secret = (name) => () => {
    const value = env[name]?.trim();
    if (!value) throw new Error(`the variable ${name} is not set: name it in the provider file's env`);
    return value;
  };
  const isJira = v.source === "jira";
  const token = secret(v["token-env"] || (isJira ? "JIRA_API_TOKEN" : "GITHUB_TOKEN"));
  const options = {
    api: v.api,
    repo: v.repo,
    project: v.project,
    labels: v.label,
    assignee: v.assignee,
    jql: v.jql,
    statusLabels: v["status-label"],
  };
  const user = v["user-env"] ? secret(v["user-env"]) : () => env.JIRA_EMAIL?.trim() ?? "";
  return {
    source: isJira ? new JiraIssues(options, token, user) : new GitHubIssues(options, token),
    allowed: wordsOf("allow", v.allow, ["comment", "status", "link", "close"]),
    interval,
    ways: { context: ways.has("context"), push: ways.has("push"),
      level: /** @type {"inject"} */ (v.level) },
  };
}
