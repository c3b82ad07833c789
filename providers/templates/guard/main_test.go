package main

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/server"
	"tapgw/providers"
)

// agent is a session's agent that does nothing by itself.
type agent struct{}

func (agent) SetTools(context.Context, uint64, []gateway.Tool) error { return nil }
func (agent) Send(context.Context, gateway.Prompt) error             { return nil }
func (agent) Log(adminapi.LogLevel, string)                          {}
func (agent) Interrupt(context.Context, string) ([]string, error)    { return nil, nil }
func (agent) Close(context.Context, string) error                    { return nil }

// A push waits for CI; all else goes its way.
func TestGuard(t *testing.T) {
	g := gateway.New(gateway.Options{})
	s := server.New(server.Options{Gateway: g, Version: "test"})
	if err := s.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	session, err := g.Register(gateway.SessionSpec{ID: "s1", CWD: "/code"},
		gateway.HostInfo{Kind: "test", Hooks: true,
			Aliases: map[string][]string{"shell": {"bash"}}}, agent{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	file := filepath.Join(t.TempDir(), "status")
	bound, done := make(chan struct{}), make(chan error, 1)
	o := &providers.Options{URL: s.URL(), Token: g.InstanceToken(),
		Logger: slog.New(slog.DiscardHandler), OnBound: func(context.Context, providers.Binding) {
			close(bound)
		}}
	go func() { done <- run(ctx, file, o) }()
	select {
	case <-bound:
	case err := <-done:
		t.Fatal(err)
	case <-time.After(20 * time.Second):
		t.Fatal("the guard is not bound, want a binding")
	}

	const denied = "CI is red. Make it green before you push."
	for _, tt := range []struct{ status, command, want string }{
		{"", "git push", ""},
		{"green\n", "git push origin main", ""},
		{"red\n", "git push origin main", denied},
		{"red", "cd app && git -C . push --force", denied},
		{"red", "git pull", ""},
		{"red", "echo pushed", ""},
	} {
		if tt.status != "" {
			if err := os.WriteFile(file, []byte(tt.status), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		args := append(protocol.AppendText([]byte(`{"command":`), tt.command), '}')
		if d := session.PreToolUse(ctx, "bash", args); d.Deny != (tt.want != "") ||
			d.Reason != tt.want {
			t.Errorf("CI %q, %s: %+v, want %q", tt.status, tt.command, d, tt.want)
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(file, 0o700); err != nil {
		t.Fatal(err)
	}
	if d := session.PreToolUse(ctx, "bash", protocol.Raw(`{"command":"git push"}`)); !d.Deny {
		t.Error("a status that cannot be read lets a push through, want a denial")
	}

	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	end, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.Shutdown(end); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
