// A bot for Telegram or Slack: it reports to people about sessions, and takes their prompts and
// answers. README.md is its manual.

import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { ApiError } from "./api.mjs";
import { Bot } from "./bot.mjs";
import { readConfig } from "./config.mjs";
import { connect } from "./gateway.mjs";
import { Slack } from "./slack.mjs";
import { Store } from "./store.mjs";
import { Telegram } from "./telegram.mjs";

const RETRY = 5000; // milliseconds until a service that is away is asked again
const FLUSH = 1000; // for messages that are on their way when the bot is stopped

/** @param {unknown[]} words */
const log = (...words) => console.error("chat:", ...words);

/** Asks the service who the bot is, until it answers. @param {Telegram | Slack} service @param {AbortSignal} signal */
async function start(service, signal) {
  for (;;) {
    try {
      await service.start();
      return;
    } catch (e) {
      if (!(e instanceof ApiError) || !e.isPassing) throw e;
      log(e.message);
      await sleep((e.retryAfter ?? 0) * 1000 || RETRY, undefined, { signal });
    }
  }
}

/** Runs the bot until stopping. @param {AbortController} stopping */
async function run(stopping) {
  const config = readConfig(process.env);
  const sending = new AbortController(); // outlives stopping, for messages on their way
  const service = new { slack: Slack, telegram: Telegram }[config.service](config, log,
    sending.signal);
  const { provider, ready } = connect(config.name, (gateway, persistDir) => {
    if (!persistDir) throw new Error("the gateway gives it no directory: start it by a provider file of kind command");
    const store = new Store(join(persistDir, `${config.service}.json`));
    return new Bot(config, service, store, gateway, log, sending.signal);
  }, log);
  const { signal } = stopping;
  const stopped = new Promise((done) => signal.addEventListener("abort", done));
  const listen = async () => {
    await start(service, signal);
    await (await ready).listen(signal);
  };
  try {
    await Promise.race([stopped, provider.closed, listen()]);
  } finally {
    stopping.abort();
    await provider.disconnect();
    const made = await Promise.race([ready, undefined]).catch(() => undefined);
    await Promise.race([made?.outbox.settled(), sleep(FLUSH, undefined, { ref: false })]);
    sending.abort();
    await made?.store.save();
  }
}

const stopping = new AbortController();
for (const name of ["SIGTERM", "SIGINT"]) process.once(name, () => stopping.abort());
run(stopping).catch((e) => {
  if (e.name === "AbortError") return;
  log(e.message);
  process.exitCode = 1;
});
