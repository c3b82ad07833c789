// One connection to a gateway, and the handling of its messages.

import { Calls } from "./calls.mjs";
import { Changes } from "./changes.mjs";
import { FatalError, RefusedError, fromGateway } from "./errors.mjs";
import { Link } from "./link.mjs";
import { Questions } from "./questions.mjs";
import { Requests } from "./requests.mjs";
import { report } from "./run.mjs";
import { Sessions } from "./sessions.mjs";
import { text } from "./wire.mjs";

/** @import { CancelError } from "./errors.mjs" */
/** @import { Message } from "./model.mjs" */

/** One connection to a gateway, from dialling to its end. */
export class Connection extends Link {
  changes = new Changes(this);
  requests = new Requests(this);
  calls = new Calls(this);
  sessions = new Sessions(this, {
    calls: this.calls, changes: this.changes, questions: new Questions(this, this.requests),
      requests: this.requests,
  });

  /** @override */
  offerChanged() {
    this.sessions.offerChanged();
  }

  /** @override @param {CancelError} reason */
  release(reason) {
    this.changes.unlink();
    super.release(reason);
    this.sessions.end(reason);
    this.calls.end(reason);
    this.requests.end();
  }

  /** @override @param {string} data */
  receive(data) {
    if (this.over) return;
    let m;
    try {
      m = JSON.parse(data);
    } catch {
      m = undefined;
    }
    if (typeof m?.type !== "string") {
      this.log.warn("ignoring a message of the gateway that is no object with a type");
      return;
    }
    try {
      this.#handle(m);
    } catch (e) {
      this.log.warn(`ignoring a wrong ${m.type} of the gateway:`, e);
    }
  }

  /** @param {Message} m */
  #handle(m) {
    switch (m.type) {
      case "tool.call":
        return this.calls.onCall(m);
      case "tool.cancel":
        return this.calls.onCancel(m);
      case "sessions":
        return this.sessions.onSessions(m.active, true);
      case "sessions.updated":
        return this.sessions.onSessions(m.active, false);
      case "hello.ack":
        return this.sessions.onHelloAck(m);
      case "gate.check":
        return this.calls.onGate(m);
      case "transform.request":
        return this.calls.onTransform(m);
      case "session.event":
        return this.sessions.onEvent(m);
      case "session.lifecycle":
        return this.sessions.onLifecycle(m);
      case "ack":
        return this.changes.confirm(m) || this.requests.onReceipt(m);
      case "stream.history":
        return this.requests.onHistory(m);
      case "error":
        return this.#handleError(m);
      default:
        this.log.debug(`ignoring ${m.type}`); // newer gateways say more
    }
  }

  /** @param {Message} m */
  #handleError(m) {
    const error = fromGateway(m);
    const { code, replyTo } = m;
    if (code === "AUTH_FAILED") {
      this.fail(this.state === "sessions" ? new RefusedError(text(m.message)) : error);
    } else if (code === "UNSUPPORTED_VERSION") {
      error.message = `the gateway speaks another version: ${error.message}`;
      this.fail(new FatalError(error));
    } else if (this.state === "ack" && (!replyTo || replyTo === "hello")) {
      this.sessions.onHelloError(code, error);
    } else if (!this.changes.refuse(m, error) && !this.requests.refuse(m, error)) {
      if (replyTo === "session.ready") this.sessions.onNotReady(m);
      if (isOutdated(m)) this.log.debug(`the gateway refused ${replyTo}: ${error.message}`);
      else report(this.p, error, "the gateway refused");
    }
  }
}

/** Whether an error only means that a message was about something that had just ended. @param {Message} m */
function isOutdated({ code, replyTo }) {
  return (
    ["INVALID_STATE", "INVALID_SESSION", "UNKNOWN_CALL_ID"].includes(code) &&
    ["shutdown.ready", "tool.progress", "tool.result", "gate.result", "transform.result",
      "session.ready",
      "tools.update", "hooks.update", "context.update", "filter.set"].includes(replyTo)
  );
}
