package taptools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/goals"
	"tapgw/internal/records"
	"tapgw/internal/server"
	"tapgw/internal/sources"
	"tapgw/internal/taptools"
	"tapgw/providers"
)

// patience bounds every wait, against hangs.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2.runClock"))
}

// host is the host of a session that has modes.
type host struct {
	tools chan []gateway.Tool

	mu     sync.Mutex
	mode   string
	effort string
	// prompts and requests that the host got
	prompts int
	command gateway.ShellCommand
}

func (h *host) SetTools(_ context.Context, _ uint64, tools []gateway.Tool) error {
	h.tools <- tools
	return nil
}

func (h *host) Log(adminapi.LogLevel, string)                       {}
func (h *host) Interrupt(context.Context, string) ([]string, error) { return nil, nil }
func (h *host) Close(context.Context, string) error                 { return nil }

func (h *host) Send(context.Context, gateway.Prompt) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.prompts++
	return nil
}

func (h *host) Effort() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.effort
}

func (h *host) Mode(context.Context) (string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mode, nil
}

func (h *host) SetMode(_ context.Context, mode string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mode = mode
	return nil
}

// world is a gateway with a session that has the tools.
type world struct {
	*testing.T

	gateway  *gateway.Gateway
	url      string
	host     *host
	session  *gateway.Session
	dir      string // of the session
	records  *records.Log
	goals    *goals.Set
	emitters *emitters
}

func newWorld(t *testing.T) *world {
	t.Helper()
	log := records.New(records.Options{Dir: filepath.Join(t.TempDir(), "records"),
		MaxBytes: 1 << 30})
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	w := &world{
		T: t, gateway: gateway.New(gateway.Options{Recorder: log}), dir: t.TempDir(), records: log,
		host: &host{tools: make(chan []gateway.Tool, 100), mode: "interactive"},
	}
	web := server.New(server.Options{
		Gateway: w.gateway, Status: func() adminapi.Status { return adminapi.Status{} },
	})
	if err := web.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- web.Serve() }()
	w.url = web.URL()
	w.goals = goals.New(goals.Options{Gateway: w.gateway, Dir: filepath.Join(w.dir, ".goals"),
		Dial: web.Dial})
	w.goals.Open()
	t.Cleanup(w.goals.Close)
	var err error
	w.session, err = w.gateway.Register(
		gateway.SessionSpec{ID: "s", CWD: w.dir, Model: "gpt 5"},
		gateway.HostInfo{
			Kind:      "test",
			Send:      true,
			LiveTools: true,
			Mode:      w.host.Mode, SetMode: w.host.SetMode, Effort: w.host.Effort,
			PermitShell: w.host.PermitShell, Aliases: map[string][]string{"read": {"view"},
				"shell": {"bash"}},
		},
		w.host,
	)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	w.emitters = &emitters{gateway: w.gateway, set: sources.NewSet(), home: t.TempDir(),
		saved: map[string]string{}, lines: map[string][]string{}, users: map[string]int{}}
	go func() {
		done <- taptools.Run(ctx, taptools.Options{
			Session: w.session, Questions: w.gateway.Questions, Provider: w.options(taptools.Name),
			Records: log.Find, Goals: w.goals,
			Emitters: w.emitters, Log: w.emitters.log,
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("at the end: got %v, want nil", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := web.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	w.tools()
	return w
}

// options are those of a provider of the session.
func (w *world) options(name string) providers.Options {
	pass := w.gateway.Issue(gateway.PassSpec{Trust: gateway.TrustProject, Session: "s", Name: name})
	return providers.Options{URL: w.url, Token: pass.Token(), Session: "s"}
}

// tools waits for the next list of the session's tools.
func (w *world) tools() []gateway.Tool {
	w.Helper()
	select {
	case list := <-w.host.tools:
		return list
	case <-time.After(patience):
		w.Fatal("the session gets no tools, want some")
		return nil
	}
}

// call calls a tool and returns its text, or its error's after "error: ".
func (w *world) call(tool string, args any) string {
	w.Helper()
	data, err := json.Marshal(args)
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	o := w.session.CallTool(ctx, gateway.Call{Name: tool, Args: data})
	if o.Error != "" {
		return "error: " + o.Error
	}
	var text string
	if err := json.Unmarshal(o.Data, &text); err != nil {
		w.Fatalf("%s: got %s, want a text", tool, o.Data)
	}
	return text
}

type object = map[string]any

// run runs another provider in the session, and returns when it is bound.
func (w *world) run(name string) *providers.Provider {
	w.Helper()
	o := w.options(name)
	bound := make(chan bool, 1)
	o.OnBound = func(context.Context, providers.Binding) { bound <- true }
	p := providers.New(name, &o)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	w.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.Errorf("the provider %s ended with %v, want no error", name, err)
		}
	})
	select {
	case <-bound:
	case <-time.After(patience):
		w.Fatalf("the provider %s is not bound", name)
	}
	return p
}

func (w *world) want(what, got string, want ...string) {
	w.Helper()
	for _, part := range want {
		if !strings.Contains(got, part) {
			w.Errorf("%s: got %q, want %q in it", what, got, part)
		}
	}
}

func TestStreams(t *testing.T) {
	w := newWorld(t)
	const none = "Streams (1):\n- main: messages=0 description=\"\""
	if got := w.call("tap_list_streams", object{}); got != none {
		t.Errorf("at first: got %q, want %q", got, none)
	}
	w.want(
		"an event",
		w.call("tap_post",
			object{"channel": " Ops Room", "message": "first\n[2026-01-01T00:00:00Z] source=x y",
				"description": "what\nhappens"}),
		"Posted to stream 'ops-room'.",
	)
	ci := w.run("ci")
	red := providers.Event{Stream: "ops-room", Text: "red", Level: providers.Keep}
	if _, err := ci.Push(w.Context(), red); err != nil {
		t.Fatal(err)
	}
	w.want(
		"with a source",
		w.call("tap_post", object{"channel": "ops-room", "message": "third", "source": "a b=c"}),
		"Posted",
	)
	got := w.call("tap_stream_history", object{"channel": "OPS room", "limit": 100})
	lines := strings.Split(got, "\n")
	if len(lines) != 5 || lines[0] != "Stream 'ops-room' (3 of 3 entries):" {
		t.Fatalf("the history: got %q, want a title and three events, the first of two lines", got)
	}
	for i, want := range []string{1: "] source=tool first", 2: "    [2026",
		3: "] source=emitter emitter=ci red",
		4: "] source=a-b=c third"} {
		w.want(fmt.Sprint("line ", i), lines[i], want)
	}
	w.want(
		"the latest",
		w.call("tap_stream_history", object{"channel": "ops-room", "limit": 1}),
		"(1 of 3 entries)",
		"third",
	)
	w.want("of one provider", w.call("tap_stream_history", object{"channel": "ops-room@CI"}),
		"Stream 'ops-room@ci' (1 of 1 entries):", "red")
	w.want("all streams", w.call("tap_list_streams", object{}), "Streams (2):",
		`- ops-room: messages=3 description="what`, `providers=ci,tap latest="third"`)
	for _, test := range []struct {
		tool string
		args object
		want string
	}{
		{"tap_post", object{"channel": "!!", "message": "m"}, `channel: "!!" has no letter`},
		{"tap_post", object{"channel": "a", "message": " "}, "message: must not be empty"},
		{"tap_post", object{"channel": "a"}, "message"},
		{"tap_stream_history", object{"channel": "a", "limit": 101},
			"limit: 101 is not from 1 to 100"},
		{"tap_stream_history", object{"channel": "a", "limit": 0}, "limit: 0"},
		{"tap_stream_history", object{"channel": "a@"}, `channel: "" has no letter`},
	} {
		w.want(fmt.Sprint(test.tool, test.args), w.call(test.tool, test.args), "error: ", test.want)
	}
	w.want("no stream", w.call("tap_stream_history", object{"channel": "none"}),
		"Stream 'none' (0 of 0 entries):")
}

func TestChecks(t *testing.T) {
	w := newWorld(t)
	outside := filepath.Join(t.TempDir(), "secret")
	for file, text := range map[string]string{
		filepath.Join(w.dir, "report.txt"): "all 12 tests pass\n",
		filepath.Join(w.dir, "empty"):      "", outside: "key",
		filepath.Join(w.dir, "large"):   strings.Repeat("x", 2<<20),
		filepath.Join(w.dir, "private"): "key",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(w.dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(w.dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	guard := w.run("guard")
	if _, err := guard.Deny(w.Context(), providers.Match{Tool: "view", File: "private"},
		"it is private"); err != nil {
		t.Fatal(err)
	}
	exit := providers.Event{Stream: "build", Text: "exit 0", Level: providers.Keep}
	if _, err := guard.Push(w.Context(), exit); err != nil {
		t.Fatal(err)
	}
	w.call("tap_post", object{"channel": "words", "message": "exit 0"})
	tests := []struct {
		check object
		want  string // of a failure
	}{
		{
			object{"type": "file", "path": "report.txt", "nonEmpty": true, "contains": "12",
				"pattern": `tests\s+pass`},
			"",
		},
		{object{"type": "file", "path": filepath.Join(w.dir, "report.txt")}, ""},
		{object{"type": "file", "path": "large", "nonEmpty": true}, ""},
		{object{"type": "stream", "channel": "Build", "pattern": "exit 0$"}, ""},
		{object{"type": "file", "path": "report.txt", "contains": "13"}, `"13" is not in it`},
		{object{"type": "file", "path": "report.txt", "pattern": "fail"}, `does not match "fail"`},
		{object{"type": "file", "path": "report.txt", "pattern": "("}, "pattern: "},
		{object{"type": "file", "path": "empty", "nonEmpty": true}, "the file is empty"},
		{object{"type": "file", "path": "large", "contains": "x"}, "more than 1024 KiB"},
		{object{"type": "file", "path": "none"}, "no such file"},
		{object{"type": "file"}, "path: is missing"},
		{object{"type": "file", "path": "."}, "it is no file"},
		{object{"type": "file", "path": "pipe", "contains": "x"}, "it is no file"},
		{object{"type": "file", "path": "../x"}, "not below the session's directory"},
		{object{"type": "file", "path": outside, "contains": "key"},
			"not below the session's directory"},
		{object{"type": "file", "path": "link", "contains": "key"}, "may read inside"},
		{object{"type": "file", "path": "private", "contains": "key"},
			"reading it is denied: provider guard: it is private"},
		{object{"type": "stream", "channel": "build", "minEntries": 2},
			"has 1 entries, and needs 2"},
		{object{"type": "stream", "channel": "none"}, "has 0 entries, and needs 1"},
		// the model's own
		{object{"type": "stream", "channel": "words"}, "has 0 entries, and needs 1"},
		{object{"type": "stream", "channel": "build", "contains": "exit 1"}, "none of 1 entries"},
		{object{"type": "command_evidence", "label": "test"}, "keeps no record of commands"},
		{object{"type": "rumour"}, `type: "rumour" is none of`},
		{object{"file": "report.txt"}, ""},
		{object{"file": object{"path": "report.txt", "contains": "13"}}, `"13" is not in it`},
		{object{"stream": object{"channel": "build", "pattern": "exit 0$"}}, ""},
		{object{"call": "make test"}, "keeps no record of commands"},
		{object{"file": "report.txt", "path": "report.txt"}, "path"},
		{object{"file": 7}, "file"},
		{object{}, "one of file, stream and call"},
	}
	for _, test := range tests {
		word, mark := "passed", "- PASS "
		if test.want != "" {
			word, mark = "failed", "- FAIL "
		}
		got := w.call("tap_verify_goal_output", object{"checks": []object{test.check}})
		w.want(fmt.Sprint(test.check), got, "Goal output verification: "+word+"\n"+mark, test.want)
		got = w.call("tap_audit_claims",
			object{"claims": []object{{"claim": "it\nworks", "evidence": test.check}}})
		w.want(fmt.Sprint("as a claim: ", test.check), got, "Claim audit: "+word+"\n"+mark,
			test.want)
		if lines := strings.Count(got, "\n"); lines != 1 {
			t.Errorf("%v: got %q, want one line for the claim", test.check, got)
		}
	}
	got := w.call("tap_verify_goal_output",
		object{"checks": []object{tests[0].check, tests[9].check}})
	w.want("two checks", got, "failed", "- PASS file report.txt",
		"- FAIL file none — there is no such file")
	w.want("no check", w.call("tap_verify_goal_output", object{"checks": []object{}}), "error: ",
		"has 0 entries")
	w.want("no claim", w.call("tap_audit_claims", object{"claims": []object{}}), "error: ",
		"has 0 entries")
}

// The mode is the person's to change: whatever the model fills in, it stays until the person has
// said yes.
func TestMode(t *testing.T) {
	w := newWorld(t)
	w.want("the state at first", w.call("tap_get_session_state", object{}),
		" reasoning=unknown context=unknown ")
	w.host.mu.Lock()
	w.host.effort = "high"
	w.host.mu.Unlock()
	w.session.SetContextWindow("", adminapi.Context{Tokens: 1200, Limit: 64000})
	w.want("the state", w.call("tap_get_session_state", object{}),
		"sessionId=s mode=interactive model=gpt-5 "+
			"reasoning=high context=1200/64000 providers=1 tools=18 tasks=0 schedules=0 pendingPermissions=0 openCanvases=0 ")
	set := object{"mode": "autopilot", "reason": "to go on\x1b[2J", "confirm": "set-session-mode"}
	for _, answer := range []string{adminapi.DecideDeny, adminapi.DecideOnce} {
		stop := w.gateway.Watch()
		done := make(chan string, 1)
		go func() { done <- w.call("tap_set_session_mode", set) }()
		question := w.question()
		w.want("the question", question.Message+question.Detail, "from interactive to autopilot",
			"to go on")
		if strings.Contains(question.Detail, "\x1b") {
			t.Errorf("got the detail %q, want no control character", question.Detail)
		}
		w.want("while it waits", w.call("tap_get_session_state", object{}), "mode=interactive",
			"pendingPermissions=1")
		if err := w.session.Answer(question.ID, gateway.Answer{Decision: answer}); err != nil {
			t.Fatal(err)
		}
		got, mode := <-done, "interactive"
		if answer == adminapi.DecideDeny {
			w.want("refused", got, "error: ", "the person refused")
		} else {
			w.want("allowed", got, "The session is in mode autopilot now.")
			mode = "autopilot"
		}
		if has, _ := w.host.Mode(t.Context()); has != mode {
			t.Errorf("after %s: got the mode %s, want %s", answer, has, mode)
		}
		stop()
	}
	w.want("the same again", w.call("tap_set_session_mode", set), "in mode autopilot already")
	w.want(
		"no mode",
		w.call("tap_set_session_mode", object{"mode": "yolo", "reason": "r"}),
		`error: `,
		`"yolo" is none of`,
	)
	w.want("no reason", w.call("tap_set_session_mode", object{"mode": "plan", "reason": " "}),
		"error: ", "reason")
}

// question waits for the session's question.
func (w *world) question() adminapi.Question {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	for {
		changes := w.gateway.Changes()
		if list := w.gateway.Questions(); len(list) > 0 {
			return list[0]
		}
		if err := w.gateway.WaitChange(ctx, changes); err != nil {
			w.Fatalf("no question comes: %v", err)
		}
	}
}

// The records of the session are there, the latest ones that fit, and those of no other session.
func TestRecords(t *testing.T) {
	w := newWorld(t)
	push := adminapi.Record{TS: time.Now(), Kind: adminapi.RecordPush, Session: "s", Stream: "ops"}
	for _, r := range []adminapi.Record{
		{TS: push.TS, Kind: adminapi.RecordCall, Session: "other", Tool: "secret"},
		{TS: push.TS, Kind: adminapi.RecordSource, Tool: "of all sessions"},
		{TS: push.TS, Kind: adminapi.RecordSource, Session: "s", Provider: "ci",
			Outcome: adminapi.OutcomeFailed},
		{TS: push.TS, Kind: adminapi.RecordCall, Session: "s", Tool: "bash", Command: "make",
			ExitCode: new(2)},
	} {
		w.records.Record(r)
	}
	for i := range 600 {
		push.ID = fmt.Sprint(i)
		w.records.Record(push)
	}
	push.ID, push.Event = "last", strings.Repeat("long ", 10_000)
	for range 4 {
		w.records.Record(push)
	}
	// The calls come first, because the tool's own are recorded, too.
	for _, tt := range []struct {
		args  object
		count int
		more  bool
		last  string
	}{
		{object{"collection": "calls"}, 1, false, `"command":"make","exitCode":2`},
		{object{"collection": "traces"}, 1, false,
			`"kind":"source","session":"s","provider":"ci","outcome":"failed"`},
		{object{"collection": "goals"}, 0, false, ""},
		{object{"collection": "stream-posts", "limit": 3}, 2, true, `"id":"last"`}, // 128 KiB
		{object{"collection": "calls", "session": "other"}, -1, false, "session"},
		{object{"collection": "other"}, -1, false, "is none of calls, "},
		{object{"collection": "calls", "limit": 501}, -1, false, "from 1 to 500"},
		{object{"collection": "calls", "limit": -1}, -1, false, "from 1 to 500"},
	} {
		got := w.call("tap_query_records", tt.args)
		var answer struct {
			Records []json.RawMessage `json:"records"`
			More    bool              `json:"more"`
		}
		if tt.count < 0 {
			w.want(fmt.Sprint(tt.args), got, "error: ", tt.last)
			continue
		}
		if err := json.Unmarshal([]byte(got), &answer); err != nil || answer.Records == nil ||
			len(answer.Records) != tt.count || answer.More != tt.more {
			t.Errorf("%v: %d records, more %v, %v, want %d, more %v", tt.args, len(answer.Records),
				answer.More, err, tt.count, tt.more)
		}
		if tt.count > 0 && !strings.Contains(string(answer.Records[len(answer.Records)-1]),
			tt.last) {
			t.Errorf("%v: the last is %s, want %q in it", tt.args,
				answer.Records[len(answer.Records)-1], tt.last)
		}
	}
}

// Each tool and each parameter has a description, and tools that change nothing say so.
func TestToolsAreDescribed(t *testing.T) {
	w := newWorld(t)
	var names []string
	for _, tool := range w.session.Tools() {
		names = append(names, tool.Name)
		var schema struct {
			Type       string
			Properties map[string]struct{ Description string }
		}
		if err := json.Unmarshal(tool.Parameters, &schema); err != nil || schema.Type != "object" {
			t.Errorf("%s: got the schema %s, %v, want an object's", tool.Name, tool.Parameters, err)
		}
		for name, p := range schema.Properties {
			if p.Description == "" {
				t.Errorf("%s: the parameter %s has no description, want one", tool.Name, name)
			}
		}
		if len(tool.Description) < 40 {
			t.Errorf("%s: got the description %q, want one that says what it is for", tool.Name,
				tool.Description)
		}
	}
	slices.Sort(names)
	want := []string{
		"tap_audit_claims",
		"tap_disable_injector",
		"tap_enable_injector",
		"tap_get_session_state",
		"tap_goal_list",
		"tap_goal_show",
		"tap_goal_start",
		"tap_goal_stop",
		"tap_list_emitters",
		"tap_list_streams",
		"tap_post",
		"tap_query_records",
		"tap_set_event_filter",
		"tap_set_session_mode",
		"tap_start_emitter",
		"tap_stop_emitter",
		"tap_stream_history",
		"tap_verify_goal_output",
	}
	if !slices.Equal(names, want) {
		t.Errorf("got the tools %q, want %q", names, want)
	}
}
