package mcpbridge

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
	"tapgw/internal/gateway"
	"tapgw/internal/link"
	"tapgw/internal/protocol"
	"tapgw/internal/server"
	"tapgw/providers"
)

// patience bounds every wait, against hangs.
const patience = 60 * time.Second

// rig is a gateway with sessions.
type rig struct {
	t    *testing.T
	g    *gateway.Gateway
	url  string
	dial link.Dial
}

func newRig(t *testing.T, change ...func(*gateway.Options)) *rig {
	t.Helper()
	persist := server.Persist{Dir: t.TempDir()}
	options := gateway.Options{PersistDir: persist.Make, ReadFile: persist.Read}
	for _, c := range change {
		c(&options)
	}
	g := gateway.New(options)
	web := server.New(server.Options{Gateway: g, Status: func() adminapi.Status {
		return adminapi.Status{}
	}})
	if err := web.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- web.Serve() }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := web.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return &rig{t, g, web.URL(), web.Dial}
}

// host is a session's, and tells when its tools change.
type host struct {
	mu      sync.Mutex
	tools   []gateway.Tool
	lists   int
	prompts []string
	came    chan struct{} // holds one
}

func (h *host) SetTools(_ context.Context, _ uint64, tools []gateway.Tool) error {
	h.mu.Lock()
	h.tools, h.lists = tools, h.lists+1
	h.mu.Unlock()
	chans.Wake(h.came)
	return nil
}

func (h *host) Send(_ context.Context, p gateway.Prompt) error {
	h.mu.Lock()
	h.prompts = append(h.prompts, p.Text)
	h.mu.Unlock()
	chans.Wake(h.came)
	return nil
}

func (h *host) prompted() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.prompts)
}

func (h *host) Log(adminapi.LogLevel, string)                       {}
func (h *host) Interrupt(context.Context, string) ([]string, error) { return nil, nil }
func (h *host) Close(context.Context, string) error                 { return nil }

// session starts a session.
func (r *rig) session(id, dir string) (*gateway.Session, *host) {
	r.t.Helper()
	h := &host{came: make(chan struct{}, 1)}
	s, err := r.g.Register(
		gateway.SessionSpec{
			ID:    id,
			Label: id,
			CWD:   dir,
		},
		gateway.HostInfo{Kind: "test", Send: true, LiveTools: true},
		h,
	)
	if err != nil {
		r.t.Fatal(err)
	}
	return s, h
}

// until waits for a list of tools.
func (h *host) until(
	t *testing.T, want string, is func(names []string, tools []gateway.Tool) bool,
) []gateway.Tool {
	t.Helper()
	timeout := time.After(patience)
	for {
		h.mu.Lock()
		tools := h.tools
		h.mu.Unlock()
		var names []string
		for _, tool := range tools {
			names = append(names, tool.Name)
		}
		slices.Sort(names)
		if is(names, tools) {
			return tools
		}
		select {
		case <-h.came:
		case <-timeout:
			t.Fatalf("the session has the tools %q, want %s", names, want)
		}
	}
}

func (h *host) has(t *testing.T, want ...string) []gateway.Tool {
	t.Helper()
	return h.until(t, fmt.Sprintf("%q", want), func(names []string, _ []gateway.Tool) bool {
		return slices.Equal(names, want)
	})
}

// bridged is a bridge that runs.
type bridged struct {
	t    *testing.T
	stop func()
	done chan error

	mu     sync.Mutex
	lines  []string
	faults []string
	came   chan struct{} // holds one
}

// bridge runs a bridge for a server to all sessions, or to one.
func (r *rig) bridge(p configs.Provider, change ...func(*Options)) *bridged {
	r.t.Helper()
	p.Name, p.Kind = "srv", configs.KindMCP
	pass := r.g.Issue(gateway.PassSpec{Trust: gateway.TrustProject, All: true, Name: p.Name,
		Owner: "test"})
	b := &bridged{t: r.t, done: make(chan error, 1), came: make(chan struct{}, 1)}
	report := func(do func()) {
		b.mu.Lock()
		do()
		b.mu.Unlock()
		chans.Wake(b.came)
	}
	o := Options{
		Provider: p, Version: "test", Spans: r.g.Spans(), Metrics: r.g.Metrics(),
		Dir: r.t.TempDir(), Env: append(os.Environ(), "MCP_CHILD="+p.Env["MCP_CHILD"]),
		Gateway: providers.Options{
			URL: r.url, Token: pass.Token(), Session: providers.AllSessions,
			Logger: slog.New(slog.DiscardHandler),
		},
		Ask: func(ctx context.Context, session string, q gateway.Question) (gateway.Answer, error) {
			s, ok := r.g.Session(session)
			if !ok {
				return gateway.Answer{}, fmt.Errorf("no session %q", session)
			}
			return s.Ask(ctx, q)
		},
		Line: func(from, line string) {
			report(func() { b.lines = append(b.lines, from+": "+line) })
		},
		Faults: func(lines []string) { report(func() { b.faults = lines }) },
		Trouble: func(err error) {
			report(func() { b.lines = append(b.lines, fmt.Sprint("trouble: ", err)) })
		},
	}
	for _, c := range change {
		c(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { b.done <- Run(link.WithDial(ctx, r.dial), o) }()
	b.stop = cancel
	r.t.Cleanup(func() {
		cancel()
		select {
		case err := <-b.done:
			b.done <- err
		case <-time.After(patience):
			r.t.Error("the bridge does not end, want its end")
		}
		pass.Revoke()
	})
	return b
}

// until waits for something that the bridge reports.
func (b *bridged) until(want string, is func(lines, faults string) bool) {
	b.t.Helper()
	timeout := time.After(patience)
	for {
		b.mu.Lock()
		lines, faults := strings.Join(b.lines, "\n"), strings.Join(b.faults, "\n")
		b.mu.Unlock()
		if is(lines, faults) {
			return
		}
		select {
		case <-b.came:
		case <-timeout:
			b.t.Fatalf("the log is\n%s\nthe faults are\n%s\nwant %s", lines, faults, want)
		}
	}
}

func (b *bridged) hasFault(text string) {
	b.t.Helper()
	b.until("the fault "+text, func(_, faults string) bool {
		return strings.Contains(faults, text)
	})
}

func callTool(s *gateway.Session, tool, args string) gateway.Outcome {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.CallTool(ctx, gateway.Call{Name: tool, Args: protocol.Raw(args)})
}

// eras are the two ways of MCP.
var eras = []string{"2026-07-28", handshakeVersion}

// serveHTTP serves a server at a URL, in one era.
func serveHTTP(
	t *testing.T, s *mcp.Server, era string, wrap ...func(http.Handler) http.Handler,
) configs.Provider {
	t.Helper()
	get := func(*http.Request) *mcp.Server { return s }
	modern := mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
		Stateless: true, PropagateRequestCancellation: true,
	})
	legacy := mcp.NewStreamableHTTPHandler(get, nil)
	var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch isModern := r.Method == http.MethodPost &&
			r.Header.Get("MCP-Protocol-Version") >= eras[0]; {
		case isModern && era == handshakeVersion:
			http.Error(w, "what is that?", http.StatusBadRequest)
		case isModern:
			modern.ServeHTTP(w, r)
		default:
			legacy.ServeHTTP(w, r)
		}
	})
	for _, w := range wrap {
		h = w(h)
	}
	web := httptest.NewServer(h)
	t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		for session := range s.Sessions() {
			_ = session.Close()
		}
	})
	return configs.Provider{MCP: configs.MCPUpstream{URL: web.URL + "/mcp"}}
}

// program is the provider of a server that this program is.
func program(mode string) configs.Provider {
	return configs.Provider{Command: []string{os.Args[0]},
		Env: map[string]string{"MCP_CHILD": mode}}
}
