package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/server"
	"tapgw/internal/taptest/fakegithub"
	"tapgw/providers"
)

// agent is a session's agent that only hands on the texts that it is shown.
type agent struct{ shown chan string }

func (agent) SetTools(context.Context, uint64, []gateway.Tool) error { return nil }
func (agent) Send(context.Context, gateway.Prompt) error             { return nil }
func (agent) Interrupt(context.Context, string) ([]string, error)    { return nil, nil }
func (agent) Close(context.Context, string) error                    { return nil }

func (a agent) Log(_ adminapi.LogLevel, text string) { a.shown <- text }

// serve runs the provider with flags for a session in a directory, until the test ends.
func serve(t *testing.T, dir string, flags ...string) (*gateway.Session, agent) {
	t.Helper()
	o, err := parseFlags(append([]string{"-interval", "100ms"}, flags...))
	if err != nil {
		t.Fatal(err)
	}
	g := gateway.New(gateway.Options{})
	s := server.New(server.Options{Gateway: g, Version: "test"})
	if err := s.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	a := agent{make(chan string, 100)}
	session, err := g.Register(gateway.SessionSpec{ID: "s1", CWD: dir},
		gateway.HostInfo{Kind: "test", Hooks: true, Log: true,
			Aliases: map[string][]string{"shell": {"bash"}}}, a)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, o, &providers.Options{URL: s.URL(), Token: g.InstanceToken(),
			Logger: slog.New(slog.DiscardHandler)})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the provider ended with %v, want no error", err)
		}
		end, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Shutdown(end); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return session, a
}

// waitPush asks the gates about git push until the decision is as wanted.
func waitPush(t *testing.T, s *gateway.Session, deny bool, text string) {
	t.Helper()
	var last string
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-tick.C {
		d := s.PreToolUse(t.Context(), "bash", protocol.Raw(`{"command":"git push"}`))
		if last = fmt.Sprintf("%+v", d); d.Deny == deny && strings.Contains(last, text) {
			return
		}
	}
	t.Fatalf("git push: got %s, want a denial %v with %q", last, deny, text)
}

// TestGateOnAFile has a gate that is closed while the state of CI is unknown or red.
func TestGateOnAFile(t *testing.T) {
	dir := t.TempDir()
	session, a := serve(t, dir, "-file", "ci.json")
	write := func(text string) {
		t.Helper()
		file := filepath.Join(dir, "new")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file, filepath.Join(dir, "ci.json")); err != nil {
			t.Fatal(err)
		}
	}
	waitPush(t, session, true,
		"unknown, so nothing is pushed: there is no ci.json yet: run the local CI")
	write(`{"checks":[{"name":"lint","status":"running"}]}`)
	waitPush(t, session, false, "CI is still running on the local CI.")
	write(`{"checks":[{"name":"lint","status":"failed","log":"a.go:3: unused\u001b[2J"}]}`)
	waitPush(t, session, true, `Failed: "lint". Read ci_log and repair that first.`)
	const want = "Failed: \"lint\".\n\nThe end of the log of \"lint\". " + foreign +
		"\n| a.go:3: unused"
	late := time.After(time.Minute)
	for got := ""; !strings.Contains(got, want); {
		select {
		case got = <-a.shown:
		case <-late:
			t.Fatalf("the agent was shown %q at last, want %q", got, want)
		}
	}
	if d := session.PreToolUse(t.Context(), "bash",
		protocol.Raw(`{"command":"git pull"}`)); d.Deny {
		t.Errorf("git pull: got %+v, want it allowed", d)
	}
	write(`{"checks":[{"name":"lint","status":"passed"}]}`)
	waitPush(t, session, false, "")
}

// TestGateOpens lets pushes through that the flags name: while the state is unknown, and of a
// repair.
func TestGateOpens(t *testing.T) {
	session, _ := serve(t, t.TempDir(), "-file", "ci.json", "-gate", "open")
	waitPush(t, session, false, "The state of CI is unknown: there is no ci.json yet")

	g, api := newGitHub(t)
	git(t, g.dir, "commit", "-q", "--allow-empty", "-m", "red")
	red, err := g.git(t.Context(), "rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	failing := fakegithub.Check(1, "test", "failure")
	failing["head_sha"] = red
	api.Lock()
	api.Commit = red
	api.Checks["feature/a"] = []fakegithub.Object{failing}
	api.Unlock()
	session, _ = serve(t, g.dir, "-api", api.URL(), "-token-env", "CI_TOKEN", "-fixes")
	waitPush(t, session, true, `Failed: "test"`)
	git(t, g.dir, "commit", "-q", "--allow-empty", "-m", "repair")
	waitPush(t, session, false, `This push must repair: "test".`)
}
