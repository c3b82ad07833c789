package mcpserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/providers"
)

// eachEra runs a test for a revision of each kind.
func eachEra(t *testing.T, test func(t *testing.T, version string)) {
	for name, version := range eras {
		t.Run(name, func(t *testing.T) { test(t, version) })
	}
}

var own = []string{"push", "query", "wait_for_event"}

func with(names ...string) []string { return append(slices.Clone(own), names...) }

func TestCalls(t *testing.T) {
	eachEra(t, func(t *testing.T, version string) {
		w := newWorld(t, 60)
		s := w.session()
		w.provide(s)
		c := w.connect(version, "/mcp", w.gateway.AdminToken())
		c.hasTools(with("echo", "shape", "fails", "hang")...)
		for _, tc := range []struct {
			tool, want, structure string
			args                  map[string]any
			isError               bool
		}{
			{tool: "echo", args: map[string]any{"text": "hello"}, want: "hello"},
			{tool: "shape", want: `{"sides":3}`, structure: `{"sides":3}`},
			{tool: "fails", want: "NOT_FOUND: no such city", isError: true},
			{tool: "echo", args: map[string]any{"text": 3}, want: "INVALID_ARGUMENTS: ",
				isError: true},
		} {
			r := c.call(tc.tool, tc.args)
			structure := ""
			if r.StructuredContent != nil {
				b, _ := json.Marshal(r.StructuredContent)
				structure = string(b)
			}
			if !strings.HasPrefix(text(r), tc.want) || r.IsError != tc.isError ||
				structure != tc.structure {
				t.Errorf(
					"%s %v: got %q, %q, error %v; want %q, %q, %v",
					tc.tool,
					tc.args,
					text(r),
					structure,
					r.IsError,
					tc.want,
					tc.structure,
					tc.isError,
				)
			}
		}
		lines, _ := s.Timeline(0)
		if !slices.ContainsFunc(lines, func(l adminapi.TimelineLine) bool {
			return l.Source == "mcp" && l.Message == "calls echo"
		}) {
			t.Errorf("timeline: got %v, want a line of mcp that echo was called", lines)
		}
	})
}

func TestProgressReachesTheClient(t *testing.T) {
	const steps = 50
	eachEra(t, func(t *testing.T, version string) {
		w := newWorld(t, 60)
		// The result comes while the client is still being told of the steps.
		w.provide(w.session(), providers.Tool{Name: "steps", Description: "Takes steps",
			Handler: func(ctx context.Context, _ json.RawMessage) (any, error) {
				for n := range steps {
					providers.Progress(ctx, fmt.Sprint(n))
				}
				return "done", nil
			}})
		c := w.connect(version, "/mcp", w.gateway.AdminToken())
		p := &mcp.CallToolParams{Name: "steps"}
		p.SetProgressToken("p1")
		if r, err := c.CallTool(t.Context(), p); err != nil || text(r) != "done" {
			t.Fatalf("steps: got %v, %v, want done", r, err)
		}
		for n := range steps {
			select {
			case got := <-c.progress:
				if got != fmt.Sprint(n) {
					t.Errorf("progress: got %q, want %d", got, n)
				}
			case <-time.After(patience):
				t.Fatalf("progress: got none after %d, want %d", n, steps)
			}
		}
	})
}

func TestCancelledCallIsInterrupted(t *testing.T) {
	eachEra(t, func(t *testing.T, version string) {
		w := newWorld(t, 60)
		p := w.provide(w.session())
		c := w.connect(version, "/mcp", w.gateway.AdminToken())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "hang"})
			ended <- err
		}()
		w.receive("the call", p.begun)
		cancel()
		w.receive("the cancellation at the provider", p.cancelled)
		if err := <-ended; err == nil {
			t.Error("a cancelled call: got no error, want one")
		}
		if r := c.call("echo", map[string]any{"text": "on"}); text(r) != "on" {
			t.Errorf("after a cancelled call: got %q, want on", text(r))
		}
	})
}

func TestToolsThatComeAndGo(t *testing.T) {
	eachEra(t, func(t *testing.T, version string) {
		w := newWorld(t, 60)
		c := w.connect(version, "/mcp", w.gateway.AdminToken())
		c.hasTools() // there is no session
		s := w.session()
		c.hasTools(own...)
		p := w.provide(s)
		c.hasTools(with("echo", "shape", "fails", "hang")...)
		if _, err := p.AddTool(t.Context(), providers.Tool{Name: "late", Description: "Late",
			Handler: func(context.Context, json.RawMessage) (any, error) {
				return "here", nil
			}}); err != nil {
			t.Fatal(err)
		}
		if r := c.call("late", nil); text(r) != "here" { // without a list first
			t.Errorf("a tool that just came: got %q, want here", text(r))
		}
		p.stop()
		c.hasTools(own...)
		if err := s.Stop(t.Context(), "over"); err != nil {
			t.Fatal(err)
		}
		c.hasTools()
	})
}

func TestSessionEndsInMidCall(t *testing.T) {
	eachEra(t, func(t *testing.T, version string) {
		w := newWorld(t, 60)
		s := w.session()
		p := w.provide(s)
		token, err := s.MCPToken()
		if err != nil {
			t.Fatal(err)
		}
		c := w.connect(version, "/mcp", token)
		ended := make(chan string, 1)
		go func() {
			r, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "hang"})
			if err != nil {
				ended <- err.Error()
				return
			}
			ended <- text(r)
		}()
		w.receive("the call", p.begun)
		if err := s.Stop(t.Context(), "over"); err != nil {
			t.Fatal(err)
		}
		if got, want := <-ended, "CANCELLED: Cancelled: over"; got != want {
			t.Errorf("the call: got %q, want %q, with the reason of the end", got, want)
		}
		if _, err := w.tryConnect(version, "/mcp", token); err == nil {
			t.Error("the token of an ended session: got no error, want one")
		}
		if _, err := w.tryConnect(version, "/mcp/s/"+s.ID(), w.gateway.AdminToken()); err == nil {
			t.Error("an ended session: got no error, want one")
		}
	})
}

func TestOwnToolGivesWay(t *testing.T) {
	w := newWorld(t, 60)
	s := w.session()
	answer := func(text string) func(context.Context, json.RawMessage) (any, error) {
		return func(context.Context, json.RawMessage) (any, error) { return text, nil }
	}
	w.provide(s, providers.Tool{Name: "push", Description: "d", Handler: answer("theirs")},
		providers.Tool{Name: "tapgw_query", Description: "d", Handler: answer("theirs")},
		providers.Tool{Name: "query", Description: "d", Handler: answer("theirs")})
	c := w.connect(eras["modern"], "/mcp", w.gateway.AdminToken())
	c.hasTools("echo", "shape", "fails", "hang", "push", "tapgw_push", "query", "tapgw_query",
		"wait_for_event")
	if got := text(c.call("push", nil)); got != "theirs" {
		t.Errorf("push: got %q, want the provider's", got)
	}
	if got := text(c.call("tapgw_push", map[string]any{"event": "e"})); !strings.Contains(got,
		`"fate":"stored"`) {
		t.Errorf("tapgw_push: got %q, want a stored event", got)
	}
	if got := w.mcp.Faults(); len(got) != 2 {
		t.Errorf("faults: got %q, want one for push and one for query", got)
	}
}

// Providers may have schemas that MCP does not allow.
func TestStrangeSchemas(t *testing.T) {
	w := newWorld(t, 60)
	s := w.session()
	var tools []providers.Tool
	for i, schema := range []string{`{}`, `{"type":["object","null"]}`,
		`{"properties":{"a":{"type":"string"}}}`} {
		tools = append(tools, providers.Tool{Name: fmt.Sprintf("t%d", i), Description: "d",
			Parameters: json.RawMessage(schema),
			Handler:    func(context.Context, json.RawMessage) (any, error) { return "ok", nil }})
	}
	bad := `{"type":"object","properties":{"a":{"type":"object","x-mcp-header":"a b"}}}`
	tools = append(tools, providers.Tool{Name: "unheard", Description: "d",
		Parameters: json.RawMessage(bad), Handler: func(context.Context, json.RawMessage) (any,
			error) {
			return "ok", nil
		}})
	w.provide(s, tools...)
	c := w.connect(eras["modern"], "/mcp", w.gateway.AdminToken())
	c.hasTools(with("echo", "shape", "fails", "hang", "t0", "t1", "t2")...)
	for i := range 3 {
		if got := text(c.call(fmt.Sprintf("t%d", i), nil)); got != "ok" {
			t.Errorf("t%d: got %q, want ok", i, got)
		}
	}
}

func TestManyTools(t *testing.T) {
	w := newWorld(t, 3)
	s := w.session()
	w.provide(s)
	c := w.connect(eras["handshake"], "/mcp", w.gateway.AdminToken())
	c.hasTools(with("search_tools", "describe_tool", "call_tool")...)
	var found struct{ Tools []struct{ Name string } }
	answer := text(c.call("search_tools", map[string]any{"query": "say again"}))
	if err := json.Unmarshal([]byte(answer), &found); err != nil ||
		len(found.Tools) == 0 ||
		found.Tools[0].Name != "echo" {
		t.Errorf("search_tools: got %v, %v, want echo first", found, err)
	}
	if got := text(c.call("describe_tool", map[string]any{"name": "echo"})); !strings.Contains(got,
		`"inputSchema":{`) {
		t.Errorf("describe_tool: got %s, want its schema", got)
	}
	args := map[string]any{"name": "echo", "arguments": map[string]any{"text": "hi"}}
	if got := text(c.call("call_tool", args)); got != "hi" {
		t.Errorf("call_tool: got %q, want hi", got)
	}
	lines, _ := s.Timeline(0)
	if !slices.ContainsFunc(lines, func(l adminapi.TimelineLine) bool {
		return l.Message == "calls echo"
	}) {
		t.Errorf("timeline: got %v, want the real tool's name", lines)
	}
	w.mcp.Configure(4)
	c.hasTools(with("echo", "shape", "fails", "hang")...)
}

func TestStreams(t *testing.T) {
	eachEra(t, func(t *testing.T, version string) {
		w := newWorld(t, 60)
		s := w.session()
		push := func(text string) {
			t.Helper()
			if _, err := s.Push(t.Context(), "ci", &protocol.Push{Stream: "builds", Event: text,
				Level: protocol.LevelKeep}); err != nil {
				t.Fatal(err)
			}
		}
		push("one")
		c := w.connect(version, "/mcp", w.gateway.AdminToken())
		const uri = "tapgw://stream/builds@ci"
		list, err := c.ListResources(t.Context(), nil)
		if err != nil || len(list.Resources) != 1 || list.Resources[0].URI != uri {
			t.Fatalf("resources: got %v, %v, want %s", list, err, uri)
		}
		if err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: uri}); err != nil {
			t.Fatal(err)
		}
		push("two")
		select {
		case got := <-c.updated:
			if got != uri {
				t.Errorf("update: got %q, want %q", got, uri)
			}
		case <-time.After(patience):
			t.Error("update: got none, want one")
		}
		r, err := c.ReadResource(t.Context(), &mcp.ReadResourceParams{URI: uri})
		if err != nil || len(r.Contents) != 1 {
			t.Fatalf("reading: got %v, %v, want one content", r, err)
		}
		if got := events(t, r.Contents[0].Text); !slices.Equal(got, []string{"one", "two"}) {
			t.Errorf("reading: got %q, want one and two", got)
		}
		if _, err := c.ReadResource(t.Context(),
			&mcp.ReadResourceParams{URI: "tapgw://stream/a b"}); err == nil {
			t.Error("a bad name: got no error, want one")
		}
	})
}

func TestCompletionOfStreams(t *testing.T) {
	eachEra(t, func(t *testing.T, version string) {
		w := newWorld(t, 60)
		s := w.session()
		for _, stream := range []string{"deploys", "builds", "backups"} {
			if _, err := s.Push(t.Context(), "ci", &protocol.Push{Stream: stream, Event: "x",
				Level: protocol.LevelKeep}); err != nil {
				t.Fatal(err)
			}
		}
		c := w.connect(version, "/mcp", w.gateway.AdminToken())
		list, err := c.ListResourceTemplates(t.Context(), nil)
		if err != nil || len(list.ResourceTemplates) != 1 {
			t.Fatalf("templates: got %v, %v, want one", list, err)
		}
		streams := mcp.CompleteReference{Type: "ref/resource",
			URI: list.ResourceTemplates[0].URITemplate}
		for _, tc := range []struct {
			ref       mcp.CompleteReference
			name, has string
			want      []string
		}{
			{streams, "stream", "b", []string{"backups@ci", "builds@ci"}},
			{streams, "stream", "x", nil},
			{streams, "other", "b", nil},
			{mcp.CompleteReference{Type: "ref/prompt", Name: "hello"}, "stream", "b", nil},
		} {
			r, err := c.Complete(t.Context(), &mcp.CompleteParams{Ref: &tc.ref,
				Argument: mcp.CompleteParamsArgument{Name: tc.name, Value: tc.has}})
			if err != nil || !slices.Equal(r.Completion.Values, tc.want) {
				t.Errorf("%v %s=%s: got %v, %v, want %q", tc.ref, tc.name, tc.has, r, err, tc.want)
			}
		}
	})
}

// events are the texts of the events in an answer.
func events(t *testing.T, answer string) (texts []string) {
	t.Helper()
	var list struct{ Events []struct{ Event string } }
	if err := json.Unmarshal([]byte(answer), &list); err != nil {
		t.Fatalf("%q: %v, want events", answer, err)
	}
	for _, e := range list.Events {
		texts = append(texts, e.Event)
	}
	return texts
}
