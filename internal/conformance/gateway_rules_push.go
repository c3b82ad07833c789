package conformance

import (
	"fmt"
	"strings"
	"time"

	"tapgw/internal/protocol"
)

var instanceRules = []gatewayRule{
	must("instance.shared", "Instances", "Instances share their tools, with target and list_NAME_instances", instances),
	must("instance.target", "Instances",
		"target chooses the instance and does not reach it; an unknown one is NOT_FOUND", instancesTarget),
	must("instance.recent", "Instances", "Without target the instance that sent something last gets the call",
		instancesRecent),
	must("instance.retry", "Instances",
		"A retryable failure goes to one other instance, and not if target chose the first", instancesRetry),
	must("instance.duplicate", "Codes", "A name and instance that are connected are DUPLICATE_INSTANCE",
		instancesDuplicate),
	must("instance.conflict", "Instances", "A target of one's own, and another schema, are TOOL_CONFLICT",
		instancesConflict),
}

// instancePair binds two instances, one and two, with the tool t.
func (s *scene) instancePair(h *host) (one, two *peer) {
	one = s.provider(h, tools("t")+`,"instance":"one","metadata":{"title":"The first"}`)
	return one, s.provider(h, tools("t")+`,"instance":"two"`)
}

func instances(s *scene) {
	h := s.session()
	s.instancePair(h)
	list := "list_" + s.name + "_instances"
	h.toolNamed(list)
	call := h.call(list, `{}`)
	m := h.answer(call)
	all, _ := m.at("result", "data").([]any)
	if len(all) != 2 {
		s.fail("two instances from "+list, "%s", m)
	}
	for i, name := range []string{"one", "two"} {
		instance, _ := all[i].(map[string]any)
		if instance["instance"] != name || instance["lastActiveAt"] == nil {
			s.fail("the instance "+name+" with its lastActiveAt", "%s", message(instance))
		}
	}
	s.equal("the metadata of one", message(all[0].(map[string]any))["metadata"], map[string]any{"title": "The first"})
}

func instancesTarget(s *scene) {
	h := s.session()
	one, two := s.instancePair(h)
	for name, p := range map[string]*peer{"one": one, "two": two} {
		call := h.call("t", fillJSON(`{"target":%s,"n":1}`, name))
		m := p.await("tool.call")
		s.equal("tool.call.args of a call with a target", m["args"], map[string]any{"n": jsonNumber("1")})
		p.send(`{"type":"tool.result","id":%s,"data":%s}`, m["id"], name)
		h.succeeds(call, name)
	}
	h.fails(h.call("t", `{"target":"three"}`), "NOT_FOUND")
}

func instancesRecent(s *scene) {
	h := s.session()
	one, two := s.instancePair(h)
	for _, p := range []*peer{one, two, one} {
		s.pause() // else a gateway with a coarse clock can't tell who was last
		p.accepted("stream.history", `{"type":"stream.query","queryId":"q"}`)
		s.answered(h, p, "t", `1`, jsonNumber("1"))
	}
}

func instancesRetry(s *scene) {
	h := s.session()
	one, two := s.instancePair(h)
	s.pause()
	one.accepted("stream.history", `{"type":"stream.query","queryId":"q"}`)
	const busy = `{"type":"tool.result","id":%s,"error":"busy","retryable":true}`
	call := h.call("t", `{}`)
	one.send(busy, one.await("tool.call")["id"])
	two.send(busy, two.await("tool.call")["id"])
	h.fails(call, "INTERNAL")
	call = h.call("t", `{"target":"one"}`)
	one.send(busy, one.await("tool.call")["id"])
	h.fails(call, "INTERNAL")
	one.fence()
	two.fence()
	one.none("a call is tried once more at most, and not if target chose the instance", "tool.call")
	two.none("a call is tried once more at most, and not if target chose the instance", "tool.call")
}

func instancesDuplicate(s *scene) {
	h := s.session()
	s.provider(h, `"instance":"one"`)
	p := s.login()
	hello := `{"type":"hello","protocolVersion":2,"name":%s,"session":%s,"instance":%s}`
	p.refused("DUPLICATE_INSTANCE", nil, hello, s.name, h.id, "one")
	p.refused("INVALID_JSON", []string{"hello.instance"}, hello, s.name, h.id, strings.Repeat("x", 257))
	p.accepted("hello.ack", hello, s.name, h.id, strings.Repeat("x", 256))
}

func instancesConflict(s *scene) {
	h := s.session()
	s.instancePair(h)
	p := s.login()
	for _, schema := range []string{
		`{"type":"object","properties":{"target":{"type":"string"}}}`, `{"type":"object","properties":{"other":{}}}`,
	} {
		p.refused(
			"TOOL_CONFLICT",
			nil,
			`{"type":"hello","protocolVersion":2,"name":%s,"session":%s,"instance":"three",`+
				`"tools":[{"name":"t","description":"d","parameters":%s}]}`,
			s.name,
			h.id,
			rawJSON(schema),
		)
	}
	p.refused("TOOL_CONFLICT", nil, `{"type":"hello","protocolVersion":2,"name":%s,"session":%s,"tools":[%s]}`,
		s.name+".2", h.id, rawJSON(tool("list_"+s.name+"_instances", "")))
}

var pushRules = []gatewayRule{
	must("push.fates", "Receipts", "A push with a requestId is acknowledged with its fate, and without one not at all",
		pushFates),
	must("push.inject", "Pushes",
		"An inject reaches the session as a prompt of the provider, and its receipt comes twice", pushInject),
	must("push.order", "Pushes", "An inject waits while the session is busy, and several keep their order", pushOrder),
	must("push.waiting", "Limits", "Ten injects of a provider wait; the next is RATE_LIMITED", pushWaiting),
	must(
		"push.cycles",
		"Pushes",
		"After three cycles of injects without the user they are only shown, until the user speaks",
		pushCycles,
	),
	must("push.rate", "Limits", "Pushes over 10 a second are RATE_LIMITED and not stored", pushRate),
	must("push.streams", "Limits", "The 21st stream is PAYLOAD_TOO_LARGE", pushStreams),
	must("push.session", "Binding to a session", "A message for a session that is not bound is INVALID_SESSION",
		pushSession),
	must("push.filter", "Filters", "The first rule of a stream's filter that matches decides what happens to an event",
		filter),
	must(
		"push.filter-limits",
		"Limits",
		"The 101st rule of a filter, and a pattern over 1 KiB, are refused",
		filterLimits,
	),
	must("query.newest", "Queries",
		"A query is answered by stream and provider, newest first, 20 of each unless it says how many", query),
	must("query.most", "Limits", "A query gets 100 events of a stream at most", queryLast),
	must(
		"event.data",
		"Subscriptions",
		"Subscribers get the session's events, as they were and in order; others do not",
		events,
	),
	must("event.pushed", "Subscriptions", "event.pushed tells of the events that the timeline shows", eventPushed),
	must("question.grant", "Questions", "Questions are kept from a provider without the grant", questionsGrant),
}

// push pushes with a requestId and returns the receipt.
func (s *scene) push(p *peer, members string) message {
	id := fmt.Sprintf("push-%d", s.next())
	p.send(`{"type":"push","requestId":%s,%s}`, id, rawJSON(members))
	m := p.wait("a receipt", func(m message) bool {
		return m.text("type") == "error" || m.text("type") == "ack" && m.text("requestId") == id
	})
	if m.text("type") == "error" {
		s.fail("a receipt for the push "+members, "%s", m)
	}
	return m
}

func pushFates(s *scene) {
	h := s.session()
	p := s.provider(h, "")
	p.send(`{"type":"push","level":"keep","event":"without a requestId"}`)
	for level, fate := range map[string]string{"keep": "stored", "surface": "surfaced"} {
		m := s.push(p, fillJSON(`"level":%s,"event":%s`, level, "the event "+level))
		s.equal("ack.fate of level "+level, m["fate"], fate)
		s.equal("ack.sessionId", m["sessionId"], h.id)
		if _, ok := m["seq"].(jsonNumber); !ok || !strings.HasPrefix(m.text("requestId"), "push-") {
			s.fail("an ack with the requestId and a number in seq", "%s", m)
		}
	}
	h.awaitLog(func(line string) bool { return strings.Contains(line, "the event surface") }, "with the surfaced event")
	p.fence()
	p.none("two pushes had a requestId, and each has one receipt", "ack")
}

func pushInject(s *scene) {
	h := s.session()
	p := s.provider(h, "")
	first := s.push(p, `"level":"inject","event":"look at this"`)
	s.equal("ack.fate of an inject", first["fate"], "queued")
	m := h.awaitMethod("session/send")
	s.equal("session/send.prompt", m.text("params", "prompt"), "look at this")
	s.equal("session/send.source", m.text("params", "source"), "provider:"+s.name)
	second := p.await("ack")
	s.equal("ack.fate of an inject that was delivered", second["fate"], "delivered")
	s.equal("ack.requestId of the second receipt", second["requestId"], first["requestId"])
	s.equal("ack.seq of the second receipt", second["seq"], first["seq"])
}

func pushOrder(s *scene) {
	h := s.session()
	p := s.provider(h, "")
	h.set("busy")
	for _, text := range []string{"first", "second"} {
		s.equal(
			"ack.fate of an inject in a busy session",
			s.push(p, fillJSON(`"level":"inject","event":%s`, text))["fate"],
			"queued",
		)
	}
	h.fence()
	if m, _, ok := h.find(func(m message) bool { return m.text("method") == "session/send" }); ok {
		s.fail("no prompt while the session is busy", "%s", m)
	}
	for _, text := range []string{"first", "second"} {
		h.set("idle")
		s.equal("session/send.prompt", h.awaitMethod("session/send").text("params", "prompt"), text)
		s.equal("ack.fate", p.await("ack")["fate"], "delivered")
		h.set("busy")
	}
}

func pushWaiting(s *scene) {
	h := s.session()
	p := s.provider(h, "")
	h.set("busy")
	for range protocol.MaxQueuedInjects {
		s.push(p, `"level":"inject","event":"waits"`)
	}
	<-time.After(time.Second) // for the budget of pushes, which another code can't be told from
	p.refused("RATE_LIMITED", nil, `{"type":"push","requestId":"r","level":"inject","event":"one more"}`)
	s.push(p, `"level":"keep","event":"e"`)
}

func pushCycles(s *scene) {
	h := s.session()
	p := s.provider(h, "")
	inject := func() (fate string) {
		id := s.push(p, `"level":"inject","event":"again"`)["requestId"]
		fate = p.wait("a second receipt", func(m message) bool {
			return m.text("type") == "ack" && m["requestId"] == id
		}).text("fate")
		h.set("busy")
		h.set("idle")
		return fate
	}
	for range protocol.MaxInjectCycles + 1 {
		s.equal("ack.fate of an inject", inject(), "delivered")
	}
	s.equal("ack.fate of an inject after three cycles", inject(), "surfaced")
	h.prompt()
	s.equal("ack.fate of an inject after a prompt of the user", inject(), "delivered")
}

func pushRate(s *scene) {
	p := s.provider(s.session(), "")
	const sent = 60 // the budget fills up again while a slow machine sends
	for i := range sent {
		p.send(`{"type":"push","level":"keep","event":"e","requestId":%s}`, fmt.Sprint(i))
	}
	stored, refused := 0, 0
	for range sent {
		switch m := p.await("ack", "error"); {
		case m.text("type") == "ack":
			stored++
		case m.text("code") == "RATE_LIMITED":
			refused++
		default:
			s.fail("a receipt or RATE_LIMITED", "%s", m)
		}
	}
	if refused == 0 || stored < protocol.PushRate {
		s.fail(
			"10 pushes of 60 accepted at once, and some RATE_LIMITED",
			"%d accepted, %d RATE_LIMITED",
			stored,
			refused,
		)
	}
	m := p.accepted("stream.history", `{"type":"stream.query","queryId":"q","last":100}`)
	entries, _ := m.at("streams", s.name+"@"+s.name).([]any)
	s.equal("how many events are stored", len(entries), stored)
}

func pushStreams(s *scene) {
	p := s.provider(s.session(), "")
	set := `{"type":"filter.set","requestId":"r","stream":%s,"rules":[{"match":"x","outcome":"keep"}]}`
	for i := range protocol.MaxStreams {
		p.accepted("ack", set, fmt.Sprintf("s%d", i))
	}
	p.refused(
		"PAYLOAD_TOO_LARGE",
		nil,
		`{"type":"push","requestId":"r","level":"keep","event":"e","stream":"one-more"}`,
	)
	p.refused("PAYLOAD_TOO_LARGE", nil, set, "one-more")
	s.push(p, `"level":"keep","event":"e","stream":"s0"`)
}

func pushSession(s *scene) {
	h, other := s.session(), s.session()
	p := s.provider(h, "")
	for _, text := range []string{
		`{"type":"push","sessionId":%s,"level":"keep","event":"e"}`,
		`{"type":"tools.update","sessionId":%s,"tools":[]}`,
		`{"type":"hooks.update","sessionId":%s,"onPreToolUse":[]}`,
		`{"type":"context.update","sessionId":%s,"context":""}`,
		`{"type":"filter.set","sessionId":%s,"stream":"s","rules":[]}`, `{"type":"session.ready","sessionId":%s}`,
		`{"type":"stream.query","queryId":"q","sessionId":%s}`, `{"type":"shutdown.ready","sessionId":%s}`,
	} {
		p.refused("INVALID_SESSION", nil, text, other.id)
	}
}

func filter(s *scene) {
	p := s.provider(s.session(), "")
	set := `{"type":"filter.set","requestId":"r","stream":"ci","rules":%s}`
	p.accepted(
		"ack",
		set,
		rawJSON(`[{"match":"^noise","outcome":"drop"},{"match":"fail(?!ed to start)","outcome":"surface"},`+
			`{"match":"fail","outcome":"keep"}]`),
	)
	for event, fate := range map[string]string{
		"noise fail": "dropped", "it fails": "surfaced", "failed to start": "stored", "fine": "stored",
	} {
		s.equal(
			"ack.fate of "+event,
			s.push(p, fillJSON(`"level":"keep","stream":"ci","event":%s`, event))["fate"],
			fate,
		)
	}
	p.refused("INVALID_JSON", []string{"rules[0].match"}, set, rawJSON(`[{"match":"(","outcome":"drop"}]`))
	s.equal("ack.fate after a filter that was refused",
		s.push(p, `"level":"keep","stream":"ci","event":"noise"`)["fate"], "dropped")
	p.accepted("ack", set, rawJSON(`[]`))
	s.equal("ack.fate without a filter", s.push(p, `"level":"keep","stream":"ci","event":"noise"`)["fate"], "stored")
}

func filterLimits(s *scene) {
	p := s.provider(s.session(), "")
	set := `{"type":"filter.set","requestId":"r","stream":"s","rules":[%s]}`
	rule := `{"match":%s,"outcome":"drop"}`
	p.refused(
		"PAYLOAD_TOO_LARGE",
		[]string{"rules"},
		set,
		rawJSON(many(protocol.MaxFilterRules+1, fillJSON(rule, "x"))),
	)
	p.accepted("ack", set, rawJSON(many(protocol.MaxFilterRules, fillJSON(rule, "x"))))
	p.refused("INVALID_JSON", []string{"rules[0].match"}, set,
		rawJSON(fillJSON(rule, strings.Repeat("x", protocol.MaxPattern+1))))
	p.accepted("ack", set, rawJSON(fillJSON(rule, strings.Repeat("x", protocol.MaxPattern))))
}

func query(s *scene) {
	h := s.session()
	s.pushMany(h, 25)
	p := s.provider(h, "")
	s.push(p, `"level":"keep","stream":"other","event":"e","metadata":{"k":[1]}`)
	m := p.accepted("stream.history", `{"type":"stream.query","queryId":"my query"}`)
	s.equal("stream.history.queryId", m["queryId"], "my query")
	s.newest(m, "numbers", 20)
	s.newest(
		p.accepted("stream.history", `{"type":"stream.query","queryId":"q","streams":["numbers"],"last":3}`),
		"numbers",
		3,
	)
	entries, _ := m.at("streams", "other@"+s.name).([]any)
	if len(entries) != 1 {
		s.fail("one event in other@"+s.name, "%s", shortText(m.String()))
	}
	object, _ := entries[0].(map[string]any)
	entry := message(object)
	if entry.text("ts") == "" || entry.text("event") != "e" || entry.text("level") != "keep" {
		s.fail("an entry with ts, event and level", "%s", entry)
	}
	s.equal("the entry's metadata", entry["metadata"], map[string]any{"k": []any{jsonNumber("1")}})
	empty := p.accepted("stream.history", `{"type":"stream.query","queryId":"q","streams":["never"]}`)
	s.equal("the entries of a stream that is not there", empty.at("streams", "never@"+s.name), []any{})
}

// pushMany fills the stream numbers with the events n1, n2 and so on. A provider may push ten at once, so several
// connections of its name push, one after the other.
func (s *scene) pushMany(h *host, n int) {
	for i := 0; i < n; i += protocol.PushRate {
		p := s.provider(h, "")
		for j := i; j < min(i+protocol.PushRate, n); j++ {
			s.push(p, fillJSON(`"level":"keep","stream":"numbers","event":%s`, fmt.Sprintf("n%d", j+1)))
		}
		p.send(`{"type":"goodbye"}`)
		p.ends(closeNormal)
	}
}

// newest checks that a stream's entries are events of pushMany, newest first.
func (s *scene) newest(m message, stream string, want int) {
	entries, _ := m.at("streams", stream+"@"+s.name).([]any)
	s.equal("how many events of the stream come", len(entries), want)
	last := 0
	for i, e := range entries {
		entry, _ := e.(map[string]any)
		n := 0
		text, _ := entry["event"].(string)
		if _, err := fmt.Sscanf(text, "n%d", &n); err != nil || i > 0 && n != last-1 {
			s.fail("the newest event first", "%s", shortText(fillJSON("%s", entries)))
		}
		last = n
	}
}

func queryLast(s *scene) {
	h := s.session()
	s.pushMany(h, 110)
	p := s.provider(h, "")
	s.newest(p.accepted("stream.history", `{"type":"stream.query","queryId":"q","streams":["numbers"],"last":1000}`),
		"numbers", protocol.MaxQueryLast)
}

func events(s *scene) {
	h := s.session()
	p := s.provider(h, `"subscribe":["user.message","assistant.message","assistant.intent","tool.execution_complete"]`)
	other := s.provider(h, `"subscribe":["assistant.intent"]`)
	sent := [][2]string{
		{"user.message", `{"content":"fix it"}`},
		{"assistant.message", `{"content":"done","toolRequests":[{"name":"t","args":{"n":1}}]}`},
		{"tool.execution_complete", `{"tool":"t","args":{},"result":{"type":"failure","output":"no"},"durationMs":3}`},
		{"assistant.intent", `{"intent":"Fixing"}`},
	}
	for _, e := range sent {
		h.event(e[0], e[1])
	}
	for _, e := range sent {
		m := p.await("session.event")
		want, err := decodeMessage([]byte(e[1]))
		if err != nil {
			panic(err)
		}
		s.equal("session.event.event", m["event"], e[0])
		s.equal("session.event.sessionId", m["sessionId"], h.id)
		s.equal("session.event.data", m["data"], map[string]any(want))
	}
	s.equal("session.event.event of the other provider", other.await("session.event")["event"], "assistant.intent")
	other.fence()
	other.none("it subscribed to assistant.intent alone", "session.event")
}

func eventPushed(s *scene) {
	h := s.session()
	p := s.provider(h, `"subscribe":["event.pushed"]`)
	s.push(p, `"level":"keep","stream":"ci","event":"only stored"`)
	s.push(p, `"level":"surface","stream":"ci","event":"shown"`)
	s.equal("session.event.data", p.await("session.event")["data"],
		map[string]any{"provider": s.name, "stream": "ci", "level": "surface", "event": "shown"})
	p.fence()
	p.none("the timeline shows one event", "session.event")
}

func questionsGrant(s *scene) {
	h := s.session()
	p := s.login()
	for _, event := range []string{"question.asked", "question.ended"} {
		p.refused("UNAUTHORIZED", []string{"hello.subscribe[0]"}, `{"type":"hello","protocolVersion":2,"name":%s,`+
			`"session":%s,"subscribe":[%s]}`, s.name, h.id, event)
	}
	s.hello(p, h.id, "")
	p.refused("UNAUTHORIZED", nil, `{"type":"question.answer","requestId":"r","question":"q","decision":"once"}`)
}
