package conformance

import (
	"slices"
	"strings"

	"tapgw/internal/protocol"
)

var updateRules = []gatewayRule{
	must("ack.once", "Updates", "An update with a requestId has one ack, with its session; one without is silent",
		ackOnce),
	must("ack.revision", "Updates", "ack.revision rises with each update, also after a second hello and a reconnect",
		revision),
	must("ack.barrier", "Updates", "After the ack, nothing follows from the older state", ackBarrier),
	must("update.order", "Updates", "Updates are done in the order in which they were sent", updateOrder),
	must("update.tools", "tools.update", "Without remove the list is replaced, with it changed", toolsUpdate),
	must("update.refused", "Updates", "An update that is refused changes nothing", toolsUpdateRefused),
	must("update.limits", "Limits", "The 101st tool is PAYLOAD_TOO_LARGE", toolsUpdateLimits),
	must("update.calls", "Updates", "Calls of a tool that was removed run to their end", toolsUpdateCalls),
	must("update.hooks", "hooks.update", "Rules are replaced, and transforms merged by section", hooksUpdate),
	must("update.context", "context.update", "A context is replaced, and an empty one removes it", contextUpdate),
}

func ackOnce(s *scene) {
	h := s.session()
	p := s.provider(h, "")
	for _, m := range []string{
		`"type":"tools.update","tools":[]`, `"type":"hooks.update","onPreToolUse":[]`,
		`"type":"context.update","context":"c"`, `"type":"filter.set","stream":"s","rules":[]`,
	} {
		p.send(`{%s}`, rawJSON(m))
		ack := p.accepted("ack", `{%s,"requestId":"my ü request"}`, rawJSON(m))
		s.equal("ack.requestId", ack["requestId"], "my ü request")
		s.equal("ack.sessionId", ack["sessionId"], h.id)
		if _, ok := ack["revision"].(jsonNumber); !ok {
			s.fail("a number in ack.revision", "%s", ack)
		}
	}
	p.fence()
	p.none("each update with a requestId has one ack, and the others none", "ack")
}

func revision(s *scene) {
	h := s.session()
	p := s.provider(h, "")
	last := int64(0)
	rises := func() {
		m := p.accepted("ack", `{"type":"context.update","context":"c","requestId":"r"}`)
		number, _ := m["revision"].(jsonNumber)
		n, err := number.Int64()
		if err != nil || n <= last {
			s.fail(fillJSON("a revision over %s", last), "%s", m)
		}
		last = n
	}
	rises()
	rises()
	hello := s.hello(p, h.id, "")
	rises()
	p.cut()
	p = s.again(hello.text("reconnectToken"))
	p.accepted("hello.ack", `{"type":"hello","protocolVersion":2,"name":%s}`, s.name)
	rises()
}

func ackBarrier(s *scene) {
	h := s.session()
	p := s.provider(h, tools("old"))
	for range 3 {
		p.accepted("ack", `{"type":"tools.update","requestId":"r","tools":[%s]}`, rawJSON(tool("new", "")))
		h.fails(h.call("old", `{}`), "NOT_FOUND")
		p.accepted(
			"ack",
			`{"type":"hooks.update","requestId":"r","onPreToolUse":[{"match":{"tool":"x"},"action":"deny"}]}`,
		)
		h.denied(h.pretool("x", `{}`))
		p.accepted("ack", `{"type":"hooks.update","requestId":"r","onPreToolUse":[]}`)
		h.allows("x", `{}`)
		p.accepted("ack", `{"type":"tools.update","requestId":"r","tools":[%s]}`, rawJSON(tool("old", "")))
		s.answered(h, p, "old", `1`, jsonNumber("1"))
	}
}

func updateOrder(s *scene) {
	h := s.session()
	p := s.provider(h, "")
	const n = 10
	for i := range n {
		p.send(`{"type":"context.update","requestId":%s,"context":%s}`, string(rune('a'+i)), string(rune('a'+i)))
	}
	for i := range n {
		s.equal("ack.requestId", p.await("ack", "error")["requestId"], string(rune('a'+i)))
	}
	s.equal("the context after ten updates", h.prompt(), string(rune('a'+n-1)))
}

func toolsUpdate(s *scene) {
	h := s.session()
	p := s.provider(h, tools("one", "two"))
	has := func(names ...string) {
		h.tools(strings.Join(names, ", "), func(got []string) bool {
			slices.Sort(got)
			return slices.Equal(got, names)
		})
	}
	p.accepted("ack", `{"type":"tools.update","requestId":"r","tools":[%s]}`, rawJSON(tool("three", "")))
	has("three")
	p.accepted("ack", `{"type":"tools.update","requestId":"r","remove":[],"tools":[%s]}`, rawJSON(tool("four", "")))
	has("four", "three")
	p.accepted("ack", `{"type":"tools.update","requestId":"r","remove":["three","never"]}`)
	has("four")
	p.accepted("ack", `{"type":"tools.update","requestId":"r","remove":[],"tools":[{"name":"four","description":"new",`+
		`"parameters":{"required":["x"]}}]}`)
	h.fails(h.call("four", `{}`), "INVALID_ARGUMENTS")
}

func toolsUpdateRefused(s *scene) {
	h := s.session()
	s.login().accepted("hello.ack", `{"type":"hello","protocolVersion":2,"name":%s,"session":%s,%s}`,
		s.name+".2", h.id, rawJSON(tools("taken")))
	p := s.provider(h, tools("t"))
	for text, code := range map[string]string{
		tool("u", "") + `,` + tool("taken", ""):                          "TOOL_CONFLICT",
		tool("u", "") + `,{"name":"v","description":"d","parameters":7}`: "INVALID_JSON",
		tool("u", "") + `,` + tool("bad name", ""):                       "INVALID_JSON",
		tool("u", "") + `,` + tool("v", `"timeout":3600001`):             "INVALID_JSON",
		many(protocol.MaxTools+1, tool("u#", "")):                        "PAYLOAD_TOO_LARGE",
	} {
		p.refused(code, nil, `{"type":"tools.update","requestId":"r","tools":[%s]}`, rawJSON(text))
	}
	h.fails(h.call("u", `{}`), "NOT_FOUND")
	s.answered(h, p, "t", `1`, jsonNumber("1"))
}

func toolsUpdateLimits(s *scene) {
	p := s.provider(s.session(), tools("t"))
	update := `{"type":"tools.update","requestId":"r","remove":[],"tools":[%s]}`
	p.refused(
		"PAYLOAD_TOO_LARGE",
		[]string{"tools.update.tools"},
		update,
		rawJSON(many(protocol.MaxTools, tool("t#", ""))),
	)
	p.accepted("ack", update, rawJSON(many(protocol.MaxTools-1, tool("t#", ""))))
}

func toolsUpdateCalls(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	call := h.call("t", `{}`)
	id := p.await("tool.call")["id"]
	p.accepted("ack", `{"type":"tools.update","requestId":"r","tools":[]}`)
	p.send(`{"type":"tool.result","id":%s,"data":"to the end"}`, id)
	h.succeeds(call, "to the end")
}

func hooksUpdate(s *scene) {
	h := s.session()
	p := s.provider(h, "")
	update := `{"type":"hooks.update","requestId":"r",%s}`
	p.accepted("ack", update, rawJSON(`"onPreToolUse":[{"match":{"tool":"a"},"action":"deny"}],`+
		`"transforms":{"tone":{"action":"append","content":"one"},"guidelines":{"action":"append","content":"two"}}`))
	h.denied(h.pretool("a", `{}`))
	p.accepted("ack", update, rawJSON(`"transforms":{"guidelines":null}`))
	h.denied(h.pretool("a", `{}`))
	s.equal("a section whose transform was removed", h.section(h.transform("guidelines", "own"), "guidelines"), "own")
	s.equal("a section that an update leaves out", h.section(h.transform("tone", "own"), "tone"), "own\n\none")
	p.accepted("ack", update, rawJSON(`"onPreToolUse":[{"match":{"tool":"b"},"action":"deny"}]`))
	h.allows("a", `{}`)
	h.denied(h.pretool("b", `{}`))
	p.refused("PAYLOAD_TOO_LARGE", nil, update, rawJSON(`"onPreToolUse":[`+
		many(protocol.MaxHookRules+1, `{"match":{"tool":"x#"},"action":"deny"}`)+`]`))
	h.denied(h.pretool("b", `{}`))
}

func contextUpdate(s *scene) {
	h := s.session()
	p := s.provider(h, `"context":"from hello"`)
	s.equal("the context of hello", h.prompt(), "from hello")
	p.accepted("ack", `{"type":"context.update","requestId":"r","context":"updated"}`)
	s.equal("the context after an update", h.prompt(), "updated")
	p.refused("PAYLOAD_TOO_LARGE", []string{"context"}, `{"type":"context.update","requestId":"r","context":%s}`,
		strings.Repeat("x", protocol.MaxContext+1))
	s.equal("the context after an update that was refused", h.prompt(), "updated")
	p.accepted("ack", `{"type":"context.update","requestId":"r","context":""}`)
	s.equal("the context after an empty one", h.prompt(), "")
}
