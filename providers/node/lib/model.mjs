// The types that a provider's functions take and return, and a gate's decisions.

/**
 * @typedef {Record<string, any>} Message one JSON object of the wire (docs/protocol.md)
 * @typedef {"keep" | "surface" | "inject"} Level how far an event goes into a session
 * @typedef {{ id: string, label: string, cwd?: string, foreground?: boolean }} Session
 *
 * @typedef {object} Binding a session that the provider is bound to
 * @property {string} sessionId
 * @property {string} providerId the gateway's id of this provider
 * @property {string} cwd the session's working directory
 * @property {string} persistDir a directory for files that outlive the session; "" without the right to one
 * @property {AbortSignal} signal is aborted when the binding ends
 *
 * @typedef {object} SessionState a change of a bound session
 * @property {string} sessionId
 * @property {AbortSignal} signal of onShutdown: is aborted at the deadline
 * @property {number} deadline of onShutdown: how many milliseconds cleaning up may take; else 0
 *
 * @typedef {object} CallContext a call, as its handler sees it
 * @property {string} callId
 * @property {string} sessionId the session that calls
 * @property {string} providerId
 * @property {string} tool
 * @property {string} traceparent W3C trace context of the caller, or ""
 * @property {string} persistDir see Binding
 * @property {AbortSignal} signal is aborted when the result is no longer awaited; its reason is a CancelError
 * @property {(message: string) => void} progress shows a line in the session's timeline
 *
 * @typedef {object} Tool
 * @property {string} name 1 to 64 letters, digits, "_" or "-"
 * @property {string} description tells the model the tool's purpose
 * @property {object} [parameters] a JSON Schema of an object, or a schema that can write one, as zod's can
 * @property {(args: any, call: CallContext) => any} [handler] answers a call; without it onToolCall does
 * @property {number} [timeout] of a call, 1 to 3600000 milliseconds; five minutes if left out
 * @property {boolean} [validate] false: the gateway does not check the arguments
 * @property {string} [title] the name for people
 * @property {Annotations} [annotations] hints about the tool's effects
 * @property {object} [outputSchema] a JSON Schema of the results, which are then objects
 *
 * @typedef {object} Annotations hints about a tool's effects; no gate goes by them, MCP clients may
 * @property {boolean} [readOnlyHint] true: it changes nothing
 * @property {boolean} [destructiveHint] false: it adds, and destroys nothing
 * @property {boolean} [idempotentHint] true: a second call with the same arguments changes nothing more
 * @property {boolean} [openWorldHint] false: it reaches nothing outside its own domain
 *
 * @typedef {object} Match the calls that a rule is about: every part that is there must match
 * @property {string} [tool] a name or a glob; "shell", "edit" and "read" stand for the session's own tools
 * @property {string} [args] a JavaScript regular expression on the arguments as compact JSON
 * @property {string} [file] a glob for the file that the call names
 * @property {string} [provider] the provider that owns the tool
 *
 * @typedef {object} GateCall a tool call that a gate decides about
 * @property {string} callId of this question
 * @property {string} sessionId
 * @property {string} tool
 * @property {any} args
 * @property {string} traceparent
 * @property {AbortSignal} signal is aborted when the gateway decides without the gate
 *
 * @typedef {object} Question a session's question to its user. Its texts are the model's or a tool's: show those of a
 *   permission whole, since the person allows all of it
 * @property {string} id never used twice
 * @property {string} sessionId
 * @property {"permission" | "input" | "form" | string} kind
 * @property {string} message
 * @property {string} detail of a permission: all that will be done; else ""
 * @property {string[]} choices of an input: the texts to choose from
 * @property {boolean} freeform of an input: an answer that is no choice is allowed
 * @property {Record<string, unknown>} [schema] of a form: the JSON Schema of its content
 * @property {Date} askedAt
 * @property {Date} expiresAt unanswered by then, it is refused
 * @property {AbortSignal} signal is aborted when the question is over, with a QuestionEnded, or the binding
 * @property {(answer: Answer) => Promise<void>} answer resolves if this answer counts, and rejects with a
 *   ProviderError: INVALID_STATE if the question is over, INVALID_JSON for an answer that it does not take
 *
 * @typedef {object} Answer
 * @property {"once" | "session" | "deny"} [decision] of a permission; "deny" also declines an input or a form
 * @property {string} [text] of an input; with "deny": the reason, for the model
 * @property {Record<string, unknown>} [content] of a form
 * @property {string} [person] the person's name for the timeline, in at most 100 bytes; it is not checked
 *
 * @typedef {{ decision: "allow" | "deny" | "context", reason?: string }} Decision
 * @typedef {{ sessionId: string, name: string, current: string, signal: AbortSignal }} Section
 * @typedef {{ match: string, outcome: Level | "drop" }} FilterRule
 * @typedef {{ session?: string }} InSession the change is for this session only
 *
 * @typedef {object} PushOptions
 * @property {string} [stream] the stream that stores the event; the provider's name if left out
 * @property {Record<string, unknown>} [metadata] is stored with the event
 * @property {string} [prompt] starts a turn with this text, whatever the level
 * @property {string} [session] the id of the session; a provider of all sessions names it or broadcasts
 * @property {boolean} [broadcast] the event is for every bound session
 * @property {boolean} [waitDelivered] wait until a queued event has another fate
 *
 * @typedef {object} Receipt the gateway's report about an event
 * @property {string} sessionId the session that got it; "all" if the gateway keeps it for the next one
 * @property {number} seq the event's number in the session
 * @property {"stored" | "surfaced" | "queued" | "delivered" | "dropped" | ""} fate "" from a gateway without receipts
 * @property {string} reason why it went less far than its level
 * @property {Receipt[]} [each] of a broadcast: the receipt of each session
 *
 * @typedef {{ streams?: string[], last?: number, session?: string }} Query
 * @typedef {object} Entry an event that a stream keeps
 * @property {string} stream
 * @property {string} provider the provider that the stream belongs to
 * @property {Date} time
 * @property {string} text
 * @property {Level} level
 * @property {Record<string, unknown>} [metadata]
 * @property {string} prompt
 *
 * @typedef {object} Logger
 * @property {(...args: unknown[]) => void} debug
 * @property {(...args: unknown[]) => void} info
 * @property {(...args: unknown[]) => void} warn
 * @property {(...args: unknown[]) => void} error
 *
 * @typedef {object} Options
 * @property {Tool[]} [tools]
 * @property {(tool: string, args: any, call: CallContext) => any} [onToolCall] answers the calls of tools without
 *   a handler
 * @property {(binding: Binding) => unknown} [onConnected] runs when a session is bound, and may run as long as it
 * @property {() => unknown} [onDisconnected] runs when a connection with a bound session is lost
 * @property {(state: SessionState) => unknown} [onSessionIdle] the session waits for a prompt
 * @property {(state: SessionState) => unknown} [onShutdown] cleans up; the session may end when it has returned
 * @property {(question: Question) => unknown} [onQuestion] runs for each question of a bound session that waits for an
 *   answer, several at a time, and anew after a reconnect; it needs the grant "questions" of the provider's file
 * @property {(code: string, message: string, error: Error) => unknown} [onError] gets errors that end no run,
 *   and the error that ends it
 * @property {string} [gatewayUrl] instead of TAP_GATEWAY_URL and gateway.json
 * @property {string} [token] instead of TAP_PROVIDER_TOKEN and .provider-token
 * @property {string} [tokenFile] a file with the token, read for each connection
 * @property {string} [instance] distinguishes several running providers of one name
 * @property {Record<string, unknown>} [metadata] describes this instance to the model: title, url
 * @property {string} [session] the only session to bind to, or "all"
 * @property {(active: Session[]) => string} [pickSession] chooses the session to bind to; "" waits for another list
 * @property {(session: Session, signal: AbortSignal) => unknown} [prepareSession] runs before a provider of all
 *   sessions joins one
 * @property {string} [context] is added to each prompt of the user
 * @property {string} [startupContext] is added to the first prompt of a session
 * @property {{ max?: number, scope?: "instance" | "provider" | "tool" }} [concurrency] calls that the gateway sends
 *   at once
 * @property {number} [maxCalls] calls that run at once in this process; 64 if left out
 * @property {boolean} [autoConnect] false: nothing happens before connect()
 * @property {boolean} [silent] true: nothing is logged
 * @property {Logger} [logger] instead of lines on stderr
 *
 * @typedef {object} Part one part of a result, see contentResult
 * @property {"text" | "image" | "audio" | "resource"} type
 * @property {string} [text] of a text, or of a resource that is text
 * @property {Uint8Array} [data] the bytes of an image, a sound or a resource
 * @property {string} [mimeType] required for an image and a sound
 * @property {string} [uri] of a resource
 * @property {string} [name] of a resource, for people
 * @property {string} [description] of a resource
 * @property {{ path: string, mimeType?: string, ttl?: number }} [file] in the persistDir, in place of data
 */

/**
 * Lets a call run. A text is given to the model with it.
 * @param {string} [text]
 * @returns {Decision}
 */
export const allow = (text) =>
  (text ? { decision: "context", reason: text } : { decision: "allow" });

/**
 * Stops a call, with a reason for the model.
 * @param {string} [reason]
 * @returns {Decision}
 */
export const deny = (reason) => ({ decision: "deny", ...(reason && { reason }) });
