package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/client"
	"tapgw/internal/gateway"
	"tapgw/internal/proc"
	"tapgw/internal/protocol"
	"tapgw/internal/server"
	"tapgw/providers"
)

// hosted is a session of this process at a gateway, and what came of it.
type hosted struct {
	*client.HostSession
	tools chan []string
	sent  chan protocol.HostPrompt
	stops chan string
	state chan bool
}

func hostAt(t *testing.T, find client.Options) *hosted {
	t.Helper()
	h := &hosted{
		tools: make(chan []string, 64),
		sent:  make(chan protocol.HostPrompt, 64),
		stops: make(chan string, 64),
		state: make(chan bool, 64),
	}
	s, err := client.Host(t.Context(), find, client.HostOptions{
		Name: "lsclient", Version: "v0", ID: "conversation-1", Label: "mine", CWD: "/work",
		Model:   "m",
		Aliases: map[string][]string{"shell": {"run_in_terminal"}},
		Tools: func(tools []protocol.HostTool) {
			var names []string
			for _, tool := range tools {
				names = append(names, tool.Name)
			}
			h.tools <- names
		},
		Send:      func(p protocol.HostPrompt) { h.sent <- p },
		Interrupt: func(reason string) { h.stops <- reason },
		Log:       func(string, string) {},
		State:     func(connected bool, _ error) { h.state <- connected },
	})
	if err != nil {
		t.Fatal(err)
	}
	h.HostSession = s
	return h
}

func (h *hosted) close(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	h.Close(ctx, "the test is over")
}

// until reads a channel until what comes is wanted.
func until[T any](t *testing.T, what string, from chan T, want func(T) bool) T {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		select {
		case v := <-from:
			if want(v) {
				return v
			}
		case <-timeout:
			t.Fatalf("waited for %s in vain, want it in time", what)
		}
	}
}

// provider runs a provider with a tool and a gate until the test ends; hanging
// tells of calls that wait to be cancelled.
func provider(
	t *testing.T, g *gateway.Gateway, url string,
) (_ *providers.Provider, hanging chan struct{}) {
	t.Helper()
	hanging = make(chan struct{}, 1)
	p := providers.New("ci", &providers.Options{URL: url, Token: g.InstanceToken()})
	type args struct {
		Text string `json:"text"`
	}
	providers.AddTool(p, "shout", "Shouts", func(ctx context.Context, in args) (string, error) {
		if in.Text == "hang" {
			hanging <- struct{}{}
			<-ctx.Done()
			return "", context.Cause(ctx)
		}
		return strings.ToUpper(in.Text), nil
	})
	if _, err := p.Gate(t.Context(), providers.Match{Tool: "shell", Args: "git push"},
		func(context.Context, providers.GateCall) (providers.Decision, error) {
			return providers.Deny("CI is red"), nil
		}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = p.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return p, hanging
}

// A session that a process brings gets the providers' tools, its calls go to
// them, gates decide about its own tools, and prompts come in.
func TestHostClient(t *testing.T) {
	g, s := running(t, server.Options{})
	h := hostAt(t, client.Options{URL: s.URL(), Token: g.AdminToken()})
	defer h.close(t)
	p, hanging := provider(t, g, s.URL())
	until(t, "the provider's tool", h.tools,
		func(names []string) bool { return slices.Equal(names, []string{"shout"}) })

	r, err := h.CallTool(t.Context(), "call-1", "shout", json.RawMessage(`{"text":"hello"}`))
	if err != nil || string(r.Data) != `"HELLO"` {
		t.Errorf(`the call gave %s, %v, want no error and "HELLO"`, r.Data, err)
	}
	if r, err := h.CallTool(t.Context(), "call-2", "nothing", nil); err != nil ||
		r.ErrorCode != "NOT_FOUND" {
		t.Errorf(`a call of no tool gave %+v, %v, want no error and ErrorCode "NOT_FOUND"`, r, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-hanging; cancel() }()
	if _, err := h.CallTool(ctx, "call-3", "shout",
		json.RawMessage(`{"text":"hang"}`)); !errors.Is(err,
		context.Canceled) {
		t.Errorf("a cancelled call gave %v, want %v", err, context.Canceled)
	}

	if d, err := h.PreToolUse(t.Context(), "run_in_terminal",
		json.RawMessage(`{"command":"git push"}`)); err != nil ||
		d.Decision != "deny" || !strings.Contains(d.Reason, "CI is red") {
		t.Errorf(`the gate gave %+v, %v, want no error, Decision "deny" and "CI is red" in it`, d,
			err)
	}
	if d, err := h.PreToolUse(t.Context(), "run_in_terminal",
		json.RawMessage(`{"command":"ls"}`)); err != nil ||
		d.Decision != "allow" {
		t.Errorf(`a call that no gate matches gave %+v, %v, want no error and Decision "allow"`, d,
			err)
	}

	if _, err := p.Push(t.Context(),
		providers.Event{Text: "look at this", Level: providers.Inject}); err != nil {
		t.Fatal(err)
	}
	sent := until(t, "the injected prompt", h.sent, func(protocol.HostPrompt) bool { return true })
	if !strings.Contains(sent.Prompt, "look at this") {
		t.Errorf(`the prompt is %q, want "look at this" in it`, sent.Prompt)
	}
	if _, err := h.UserPrompt(t.Context(), sent.Prompt, sent.Source); err != nil {
		t.Error(err)
	}
	sessions := g.Sessions()
	if len(sessions) != 1 || sessions[0].ID != "conversation-1" || sessions[0].Host != "lsclient" {
		t.Errorf("the gateway's sessions are %+v, want conversation-1 of lsclient", sessions)
	}
}

// recorded has the records of calls.
type recorded chan adminapi.Record

func (r recorded) Record(record adminapi.Record) {
	if record.Kind == adminapi.RecordCall {
		r <- record
	}
}

func (recorded) Pushed(string) []adminapi.Record { return nil }

// The host's report of a command in its own shell has the command, its exit code and its duration
// in the records.
func TestHostCommandRecorded(t *testing.T) {
	calls := make(recorded, 10)
	g, s := running(t, server.Options{Gateway: gateway.New(gateway.Options{Recorder: calls})})
	h := hostAt(t, client.Options{URL: s.URL(), Token: g.AdminToken()})
	defer h.close(t)
	h.Event(protocol.EventToolComplete, map[string]any{"tool": "run_in_terminal",
		"args": map[string]string{
			"command": "make test"}, "result": map[string]any{"type": "success", "output": "bad",
			"exitCode": 2},
		"durationMs": 1250.5})
	r := until(t, "the record", calls, func(adminapi.Record) bool { return true })
	if r.Command != "make test" || r.ExitCode == nil || *r.ExitCode != 2 {
		t.Errorf("recorded %+v, want command make test and exit code 2", r)
	}
	if r.DurationMs != 1250.5 {
		t.Errorf("recorded that it took %v ms, want 1250.5 as the host said", r.DurationMs)
	}
}

// A gateway that comes back has the session again, under its id.
func TestHostClientComesBack(t *testing.T) {
	home := t.TempDir()
	t.Setenv("COPILOT_HOME", home)
	t.Setenv(client.EnvURL, "")
	t.Setenv(client.EnvToken, "")
	dir := filepath.Join(home, "extensions", "tap")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := proc.TryLock(filepath.Join(dir, "gateway.lock"))
	if err != nil || lock == nil {
		t.Fatalf("locking the gateway's directory: %v, want the lock", err)
	}
	defer lock.Unlock()
	// Each gateway has its own port and token, told by its files.
	serve := func() (*gateway.Gateway, func()) {
		g := gateway.New(gateway.Options{})
		s := server.New(server.Options{Gateway: g})
		if err := s.Listen("127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"gateway.json": fmt.Sprintf(`{"url":%q}`,
			s.URL()),
			".admin-token": g.AdminToken()} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		served := make(chan error)
		go func() { served <- s.Serve() }()
		return g, func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = s.Shutdown(ctx)
			<-served //nolint:errcheck // it was shut down
		}
	}
	_, stop := serve()
	h := hostAt(t, client.Options{})
	defer h.close(t)
	stop()
	until(t, "the loss", h.state, func(up bool) bool { return !up })
	g, stop := serve()
	defer stop()
	until(t, "the return", h.state, func(up bool) bool { return up })
	if sessions := g.Sessions(); len(sessions) != 1 || sessions[0].ID != "conversation-1" {
		t.Errorf("the gateway's sessions are %+v, want conversation-1 only", sessions)
	}
	if d, err := h.PreToolUse(t.Context(), "x", json.RawMessage(`{}`)); err != nil ||
		d.Decision != "allow" {
		t.Errorf(`a hook after the return gave %+v, %v, want no error and Decision "allow"`, d, err)
	}
}

// A session that was stopped at the gateway is over, and stays so.
func TestHostClientStopped(t *testing.T) {
	g, s := running(t, server.Options{})
	h := hostAt(t, client.Options{URL: s.URL(), Token: g.AdminToken()})
	defer h.close(t)
	session, ok := g.Session("conversation-1")
	if !ok {
		t.Fatal("the gateway has no session conversation-1, want it")
	}
	if err := session.Stop(t.Context(), "enough"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.PreToolUse(t.Context(), "x", json.RawMessage(`{}`)); !errors.Is(err,
		client.ErrSessionEnded) {
		t.Errorf("a hook of an ended session gave %v, want %v", err, client.ErrSessionEnded)
	}
	until(t, "the end", h.state, func(up bool) bool { return !up })
	if _, err := h.CallTool(t.Context(), "c", "x", nil); !errors.Is(err, client.ErrSessionEnded) {
		t.Errorf("a call of an ended session gave %v, want %v", err, client.ErrSessionEnded)
	}
}

func TestHostClientRefused(t *testing.T) {
	_, s := running(t, server.Options{})
	_, err := client.Host(t.Context(), client.Options{URL: s.URL(), Token: "wrong"},
		client.HostOptions{Name: "x", CWD: "/"})
	if err == nil || !strings.Contains(err.Error(), "does not know the token") {
		t.Errorf(`a wrong token gave %v, want an error and "does not know the token" in it`, err)
	}
}
