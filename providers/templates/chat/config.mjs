// The bot's settings from environment variables. README.md has the list.

/**
 * @typedef {object} Config
 * @property {"telegram" | "slack"} service
 * @property {string} name of the provider, as the provider file says it
 * @property {string} api the API's base URL
 * @property {string[]} users ids of the people who may use the bot
 * @property {string[]} chats ids of the group chats that it works in; a person's own chat with it needs no entry
 * @property {Set<string>} events the events that it reports beside questions: turns, errors, denials, pushes
 * @property {string} token of the bot
 * @property {string} appToken of the app, for Slack's socket; else ""
 */

const EVENTS = ["turns", "errors", "denials", "pushes"];

const services = {
  telegram: { api: "https://api.telegram.org", users: /^[0-9]+$/, chats: /^-?[0-9]+$/,
    token: "TELEGRAM_BOT_TOKEN" },
  slack: { api: "https://slack.com/api", users: /^[UW][A-Z0-9]+$/, chats: /^[CG][A-Z0-9]+$/,
    token: "SLACK_BOT_TOKEN" },
};

/** Reads the variables. @param {NodeJS.ProcessEnv} env @returns {Config} */
export function readConfig(env) {
  const name = env.CHAT_SERVICE;
  if (name !== "telegram" &&
    name !== "slack") throw new Error("CHAT_SERVICE: must be telegram or slack");
  const service = services[name];
  const users = list(env, "CHAT_USERS", service.users);
  if (users.length === 0) throw new Error("CHAT_USERS: is missing: write the ids of the people who may use the bot");
  const events = list(env, "CHAT_EVENTS", /./);
  for (const event of events) {
    if (EVENTS.includes(event)) continue;
    throw new Error(`CHAT_EVENTS: ${JSON.stringify(event)} is none of ${EVENTS.join(", ")}`);
  }
  return {
    service: name, name: env.CHAT_NAME || "chat",
    users, chats: list(env, "CHAT_CHATS", service.chats),
      events: new Set(events.length ? events : EVENTS),
    api: baseURL(env.CHAT_API || service.api), token: secret(env, service.token),
    appToken: name === "slack" ? secret(env, "SLACK_APP_TOKEN") : "",
  };
}

/** @param {NodeJS.ProcessEnv} env @param {string} name @param {RegExp} id @returns {string[]} */
function list(env, name, id) {
  const all = (env[name] ?? "").split(",").map((s) => s.trim()).filter(Boolean);
  for (const one of all) if (!id.test(one)) throw new Error(`${name}: ${JSON.stringify(one)} is no id of this service`);
  return all;
}

/** @param {NodeJS.ProcessEnv} env @param {string} name */
function secret(env, name) {
  const value = env[name]?.trim();
  if (!value) throw new Error(`${name}: is not set; in the provider file write env = { ${name} = "\${${name}}" }`);
  if (!/^[\x21-\x7e]+$/.test(value)) throw new Error(`${name}: holds a character that no token has`);
  return value;
}

/** A token crosses the network only in TLS; a server on this machine may be a test. @param {string} url */
function baseURL(url) {
  const { protocol, hostname } = URL.canParse(url) ? new URL(url) : { protocol: "", hostname: "" };
  const isHere = hostname === "localhost" || hostname === "[::1]" || /^127\./.test(hostname);
  if (protocol !== "https:" && !(protocol === "http:" && isHere)) {
    throw new Error(`CHAT_API: ${JSON.stringify(url)} is not an https:// URL`);
  }
  return url.replace(/\/+$/, "");
}
