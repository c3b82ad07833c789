// The admin API. The browser's cookie is the credential: no token is kept here.

// Refused is an answer that says no: status is HTTP's, code the API's.
export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// signedOut hears of answers that want a sign-in.
export const signedOut = new EventTarget();

export async function call(method, path, body, headers = {}) {
  let response;
  try {
    response = await fetch(`/api/v1${path}`, {
      method,
      headers: body === undefined ? headers : { "Content-Type": "application/json", ...headers },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Refused(0, "UNREACHABLE", "the gateway does not answer");
  }
  const text = await response.text();
  let answer = {};
  try {
    answer = text ? JSON.parse(text) : {};
  } catch {
    // what is no JSON is worded below
  }
  if (response.ok) return answer;
  if (response.status === 401 && !headers.Authorization) signedOut.dispatchEvent(new Event("signedout"));
  throw new Refused(response.status, answer.error?.code ?? "INTERNAL", answer.error?.message ?? `the gateway answered ${response.status}`);
}

export const get = (path) => call("GET", path);
export const post = (path, body = {}) => call("POST", path, body);

const at = (id, what = "") => `/sessions/${encodeURIComponent(id)}${what}`;

export const sessions = {
  start: (request) => post("/sessions", request),
  stop: (id) => call("DELETE", at(id)),
  query: (id, prompt, mode) => post(at(id, "/query"), { prompt, mode, detach: true }),
  interrupt: (id) => post(at(id, "/interrupt")),
  foreground: (id) => post(at(id, "/foreground")),
  model: (id, model, effort) => post(at(id, "/model"), effort ? { model, effort } : { model }),
  answer: (id, answer) => post(at(id, "/answer"), answer),
  usage: (id) => get(at(id, "/usage")),
  history: (id, last) => get(at(id, `/history?last=${last}`)),
  events: (id, last) => `/api/v1${at(id, `/events?last=${last}`)}`,
};

// Sessions that ended and can be resumed.
export const persisted = {
  list: (last) => get(`/persisted?last=${last}`),
  resume: (id) => post(`/persisted/${encodeURIComponent(id)}/resume`),
};

export const providers = {
  steer: (name, action) => post(`/providers/${encodeURIComponent(name)}/${action}`, undefined),
};
