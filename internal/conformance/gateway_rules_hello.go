package conformance

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"tapgw/internal/protocol"
)

var helloRules = []gatewayRule{
	must("hello.ack", "hello.ack", "hello.ack has the version, providerId, sessionId, reconnectToken and persistDir",
		helloAck),
	must("hello.ack-first", "Binding to a session", "After hello come hello.ack, then started, then idle", ackFirst),
	must("hello.version", "hello", "Another protocolVersion is UNSUPPORTED_VERSION, and closes with 1008",
		helloVersion),
	must("hello.session", "hello", "A missing or unknown session is refused, and hello may be tried again",
		helloSession),
	must("hello.fields", "hello", "A wrong field of hello is INVALID_JSON, and the error names it", helloFields),
	must("hello.schemas", "Tool", "A schema that is none of an object is refused; the error names the tool",
		helloSchemas),
	must("hello.limits", "Limits", "A hello at its limits is accepted, and past one PAYLOAD_TOO_LARGE", helloLimits),
	must("hello.conflict", "Calls", "A tool of another provider is TOOL_CONFLICT, and stays with its owner",
		helloConflict),
	must("name.spelling", "Every message", "A name of another spelling is changed, and hello.ack has it",
		helloSpelling),
	must("hello.rate", "hello", "The eleventh hello in a minute is RATE_LIMITED and changes nothing", helloRate),
	must("rebind.replaces", "States", "A second hello removes what the first one gave, and cancels its calls", rebind),
	must("rebind.refused", "States", "After a second hello that is refused, the provider is Unbound", rebindRefused),
	must("goodbye.closes", "goodbye", "goodbye closes the connection with 1000", goodbye),
}

var uuid = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

func helloAck(s *scene) {
	h := s.session()
	_, ack := s.bind(h, "")
	s.equal("hello.ack.protocolVersion", ack["protocolVersion"], jsonNumber("2"))
	s.equal("hello.ack.sessionId", ack["sessionId"], h.id)
	for _, field := range []string{"providerId", "reconnectToken"} {
		if ack.text(field) == "" {
			s.fail("a text in hello.ack."+field, "%s", ack)
		}
	}
	dir := ack.text("persistDir")
	if !filepath.IsAbs(dir) || filepath.Base(dir) != s.name {
		s.fail("an absolute directory of the provider's name in hello.ack.persistDir", "%q", dir)
	}
	if ack["name"] != nil {
		s.fail("no hello.ack.name, since the spelling is right", "%s", ack)
	}
}

func ackFirst(s *scene) {
	h := s.session()
	p := s.login()
	p.drain()
	s.hello(p, h.id, tools("t"))
	call := h.call("t", `{}`)
	m := p.await("tool.call")
	p.send(`{"type":"tool.result","id":%s,"data":1}`, m["id"])
	h.succeeds(call, jsonNumber("1"))
	p.fence()
	var got []string
	for _, m := range p.all() {
		switch m.text("type") {
		case "hello.ack", "tool.call":
			got = append(got, m.text("type"))
		case "session.lifecycle":
			got = append(got, m.text("state"))
		}
	}
	s.equal("the order of messages after hello", got, []string{"hello.ack", "started", "idle", "tool.call"})
}

func helloVersion(s *scene) {
	h := s.session()
	p := s.login()
	p.refused("UNSUPPORTED_VERSION", nil, `{"type":"hello","protocolVersion":3,"name":%s,"session":%s}`, s.name, h.id)
	p.ends(closePolicy)
}

func helloSession(s *scene) {
	h := s.session()
	p := s.login()
	p.refused("INVALID_SESSION", nil, `{"type":"hello","protocolVersion":2,"name":%s,"session":"no such"}`, s.name)
	p.refused("INVALID_JSON", []string{"hello.session"}, `{"type":"hello","protocolVersion":2,"name":%s}`, s.name)
	s.hello(p, h.id, "")
}

func helloFields(s *scene) {
	h := s.session()
	p := s.login()
	for member, field := range map[string]string{
		`"instance":7`:                      "hello.instance",
		`"metadata":[]`:                     "hello.metadata",
		`"tools":{}`:                        "hello.tools",
		`"tools":[{}]`:                      "hello.tools[0].name",
		`"tools":[` + tool("t", "") + `,7]`: "hello.tools[1]",
		`"tools":[` + tool("t", `"validate":1`) + `]`:               "hello.tools[0].validate",
		`"tools":[{"name":"t","description":"d","parameters":"x"}]`: "hello.tools[0].parameters",
		`"hooks":[]`:                      "hello.hooks",
		`"hooks":{"onPreToolUse":[7]}`:    "hello.hooks.onPreToolUse[0]",
		`"hooks":{"transforms":{"x":{}}}`: "hello.hooks.transforms.x.action",
		`"subscribe":["no.event"]`:        "hello.subscribe[0]",
		`"concurrency":{"max":0}`:         "hello.concurrency.max",
		`"concurrency":{"scope":"x"}`:     "hello.concurrency.scope",
		`"context":7`:                     "hello.context",
	} {
		p.refused("INVALID_JSON", []string{field}, `{"type":"hello","protocolVersion":2,"name":%s,"session":%s,%s}`,
			s.name, h.id, rawJSON(member))
	}
	for _, name := range []string{".x", "_/x", strings.Repeat("x", 65)} {
		p.refused("INVALID_JSON", []string{"hello.name"}, `{"type":"hello","protocolVersion":2,"name":%s,"session":%s}`,
			name, h.id)
	}
	p.refused("INVALID_JSON", []string{"hello.name"}, `{"type":"hello","protocolVersion":2,"session":%s}`, h.id)
	p.refused(
		"INVALID_JSON",
		[]string{"hello.protocolVersion"},
		`{"type":"hello","name":%s,"session":%s}`,
		s.name,
		h.id,
	)
	s.hello(p, h.id, "")
}

func helloSchemas(s *scene) {
	h := s.session()
	p := s.login()
	for _, schema := range []string{
		`{"type":"array"}`, `{"type":"object","properties":{"a":{"type":"nonsense"}}}`, `{"properties":7}`,
		`{"$ref":"#/$defs/none"}`,
	} {
		p.refused(
			"INVALID_JSON",
			[]string{"hello.tools[1].parameters", "misfit"},
			`{"type":"hello","protocolVersion":2,`+
				`"name":%s,"session":%s,"tools":[%s,{"name":"misfit","description":"d","parameters":%s}]}`,
			s.name,
			h.id,
			rawJSON(tool("t", "")),
			rawJSON(schema),
		)
	}
	s.hello(p, h.id, `"tools":[{"name":"t","description":"d","parameters":{}}]`)
}

// many returns a list of n parts as JSON, of which each has its number in place of #.
func many(n int, part string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = strings.ReplaceAll(part, "#", fmt.Sprint(i))
	}
	return strings.Join(parts, ",")
}

func helloLimits(s *scene) {
	h := s.session()
	p := s.login()
	part := func(tools, rules, sections, context int) string {
		return `"tools":[` + many(tools, tool("t#", "")) + `],"hooks":{"onPreToolUse":[` +
			many(rules, `{"match":{"tool":"none#"},"action":"deny"}`) + `],"transforms":{` +
			many(sections, `"s#":{"action":"append","content":"c"}`) + `}},"context":"` + strings.Repeat("c", context) +
			`","startup_context":"` + strings.Repeat("s", context) + `"`
	}
	for field, members := range map[string]string{
		"hello.tools":              part(protocol.MaxTools+1, 1, 1, 1),
		"hello.hooks.onPreToolUse": part(1, protocol.MaxHookRules+1, 1, 1),
		"hello.hooks.transforms":   part(1, 1, protocol.MaxTransforms+1, 1),
		"context":                  part(1, 1, 1, protocol.MaxContext+1),
	} {
		p.refused(
			"PAYLOAD_TOO_LARGE",
			[]string{field},
			`{"type":"hello","protocolVersion":2,"name":%s,"session":%s,%s}`,
			s.name,
			h.id,
			rawJSON(members),
		)
	}
	s.hello(p, h.id, part(protocol.MaxTools, protocol.MaxHookRules, protocol.MaxTransforms, protocol.MaxContext))
}

func helloConflict(s *scene) {
	h := s.session()
	owner := s.provider(h, tools("t"))
	p := s.login()
	hello := `{"type":"hello","protocolVersion":2,"name":%s,"session":%s,%s}`
	p.refused("TOOL_CONFLICT", []string{`"t"`}, hello, s.name+".2", h.id, rawJSON(tools("u", "t")))
	p.accepted("hello.ack", hello, s.name+".2", h.id, rawJSON(tools("v")))
	p.refused("TOOL_CONFLICT", []string{`"t"`}, `{"type":"tools.update","tools":[%s]}`, rawJSON(tool("t", "")))
	for tool, peer := range map[string]*peer{"t": owner, "v": p} {
		call := h.call(tool, `{}`)
		peer.send(`{"type":"tool.result","id":%s,"data":1}`, peer.await("tool.call")["id"])
		h.succeeds(call, jsonNumber("1"))
	}
	h.fails(h.call("u", `{}`), "NOT_FOUND")
}

func helloSpelling(s *scene) {
	h := s.session()
	p := s.login()
	spelling := strings.ToUpper(s.name) + " @/Two "
	ack := p.accepted("hello.ack", `{"type":"hello","protocolVersion":2,"name":%s,"session":%s}`, spelling, h.id)
	s.equal("hello.ack.name for "+spelling, ack["name"], s.name+"-two")
	m := p.accepted("ack", `{"type":"push","level":"keep","event":"e","stream":"Ci/Main","requestId":"r"}`)
	s.equal("ack.stream for Ci/Main", m["stream"], "ci-main")
}

func helloRate(s *scene) {
	h := s.session()
	p := s.provider(h, "")
	for range protocol.MaxRebindsAMinute {
		s.hello(p, h.id, tools("t"))
	}
	p.refused("RATE_LIMITED", nil, `{"type":"hello","protocolVersion":2,"name":%s,"session":%s}`, s.name, h.id)
	call := h.call("t", `{}`)
	p.send(`{"type":"tool.result","id":%s,"data":1}`, p.await("tool.call")["id"])
	h.succeeds(call, jsonNumber("1"))
}

func rebind(s *scene) {
	h := s.session()
	p, first := s.bind(h, tools("old"))
	call := h.call("old", `{}`)
	id := p.await("tool.call")["id"]
	second := s.hello(p, h.id, tools("new"))
	m := p.await("tool.cancel")
	s.equal("tool.cancel.id", m["id"], id)
	s.equal("tool.cancel.reason", m["reason"], "rebind")
	h.fails(call, "CANCELLED")
	s.equal("hello.ack.providerId after a rebind", second["providerId"], first["providerId"])
	h.fails(h.call("old", `{}`), "NOT_FOUND")
	call = h.call("new", `{}`)
	p.send(`{"type":"tool.result","id":%s,"data":1}`, p.await("tool.call")["id"])
	h.succeeds(call, jsonNumber("1"))
}

func rebindRefused(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	p.refused("INVALID_SESSION", nil, `{"type":"hello","protocolVersion":2,"name":%s,"session":"no such"}`, s.name)
	h.fails(h.call("t", `{}`), "NOT_FOUND")
	for _, m := range []string{`{"type":"push","level":"keep","event":"e"}`, `{"type":"tools.update","tools":[]}`} {
		p.refused("INVALID_STATE", nil, m)
	}
	s.hello(p, h.id, "")
}

func goodbye(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	h.toolNamed("t")
	p.send(`{"type":"goodbye","reason":"done"}`)
	p.ends(closeNormal)
	h.tools("no tool", func(names []string) bool { return len(names) == 0 })
}

var trustRules = []gatewayRule{
	must(
		"pairing.code",
		"Pairing",
		"A pairing code is shown in the session alone; the right one gives a token",
		pairing,
	),
	must("pairing.wrong-code", "Pairing", "A wrong pairing code is AUTH_FAILED, and closes with 1008", pairingWrong),
	must("pairing.end", "Tokens", "A paired token ends with its session", pairingEnd),
	must("trust.external", "Trust", "A paired provider is refused what its trust does not allow", trustExternal),
	must("name.owner", "Names", "A provider name belongs to one identity in a session", namesOwner),
}

// pair authenticates by pairing and returns the connection with the list that has the token.
func (s *scene) pair(h *host) (p *peer, list message) {
	p, code := s.askPairing(h)
	return p, p.accepted("sessions", `{"type":"auth.confirm","code":%s}`, code)
}

var pairingCode = regexp.MustCompile(`\b\d{6}\b`)

// askPairing asks for a pairing, and returns the code that the session shows.
func (s *scene) askPairing(h *host) (p *peer, code string) {
	p = s.connect()
	m := p.ask(`{"type":"auth","mode":"pair","session":%s,"name":%s}`, h.id, s.name)
	if m.text("code") == "RATE_LIMITED" {
		panic(skipf("the gateway takes no more pairings in this minute; run the kit again in a minute"))
	}
	if m.text("type") != "auth.pairing" || m.text("prompt") == "" {
		s.fail("auth.pairing with a prompt", "%s", m)
	}
	line := h.awaitLog(pairingCode.MatchString, "with a pairing code of six digits")
	code = pairingCode.FindString(strings.ReplaceAll(line, s.name, ""))
	if strings.Contains(m.String(), code) {
		s.fail("no pairing code for the provider itself", "%s", m)
	}
	return p, code
}

func pairing(s *scene) {
	h := s.session()
	p, list := s.pair(h)
	token := list.text("token")
	if token == "" {
		s.fail("a token in the list after pairing", "%s", list)
	}
	hello := `{"type":"hello","protocolVersion":2,"name":%s}`
	p.refused("UNAUTHORIZED", nil, hello, s.name+"-other")
	ack := p.accepted("hello.ack", hello, s.name)
	s.equal("hello.ack.sessionId of a hello without session", ack["sessionId"], h.id)
	s.equal("hello.ack.persistDir of a paired provider", ack["persistDir"], nil)
	again := s.connect()
	again.accepted("sessions", `{"type":"auth","token":%s}`, token)
	other := s.session()
	again.refused(
		"INVALID_SESSION",
		nil,
		`{"type":"hello","protocolVersion":2,"name":%s,"session":%s}`,
		s.name,
		other.id,
	)
}

func pairingWrong(s *scene) {
	h := s.session()
	p, code := s.askPairing(h)
	wrong := "000000"
	if code == wrong {
		wrong = "000001"
	}
	p.refused("AUTH_FAILED", nil, `{"type":"auth.confirm","code":%s}`, wrong)
	p.ends(closePolicy)
}

func pairingEnd(s *scene) {
	h := s.session()
	_, list := s.pair(h)
	h.end()
	p := s.connect()
	p.refused("AUTH_FAILED", nil, `{"type":"auth","token":%s}`, list.text("token"))
	p.ends(closePolicy)
}

func trustExternal(s *scene) {
	h := s.session()
	p, _ := s.pair(h)
	for _, member := range []string{
		`"context":"c"`, `"startup_context":"c"`, `"hooks":{"onPreToolUse":[{"action":"deny"}]}`,
		`"hooks":{"transforms":{"tone":{"action":"callback"}}}`,
		`"hooks":{"transforms":{"tone":{"action":"replace","content":"c"}}}`,
		`"subscribe":["user.message"]`, `"session":"all"`,
	} {
		p.refused("UNAUTHORIZED", nil, `{"type":"hello","protocolVersion":2,"name":%s,%s}`, s.name, rawJSON(member))
	}
	p.accepted("hello.ack", `{"type":"hello","protocolVersion":2,"name":%s,"subscribe":["tool.execution_complete"],`+
		`"hooks":{"transforms":{"tone":{"action":"append","content":"c"}}},%s}`, s.name, rawJSON(tools("t")))
	for _, m := range []string{
		`{"type":"context.update","context":"c"}`, `{"type":"hooks.update","onPreToolUse":[{"action":"deny"}]}`,
		`{"type":"stream.query","queryId":"q","streams":["s@other"]}`,
		`{"type":"filter.set","stream":"s@other","rules":[]}`,
	} {
		p.refused("UNAUTHORIZED", nil, m)
	}
	call := h.call("t", `{}`)
	p.send(`{"type":"tool.result","id":%s,"file":{"path":"/etc/hosts"}}`, p.await("tool.call")["id"])
	h.fails(call, "UNAUTHORIZED")
}

func namesOwner(s *scene) {
	h := s.session()
	paired, _ := s.pair(h)
	paired.accepted("hello.ack", `{"type":"hello","protocolVersion":2,"name":%s}`, s.name)
	p := s.login()
	hello := `{"type":"hello","protocolVersion":2,"name":%s,"session":%s%s}`
	p.refused("UNAUTHORIZED", []string{"hello.name"}, hello, s.name, h.id, rawJSON(""))
	p.refused(
		"UNAUTHORIZED",
		[]string{"hello.name"},
		hello,
		strings.ToUpper(s.name),
		h.id,
		rawJSON(`,"instance":"two"`),
	)
	p.accepted("hello.ack", hello, s.name, s.session().id, rawJSON(""))
}
