// The bot as a provider: the gateway's events for it, and its requests to the gateway.

import { createProvider, ProviderError, QuestionEnded } from "tapgw-provider";

/** @import { Bot, Gateway } from "./bot.mjs" */
/** @import { Question } from "tapgw-provider" */

const STREAM = "prompts";

/**
 * Connects to the gateway. The result is ready when the bot may take events.
 * @param {string} name of the provider
 * @param {(gateway: Gateway, persistDir: string) => Bot} makeBot is called once a session is bound
 * @param {(...words: unknown[]) => void} log
 */
export function connect(name, makeBot, log) {
  /** @type {Map<string, string>} */
  const labels = new Map();
  /** @type {Map<string, Question>} those that wait, by id */
  const questions = new Map();
  /** @type {(persistDir: string) => void} */
  let make = () => {};
  /** @type {Promise<Bot>} */
  const bot = new Promise((done, failed) => {
    make = (persistDir) => {
      make = () => {};
      try {
        done(makeBot(gateway, persistDir));
      } catch (e) {
        failed(e);
      }
    };
  });
  /** @type {(bot: Bot) => void} */
  let begin = () => {};
  /** @type {Promise<Bot>} resolves when it knows the sessions that were there at its start */
  const ready = new Promise((done, failed) => {
    begin = done;
    bot.catch(failed);
  });
  const logger = { debug() {}, info() {}, warn: log, error: log };
  const provider = createProvider(name, {
    session: "all", logger,
    prepareSession: ({ id, label }) => void labels.set(id, label),
    onConnected: async ({ sessionId, persistDir }) => {
      make(persistDir);
      const b = await bot;
      await b.started(sessionId, labels.get(sessionId) ?? "");
      begin(b);
    },
    onDisconnected: async () => (await bot).disconnected(),
    onSessionIdle: async ({ sessionId }) => {
      const { turns } = await bot;
      await told();
      turns.end(sessionId, "");
    },
    onQuestion: async (question) => {
      const { id, sessionId, signal } = question;
      const b = await bot;
      questions.set(id, question);
      signal.addEventListener("abort", () => {
        questions.delete(id);
        if (signal.reason instanceof QuestionEnded) b.questions.ended(id, signal.reason);
      });
      b.questions.asked(sessionId, question);
    },
    onShutdown: async ({ sessionId }) => (await bot).ended(sessionId),
  });
  const gateway = {
    /** @type {Gateway["prompt"]} */
    prompt: async (session, prompt, { id, who, text }) => {
      if (!provider.connected) throw new ProviderError("NOT_SENT");
      return provider.pushEvent("inject", `${who}: ${text}`, {
        session, prompt, stream: STREAM, metadata: { prompt: id }, waitDelivered: true,
      });
    },
    /** @type {Gateway["prompts"]} */
    prompts: async (session) => {
      const stored = await provider.query({ session, streams: [STREAM], last: 100 });
      await told();
      return new Set(stored.map((e) => String(e.metadata?.prompt)));
    },
    /** @type {Gateway["answer"]} */
    answer: async (id, answer) => {
      const question = questions.get(id);
      if (question) await question.answer(answer);
      else throw new ProviderError(provider.connected ? "INVALID_STATE" : "DISCONNECTED",
        "the question is over");
    },
  };
  /** @param {string} event @param {(bot: Bot, session: string, data: any) => void} tell */
  const on = (event, tell) => provider.subscribe(event,
    async (data) => tell(await bot, data.sessionId, data));
  on("user.message", (b, session, { content }) => b.began(session, content));
  on("assistant.message", (b, session, { content }) => b.turns.said(session, content));
  on("tool.execution_complete", (b, session, call) => b.turns.called(session, call));
  on("session.error", (b, session, { message }) => b.turns.notify(session, "errors",
    `⚠ ${message}`));
  on("event.pushed", (b, session, pushed) => pushed.provider !== name &&
    b.turns.pushed(session, pushed));
  return { provider, ready };
}

/** Resolves when the listeners of all messages that have come have run. */
const told = () => new Promise((done) => setImmediate(done));
