// One run of a provider.

import { setTimeout as sleep } from "node:timers/promises";
import { Connection } from "./connection.mjs";
import { endpoints, isHere, isPaired, sameEndpoint } from "./discover.mjs";
import { FatalError, NotPairedError, RefusedError, asError } from "./errors.mjs";
import { Run, report } from "./run.mjs";

/** @import { Endpoint } from "./discover.mjs" */

// Milliseconds.
const FIRST_WAIT = 200;
const MAX_WAIT = 5000;
const MAX_WAIT_HERE = 800; // on this machine an attempt costs nothing, and people wait for the gateway's return
const REFUSED_WAIT = 30_000; // a refused token is not sent again before

/** One run of a provider: it connects again and again until it is stopped or waiting can't help. */
export class Runner extends Run {
  /** @type {Connection | undefined} the latest one */
  connection;
  #far = false; // the last gateway is not on this machine

  /** Runs until stop() is called, or until waiting can't help. */
  async serve() {
    await null; // the program may say more about the provider before it connects
    try {
      for (let attempt = 0; !this.stopped; attempt++) {
        const { lasted, error } = await this.#tryEndpoints();
        if (this.stopped) break;
        if (error instanceof FatalError) throw error.error;
        if (lasted >= MAX_WAIT) attempt = 0;
        this.#reportFailure(error);
        await sleep(this.#backoff(attempt), undefined,
          { signal: this.stopping.signal }).catch(() => {});
      }
    } catch (e) {
      report(this.p, asError(e), "stopped");
      throw e;
    } finally {
      await this.settled();
    }
  }

  /** The wait before an attempt. The jitter only shortens it. @param {number} attempt */
  #backoff(attempt) {
    const most = this.#far ? MAX_WAIT : MAX_WAIT_HERE;
    const wait = Math.min(FIRST_WAIT * 1.5 ** attempt, most);
    return wait / 2 + (Math.random() * wait) / 2;
  }

  /**
   * Tries each endpoint once until one accepts the provider, and serves that connection until its end.
   * @returns {Promise<{ lasted: number, error: Error }>}
   */
  async #tryEndpoints() {
    let found;
    try {
      found = this.p.paired ? [this.p.paired] : endpoints(this.p.options);
    } catch (e) {
      return { lasted: 0, error: asError(e) };
    }
    this.#far = found.some((e) => !isHere(e.url));
    const errors = [];
    for (const to of found) {
      const before = this.refused.find((r) => sameEndpoint(r.to, to));
      if (before && Date.now() - before.at < REFUSED_WAIT) {
        errors.push(new RefusedError("the same token was refused before"));
        continue;
      }
      const { lasted, accepted, error } = await this.#connect(to);
      if (accepted || this.stopped || error instanceof FatalError) return { lasted, error };
      errors.push(error);
    }
    const error = errors.length === 1 ? errors[0] : new Error(errors.map((e) =>
      e.message).join("; "));
    return { lasted: 0, error };
  }

  /** Serves an endpoint, with the reconnect token first; if that is refused, the token follows. @param {Endpoint} to */
  async #connect(to) {
    const r = this.reconnect;
    if (r && sameEndpoint(r.to, to) && (r.until === 0 || Date.now() < r.until)) {
      const ended = await this.#serve(to, r.token);
      if (ended.accepted || !(ended.error instanceof RefusedError)) return ended;
    }
    this.reconnect = undefined;
    const ended = await this.#serve(to, "");
    if (!(ended.error instanceof RefusedError)) return ended;
    if (isPaired(to)) return { ...ended,
      error: new FatalError(new NotPairedError(ended.error.message)) };
    if (to.fixedToken) return { ...ended, error: new FatalError(ended.error) };
    this.refused = [...this.refused.filter((old) => !sameEndpoint(old.to, to)),
      { to, at: Date.now() }];
    return ended;
  }

  /** Reports the end of a connection, or the first of several attempts that fail. @param {Error} error */
  #reportFailure(error) {
    if (this.failing) {
      this.p.log.debug(`not connected: ${error.message}`);
      return;
    }
    this.failing = true;
    report(this.p, error, "not connected; trying again");
  }

  /** Serves one connection. @param {Endpoint} to @param {string} reconnectToken */
  #serve(to, reconnectToken) {
    this.connection = new Connection(this, to, reconnectToken);
    return this.connection.serve();
  }
}
