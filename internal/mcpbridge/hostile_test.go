package mcpbridge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tapgw/configs"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// rawServer answers as no SDK would: it speaks the handshake revisions, lists tools as written, and
// leaves calls to a function.
func rawServer(
	t *testing.T,
	tools string,
	call func(w http.ResponseWriter, r *http.Request, tool, id string),
) configs.Provider {
	t.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in struct {
			ID     json.RawMessage
			Method string
			Params struct{ Name string }
		}
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&in) != nil {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		answer := func(result string) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, in.ID, result)
		}
		switch in.Method {
		case "initialize":
			answer(
				`{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}`,
			)
		case "notifications/initialized", "notifications/cancelled":
			w.WriteHeader(http.StatusAccepted)
		case "tools/list":
			answer(`{"tools":[` + tools + `]}`)
		case "tools/call":
			call(w, r, in.Params.Name, string(in.ID))
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w,
				`{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}`, in.ID)
		}
	}))
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
	})
	return configs.Provider{MCP: configs.MCPUpstream{URL: web.URL}}
}

func plainTool(name string) string {
	return fmt.Sprintf(`{"name":%q,"description":"d","inputSchema":{"type":"object"}}`, name)
}

// A bad answer fails its call, and nothing else: the next call works on the same connection.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	flooded := make(chan struct{})
	answers := map[string]func(w http.ResponseWriter, r *http.Request, id string){
		"good": func(w http.ResponseWriter, _ *http.Request, id string) {
			w.Header().Set("Content-Type", "application/json; charset=utf-8")
			_, _ = fmt.Fprintf(w,
				`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"ok"}]}}`, id)
		},
		"huge": func(w http.ResponseWriter, _ *http.Request, id string) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprintf(w,
				`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s"}]}}`, id,
				strings.Repeat("x", 20<<20))
		},
		"junk": func(w http.ResponseWriter, _ *http.Request, _ string) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, "{not JSON")
		},
		"line": func(w http.ResponseWriter, r *http.Request, _ string) { // an event without end
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprint(w, "data: ")
			for chunk := []byte(strings.Repeat("x", 1<<20)); r.Context().Err() == nil; {
				_, _ = w.Write(chunk)
			}
		},
		"flood": func(w http.ResponseWriter, r *http.Request, _ string) { // events without end
			defer close(flooded)
			w.Header().Set("Content-Type", "text/event-stream")
			for r.Context().Err() == nil {
				_, _ = fmt.Fprint(w,
					"data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\","+
						"\"params\":{\"progressToken\":\"t4\",\"progress\":1,\"message\":\"\\u001b[2J\"}}\n\n")
			}
		},
	}
	var list []string
	for name := range answers {
		list = append(list, plainTool(name))
	}
	p := rawServer(t, strings.Join(list, ","),
		func(w http.ResponseWriter, r *http.Request, tool, id string) {
			answers[tool](w, r, id)
		})
	const callTime = 15 // seconds; a busy machine needs some for an answer of 20 MB
	p.Rules.Timeout = callTime * time.Second
	r := newRig(t)
	s, h := r.session("one", "/w")
	r.bridge(p)
	h.has(t, "flood", "good", "huge", "junk", "line")
	for _, c := range []struct{ tool, want string }{
		{"huge",
			"INTERNAL: the MCP server: calling \"tools/call\": the MCP server's answer has more than 16 MiB"},
		{"junk",
			"INTERNAL: the MCP server: calling \"tools/call\": the MCP server's answer is not JSON"},
		{"line",
			"INTERNAL: the MCP server: calling \"tools/call\": request terminated without response"},
		{"flood", "TIMEOUT"},
		{"good", "ok"},
	} {
		if o := callTool(s, c.tool, "{}"); !strings.HasPrefix(o.Text(), c.want) {
			t.Errorf("%s: %q, want %q at its start", c.tool, o.Text(), c.want)
		}
	}
	select {
	case <-flooded:
	case <-time.After(patience):
		t.Error("the stream goes on after its call has ended, want its end")
	}
	lines, _ := s.Timeline(0)
	shown := 0
	for _, l := range lines {
		if strings.Contains(l.Message, "\x1b") {
			t.Errorf("the timeline has %q, want no escape in it", l.Message)
		}
		if strings.HasPrefix(l.Message, "flood: ") {
			shown++
		}
	}
	if most := progressRate * (callTime + 2); shown == 0 || shown > most {
		t.Errorf("the flood made %d lines in the timeline, want 1 to %d", shown, most)
	}
}

// A server's message that lacks its parameters is refused, or passed over, and the call goes on.
func TestMissingParameters(t *testing.T) {
	t.Parallel()
	p := rawServer(t, plainTool("t"), func(w http.ResponseWriter, _ *http.Request, _, id string) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, method := range []string{
			"notifications/elicitation/complete", "notifications/resources/updated",
			"notifications/message", "notifications/progress", "notifications/cancelled",
			"notifications/tools/list_changed", "notifications/resources/list_changed",
			"notifications/subscriptions/acknowledged",
		} {
			_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":%q}\n\n", method)
			_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":%q,\"params\":null}\n\n",
				method)
		}
		for i, method := range []string{"elicitation/create", "roots/list",
			"sampling/createMessage", "ping"} {
			_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":%q}\n\n", 100+i,
				method)
		}
		_, _ = fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":"+
			"{\"content\":[{\"type\":\"text\",\"text\":\"ok\"}]}}\n\n", id)
	})
	r := newRig(t)
	s, h := r.session("one", "/w")
	r.bridge(withEvents(p, eventOf("mem://*", "", "keep"),
		configs.MCPEvent{Log: "debug", Level: "keep"}))
	h.has(t, "t")
	for range 3 { // requests of the server are answered beside the calls
		if o := callTool(s, "t", "{}"); o.Text() != "ok" {
			t.Errorf("the call ends with %q, want ok", o.Text())
		}
	}
}

// A list leaves out tools that are too large or wrong, and names them.
func TestHostileLists(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long_name_", 10)
	list := []string{
		plainTool(
			"good",
		), plainTool("a.b"), plainTool("a/b"), plainTool("good"), plainTool(long + "1"),
		plainTool(long + "2"),
		`{"name":"large","inputSchema":{"type":"object","description":"` +
			strings.Repeat("x", 5<<20) + `"}}`,
		`{"name":"text","inputSchema":{"type":"string"}}`,
		`{"name":"\u001b[2Jx","inputSchema":{"type":7}}`, `null`,
	}
	for i := range 10_000 {
		list = append(list, plainTool(fmt.Sprintf("t%05d", i)))
	}
	r := newRig(t)
	_, h := r.session("one", "/w")
	b := r.bridge(rawServer(t, strings.Join(list, ","), nil))
	tools := h.until(
		t,
		"100 tools",
		func(names []string, _ []gateway.Tool) bool { return len(names) == protocol.MaxTools },
	)
	names := map[string]bool{}
	for _, tool := range tools {
		names[tool.Name] = true
	}
	hash := func(valid, name string) string { return withHash(valid, name, maxName) }
	for _, want := range []string{
		"good", "a_b", hash("a_b", "a/b"), hash(long+"1", long+"1"), hash(long+"2", long+"2"),
		"t00000",
	} {
		if !names[want] {
			t.Errorf("the session has no tool %s, want it", want)
		}
	}
	for _, fault := range []string{
		"tool a/b is " + hash("a_b", "a/b") + " here: a_b is the name of the tool a.b",
		"tool good left out: the server lists it twice",
		"tool large left out: its description and schemas have 52",
		"tool text left out: its schema: must be the schema of",
		`tool \x1b[2Jx left out: its schema`,
		"9905 tools left out, t00095 and others: a provider has at most 100 tools",
	} {
		b.hasFault(fault)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, fault := range b.faults {
		if strings.ContainsRune(fault, '\x1b') || len(fault) > 1000 {
			t.Errorf("the fault %.2000q, want less than 1000 bytes and no escape", fault)
		}
	}
}

// A list without an end is read only up to the limit on memory, in either era.
func TestEndlessLists(t *testing.T) {
	for _, era := range []string{"2026-07-28", "2025-06-18"} {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			var pages atomic.Int64
			web := httptest.NewServer(
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					var in struct {
						ID     json.RawMessage
						Method string
					}
					if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&in) != nil ||
						in.ID == nil {
						w.WriteHeader(http.StatusAccepted)
						return
					}
					w.Header().Set("Content-Type", "application/json")
					answer := `"error":{"code":-32601,"message":"no"}`
					const about = `"capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}`
					switch {
					case in.Method == "server/discover" && era == eras[0]:
						answer = `"result":{"supportedVersions":["2026-07-28"],"resultType":"complete",` + about + `}`
					case in.Method == "initialize":
						answer = `"result":{"protocolVersion":"2025-06-18",` + about + `}`
					case in.Method == "tools/list":
						tool := fmt.Sprintf(
							`{"name":"t%d","description":"%s","inputSchema":{"type":"object"}}`,
							pages.Add(1), strings.Repeat("x", 6<<20))
						answer = fmt.Sprintf(
							`"result":{"tools":[%s],"nextCursor":"%d","resultType":"complete"}`,
							tool, pages.Load())
					}
					_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, in.ID, answer)
				}))
			t.Cleanup(func() {
				web.CloseClientConnections()
				web.Close()
			})
			b := newRig(t).bridge(configs.Provider{MCP: configs.MCPUpstream{URL: web.URL}})
			b.hasFault("the pages of the MCP server's lists have more than 16 MiB; tried again in ")
			if n := pages.Load(); n > 12 {
				t.Errorf("%d pages of 6 MiB were read, want a few", n)
			}
			b.until(era, func(lines, _ string) bool {
				return strings.Contains(lines, "connected by MCP "+era)
			})
		})
	}
}

// allow chooses among the tools of a server that has too many.
func TestAllowChooses(t *testing.T) {
	t.Parallel()
	var list []string
	for i := range 200 {
		list = append(list, plainTool(fmt.Sprintf("t%03d", i)))
	}
	p := rawServer(t, strings.Join(list, ","), nil)
	p.Rules = configs.ToolRules{Allow: []string{"t19?"}, Deny: []string{"*9"}}
	r := newRig(t)
	_, h := r.session("one", "/w")
	r.bridge(p)
	h.has(t, "t190", "t191", "t192", "t193", "t194", "t195", "t196", "t197", "t198")
}

// No header of the file reaches another host, in either era, and the fault names the redirect.
func TestRedirect(t *testing.T) {
	t.Setenv("THE_TOKEN", "s3cret")
	var reached atomic.Bool
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		reached.Store(true)
	}))
	defer other.Close()
	var authorization atomic.Value
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		authorization.Store(r.Header.Get("Authorization"))
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	defer front.Close()
	defer front.CloseClientConnections()
	r := newRig(t)
	b := r.bridge(configs.Provider{MCP: configs.MCPUpstream{
		URL: front.URL, Headers: map[string]string{"Authorization": "Bearer ${THE_TOKEN}"},
	}})
	b.hasFault(
		"the MCP server redirects to " + other.URL +
			", which the provider's file does not name; tried again in ",
	)
	if got := authorization.Load(); got != "Bearer s3cret" || reached.Load() {
		t.Errorf("the first host got %q and the second was reached: %v, want the token and false",
			got, reached.Load())
	}
}

// A server at a URL that goes away is named, and its tools come back with it.
func TestServerComesBack(t *testing.T) {
	for _, era := range eras {
		t.Run(era, func(t *testing.T) {
			t.Parallel()
			var isDown atomic.Bool
			server := toolServer()
			p := serveHTTP(t, server, era, func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if isDown.Load() {
						http.Error(w, "<html>closed</html>", http.StatusForbidden)
						return
					}
					next.ServeHTTP(w, r)
				})
			})
			r := newRig(t)
			s, h := r.session("one", "/w")
			b := r.bridge(p)
			h.has(t, "ask", "echo", "fail", "list", "release", "steps", "sum")
			isDown.Store(true)
			if o := callTool(s, "echo", `{"a":"b"}`); o.ErrorCode != protocol.CodeDisconnected {
				t.Errorf("the call that meets the end: %s, want DISCONNECTED", o.Text())
			}
			h.has(t)
			b.hasFault("Forbidden; tried again in ")
			isDown.Store(false)
			h.has(t, "ask", "echo", "fail", "list", "release", "steps", "sum")
			if o := callTool(s, "echo", `{"a":"b"}`); o.Text() != `{"a":"b"}` {
				t.Errorf("the call after that: %s, want its arguments", o.Text())
			}
			b.until("no fault", func(_, faults string) bool { return faults == "" })
		})
	}
}

// The status shows why a server is away and its faults, each text once.
func TestServerThatIsAwayIsOneFault(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	b := r.bridge(configs.Provider{MCP: configs.MCPUpstream{URL: "http://127.0.0.1:1/mcp"}})
	b.until("its fault as the trouble, too", func(lines, faults string) bool {
		return faults != "" && strings.Contains(lines, "trouble: "+faults+"\n")
	})
}
