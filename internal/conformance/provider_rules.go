package conformance

// check is a rule with the way to judge it.
type check struct {
	Rule
	run     func(*kit) error // nil: nothing but watching judges it
	watched bool             // the ledger judges it too, over the whole run
	unseen  string           // why a rule that is only watched is skipped if it was never at work
}

// ProviderRules returns the rules by which [Provider] judges, in the order of docs/conformance.md.
func ProviderRules() (rules []Rule) {
	for _, c := range providerChecks() {
		rules = append(rules, c.Rule)
	}
	return rules
}

// watch makes a check of a rule that every frame of the run is held against.
func watch(id string, kind Kind, section, title, unseen string) check {
	return check{Rule: Rule{id, title, section, kind}, watched: true, unseen: unseen}
}

// try makes a check of a rule that is tried once.
func try(id string, kind Kind, section, title string, run func(*kit) error) check {
	return check{Rule: Rule{id, title, section, kind}, run: run}
}

// both makes a check of a rule that is tried once, and watched over the whole run.
func both(id string, kind Kind, section, title string, run func(*kit) error) check {
	return check{Rule: Rule{id, title, section, kind}, run: run, watched: true}
}

// providerChecks returns all checks. The first ones find out whether the provider can be bound and called; later ones
// are skipped if it can't.
func providerChecks() (all []check) {
	for _, group := range [][]check{
		connectChecks(), proofChecks(), callChecks(), toleranceChecks(), hookChecks(), sessionChecks(),
		questionChecks(), reconnectChecks(), stopChecks(), messageChecks(),
	} {
		all = append(all, group...)
	}
	return all
}

const (
	noTools    = "it has no tools"
	noHooks    = "it has no rules and no transforms"
	noPushes   = "it pushed nothing"
	noResults  = "no call was answered"
	noChecks   = "it answered no gate.check"
	noRequests = "it answered no transform.request"
)

func connectChecks() []check {
	return []check{
		try("connect.bind", Must, "States", "The provider connects, authenticates and sends hello", connectBind),
		watch("connect.auth", Must, "States", "The first message of a connection is auth, and no other one is",
			"it never connected"),
		try("connect.token", Must, "Tokens", "auth has the token that the program was given", connectToken),
		try("connect.hello-after", Must, "Binding to a session", "hello waits for the list of sessions",
			connectHelloAfter),
		try("connect.empty-list", Must, "Binding to a session", "While no session is there, hello waits for one",
			connectEmptyList),
		try("connect.session", Must, "Binding to a session", "hello names a session of the list, all, or none",
			connectSession),
		both("connect.bound-first", Must, "States", "Nothing but hello and goodbye comes before hello.ack",
			connectBoundFirst),
		try("connect.refused", Must, "Tokens", "A token that was refused is not sent again", connectRefused),
		try("connect.hello-refused", Must, "Limits", "A hello that was refused is not repeated without a pause",
			connectHelloRefused),
		try("connect.version", Should, "Close codes", "After UNSUPPORTED_VERSION, the provider stays away",
			connectVersion),
	}
}

func proofChecks() []check {
	const section = "Is it your gateway?"
	return []check{
		try("proof.wrong", Must, section, "Nothing is sent to a gateway whose proof is wrong",
			func(k *kit) error { return proofFails(k, provesWrongly) }),
		try("proof.missing", Must, section, "Nothing is sent to a gateway that proves nothing",
			func(k *kit) error { return proofFails(k, provesNothing) }),
		try("proof.reconnect", Must, section, "A reconnect token is not sent to a gateway whose proof is wrong",
			proofReconnect),
	}
}

func callChecks() []check {
	return []check{
		try("call.answered", Must, "Calls", "A call is answered", callAnswered),
		watch("call.once", Must, "tool.result", "A call has one result", "no call was answered"),
		watch("call.issued", Must, "Calls", "A result has the id of a call", "no call was answered"),
		try("call.unknown-tool", Must, "tool.call", "A call of a tool that the provider does not have fails",
			callUnknownTool),
		try("call.wrong-args", Must, "Calls", "A call whose arguments the schema does not allow is answered",
			callWrongArgs),
		try("call.burst", Must, "Concurrency", "Thirty calls at once, or as many as hello.concurrency allows, are all"+
			" answered", callBurst),
		try("call.parallel", Should, "Concurrency", "A call that runs does not hold up others", callParallel),
		watch("progress.running", Should, "tool.progress", "Progress belongs to a call that runs",
			"it sent no progress"),
		try("cancel.answered", Must, "tool.cancel", "A cancelled call is answered", cancelAnswered),
		try(
			"cancel.code",
			Must,
			"tool.cancel",
			"A call that is cancelled while it runs ends with CANCELLED",
			cancelCode,
		),
		try("cancel.others", Must, "tool.cancel", "A cancel ends no other call", cancelOthers),
		both("cancel.ended", Must, "tool.cancel", "A cancel of a call that was answered is ignored", cancelEnded),
		both("cancel.unknown", Must, "tool.cancel", "A cancel of a call that was never made is ignored",
			cancelUnknown),
		watch("result.fields", Must, "tool.result", "The fields of tool.result are complete and right", noResults),
		watch("result.code", Should, "Codes", "errorCode is one of the six for results", "no result had an errorCode"),
		watch("result.file", Must, "File", "A file as a result is in persistDir", "no result was a file"),
	}
}

func toleranceChecks() []check {
	const section = "Every message"
	return []check{
		try("ignore.type", Must, section, "A message of an unknown type is ignored",
			sends(object{"type": "x.unknown", "sessionId": firstSession, "value": 1})),
		try("ignore.field", Must, section, "Unknown fields are ignored", ignoreField),
		try("ignore.json", Should, section, "A text frame that is no JSON object is ignored", ignoreText),
		try("ignore.binary", Should, section, "A binary frame is ignored", ignoreBinary),
		try("ignore.wrong", Should, section, "A message with wrong fields is ignored", ignoreWrong),
		try(
			"ignore.error",
			Must,
			"Codes",
			"An error with an unknown code, or without replyTo, ends nothing",
			ignoreError,
		),
		try("ignore.event", Must, "Subscriptions", "An event that was not subscribed to is ignored",
			sends(object{"type": "session.event", "sessionId": firstSession, "event": "x.unknown", "data": object{}})),
		try("ignore.state", Must, "session.lifecycle", "A state of a session that is unknown is ignored",
			sends(object{"type": "session.lifecycle", "sessionId": firstSession, "state": "x.unknown"})),
		try("ignore.answer", Must, "ack", "An answer to a request that was never made is ignored",
			sends(object{"type": "ack", "requestId": "never", "sessionId": firstSession, "seq": 1, "fate": "stored"},
				object{"type": "stream.history", "queryId": "never", "streams": object{}})),
		try("accept.large", Must, "Limits", "A message of nearly 16 MiB is read", acceptLarge),
	}
}

func hookChecks() []check {
	return []check{
		try("gate.answered", Must, "gate.check", "Each gate answers its checks", gateAnswered),
		both("gate.unknown", Must, "Rules and gates", "A check of a gate that it does not have is not allowed",
			gateUnknown),
		watch("gate.fields", Must, "gate.result", "The fields of gate.result are complete and right", noChecks),
		watch("gate.once", Must, "gate.result", "A gate.check has one answer, by its callId", noChecks),
		try("transform.answered", Must, "transform.request", "A transform.request is answered", transformAnswered),
		watch("transform.fields", Must, "transform.result", "The fields of transform.result are complete and right",
			noRequests),
		watch("transform.once", Must, "transform.result", "A transform.request has one answer, by its callId",
			noRequests),
	}
}

func sessionChecks() []check {
	return []check{
		try("session.updated", Must, "sessions.updated", "A new list of sessions ends nothing", sessionUpdated),
		try(
			"session.end",
			Must,
			"The end of a session",
			"shutdown.pending is answered: shutdown.ready, goodbye, or the"+
				" end of the connection",
			sessionEnd,
		),
		try(
			"session.next",
			Should,
			"The end of a session",
			"After its session's end, the provider binds to the next one",
			sessionNext,
		),
	}
}

func reconnectChecks() []check {
	const section = "Reconnecting"
	return []check{
		try(
			"reconnect.cut",
			Must,
			section,
			"A provider whose connection was cut comes back, with its tools",
			reconnectCut,
		),
		try("reconnect.restart", Must, "Close codes", "A provider comes back after close code 1001", reconnectRestart),
		try("reconnect.taken-over", Must, "Close codes", "A provider stays away after close code 4001",
			reconnectTakenOver),
		try("reconnect.pause", Should, section, "Attempts to connect again have pauses in between", reconnectPause),
		watch("reconnect.token", Should, section, "A reconnect token is that of the last hello.ack",
			"it sent no reconnect token"),
		try("reconnect.void", Must, section, "After a refused reconnect token comes the token", reconnectVoid),
		watch("reconnect.name", Must, section, "Each hello has the same name and instance", "it did not come back"),
		both("reconnect.calls", Must, "Calls", "A call of a connection that ended is not answered on the next one",
			reconnectCalls),
	}
}

func stopChecks() []check {
	return []check{
		try("stop.goodbye", Should, "goodbye", "A provider that is stopped says goodbye", stopGoodbye),
		try("stop.ends", Must, "goodbye", "A provider ends within 10 s of SIGTERM", stopEnds),
		try("stop.calls", Should, "goodbye", "A call that runs does not hold up the end", stopCalls),
		watch("stop.silent", Must, "goodbye", "Nothing comes after goodbye", "it said no goodbye"),
	}
}

func messageChecks() []check {
	return []check{
		watch("frame.text", Must, "Every message", "A message is a text frame", "it sent nothing"),
		watch("frame.json", Must, "Every message", "A message is one JSON object with a type, without a key twice",
			"it sent nothing"),
		watch(
			"frame.type",
			Must,
			"From the provider",
			"A message has a type that providers may send",
			"it sent nothing",
		),
		watch(
			"frame.size",
			Must,
			"Limits",
			"A tool.result has at most 5 MiB, another message 2 MiB",
			"it sent nothing",
		),
		watch("frame.fields", Must, "From the provider", "The fields of other messages are complete and right",
			"it sent nothing"),
		watch("hello.fields", Must, "hello", "The fields of hello are complete and right", "no hello was right"),
		watch("hello.version", Must, "hello", "hello has protocol version 2", "it sent no hello"),
		watch("tool.names", Must, "Every message", "A tool's name is valid and stands once in the list", noTools),
		watch("tool.schemas", Must, "Tool", "A tool's parameters are a JSON Schema of an object", noTools),
		watch(
			"tool.fields",
			Must,
			"Tool",
			"The other fields of a tool are complete and right, and at most 100 tools come",
			noTools,
		),
		watch("hooks.fields", Must, "Hooks", "The fields of rules and transforms are complete and right", noHooks),
		watch("hooks.patterns", Must, "Match and patterns", "A rule's pattern compiles", "no rule has a pattern"),
		watch("push.fields", Must, "push", "The fields of push are complete and right", noPushes),
		watch("push.target", Must, "push", "A push names a session that the provider is bound to", noPushes),
		watch("push.rate", Should, "Pushes", "At most ten pushes come in a second (20 break the rule)", noPushes),
		watch("request.ids", Should, "Every message", "A request's id is not that of another one without an answer",
			"it asked for no answer"),
		watch("update.one", Should, "Updates", "At most one update of each kind waits for its answer",
			"it sent no update that asks for an answer"),
	}
}
