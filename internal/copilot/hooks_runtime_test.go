//go:build runtime && unix

package copilot

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/configs"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// TestNoHooksUnlessWanted: a session of which nobody wants to be asked anything is
// without hooks, whatever else its providers bring.
func TestNoHooksUnlessWanted(t *testing.T) {
	h := startHosted(
		t,
		newRigWith(
			t,
			rounds(saysIt, calls("bash", `{"command":"echo ran","description":"x"}`)),
			readsAll, func(o *Options) { o.Permissions.Shell = configs.Allow },
		),
	)
	h.provide(h.s, "tests")
	p, note := h.guard("writer"), "APPENDED"
	hello := helloOf("writer", h.s.ID())
	hello.Hooks = &protocol.Hooks{
		Transforms: map[string]*protocol.Transform{"guidelines": {Action: protocol.TransformAppend,
			Content: &note}},
	}
	p.send(hello, "hello")
	h.g.SetHooks(
		[]gateway.Hook{answeringHook(gateway.HookError, "", ""),
			answeringHook(gateway.HookSessionEnd, "", "")},
	)
	for range 2 {
		if said := <-h.asking("go"); !strings.Contains(said, "said") ||
			!strings.Contains(said, "ran") {
			t.Errorf(`the turn: %q, want "said" and "ran" in it`, said)
		}
	}
	if n := h.hooksAsked(); (n == 0) != h.late() || h.session().hooksEnabled() == h.late() {
		t.Errorf(
			"hooks were asked %d times, want none: %v; they are enabled: %v, want %v",
			n, h.late(), h.session().hooksEnabled(), !h.late(),
		)
	}
	if system := h.r.model.Requests()[0].System(); !strings.Contains(system, note) {
		t.Error("the provider's section is not in the system message, want it there")
	}
	h.whole()

	// What is taken away is no reason to stop asking; what comes is one to begin.
	h.gate("guard")
	if said := <-h.asking("go"); !strings.Contains(said, "not past guard") ||
		!strings.Contains(said, "ran") {
		t.Errorf(`the turn with a gate: %q, want "not past guard" and "ran" in it`, said)
	}
	if h.hooksAsked() == 0 {
		t.Error("hooks were not asked, want a question for each call")
	}
	h.whole()
}

// TestOldRuntimeKeepsHooks: a runtime that takes tools by a resume only goes on asking
// hooks when tools change.
func TestOldRuntimeKeepsHooks(t *testing.T) {
	g := newRigWith(t, rounds(calls("hang", `{"x":"hung"}`), saysIt), readsAll)
	g.r.lacksToolsSet = true
	h := startHosted(t, g)
	tests := h.provide(h.s, "tests")
	turn := h.asking("go")
	<-tests.hanging
	h.gate("guard")
	p := h.guard("other")
	hello := helloOf("other", h.s.ID())
	hello.Tools = []protocol.Tool{{Name: "work", Description: "Works.",
		Parameters: protocol.Raw(`{"type":"object"}`)}}
	p.send(hello, "hello")
	close(tests.release)
	for range 2 {
		if said := <-turn; !strings.Contains(said, "hung") ||
			!strings.Contains(said, "not past guard") {
			t.Errorf(`the turn: %q, want "hung" and "not past guard" in it`, said)
		}
		turn = h.asking("go")
	}
	<-turn
	requests := h.r.model.Requests()
	if !requests[len(requests)-1].HasTool("work") || !h.session().hooksEnabled() {
		t.Errorf(
			"tool work is offered: %v, hooks are enabled: %v, want both",
			requests[len(requests)-1].HasTool("work"), h.session().hooksEnabled(),
		)
	}
	h.whole()
}

// TestContextBringsHooks: what is to be said with prompts is said with the next one, be
// it a startup context, one by context.update, or of a hook of the user's own; a hook on
// what comes after a tool call too.
func TestContextBringsHooks(t *testing.T) {
	last := func(h *hosted) string {
		requests := h.r.model.Requests()
		return string(requests[len(requests)-1].Body)
	}
	t.Run("startup", func(t *testing.T) {
		h := startHosted(t, newRigWith(t, obey, readsAll))
		p := h.guard("starter")
		hello := helloOf("starter", h.s.ID())
		hello.StartupContext = "THE STARTUP"
		p.send(hello, "hello")
		<-h.asking("hello")
		if !strings.Contains(last(h), "THE STARTUP") {
			t.Errorf("the model was told %s, want THE STARTUP in it", last(h))
		}
	})
	t.Run("update", func(t *testing.T) {
		h := startHosted(t, newRigWith(t, obey, readsAll))
		tests := h.provide(h.s, "tests")
		p := h.guard("teller")
		p.send(helloOf("teller", h.s.ID()), "hello")
		turn := h.asking("call:hang {}")
		<-tests.hanging
		later := h.asking("hello") // it waits in the runtime
		if h.session().hooksEnabled() == h.late() {
			t.Errorf("hooks are enabled: %v, want %v", h.session().hooksEnabled(), !h.late())
		}
		p.send(&protocol.ContextUpdate{RequestID: "1", Context: new("IT RAINS")}, "1")
		close(tests.release)
		<-turn
		<-later
		if !strings.Contains(last(h), "IT RAINS") {
			t.Errorf("the model was told %s, want IT RAINS in it", last(h))
		}
		h.whole()
	})
	t.Run("the user's own", func(t *testing.T) {
		h := startHosted(t, newRigWith(t, obey, readsAll))
		tests := h.provide(h.s, "tests")
		turn := h.asking("call:hang {}")
		<-tests.hanging
		if h.session().hooksEnabled() == h.late() {
			t.Errorf("hooks are enabled: %v, want %v", h.session().hooksEnabled(), !h.late())
		}
		var asked []string
		var mu sync.Mutex
		after := hook(gateway.HookPostToolUse, "",
			func(_ context.Context, e gateway.HookEvent) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, e.Tool)
				return "", nil
			})
		h.g.SetHooks([]gateway.Hook{after})
		close(tests.release)
		<-turn
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(asked, []string{"hang"}) {
			t.Errorf(`asked after %q, want ["hang"]`, asked)
		}
		h.whole()
	})
}

// TestHooksCantBeHad: where the runtime does not take hooks a provider that brings a
// gate is refused, the turn that runs goes on without it, and so do others; it is bound
// once they can be had.
func TestHooksCantBeHad(t *testing.T) {
	h := startHosted(t, newRigWith(t, rounds(calls("hang", "{}"), saysIt), readsAll))
	tests := h.provide(h.s, "tests")
	turn := h.asking("go")
	<-tests.hanging

	// It refuses what it can't read.
	s, late := h.session(), h.late()
	_ = s.configLock.Lock(h.r.ctx)
	good := s.appliedTools
	s.appliedTools = append(
		slices.Clone(good),
		rpc.ProtocolExternalToolDefinition{Name: "no name",
			Parameters: map[string]any{"type": "object"}},
	)
	s.configLock.Unlock()
	if late { // else there is nothing to be had
		p := h.guard("refused")
		hello := helloOf("refused", h.s.ID())
		hello.Hooks = &protocol.Hooks{OnPreToolUse: gateOf("say")}
		p.in <- func() { p.conn.Receive(protocol.Append(nil, hello)) }
		if got := <-p.acks; !strings.Contains(got, "INTERNAL") ||
			!strings.Contains(got, "try again") {
			t.Errorf(`a gate that can't be asked is told %q, want "INTERNAL" and "try again" in it`,
				got)
		}
		if lines := timeline(h.s); !strings.Contains(lines, "hooks and gates can't be asked") {
			t.Errorf("the timeline, want a line that hooks and gates can't be asked:\n%s", lines)
		}
	}
	if s.hooksEnabled() == late {
		t.Errorf("hooks are enabled: %v, want %v", s.hooksEnabled(), !late)
	}
	close(tests.release)
	for range 2 {
		if said := <-turn; !strings.Contains(said, "said") || strings.Contains(said, "END") {
			t.Errorf(`the turn: %q, want "said" in it and no "END" in it`, said)
		}
		turn = h.asking("go")
	}
	<-turn

	_ = s.configLock.Lock(h.r.ctx)
	s.appliedTools = good
	s.configLock.Unlock()
	p := h.gate("guard")
	if said := <-h.asking("go"); !strings.Contains(said, "not past guard") || len(p.asked()) != 1 {
		t.Errorf(`afterwards: %q, asked about %q, want "not past guard" in it, after one question`,
			said, p.asked())
	}
}

// TestModelChangesWhileHooksCome: a session that is resumed for its hooks has the model
// that it was given meanwhile.
func TestModelChangesWhileHooksCome(t *testing.T) {
	h := newHosted(t, newRigWith(t, obey, readsAll))
	for n := range 8 {
		h.s = h.start(fmt.Sprintf("session-%d", n))
		s := h.session()
		var both sync.WaitGroup
		for _, do := range []func() error{
			func() error { return s.SetModel(h.r.ctx, "other-model", "") },
			func() error { return s.EnableHooks(h.r.ctx) },
		} {
			both.Go(func() {
				if err := do(); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		c, err := s.waitConn(h.r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		if now, err := c.sdk.RPC.Model.GetCurrent(h.r.ctx); err != nil ||
			deref(now.ModelID) != "other-model" {
			t.Errorf(`the model is %v, error %v, want no error and "other-model"`, now, err)
		}
	}
}

// TestRuntimeKilledWithHooks: a session that has hooks has them in the next runtime, and
// so has one of which the runtime ended while it got them.
func TestRuntimeKilledWithHooks(t *testing.T) {
	h := startHosted(t, newRigWith(t, rounds(saysIt), readsAll))
	h.provide(h.s, "tests")
	if said := <-h.asking("go"); !strings.Contains(said, "said") {
		t.Errorf(`without a gate: %q, want "said" in it`, said)
	}

	late := h.late()
	h.r.signal(syscall.SIGSTOP) // it answers nothing
	p := h.guard("guard")
	hello := helloOf("guard", h.s.ID())
	hello.Hooks = &protocol.Hooks{OnPreToolUse: gateOf("say")}
	p.in <- func() { p.conn.Receive(protocol.Append(nil, hello)) }
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late && len(h.session().configLock) == 0 { // it is at it then
		select {
		case <-tick.C:
		case <-h.r.ctx.Done():
			t.Fatal("the session still has no hooks, want them enabled")
		}
	}
	h.r.signal(syscall.SIGKILL)
	p.waitAck("hello")
	for n := range 2 {
		h.inTimeline("died and was started again", n+1)
		if said := <-h.asking("go"); !strings.Contains(said, "not past guard") ||
			len(p.asked()) != n+1 {
			t.Errorf(
				`in runtime %d: %q, asked about %q, want "not past guard" in it, after %d questions`,
				n+2, said, p.asked(), n+1,
			)
		}
		if n == 0 {
			h.r.signal(syscall.SIGKILL)
		}
	}
}

// TestSessionsLeaveNothingInTheSDK: a session that was given hooks leaves no more
// behind than another.
func TestSessionsLeaveNothingInTheSDK(t *testing.T) {
	h := newHosted(t, newRigWith(t, obey, lean))
	for n := range 3 {
		h.s = h.start(fmt.Sprintf("session-%d", n))
		h.gate(fmt.Sprintf("guard-%d", n))
		c, err := h.session().waitConn(h.r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		p := c.process
		if err := h.s.Stop(h.r.ctx, "test"); err != nil {
			t.Fatal(err)
		}
		p.mu.Lock()
		kept := len(p.sessions)
		p.mu.Unlock()
		if kept != 0 {
			t.Errorf("%d sessions are kept, want 0", kept)
		}
	}
}
