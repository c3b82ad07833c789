package gateway

import (
	"context"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

const given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// told is a peer that stores the traceparents of its calls, and answers.
type told struct {
	echo
	calls []string
}

func (p *told) Send(m protocol.Message) {
	if call, ok := m.(*protocol.ToolCall); ok {
		p.calls = append(p.calls, call.Traceparent)
	}
	p.echo.Send(m)
}

func traced(t *testing.T, o Options) (*Session, *told) {
	t.Helper()
	g := New(o)
	s, err := g.Register(SessionSpec{ID: "s1", Label: "l"},
		HostInfo{Kind: "test", Send: true, LiveTools: true,
			Aliases: map[string][]string{"shell": {"bash"}}}, quietHost{})
	if err != nil {
		t.Fatal(err)
	}
	p := &told{}
	p.conn = g.Connect(p, ConnOptions{})
	p.conn.Receive(protocol.Append(nil, &protocol.Auth{Token: g.InstanceToken()}))
	version := protocol.Version
	p.conn.Receive(protocol.Append(nil, &protocol.Hello{Name: "echo", ProtocolVersion: &version,
		Session: "s1",
		Tools: []protocol.Tool{{Name: "greet", Description: "d",
			Parameters: protocol.Raw(greetSchema)}}}))
	t.Cleanup(func() { p.conn.Closed(); g.Drain(context.Background()) })
	return s, p
}

func TestTraces(t *testing.T) {
	out := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(out))
	s, p := traced(t, Options{Tracer: provider.Tracer("test")})
	args := protocol.Raw(`{"name":"x"}`)

	// Below the caller's span, whoever that is.
	s.CallTool(t.Context(), Call{Name: "greet", Args: args, Traceparent: given})
	// Below the turn.
	if _, err := s.Prompt(t.Context(), Prompt{Text: "hello", Traceparent: given}); err != nil {
		t.Fatal(err)
	}
	s.CallTool(t.Context(), Call{Name: "greet", Args: args})
	s.CallTool(t.Context(), Call{Name: "greet", Args: protocol.Raw(`{}`)})
	s.CountModelCall(ModelCall{Tokens: adminapi.Tokens{Input: 100, Output: 7},
		Prompt: "the host's own id"})
	s.CountModelCall(ModelCall{Tokens: adminapi.Tokens{Input: 20, Output: 3}})
	s.Event(Event{SessionError: "no model"})
	s.Idle()
	// By itself.
	s.CallTool(t.Context(), Call{Name: "gone"})

	spans := out.GetSpans()
	var names []string
	for _, span := range spans {
		names = append(names, span.Name)
	}
	want :=
		"tool.call greet, execute_tool greet, execute_tool greet, invoke_agent test, execute_tool gone"
	if got := strings.Join(names, ", "); got != want {
		t.Fatalf("the spans are %s, want %s", got, want)
	}
	turn := spans[3]
	for i, parent := range []string{"00f067aa0ba902b7", turn.SpanContext.SpanID().String(),
		turn.SpanContext.SpanID().String(), "00f067aa0ba902b7", "0000000000000000"} {
		if got := spans[i].Parent.SpanID().String(); got != parent {
			t.Errorf("span %d (%s) stands below %s, not %s", i, spans[i].Name, got, parent)
		}
	}
	if turn.SpanContext.TraceID().String() != "4bf92f3577b34da6a3ce929d0e0e4736" {
		t.Errorf("the turn is in trace %s, want that of the provider", turn.SpanContext.TraceID())
	}
	if len(p.calls) != 2 || !strings.Contains(p.calls[0], spans[0].SpanContext.SpanID().String()) ||
		!strings.Contains(p.calls[1], spans[1].SpanContext.SpanID().String()) {
		t.Errorf("the provider was told %v, want the traces of both spans", p.calls)
	}
	if got := attribute(turn, "gen_ai.usage.input_tokens") + " " + attribute(turn,
		"gen_ai.usage.output_tokens"); got !=
		"120 10" {
		t.Errorf("the turn has the tokens %q, want those of both calls", got)
	}
	for i := range spans {
		if got := attribute(spans[i], "gen_ai.tool.call.arguments"); got != "" {
			t.Errorf("span %d (%s) has the arguments %q, and nobody asked for them", i,
				spans[i].Name, got)
		}
	}
	for i, want := range []codes.Code{codes.Unset, codes.Unset, codes.Error, codes.Error,
		codes.Error} {
		if spans[i].Status.Code != want {
			t.Errorf("span %d (%s) ended with %v, want %v", i, spans[i].Name, spans[i].Status, want)
		}
	}
}

// attribute is the value of a span's attribute, as text; "" if it has none.
func attribute(span tracetest.SpanStub, name string) string {
	for _, kv := range span.Attributes {
		if string(kv.Key) == name {
			return kv.Value.Emit()
		}
	}
	return ""
}

// Those who ask get what calls were given and gave, without the gateway's tokens, and no more than
// a span can take.
func TestTraceContent(t *testing.T) {
	out := tracetest.NewInMemoryExporter()
	s, _ := traced(t, Options{
		Tracer:       sdktrace.NewTracerProvider(sdktrace.WithSyncer(out)).Tracer("test"),
		TraceContent: true,
	})
	long := strings.Repeat("é", maxContent)
	for _, name := range []string{"x", s.g.AdminToken(), long} {
		s.CallTool(t.Context(), Call{Name: "greet", Args: protocol.Raw(`{"name":"` + name + `"}`),
			Traceparent: given})
	}
	s.CallTool(t.Context(), Call{Name: "greet", Args: protocol.Raw(`{}`)})
	spans := out.GetSpans()
	if len(spans) != 4 {
		t.Fatalf("got %d spans, want 4", len(spans))
	}
	for i, want := range []string{`{"name":"x"}`, `{"name":"<token>"}`, `{"name":"éé`, "{}"} {
		args := attribute(spans[i], "gen_ai.tool.call.arguments")
		result := attribute(spans[i], "gen_ai.tool.call.result")
		if !strings.HasPrefix(args, want) || result == "" || len(args) > maxContent+len("…") ||
			!utf8.ValidString(args) {
			t.Errorf(
				"call %d: the arguments are %.40q of %d bytes and the result %.40q, want %s and a result", i, args,
				len(args), result, want)
		}
	}
	if got := attribute(spans[3], "gen_ai.tool.call.result"); !strings.HasPrefix(got, "INVALID") {
		t.Errorf("the failed call has the result %q, want its error", got)
	}
}

// The span of a turn that has not ended ends with its session.
func TestTraceEndsWithSession(t *testing.T) {
	out := tracetest.NewInMemoryExporter()
	s, p := traced(t,
		Options{Tracer: sdktrace.NewTracerProvider(sdktrace.WithSyncer(out)).Tracer("test")})
	if _, err := s.Prompt(t.Context(), Prompt{Text: "hello"}); err != nil {
		t.Fatal(err)
	}
	p.conn.Closed() // it would not get ready for the end
	if err := s.Stop(t.Context(), "enough"); err != nil {
		t.Fatal(err)
	}
	if spans := out.GetSpans(); len(spans) != 1 || spans[0].Name != "invoke_agent test" ||
		spans[0].Status.Code != codes.Error {
		t.Errorf("the spans are %+v, want one failed turn", spans)
	}
}

// Where nobody keeps spans, a caller's traceparent is passed on unchanged, and one that is none is
// not.
func TestNoTraces(t *testing.T) {
	s, p := traced(t, Options{})
	for _, traceparent := range []string{given, "anything", ""} {
		s.CallTool(t.Context(), Call{Name: "greet", Args: protocol.Raw(`{"name":"x"}`),
			Traceparent: traceparent})
	}
	if want := []string{given, "", ""}; !slices.Equal(p.calls, want) {
		t.Errorf("the provider was told %q, want %q", p.calls, want)
	}
}

// Records without an exporter have the whole tree of one push, and the provider is told where its
// call stands in it.
func TestRecordsHaveSpans(t *testing.T) {
	k := &kept{}
	s, p := traced(t, Options{Recorder: k})
	p.conn.Receive(protocol.Append(nil, &protocol.HooksUpdate{
		OnPreToolUse: []protocol.Rule{{Match: protocol.Match{Tool: "bash"},
			Action: protocol.ActionDeny}}}))
	if _, err := s.Push(t.Context(), "ci", &protocol.Push{
		Event: "red", Level: protocol.LevelInject, Traceparent: given}); err != nil {
		t.Fatal(err)
	}
	s.CallTool(t.Context(), Call{Name: "greet", Args: protocol.Raw(`{"name":"x"}`)})
	s.PreToolUse(t.Context(), "bash", nil)
	s.Event(Event{Callback: OnStartToolExecution, ID: "1", Tool: "ls"})
	s.Event(Event{Callback: OnEndToolExecution, ID: "1"})
	s.Idle()
	of := map[string]adminapi.Record{}
	for _, r := range k.list[1:] {
		of[r.Kind+" "+r.Tool+string(r.Fate)] = r
		if r.Trace != "4bf92f3577b34da6a3ce929d0e0e4736" {
			t.Errorf("%s %s is in trace %q, want that of the push", r.Kind, r.Tool, r.Trace)
		}
	}
	push, turn, call := of["push queued"], of["turn "], of["call greet"]
	for name, at := range map[string][3]string{ // where it stands, and below what
		"push":      {push.Span, push.Parent, "00f067aa0ba902b7"},
		"delivered": {of["push delivered"].Span, of["push delivered"].Parent, push.Parent},
		"turn":      {turn.Span, turn.Parent, push.Span},
		"call":      {call.Span, call.Parent, turn.Span},
		"denial":    {turn.Span, of["gate bash"].Parent, turn.Span},
		"own tool":  {turn.Span, of["call ls"].Parent, turn.Span},
	} {
		if len(at[0]) != 16 || at[1] != at[2] || at[0] == at[1] && name != "denial" &&
			name != "own tool" {
			t.Errorf("%s is span %q below %q, want one below %q", name, at[0], at[1], at[2])
		}
	}
	if want := "00-" + call.Trace + "-" + call.Span + "-01"; len(p.calls) != 1 ||
		p.calls[0] != want {
		t.Errorf("the provider was told %q, want %q", p.calls, want)
	}
}
