#!/usr/bin/env node
// jira-github brings the issues of GitHub or Jira into a session, and the agent's comments on them
// out.

import { setTimeout as sleep } from "node:timers/promises";
import { createProvider } from "../../node/index.mjs";
import { HELP, configure } from "./config.mjs";
import { clean } from "./text.mjs";
import { makeTools } from "./tools.mjs";
import { Watcher } from "./watcher.mjs";

/** @param {NonNullable<ReturnType<typeof configure>>} config */
function start({ source, allowed, interval, ways }) {
  /** @type {ReturnType<typeof createProvider>} */
  let provider;
  const watcher = new Watcher(source, ways, {
    setContext: (text) => provider.setContext(text),
    pushEvent: (level, text, options) => provider.pushEvent(level, text, options),
  });
  provider = createProvider("jira-github", {
    tools: makeTools(watcher, allowed),
    async onConnected({ signal }) {
      for (let complaint = ""; !signal.aborted;) {
        try {
          await watcher.look(signal);
          complaint = "";
        } catch (e) {
          const text = clean(/** @type {Error} */ (e).message);
          if (!signal.aborted && text !== complaint) console.error(`jira-github: ${text}`);
          complaint = text;
        }
        const pause = Math.max(interval, source.api.blocked - Date.now());
        await sleep(pause, undefined, { signal }).catch(() => {});
      }
    },
  });
  for (const name of /** @type {const} */ (["SIGINT", "SIGTERM"])) process.once(name,
    () => provider.disconnect());
  return provider.closed;
}

try {
  const config = configure(process.argv.slice(2), process.env);
  if (config) await start(config);
  else process.stdout.write(HELP);
} catch (e) {
  console.error(`jira-github: ${clean(/** @type {Error} */ (e).message)}`);
  process.exitCode = 1;
}
