// A preview of filters (docs/protocol.md, "Filters") in the browser's regular expressions. The
// first rule whose pattern is found in an event's text decides; an event that no rule matches keeps
// its level.

export const outcomes = ["drop", "keep", "surface", "inject"];

const patternMost = 1024; // bytes
const rulesMost = 100;
const textMost = 64 << 10; // bytes of text that patterns are tried on
const patience = 300; // ms for all events; the gateway gives each match one

const bytes = (text) => new TextEncoder().encode(text).length;

// check returns a text for each rule: why the gateway would refuse it, or "".
export function check(rules) {
  return rules.map(({ match }, i) => {
    if (i >= rulesMost) return `more than ${rulesMost} rules`;
    if (!match) return "a pattern is required";
    if (bytes(match) > patternMost) return `must be at most ${patternMost} bytes`;
    try {
      new RegExp(match);
    } catch (e) {
      return e.message.replace(/^Invalid regular expression: /, "");
    }
    return "";
  });
}

// decide returns for each text the index of the rule that decides, or -1. The worker runs it.
export function decide(rules, texts) {
  const patterns = rules.map((r) => new RegExp(r.match));
  return texts.map((text) =>
    (bytes(text) > textMost ? -1 : patterns.findIndex((p) => p.test(text))));
}

const policy = globalThis.trustedTypes?.createPolicy("tapgw", {
  createScriptURL: (url) => (url === workerURL ? url : ""),
});
const workerURL = new URL("filter-worker.js", import.meta.url).href;

// preview runs decide in a worker, so that a slow pattern does not stop the page. It resolves with
// null if the patterns take too long.
export function preview(rules, texts) {
  return new Promise((resolve) => {
    const worker = new Worker(policy ? policy.createScriptURL(workerURL) : workerURL,
      { type: "module" });
    let timer;
    const end = (result) => {
      clearTimeout(timer);
      worker.terminate();
      resolve(result);
    };
    worker.onmessage = ({ data }) => {
      if (data === "ready") {
        worker.postMessage({ rules, texts });
        timer = setTimeout(() => end(null), patience);
      } else {
        end(data);
      }
    };
    worker.onerror = () => end(null);
  });
}
