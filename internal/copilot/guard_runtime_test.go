//go:build runtime && unix

package copilot

import (
	"context"
	"slices"
	"strings"
	"sync"

	sdk "github.com/github/copilot-sdk/go"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/scriptmodel"
)

// rounds is a model that goes through replies in each turn, one after the other, and
// then says what its tools answered.
func rounds(replies ...scriptmodel.Reply) scriptmodel.ReplyFunc {
	return func(r *scriptmodel.Request) scriptmodel.Reply {
		n, results := 0, []string(nil)
		for _, m := range r.Messages {
			switch {
			case m.Role == "user" && scriptmodel.Prompt(m.Text) != "":
				n, results = 0, nil
			case m.Role == "assistant":
				n++
			case m.Role == "tool":
				results = append(results, strings.TrimSpace(m.Text))
			}
		}
		if n < len(replies) {
			return replies[n]
		}
		return scriptmodel.Reply{Text: "In the end: " + strings.Join(results, " | ")}
	}
}

func calls(name, args string) scriptmodel.Reply {
	return scriptmodel.Reply{ToolCalls: []scriptmodel.ToolCall{{Name: name, Args: args}}}
}

var saysIt = calls("say", `{"x":"said"}`)

// guard is a provider with gates, context and transforms. Its reader does one thing
// after the other, as that of a connection does.
type guard struct {
	h    *hosted
	conn *gateway.Conn
	in   chan func() // for the reader
	acks chan string // requestId of an ack, "hello", or an error
	name string

	mu     sync.Mutex
	checks []string // tools that it was asked about
	called int
	calls  chan struct{} // gets one for each call of its tools, which answer at once
}

// guard connects a provider that is bound to nothing yet.
func (h *hosted) guard(name string) *guard {
	h.t.Helper()
	p := &guard{
		h: h, name: name, in: make(chan func(), 1000), acks: make(chan string, 1000),
		calls: make(chan struct{}, 1000),
	}
	p.conn = h.g.Connect(p, gateway.ConnOptions{})
	gone := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case do := <-p.in:
				do()
			case <-gone:
				p.conn.Closed()
				return
			}
		}
	})
	h.t.Cleanup(func() { close(gone); reader.Wait() })
	p.in <- func() { p.conn.Receive(protocol.Append(nil, &protocol.Auth{Token: h.g.AdminToken()})) }
	return p
}

func (p *guard) Send(m protocol.Message) {
	switch m := m.(type) {
	case *protocol.HelloAck:
		p.acks <- "hello"
	case *protocol.Ack:
		p.acks <- m.RequestID
	case *protocol.Error:
		p.acks <- m.Error()
	case *protocol.SessionLifecycle:
		if m.State == protocol.LifecycleShutdownPending {
			p.in <- func() {
				p.conn.Receive(protocol.Append(nil,
					&protocol.ShutdownReady{SessionID: m.SessionID}))
			}
		}
	case *protocol.ToolCall:
		p.mu.Lock()
		p.called++
		p.mu.Unlock()
		p.calls <- struct{}{}
		p.in <- func() {
			p.conn.Receive(protocol.Append(nil,
				&protocol.ToolResult{ID: m.ID, Data: protocol.Raw(`"ran"`)}))
		}
	case *protocol.GateCheck:
		p.mu.Lock()
		p.checks = append(p.checks, m.Tool)
		p.mu.Unlock()
		p.in <- func() {
			p.conn.Receive(protocol.Append(nil, &protocol.GateResult{
				GateID: m.GateID, CallID: m.CallID, Decision: protocol.DecisionDeny,
				Reason: "not past " + p.name,
			}))
		}
	case *protocol.TransformRequest:
		text := m.Current + "\n\nEDITED by " + p.name
		p.in <- func() {
			p.conn.Receive(protocol.Append(nil, &protocol.TransformResult{CallID: m.CallID,
				Content: &text}))
		}
	}
}

func (p *guard) Flush() {}

func (p *guard) Close(protocol.CloseCode, string) {}

// send gives the gateway a message and waits for its ack.
func (p *guard) send(m protocol.Message, ack string) {
	p.h.t.Helper()
	p.in <- func() { p.conn.Receive(protocol.Append(nil, m)) }
	p.waitAck(ack)
}

func (p *guard) waitAck(ack string) {
	p.h.t.Helper()
	select {
	case got := <-p.acks:
		if got != ack {
			p.h.t.Fatalf("provider %s was told %q, not %q", p.name, got, ack)
		}
	case <-p.h.r.ctx.Done():
		p.h.t.Fatalf("provider %s heard nothing", p.name)
	}
}

func (p *guard) asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.checks)
}

// readsAll lets sessions read everything. So they need no hooks for their own edits, and begin
// without any.
func readsAll(o *Options) { o.Permissions.Read = configs.Allow }

// gateOf is a rule by which the provider is asked about a tool, and denies.
func gateOf(tool string) []protocol.Rule {
	return []protocol.Rule{{Match: protocol.Match{Tool: tool}, Action: protocol.ActionGate,
		GateID: "gate"}}
}

func helloOf(name, session string) *protocol.Hello {
	version := protocol.Version
	return &protocol.Hello{Name: name, ProtocolVersion: &version, Session: session}
}

// gate is a provider that denies say, bound.
func (h *hosted) gate(name string) *guard {
	h.t.Helper()
	p := h.guard(name)
	hello := helloOf(name, h.s.ID())
	hello.Hooks = &protocol.Hooks{OnPreToolUse: gateOf("say")}
	p.send(hello, "hello")
	return p
}

// session is the host of h.s.
func (h *hosted) session() *session {
	h.r.r.mu.Lock()
	defer h.r.r.mu.Unlock()
	return h.r.r.sessions[h.s.ID()]
}

// late reports whether sessions of this runtime begin without hooks.
func (h *hosted) late() bool {
	c, err := h.session().waitConn(h.r.ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	return c.process.canEnableHooksLater
}

// hooksAsked counts what the runtime asked in its hooks.
func (h *hosted) hooksAsked() int {
	n := 0
	for _, e := range h.events() {
		if e.Type == "hook.start" {
			n++
		}
	}
	return n
}

func (h *hosted) events() []adminapi.RuntimeEvent {
	events, _ := h.s.RuntimeEvents(0)
	return events
}

// until waits for something that the session does.
func (h *hosted) until(what string, is func(gateway.Event) bool) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.r.ctx, patience)
	defer cancel()
	cursor := uint64(0)
	for {
		var lines []gateway.LiveLine
		lines, cursor = h.s.Live(cursor)
		if slices.ContainsFunc(lines, func(l gateway.LiveLine) bool { return is(l.Event) }) {
			return
		}
		if err := h.s.WaitLive(ctx, cursor); err != nil {
			h.t.Fatalf("waiting for %s: %v\n%s", what, err, timeline(h.s))
		}
	}
}

// inTimeline waits until a text is in so many lines of the timeline.
func (h *hosted) inTimeline(text string, times int) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.r.ctx, patience)
	defer cancel()
	for cursor := uint64(0); times > 0; {
		var lines []adminapi.TimelineLine
		lines, cursor = h.s.Timeline(cursor)
		for _, l := range lines {
			if strings.Contains(l.Message, text) {
				times--
			}
		}
		if times > 0 {
			if err := h.s.WaitTimeline(ctx, cursor); err != nil {
				h.t.Fatalf("waiting for %q: %v\n%s", text, err, timeline(h.s))
			}
		}
	}
}

// spine are the events of a turn that the runtime sends in the order in which it keeps
// them, but for those of sub-agents. Others it sends as they come, a moment before or
// after their neighbours.
var spine = []string{
	"user.message", "assistant.turn_start", "assistant.message", "tool.execution_start",
	"tool.execution_complete",
	"assistant.turn_end",
}

// whole checks that the gateway had each event of the session once, and in order: the
// runtime's own log of them, the deltas of each message, a beginning and an end of each
// tool call.
func (h *hosted) whole() {
	h.t.Helper()
	log, err := h.conn().GetEvents(h.r.ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	var want []string
	for _, e := range log {
		if slices.Contains(spine, string(e.Type())) && e.AgentID == nil {
			want = append(want, e.ID)
		}
	}
	ctx, cancel := context.WithTimeout(h.r.ctx, patience)
	defer cancel()
	came := map[string]int{}
	var order []string
	late := func(e sdk.SessionEvent) bool { return came[e.ID] == 0 }
	for cursor := uint64(0); slices.ContainsFunc(log, late); {
		if err := h.s.WaitRuntimeEvents(ctx, cursor); err != nil {
			h.t.Fatalf("an event did not come: %+v: %v", log[slices.IndexFunc(log, late)], err)
		}
		var events []adminapi.RuntimeEvent
		events, cursor = h.s.RuntimeEvents(cursor)
		for _, e := range events {
			if came[e.ID]++; came[e.ID] > 1 {
				h.t.Errorf("%s %s came again", e.Type, e.ID)
			}
			if slices.Contains(want, e.ID) {
				order = append(order, e.ID)
			}
		}
	}
	if !slices.Equal(order, want) {
		h.t.Errorf("%d events came in another order than the runtime keeps them", len(want))
	}
	lines, _ := h.s.Live(0)
	texts, open := map[string]string{}, map[string]bool{}
	for _, l := range lines {
		switch e := l.Event; e.Callback {
		case gateway.OnMessage:
			texts[e.ID] += e.Delta
		case gateway.OnEndMessage:
			if text, streamed := texts[e.ID]; streamed && text != e.Content {
				h.t.Errorf("a message was streamed as %q, and is %q", text, e.Content)
			}
		case gateway.OnStartToolExecution:
			if open[e.ID] {
				h.t.Errorf("tool call %s began twice", e.ID)
			}
			open[e.ID] = true
		case gateway.OnEndToolExecution:
			if !open[e.ID] {
				h.t.Errorf("tool call %s ended before it began", e.ID)
			}
			delete(open, e.ID)
		}
	}
	for id := range open {
		h.t.Errorf("tool call %s did not end", id)
	}
}
