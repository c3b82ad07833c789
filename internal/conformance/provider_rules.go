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

// The Spec of a rule: advice, [ours], or a section of one of the two specifications.
const (
	advice = ""
	core   = "Core Profile, "
	v2     = "Provider Interface v2, "

	// The sections that several rules name.
	inState      = v2 + "Connection states"
	answersCall  = core + "tool.call"
	answersEnd   = core + "tool.cancel"
	ignoresOther = v2 + "Version negotiation"
)

// watch makes a check of a rule that every frame of the run is held against.
func watch(id, spec, section, title, unseen string) check {
	c := try(id, spec, section, title, nil)
	c.watched, c.unseen = true, unseen
	return c
}

// try makes a check of a rule that is tried once.
func try(id, spec, section, title string, run func(*kit) error) check {
	kind := Must
	if spec == advice {
		kind = Should
	}
	return check{Rule: Rule{id, title, section, kind, spec}, run: run}
}

// tried makes the run of a [try] that needs a connection, which get returns.
func tried(
	get func(*kit) (*providerConn, error), run func(*kit, *providerConn) error,
) func(*kit) error {
	return func(k *kit) error {
		l, err := get(k)
		if err != nil {
			return err
		}
		return run(k, l)
	}
}

type runOn = func(*kit, *providerConn) error

// The connections on which rules are tried: see the methods of [kit].
func opening(run runOn) func(*kit) error        { return tried((*kit).opening, run) }
func settledOpening(run runOn) func(*kit) error { return tried((*kit).settledOpening, run) }
func bound(run runOn) func(*kit) error          { return tried((*kit).bound, run) }
func callable(run runOn) func(*kit) error       { return tried((*kit).callable, run) }
func slowly(run runOn) func(*kit) error         { return tried((*kit).slowly, run) }
func returning(run runOn) func(*kit) error      { return tried((*kit).returning, run) }
func stoppable(run runOn) func(*kit) error      { return tried((*kit).stoppable, run) }

// ending makes the run of a rule that may end a provider for good: the kit must be able to start it
// again.
func ending(run func(*kit) error) func(*kit) error {
	return func(k *kit) error {
		if k.start == nil {
			return skipf("the kit did not start the provider, and might end it")
		}
		return run(k)
	}
}

// both makes a check of a rule that is tried once, and watched over the whole run.
func both(id, spec, section, title string, run func(*kit) error) check {
	c := try(id, spec, section, title, run)
	c.watched = true
	return c
}

// providerChecks returns all checks. The first ones find out whether the provider can be bound and
// called; later ones are skipped if it can't.
func providerChecks() (all []check) {
	for _, group := range [][]check{
		connectChecks(), proofChecks(), callChecks(), toleranceChecks(), hookChecks(),
		sessionChecks(), questionChecks(), reconnectChecks(), stopChecks(), messageChecks(),
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
		try("connect.bind", core+"Connection state machine", "States",
			"The provider connects, authenticates and sends hello", connectBind),
		watch("connect.auth", inState, "States",
			"The first message of a connection is auth, and no other one is",
			"it never connected"),
		try("connect.token", core+"Authentication", "Tokens",
			"auth has the token that the program was given", connectToken),
		try("connect.hello-after", inState, "Binding to a session",
			"hello waits for the list of sessions", settledOpening(connectHelloAfter)),
		try("connect.empty-list", advice, "Binding to a session",
			"While no session is there, hello waits for one", settledOpening(connectEmptyList)),
		try("connect.session", core+"hello", "Binding to a session",
			"hello names a session of the list, all, or none", opening(connectSession)),
		both("connect.bound-first", inState, "States",
			"Nothing but hello and goodbye comes before hello.ack", opening(connectBoundFirst)),
		try("connect.refused", advice, "Tokens", "A token that was refused is not sent again",
			ending(opening(connectRefused))),
		try("connect.hello-refused", advice, "Limits",
			"A hello that was refused is not repeated without a pause",
			opening(connectHelloRefused)),
		try("connect.version", advice, "Close codes",
			"After UNSUPPORTED_VERSION, the provider stays away", ending(opening(connectVersion))),
	}
}

func proofChecks() []check {
	const section = "Is it your gateway?"
	return []check{
		try("proof.wrong", ours, section, "Nothing is sent to a gateway whose proof is wrong",
			func(k *kit) error { return proofFails(k, provesWrongly) }),
		try("proof.missing", ours, section, "Nothing is sent to a gateway that proves nothing",
			func(k *kit) error { return proofFails(k, provesNothing) }),
		try("proof.reconnect", ours, section,
			"A reconnect token is not sent to a gateway whose proof is wrong",
			bound(proofReconnect)),
	}
}

func callChecks() []check {
	return []check{
		try("call.answered", answersCall, "Calls", "A call is answered", callable(callAnswered)),
		watch("call.once", answersCall, "tool.result", "A call has one result",
			"no call was answered"),
		watch("call.issued", answersCall, "Calls", "A result has the id of a call",
			"no call was answered"),
		try("call.unknown-tool", advice, "tool.call",
			"A call of a tool that the provider does not have fails", callable(callUnknownTool)),
		try("call.wrong-args", advice, "Calls",
			"A call whose arguments the schema does not allow is answered",
			callable(callWrongArgs)),
		try("call.burst", answersCall, "Concurrency",
			"Thirty calls at once, or as many as hello.concurrency allows, are all answered",
			callable(callBurst)),
		try("call.parallel", advice, "Concurrency", "A call that runs does not hold up others",
			slowly(callParallel)),
		watch("progress.running", advice, "tool.progress", "Progress belongs to a call that runs",
			"it sent no progress"),
		try("cancel.answered", answersEnd, "tool.cancel", "A cancelled call is answered",
			callable(cancelAnswered)),
		try("cancel.code", answersEnd, "tool.cancel",
			"A call that is cancelled while it runs ends with CANCELLED", slowly(cancelCode)),
		try("cancel.others", advice, "tool.cancel", "A cancel ends no other call",
			slowly(cancelOthers)),
		both("cancel.ended", advice, "tool.cancel",
			"A cancel of a call that was answered is ignored", callable(cancelEnded)),
		both("cancel.unknown", advice, "tool.cancel",
			"A cancel of a call that was never made is ignored", bound(cancelUnknown)),
		watch("result.fields", ours, "tool.result",
			"The fields of tool.result are complete and right", noResults),
		watch("result.one", advice, "tool.result", "A result has data or an error, not both",
			noResults),
		watch("result.code", advice, "Codes", "errorCode is one of the six for results",
			"no result had an errorCode"),
		watch("result.file", v2+"Payload limits", "File", "A file as a result is in persistDir",
			"no result was a file"),
	}
}

func toleranceChecks() []check {
	const section = "Every message"
	return []check{
		try("ignore.type", ignoresOther, section, "A message of an unknown type is ignored",
			sends(object{"type": "x.unknown", "sessionId": firstSession, "value": 1})),
		try("ignore.field", ignoresOther, section, "Unknown fields are ignored",
			bound(ignoreField)),
		try("ignore.json", advice, section, "A text frame that is no JSON object is ignored",
			sends(notMessages...)),
		try("ignore.binary", advice, section, "A binary frame is ignored",
			sends([]byte{0, 1, 2, 0xff, 0xfe})),
		try("ignore.wrong", advice, section, "A message with wrong fields is ignored",
			sends(wrongMessages...)),
		try("ignore.error", advice, "Codes",
			"An error with an unknown code, or without replyTo, ends nothing",
			sends(unknownErrors...)),
		try("ignore.event", advice, "Subscriptions",
			"An event that was not subscribed to is ignored", sends(object{
				"type": "session.event", "sessionId": firstSession, "event": "x.unknown",
				"data": object{}})),
		try("ignore.state", advice, "session.lifecycle",
			"A state of a session that is unknown is ignored", sends(object{
				"type": "session.lifecycle", "sessionId": firstSession, "state": "x.unknown"})),
		try("ignore.answer", advice, "ack", "An answer to a request that was never made is ignored",
			sends(object{"type": "ack", "requestId": "never", "sessionId": firstSession, "seq": 1,
				"fate": "stored"},
				object{"type": "stream.history", "queryId": "never", "streams": object{}})),
		try("accept.large", advice, "Limits", "A message of nearly 16 MiB is read",
			bound(acceptLarge)),
	}
}

func hookChecks() []check {
	return []check{
		try("gate.answered", advice, "gate.check", "Each gate answers its checks",
			bound(gateAnswered)),
		both("gate.unknown", advice, "Rules and gates",
			"A check of a gate that it does not have is not allowed", bound(gateUnknown)),
		watch("gate.fields", ours, "gate.result",
			"The fields of gate.result are complete and right", noChecks),
		watch("gate.once", advice, "gate.result", "A gate.check has one answer, by its callId",
			noChecks),
		try("transform.answered", advice, "transform.request", "A transform.request is answered",
			bound(transformAnswered)),
		watch("transform.fields", ours, "transform.result",
			"The fields of transform.result are complete and right", noRequests),
		watch("transform.once", advice, "transform.result",
			"A transform.request has one answer, by its callId", noRequests),
	}
}

func sessionChecks() []check {
	return []check{
		try("session.updated", ignoresOther, "sessions.updated",
			"A new list of sessions ends nothing", bound(sessionUpdated)),
		try("session.end", advice, "The end of a session",
			"shutdown.pending is answered: shutdown.ready, goodbye, or the end of the connection",
			sessionEnd),
		try("session.end-all", v2+"What happens when sessions come and go", "All sessions",
			"A provider of all sessions answers shutdown.pending, too", sessionEndAll),
		try("session.next", advice, "The end of a session",
			"After its session's end, the provider binds to the next one", sessionNext),
	}
}

func reconnectChecks() []check {
	const section = "Reconnecting"
	return []check{
		try("reconnect.cut", advice, section,
			"A provider whose connection was cut comes back, with its tools", bound(reconnectCut)),
		try("reconnect.restart", advice, "Close codes",
			"A provider comes back after close code 1001", bound(reconnectRestart)),
		try("reconnect.taken-over", advice, "Close codes",
			"A provider stays away after close code 4001", ending(bound(reconnectTakenOver))),
		try("reconnect.pause", advice, section, "Attempts to connect again have pauses in between",
			returning(reconnectPause)),
		watch("reconnect.token", advice, section, "A reconnect token is that of the last hello.ack",
			"it sent no reconnect token"),
		try("reconnect.void", v2+"Gateway crash recovery", section,
			"After a refused reconnect token comes the token", returning(reconnectVoid)),
		watch("reconnect.name", advice, section, "Each hello has the same name and instance",
			"it did not come back"),
		both("reconnect.calls", advice, "Calls",
			"A call of a connection that ended is not answered on the next one", reconnectCalls),
	}
}

func stopChecks() []check {
	return []check{
		try("stop.goodbye", advice, "goodbye", "A provider that is stopped says goodbye",
			stoppable(stopGoodbye)),
		try("stop.ends", advice, "goodbye", "A provider ends within 10 s of SIGTERM", stopEnds),
		try("stop.calls", advice, "goodbye", "A call that runs does not hold up the end",
			stopCalls),
		watch("stop.silent", inState, "goodbye", "Nothing comes after goodbye",
			"it said no goodbye"),
	}
}

func messageChecks() []check {
	return []check{
		watch("frame.text", advice, "Every message", "A message is a text frame",
			"it sent nothing"),
		watch("frame.json", ours, "Every message",
			"A message is one JSON object with a type, without a key twice", "it sent nothing"),
		watch("frame.type", core+"Forward compatibility", "From the provider",
			"A message has a type that providers may send", "it sent nothing"),
		watch("frame.size", core+"Payload limits", "Limits",
			"A tool.result has at most 5 MiB, another message 2 MiB", "it sent nothing"),
		watch("frame.fields", ours, "From the provider",
			"The fields of other messages are complete and right", "it sent nothing"),
		watch("hello.fields", ours, "hello", "The fields of hello are complete and right",
			"no hello was right"),
		watch("hello.version", core+"hello", "hello", "hello has protocol version 2",
			"it sent no hello"),
		watch("tool.names", ours, "Every message",
			"A tool's name is valid and stands once in the list", noTools),
		watch("tool.schemas", ours, "Tool", "A tool's parameters are a JSON Schema of an object",
			noTools),
		watch("tool.fields", ours, "Tool",
			"The other fields of a tool are complete and right, and at most 100 tools come",
			noTools),
		watch("hooks.fields", ours, "Hooks",
			"The fields of rules and transforms are complete and right", noHooks),
		watch("hooks.patterns", ours, "Match and patterns", "A rule's pattern compiles",
			"no rule has a pattern"),
		watch("push.fields", ours, "push", "The fields of push are complete and right", noPushes),
		watch("push.target", core+"push", "push",
			"A push names a session that the provider is bound to", noPushes),
		watch("push.rate", advice, "Pushes",
			"At most ten pushes come in a second (20 break the rule)", noPushes),
		watch("request.ids", advice, "Every message",
			"A request's id is not that of another one without an answer",
			"it asked for no answer"),
		watch("update.one", advice, "Updates",
			"At most one update of each kind waits for its answer",
			"it sent no update that asks for an answer"),
	}
}
