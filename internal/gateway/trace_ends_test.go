package gateway

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"tapgw/internal/protocol"
)

// mute is a provider that hears and does not answer.
type mute struct {
	conn   *Conn
	calls  []string // traceparents
	checks []string
}

func (p *mute) Send(m protocol.Message) {
	switch m := m.(type) {
	case *protocol.ToolCall:
		p.calls = append(p.calls, m.Traceparent)
	case *protocol.GateCheck:
		p.checks = append(p.checks, m.Traceparent)
	}
}

func (*mute) Flush() {}

func (*mute) Close(protocol.CloseCode, string) {}

// joins connects the provider to a session, with the tool hang.
func (p *mute) joins(s *Session) {
	p.conn = s.g.Connect(p, ConnOptions{})
	hang := protocol.Tool{Name: "hang", Description: "d",
		Parameters: protocol.Raw(`{"type":"object"}`)}
	p.conn.Receive(protocol.Append(nil, &protocol.Auth{Token: s.g.InstanceToken()}))
	p.conn.Receive(protocol.Append(nil,
		&protocol.Hello{Name: "mute", ProtocolVersion: new(protocol.Version),
			Session: "s1", Tools: []protocol.Tool{hang}}))
}

func (p *mute) gates() {
	p.conn.Receive(protocol.Append(nil, &protocol.HooksUpdate{OnPreToolUse: []protocol.Rule{
		{Match: protocol.Match{Tool: "hang"}, Action: protocol.ActionGate, GateID: "g"}}}))
}

// However a call ends, the spans that it began end, with the class of its error and without what
// was said.
func TestSpansEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		end   func(s *Session, p *mute, cancel func())
		class string
		began int
	}{
		"timeout":    {func(*Session, *mute, func()) { sleep(time.Hour) }, "TIMEOUT", 2},
		"disconnect": {func(_ *Session, p *mute, _ func()) { p.conn.Closed() }, "DISCONNECTED", 2},
		"cancel":     {func(_ *Session, _ *mute, cancel func()) { cancel() }, "CANCELLED", 2},
		"stop": {func(s *Session, p *mute, _ func()) {
			go p.conn.Receive(protocol.Append(nil, &protocol.ShutdownReady{}))
			_ = s.Stop(context.Background(), "canary")
		}, "CANCELLED", 2},
		"end of the gateway": {func(s *Session, _ *mute, _ func()) {
			s.g.Drain(context.Background())
		}, "CANCELLED", 2},
		"error": {func(_ *Session, p *mute, _ func()) {
			p.answers(&protocol.ToolResult{Error: "canary", ErrorCode: protocol.CodeInternal})
		}, "INTERNAL", 2},
		"result": {func(_ *Session, p *mute, _ func()) {
			p.answers(&protocol.ToolResult{Data: protocol.Raw(`"canary"`)})
		}, "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spans := tracetest.NewSpanRecorder()
				s, p := mutelyTraced(t, spans)
				if _, err := s.Prompt(t.Context(), Prompt{Text: "canary"}); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				go s.CallTool(ctx, Call{Name: "hang", Args: protocol.Raw(`{"a":"canary"}`)})
				synctest.Wait()
				tt.end(s, p, cancel)
				synctest.Wait()
				s.Idle()
				cancel()
				checkSpans(t, spans, "execute_tool hang", tt.class, tt.began)
			})
		})
	}
}

// A gate that is silent, gone or too late ends its span, and that of its call.
func TestSpansOfGatesEnd(t *testing.T) {
	for name, end := range map[string]func(*Session, *mute){
		"timeout":    func(*Session, *mute) { sleep(time.Hour) },
		"disconnect": func(_ *Session, p *mute) { p.conn.Closed() },
		"end":        func(s *Session, _ *mute) { s.g.Drain(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				spans := tracetest.NewSpanRecorder()
				s, p := mutelyTraced(t, spans)
				p.gates()
				ended := make(chan Outcome, 1)
				go func() {
					ended <- s.CallTool(t.Context(), Call{Name: "hang", Traceparent: given})
				}()
				synctest.Wait()
				if len(p.checks) != 1 || !strings.Contains(p.checks[0], given[:36]) {
					t.Errorf("the gate was told %q, want the trace of %s", p.checks, given)
				}
				end(s, p)
				checkSpans(t, spans, "tool.call hang", string((<-ended).ErrorCode), 2)
			})
		})
	}
}

// A provider that comes back in a turn is told of the same trace.
func TestTraceAfterAProviderIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kept{}
		g := New(Options{Recorder: k})
		s, err := g.Register(SessionSpec{ID: "s1"},
			HostInfo{Kind: "test", Send: true, LiveTools: true}, quietHost{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Prompt(t.Context(), Prompt{Text: "go", Traceparent: given}); err != nil {
			t.Fatal(err)
		}
		var told []string
		for range 2 {
			p := &mute{}
			p.joins(s)
			go s.CallTool(t.Context(), Call{Name: "hang"})
			synctest.Wait()
			told = append(told, p.calls...)
			p.conn.Closed()
			synctest.Wait()
		}
		if len(told) != 2 || told[0] == told[1] || told[0][:36] != given[:36] ||
			told[1][:36] != given[:36] {
			t.Errorf("the provider was told %q, want two places in the trace of %s", told, given)
		}
		g.Drain(t.Context())
	})
}

func (p *mute) answers(r *protocol.ToolResult) {
	for id := range p.conn.provider.pending {
		r.ID = id.String()
	}
	p.conn.Receive(protocol.Append(nil, r))
}

func mutelyTraced(t *testing.T, to sdktrace.SpanProcessor) (*Session, *mute) {
	t.Helper()
	g := New(Options{Tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(to)).Tracer(
		"test")})
	s, err := g.Register(SessionSpec{ID: "s1"}, HostInfo{Kind: "test", Send: true, LiveTools: true},
		quietHost{})
	if err != nil {
		t.Fatal(err)
	}
	p := &mute{}
	p.joins(s)
	t.Cleanup(func() { p.conn.Closed(); g.Drain(context.Background()) })
	return s, p
}

// checkSpans checks that so many spans began and ended, and that one failed with a class.
func checkSpans(t *testing.T, spans *tracetest.SpanRecorder, name, class string, began int) {
	t.Helper()
	ended := spans.Ended()
	if len(spans.Started()) != began || len(ended) != began {
		t.Errorf("%d spans began and %d ended, want %d: %v", len(spans.Started()), len(ended),
			began, ended)
	}
	found := false
	for _, span := range ended {
		if span.Name() == name {
			got := ""
			for _, kv := range span.Attributes() {
				if kv.Key == "error.type" {
					got = kv.Value.AsString()
				}
			}
			found = got == class
			if got != class || (span.Status().Code != 0) != (class != "") {
				t.Errorf("%s ended with error.type %q, %v, want %q", name, got, span.Status(),
					class)
			}
		}
	}
	if all := fmt.Sprint(tracetest.SpanStubsFromReadOnlySpans(ended)); !found ||
		strings.Contains(all, "canary") {
		t.Errorf("got the spans %s, want %s and nothing of what was said", all, name)
	}
}
