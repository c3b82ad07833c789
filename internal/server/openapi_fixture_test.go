package server

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// openAPISupervisor runs the provider "filed".
type openAPISupervisor struct{}

func (openAPISupervisor) of(name string) (int, error) {
	if name != "filed" {
		return 0, noSupervisor(name)
	}
	return 1, nil
}
func (s openAPISupervisor) Stop(name string) (int, error)  { return s.of(name) }
func (s openAPISupervisor) Start(name string) (int, error) { return s.of(name) }
func (s openAPISupervisor) Restart(_ context.Context, name string) (adminapi.Restarted, error) {
	n, err := s.of(name)
	return adminapi.Restarted{Restarted: n}, err
}
func (s openAPISupervisor) Reload()                        {}
func (s openAPISupervisor) Settle(context.Context, string) {}
func (openAPISupervisor) Configured() []adminapi.ConfiguredProvider {
	return []adminapi.ConfiguredProvider{{
		Name: "filed", Kind: "command", File: "/p/filed.toml",
		State: adminapi.ConfiguredWaiting, Reason: "there is no session that it is for",
		Connected: []string{}, Actions: []string{adminapi.ActionStop},
	}}
}

// Login shows a link, and denies the login.
func (s openAPISupervisor) Login(
	_ context.Context, name string, show func(link string) error,
) error {
	if _, err := s.of(name); err != nil {
		return err
	}
	if err := show("https://as.example/authorize?state=x"); err != nil {
		return err
	}
	return &protocol.Error{Code: protocol.CodeDenied,
		Message: "the login for filed was refused: access_denied"}
}

func (s openAPISupervisor) Logout(_ context.Context, name string) (bool, error) {
	n, err := s.of(name)
	return n > 0, err
}

func (openAPISupervisor) Sources() []adminapi.Source {
	return []adminapi.Source{{
		Name: "filed", Kind: "run", State: adminapi.SourceWaiting, Session: "all", Stream: "filed",
		Runs:      1,
		LastRunAt: time.Now(), NextRunAt: time.Now().Add(time.Minute),
		Reason: "no session that it serves",
		File:   "/home/me/.config/tapgw/providers/filed.toml",
	}}
}

func (s openAPISupervisor) RunSource(name string) (int, error) { return s.of(name) }

func (s openAPISupervisor) Lines(
	name string, after uint64,
) ([]adminapi.TimelineLine, uint64, error) {
	_, err := s.of(name)
	lines := []adminapi.TimelineLine{
		{Seq: 1, TS: time.Now().UTC(), Level: adminapi.LogInfo, Source: "stdout",
			Message: "listening"},
	}
	return lines[min(after, 1):], 1, err
}

func (openAPISupervisor) WaitLines(context.Context, string, uint64) error {
	return gateway.ErrSessionEnded
}

var _ gateway.Host = restHost{}

// openAPIFixture is a whole server with something of everything in it.
type openAPIFixture struct {
	*restFixture
	doc  *apiDocument
	made *gateway.Session // the last that fill made
}

// openAPIKeeper keeps the stream "lasting".
type openAPIKeeper struct{}

func (openAPIKeeper) Keeps(stream, _ string) bool { return stream == "lasting" }

func (openAPIKeeper) Keep(_ gateway.KeptEvent, report func(gateway.Receipt)) *protocol.Error {
	report(gateway.Receipt{Seq: 1, Fate: adminapi.FateStored, Reason: "it is kept"})
	return nil
}

func newOpenAPIFixture(t *testing.T) *openAPIFixture {
	t.Helper()
	f := &openAPIFixture{
		restFixture: &restFixture{
			t: t, dir: t.TempDir(), copilot: &restCopilot{},
			client: &http.Client{Transport: &http.Transport{}},
		},
		doc: readDocument(t),
	}
	starters := map[string]gateway.Starter{gateway.HostLocal: gateway.LocalStarter{},
		apiHostCopilot: f.copilot}
	f.gateway = gateway.New(gateway.Options{Starters: starters, Keeper: openAPIKeeper{}})
	f.server = New(
		Options{
			Gateway:    f.gateway,
			Supervisor: openAPISupervisor{},
			Records:    openAPIRecords{},
			Goals:      openAPIGoals{},
			Terminals:  openAPITerminals{},
			End:        func() {},
			Status: func() adminapi.Status {
				return adminapi.Status{
					URL:     "ws://127.0.0.1:9400",
					PID:     1,
					Version: "v0",
					Faults: []adminapi.Fault{{File: "hello.toml", Line: 1, Column: 1,
						Message: "comand: unknown key"}},
				}
			},
		},
	)
	if err := f.server.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	f.url = "http" + strings.TrimPrefix(f.server.URL(), "ws")
	f.serve()
	return f
}

// fill makes a path of an operation's, on a session of its own with a provider.
func (f *openAPIFixture) fill(o *apiOperation, values map[string]string) string {
	f.t.Helper()
	path := o.path
	if strings.Contains(path, "{id}") || strings.Contains(path, "{session-id}") ||
		values["session"] != "" {
		s, err := f.gateway.Start(f.t.Context(),
			gateway.StartRequest{Host: gateway.HostLocal, CWD: f.dir, Label: "test"})
		if err != nil {
			f.t.Fatal(err)
		}
		(&apiFixture{t: f.t, gateway: f.gateway}).provide(s.ID())
		f.made = s
		path = strings.NewReplacer("{id}", s.ID(), "{session-id}", s.ID()).Replace(path)
	}
	for name, value := range values {
		path = strings.ReplaceAll(path, "{"+name+"}", value)
	}
	return path
}

func (f *openAPIFixture) request(ctx context.Context, method, path, body string) *http.Response {
	f.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.gateway.AdminToken())
	response, err := f.client.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	return response
}

// ask makes a request and returns its status and its body.
func (f *openAPIFixture) ask(method, path, body string) (int, []byte) {
	f.t.Helper()
	r := f.request(f.t.Context(), method, path, body)
	defer func() { _ = r.Body.Close() }()
	data, err := io.ReadAll(r.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	return r.StatusCode, data
}

// openAPIGoals has the goal "g-1", with something in every field.
type openAPIGoals struct{}

func (openAPIGoals) Get(id string) (adminapi.Goal, error) {
	if id != "g-1" {
		return adminapi.Goal{}, errNoGoals
	}
	budget := adminapi.GoalBudget{Turns: 1, TimeMs: 2, Tokens: 3}
	return adminapi.Goal{
		ID: id, Session: "s", State: adminapi.GoalMet, By: adminapi.GoalByPerson, Budget: budget,
		Spent: budget,
		Contract: adminapi.GoalContract{Text: "t", Checks: []adminapi.Check{
			{Description: "d", File: &adminapi.FileCheck{Path: "a", NonEmpty: true, Contains: "c",
				Pattern: "p"}},
			{Stream: &adminapi.StreamCheck{Channel: "a", Limit: 2, MinEntries: 1, Contains: "c",
				Pattern: "p"}},
			{Call: &adminapi.CallCheck{Tool: "t", Command: "c", Contains: "c", Pattern: "p",
				ExitCode: new(0),
				Success:  new(true)}},
		}},
		Iterations: []adminapi.GoalIteration{
			{N: 1, StartedAt: time.Now(), EndedAt: time.Now(), Missing: []string{"m"}, Reason: "r"},
		},
		Evidence: []adminapi.Evidence{{Check: "c", Why: "w", At: time.Now()}},
		Reason:   "r", StartedAt: time.Now(), EndedAt: time.Now(),
	}, nil
}

func (g openAPIGoals) List(session string) []adminapi.Goal {
	if session == "none" {
		return nil
	}
	goal, _ := g.Get("g-1")
	return []adminapi.Goal{goal}
}

func (g openAPIGoals) Start(adminapi.GoalRequest, string) (adminapi.Goal, error) {
	return g.Get("g-1")
}

func (g openAPIGoals) Stop(id, _, _ string) (adminapi.Goal, error) { return g.Get(id) }

// openAPITerminals has one terminal, and knows the event preToolUse.
type openAPITerminals struct{}

func (openAPITerminals) List() []adminapi.Terminal {
	return []adminapi.Terminal{
		{Session: "s", CWD: "/c", PIDs: []int{1}, Ways: []string{"hooks"}, JoinedAt: time.Now()},
	}
}

func (openAPITerminals) Hook(
	_ context.Context, h adminapi.TerminalHook,
) (adminapi.TerminalAnswer, error) {
	if h.Event != "preToolUse" {
		return adminapi.TerminalAnswer{}, fieldError("event", "is not known")
	}
	return adminapi.TerminalAnswer{Output: []byte(`{"permissionDecision":"deny"}`)}, nil
}

func (openAPITerminals) Attach(
	_ context.Context, a adminapi.TerminalAttach,
) (adminapi.TerminalAttached, error) {
	if a.Port == 0 {
		return adminapi.TerminalAttached{}, fieldError("port", "is no port")
	}
	return adminapi.TerminalAttached{Session: "s", PID: 1, Warning: "it has no authentication"}, nil
}

func (openAPITerminals) Serve(context.Context, TerminalHello, io.ReadWriteCloser) error {
	return nil
}

type openAPIRecords struct{}

func (openAPIRecords) Find(_ context.Context, q adminapi.RecordQuery) (adminapi.Records, error) {
	if q.Session == "none" {
		return adminapi.Records{}, nil
	}
	return adminapi.Records{Unreadable: 1, More: true, Records: []adminapi.Record{
		{
			TS:      time.Now(),
			Kind:    adminapi.RecordSession,
			Session: "s",
			State:   adminapi.RecordStart,
			Label:   "l",
			Host:    "local",
			CWD:     "/",
			Reason:  "r",
		},
		{
			TS:         time.Now(),
			Kind:       adminapi.RecordCall,
			Session:    "s",
			Provider:   "ci",
			Trace:      strings.Repeat("a", 32),
			ID:         "1",
			Tool:       "build",
			Outcome:    adminapi.OutcomeFailed,
			Code:       "TIMEOUT",
			By:         "user",
			DurationMs: 1.5,
		},
		{TS: time.Now(), Kind: adminapi.RecordPush, Session: "s", Stream: "builds", Seq: 1,
			Level: "keep",
			Fate:  adminapi.FateStored, Event: "e", Prompt: "p", Metadata: json.RawMessage(`{}`)},
	}}, nil
}
