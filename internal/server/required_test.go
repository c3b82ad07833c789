package server_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"tapgw/internal/client"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/server"
	"tapgw/providers"
)

// Calls of a session that another program brings, as lsclient does, wait for a required provider
// from its first moment on, and are decided by it.
func TestRequiredProviderOfHost(t *testing.T) {
	g, s := running(t, server.Options{})
	g.ExpectProviders([]gateway.ExpectedProvider{{Name: "guard", Says: "guard", Owner: "/p",
		Required: true}})
	pass := g.Issue(gateway.PassSpec{Trust: gateway.TrustProject, All: true, Name: "guard",
		Owner: "/p"})
	h := hostAt(t, client.Options{URL: s.URL(), Token: g.AdminToken()})
	defer h.close(t)
	decisions := make(chan protocol.HostDecision, 1)
	go func() {
		d, err := h.PreToolUse(t.Context(), "run_in_terminal",
			json.RawMessage(`{"command":"git push"}`))
		if err != nil {
			t.Error(err)
		}
		decisions <- d
	}()
	session, _ := g.Session(h.ID())
	for cursor := uint64(0); ; {
		lines, next := session.Timeline(cursor)
		waits := false
		for _, l := range lines {
			waits = waits ||
				strings.HasPrefix(l.Message, "run_in_terminal waits for provider guard")
		}
		if waits {
			break
		}
		cursor = next
		if err := session.WaitTimeline(t.Context(), cursor); err != nil {
			t.Fatal(err)
		}
	}
	p := providers.New("guard", &providers.Options{URL: s.URL(), Token: pass.Token(),
		Session: providers.AllSessions})
	if _, err := p.Gate(t.Context(), providers.Match{Tool: "shell"},
		func(context.Context, providers.GateCall) (providers.Decision, error) {
			return providers.Deny("guarded"), nil
		}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = p.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	if d := <-decisions; d.Decision != protocol.DecisionDeny ||
		!strings.Contains(d.Reason, "guarded") {
		t.Errorf("the call: %+v, want the denial of its gate", d)
	}
}
