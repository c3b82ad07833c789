package conformance

import "strings"

var hookRules = []gatewayRule{
	must("rule.deny", "Rules and gates", "A deny rule denies with its reason and asks nobody", ruleDeny),
	must("rule.context", "Rules and gates", "Context rules allow and give their texts, in their order", ruleContext),
	must("rule.match", "Match and patterns", "A rule matches by tool, alias, args, file and provider", ruleMatch),
	must("gate.check", "gate.check", "A gate is asked with its gateId, a callId, the session, the tool and its args",
		gateCheck),
	must("gate.decisions", "gate.result", "allow, deny and context decide, each with what its reason is for",
		gateDecisions),
	must("gate.all", "Rules and gates", "All gates are asked at the same time, and one denial wins", gateAll),
	must("gate.malformed", "Rules and gates", "A malformed answer of a gate denies", gateMalformed),
	must("gate.disconnected", "Rules and gates", "A gate whose connection ends denies", gateDisconnected),
	must("gate.silent", "Rules and gates", "A gate that is silent for 5 s denies", gateSilent),
	must("gate.fail-open", "Rules and gates", "A silent gate with failOpen allows, and its denial still denies",
		gateFailOpen),
	must("gate.late", "gate.result", "An answer for an unknown check is ignored", gateLate),
	must("gate.calls", "Rules and gates",
		"If the host asks no gates, a denied call is DENIED and does not reach its provider", gateCalls),
}

// rules is the member "hooks" with these rules.
func rules(list ...string) string {
	return `"hooks":{"onPreToolUse":[` + strings.Join(list, ",") + `]}`
}

const gateOfX = `{"match":{"tool":"x"},"action":"gate","gateId":"g"}`

func ruleDeny(s *scene) {
	h := s.session()
	p := s.provider(h, rules(gateOfX, `{"match":{"tool":"x"},"action":"deny","reason":"not today"}`))
	h.deniedFor("not today", h.pretool("x", `{}`))
	h.allows("y", `{}`)
	p.fence()
	p.none("a static denial comes first", "gate.check")
}

func ruleContext(s *scene) {
	h := s.session()
	s.provider(h, rules(`{"match":{"tool":"x"},"action":"context","content":"one"}`,
		`{"match":{"tool":"x"},"action":"context","content":"two"}`))
	s.equal("the context of two rules", h.allows("x", `{}`), "one\n\ntwo")
	s.equal("the context without a rule that matches", h.allows("y", `{}`), "")
}

func ruleMatch(s *scene) {
	h := s.session()
	s.provider(h, tools("own")+`,`+rules(
		`{"match":{"tool":"by-*"},"action":"deny","reason":"pattern"}`,
		`{"match":{"tool":"shell","args":"\"command\":\"git (?!status)"},"action":"deny","reason":"args"}`,
		`{"match":{"file":"src/**/*.key"},"action":"deny","reason":"file"}`,
		fillJSON(`{"match":{"provider":%s},"action":"deny","reason":"provider"}`, s.name)))
	for _, c := range []struct{ tool, args, reason string }{
		{"by-name", `{}`, "pattern"}, {"run_command", `{"command":"git push"}`, "args"},
		{"run_command", `{ "command" : "g\u0069t push" }`, "args"}, {"x", `{"path":"/w/src/a/b.key"}`, "file"},
		{"x", `{"file_path":"src/b.key"}`, "file"}, {"own", `{}`, "provider"},
	} {
		h.deniedFor(c.reason, h.pretool(c.tool, c.args))
	}
	h.allows("run_command", `{"command":"git status"}`)
	h.allows("x", `{"path":"/w/b.key"}`)
	h.allows("other", `{"command":"git push"}`)
}

func gateCheck(s *scene) {
	h := s.session()
	p := s.provider(h, rules(gateOfX))
	asked := h.pretool("x", `{"a":[1,null],"n":9007199254740993}`)
	m := p.await("gate.check")
	s.equal("gate.check.gateId", m["gateId"], "g")
	s.equal("gate.check.sessionId", m["sessionId"], h.id)
	s.equal("gate.check.tool", m["tool"], "x")
	s.equal("gate.check.args", m["args"], map[string]any{
		"a": []any{jsonNumber("1"), nil}, "n": jsonNumber("9007199254740993")})
	if !uuid.MatchString(m.text("callId")) {
		s.fail("a UUID in gate.check.callId", "%s", m)
	}
	p.send(`{"type":"gate.result","callId":%s,"decision":"allow"}`, m["callId"])
	h.allowed(asked)
	p.fence()
	p.none("a gate is asked once for each call", "gate.check")
}

// decide lets the gate of a provider decide about one call of x.
func (s *scene) decide(h *host, p *peer, members string) (asked string) {
	asked = h.pretool("x", `{}`)
	p.send(`{"type":"gate.result","callId":%s,%s}`, p.await("gate.check")["callId"], rawJSON(members))
	return asked
}

func gateDecisions(s *scene) {
	h := s.session()
	p := s.provider(h, rules(gateOfX))
	s.equal("the context of an allow", h.allowed(s.decide(h, p, `"decision":"allow","reason":"r"`)), "")
	s.equal(
		"the context of a context",
		h.allowed(s.decide(h, p, `"decision":"context","reason":"CI is slow"`)),
		"CI is slow",
	)
	h.deniedFor("CI fails", s.decide(h, p, `"decision":"deny","reason":"CI fails"`))
}

func gateAll(s *scene) {
	h := s.session()
	one, two := s.provider(h, rules(gateOfX)), s.provider(h, rules(gateOfX))
	asked := h.pretool("x", `{}`)
	first, second := one.await("gate.check"), two.await("gate.check")
	one.send(`{"type":"gate.result","callId":%s,"decision":"allow"}`, first["callId"])
	two.send(`{"type":"gate.result","callId":%s,"decision":"deny","reason":"no"}`, second["callId"])
	h.deniedFor("no", asked)
}

func gateMalformed(s *scene) {
	h := s.session()
	p := s.provider(h, rules(gateOfX))
	for _, members := range []string{`"decision":"yes"`, `"decision":true`, `"reason":"r"`} {
		h.denied(s.decide(h, p, members))
		p.await("error")
	}
}

func gateDisconnected(s *scene) {
	h := s.session()
	p := s.provider(h, rules(gateOfX))
	asked := h.pretool("x", `{}`)
	p.await("gate.check")
	p.cut()
	h.denied(asked)
}

func gateSilent(s *scene) {
	h := s.session()
	p := s.provider(h, rules(gateOfX))
	asked := h.pretool("x", `{}`)
	callID := p.await("gate.check")["callId"]
	if h.denied(asked) == "" {
		s.fail("a reason of the denial that names the gate", "none")
	}
	p.send(`{"type":"gate.result","callId":%s,"decision":"allow"}`, callID)
	p.fence()
	p.none("a late answer is ignored", "error")
}

func gateFailOpen(s *scene) {
	h := s.session()
	p := s.provider(h, rules(`{"match":{"tool":"x"},"action":"gate","gateId":"g","failOpen":true}`))
	h.denied(s.decide(h, p, `"decision":"deny","reason":"no"`))
	asked := h.pretool("x", `{}`)
	p.await("gate.check")
	h.allowed(asked)
}

func gateLate(s *scene) {
	h := s.session()
	p := s.provider(h, rules(gateOfX))
	h.denied(s.decide(h, p, `"decision":"deny"`))
	p.send(`{"type":"gate.result","callId":"never","decision":"allow"}`)
	p.send(`{"type":"gate.result","callId":"never"}`)
	p.fence()
	h.allowed(s.decide(h, p, `"decision":"allow"`))
}

func gateCalls(s *scene) {
	h := s.sessionWith(`{"liveTools":true}`)
	p := s.provider(h, tools("t")+`,`+rules(`{"match":{"tool":"t"},"action":"gate","gateId":"g"}`))
	call := h.call("t", `{}`)
	p.send(`{"type":"gate.result","callId":%s,"decision":"deny","reason":"no"}`, p.await("gate.check")["callId"])
	h.fails(call, "DENIED")
	p.fence()
	p.none("its gate denied the call", "tool.call")
	call = h.call("t", `{}`)
	p.send(`{"type":"gate.result","callId":%s,"decision":"allow"}`, p.await("gate.check")["callId"])
	p.send(`{"type":"tool.result","id":%s,"data":1}`, p.await("tool.call")["id"])
	h.succeeds(call, jsonNumber("1"))
}

var promptRules = []gatewayRule{
	must("prompt.context", "Context",
		"A context goes with each prompt, a startup_context with the first; in the order of joining", contexts),
	must(
		"transform.static",
		"Transforms",
		"append, prepend and replace change a section, one after the other",
		transforms,
	),
	must("transform.callback", "Transforms",
		"A callback is asked with the section's text, and its answer is the new text", transformCallback),
	must("transform.silent", "Transforms", "A callback that is silent for 2 s leaves the section as it is",
		transformSilent),
	must("transform.protected", "Transforms", "safety and identity take only append, and keep their own text last",
		transformProtected),
}

func contexts(s *scene) {
	h := s.session()
	s.provider(h, `"context":"context one","startup_context":"startup one"`)
	s.provider(h, `"context":"context two","startup_context":"startup two"`)
	s.equal("what goes with the first prompt", h.prompt(), "startup one\n\nstartup two\n\ncontext one\n\ncontext two")
	s.equal("what goes with the second prompt", h.prompt(), "context one\n\ncontext two")
}

func transforms(s *scene) {
	h := s.session()
	for _, t := range []string{
		`{"action":"append","content":"after"}`, `{"action":"prepend","content":"before"}`,
	} {
		s.provider(h, `"hooks":{"transforms":{"tone":`+t+`,"other":{"action":"replace","content":"instead"}}}`)
	}
	s.equal("the section tone", h.section(h.transform("tone", "own"), "tone"), "before\n\nown\n\nafter")
	s.equal("the section other", h.section(h.transform("other", "own"), "other"), "instead")
	s.equal("a section without transforms", h.section(h.transform("guidelines", "own"), "guidelines"), "own")
}

func transformCallback(s *scene) {
	h := s.session()
	p := s.provider(h, `"hooks":{"transforms":{"tone":{"action":"callback"}}}`)
	asked := h.transform("tone", "own text")
	m := p.await("transform.request")
	s.equal("transform.request.sessionId", m["sessionId"], h.id)
	s.equal("transform.request.section", m["section"], "tone")
	s.equal("transform.request.current", m["current"], "own text")
	p.send(`{"type":"transform.result","callId":"never","content":"wrong"}`)
	p.send(`{"type":"transform.result","callId":%s,"content":"new text"}`, m["callId"])
	p.send(`{"type":"transform.result","callId":%s,"content":"newer text"}`, m["callId"])
	s.equal("the section after the callback", h.section(asked, "tone"), "new text")
	p.fence()
	p.none("an answer for an unknown request is ignored", "error")
}

func transformSilent(s *scene) {
	h := s.session()
	p := s.provider(h, `"hooks":{"transforms":{"tone":{"action":"callback"}}}`)
	asked := h.transform("tone", "own text")
	p.await("transform.request")
	s.equal("the section after 2 s of silence", h.section(asked, "tone"), "own text")
}

func transformProtected(s *scene) {
	h := s.session()
	p := s.provider(h, "")
	for _, section := range []string{"safety", "identity"} {
		for _, action := range []string{
			`{"action":"replace","content":"c"}`, `{"action":"prepend","content":"c"}`, `{"action":"callback"}`,
		} {
			p.refused(
				"UNAUTHORIZED",
				[]string{section},
				`{"type":"hooks.update","requestId":"r","transforms":{%s:%s}}`,
				section,
				rawJSON(action),
			)
		}
	}
	p.accepted(
		"ack",
		`{"type":"hooks.update","requestId":"r","transforms":{"safety":{"action":"append","content":"more"}}}`,
	)
	s.equal("the section safety", h.section(h.transform("safety", "be safe"), "safety"), "be safe\n\nmore\n\nbe safe")
}
