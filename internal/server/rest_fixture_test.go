package server

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// restFixture is a served gateway with local sessions and a stand-in for
// Copilot's, whose clients need no token.
type restFixture struct {
	t       *testing.T
	gateway *gateway.Gateway
	server  *Server
	url     string
	client  *http.Client
	dir     string
	copilot *restCopilot
}

// newRESTFixture serves on a port of the loopback.
func newRESTFixture(t *testing.T) *restFixture {
	t.Helper()
	f := makeRESTFixture(t)
	if err := f.server.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	f.url = "http" + strings.TrimPrefix(f.server.URL(), "ws")
	f.serve()
	return f
}

// newRESTBubble serves in memory, where a bubble's clock can wait.
func newRESTBubble(t *testing.T) *restFixture {
	t.Helper()
	f := makeRESTFixture(t)
	l := &restPipes{conns: make(chan net.Conn), done: make(chan struct{})}
	f.server.Use(l)
	f.url = "http://127.0.0.1:9400"
	f.client.Transport = &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return l.dial() },
	}
	f.serve()
	return f
}

func makeRESTFixture(t *testing.T) *restFixture {
	t.Helper()
	f := &restFixture{
		t:       t,
		dir:     t.TempDir(),
		copilot: &restCopilot{},
		client:  &http.Client{Transport: &http.Transport{}},
	}
	f.gateway = gateway.New(gateway.Options{
		Starters: map[string]gateway.Starter{gateway.HostLocal: gateway.LocalStarter{},
			apiHostCopilot: f.copilot},
	})
	f.server = New(Options{Gateway: f.gateway, OpenREST: true,
		Status: func() adminapi.Status { return adminapi.Status{} }})
	return f
}

func (f *restFixture) serve() {
	served := make(chan error, 1)
	go func() { served <- f.server.Serve() }()
	f.t.Cleanup(func() {
		f.client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := f.server.Shutdown(ctx); err != nil {
			f.t.Errorf("shutting down: %v", err)
		}
		if err := <-served; err != nil {
			f.t.Errorf("serving: %v", err)
		}
	})
}

// restPipes accepts connections in memory.
type restPipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *restPipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *restPipes) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *restPipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

func (l *restPipes) dial() (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return ours, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// restCopilot stands in for Copilot's account and models.
type restCopilot struct {
	fails  atomic.Pointer[error] // what its list of models and its starts say
	refuse error                 // what its sessions say to a prompt
}

func (c *restCopilot) fail(err error) { c.fails.Store(&err) }

func (c *restCopilot) Models(context.Context) ([]adminapi.Model, error) {
	if err := c.fails.Load(); err != nil {
		return nil, *err
	}
	return []adminapi.Model{{ID: "gpt-5-mini", Name: "GPT-5 mini"},
			{ID: "org/team/model-4.1", Name: "A model", Multiplier: 0.33},
			{ID: "ends", Name: "Ends"}},
		nil
}

func (c *restCopilot) Start(
	_ context.Context, g *gateway.Gateway, r gateway.StartRequest,
) (*gateway.Session, error) {
	if r.Model == "ends" {
		return nil, &protocol.Error{Code: protocol.CodeInternal, Message: "the runtime ended"}
	}
	return g.Register(gateway.SessionSpec{Label: r.Label, CWD: r.CWD, Model: r.Model},
		gateway.HostInfo{Kind: apiHostCopilot, Send: true, SetModel: setModel}, restHost{c})
}

// restHost takes prompts and does nothing.
type restHost struct{ copilot *restCopilot }

func (h restHost) Send(context.Context, gateway.Prompt) error { return h.copilot.refuse }

// session registers a session that another host runs.
func (f *restFixture) session(id string) *gateway.Session {
	f.t.Helper()
	s, err := f.gateway.Register(gateway.SessionSpec{ID: id, Label: id, CWD: f.dir},
		gateway.HostInfo{Kind: "test", Send: true, SetModel: setModel}, restHost{f.copilot})
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// try makes a request and returns the document that comes back.
func (f *restFixture) try(method, path, body string) (string, error) {
	return f.tryWithin(f.t.Context(), method, path, body)
}

func (f *restFixture) tryWithin(ctx context.Context, method, path, body string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, f.url+"/api/"+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	response, err := f.client.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return "", err
	case response.StatusCode != http.StatusOK ||
		response.Header.Get("Content-Type") != "application/json":
		return "", fmt.Errorf("%s %s: %s %s %s", method, path, response.Status,
			response.Header.Get("Content-Type"), data)
	}
	return strings.TrimSpace(string(data)), nil
}

func (f *restFixture) post(path, body string) string {
	f.t.Helper()
	answer, err := f.try(http.MethodPost, path, body)
	if err != nil {
		f.t.Fatal(err)
	}
	return answer
}

func (f *restFixture) get(path string) string {
	f.t.Helper()
	answer, err := f.try(http.MethodGet, path, "")
	if err != nil {
		f.t.Fatal(err)
	}
	return answer
}

// wantJSON checks an answer: a JSON document with these members and no others.
func (f *restFixture) wantJSON(what, got, want string) {
	f.t.Helper()
	if !sameJSON(f.t, got, want) {
		f.t.Errorf("%s: the answer is %.300s, want %.300s", what, got, want)
	}
}

func sameJSON(t *testing.T, got, want string) bool {
	t.Helper()
	var a, b map[string]any
	if err := json.Unmarshal([]byte(got), &a); err != nil {
		t.Errorf("%q: %v", got, err)
		return false
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatal(err)
	}
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// mustStart starts a session and returns its id.
func (f *restFixture) mustStart(model string) string {
	f.t.Helper()
	answer := f.post("copilot/session/start/"+model, f.dir)
	var m struct{ SessionID string }
	if err := json.Unmarshal([]byte(answer), &m); err != nil || m.SessionID == "" {
		f.t.Fatalf("starting a session: %s, want no error and a SessionID", answer)
	}
	f.wantJSON("start", answer, fmt.Sprintf(`{"sessionId":%q}`, m.SessionID))
	return m.SessionID
}

func (f *restFixture) live(id string) string {
	f.t.Helper()
	return f.get("copilot/session/" + url.PathEscape(id) + "/live")
}

// liveAsync calls live while the test goes on.
func (f *restFixture) liveAsync(id string) <-chan string {
	answer := make(chan string, 1)
	go func() {
		got, err := f.try(http.MethodPost, "copilot/session/"+url.PathEscape(id)+"/live", "")
		if err != nil {
			got = err.Error()
		}
		answer <- got
	}()
	return answer
}

// drain reads a session's responses until one says so, that one included.
func (f *restFixture) drain(id, until string) []string {
	f.t.Helper()
	var all []string
	for {
		all = append(all, f.live(id))
		if last := all[len(all)-1]; strings.Contains(last, until) ||
			strings.Contains(last, `"error":"Session`) {
			return all
		}
	}
}

// wantResponses checks responses against JSON documents.
func (f *restFixture) wantResponses(got []string, want ...string) {
	f.t.Helper()
	if len(got) != len(want) {
		f.t.Fatalf("%d responses came, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	for i := range want {
		f.wantJSON(fmt.Sprintf("response %d", i+1), got[i], want[i])
	}
}

// waitForCaller returns when a call of live waits for a session's response.
func (f *restFixture) waitForCaller(id string) {
	f.t.Helper()
	f.waitUntil(func() bool { return f.caller(id) != nil })
}

// caller is the one whom a session's live is to answer, nil for none.
func (f *restFixture) caller(id string) *restCaller {
	known := &f.server.rest.sessions
	known.mu.Lock()
	defer known.mu.Unlock()
	i := slices.IndexFunc(known.list, func(s *restSession) bool { return s.session.ID() == id })
	if i < 0 {
		return nil
	}
	s := known.list[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.caller
}

// waitUntil polls for a state that the gateway does not announce.
func (f *restFixture) waitUntil(holds func() bool) {
	f.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(time.Minute)
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			f.t.Fatal("waited in vain, want the condition to become true")
		}
	}
}
