//go:build runtime

package copilot

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"

	"tapgw/internal/gateway"
	"tapgw/internal/otlp"
	"tapgw/internal/protocol"
	"tapgw/internal/scriptmodel"
)

// collector stands in for an OpenTelemetry collector.
type collector struct {
	mu    sync.Mutex
	more  chan struct{}
	spans map[string]collected // by id
}

type collected struct {
	TraceID      string `json:"traceId"`
	SpanID       string `json:"spanId"`
	ParentSpanID string `json:"parentSpanId"`
	Name         string `json:"name"`
	Attributes   []struct {
		Key   string          `json:"key"`
		Value json.RawMessage `json:"value"`
	} `json:"attributes"`
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ResourceSpans []struct {
			ScopeSpans []struct {
				Spans []collected `json:"spans"`
			} `json:"scopeSpans"`
		} `json:"resourceSpans"`
	}
	if r.URL.Path != "/v1/traces" || json.NewDecoder(r.Body).Decode(&body) != nil {
		http.NotFound(w, r) // metrics, which nobody asked for
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range body.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				c.spans[s.SpanID] = s
			}
		}
	}
	close(c.more)
	c.more = make(chan struct{})
}

// path is the names of a span and those above it, "" for one that is not there.
func (c *collector) path(span string) (names []string) {
	for span != "" {
		s, ok := c.spans[span]
		if !ok {
			return append(names, "?"+span)
		}
		names = append(names, s.Name)
		span = s.ParentSpanID
	}
	return names
}

// wait waits until something holds; it is asked with mu held.
func (c *collector) wait(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		c.mu.Lock()
		ok, more := holds(), c.more
		c.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-more:
		case <-deadline:
			c.mu.Lock()
			defer c.mu.Unlock()
			t.Fatalf("waiting for %s; there are %+v", what, c.spans)
		}
	}
}

// witness is a provider that answers calls and gates, and keeps their traceparent.
type witness struct {
	conn *gateway.Conn

	mu     sync.Mutex
	queue  []protocol.Message
	traces map[string]string
}

func (w *witness) Send(m protocol.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue = append(w.queue, m)
}

func (w *witness) Flush() {
	w.mu.Lock()
	queue := w.queue
	w.queue = nil
	w.mu.Unlock()
	for _, m := range queue {
		var answer protocol.Message
		switch m := m.(type) {
		case *protocol.ToolCall:
			w.keep("tool.call", m.Traceparent)
			answer = &protocol.ToolResult{ID: m.ID, Data: protocol.Raw(`"hello"`)}
		case *protocol.GateCheck:
			w.keep("gate.check", m.Traceparent)
			answer = &protocol.GateResult{CallID: m.CallID, Decision: protocol.DecisionAllow}
		case *protocol.SessionLifecycle:
			if m.State == protocol.LifecycleShutdownPending {
				answer = &protocol.ShutdownReady{}
			}
		}
		if answer != nil {
			go w.conn.Receive(protocol.Append(nil, answer))
		}
	}
}

func (w *witness) keep(message, traceparent string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.traces[message] = traceparent
}

func (*witness) Close(protocol.CloseCode, string) {}

// One prompt is one trace: from a push over the turn and the runtime's own spans
// to what the provider is told.
func TestTraceFromPushToProvider(t *testing.T) {
	c := &collector{more: make(chan struct{}), spans: map[string]collected{}}
	srv := httptest.NewServer(c)
	t.Cleanup(srv.Close)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", srv.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	settings, err := otlp.FromEnv(func(name string) string {
		return map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": srv.URL}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	tracer, stop := otlp.Start(settings, "test")
	t.Cleanup(func() { _ = stop(context.Background()) })
	otel.SetTextMapPropagator(propagation.TraceContext{})
	t.Cleanup(func() { otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator()) })

	g := newRigWith(t, scriptmodel.Calls, func(o *Options) { o.Env = settings.Environ })
	gw := gateway.New(gateway.Options{Starters: map[string]gateway.Starter{Kind: g.r},
		Tracer: tracer})
	s, err := gw.Start(g.ctx, gateway.StartRequest{Host: Kind, Model: scriptmodel.ModelID,
		CWD: g.cwd, Label: "test"})
	if err != nil {
		t.Fatal(err)
	}
	w := &witness{traces: map[string]string{}}
	w.conn = gw.Connect(w, gateway.ConnOptions{})
	w.conn.Receive(protocol.Append(nil, &protocol.Auth{Token: gw.InstanceToken()}))
	version := protocol.Version
	w.conn.Receive(protocol.Append(nil, &protocol.Hello{Name: "tests", ProtocolVersion: &version,
		Session: s.ID(),
		Tools: []protocol.Tool{{Name: "greet", Description: "d",
			Parameters: protocol.Raw(`{"type":"object"}`)}},
		Hooks: &protocol.Hooks{
			OnPreToolUse: []protocol.Rule{
				{Match: protocol.Match{Tool: "greet"}, Action: protocol.ActionGate, GateID: "g"},
			},
		},
	}))
	if _, err := s.PushAndWait(g.ctx, "ci", &protocol.Push{
		Level: protocol.LevelInject, Event: "call:greet {}",
	}); err != nil {
		t.Fatal(err)
	}
	gw.Drain(g.ctx)
	if err := stop(g.ctx); err != nil {
		t.Error(err)
	}

	w.mu.Lock()
	call, gate := strings.Split(w.traces["tool.call"], "-"),
		strings.Split(w.traces["gate.check"], "-")
	w.mu.Unlock()
	if len(call) != 4 || len(gate) != 4 || call[1] != gate[1] {
		t.Fatalf("the provider was told %v, want a call and a gate of one trace", w.traces)
	}
	var path []string
	c.wait(t, "the spans between the push and the provider", func() bool {
		path = c.path(call[2])
		return path[len(path)-1] == "push ci"
	})
	// Newer runtimes tell a hash of the tool's name.
	executes := slices.ContainsFunc(path, func(span string) bool {
		return strings.HasPrefix(span, "execute_tool ")
	})
	if path[0] != "tool.call greet" || !executes || path[len(path)-2] != "turn" {
		t.Errorf(
			"the call stands below %q, want tool.call greet, the runtime's execution and the turn",
			path)
	}
	// The runtime may tell of one more than once.
	c.wait(t, "the spans of two calls of the model", func() bool {
		models := 0
		for id, s := range c.spans {
			if path := c.path(id); strings.HasPrefix(s.Name, "chat ") && s.TraceID == call[1] &&
				path[len(path)-1] == "push ci" {
				models++
			}
		}
		return models >= 2
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if path := c.path(gate[2]); !slices.Equal(path, []string{"gate greet", "turn", "push ci"}) {
		t.Errorf(`the gate stands below %q, want ["gate greet" "turn" "push ci"]`, path)
	}
}
