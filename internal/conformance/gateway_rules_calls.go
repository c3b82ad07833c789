package conformance

import (
	"os"
	"path/filepath"
	"strings"

	"tapgw/internal/protocol"
)

var callRules = []gatewayRule{
	must("call.shape", "tool.call", "tool.call has an id, the session, the tool and the arguments as they were sent",
		callShape),
	must("call.ids", "Every message", "The ids of calls are UUIDs, and none comes twice", callIDs),
	must("call.once", "tool.call", "Each call of the session reaches the provider once, and ends once", callOnce),
	must("call.trace", "tool.call", "The caller's trace goes with the call", callTrace),
	must("call.arguments", "Calls",
		"Arguments that the schema forbids are INVALID_ARGUMENTS, and do not reach the provider", callArguments),
	must("call.unchecked", "Tool", "A tool with validate false gets arguments that its schema forbids", callUnchecked),
	must("call.not-found", "Calls", "A tool that does not exist is NOT_FOUND", callNotFound),
	must("call.timeout", "Calls", "At a tool's timeout the session gets TIMEOUT", callTimeout),
	must("cancel.timeout", "tool.cancel", "At a tool's timeout the provider gets tool.cancel with reason timeout",
		cancelTimeout),
	must("call.caller-timeout", "Calls", "The caller's timeout counts if it is the shorter one", callCallerTimeout),
	must("call.interrupted", "Calls", "A call that its caller gives up ends with CANCELLED", callInterrupted),
	must("cancel.interrupted", "tool.cancel", "The provider of a call that its caller gives up gets tool.cancel",
		cancelInterrupted),
	must("cancel.once", "tool.cancel", "tool.cancel comes once, and only for a call that has not ended", cancelOnce),
	must(
		"progress.shown",
		"tool.progress",
		"Progress is shown in the session, and ignored after the call's end",
		progress,
	),
	must(
		"concurrency.limit",
		"Concurrency",
		"No more calls are in flight than the limit says; the others wait",
		concurrency,
	),
	must("concurrency.queue", "Limits", "Ten calls wait for a slot; the next is RATE_LIMITED", concurrencyQueue),
	must("concurrency.cancelled", "Times", "A cancelled call's slot is free at its answer, or after 5 s",
		concurrencyCancelled),
}

// answered makes a call and lets the provider answer it with data, as JSON.
func (s *scene) answered(h *host, p *peer, tool, data string, want any) {
	call := h.call(tool, `{}`)
	p.send(`{"type":"tool.result","id":%s,"data":%s}`, p.await("tool.call")["id"], rawJSON(data))
	h.succeeds(call, want)
}

func callShape(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	args := `{"b":[1,{"c":null}],"a":"ü\u0000<&>","n":9007199254740993,"f":1.50}`
	h.call("t", args)
	m := p.await("tool.call")
	want, err := decodeMessage([]byte(args))
	if err != nil {
		panic(err)
	}
	s.equal("tool.call.sessionId", m["sessionId"], h.id)
	s.equal("tool.call.tool", m["tool"], "t")
	s.equal("tool.call.args", m["args"], map[string]any(want))
	if m.text("id") == "" {
		s.fail("a text in tool.call.id", "%s", m)
	}
}

func callIDs(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	seen := map[string]bool{}
	for range 20 {
		h.call("t", `{}`)
		m := p.await("tool.call")
		id := m.text("id")
		if !uuid.MatchString(id) || seen[id] {
			s.fail("a new UUID in tool.call.id", "%s", m)
		}
		seen[id] = true
	}
}

func callOnce(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	for range 3 {
		s.answered(h, p, "t", `"once"`, "once")
	}
	p.fence()
	p.none("the session made three calls", "tool.call")
	h.fence()
	if m, _, ok := h.find(func(m message) bool { return m["method"] == nil }); ok {
		s.fail("one answer to each call of the session", "another one: %s", m)
	}
}

func callTrace(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	const trace = "00-0af7651916cd43dd8448eb211c80319c-"
	const parent = trace + "b7ad6b7169203331-01"
	h.callWith("t", `{}`, `,"traceparent":"`+parent+`"`)
	// A gateway that takes part in the trace names its own span.
	if got, _ := p.await("tool.call")["traceparent"].(string); len(got) != len(parent) ||
		!strings.HasPrefix(got, trace) {
		s.fail("tool.call.traceparent in the trace of "+parent, "%q", got)
	}
}

func callArguments(s *scene) {
	h := s.session()
	p := s.provider(h, `"tools":[{"name":"t","description":"d","parameters":{"type":"object","required":["needed"],`+
		`"properties":{"needed":{"type":"integer"}}}}]`)
	for _, args := range []string{`{}`, `{"needed":"x"}`, `{"needed":1.5}`} {
		if text := h.fails(h.call("t", args), "INVALID_ARGUMENTS"); !strings.Contains(text, "needed") {
			s.fail("an error that names the property needed", "%q", text)
		}
	}
	p.fence()
	p.none("its arguments are wrong", "tool.call")
	call := h.call("t", `{"needed":1}`)
	p.send(`{"type":"tool.result","id":%s,"data":1}`, p.await("tool.call")["id"])
	h.succeeds(call, jsonNumber("1"))
}

func callUnchecked(s *scene) {
	h := s.session()
	p := s.provider(h, `"tools":[{"name":"t","description":"d","validate":false,"parameters":{"required":["needed"]}}]`)
	s.answered(h, p, "t", `1`, jsonNumber("1"))
}

func callNotFound(s *scene) {
	h := s.session()
	s.provider(h, tools("t"))
	h.fails(h.call("u", `{}`), "NOT_FOUND")
	h.fails(h.call("T", `{}`), "NOT_FOUND")
}

// timedTool is a tool that has a tenth of a second.
var timedTool = `"tools":[` + tool("t", `"timeout":100`) + `]`

func callTimeout(s *scene) {
	h := s.session()
	p := s.provider(h, timedTool)
	call := h.call("t", `{}`)
	id := p.await("tool.call")["id"]
	h.fails(call, "TIMEOUT")
	p.send(`{"type":"tool.result","id":%s,"errorCode":"CANCELLED"}`, id)
}

func cancelTimeout(s *scene) {
	h := s.session()
	p := s.provider(h, timedTool)
	h.call("t", `{}`)
	id := p.await("tool.call")["id"]
	m := p.await("tool.cancel")
	s.equal("tool.cancel.id", m["id"], id)
	s.equal("tool.cancel.sessionId", m["sessionId"], h.id)
	s.equal("tool.cancel.reason", m["reason"], "timeout")
}

func callCallerTimeout(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	call := h.callWith("t", `{}`, `,"timeoutMs":100`)
	p.await("tool.call")
	h.fails(call, "TIMEOUT")
}

func callInterrupted(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	call := h.call("t", `{}`)
	p.await("tool.call")
	h.giveUp(call)
	h.fails(call, "CANCELLED")
}

// giveUp cancels a call of the session.
func (h *host) giveUp(call string) {
	h.send(`{"jsonrpc":"2.0","method":"tool/cancel","params":{"callId":%s,"reason":"interrupted"}}`, call)
}

func cancelInterrupted(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	call := h.call("t", `{}`)
	id := p.await("tool.call")["id"]
	h.giveUp(call)
	m := p.await("tool.cancel")
	s.equal("tool.cancel.id", m["id"], id)
	s.equal("tool.cancel.reason", m["reason"], "interrupted")
}

func cancelOnce(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	s.answered(h, p, "t", `1`, jsonNumber("1"))
	call := h.call("t", `{}`)
	id := p.await("tool.call")["id"]
	h.giveUp(call)
	h.fails(call, "CANCELLED")
	h.giveUp(call)
	p.send(`{"type":"tool.result","id":%s,"errorCode":"CANCELLED"}`, id)
	s.answered(h, p, "t", `2`, jsonNumber("2"))
	h.fence()
	p.fence()
	cancels := 0
	for _, m := range p.all() {
		if m.text("type") == "tool.cancel" {
			cancels++
		}
	}
	s.equal("how often tool.cancel comes", cancels, 1)
}

func progress(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	call := h.call("t", `{}`)
	id := p.await("tool.call")["id"]
	p.send(`{"type":"tool.progress","id":%s,"message":"half of it"}`, id)
	h.awaitLog(func(line string) bool { return strings.Contains(line, "half of it") }, "with the progress")
	p.send(`{"type":"tool.result","id":%s,"data":1}`, id)
	h.succeeds(call, jsonNumber("1"))
	p.send(`{"type":"tool.progress","id":%s,"message":"too late"}`, id)
	p.fence()
	p.none("progress of a call that has ended is ignored", "error")
}

func concurrency(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t")+`,"concurrency":{"max":2}`)
	for range 5 {
		h.call("t", `{}`)
	}
	running := []string{p.await("tool.call").text("id"), p.await("tool.call").text("id")}
	for range 3 {
		h.fence()
		p.fence()
		p.none("two calls are in flight, which is the limit", "tool.call")
		p.send(`{"type":"tool.result","id":%s,"data":1}`, running[0])
		running = append(running[1:], p.await("tool.call").text("id"))
	}
}

func concurrencyQueue(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t")+`,"concurrency":{"max":1}`)
	first := h.call("t", `{}`)
	id := p.await("tool.call")["id"]
	waiting := make([]string, protocol.MaxQueuedCalls+5)
	for i := range waiting {
		waiting[i] = h.call("t", `{}`)
	}
	// Requests run side by side: any five of them are over the limit.
	for range 5 {
		h.wait("five calls that are RATE_LIMITED", func(m message) bool {
			return m["method"] == nil && m.text("result", "errorCode") == "RATE_LIMITED"
		})
	}
	p.send(`{"type":"tool.result","id":%s,"data":1}`, id)
	h.succeeds(first, jsonNumber("1"))
	for range protocol.MaxQueuedCalls {
		p.send(`{"type":"tool.result","id":%s,"data":2}`, p.await("tool.call")["id"])
		h.wait("ten calls that waited, and then ran", func(m message) bool {
			return m["method"] == nil && m.at("result", "data") == jsonNumber("2")
		})
	}
}

func concurrencyCancelled(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t")+`,"concurrency":{"max":1}`)
	first := h.call("t", `{}`)
	id := p.await("tool.call")["id"]
	second := h.call("t", `{}`)
	h.giveUp(first)
	h.fails(first, "CANCELLED")
	p.fence()
	p.none("the cancelled call has its slot until its answer", "tool.call")
	p.send(`{"type":"tool.result","id":%s,"errorCode":"CANCELLED"}`, id)
	p.await("tool.call")
	h.giveUp(second)
	h.fails(second, "CANCELLED")
	h.call("t", `{}`)
	p.await("tool.call") // after 5 s, without an answer to the second
}

var resultRules = []gatewayRule{
	must("result.data", "Calls", "The session gets the data as the provider sent it", resultData),
	must("result.errors", "tool.result",
		"error or errorCode make a failure; a code of the provider's own becomes INTERNAL", resultErrors),
	must("result.late", "Calls", "A result that comes after the call's end is ignored, and changes nothing",
		resultLate),
	must("result.twice", "Calls", "A second result of a call is ignored, and changes nothing", resultTwice),
	must("result.unknown", "Codes", "A result for an id that was never issued is UNKNOWN_CALL_ID", resultUnknown),
	must("result.unmatched", "Calls", "What may be the answer of the only call in flight ends it with INTERNAL",
		resultUnmatched),
	must("result.ambiguous", "Calls", "What may be the answer of one of several calls closes the connection with 4002",
		resultAmbiguous),
	must("result.size", "Limits", "A result of 5 MiB is accepted; a larger one ends its call with PAYLOAD_TOO_LARGE",
		resultSize),
	must("result.file", "File", "A file in persistDir is a result; one elsewhere is not", resultFile),
}

func resultData(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	for text, want := range map[string]any{
		`"text ü\u0000 <&>"`: "text ü\x00 <&>", `null`: nil, `false`: false,
		`9007199254740993`: jsonNumber("9007199254740993"),
		`1.50`:             jsonNumber("1.50"), `[]`: []any{}, `{"a":{"b":[1]}}`: map[string]any{
			"a": map[string]any{"b": []any{jsonNumber("1")}}},
	} {
		s.answered(h, p, "t", text, want)
	}
}

func resultErrors(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	for members, want := range map[string][2]string{
		`"error":"it broke"`:                      {"INTERNAL", "it broke"},
		`"errorCode":"NOT_FOUND"`:                 {"NOT_FOUND", ""},
		`"error":"no","errorCode":"UNAUTHORIZED"`: {"UNAUTHORIZED", "no"},
		`"error":"no","errorCode":"MY_OWN"`:       {"INTERNAL", "no"},
		`"error":"no","data":1`:                   {"INTERNAL", "no"},
		`"errorCode":"TIMEOUT","data":1`:          {"TIMEOUT", ""},
	} {
		call := h.call("t", `{}`)
		p.send(`{"type":"tool.result","id":%s,%s}`, p.await("tool.call")["id"], rawJSON(members))
		if text := h.fails(call, want[0]); !strings.Contains(text, want[1]) {
			s.fail("an error with the text "+want[1], "%q", text)
		}
	}
}

func resultLate(s *scene) {
	h := s.session()
	p := s.provider(h, `"tools":[`+tool("t", `"timeout":100`)+`,`+tool("u", "")+`]`)
	call := h.call("t", `{}`)
	id := p.await("tool.call")["id"]
	h.wait("the end of the call at its timeout", func(m message) bool { return isAnswer(m, call) })
	other := h.call("u", `{}`)
	second := p.await("tool.call")["id"]
	p.send(`{"type":"tool.result","id":%s,"data":"late"}`, id)
	p.send(`{"type":"tool.result","id":%s,"errorCode":"CANCELLED"}`, id)
	p.fence()
	p.none("the call has ended", "error")
	p.send(`{"type":"tool.result","id":%s,"data":"in time"}`, second)
	h.succeeds(other, "in time")
	h.noAnswer(call)
}

// noAnswer fails if a request was answered once more.
func (h *host) noAnswer(id string) {
	h.fence()
	if m, _, ok := h.find(func(m message) bool { return isAnswer(m, id) }); ok {
		h.s.fail("that a call ends once", "another answer to it: %s", m)
	}
}

func resultTwice(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	first := h.call("t", `{}`)
	id := p.await("tool.call")["id"]
	second := h.call("t", `{}`)
	other := p.await("tool.call")["id"]
	p.send(`{"type":"tool.result","id":%s,"data":"first"}`, id)
	p.send(`{"type":"tool.result","id":%s,"data":"again"}`, id)
	p.send(`{"type":"tool.result","id":%s,"error":"and again"}`, id)
	p.fence()
	p.none("the call has ended", "error")
	h.succeeds(first, "first")
	p.send(`{"type":"tool.result","id":%s,"data":"second"}`, other)
	h.succeeds(second, "second")
	h.noAnswer(first)
}

func resultUnknown(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	p.refused("UNKNOWN_CALL_ID", []string{"tool.result.id"}, `{"type":"tool.result","id":"never issued","data":1}`)
	s.answered(h, p, "t", `1`, jsonNumber("1"))
}

func resultUnmatched(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	for _, text := range []string{
		`{"type":"tool.result","id":"never issued","data":1}`, `{"type":"tool.result","data":1}`,
		`{"type":"tool.result","id":`,
	} {
		call := h.call("t", `{}`)
		p.await("tool.call")
		p.send("%s", rawJSON(text))
		p.await("error")
		h.fails(call, "INTERNAL")
	}
}

func resultAmbiguous(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	first, second := h.call("t", `{}`), h.call("t", `{}`)
	p.await("tool.call")
	p.await("tool.call")
	p.send(`{"type":"tool.result","id":"never issued","data":1}`)
	p.ends(closeFailedFast)
	h.fails(first, "DISCONNECTED")
	h.fails(second, "DISCONNECTED")
}

func resultSize(s *scene) {
	h := s.session()
	p := s.provider(h, tools("t"))
	for size, code := range map[int]string{protocol.MaxResult: "", protocol.MaxResult + 1: "PAYLOAD_TOO_LARGE"} {
		call := h.call("t", `{}`)
		begin := fillJSON(`{"type":"tool.result","id":%s,"data":"`, p.await("tool.call")["id"])
		p.send("%s", rawJSON(begin+strings.Repeat("x", size-len(begin)-2)+`"}`))
		m := h.answer(call)
		s.equal("the errorCode for a large result", m.text("result", "errorCode"), code)
	}
	p.fence()
}

func resultFile(s *scene) {
	h := s.session()
	p, ack := s.bind(h, tools("t"))
	dir, ok := s.ownDir(ack.text("persistDir"))
	if !ok {
		panic(skipf("the provider's persistDir is not on this machine"))
	}
	outside := filepath.Join(filepath.Dir(dir), s.name+".txt") // there is none
	result := func(path string) string {
		call := h.call("t", `{}`)
		p.send(
			`{"type":"tool.result","id":%s,"file":{"path":%s,"mimeType":"text/plain"}}`,
			p.await("tool.call")["id"],
			path,
		)
		return call
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		panic(skipf("opening the provider's persistDir: %v", err))
	}
	defer func() { _ = root.Close() }()
	const name = "result.txt"
	defer func() { _ = root.Remove(name) }()
	if err := root.WriteFile(name, []byte("the file of a result"), 0o600); err != nil {
		panic(skipf("writing into the provider's persistDir: %v", err))
	}
	h.succeeds(result(filepath.Join(dir, name)), "the file of a result")
	for _, path := range []string{outside, filepath.Join(dir, "..", s.name+".txt"), "/etc/hosts", "relative.txt"} {
		h.fails(result(path), "INTERNAL")
	}
}
