package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
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
		Starters: map[string]gateway.Starter{gateway.HostLocal: gateway.LocalStarter{}, apiHostCopilot: f.copilot},
	})
	f.server = New(Options{Gateway: f.gateway, OpenREST: true, Status: func() adminapi.Status { return adminapi.Status{} }})
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
		{ID: "org/team/model-4.1", Name: "A model", Multiplier: 0.33}, {ID: "ends", Name: "Ends"}}, nil
}

func (c *restCopilot) Start(_ context.Context, g *gateway.Gateway, r gateway.StartRequest) (*gateway.Session, error) {
	if r.Model == "ends" {
		return nil, &protocol.Error{Code: protocol.CodeInternal, Message: "the runtime ended"}
	}
	return g.Register(gateway.SessionSpec{Label: r.Label, CWD: r.CWD, Model: r.Model},
		gateway.HostInfo{Kind: apiHostCopilot, Send: true}, restHost{c})
}

// restHost takes prompts and does nothing.
type restHost struct{ of *restCopilot }

func (restHost) SetTools(context.Context, uint64, []gateway.Tool) error { return nil }
func (h restHost) Send(context.Context, gateway.Prompt) error           { return h.of.refuse }
func (restHost) Log(gateway.LogLevel, string)                           {}
func (restHost) Interrupt(context.Context, string) ([]string, error)    { return nil, nil }
func (restHost) Close(context.Context, string) error                    { return nil }

// session registers a session that another host runs.
func (f *restFixture) session(id string) *gateway.Session {
	f.t.Helper()
	s, err := f.gateway.Register(gateway.SessionSpec{ID: id, Label: id, CWD: f.dir},
		gateway.HostInfo{Kind: "test", Send: true}, restHost{f.copilot})
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// try makes a request and returns the document that comes back.
func (f *restFixture) try(method, path, body string) (string, error) {
	r, err := http.NewRequestWithContext(f.t.Context(), method, f.url+"/api/"+path, strings.NewReader(body))
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
	case response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "application/json":
		return "", fmt.Errorf("%s %s: %s %s %s", method, path, response.Status, response.Header.Get("Content-Type"),
			data)
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

// is checks an answer: a JSON document with these members and no others.
func (f *restFixture) is(what, got, want string) {
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

// starts starts a session and returns its id.
func (f *restFixture) starts(model string) string {
	f.t.Helper()
	answer := f.post("copilot/session/start/"+model, f.dir)
	var m struct{ SessionID string }
	if err := json.Unmarshal([]byte(answer), &m); err != nil || m.SessionID == "" {
		f.t.Fatalf("starting a session: %s", answer)
	}
	f.is("start", answer, fmt.Sprintf(`{"sessionId":%q}`, m.SessionID))
	return m.SessionID
}

func (f *restFixture) live(id string) string {
	f.t.Helper()
	return f.get("copilot/session/" + url.PathEscape(id) + "/live")
}

// lives asks beside the test.
func (f *restFixture) lives(id string) <-chan string {
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
		if last := all[len(all)-1]; strings.Contains(last, until) || strings.Contains(last, `"error":"Session`) {
			return all
		}
	}
}

// are checks responses against JSON documents.
func (f *restFixture) are(got []string, want ...string) {
	f.t.Helper()
	if len(got) != len(want) {
		f.t.Fatalf("%d responses came, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	for i := range want {
		f.is(fmt.Sprintf("response %d", i+1), got[i], want[i])
	}
}

// The contract in the order in which spec/session-api.md has it, on a local
// session over real HTTP.
func TestRESTContract(t *testing.T) {
	t.Parallel()
	f := newRESTFixture(t)
	file := filepath.Join(f.dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(f.dir, "missing")

	// copilot/session/start/{model-id}: the faults, the first of several wins.
	for _, tc := range []struct{ model, dir, want string }{
		{"no-such-model", f.dir, "ModelIdNotFound"},
		{"no-such-model", "relative/path", "ModelIdNotFound"},
		{"Local", missing, "ModelIdNotFound"},
		{"", f.dir, "ModelIdNotFound"},
		{"org%2Fteam", missing, "ModelIdNotFound"},
		{"gpt-5-mini", "relative/path", "WorkingDirectoryNotAbsolutePath"},
		{"local", "relative/path", "WorkingDirectoryNotAbsolutePath"},
		{"local", "", "WorkingDirectoryNotAbsolutePath"},
		{"local", `C:\Code`, "WorkingDirectoryNotAbsolutePath"},
		{"local", missing, "WorkingDirectoryNotExists"},
		{"local", file, "WorkingDirectoryNotExists"},
		{"local", f.dir + "\x00", "WorkingDirectoryNotExists"},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			got, err := f.try(method, "copilot/session/start/"+tc.model, tc.dir)
			if err != nil {
				t.Fatal(err)
			}
			f.is(fmt.Sprintf("%s start %s in %q", method, tc.model, tc.dir), got, fmt.Sprintf(`{"error":%q}`, tc.want))
		}
	}
	if n := len(f.gateway.Sessions()); n != 0 {
		t.Fatalf("%d sessions were started by faults", n)
	}

	// Several sessions side by side, of one and another kind.
	id, other := f.starts("local"), f.starts("org%2Fteam%2Fmodel-4.1")
	if again := f.starts("org/team/model-4.1"); again == other || id == other {
		t.Error("two sessions have one id")
	}
	views := f.gateway.Sessions()
	if v := views[0]; v.ID != id || v.Host != "local" || v.CWD != f.dir {
		t.Errorf("the local session is %+v", v)
	}
	if v := views[1]; v.ID != other || v.Host != "copilot" || v.Model != "org/team/model-4.1" ||
		v.Label != filepath.Base(f.dir) {
		t.Errorf("the other session is %+v", v)
	}
	if v := views[2]; v.Model != "org/team/model-4.1" {
		t.Errorf("the third session is %+v", v)
	}

	// copilot/session/{session-id}/live: nothing for 5 seconds, and a second call.
	began := time.Now()
	first := f.lives(id)
	f.waits(id)
	f.is("a second live", f.live(id), `{"error":"ParallelCallNotSupported"}`)
	if got := <-first; got != `{"error":"HttpRequestTimeout"}` || time.Since(began) < 5*time.Second {
		t.Errorf("live on an idle session says %s after %s", got, time.Since(began))
	}

	// copilot/session/{session-id}/query, and what live says of it.
	(&apiFixture{t: t, gateway: f.gateway}).provide(id) // tools of providers are the session's
	for i, call := range []struct{ prompt, name, args, end, says string }{
		{`call:echo {"text":"hi"}`, "echo", `{"text":"hi"}`, `"result":{"content":"{\"echoed\":{\"text\":\"hi\"}}"}`,
			`{"echoed":{"text":"hi"}}`},
		{`call:fail`, "fail", `{}`, `"error":{"message":"no such thing","code":"NOT_FOUND"}`,
			`NOT_FOUND: no such thing`},
		{`call:risky`, "risky", `{}`, `"error":{"message":"too risky","code":"DENIED"}`, `DENIED: too risky`},
		{`call:echo {"text`, "echo", `"{\"text"`, `"error":{"message":"arguments of echo: `,
			"INVALID_ARGUMENTS: arguments of echo: "},
	} {
		f.is("query", f.post("copilot/session/"+id+"/query", call.prompt), `{}`)
		got := f.drain(id, "onIdle")
		if strings.HasSuffix(call.says, ": ") { // what the arguments lack is another's to say
			var end struct {
				Error struct{ Message, Code string }
			}
			if err := json.Unmarshal([]byte(got[2]), &end); err != nil || !strings.Contains(got[2], call.end) {
				t.Fatalf("the call ends with %s", got[2])
			}
			call.says = end.Error.Code + ": " + end.Error.Message
			call.end = fmt.Sprintf(`"error":{"message":%q,"code":%q}`, end.Error.Message, end.Error.Code)
		}
		n := i + 1
		f.are(
			got,
			fmt.Sprintf(`{"callback":"onAgentStart","turnId":"turn-%d"}`, n),
			fmt.Sprintf(`{"callback":"onStartToolExecution","toolCallId":"call-%d","toolName":%q,"toolArguments":%q}`,
				n, call.name, call.args),
			fmt.Sprintf(`{"callback":"onEndToolExecution","toolCallId":"call-%d",%s}`, n, call.end),
			fmt.Sprintf(`{"callback":"onStartMessage","messageId":"message-%d"}`, n),
			fmt.Sprintf(`{"callback":"onMessage","messageId":"message-%d","delta":%q}`, n, call.says),
			fmt.Sprintf(`{"callback":"onEndMessage","messageId":"message-%d","completeContent":%q}`, n, call.says),
			fmt.Sprintf(`{"callback":"onAgentEnd","turnId":"turn-%d"}`, n),
			`{"callback":"onIdle"}`,
		)
	}
	f.is("a query without a prompt", f.get("copilot/session/"+id+"/query"),
		`{"error":"the body is the prompt and must not be empty"}`)

	// A call that waits is answered by what comes.
	first = f.lives(id)
	f.waits(id)
	f.is("query", f.post("copilot/session/"+id+"/query", "hello"), `{}`)
	f.is("the call that waited", <-first, `{"callback":"onAgentStart","turnId":"turn-5"}`)

	// copilot/session/{session-id}/stop: what waits is drained, its end told once.
	f.is("query", f.post("copilot/session/"+id+"/query", "hello again"), `{}`)
	f.is("stop", f.post("copilot/session/"+id+"/stop", ""), `{"result":"Closed"}`)
	f.is("a second stop", f.get("copilot/session/"+id+"/stop"), `{"error":"SessionNotFound"}`)
	f.is("a query to a closed session", f.post("copilot/session/"+id+"/query", "hello"), `{"error":"SessionNotFound"}`)
	rest := f.drain(id, "never")
	if got := rest[len(rest)-1]; got != `{"error":"SessionClosed"}` ||
		!slices.Contains(rest, `{"callback":"onAgentEnd","turnId":"turn-5"}`) {
		t.Errorf("after the stop came\n%s", strings.Join(rest, "\n"))
	}
	f.is("live on a closed session", f.live(id), `{"error":"SessionNotFound"}`)

	// Ids that were never used.
	for _, verb := range []string{"stop", "query", "live"} {
		f.is(verb, f.post("copilot/session/none/"+verb, "x"), `{"error":"SessionNotFound"}`)
		f.is(verb, f.get("copilot/session/none/"+verb), `{"error":"SessionNotFound"}`)
	}
}

// waits returns when a call of live waits for a session's response.
func (f *restFixture) waits(id string) {
	f.t.Helper()
	f.until(func() bool { return f.caller(id) != nil })
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

// until waits for something that nothing tells.
func (f *restFixture) until(holds func() bool) {
	f.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(time.Minute)
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			f.t.Fatal("it did not come to that")
		}
	}
}

// The rest of what the contract's clients ask for.
func TestRESTSmallOnes(t *testing.T) {
	f := newRESTFixture(t)
	f.is("test", f.get("test"), `{"message":"Hello, world!"}`)
	f.is("models", f.get("copilot/models"),
		`{"models":[{"name":"GPT-5 mini","id":"gpt-5-mini","multiplier":0},{"name":"A model","id":"org/team/model-4.1","multiplier":0.33},{"name":"Ends","id":"ends","multiplier":0}]}`)

	var a, b struct{ Token string }
	for _, into := range []*struct{ Token string }{&a, &b} {
		if err := json.Unmarshal([]byte(f.post("token", "")), into); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.Token) != 36 || a.Token == b.Token {
		t.Errorf("tokens are %q and %q", a.Token, b.Token)
	}

	// A runtime that can't say which models it has, and one that fails.
	f.is("start", f.post("copilot/session/start/ends", f.dir), `{"error":"the runtime ended"}`)
	f.copilot.fail(&protocol.Error{Code: protocol.CodeInvalidState, Message: "not signed in"})
	f.is("models", f.get("copilot/models"), `{"models":[],"error":"not signed in"}`)
	f.is("start", f.post("copilot/session/start/gpt-5-mini", f.dir), `{"error":"ModelIdNotFound"}`)
	f.is("start", f.post("copilot/session/start/gpt-5-mini", "x"), `{"error":"ModelIdNotFound"}`)
	f.is("a body without end", f.post("copilot/session/start/local", strings.Repeat("/", apiMaxBody+1)),
		`{"error":"the body has more than 2097152 bytes"}`)
}

// A trailing newline, as shells send it, is no part of the directory.
func TestRESTWorkingDirectory(t *testing.T) {
	f := newRESTFixture(t)
	f.post("copilot/session/start/local", f.dir+"/\n")
	if v := f.gateway.Sessions(); len(v) != 1 || v[0].CWD != f.dir {
		t.Errorf("the sessions are %+v", v)
	}
}

func TestRESTConfig(t *testing.T) {
	f := newRESTFixture(t)
	root, err := filepath.EvalSymlinks(f.dir)
	if err != nil {
		t.Fatal(err)
	}
	deep := filepath.Join(root, "repo", "a", "b")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(deep)
	f.is("outside of a repository", f.get("config"), fmt.Sprintf(`{"repoRoot":%q}`, deep))
	// In a work tree .git is a file.
	if err := os.WriteFile(filepath.Join(root, "repo", ".git"), []byte("gitdir: elsewhere"), 0o600); err != nil {
		t.Fatal(err)
	}
	f.is("in a repository", f.post("config", ""), fmt.Sprintf(`{"repoRoot":%q}`, filepath.Join(root, "repo")))
}

// stop ends what clients of the contract started, and nothing else.
func TestRESTStopAll(t *testing.T) {
	f := newRESTFixture(t)
	mine, yours, other := f.starts("local"), f.starts("gpt-5-mini"), f.session("other")
	f.is("query", f.post("copilot/session/other/query", "hello"), `{}`)
	f.is("stop", f.post("stop", ""), `{}`)
	if v := f.gateway.Sessions(); len(v) != 1 || v[0].ID != "other" {
		t.Errorf("these sessions are left: %+v", v)
	}
	for _, id := range []string{mine, yours} {
		f.is("live", f.live(id), `{"error":"SessionClosed"}`)
	}
	f.is("stop, with none left", f.get("stop"), `{}`)
	f.is("stop", f.post("copilot/session/other/stop", ""), `{"result":"Closed"}`)
	<-other.Done()
}

// Every callback with exactly its members, as the interface has them.
func TestRESTCallbacks(t *testing.T) {
	f := newRESTFixture(t)
	id := f.starts("gpt-5-mini")
	s, _ := f.gateway.Session(id)
	for _, tc := range []struct {
		event gateway.Event
		want  string
	}{
		{gateway.Event{Callback: gateway.OnStartReasoning, ID: "r1"},
			`{"callback":"onStartReasoning","reasoningId":"r1"}`},
		{gateway.Event{Callback: gateway.OnReasoning, ID: "r1", Delta: "let me "},
			`{"callback":"onReasoning","reasoningId":"r1","delta":"let me "}`},
		{gateway.Event{Callback: gateway.OnEndReasoning, ID: "r1", Content: "let me see"},
			`{"callback":"onEndReasoning","reasoningId":"r1","completeContent":"let me see"}`},
		{gateway.Event{Callback: gateway.OnStartMessage, ID: "m1"}, `{"callback":"onStartMessage","messageId":"m1"}`},
		{gateway.Event{Callback: gateway.OnMessage, ID: "m1", Delta: "<b>\u2028&"},
			`{"callback":"onMessage","messageId":"m1","delta":"<b>\u2028&"}`},
		{gateway.Event{Callback: gateway.OnMessage, ID: "m1"}, `{"callback":"onMessage","messageId":"m1","delta":""}`},
		{gateway.Event{Callback: gateway.OnEndMessage, ID: "m1", Content: "", Forwarded: "assistant.message",
			Data: protocol.Raw(`{}`), Requests: []gateway.ToolRequest{{Name: "x"}}}, `{"callback":"onEndMessage","messageId":"m1","completeContent":""}`},
		{gateway.Event{Callback: gateway.OnStartToolExecution, ID: "c1", Tool: "greet", Args: `{"name":"Ada"}`,
			Provider: "p"}, `{"callback":"onStartToolExecution","toolCallId":"c1","toolName":"greet","toolArguments":"{\"name\":\"Ada\"}"}`},
		{gateway.Event{Callback: gateway.OnStartToolExecution, ID: "c2", ParentID: "c1", Tool: "view"},
			`{"callback":"onStartToolExecution","toolCallId":"c2","parentToolCallId":"c1","toolName":"view","toolArguments":"{}"}`},
		{gateway.Event{Callback: gateway.OnToolExecution, ID: "c1", Delta: "half", Tool: "greet"},
			`{"callback":"onToolExecution","toolCallId":"c1","delta":"half"}`},
		{gateway.Event{Callback: gateway.OnEndToolExecution, ID: "c1", ParentID: "c0", Tool: "greet",
			Result: &adminapi.ToolOutput{Content: "Hello",
				DetailedContent: "Hello, Ada"}}, `{"callback":"onEndToolExecution","toolCallId":"c1","result":{"content":"Hello","detailedContent":"Hello, Ada"}}`},
		{gateway.Event{Callback: gateway.OnEndToolExecution, ID: "c2", Result: &adminapi.ToolOutput{}},
			`{"callback":"onEndToolExecution","toolCallId":"c2","result":{"content":""}}`},
		{gateway.Event{Callback: gateway.OnEndToolExecution, ID: "c3",
			Error: &adminapi.ToolError{Message: "no",
				Code: "DENIED"}}, `{"callback":"onEndToolExecution","toolCallId":"c3","error":{"message":"no","code":"DENIED"}}`},
		{gateway.Event{Callback: gateway.OnEndToolExecution, ID: "c4", Error: &adminapi.ToolError{Message: "no"}},
			`{"callback":"onEndToolExecution","toolCallId":"c4","error":{"message":"no"}}`},
		{gateway.Event{Callback: gateway.OnAgentStart, ID: "0"}, `{"callback":"onAgentStart","turnId":"0"}`},
		{gateway.Event{Callback: gateway.OnAgentEnd, ID: "0"}, `{"callback":"onAgentEnd","turnId":"0"}`},
		{gateway.Event{SessionError: "the model is gone"}, `{"sessionError":"the model is gone"}`},
	} {
		s.Event(gateway.Event{UserMessage: "has no callback"})
		s.Event(tc.event)
		f.is(tc.event.Callback, f.live(id), tc.want)
	}
	s.Idle()
	f.is("onIdle", f.live(id), `{"callback":"onIdle"}`)
	if _, err := s.Push(t.Context(), "ci", &protocol.Push{Stream: "builds", Event: "red", Prompt: "the build is red",
		Level: protocol.LevelInject}); err != nil {
		t.Fatal(err)
	}
	f.is("a prompt that a push made", f.live(id), `{"callback":"onGeneratedUserPrompt","prompt":"the build is red"}`)
	s.Ended("its process died")
	f.is("a host that died", f.live(id), `{"sessionError":"the session's host is gone: its process died"}`)
	f.is("and then", f.live(id), `{"error":"SessionClosed"}`)
}

// What goes wrong inside a session is told by live.
func TestRESTQueryFails(t *testing.T) {
	f := newRESTFixture(t)
	f.copilot.refuse = errors.New("the model is on holiday")
	id := f.starts("gpt-5-mini")
	f.is("query", f.post("copilot/session/"+id+"/query", "hello"), `{}`)
	f.is("live", f.live(id), `{"sessionError":"sending the prompt: the model is on holiday"}`)
}
