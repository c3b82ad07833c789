package conformance

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/coder/websocket"

	"tapgw/internal/proof"
	"tapgw/internal/protocol"
)

// must makes a rule that every gateway must keep.
func must(id, section, title string, check func(*scene)) gatewayRule {
	return gatewayRule{Rule{ID: id, Title: title, Section: section, Kind: Must}, check}
}

// Close codes of the gateway, as the WebSocket library has them.
const (
	closeNormal     = websocket.StatusCode(protocol.CloseNormal)
	closePolicy     = websocket.StatusCode(protocol.ClosePolicy)
	closeTooBig     = websocket.StatusCode(protocol.CloseTooBig)
	closeTakenOver  = websocket.StatusCode(protocol.CloseTakenOver)
	closeFailedFast = websocket.StatusCode(protocol.CloseFailedFast)
)

// Tokens that no gateway has made.
const (
	wrongToken     = "adm-00000000000000000000000000000000" //nolint:gosec // of nobody
	wrongReconnect = "tok-00000000000000000000000000000000" //nolint:gosec // of nobody
)

var stateRules = []gatewayRule{
	must("auth.first", "States", "The gateway is silent until auth, and refuses every other message before it",
		authFirst),
	must("auth.wrong-token", "auth", "A wrong token is AUTH_FAILED, and closes with 1008", authWrongToken),
	must("auth.fields", "auth", "A malformed auth names its field and may be tried again", authFields),
	must("auth.in-time", "Times", "Without auth the connection is closed with 1008 after 10 s", authInTime),
	must("auth.size", "Limits", "More than 64 KiB before auth close the connection with 1008", authSize),
	must("auth.origin", "Tokens", "A page of another origin can't use the gateway's own tokens", authOrigin),
	must("proof.given", "Is it your gateway?", "The gateway proves that it knows a token, once for each nonce", proves),
	must("sessions.list", "Session", "The list that answers auth has each session's id, label and cwd", sessionsList),
	must("hello.first", "States", "After auth, only hello is legal", helloFirst),
	must("auth.once", "States", "auth is illegal once the provider has authenticated", authOnce),
	must(
		"message.unknown-type",
		"States",
		"An unknown type is UNKNOWN_TYPE in every state and changes nothing",
		unknownType,
	),
}

// Messages that are legal once a provider is bound.
var boundMessages = []string{
	`{"type":"push","level":"keep","event":"e"}`,
	`{"type":"tools.update","tools":[]}`,
	`{"type":"hooks.update","onPreToolUse":[]}`,
	`{"type":"context.update","context":""}`,
	`{"type":"filter.set","stream":"s","rules":[]}`,
	`{"type":"stream.query","queryId":"q"}`,
	`{"type":"tool.result","id":"x","data":1}`,
	`{"type":"tool.progress","id":"x","message":"m"}`,
	`{"type":"gate.result","callId":"x","decision":"allow"}`,
	`{"type":"transform.result","callId":"x","content":""}`,
	`{"type":"session.ready","sessionId":"x"}`,
	`{"type":"shutdown.ready"}`,
}

func authFirst(s *scene) {
	p := s.connect()
	for _, m := range append([]string{
		`{"type":"hello","protocolVersion":2,"name":"x"}`, `{"type":"goodbye"}`,
		`{"type":"auth.confirm","code":"123456"}`,
	}, boundMessages...) {
		p.refused("INVALID_STATE", nil, m)
	}
	if early := p.drain(); len(early) > 0 {
		s.fail("nothing but answers before auth", "%s", early[0])
	}
	p.accepted("sessions", `{"type":"auth","token":%s}`, s.run.Token)
}

func authWrongToken(s *scene) {
	p := s.connect()
	p.refused("AUTH_FAILED", nil, `{"type":"auth","token":%s}`, wrongToken)
	p.ends(closePolicy)
	p = s.connect()
	p.refused("AUTH_FAILED", nil, `{"type":"auth","reconnectToken":%s}`, wrongReconnect)
	p.ends(closePolicy)
}

func authFields(s *scene) {
	p := s.connect()
	for text, field := range map[string]string{
		`{"type":"auth"}`:                         "auth.token",
		`{"type":"auth","token":null}`:            "auth.token",
		`{"type":"auth","token":7}`:               "auth.token",
		`{"type":"auth","Token":"x"}`:             "auth.token",
		`{"type":"auth","mode":"x","token":"x"}`:  "auth.mode",
		`{"type":"auth","reconnectToken":["x"]}`:  "auth.reconnectToken",
		`{"type":"auth","token":"x","token":"x"}`: "token",
	} {
		p.refused("INVALID_JSON", []string{field}, text)
	}
	p.accepted("sessions", `{"type":"auth","token":%s}`, s.run.Token)
}

func authInTime(s *scene) { s.connect().ends(closePolicy) }

func authSize(s *scene) {
	p := s.connect()
	p.send(`{"type":"auth","token":"` + strings.Repeat("x", 65<<10) + `"}`)
	p.ends(closePolicy)
}

func authOrigin(s *scene) {
	p := s.connectFrom("https://elsewhere.example")
	p.refused("AUTH_FAILED", nil, `{"type":"auth","token":%s}`, s.run.Token)
	p.ends(closePolicy)
	_, answer, err := s.dial("/host", http.Header{"Origin": {"https://elsewhere.example"}})
	if err == nil || answer == nil || answer.StatusCode != http.StatusForbidden {
		s.fail("403 for a page of another origin at /host", "%s", statusText(answer, err))
	}
}

func statusText(answer *http.Response, err error) string {
	if answer != nil {
		return answer.Status
	}
	return fmt.Sprint(err)
}

func proves(s *scene) {
	q := proof.NewQuestion(s.run.Token)
	given := s.askProof(q.Header(), http.StatusSwitchingProtocols)
	// The address is checked by who dials, for each connection. Here only the token and the nonce matter.
	_, address, _ := strings.Cut(given, " ")
	if q.Check(given, textAddress(address)) != nil {
		s.fail("a proof for the token and nonce that the header names", "%q", given)
	}
	if proof.NewQuestion(s.run.Token).Check(given, textAddress(address)) == nil {
		s.fail("another proof for each nonce", "%q for two of them", given)
	}
	if given := s.askProof("", http.StatusSwitchingProtocols); given != "" {
		s.fail("no proof without a question", "%q", given)
	}
	s.askProof("x", http.StatusBadRequest)
	s.askProof(proof.NewQuestion(wrongToken).Header(), http.StatusUnauthorized)
}

// askProof connects with a question and returns the proof. The answer must have that status.
func (s *scene) askProof(question string, status int) string {
	header := http.Header{}
	if question != "" {
		header.Set(proof.AskHeader, question)
	}
	ws, answer, err := s.dial("/", header)
	if err == nil {
		_ = ws.CloseNow()
	}
	if answer != nil && answer.StatusCode == http.StatusTooManyRequests && status == http.StatusUnauthorized {
		panic(skipf("this address has sent the gateway too many wrong tokens; run the kit again in a minute"))
	}
	if answer == nil || answer.StatusCode != status {
		s.fail(fmt.Sprintf("status %d for the header %s: %q", status, proof.AskHeader, question), "%s",
			statusText(answer, err))
	}
	return answer.Header.Get(proof.AnswerHeader)
}

// textAddress is an address that a gateway wrote.
type textAddress string

func (a textAddress) Network() string { return "tcp" }
func (a textAddress) String() string  { return string(a) }

func sessionsList(s *scene) {
	h := s.session()
	list := s.connect().accepted("sessions", `{"type":"auth","token":%s}`, s.run.Token)
	active, _ := list["active"].([]any)
	for _, one := range active {
		session, _ := one.(map[string]any)
		if session["id"] != h.id {
			continue
		}
		s.equal("the session's label", session["label"], s.name)
		s.equal("the session's cwd", session["cwd"], "/")
		return
	}
	s.fail("the session "+h.id+" in the list", "%s", shortText(list.String()))
}

func helloFirst(s *scene) {
	h := s.session()
	p := s.login()
	for _, m := range append([]string{
		`{"type":"goodbye"}`, `{"type":"auth.confirm","code":"123456"}`,
	}, boundMessages...) {
		p.refused("INVALID_STATE", nil, m)
	}
	s.hello(p, h.id, "")
}

func authOnce(s *scene) {
	h := s.session()
	p := s.login()
	p.refused("INVALID_STATE", nil, `{"type":"auth","token":%s}`, s.run.Token)
	s.hello(p, h.id, "")
	p.refused("INVALID_STATE", nil, `{"type":"auth","token":%s}`, s.run.Token)
	p.accepted("stream.history", `{"type":"stream.query","queryId":"q"}`)
}

func unknownType(s *scene) {
	h := s.session()
	p := s.connect()
	try := func() {
		for _, name := range []string{"no.such", "tool.call", "TOOL.RESULT", "hello.ack"} {
			p.refused("UNKNOWN_TYPE", []string{name}, `{"type":%s,"id":"x"}`, name)
		}
	}
	try()
	p.accepted("sessions", `{"type":"auth","token":%s}`, s.run.Token)
	try()
	s.hello(p, h.id, tools("t"))
	try()
	call := h.call("t", `{}`)
	p.send(`{"type":"tool.result","id":%s,"data":1}`, p.await("tool.call")["id"])
	h.succeeds(call, jsonNumber("1"))
}

var messageRules = []gatewayRule{
	must("message.json", "Every message", "What is no message is INVALID_JSON, and the connection stays", badJSON),
	must("message.keys", "Every message", "Keys are exact in case and stand once, at any depth", badKeys),
	must("message.fields", "Every message", "A wrong field is INVALID_JSON, and the error names it", badFields),
	must("message.unknown-field", "Every message", "Unknown fields are ignored, and null is absence", lenient),
	must("message.binary", "Every message", "A binary frame is read as text if it is UTF-8, else it is INVALID_JSON",
		binaryFrames),
	must("error.reply-to", "error", "An error names the message's type in replyTo", replyTo),
	must("error.request-id", "error", "An error repeats the requestId, or the queryId of a query", requestID),
	must("error.origin", "error", "An error of a bound provider has its providerId and sessionId", errorOrigin),
	must("message.size", "Limits", "A message over 2 MiB is PAYLOAD_TOO_LARGE, and the connection stays", messageSize),
	must("message.frame-size", "Limits", "A frame over 16 MiB closes the connection with 1009", frameSize),
}

func badJSON(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	for _, text := range []string{
		`{"type":"push","level":"keep",`, `[]`, `null`, `7`, `{}`, `{"type":7}`, `{"requestId":"r"}`, `no JSON`,
		`{"type":"push","level":"keep","event":"e"} {}`,
	} {
		p.refused("INVALID_JSON", nil, "%s", rawJSON(text))
	}
	call := h.call("t", `{}`)
	p.send(`{"type":"tool.result","id":%s,"data":"still here"}`, p.await("tool.call")["id"])
	h.succeeds(call, "still here")
}

func badKeys(s *scene) {
	p := s.provider(s.session(), "")
	for text, key := range map[string]string{
		`{"type":"push","level":"keep","event":"a","event":"b"}`:                 "event",
		`{"type":"push","level":"keep","event":"a","metadata":{"k":1,"k":2}}`:    "k",
		`{"type":"push","Level":"keep","event":"a"}`:                             "push.level",
		`{"type":"context.update","Context":"c"}`:                                "context.update.context",
		`{"type":"tools.update","tools":[{"NAME":"t","description":"d"}]}`:       "tools.update.tools[0].name",
		`{"type":"stream.query","queryid":"q"}`:                                  "stream.query.queryId",
		`{"type":"filter.set","stream":"s","rules":[{"match":"a","match":"b"}]}`: "match",
	} {
		p.refused("INVALID_JSON", []string{key}, text)
	}
}

func badFields(s *scene) {
	p := s.provider(s.session(), "")
	for text, field := range map[string]string{
		`{"type":"push","level":"loud","event":"e"}`:                                      "push.level",
		`{"type":"push","level":"keep"}`:                                                  "push.event",
		`{"type":"push","level":"keep","event":"e","metadata":[]}`:                        "push.metadata",
		`{"type":"push","level":"keep","event":"e","requestId":7}`:                        "push.requestId",
		`{"type":"tools.update"}`:                                                         "tools.update.tools",
		`{"type":"tools.update","tools":{}}`:                                              "tools.update.tools",
		`{"type":"tools.update","remove":[2]}`:                                            "tools.update.remove[0]",
		`{"type":"hooks.update","onPreToolUse":[{"action":"x"}]}`:                         "onPreToolUse[0].action",
		`{"type":"hooks.update","onPreToolUse":[{"action":"gate"}]}`:                      "onPreToolUse[0].gateId",
		`{"type":"hooks.update","onPreToolUse":[{"action":"context"}]}`:                   "onPreToolUse[0].content",
		`{"type":"hooks.update","transforms":{"tone":{"action":"append"}}}`:               "transforms.tone.content",
		`{"type":"context.update"}`:                                                       "context.update.context",
		`{"type":"filter.set","stream":"s"}`:                                              "filter.set.rules",
		`{"type":"filter.set","stream":"s","rules":[{"match":"x","outcome":"y"}]}`:        "rules[0].outcome",
		`{"type":"stream.query"}`:                                                         "stream.query.queryId",
		`{"type":"stream.query","queryId":"q","last":0}`:                                  "stream.query.last",
		`{"type":"tool.progress","id":"x"}`:                                               "tool.progress.message",
		`{"type":"goodbye","reason":5}`:                                                   "goodbye.reason",
		`{"type":"tools.update","tools":[{"name":"a b","description":"d"}]}`:              "tools[0].name",
		`{"type":"tools.update","tools":[{"name":"t","parameters":{}}]}`:                  "tools[0].description",
		`{"type":"tools.update","tools":[{"name":"t","description":"d"}]}`:                "tools[0].parameters",
		`{"type":"tools.update","tools":[` + tool("t", `"timeout":0`) + `]}`:              "tools[0].timeout",
		`{"type":"hooks.update","onPreToolUse":[{"action":"deny","match":{"args":"("}}]}`: "match.args",
		`{"type":"filter.set","stream":"s","rules":[{"match":"(","outcome":"drop"}]}`:     "rules[0].match",
	} {
		p.refused("INVALID_JSON", []string{field}, text)
	}
}

func lenient(s *scene) {
	h := s.session()
	p := s.login()
	s.hello(p, h.id, tools("t")+`,"instance":null,"context":null,"hooks":null,"subscribe":null,"newField":{"a":[1]}`)
	p.accepted(
		"ack",
		`{"type":"push","level":"keep","event":"e","metadata":null,"stream":null,"requestId":"r","new":1}`,
	)
	call := h.call("t", `{}`)
	p.send(`{"type":"tool.result","id":%s,"data":1,"error":null,"errorCode":null,"file":null,"new":true}`,
		p.await("tool.call")["id"])
	h.succeeds(call, jsonNumber("1"))
}

func binaryFrames(s *scene) {
	p := s.provider(s.session(), "")
	_ = p.ws.Write(s.ctx, websocket.MessageBinary, []byte(`{"type":"stream.query","queryId":"ü"}`))
	s.equal("the queryId of the answer to a binary frame", p.await("stream.history", "error")["queryId"], "ü")
	_ = p.ws.Write(s.ctx, websocket.MessageBinary, []byte{0xff, 2})
	if m := p.await("error"); m.text("code") != "INVALID_JSON" {
		s.fail("INVALID_JSON for a binary frame that is no UTF-8", "%s", m)
	}
	p.fence()
}

func replyTo(s *scene) {
	p := s.connect()
	check := func(want, text string) {
		s.equal("the error's replyTo, for "+text, p.ask(text).text("replyTo"), want)
	}
	check("push", `{"type":"push","level":"keep","event":"e"}`)
	check("auth", `{"type":"auth"}`)
	p.accepted("sessions", `{"type":"auth","token":%s}`, s.run.Token)
	check("hello", `{"type":"hello","protocolVersion":2}`)
	s.hello(p, s.session().id, "")
	check("no.such", `{"type":"no.such"}`)
	check("push", `{"type":"push","level":"x","event":"e"}`)
	check("tools.update", `{"type":"tools.update"}`)
	check("session.ready", `{"type":"session.ready","sessionId":"no such"}`)
	check("tool.result", `{"type":"tool.result","id":"no such","data":1}`)
}

func requestID(s *scene) {
	p := s.connect()
	check := func(want, text string) {
		s.equal("the error's requestId, for "+text, p.ask(text).text("requestId"), want)
	}
	check("r1", `{"type":"push","requestId":"r1"}`)
	check("r2", `{"type":"auth","requestId":"r2"}`)
	p.accepted("sessions", `{"type":"auth","token":%s}`, s.run.Token)
	check("r3", `{"type":"hello","requestId":"r3"}`)
	s.hello(p, s.session().id, "")
	check("r 4\n", `{"type":"no.such","requestId":"r 4\n"}`)
	check("r5", `{"type":"push","level":"x","requestId":"r5"}`)
	check("r6", `{"requestId":"r6"}`)
	check("q7", `{"type":"stream.query","queryId":"q7","last":0}`)
	check("", `{"type":"tools.update"}`)
}

func errorOrigin(s *scene) {
	h := s.session()
	p, ack := s.bind(h, "")
	m := p.refused("INVALID_JSON", nil, `{"type":"push","level":"x"}`)
	s.equal("the error's providerId", m["providerId"], ack["providerId"])
	s.equal("the error's sessionId", m["sessionId"], h.id)
}

func messageSize(s *scene) {
	p := s.provider(s.session(), "")
	// A push of exactly 2 MiB is accepted, one of a byte more is not.
	const frame = `{"type":"push","requestId":"r","level":"keep","event":""}`
	pad := func(size int) string {
		return strings.Replace(frame, `"event":""`, `"event":"`+strings.Repeat("x", size-len(frame))+`"`, 1)
	}
	p.refused("PAYLOAD_TOO_LARGE", nil, "%s", rawJSON(pad(protocol.MaxMessage+1)))
	p.accepted("ack", "%s", rawJSON(pad(protocol.MaxMessage)))
}

func frameSize(s *scene) {
	p := s.provider(s.session(), "")
	p.send(`{"type":"push","level":"keep","event":"` + strings.Repeat("x", protocol.MaxFrame) + `"}`)
	p.ends(closeTooBig)
}
