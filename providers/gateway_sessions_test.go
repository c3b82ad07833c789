package providers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	domain "tapgw/internal/gateway"
	"tapgw/providers"
)

// A provider of all sessions serves those that run and those that start later.
func TestRealAllSessions(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	s1 := w.session("s1")
	bound, unbound := make(chan string, 8), make(chan string, 8)
	prepared := make(chan string, 8)
	p, _ := w.provider("everywhere", providers.Options{
		Token: w.gateway.AdminToken(), Session: providers.AllSessions, Context: "Everywhere.",
		PrepareSession: func(_ context.Context, s providers.Session) {
			prepared <- s.ID + " in " + s.CWD
		},
		OnBound: func(ctx context.Context, b providers.Binding) {
			bound <- b.Session
			<-ctx.Done()
			unbound <- b.Session
		},
	}, func(p *providers.Provider) {
		must[uint64](t)(p.AddTool(ctx,
			raw("where", func(ctx context.Context, _ json.RawMessage) (any, error) {
				call, _ := providers.CallFrom(ctx)
				return call.Session, nil
			})))
		must[uint64](t)(p.SetContext(ctx, "In the second.", "s2"))
		must[uint64](t)(p.AddTool(ctx, fixed("second", "yes", nil), "s2"))
		must[uint64](t)(p.SetFilter(ctx, "noise",
			providers.FilterRule{Match: ".", Outcome: providers.Drop}))
	})
	expect(t, "prepared", receive(t, prepared), "s1 in /code/s1")
	expect(t, "bound", receive(t, bound), "s1")
	s2 := w.session("s2")
	expect(t, "prepared", receive(t, prepared), "s2 in /code/s2")
	expect(t, "bound", receive(t, bound), "s2")

	expect(t, "a call of s1", s1.call(t, "where", `{}`), "s1")
	expect(t, "a call of s2", s2.call(t, "where", `{}`), "s2")
	expect(t, "second in s1", s1.call(t, "second", `{}`),
		`NOT_FOUND: tool "second" does not exist in this session`)
	expect(t, "second in s2", s2.call(t, "second", `{}`), "yes")
	expect(t, "the context of s1", s1.UserPrompt(ctx, "", ""), "Everywhere.")
	expect(t, "the context of s2", s2.UserPrompt(ctx, "", ""), "In the second.")
	must[uint64](t)(p.AddTool(ctx, fixed("both", "too", nil)))
	expect(t, "second in s2", s2.call(t, "second", `{}`), "yes")
	expect(t, "both in s2", s2.call(t, "both", `{}`), "too")

	r, err := p.Push(ctx, providers.Event{Text: "hi", Broadcast: true})
	if err != nil || len(r.Each) != 2 {
		t.Errorf("broadcasting: %+v, %v, want two receipts", r, err)
	}
	r, err = p.Push(ctx, providers.Event{Text: "noise", Stream: "noise", Session: "s2"})
	if err != nil || r.Fate != providers.Dropped {
		t.Errorf("filtered: %+v, %v, want that it was dropped", r, err)
	}
	if _, err := p.Push(ctx,
		providers.Event{Text: "to whom?"}); codeOf(err) != providers.CodeInvalidSession {
		t.Errorf("to no session: %v, want INVALID_SESSION", err)
	}
	if e, err := p.Query(ctx, providers.Query{Session: "s2"}); err != nil || len(e) != 1 ||
		e[0].Text != "hi" {
		t.Errorf(`the streams of s2: %v, %v, want no error, 1 of them and Text "hi"`, e, err)
	}

	if err := s2.Stop(ctx, "done"); err != nil {
		t.Error(err)
	}
	expect(t, "unbound", receive(t, unbound), "s2")
	must[uint64](t)(p.SetContext(ctx, "Alone."))
	expect(t, "the context of s1", s1.UserPrompt(ctx, "", ""), "Alone.")
}

// While there is no session, a broadcast of level keep waits for the next one.
func TestRealBroadcastWaits(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	s1 := w.session("s1")
	bound := make(chan string, 8)
	p, _ := w.provider("ci", providers.Options{
		Token: w.gateway.AdminToken(), Session: providers.AllSessions,
		OnBound: func(_ context.Context, b providers.Binding) { bound <- b.Session },
	})
	expect(t, "bound", receive(t, bound), "s1")
	if err := s1.Stop(ctx, "done"); err != nil {
		t.Fatal(err)
	}
	// The provider reads of the end of s1 some time after Stop has returned.
	toNobody := providers.Event{Text: "look", Broadcast: true}
	var err error
	for begin := time.Now(); !errors.Is(err, providers.ErrNotConnected); _, err = p.Push(ctx,
		toNobody) {
		if time.Since(begin) > patience {
			t.Fatalf("surfacing in no session: %v, want ErrNotConnected", err)
		}
	}

	r, err := p.Push(ctx, providers.Event{Text: "build 13 failed", Level: providers.Keep,
		Broadcast: true},
		providers.WaitDelivered)
	if err != nil || len(r.Each) != 1 || r.Each[0].Session != providers.AllSessions ||
		r.Each[0].Fate != providers.Stored {
		t.Errorf("broadcasting to no session: %+v, %v, want one receipt: stored for all", r, err)
	}

	w.session("s2")
	expect(t, "bound", receive(t, bound), "s2")
	e, err := p.Query(ctx, providers.Query{Session: "s2"})
	if err != nil || len(e) != 1 || e[0].Text != "build 13 failed" {
		t.Errorf("the streams of s2: %+v, %v, want the event", e, err)
	}
}

// A lost connection does not change a provider's offer.
func TestRealReconnect(t *testing.T) {
	w := newWorld(t)
	s := w.session("s1")
	ctx := t.Context()
	bound := make(chan providers.Binding, 8)
	p, _ := w.provider("guard",
		providers.Options{OnBound: func(_ context.Context, b providers.Binding) { bound <- b }})
	first := receive(t, bound)
	must[*providers.Rule](t)(p.Gate(ctx, providers.Match{Tool: "shell"},
		func(context.Context, providers.GateCall) (providers.Decision, error) {
			return providers.Deny("no"), nil
		}))
	must[uint64](t)(p.SetContext(ctx, "Still there."))
	must[uint64](t)(p.SetContext(ctx, "Only here.", "s1"))
	must[uint64](t)(p.Transform(ctx, "tone", func(context.Context, providers.Section) (string,
		error) {
		return "Wet.",
			nil
	}))
	must[uint64](t)(p.AddTool(ctx, fixed("greet", "Hello!", nil)))
	must[uint64](t)(p.AddTool(ctx, fixed("mine", "Mine!", nil), "s1"))
	must[uint64](t)(p.SetFilter(ctx, "noise",
		providers.FilterRule{Match: ".", Outcome: providers.Drop}))
	must[uint64](t)(p.SetFilter(ctx, "quiet",
		providers.FilterRule{Match: ".", Outcome: providers.Drop}))
	if n := w.gateway.StopProvider("guard"); n != 1 {
		t.Fatalf("%d connections were cut, want 1", n)
	}
	must[uint64](t)(p.SetFilter(ctx, "quiet")) // before, while or after it is back
	if again := receive(t, bound); again != first {
		t.Errorf("bound to %+v, want %+v as before", again, first)
	}
	expect(t, "the gate", s.asks(t, "bash", `{}`), "denied: no")
	expect(t, "the context", s.UserPrompt(ctx, "", ""), "Only here.")
	expect(t, "the section", s.Transform(ctx, map[string]string{"tone": "dry"})["tone"], "Wet.")
	expect(t, "a tool", s.call(t, "greet", `{}`), "Hello!")
	expect(t, "a tool of its own", s.call(t, "mine", `{}`), "Mine!")
	for stream, want := range map[string]providers.Fate{"noise": providers.Dropped,
		"quiet": providers.Stored} {
		if r, err := p.Push(ctx, providers.Event{Text: "x", Stream: stream,
			Level: providers.Keep}); err != nil ||
			r.Fate != want {
			t.Errorf("%s: %+v, %v, want %s", stream, r, err, want)
		}
	}
}

// Two instances share their tools; target chooses.
func TestRealInstances(t *testing.T) {
	w := newWorld(t)
	s := w.session("s1")
	for _, tab := range []string{"a", "b"} {
		w.provider("browser",
			providers.Options{Instance: tab, Metadata: map[string]any{"title": "Tab " + tab}},
			func(p *providers.Provider) {
				must[uint64](t)(p.AddTool(t.Context(), fixed("page", "page of "+tab, nil)))
			})
	}
	expect(t, "a", s.call(t, "page", `{"target":"a"}`), "page of a")
	expect(t, "b", s.call(t, "page", `{"target":"b"}`), "page of b")
	if got := s.call(t, "list_browser_instances", `{}`); !strings.Contains(got,
		`"title":"Tab a"`) ||
		!strings.Contains(got, `"title":"Tab b"`) {
		t.Errorf("instances %s, want both", got)
	}
}

// A provider without a token pairs, and then has the rights of an external one.
func TestRealPairing(t *testing.T) {
	w := newWorld(t)
	w.session("s1")
	s2 := w.session("s2")
	ctx := t.Context()
	heard := make(chan string, 8)
	bound := make(chan providers.Binding, 8)
	o := &providers.Options{URL: w.url, Session: "s1", Logger: quiet,
		OnBound: func(_ context.Context, b providers.Binding) { bound <- b }}
	p := providers.New("browser", o)
	code := func(ok bool) func(context.Context, string) (string, error) {
		return func(context.Context, string) (string, error) {
			pending := w.gateway.Pairings()
			if len(pending) != 1 || pending[0].Provider != "browser" || pending[0].Session != "s1" {
				return "", fmt.Errorf("pairings %+v", pending)
			}
			if !ok {
				return "wrong", nil
			}
			return pending[0].Code, nil
		}
	}
	if _, err := p.Pair(ctx, code(false)); codeOf(err) != providers.CodeAuthFailed {
		t.Errorf("a wrong code: %v, want AUTH_FAILED", err)
	}
	token, err := p.Pair(ctx, code(true))
	if err != nil || !strings.HasPrefix(token, "ext-tok-") {
		t.Fatalf(`pairing: %q, %v, want no error and "ext-tok-" at its start`, token, err)
	}
	must[uint64](t)(p.AddTool(ctx, fixed("page", "the page", nil)))
	must[uint64](t)(p.Append(ctx, "tone", "Speak of pages."))
	providers.Subscribe(p, func(_ context.Context, e providers.ToolExecution) { heard <- e.Tool })
	r := run(t, p)
	b := receive(t, bound)
	if b.Session != "s1" || b.PersistDir != "" {
		t.Errorf("bound to %+v, want s1 and no directory", b)
	}
	s1, _ := w.gateway.Session("s1")
	expect(t, "page", (&session{Session: s1}).call(t, "page", `{}`), "the page")
	s1.Event(domain.Event{Callback: domain.OnEndToolExecution, ID: "c1", Tool: "bash",
		Result: &adminapi.ToolOutput{}})
	expect(t, "heard", receive(t, heard), "bash")
	if _, err := p.SetContext(ctx, "not mine to say"); codeOf(err) != providers.CodeUnauthorized {
		t.Errorf("setting the context: %v, want UNAUTHORIZED", err)
	}
	if _, err := p.Gate(ctx, providers.Match{}, allow); codeOf(err) != providers.CodeUnauthorized {
		t.Errorf("adding a gate: %v, want UNAUTHORIZED", err)
	}
	// It comes back by itself.
	w.gateway.StopProvider("browser")
	if again := receive(t, bound); again != b {
		t.Errorf("bound to %+v, want %+v as before", again, b)
	}

	// Its session's end is the end.
	if err := s1.Stop(ctx, "done"); err != nil {
		t.Error(err)
	}
	if err := r.wait(); !errors.Is(err, providers.ErrNotPaired) {
		t.Errorf("Run returned %v, want ErrNotPaired", err)
	}
	expect(t, "page in s2", s2.call(t, "page", `{}`),
		`NOT_FOUND: tool "page" does not exist in this session`)
}

// A provider that may not bind to all sessions gets UNAUTHORIZED.
func TestRealUnauthorized(t *testing.T) {
	w := newWorld(t)
	w.session("s1")
	o := &providers.Options{URL: w.url, Token: w.gateway.InstanceToken(),
		Session: providers.AllSessions, Logger: quiet}
	if err := run(t, providers.New("sample", o)).wait(); codeOf(err) != providers.CodeUnauthorized {
		t.Errorf("Run returned %v, want UNAUTHORIZED", err)
	}
}

// A provider moves from a session that ends to the next one with its whole offer.
func TestRealNextSession(t *testing.T) {
	w := newWorld(t)
	ctx := t.Context()
	s1 := w.session("s1")
	bound := make(chan string, 8)
	p, _ := w.provider("guard", providers.Options{OnBound: func(_ context.Context,
		b providers.Binding) {
		bound <- b.Session
	}})
	expect(t, "bound", receive(t, bound), "s1")
	must[*providers.Rule](t)(p.Deny(ctx, providers.Match{Tool: "shell"}, "no"))
	if err := s1.Stop(ctx, "done"); err != nil {
		t.Error(err)
	}
	s2 := w.session("s2")
	expect(t, "bound", receive(t, bound), "s2")
	expect(t, "the rule", s2.asks(t, "bash", `{}`), "denied: no")
}
