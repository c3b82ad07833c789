// The Node SDK for writing a provider: a process that gives tools, events, rules and prompt text to
// the sessions of a coding agent, through a gateway. docs/providers.md explains it by task.
//
// A provider (lib/provider.mjs) has one run at a time (lib/runner.mjs), a run has one connection at
// a time (lib/connection.mjs), and a connection has the calls that are in flight (lib/calls.mjs).
// The provider's offer (lib/offer.mjs) outlives them. Imports have no cycle: the parts
// of a connection import its state from lib/run.mjs and lib/link.mjs.

export {
  CancelError, NotConnectedError, NotPairedError, ProviderError, QuestionEnded, notFound,
} from "./lib/errors.mjs";
export * from "./lib/model.mjs"; // allow, deny and the types
export { Rule } from "./lib/offer.mjs";
export { Provider, createProvider, createProvider as default } from "./lib/provider.mjs";
export { contentResult, fileResult, imageResult } from "./lib/results.mjs";
