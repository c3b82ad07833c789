package mcpbridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/configs"
	"tapgw/internal/gateway"
)

// eventServer is a server whose resources change.
type eventServer struct {
	*mcp.Server
	t     *testing.T
	reads atomic.Int64
	text  atomic.Pointer[string] // of each resource
}

func newEventServer(t *testing.T, uris ...string) *eventServer {
	s := &eventServer{t: t}
	s.set("the text")
	s.Server = mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{
			Tools:   &mcp.ToolCapabilities{ListChanged: true},
			Logging: &mcp.LoggingCapabilities{}, //nolint:staticcheck
		},
		SubscribeHandler: func(_ context.Context, req *mcp.SubscribeRequest) error {
			if strings.HasSuffix(req.Params.URI, "/none") {
				return errors.New("there is no such thing")
			}
			return nil
		},
		UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
	})
	for _, uri := range uris {
		s.add(uri, 0)
	}
	s.AddTool(&mcp.Tool{Name: "log", InputSchema: anyObject},
		func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			for i := range 1000 {
				//nolint:staticcheck // servers do
				_ = req.Session.Log(ctx, &mcp.LoggingMessageParams{
					Level: []mcp.LoggingLevel{"info", "error"}[i%2], Logger: "db",
					Data: map[string]any{"n": i},
				})
			}
			return text("done"), nil
		})
	return s
}

func (s *eventServer) set(text string) { s.text.Store(&text) }

func (s *eventServer) add(uri string, size int64) {
	s.AddResource(&mcp.Resource{URI: uri, Name: "r", Size: size},
		func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			s.reads.Add(1)
			r := &mcp.ReadResourceResult{
				Contents: []*mcp.ResourceContents{{URI: req.Params.URI, Text: *s.text.Load()}},
			}
			r.TTLMs = 3_600_000 // a wrong claim that a server can make
			return r, nil
		})
}

func (s *eventServer) changed(uri string) {
	s.t.Helper()
	if err := s.ResourceUpdated(context.Background(),
		&mcp.ResourceUpdatedNotificationParams{URI: uri}); err != nil {
		s.t.Error(err)
	}
}

func withEvents(p configs.Provider, entries ...configs.MCPEvent) configs.Provider {
	p.MCP.Events = entries
	return p
}

func eventOf(resource, stream, level string) configs.MCPEvent {
	return configs.MCPEvent{Resource: resource, Read: true, Stream: stream, Level: level}
}

// events returns the texts of a stream's events, the oldest first.
func events(s *gateway.Session, stream string) (texts []string) {
	for _, row := range s.HistoryAfter(0, []string{stream + "@srv"}) {
		texts = append(texts, row.Event)
	}
	return texts
}

// untilEvent does something again and again, until a stream has an event with a text.
func (r *rig) untilEvent(s *gateway.Session, stream, want string, do func()) string {
	r.t.Helper()
	for began := time.Now(); time.Since(began) < patience; {
		do()
		for _, text := range events(s, stream) {
			if strings.Contains(text, want) {
				return text
			}
		}
		ctx, cancel := context.WithTimeout(r.t.Context(), 50*time.Millisecond)
		_ = s.WaitHistory(ctx, s.HistoryCursor())
		cancel()
	}
	r.t.Fatalf("the stream %s has %.1000q, want an event with %q", stream, events(s, stream), want)
	return ""
}

// A change of a resource is an event with its new text, at the level of the first entry that is
// about it.
func TestResourceEvents(t *testing.T) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			server := newEventServer(t, "mem://a/1", "mem://b/1")
			r := newRig(t)
			s, h := r.session("one", "/w")
			r.bridge(withEvents(serveHTTP(t, server.Server, era),
				eventOf("mem://a/1", "first", "inject"),
				configs.MCPEvent{Resource: "mem://*/1", Stream: "second", Level: "surface"},
				eventOf("mem://*/2", "third", "keep")))
			h.has(t, "log")
			server.set("one \x1b[2J")
			want := "mem://a/1 has changed:\none \x1b[2J"
			if got := r.untilEvent(s, "first", "one",
				func() { server.changed("mem://a/1") }); got != want {
				t.Errorf("the event is %q, want %q", got, want)
			}
			server.set("two")
			r.untilEvent(s, "first", "two", func() {
				s.Idle()
				server.changed("mem://a/1")
			})
			want = "mem://b/1 has changed"
			if got := r.untilEvent(s, "second", "", func() {
				server.changed("mem://b/1")
			}); got != want {
				t.Errorf("the event is %q, want %q", got, want)
			}
			server.add("mem://c/2", 0)
			r.untilEvent(s, "third", "mem://c/2 has changed:\ntwo", func() {
				server.changed("mem://c/2")
			})
			h.mu.Lock()
			defer h.mu.Unlock()
			if len(h.prompts) == 0 || h.prompts[0] != "mem://a/1 has changed:\none " {
				t.Errorf("the model got %q, want the first event's text without escapes", h.prompts)
			}
			lines, _ := s.Timeline(0)
			for _, l := range lines {
				if strings.Contains(l.Message, "\x1b") || strings.Contains(l.Source, "third") {
					t.Errorf(
						"the timeline has %q of %s, want no escape, and nothing of level keep",
						l.Message,
						l.Source,
					)
				}
			}
		})
	}
}

// A busy session has one waiting event for each resource, with its newest text.
func TestEventsOfBusySession(t *testing.T) {
	t.Parallel()
	server := newEventServer(t, "mem://a")
	r := newRig(t)
	s, h := r.session("one", "/w")
	r.bridge(withEvents(serveHTTP(t, server.Server, eras[0]), eventOf("mem://a", "", "inject")))
	h.has(t, "log")
	s.Busy()
	server.set("1.")
	r.untilEvent(s, "srv", "1.", func() { server.changed("mem://a") })
	// when a read begins, the text read before is in the queue
	for _, text := range []string{"2.", "3.", "4.", "4."} {
		server.set(text)
		before := server.reads.Load()
		for server.reads.Load() == before {
			server.changed("mem://a")
			<-time.After(10 * time.Millisecond)
		}
	}
	s.Idle()
	h.until(t, "a prompt", func([]string, []gateway.Tool) bool { return len(h.prompted()) == 1 })
	s.Idle()
	h.until(t, "two prompts", func([]string, []gateway.Tool) bool { return len(h.prompted()) == 2 })
	want := []string{"mem://a has changed:\n1.", "mem://a has changed:\n4."}
	if got := h.prompted(); !slices.Equal(got, want) {
		t.Errorf("the model got %q, want %q", got, want)
	}
}

// Events of level keep wait for the first session; without a session, others are dropped and their
// resource is not read.
func TestEventsWithoutSession(t *testing.T) {
	t.Parallel()
	server := newEventServer(t, "mem://kept", "mem://shown")
	r := newRig(t)
	r.bridge(withEvents(serveHTTP(t, server.Server, eras[1]),
		eventOf("mem://kept", "kept", "keep"), eventOf("mem://shown", "shown", "surface")))
	for began := time.Now(); server.reads.Load() == 0 && time.Since(began) < patience; {
		server.changed("mem://shown")
		server.changed("mem://kept")
		<-time.After(10 * time.Millisecond)
	}
	s, _ := r.session("one", "/w")
	r.untilEvent(s, "kept", "the text", func() {})
	if got := events(s, "shown"); len(got) > 0 || server.reads.Load() != 1 {
		t.Errorf("the stream shown has %q after %d readings, want none after 1", got,
			server.reads.Load())
	}
}

// Log messages of an entry's level and logger are events; a flood of them is told of, and does not
// grow.
func TestLogEvents(t *testing.T) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s, h := r.session("one", "/w")
			r.bridge(withEvents(serveHTTP(t, newEventServer(t).Server, era),
				configs.MCPEvent{Log: "debug", Logger: "web*", Stream: "web", Level: "surface"},
				configs.MCPEvent{Log: "warning", Logger: "d?", Stream: "errors", Level: "surface",
					Filter: []configs.FilterRule{{Match: `"n":[13]\}`, Outcome: "drop"}}}))
			h.has(t, "log")
			// The level may be set after the first call.
			r.untilEvent(s, "errors", "error of db: ", func() { callTool(s, "log", "{}") })
			r.untilEvent(s, "errors", "other events were left out: there are too many]", func() {})
			for _, text := range append(events(s, "errors"), events(s, "web")...) {
				if !strings.HasPrefix(text, "error of db: ") || strings.HasSuffix(text, `:1}`) ||
					strings.HasSuffix(text, `:3}`) {
					t.Errorf(
						"there is the event %q, want errors of db only, and those that the filter lets through",
						text,
					)
				}
			}
		})
	}
}

// Over pipes, too, changes are events, and changes of tools are not forgotten.
func TestEventsOverPipes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, h := r.session("one", "/w")
	r.bridge(withEvents(program("touch"), eventOf("mem://note", "", "keep"),
		eventOf("mem://none", "", "keep")))
	h.until(t, "touch", func(names []string, _ []gateway.Tool) bool {
		return slices.Contains(names, "touch")
	})
	r.untilEvent(s, "srv", "mem://note has changed:\na note", func() { callTool(s, "touch", "{}") })
}

// Without [[events]], the server is asked for nothing of them, and nothing runs for them.
func TestNoEvents(t *testing.T) {
	for _, era := range eras {
		server := newEventServer(t, "mem://a")
		var asked sync.Map
		server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
			return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
				asked.Store(method, true)
				if p, ok := req.GetParams().(*mcp.SubscriptionsListenParams); ok {
					n := p.Notifications
					asked.Store("list changes", n.ResourcesListChanged ||
						len(n.ResourceSubscriptions) > 0)
				}
				//nolint:staticcheck // clients of servers that log send it
				if p := req.GetParams(); p != nil && p.GetMeta()[mcp.MetaKeyLogLevel] != nil {
					asked.Store("logs", true)
				}
				return next(ctx, method, req)
			}
		})
		r := newRig(t)
		s, h := r.session("one", "/w")
		r.bridge(serveHTTP(t, server.Server, era))
		h.has(t, "log")
		callTool(s, "log", "{}")
		server.changed("mem://a")
		for _, method := range []string{"resources/subscribe", "resources/list", "logging/setLevel",
			"logs"} {
			if was, _ := asked.Load(method); was == true {
				t.Errorf("%s: the server got %s, want nothing of it", era, method)
			}
		}
		if is, _ := asked.Load("list changes"); is == true {
			t.Errorf("%s: the server is to tell of resources, want of tools only", era)
		}
		if rows := s.HistoryAfter(0, nil); len(rows) > 0 {
			t.Errorf("%s: there are %d events, want none", era, len(rows))
		}
	}
}

func TestLane(t *testing.T) {
	entry := &configs.MCPEvent{}
	l := newLane()
	take := func() string {
		t.Helper()
		e, leftOut, err := l.take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s %d", e.text, leftOut)
	}
	l.add(event{entry, "a", "a1", nil})
	l.add(event{entry, "", "log", nil})
	l.add(event{entry, "a", "a2", nil})
	if got := []string{take(), take()}; !slices.Equal(got, []string{"a2 0", "log 0"}) {
		t.Errorf("took %q, want the newest of a, then the log", got)
	}
	l.add(event{entry, "a", "a4", nil})
	l.putBack(event{entry, "a", "a3", nil}, 2)
	if got := take(); got != "a4 2" {
		t.Errorf("took %q, want a4, which is newer than what was put back, and 2", got)
	}
	for i := range maxWaiting + 7 {
		l.add(event{entry, "", fmt.Sprint(i), nil})
	}
	if got := take(); got != "0 7" || len(l.waiting) != maxWaiting-1 {
		t.Errorf("took %q of %d, want the first of %d, and 7 left out", got, len(l.waiting)+1,
			maxWaiting)
	}
}
