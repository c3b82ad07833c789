package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

func (restHost) SetTools(context.Context, uint64, []gateway.Tool) error { return nil }
func (restHost) Log(adminapi.LogLevel, string)                          {}
func (restHost) Interrupt(context.Context, string) ([]string, error)    { return nil, nil }
func (restHost) Close(context.Context, string) error                    { return nil }

// A start that fails starts nothing. Of several faults the first check of docs/admin-api.md wins.
func TestRESTStartErrors(t *testing.T) {
	t.Parallel()
	f := newRESTFixture(t)
	file := filepath.Join(f.dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	missing := filepath.Join(f.dir, "missing")

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
			f.wantJSON(fmt.Sprintf("%s start %s in %q", method, tc.model, tc.dir), got,
				fmt.Sprintf(`{"error":%q}`, tc.want))
		}
	}
	if n := len(f.gateway.Sessions()); n != 0 {
		t.Errorf("got %d sessions after starts that failed, want 0", n)
	}
}

// Several sessions run side by side, of one and another host.
func TestRESTStart(t *testing.T) {
	t.Parallel()
	f := newRESTFixture(t)
	id, other := f.mustStart("local"), f.mustStart("org%2Fteam%2Fmodel-4.1")
	if again := f.mustStart("org/team/model-4.1"); again == other || id == other {
		t.Error("two sessions have one id, want different ids")
	}
	views := f.gateway.Sessions()
	if v := views[0]; v.ID != id || v.Host != "local" || v.CWD != f.dir {
		t.Errorf(`the local session is %+v, want ID %v, Host "local" and CWD %v`, v, id, f.dir)
	}
	if v := views[1]; v.ID != other || v.Host != "copilot" || v.Model != "org/team/model-4.1" ||
		v.Label != filepath.Base(f.dir) {
		t.Errorf(
			`the other session is %+v, want ID %v, Host "copilot", Model "org/team/model-4.1" and Label %v`,
			v, other, filepath.Base(f.dir),
		)
	}
	if v := views[2]; v.Model != "org/team/model-4.1" {
		t.Errorf(`the third session is %+v, want "org/team/model-4.1"`, v)
	}
}

// `live` answers after five seconds without a response, and a second caller at once.
func TestRESTLiveOfIdleSession(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for a timeout of 5 s")
	}
	t.Parallel()
	f := newRESTFixture(t)
	id := f.mustStart("local")
	began := time.Now()
	first := f.liveAsync(id)
	f.waitForCaller(id)
	f.wantJSON("a second live", f.live(id), `{"error":"ParallelCallNotSupported"}`)
	if got := <-first; got != `{"error":"HttpRequestTimeout"}` ||
		time.Since(began) < 5*time.Second {
		t.Errorf("live on an idle session answers %s after %s, want HttpRequestTimeout after 5s",
			got, time.Since(began))
	}
}

// `query` gives the session a prompt, and `live` has the responses of its turn in order.
func TestRESTQuery(t *testing.T) {
	t.Parallel()
	f := newRESTFixture(t)
	id := f.mustStart("local")
	(&apiFixture{t: t, gateway: f.gateway}).provide(id)
	for i, call := range []struct{ prompt, name, args, end, says string }{
		{`call:echo {"text":"hi"}`, "echo", `{"text":"hi"}`,
			`"result":{"content":"{\"echoed\":{\"text\":\"hi\"}}"}`,
			`{"echoed":{"text":"hi"}}`},
		{`call:fail`, "fail", `{}`, `"error":{"message":"no such thing","code":"NOT_FOUND"}`,
			`NOT_FOUND: no such thing`},
		{`call:risky`, "risky", `{}`,
			`"error":{"message":"provider sample: too risky","code":"DENIED"}`,
			`DENIED: provider sample: too risky`},
		{`call:echo {"text`, "echo", `"{\"text"`, `"error":{"message":"arguments of echo: `,
			"INVALID_ARGUMENTS: arguments of echo: "},
	} {
		f.wantJSON("query", f.post("copilot/session/"+id+"/query", call.prompt), `{}`)
		got := f.drain(id, "onIdle")
		if strings.HasSuffix(call.says, ": ") { // the text after it is the schema check's
			var end struct {
				Error struct{ Message, Code string }
			}
			if err := json.Unmarshal([]byte(got[2]), &end); err != nil ||
				!strings.Contains(got[2], call.end) {
				t.Fatalf("the call ends with %s, want %q in it", got[2], call.end)
			}
			call.says = end.Error.Code + ": " + end.Error.Message
			call.end = fmt.Sprintf(`"error":{"message":%q,"code":%q}`, end.Error.Message,
				end.Error.Code)
		}
		n := i + 1
		f.wantResponses(
			got,
			fmt.Sprintf(`{"callback":"onAgentStart","turnId":"turn-%d"}`, n),
			fmt.Sprintf(
				`{"callback":"onStartToolExecution","toolCallId":"call-%d","toolName":%q,"toolArguments":%q}`,
				n, call.name, call.args),
			fmt.Sprintf(`{"callback":"onEndToolExecution","toolCallId":"call-%d",%s}`, n, call.end),
			fmt.Sprintf(`{"callback":"onStartMessage","messageId":"message-%d"}`, n),
			fmt.Sprintf(`{"callback":"onMessage","messageId":"message-%d","delta":%q}`, n,
				call.says),
			fmt.Sprintf(`{"callback":"onEndMessage","messageId":"message-%d","completeContent":%q}`,
				n, call.says),
			fmt.Sprintf(`{"callback":"onAgentEnd","turnId":"turn-%d"}`, n),
			`{"callback":"onIdle"}`,
		)
	}
	f.wantJSON("a query without a prompt", f.get("copilot/session/"+id+"/query"),
		`{"error":"the body is the prompt and must not be empty"}`)
}

// A caller that waits gets the next response. `stop` leaves the queue to be read, and its end once.
func TestRESTStop(t *testing.T) {
	t.Parallel()
	f := newRESTFixture(t)
	id := f.mustStart("local")
	first := f.liveAsync(id)
	f.waitForCaller(id)
	f.wantJSON("query", f.post("copilot/session/"+id+"/query", "hello"), `{}`)
	f.wantJSON("the call that waited", <-first, `{"callback":"onAgentStart","turnId":"turn-1"}`)

	f.wantJSON("query", f.post("copilot/session/"+id+"/query", "hello again"), `{}`)
	f.wantJSON("stop", f.post("copilot/session/"+id+"/stop", ""), `{"result":"Closed"}`)
	f.wantJSON("a second stop", f.get("copilot/session/"+id+"/stop"), `{"error":"SessionNotFound"}`)
	f.wantJSON("a query to a closed session", f.post("copilot/session/"+id+"/query", "hello"),
		`{"error":"SessionNotFound"}`)
	rest := f.drain(id, "never")
	if got := rest[len(rest)-1]; got != `{"error":"SessionClosed"}` ||
		!slices.Contains(rest, `{"callback":"onAgentEnd","turnId":"turn-1"}`) {
		t.Errorf("after the stop came\n%s\nwant the end of turn-1 and at last SessionClosed",
			strings.Join(rest, "\n"))
	}
	f.wantJSON("live on a closed session", f.live(id), `{"error":"SessionNotFound"}`)
}

// A session id that was never used is SessionNotFound in every call.
func TestRESTUnknownSession(t *testing.T) {
	t.Parallel()
	f := newRESTFixture(t)
	for _, verb := range []string{"stop", "query", "live"} {
		f.wantJSON(verb, f.post("copilot/session/none/"+verb, "x"), `{"error":"SessionNotFound"}`)
		f.wantJSON(verb, f.get("copilot/session/none/"+verb), `{"error":"SessionNotFound"}`)
	}
}

// The rest of what the contract's clients ask for.
func TestRESTSimpleCalls(t *testing.T) {
	f := newRESTFixture(t)
	f.wantJSON("test", f.get("test"), `{"message":"Hello, world!"}`)
	f.wantJSON(
		"models",
		f.get("copilot/models"),
		`{"models":[{"name":"GPT-5 mini","id":"gpt-5-mini","multiplier":0},{"name":"A model","id":"org/team/model-4.1","multiplier":0.33},{"name":"Ends","id":"ends","multiplier":0}]}`,
	)

	var a, b struct{ Token string }
	for _, into := range []*struct{ Token string }{&a, &b} {
		if err := json.Unmarshal([]byte(f.post("token", "")), into); err != nil {
			t.Fatal(err)
		}
	}
	if len(a.Token) != 36 || a.Token == b.Token {
		t.Errorf("tokens are %q and %q, want two, of 36 characters", a.Token, b.Token)
	}

	// A runtime that can't say which models it has, and one that fails.
	f.wantJSON("start", f.post("copilot/session/start/ends", f.dir),
		`{"error":"the runtime ended"}`)
	f.copilot.fail(&protocol.Error{Code: protocol.CodeInvalidState, Message: "not signed in"})
	f.wantJSON("models", f.get("copilot/models"), `{"models":[],"error":"not signed in"}`)
	f.wantJSON("start", f.post("copilot/session/start/gpt-5-mini", f.dir),
		`{"error":"ModelIdNotFound"}`)
	f.wantJSON("start", f.post("copilot/session/start/gpt-5-mini", "x"),
		`{"error":"ModelIdNotFound"}`)
	f.wantJSON("a body without end",
		f.post("copilot/session/start/local", strings.Repeat("/", apiMaxBody+1)),
		`{"error":"the body has more than 2097152 bytes"}`)
}

// A trailing newline, as shells send it, is no part of the directory.
func TestRESTWorkingDirectory(t *testing.T) {
	f := newRESTFixture(t)
	f.post("copilot/session/start/local", f.dir+"/\n")
	if v := f.gateway.Sessions(); len(v) != 1 || v[0].CWD != f.dir {
		t.Errorf("the sessions are %+v, want one in %s", v, f.dir)
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
	f.wantJSON("outside of a repository", f.get("config"), fmt.Sprintf(`{"repoRoot":%q}`, deep))
	// In a work tree .git is a file.
	if err := os.WriteFile(filepath.Join(root, "repo", ".git"), []byte("gitdir: elsewhere"),
		0o600); err != nil {
		t.Fatal(err)
	}
	f.wantJSON("in a repository", f.post("config", ""),
		fmt.Sprintf(`{"repoRoot":%q}`, filepath.Join(root, "repo")))
}

// stop ends what clients of the contract started, and nothing else.
func TestRESTStopAll(t *testing.T) {
	f := newRESTFixture(t)
	mine, yours, other := f.mustStart("local"), f.mustStart("gpt-5-mini"), f.session("other")
	f.wantJSON("query", f.post("copilot/session/other/query", "hello"), `{}`)
	f.wantJSON("stop", f.post("stop", ""), `{}`)
	if v := f.gateway.Sessions(); len(v) != 1 || v[0].ID != "other" {
		t.Errorf(`these sessions are left: %+v, want only "other"`, v)
	}
	for _, id := range []string{mine, yours} {
		f.wantJSON("live", f.live(id), `{"error":"SessionClosed"}`)
	}
	f.wantJSON("stop, with none left", f.get("stop"), `{}`)
	f.wantJSON("stop", f.post("copilot/session/other/stop", ""), `{"result":"Closed"}`)
	<-other.Done()
}

// Every callback with exactly its members, as the interface has them.
func TestRESTCallbacks(t *testing.T) {
	f := newRESTFixture(t)
	id := f.mustStart("gpt-5-mini")
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
		{gateway.Event{Callback: gateway.OnStartMessage, ID: "m1"},
			`{"callback":"onStartMessage","messageId":"m1"}`},
		{gateway.Event{Callback: gateway.OnMessage, ID: "m1", Delta: "<b>\u2028&"},
			`{"callback":"onMessage","messageId":"m1","delta":"<b>\u2028&"}`},
		{gateway.Event{Callback: gateway.OnMessage, ID: "m1"},
			`{"callback":"onMessage","messageId":"m1","delta":""}`},
		{gateway.Event{Callback: gateway.OnEndMessage, ID: "m1", Content: "",
			Forwarded: "assistant.message",
			Data:      protocol.Raw(`{}`),
			Requests:  []gateway.ToolRequest{{Name: "x"}}},
			`{"callback":"onEndMessage","messageId":"m1","completeContent":""}`},
		{gateway.Event{Callback: gateway.OnStartToolExecution, ID: "c1", Tool: "greet",
			Args:     `{"name":"Ada"}`,
			Provider: "p"},
			`{"callback":"onStartToolExecution","toolCallId":"c1","toolName":"greet","toolArguments":"{\"name\":\"Ada\"}"}`},
		{gateway.Event{Callback: gateway.OnStartToolExecution, ID: "c2", ParentID: "c1",
			Tool: "view"},
			`{"callback":"onStartToolExecution","toolCallId":"c2","parentToolCallId":"c1","toolName":"view","toolArguments":"{}"}`},
		{gateway.Event{Callback: gateway.OnToolExecution, ID: "c1", Delta: "half", Tool: "greet"},
			`{"callback":"onToolExecution","toolCallId":"c1","delta":"half"}`},
		{gateway.Event{Callback: gateway.OnEndToolExecution, ID: "c1", ParentID: "c0",
			Tool: "greet",
			Result: &adminapi.ToolOutput{Content: "Hello",
				DetailedContent: "Hello, Ada"}},
			`{"callback":"onEndToolExecution","toolCallId":"c1","result":{"content":"Hello","detailedContent":"Hello, Ada"}}`},
		{gateway.Event{Callback: gateway.OnEndToolExecution, ID: "c2",
			Result: &adminapi.ToolOutput{}},
			`{"callback":"onEndToolExecution","toolCallId":"c2","result":{"content":""}}`},
		{gateway.Event{Callback: gateway.OnEndToolExecution, ID: "c3",
			Error: &adminapi.ToolError{Message: "no",
				Code: "DENIED"}},
			`{"callback":"onEndToolExecution","toolCallId":"c3","error":{"message":"no","code":"DENIED"}}`},
		{gateway.Event{Callback: gateway.OnEndToolExecution, ID: "c4",
			Error: &adminapi.ToolError{Message: "no"}},
			`{"callback":"onEndToolExecution","toolCallId":"c4","error":{"message":"no"}}`},
		{gateway.Event{Callback: gateway.OnAgentStart, ID: "0"},
			`{"callback":"onAgentStart","turnId":"0"}`},
		{gateway.Event{Callback: gateway.OnAgentEnd, ID: "0"},
			`{"callback":"onAgentEnd","turnId":"0"}`},
		{gateway.Event{SessionError: "the model is gone"}, `{"sessionError":"the model is gone"}`},
	} {
		s.Event(gateway.Event{UserMessage: "has no callback"})
		s.Event(tc.event)
		f.wantJSON(tc.event.Callback, f.live(id), tc.want)
	}
	s.Idle()
	f.wantJSON("onIdle", f.live(id), `{"callback":"onIdle"}`)
	if _, err := s.Push(t.Context(), "ci", &protocol.Push{Stream: "builds", Event: "red",
		Prompt: "the build is red",
		Level:  protocol.LevelInject}); err != nil {
		t.Fatal(err)
	}
	f.wantJSON("a prompt that a push made", f.live(id),
		`{"callback":"onGeneratedUserPrompt","prompt":"the build is red"}`)
	s.Ended("its process died")
	f.wantJSON("a host that died", f.live(id),
		`{"sessionError":"the session's host is gone: its process died"}`)
	f.wantJSON("and then", f.live(id), `{"error":"SessionClosed"}`)
}

// Errors inside a session come as responses of live.
func TestRESTQueryFails(t *testing.T) {
	f := newRESTFixture(t)
	f.copilot.refuse = errors.New("the model is on holiday")
	id := f.mustStart("gpt-5-mini")
	f.wantJSON("query", f.post("copilot/session/"+id+"/query", "hello"), `{}`)
	f.wantJSON("live", f.live(id), `{"sessionError":"sending the prompt: the model is on holiday"}`)
}
