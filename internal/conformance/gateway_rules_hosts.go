package conformance

import "strings"

var hostRules = []gatewayRule{
	must("host.first", "Session hosts", "Before initialize every request is -32001", hostFirst),
	must("host.token", "Session hosts", "A wrong token in initialize is refused, and the connection closed", hostToken),
	must("host.errors", "Session hosts", "A wrong field is -32602 and named, an unknown method -32601", hostErrors),
	must("host.others", "Session hosts", "A session of another host is -32004", hostOthers),
	must(
		"host.tools",
		"Session hosts",
		"tools/set has the providers' tools as they wrote them, and its revision rises",
		hostTools,
	),
	must("host.returns", "Session hosts", "A host whose connection drops comes back to its session and its providers",
		hostReturns),
}

// errorCode returns the code of the JSON-RPC error that answers a request.
func (h *host) errorCode(method, params string, values ...any) (code any, text string) {
	m := h.request(method, params, values...)
	return m.at("error", "code"), m.text("error", "message")
}

func hostFirst(s *scene) {
	h := s.connectHost()
	for _, method := range []string{"session/register", "tool/call", "no/such"} {
		code, _ := h.errorCode(method, `{"label":"l","cwd":"/"}`)
		s.equal("the error's code for "+method, code, jsonNumber("-32001"))
	}
	h.initialize(`{}`)
}

func hostToken(s *scene) {
	h := s.connectHost()
	code, _ := h.errorCode("initialize", `{"protocolVersion":1,"token":%s,"host":{"name":"x"}}`, wrongToken)
	s.equal("the error's code", code, jsonNumber("-32001"))
	h.ends(closePolicy)
}

func hostErrors(s *scene) {
	h := s.session()
	for _, c := range [][3]string{
		{"session/register", `{"cwd":"/"}`, "session/register.label"},
		{"session/register", `{"label":"l","cwd":"relative"}`, "session/register.cwd"},
		{"tool/call", fillJSON(`{"sessionId":%s}`, h.id), "tool/call.name"},
		{"tool/call", fillJSON(`{"sessionId":%s,"name":"t","timeoutMs":0}`, h.id), "tool/call.timeoutMs"},
		{"hook/preToolUse", fillJSON(`{"sessionId":%s}`, h.id), "hook/preToolUse.tool"},
		{"hook/userPrompt", fillJSON(`{"sessionId":%s}`, h.id), "hook/userPrompt.prompt"},
		{"session/update", fillJSON(`{"id":%s,"state":"asleep"}`, h.id), "session/update.state"},
	} {
		m := h.request(c[0], "%s", rawJSON(c[1]))
		s.equal("the error's code for "+c[0]+" "+c[1], m.at("error", "code"), jsonNumber("-32602"))
		if !strings.Contains(m.text("error", "message"), c[2]) {
			s.fail("an error that names "+c[2], "%s", m)
		}
	}
	code, _ := h.errorCode("no/such", `{}`)
	s.equal("the error's code for no/such", code, jsonNumber("-32601"))
}

func hostOthers(s *scene) {
	h, other := s.session(), s.session()
	for method, params := range map[string]string{
		"tool/call": `{"sessionId":%s,"name":"t"}`, "hook/preToolUse": `{"sessionId":%s,"tool":"t"}`,
		"hook/userPrompt": `{"sessionId":%s,"prompt":"p"}`, "session/update": `{"id":%s,"state":"busy"}`,
		"session/end": `{"id":%s}`, "prompt/transform": `{"sessionId":%s,"sections":{}}`,
	} {
		code, _ := h.errorCode(method, params, other.id)
		s.equal("the error's code for "+method+" of another host's session", code, jsonNumber("-32004"))
	}
	other.set("busy")
}

func hostTools(s *scene) {
	h := s.session()
	p := s.provider(h, "")
	schema := `{"type":"object","properties":{"b":{"type":"number","multipleOf":0.10},"a":{}},"x-own":[1]}`
	want, err := decodeMessage([]byte(schema))
	if err != nil {
		panic(err)
	}
	p.accepted(
		"ack",
		`{"type":"tools.update","requestId":"r","tools":[{"name":"one","description":"The ü","parameters":%s}]}`,
		rawJSON(schema),
	)
	s.equal("the tool in tools/set", h.toolNamed("one"),
		map[string]any{"name": "one", "description": "The ü", "parameters": map[string]any(want)})
	p.accepted("ack", `{"type":"tools.update","requestId":"r","tools":[%s]}`, rawJSON(tool("two", "")))
	h.toolNamed("two")
	last := int64(-1)
	for _, m := range h.all() {
		if m.text("method") != "tools/set" {
			continue
		}
		number, _ := m.at("params", "revision").(jsonNumber)
		n, err := number.Int64()
		if err != nil || n <= last {
			s.fail("a revision that rises with each tools/set", "%s", m)
		}
		last = n
	}
}

func hostReturns(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	h.call("t", `{}`)
	id := p.await("tool.call")["id"]
	h.cut()
	s.equal("the id of the cancelled call", p.await("tool.cancel")["id"], id)
	p.send(`{"type":"tool.result","id":%s,"errorCode":"CANCELLED"}`, id)
	again := s.connectHost()
	again.initialize(hostCapabilities)
	again.register(h.id)
	h.ended = true // the new connection ends it
	s.answered(again, p, "t", `"the same provider"`, "the same provider")
}
