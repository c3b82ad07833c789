package mcpbridge

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/configs"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

var allTools = []string{
	"ask", "echo", "fail", "list", "release", "srv_get_prompt", "srv_list_prompts",
	"srv_list_resources", "srv_read_resource", "steps", "sum",
}

func withAll(p configs.Provider) configs.Provider {
	p.MCP.Resources, p.MCP.Prompts = true, true
	return p
}

// A session has all that a server offers, whichever revision it speaks and however it is reached.
func TestServerIsProvider(t *testing.T) {
	for name, p := range map[string]func(t *testing.T) configs.Provider{
		"HTTP " + eras[0]: func(t *testing.T) configs.Provider {
			return serveHTTP(t, toolServer(), eras[0])
		},
		"HTTP " + eras[1]: func(t *testing.T) configs.Provider {
			return serveHTTP(t, toolServer(), eras[1])
		},
		"pipes":     func(*testing.T) configs.Provider { return program("noisy") },
		"pipes old": func(*testing.T) configs.Provider { return program("old") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s, h := r.session("one", "/w")
			r.bridge(withAll(p(t)))
			checkDescribed(t, s, h.has(t, allTools...))
			for _, c := range []struct{ tool, args, want string }{
				{"echo", `{"a":"<b> 12345678901234567890"}`, `{"a":"<b> 12345678901234567890"}`},
				{"echo", `{}`, "INVALID_ARGUMENTS"},
				{"sum", `{}`, `{"sum":3}`},
				{"fail", `{}`, "INTERNAL: it is\x1b[31m broken"},
				{"srv_list_resources", `{}`, "mem://note - note - text/plain"},
				{"srv_read_resource", `{"uri":"mem://note"}`, "a note"},
				{"srv_read_resource", `{"uri":"mem://none"}`, "INTERNAL: the MCP server: "},
				{"srv_list_prompts", `{}`, "greet(who)"},
				{"srv_get_prompt", `{"name":"greet","arguments":{"who":"Bo"}}`, "user:\nGreet Bo"},
			} {
				if o := callTool(s, c.tool, c.args); !strings.HasPrefix(o.Text(), c.want) {
					t.Errorf("%s(%s) = %q, want %q at its start", c.tool, c.args, o.Text(), c.want)
				}
			}
			result := make(chan gateway.Outcome, 1)
			go func() { result <- callTool(s, "steps", "{}") }()
			waitTimeline(t, s, "steps: 1 of 2 half way")
			callTool(s, "release", "{}")
			if o := <-result; o.Text() != "done <nil>" {
				t.Errorf("steps() = %q, want done", o.Text())
			}
		})
	}
}

// checkDescribed checks the fields of the server's tools: a host reads them in the description,
// programs have them as fields.
func checkDescribed(t *testing.T, s *gateway.Session, hosts []gateway.Tool) {
	t.Helper()
	want := map[string]string{
		"echo": "Echo.\nSays it again\n(Its provider says: changes nothing.)",
		"sum": `Adds` + "\n" +
			`The result is JSON by this schema: {"properties":{"sum":{"type":"integer"}},` +
			`"type":"object"}`,
		"list": `Lists` + "\n" + `The result is JSON by this schema: {"type":"array"}`,
	}
	for _, tool := range hosts {
		if text, ok := want[tool.Name]; ok && tool.Description != text {
			t.Errorf("for a host, %s is described as %q, want %q", tool.Name, tool.Description,
				text)
		}
	}
	for _, tool := range s.Tools() {
		hints := tool.Annotations
		switch tool.Name {
		case "echo":
			if tool.Title != "Echo" || tool.Description != "Says it again" || hints == nil ||
				!*hints.ReadOnlyHint {
				t.Errorf("echo is %+v, want its title, its own description and the hint", tool)
			}
		case "sum":
			if tool.Description != "Adds" || len(tool.OutputSchema) == 0 {
				t.Errorf("sum is %+v, want its own description and its output schema", tool)
			}
		case "list":
			if tool.OutputSchema != nil {
				t.Errorf("list has the output schema %s, want none: its results are no objects",
					tool.OutputSchema)
			}
		}
	}
}

// waitTimeline waits for a line of a session's timeline that has a text, and returns it.
func waitTimeline(t *testing.T, s *gateway.Session, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for ctx.Err() == nil {
		lines, cursor := s.Timeline(0)
		for _, l := range lines {
			if strings.Contains(l.Message, text) {
				return l.Message
			}
		}
		_ = s.WaitTimeline(ctx, cursor)
	}
	t.Fatalf("the timeline has no line with %q, want one", text)
	return ""
}

// A question of a server is answered by the session's person, and the answer reaches the server.
func TestElicitation(t *testing.T) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s, h := r.session("one", "/w")
			_, h2 := r.session("two", "/w")
			r.bridge(serveHTTP(t, toolServer(), era))
			h.has(t, "ask", "echo", "fail", "list", "release", "steps", "sum")
			h2.has(t, "ask", "echo", "fail", "list", "release", "steps", "sum")
			for answer, want := range map[*gateway.Answer]string{
				{Content: protocol.Raw(`{"name":"Bo"}`)}: "accept Bo",
				{Decision: "deny"}:                       "decline <nil>",
			} {
				result := make(chan gateway.Outcome, 1)
				go func() { result <- callTool(s, "ask", "{}") }()
				q := question(t, r.g)
				if q.Session != "one" || q.Message != "srv: Who are you?" {
					t.Errorf("the question is %+v, want one of session one: srv: Who are you?", q)
				}
				if err := s.Answer(q.ID, *answer); err != nil {
					t.Fatal(err)
				}
				if o := <-result; o.Text() != want {
					t.Errorf("the call ends with %q, want %q", o.Text(), want)
				}
			}
		})
	}
}

// question waits for an open question.
func question(t *testing.T, g *gateway.Gateway) (q struct{ ID, Session, Message string }) {
	t.Helper()
	defer g.Watch()()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for ctx.Err() == nil {
		n := g.Changes()
		if all := g.Questions(); len(all) > 0 {
			q.ID, q.Session, q.Message = all[0].ID, all[0].Session, all[0].Message
			return q
		}
		_ = g.WaitChange(ctx, n)
	}
	t.Fatal("nobody is asked, want a question")
	return q
}

// Changes reach sessions, and a flood of them costs a few updates.
func TestListChanges(t *testing.T) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			_, h := r.session("one", "/w")
			server := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
			add := func(name string) {
				server.AddTool(&mcp.Tool{Name: name, InputSchema: anyObject},
					func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
						return text("x"), nil
					})
			}
			add("first")
			r.bridge(serveHTTP(t, server, era))
			h.has(t, "first")
			add("second")
			h.has(t, "first", "second")
			server.RemoveTools("first")
			h.has(t, "second")
			h.mu.Lock()
			before := h.lists
			h.mu.Unlock()
			began := time.Now()
			for i := range 150 { // 100 a second, as a hostile server does
				server.RemoveTools("second", fmt.Sprint("t", i-1))
				add(fmt.Sprint("t", i))
				<-time.After(10 * time.Millisecond)
			}
			h.has(t, "t149")
			h.mu.Lock()
			defer h.mu.Unlock()
			if n, most := h.lists-before, 4+int(time.Since(began)/changeGap); n > most {
				t.Errorf("150 changes made %d lists in %v, want at most %d", n, time.Since(began),
					most)
			}
		})
	}
}

// A call that is cancelled ends at the server, too; a server that is killed ends its calls with
// DISCONNECTED.
func TestCancelAndKill(t *testing.T) {
	r := newRig(t)
	s, h := r.session("one", "/w")
	b := r.bridge(program("kill"))
	h.has(t, "ask", "echo", "fail", "list", "pid", "release", "steps", "sum")
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan gateway.Outcome, 1)
	call := func(ctx context.Context) {
		result <- s.CallTool(ctx, gateway.Call{Name: "pid", Args: protocol.Raw("{}")})
	}
	go call(ctx)
	line := waitTimeline(t, s, "pid: pid ")
	cancel()
	if o := <-result; o.ErrorCode != protocol.CodeCancelled {
		t.Errorf("the cancelled call ends with %s, want CANCELLED", o.Text())
	}
	go call(t.Context())
	pid, err := strconv.Atoi(regexp.MustCompile(`pid (\d+)\.`).FindStringSubmatch(line)[1])
	if err != nil {
		t.Fatal(err)
	}
	waitRunning(t, s)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if o := <-result; o.ErrorCode != protocol.CodeDisconnected {
		t.Errorf("the call of the killed server ends with %s, want DISCONNECTED", o.Text())
	}
	h.has(t)
	if err := <-b.done; err == nil ||
		!strings.Contains(err.Error(), fmt.Sprintf("process %d ended: signal: killed", pid)) {
		t.Errorf("the bridge ends with %v, want the process and its signal", err)
	}
	b.done <- nil
}

// waitRunning waits until the second call has told of itself.
func waitRunning(t *testing.T, s *gateway.Session) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for ctx.Err() == nil {
		lines, cursor := s.Timeline(0)
		n := 0
		for _, l := range lines {
			if strings.Contains(l.Message, "pid: pid ") {
				n++
			}
		}
		if n > 1 {
			return
		}
		_ = s.WaitTimeline(ctx, cursor)
	}
	t.Fatal("the second call does not begin, want it to run")
}

// The error about a server that can't be started has its output, and a server that ends is not
// started again here.
func TestPrograms(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    configs.Provider
		want string
	}{
		{"crash", program("crash"), "exit status 3"},
		{"junk", program("junk"), "connecting to the MCP server"},
		{"none", configs.Provider{Command: []string{"/no/such/program"}},
			"starting /no/such/program"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newRig(t).bridge(tt.p)
			err := <-b.done
			b.done <- err
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("the bridge ends with %v, want %q in it", err, tt.want)
			}
		})
	}
}

// A server of one session gets its directory as root; one of all sessions gets no root.
func TestRoots(t *testing.T) {
	for root, want := range map[string]string{"/w/it is": "file:///w/it%20is", "": ""} {
		r := newRig(t)
		s, h := r.session("one", "/w")
		p := serveHTTP(t, rootServer(), handshakeVersion)
		r.bridge(p, func(o *Options) { o.Root = root })
		h.has(t, "roots")
		got := callTool(s, "roots", "{}").Text()
		if got != want {
			t.Errorf("with the root %q the server sees %q, want %q", root, got, want)
		}
	}
}

func rootServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	s.AddTool(&mcp.Tool{Name: "roots", InputSchema: anyObject},
		func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return text("%s", rootsOf(ctx, req)), nil
		})
	return s
}
