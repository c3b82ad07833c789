// Servers that behave as the two services do, as far as their documents say: they check what they
// get, keep messages, hold polls, send events again, and refuse. As a program, `node recorded.mjs
// telegram` prints its URL, and takes people's actions over HTTP: POST /control NAME ARGUMENTS, GET
// /control.

import { createServer } from "node:http";
import { WebSocketServer } from "ws";

export const TOKEN = "7001:AAE-token-of-the-bot";
export const APP_TOKEN = "xapp-1-token-of-the-app";
export const BOT = { id: 7001, username: "tap_test_bot", user: "U0BOT" };

/**
 * @typedef {{ method: string, body: any }} Call
 * @typedef {{ status: number, headers?: Record<string, string>, body: any }} Reply
 */

/** The base of both servers. */
class Server {
  /** @type {Call[]} requests that succeeded, oldest first */
  calls = [];
  /** @type {Map<string, Reply[]>} by method: the answers to the next requests */
  failures = new Map();
  /** @type {(() => void)[]} */
  #waiting = [];
  url = "";

  constructor() {
    this.http = createServer((request, response) => {
      let text = "";
      request.on("data", (data) => (text += data));
      request.on("end", async () => {
        const { status, headers = {}, body } = await this.answer(request.url ?? "", request.headers,
          text);
        response.writeHead(status, { "Content-Type": "application/json", ...headers });
        response.end(typeof body === "string" ? body : JSON.stringify(body));
      });
    });
  }

  async start() {
    await new Promise((done) => this.http.listen(0, "127.0.0.1", () => done(undefined)));
    const address = /** @type {import("node:net").AddressInfo} */ (this.http.address());
    this.url = `http://127.0.0.1:${address.port}`;
    return this;
  }

  async stop() {
    this.http.closeAllConnections();
    await new Promise((done) => this.http.close(done));
  }

  /** Makes the next request of a method fail. @param {string} method @param {Reply} reply */
  fail(method, reply) {
    this.failures.set(method, [...(this.failures.get(method) ?? []), reply]);
  }

  /** @param {string} url @param {import("node:http").IncomingHttpHeaders} headers @param {string} text
   * @returns {Promise<Reply>} */
  async answer(url, headers, text) {
    if (url !== "/control") return this.request(url, headers, text);
    if (!text) return { status: 200, body: this.calls };
    const { name, args } = JSON.parse(text);
    try {
      return { status: 200, body: (await /** @type {any} */ (this)[name](...args)) ?? {} };
    } catch (e) {
      return { status: 409, body: String(e) };
    }
  }

  /** @param {string} _url @param {import("node:http").IncomingHttpHeaders} _headers @param {string} _text
   * @returns {Promise<Reply>} */
  async request(_url, _headers, _text) {
    throw new Error("no server");
  }

  /** @param {string} method @param {any} body */
  record(method, body) {
    this.calls.push({ method, body });
    for (const done of this.#waiting.splice(0)) done();
  }

  /**
   * Waits for a request that succeeded.
   * @param {(call: Call) => boolean} is
   * @returns {Promise<Call>}
   */
  async called(is) {
    for (;;) {
      const found = this.calls.find(is);
      if (found) return found;
      await new Promise((done) => this.#waiting.push(() => done(undefined)));
    }
  }
}

export class TelegramServer extends Server {
  /** @type {any[]} */
  updates = [];
  /** @type {Map<number, any>} by id */
  messages = new Map();
  #last = 100;
  /** @type {((reply: Reply | undefined) => void) | undefined} ends a poll that is held */
  #poll;

  /** @param {string} url @param {any} _ @param {string} text @returns {Promise<Reply>} */
  async request(url, _, text) {
    const [, token, method] = /^\/bot([^/]+)\/(\w+)$/.exec(url) ?? [];
    if (token !== TOKEN) return refused(401, "Unauthorized");
    const failure = this.failures.get(method)?.shift();
    if (failure) return failure;
    const body = JSON.parse(text);
    const reply = await /** @type {any} */ (this)[`_${method}`](body);
    if (reply.status === 200) this.record(method, body);
    return reply;
  }

  _getMe() {
    return result({ id: BOT.id, is_bot: true, first_name: "tap", username: BOT.username });
  }

  /** @param {any} body */
  async _getUpdates({ offset = 0 }) {
    this.#poll?.(refused(409, "Conflict: terminated by other getUpdates request"));
    this.updates = this.updates.filter((u) => !(u?.update_id < offset));
    if (this.updates.length === 0) {
      const ended = await new Promise((done) => (this.#poll = done));
      if (ended) return ended;
    }
    this.#poll = undefined;
    const updates = [...this.updates];
    this.updates = updates.filter((u) => u?.update_id); // one without an id can't be confirmed
    return result(updates);
  }

  /** @param {any} body */
  _sendMessage(body) {
    const wrong = this.#check(body);
    if (wrong) return wrong;
    const message_id = ++this.#last;
    const message = { message_id, chat: { id: Number(body.chat_id) }, date: 1, ...body };
    this.messages.set(message_id, message);
    return result(message);
  }

  /** @param {any} body */
  _editMessageText(body) {
    const message = this.messages.get(body.message_id);
    if (!message || String(message.chat.id) !== String(body.chat_id)) {
      return refused(400, "Bad Request: message to edit not found");
    }
    const wrong = this.#check(body);
    if (wrong) return wrong;
    if (JSON.stringify([message.text, message.reply_markup]) === JSON.stringify([body.text,
      body.reply_markup])) {
      return refused(400, "Bad Request: message is not modified");
    }
    return result(Object.assign(message, body));
  }

  /** @param {any} body */
  _answerCallbackQuery({ text = "" }) {
    return text.length > 200 ? refused(400, "Bad Request: MESSAGE_TOO_LONG") : result(true);
  }

  /** @param {any} body */
  #check({ text, entities = [], reply_markup }) {
    if (!text) return refused(400, "Bad Request: message text is empty");
    if (text.length > 4096) return refused(400, "Bad Request: message is too long");
    if (entities.some((/** @type {any} */ e) => e.offset < 0 || e.length < 1 ||
      e.offset + e.length > text.length)) {
      return refused(400, "Bad Request: ENTITY_BOUNDS_INVALID");
    }
    const buttons = reply_markup?.inline_keyboard.flat() ?? [];
    const isWrong = (/** @type {any} */ b) => !b.text || Buffer.byteLength(b.callback_data) > 64;
    return buttons.some(isWrong) ? refused(400, "Bad Request: BUTTON_DATA_INVALID") : undefined;
  }

  /** Sends an update to the bot that polls. @param {any} update */
  update(update) {
    const update_id = Math.max(900, this.#newest) + 1;
    this.#newest = update_id;
    this.raw({ update_id, ...update });
    return { update_id };
  }
  #newest = 0;

  get isPolled() {
    return this.#poll !== undefined;
  }

  /** Sends an update as it is. @param {any} update */
  raw(update) {
    this.updates.push(update);
    this.#poll?.(undefined);
  }

  /** A person writes. @param {number} user @param {string} text @param {any} [more] of the message */
  write(user, text, more = {}) {
    return this.update({ message: {
      message_id: ++this.#last, date: 1, text, from: person(user),
        chat: { id: user, type: "private" }, ...more,
    } });
  }

  /**
   * A person presses a button of a message, found by a text of the message.
   * @param {number} user @param {string} text @param {string} label @param {any} [more] of the callback
   */
  press(user, text, label, more = {}) {
    const buttonOf = (/** @type {any} */ m) =>
      m?.reply_markup.inline_keyboard.flat().find((/** @type {any} */ b) => b.text === label);
    const found = [...this.messages.values()].filter((m) => m.text.includes(text));
    const message = found.findLast(buttonOf) ?? found.at(-1);
    const button = buttonOf(message);
    if (!message || (!button && !more.data)) throw new Error(`no button ${label} at ${text}`);
    const chat = { ...message.chat, type: message.chat.id < 0 ? "group" : "private" };
    return this.update({ callback_query: {
      id: `q${++this.#last}`, from: person(user), message: { message_id: message.message_id, chat },
      data: button?.callback_data, ...more,
    } });
  }

  async stop() {
    this.#poll?.(refused(502, "Bad Gateway"));
    await super.stop();
  }
}

/** @param {number} id */
const person = (id) => ({ id, is_bot: false, first_name: `Person ${id}`, username: `person${id}` });

/** @param {any} value @returns {Reply} */
const result = (value) => ({ status: 200, body: { ok: true, result: value } });

/** @param {number} status @param {string} description @returns {Reply} */
const refused = (status, description) =>
  ({ status, body: { ok: false, error_code: status, description } });

/** The answer of a server that wants to be left alone for some seconds. @param {number} seconds @returns {Reply} */
export const tooMany = (seconds) => ({
  status: 429, headers: { "Retry-After": String(seconds) },
  body: {
    ok: false, error_code: 429, description: `Too Many Requests: retry after ${seconds}`,
      error: "ratelimited",
    parameters: { retry_after: seconds },
  },
});

export class SlackServer extends Server {
  /** @type {Map<string, any>} by ts */
  messages = new Map();
  /** @type {Map<string, any>} envelopes that were not acknowledged */
  open = new Map();
  /** @type {import("ws").WebSocket[]} */
  sockets = [];
  #last = 100;
  #ws = new WebSocketServer({ server: this.http });

  constructor() {
    super();
    this.#ws.on("connection", (socket) => {
      this.sockets.push(socket);
      socket.on("message", (data) => {
        const { envelope_id } = JSON.parse(String(data));
        this.open.delete(envelope_id);
        this.record("acknowledged", { envelope_id });
      });
      socket.on("close", () => (this.sockets = this.sockets.filter((s) => s !== socket)));
      const hello = { type: "hello", num_connections: this.sockets.length,
        connection_info: { app_id: "A1" } };
      socket.send(JSON.stringify(hello));
      for (const envelope of this.open.values()) {
        socket.send(JSON.stringify({ ...envelope, retry_attempt: 1, retry_reason: "timeout" }));
      }
    });
  }

  /** @param {string} url @param {import("node:http").IncomingHttpHeaders} headers @param {string} text
   * @returns {Promise<Reply>} */
  async request(url, headers, text) {
    const method = url.slice(1);
    const failure = this.failures.get(method)?.shift();
    if (failure) return failure;
    const wanted = method === "apps.connections.open" ? APP_TOKEN : TOKEN;
    if (headers.authorization !== `Bearer ${wanted}`) return no("invalid_auth");
    const body = JSON.parse(text);
    const reply = this.#methods[method]?.(body) ?? no("unknown_method");
    if (reply.body.ok) this.record(method, body);
    return reply;
  }

  /** @type {Record<string, (body: any) => Reply>} */
  #methods = {
    "auth.test": () => yes({ user_id: BOT.user, team_id: "T1" }),
    "apps.connections.open": () =>
      yes({ url: `${this.url.replace("http", "ws")}/link/?ticket=${++this.#last}&app_id=A1` }),
    "chat.postMessage": (body) => {
      const wrong = check(body);
      const ts = `1700000000.${String(++this.#last).padStart(6, "0")}`;
      if (!wrong) this.messages.set(ts, { ...body, ts });
      return wrong ?? yes({ ts, channel: body.channel });
    },
    "chat.update": (body) => {
      const message = this.messages.get(body.ts);
      if (message?.channel !== body.channel) return no("message_not_found");
      const wrong = check(body);
      if (!wrong) this.messages.set(body.ts, { ...body });
      return wrong ?? yes({ ts: body.ts });
    },
    "chat.postEphemeral": () => yes({ message_ts: "1" }),
  };

  /** Sends an envelope to one of the sockets. @param {string} type @param {any} payload */
  envelope(type, payload) {
    const envelope_id = `e${++this.#last}`;
    const envelope = { envelope_id, type, accepts_response_payload: false, payload };
    this.open.set(envelope_id, envelope);
    this.sockets.at(-1)?.send(JSON.stringify(envelope));
    return { envelope_id };
  }

  /** Says something on the newest socket. @param {any} message */
  raw(message) {
    this.sockets.at(-1)?.send(typeof message === "string" ? message : JSON.stringify(message));
  }

  /** A person writes to the bot. @param {string} user @param {string} text @param {any} [more] of the event */
  write(user, text, more = {}) {
    const ts = `1600000000.${++this.#last}`;
    return this.envelope("events_api", {
      type: "event_callback", event_id: more.event_id ?? `Ev${++this.#last}`, team_id: "T1",
      event: { type: "message", channel_type: "im", channel: `D${user}`, user, text, ts, ...more },
    });
  }

  /** A person presses a button. @param {string} user @param {string} text @param {string} label @param {any} [more] */
  press(user, text, label, more = {}) {
    const buttonOf = (/** @type {any} */ m) => m?.blocks.find((/** @type {any} */ b) =>
      b.type === "actions")
      ?.elements.find((/** @type {any} */ b) => b.text.text === label);
    const found = [...this.messages.values()].filter((m) => textOf(m).includes(text));
    const message = found.findLast(buttonOf) ?? found.at(-1);
    const button = buttonOf(message);
    if (!message || (!button && !more.value)) throw new Error(`no button ${label} at ${text}`);
    return this.envelope("interactive", {
      type: "block_actions", user: { id: user, username: user.toLowerCase() },
        channel: { id: message.channel },
      message: { ts: message.ts }, actions: [{ type: "button", value: more.value ?? button.value }],
        trigger_id: "1",
    });
  }

  async stop() {
    for (const socket of this.sockets) socket.terminate();
    await super.stop();
  }
}

/** The visible text of a message of Slack. @param {any} message */
export const textOf = ({ blocks }) => blocks.flatMap((/** @type {any} */ b) => b.elements ?? [])
  .flatMap((/** @type {any} */ e) => e.elements ?? []).map((/** @type {any} */ e) =>
    e.text).join("");

/** @param {any} body */
function check({ blocks = [], text }) {
  if (!text) return no("no_text");
  for (const b of blocks) {
    const elements = b.elements ?? [];
    if (elements.length === 0 || elements.length > 25) return no("invalid_blocks");
    for (const e of elements) {
      const isWrong = b.type === "actions" ? !e.text.text || e.text.text.length > 75 ||
        e.value.length > 2000
        : e.elements.some((/** @type {any} */ one) => !one.text);
      if (isWrong) return no("invalid_blocks");
    }
  }
  return textOf({ blocks }).length > 13_000 ? no("msg_blocks_too_long") : undefined;
}

/** @param {any} more @returns {Reply} */
const yes = (more) => ({ status: 200, body: { ok: true, ...more } });

/** @param {string} error @returns {Reply} */
const no = (error) => ({ status: 200, body: { ok: false, error } });

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const server = process.argv[2] === "slack" ? new SlackServer() : new TelegramServer();
  console.log((await server.start()).url);
}
