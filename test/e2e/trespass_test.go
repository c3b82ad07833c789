//go:build e2e && linux

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"tapgw/internal/scriptmodel"
)

// TestShellOpensItsOwnSessionOnly: what a model runs in its shell may join its session,
// with the token that it finds there, and no other session of the same runtime. The
// token ends with the session.
func TestShellOpensItsOwnSessionOnly(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	config := h.path("tapgw.toml")
	if err := os.WriteFile(config, []byte("[copilot.permissions]\nshell = \"allow\"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	h.serve("--config", config)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// in has a session's shell run a command, and returns what the command printed. A
	// busy runtime may show less of it than there was, so a file keeps it.
	runs := 0
	in := func(session, command string) string {
		runs++
		file := h.path("work", fmt.Sprintf("said%d", runs))
		call, err := json.Marshal(map[string]string{"description": "try it",
			"command": fmt.Sprintf("{ %s; } >%s 2>&1; mv %s %s.whole", command, file, file, file)})
		if err != nil {
			t.Fatal(err)
		}
		h.ask(session, "call:bash "+string(call))
		var said []byte
		eventually(t, patience, func() (err error) {
			said, err = os.ReadFile(file + ".whole")
			return err
		})
		return string(said)
	}
	sessions := []string{h.copilot(m), h.copilot(m)}
	tokens := map[string]bool{}
	for i, own := range sessions {
		other := sessions[1-i]
		said := in(own, fmt.Sprintf("echo token $TAP_PROVIDER_TOKEN.; %s=trespass %s %s %s",
			programVariable, self, other, own))
		for _, want := range []string{other + ": INVALID_SESSION", "all: UNAUTHORIZED",
			own + ": bound"} {
			if !strings.Contains(said, want) {
				t.Errorf("the shell of %s says %q, want %q", own, said, want)
			}
		}
		_, token, _ := strings.Cut(said, "token ")
		token, _, _ = strings.Cut(token, ".")
		if tokens[token] || token == "" || token == h.read(".provider-token") ||
			token == h.read(".admin-token") {
			t.Errorf("the shell of %s has the token %q, want a token of its own", own, token)
		}
		tokens[token] = true
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", h.runtime()))
		if err != nil || strings.Contains(string(environment), "TAP_PROVIDER_TOKEN") ||
			!strings.Contains(string(environment), "TAP_GATEWAY_URL=") {
			t.Errorf("the runtime's environment: %q, %v, want TAP_GATEWAY_URL and no token in it",
				environment, err)
		}
		h.tapctl("sessions", "stop", other)
		if said := in(own, fmt.Sprintf("%s=trespass %s %s", programVariable, self,
			own)); !strings.Contains(
			said, own+": bound") {
			t.Errorf("with the other session gone: %q, want %q in it", said, own+": bound")
		}
		sessions[1-i] = h.copilot(m)
	}
	if len(tokens) != 2 {
		t.Errorf("tokens: %v, want 2 of them", tokens)
	}
}

// trespass is a program that joins sessions with the token of its environment, one after
// the other, and says what it is told.
func trespass(sessions []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, session := range append(sessions, "all") {
		got, err := hello(ctx, session)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %s\n", session, got)
	}
	return nil
}

func hello(ctx context.Context, session string) (string, error) {
	ws, _, err := websocket.Dial(ctx, os.Getenv("TAP_GATEWAY_URL"), nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = ws.CloseNow() }()
	for _, m := range []message{
		{"type": "auth", "token": os.Getenv("TAP_PROVIDER_TOKEN")},
		{"type": "hello", "name": "trespasser", "protocolVersion": 2, "session": session},
	} {
		data, err := json.Marshal(m)
		if err != nil {
			return "", err
		}
		if err := ws.Write(ctx, websocket.MessageText, data); err != nil {
			return "", err
		}
	}
	for {
		_, data, err := ws.Read(ctx)
		if err != nil {
			return "", errors.Join(errors.New("the connection ended"), err)
		}
		var m struct{ Type, Code string }
		if err := json.Unmarshal(data, &m); err != nil {
			return "", err
		}
		switch m.Type {
		case "error":
			return m.Code, nil
		case "hello.ack":
			return "bound", nil
		}
	}
}
