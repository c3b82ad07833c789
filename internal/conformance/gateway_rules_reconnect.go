package conformance

import "strings"

var reconnectRules = []gatewayRule{
	must("reconnect.restores", "Reconnecting",
		"A reconnect token gives back the providerId and all that the hello leaves out", reconnectRestores),
	must("reconnect.rotates", "Reconnecting", "Each hello.ack has a new reconnect token, and a used one is AUTH_FAILED",
		reconnectRotates),
	must("reconnect.takeover", "Reconnecting", "While the old connection is up, the gateway closes it with 4001",
		reconnectTakeover),
	must("reconnect.in-hello", "Reconnecting",
		"hello takes a reconnect token too; one that is not valid counts as absent", reconnectInHello),
	must("reconnect.clears", "Reconnecting", "A member of hello that is empty clears what the provider had",
		reconnectClears),
	must("reconnect.goodbye", "goodbye", "goodbye voids the reconnect token", reconnectGoodbye),
	must("reconnect.disconnected", "Reconnecting", "Calls in flight end with DISCONNECTED, and do not come again",
		reconnectDisconnected),
}

// again authenticates on a new connection with a reconnect token.
func (s *scene) again(token string) *peer {
	p := s.connect()
	p.accepted("sessions", `{"type":"auth","reconnectToken":%s}`, token)
	return p
}

func reconnectRestores(s *scene) {
	h := s.session()
	p, first := s.bind(h, tools("t")+`,"context":"kept context","subscribe":["user.message"],`+
		`"hooks":{"onPreToolUse":[{"match":{"tool":"blocked"},"action":"deny","reason":"kept rule"}],`+
		`"transforms":{"tone":{"action":"append","content":"kept section"}}}`)
	h.toolNamed("t")
	p.cut()
	h.tools("no tool", func(names []string) bool { return len(names) == 0 })
	p = s.again(first.text("reconnectToken"))
	second := p.accepted("hello.ack", `{"type":"hello","protocolVersion":2,"name":%s}`, s.name)
	s.equal("hello.ack.providerId after a reconnect", second["providerId"], first["providerId"])
	s.equal("hello.ack.sessionId after a reconnect", second["sessionId"], h.id)
	call := h.call("t", `{}`)
	p.send(`{"type":"tool.result","id":%s,"data":"kept tool"}`, p.await("tool.call")["id"])
	h.succeeds(call, "kept tool")
	s.equal("the context after a reconnect", h.prompt(), "kept context")
	h.deniedFor("kept rule", h.pretool("blocked", `{}`))
	section := h.section(h.transform("tone", "kind"), "tone")
	if !strings.Contains(section, "kept section") {
		s.fail("the section with what the provider appends, after a reconnect", "%q", section)
	}
	h.event("user.message", `{"content":"hello"}`)
	p.await("session.event")
}

func reconnectRotates(s *scene) {
	h := s.session()
	p, first := s.bind(h, "")
	p.cut()
	p = s.again(first.text("reconnectToken"))
	second := p.accepted("hello.ack", `{"type":"hello","protocolVersion":2,"name":%s}`, s.name)
	if second.text("reconnectToken") == first.text("reconnectToken") {
		s.fail("another reconnectToken in each hello.ack", "%s", second)
	}
	used := s.connect()
	used.refused("AUTH_FAILED", nil, `{"type":"auth","reconnectToken":%s}`, first.text("reconnectToken"))
	used.ends(closePolicy)
	p.cut()
	p = s.again(second.text("reconnectToken"))
	third := p.accepted("hello.ack", `{"type":"hello","protocolVersion":2,"name":%s}`, s.name)
	s.equal("hello.ack.providerId after two reconnects", third["providerId"], first["providerId"])
}

func reconnectTakeover(s *scene) {
	h := s.session()
	old, first := s.bind(h, tools("t")+`,"instance":"one"`)
	call := h.call("t", `{}`)
	old.await("tool.call")
	p := s.again(first.text("reconnectToken"))
	second := p.accepted("hello.ack", `{"type":"hello","protocolVersion":2,"name":%s}`, s.name)
	old.ends(closeTakenOver)
	h.fails(call, "DISCONNECTED")
	s.equal("hello.ack.providerId after a takeover", second["providerId"], first["providerId"])
	call = h.call("t", `{}`)
	p.send(`{"type":"tool.result","id":%s,"data":"from the new one"}`, p.await("tool.call")["id"])
	h.succeeds(call, "from the new one")
}

func reconnectInHello(s *scene) {
	h := s.session()
	p, first := s.bind(h, tools("t"))
	p.cut()
	p = s.login()
	hello := `{"type":"hello","protocolVersion":2,"name":%s,"session":%s,"reconnectToken":%s}`
	second := p.accepted("hello.ack", hello, s.name, h.id, first.text("reconnectToken"))
	s.equal("hello.ack.providerId for a reconnectToken in hello", second["providerId"], first["providerId"])
	call := h.call("t", `{}`)
	p.send(`{"type":"tool.result","id":%s,"data":1}`, p.await("tool.call")["id"])
	h.succeeds(call, jsonNumber("1"))
	third := s.login().accepted("hello.ack", hello, s.name, h.id, wrongReconnect)
	if third.text("providerId") == first.text("providerId") {
		s.fail("a new providerId for a reconnectToken that is not valid", "%s", third)
	}
}

func reconnectClears(s *scene) {
	h := s.session()
	p, first := s.bind(h, tools("t")+`,"context":"old context","hooks":{"onPreToolUse":[{"match":{"tool":"blocked"},`+
		`"action":"deny"}]}`)
	p.cut()
	p = s.again(first.text("reconnectToken"))
	p.accepted("hello.ack", `{"type":"hello","protocolVersion":2,"name":%s,"tools":[],"context":"","hooks":{}}`, s.name)
	h.fails(h.call("t", `{}`), "NOT_FOUND")
	s.equal("the context after an empty one", h.prompt(), "")
	h.allows("blocked", `{}`)
}

func reconnectGoodbye(s *scene) {
	p, ack := s.bind(s.session(), "")
	p.send(`{"type":"goodbye"}`)
	p.ends(closeNormal)
	p = s.connect()
	p.refused("AUTH_FAILED", nil, `{"type":"auth","reconnectToken":%s}`, ack.text("reconnectToken"))
	p.ends(closePolicy)
}

func reconnectDisconnected(s *scene) {
	h := s.session()
	p, ack := s.bind(h, tools("t"))
	first, second := h.call("t", `{}`), h.call("t", `{}`)
	p.await("tool.call")
	p.await("tool.call")
	p.cut()
	h.fails(first, "DISCONNECTED")
	h.fails(second, "DISCONNECTED")
	p = s.again(ack.text("reconnectToken"))
	p.accepted("hello.ack", `{"type":"hello","protocolVersion":2,"name":%s}`, s.name)
	p.fence()
	p.none("a call that has ended does not come again", "tool.call")
}

var endRules = []gatewayRule{
	must("end.pending", "The end of a session",
		"shutdown.pending has a deadline of 10 s, and the session waits for its providers", endPending),
	must("end.deadline", "The end of a session",
		"A provider that does not answer delays a session's end by 10 s at most", endDeadline),
	must("end.calls", "The end of a session", "Calls in flight end with CANCELLED", endCalls),
	must("end.unbound", "The end of a session", "A provider of the session that ended may bind to another one",
		endUnbound),
	must("end.goodbye", "The end of a session",
		"A goodbye that answers shutdown.pending leaves the reconnect token valid", endGoodbye),
}

// beginEnd starts to end a session. It returns the request once p has been told.
func (h *host) beginEnd(p *peer) (request string, pending message) {
	request = h.start("session/end", `{"id":%s,"reason":"a rule of the conformance kit"}`, h.id)
	return request, p.awaitState("shutdown.pending")
}

// awaitState waits for a session.lifecycle with that state.
func (p *peer) awaitState(state string) message {
	return p.wait("session.lifecycle with "+state, func(m message) bool {
		return m.text("type") == "session.lifecycle" && m.text("state") == state
	})
}

func endPending(s *scene) {
	h := s.session()
	one, two := s.provider(h, ""), s.provider(h, "")
	end, m := h.beginEnd(one)
	s.equal("session.lifecycle.sessionId", m["sessionId"], h.id)
	s.equal("session.lifecycle.deadline", m["deadline"], jsonNumber("10000"))
	two.awaitState("shutdown.pending")
	one.send(`{"type":"shutdown.ready","sessionId":%s}`, h.id)
	one.fence()
	if m, _, ok := h.find(func(m message) bool { return isAnswer(m, end) }); ok {
		s.fail("that the session waits for its second provider", "%s", m)
	}
	two.send(`{"type":"shutdown.ready"}`)
	h.answer(end)
}

func endDeadline(s *scene) {
	h := s.session()
	end, _ := h.beginEnd(s.provider(h, ""))
	h.answer(end)
}

func endCalls(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	call := h.call("t", `{}`)
	p.await("tool.call")
	end, _ := h.beginEnd(p)
	p.send(`{"type":"shutdown.ready"}`)
	h.fails(call, "CANCELLED")
	h.answer(end)
}

func endUnbound(s *scene) {
	h, other := s.session(), s.session()
	p := s.provider(h, tools("t"))
	end, _ := h.beginEnd(p)
	p.send(`{"type":"shutdown.ready"}`)
	h.answer(end)
	p.await("sessions.updated")
	p.refused("INVALID_STATE", nil, `{"type":"push","level":"keep","event":"e"}`)
	s.hello(p, other.id, tools("t"))
	call := other.call("t", `{}`)
	p.send(`{"type":"tool.result","id":%s,"data":1}`, p.await("tool.call")["id"])
	other.succeeds(call, jsonNumber("1"))
}

func endGoodbye(s *scene) {
	h, other := s.session(), s.session()
	p, ack := s.bind(h, tools("t"))
	end, _ := h.beginEnd(p)
	p.send(`{"type":"goodbye"}`)
	p.ends(closeNormal)
	h.answer(end)
	p = s.again(ack.text("reconnectToken"))
	hello := `{"type":"hello","protocolVersion":2,"name":%s,"session":%s}`
	second := p.accepted("hello.ack", hello, s.name, other.id)
	s.equal("hello.ack.providerId in the next session", second["providerId"], ack["providerId"])
	call := other.call("t", `{}`)
	p.send(`{"type":"tool.result","id":%s,"data":1}`, p.await("tool.call")["id"])
	other.succeeds(call, jsonNumber("1"))
}
