// The admin API (docs/admin-api.md). The browser's cookie is the credential; the page holds no
// token.

// ApiError is an error answer: status is that of HTTP, 0 if there was no answer; code is that of
// the API.
export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// signOutEvents dispatches "signedout" when an answer asks for a sign-in.
export const signOutEvents = new EventTarget();

// The gateway is trusted until the connection to it is lost (link.js). Then somebody else may have
// its port, and gets nothing from this page until it has shown that it is the gateway.
export const gateway = { isTrusted: true };

// loadLate imports a module that is not in the first script. All these are one script, which comes
// from the gateway or not at all.
let isLateLoaded = false;
export async function loadLate(load) {
  if (!isLateLoaded && !gateway.isTrusted) throw new ApiError(0, "UNREACHABLE", unreachable);
  const module = await load();
  isLateLoaded = true;
  return module;
}

const unreachable = "the gateway does not answer; if it has ended, open the page of a new one: tapctl open";

export async function call(method, path, body, headers = {}, signal) {
  let response;
  try {
    if (!gateway.isTrusted) throw new Error(unreachable);
    response = await fetch(`/api/v1${path}`, {
      method,
      headers: body === undefined ? headers : { "Content-Type": "application/json", ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
    });
  } catch {
    throw new ApiError(0, "UNREACHABLE", unreachable);
  }
  const text = await response.text();
  let answer = {};
  try {
    answer = text ? JSON.parse(text) : {};
  } catch {
    // The answer is not JSON: the error below says its status.
  }
  if (response.ok) return answer;
  if ((response.status === 401 && !headers.Authorization) || response.status === 421)
    signOutEvents.dispatchEvent(new Event("signedout"));
  throw new ApiError(response.status, answer.error?.code ?? "INTERNAL",
    answer.error?.message ?? `the gateway answered ${response.status}`);
}

export const get = (path) => call("GET", path);
export const post = (path, body = {}) => call("POST", path, body);

const sessionPath = (id, what = "") => `/sessions/${encodeURIComponent(id)}${what}`;

export const sessions = {
  start: (request) => post("/sessions", request),
  stop: (id) => call("DELETE", sessionPath(id)),
  query: (id, prompt, mode, attachments) =>
    post(sessionPath(id, "/query"), { prompt, mode, detach: true, attachments }),
  files: (id, query) => get(sessionPath(id, `/files?${new URLSearchParams({ query })}`)),
  commands: (id) => get(sessionPath(id, "/commands")),
  run: (id, { name, input }) => post(sessionPath(id, `/commands/${encodeURIComponent(name)}`),
    { input }),
  interrupt: (id) => post(sessionPath(id, "/interrupt")),
  editQueued: (id, prompt, text) => call("PATCH", sessionPath(id, `/queue/${prompt}`),
    { prompt: text }),
  cancelQueued: (id, prompt) => call("DELETE", sessionPath(id, `/queue/${prompt}`)),
  sendQueued: (id, prompt) => post(sessionPath(id, `/queue/${prompt}/send`)),
  foreground: (id) => post(sessionPath(id, "/foreground")),
  rename: (id, label) => post(sessionPath(id, "/rename"), { label }),
  model: (id, model, effort) => post(sessionPath(id, "/model"),
    effort ? { model, effort } : { model }),
  answer: (id, answer) => post(sessionPath(id, "/answer"), answer),
  usage: (id, calls) => get(sessionPath(id, `/usage${calls ? "?calls=1" : ""}`)),
  history: (id, last) => get(sessionPath(id, `/history?last=${last}`)),
  filters: (id) => get(sessionPath(id, "/filters")),
  earlier: (id, before, last) =>
    get(sessionPath(id, `/earlier?${new URLSearchParams({ before, last })}`)),
  events: (id, last) => sessionPath(id, `/events?last=${last}`),
};

// Sessions that have ended and can be resumed.
export const persisted = {
  list: (last) => get(`/persisted?last=${last}`),
  resume: (id, request) => post(`/persisted/${encodeURIComponent(id)}/resume`, request),
};

export const providers = {
  steer: (name, action) => post(`/providers/${encodeURIComponent(name)}/${action}`, undefined),
  log: (name, last) => `/providers/${encodeURIComponent(name)}/log?follow=1&last=${last}`,
};

export const tools = {
  call: (session, name, request, signal) =>
    call("POST", sessionPath(session, `/tools/${encodeURIComponent(name)}/call`), request, {},
      signal),
};

export const sources = {
  run: (name) => post(`/sources/${encodeURIComponent(name)}/run`, undefined),
};

export const goals = {
  start: (request) => post("/goals", request),
  stop: (id, reason) => post(`/goals/${encodeURIComponent(id)}/stop`, reason ? { reason } : {}),
};

// records finds what has happened, newest first. query has the parameters of GET /records.
export async function records(query) {
  const given = Object.entries(query).filter(([, value]) => value);
  const found = await get(`/records?${new URLSearchParams(given)}`);
  return { ...found, records: found.records.reverse() };
}
