package gateway

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// pushing is a session that takes prompts, with a provider that injects into it.
type pushing struct {
	t *testing.T
	g *Gateway
	s *Session
	c *Conn
	p *inbox
	n int
}

func newPushing(t *testing.T) *pushing {
	g := New(Options{})
	s, err := g.Register(SessionSpec{ID: "s1", Label: "l", CWD: "/c"},
		HostInfo{Kind: "test", Send: true}, quietHost{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Drain(context.Background()) })
	c, p := connectProvider(t, g, `"name":"ci"`)
	p.drain()
	return &pushing{t: t, g: g, s: s, c: c, p: p}
}

// inject has the provider inject a prompt, ends its turn, and returns the provider's
// last receipt.
func (x *pushing) inject() (last *protocol.Ack) {
	x.t.Helper()
	x.n++
	x.c.Receive(fmt.Appendf(nil, `{"type":"push","level":"inject","event":"e%d","requestId":"r%d"}`,
		x.n, x.n))
	synctest.Wait()
	for _, m := range x.p.drain() {
		if a, ok := m.(*protocol.Ack); ok {
			last = a
		}
	}
	if last == nil {
		x.t.Fatal("the provider got no receipt, want one")
	}
	x.s.Idle()
	synctest.Wait()
	return last
}

func (x *pushing) injects(times int, want adminapi.Fate) {
	x.t.Helper()
	for i := range times {
		if a := x.inject(); a.Fate != string(want) {
			x.t.Errorf("inject %d of %d: %s %s, want %s", i+1, times, a.Fate, a.Reason, want)
		}
	}
}

// warnings are the warnings of the timeline.
func (x *pushing) warnings() (list []string) {
	lines, _ := x.s.Timeline(0)
	for _, l := range lines {
		if l.Level == adminapi.LogWarning {
			list = append(list, l.Message)
		}
	}
	return list
}

// A provider that injects once an hour is never paused, even if the user says nothing.
func TestHourlyInjectsAreNoLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPushing(t)
		for range 24 {
			x.injects(1, adminapi.FateDelivered)
			sleep(time.Hour)
		}
		if w := x.warnings(); len(w) > 0 {
			t.Errorf("warnings: %q, want none", w)
		}
	})
}

// A loop is paused, with one warning and a reason that says until when. It stays
// paused while it goes on, and ends with a quiet time, which may be changed meanwhile.
func TestPauseEndsWithQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPushing(t)
		x.injects(4, adminapi.FateDelivered)
		for range 4 { // never quiet for long enough
			sleep(DefaultInjectQuiet - time.Millisecond)
			a := x.inject()
			if a.Fate != string(adminapi.FateSurfaced) ||
				!strings.Contains(a.Reason,
					"until the user speaks or it has injected nothing for 10m0s") {
				t.Errorf("%s: %s, want %s until the user speaks", a.Fate, a.Reason,
					adminapi.FateSurfaced)
			}
		}
		if w := x.warnings(); len(w) != 1 ||
			!strings.Contains(w[0], "provider ci injected 4 times") {
			t.Errorf(`warnings: %q, want 1 of them and "provider ci injected 4 times" in it`, w)
		}
		if n := x.g.Stats().PausedInjects.Load(); n != 4 {
			t.Errorf("%d paused injects are counted, want 4", n)
		}
		sleep(DefaultInjectQuiet)
		x.injects(4, adminapi.FateDelivered)
		x.injects(1, adminapi.FateSurfaced)
		if w := x.warnings(); len(w) != 2 {
			t.Errorf("warnings of two pauses: %q, want 2 of them", w)
		}
		x.g.SetInjectQuiet(time.Second)
		sleep(time.Second)
		x.injects(1, adminapi.FateDelivered)
	})
}

// TestBudgetedInjects: a provider with a budget of its own is not paused, and ends no other's
// pause.
func TestBudgetedInjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPushing(t)
		x.injects(protocol.MaxInjectCycles+1, adminapi.FateDelivered)
		x.injects(1, adminapi.FateSurfaced)
		pass := x.g.Issue(PassSpec{Trust: TrustProject, Session: "s1", Name: "goals",
			Owner: "goals", Budgeted: true})
		p := &inbox{arrived: make(chan struct{}, 1), closed: make(chan struct{})}
		c := x.g.Connect(p, ConnOptions{})
		defer c.Closed()
		c.Receive(protocol.Append(nil, &protocol.Auth{Token: pass.Token()}))
		c.Receive([]byte(`{"type":"hello","protocolVersion":2,"session":"s1","name":"goals"}`))
		p.drain()
		ci, inbox := x.c, x.p
		x.c, x.p = c, p
		x.injects(2*protocol.MaxInjectCycles, adminapi.FateDelivered)
		x.c, x.p = ci, inbox
		x.injects(1, adminapi.FateSurfaced)
	})
}

// What the session's model starts is one streak, under whatever name and however often it is
// started. It is none of others.
func TestModelsInjectsAreOneStreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPushing(t)
		inject := func(name string) adminapi.Fate {
			t.Helper()
			pass := x.g.Issue(PassSpec{Trust: TrustProject, Session: "s1", Name: name, Owner: "tap",
				Model: true})
			defer pass.Revoke()
			p := &inbox{arrived: make(chan struct{}, 1), closed: make(chan struct{})}
			c := x.g.Connect(p, ConnOptions{})
			defer c.Closed()
			c.Receive(protocol.Append(nil, &protocol.Auth{Token: pass.Token()}))
			c.Receive(fmt.Appendf(nil,
				`{"type":"hello","protocolVersion":2,"session":"s1","name":%q}`, name))
			p.drain()
			ci, inbox := x.c, x.p
			defer func() { x.c, x.p = ci, inbox }()
			x.c, x.p = c, p
			return adminapi.Fate(x.inject().Fate)
		}
		for i, name := range []string{"tap.a", "tap.a", "tap.b", "tap"} {
			if fate := inject(name); fate != adminapi.FateDelivered {
				t.Errorf("inject %d: %s, want %s", i+1, fate, adminapi.FateDelivered)
			}
		}
		for _, name := range []string{"tap.a", "tap.c"} {
			if fate := inject(name); fate != adminapi.FateSurfaced {
				t.Errorf("the fifth inject, of %s: %s, want %s", name, fate, adminapi.FateSurfaced)
			}
		}
		const want = "the model's emitters injected 4 times without a word from the user: their injects are only " +
			"shown until the user speaks or they have injected nothing for 10m0s"
		if w := x.warnings(); len(w) != 1 || w[0] != want {
			t.Errorf("warnings: %q, want %q", w, want)
		}
		if n := len(x.s.prompts.pushers); n != 4 {
			t.Errorf("%d pushers are kept, want one for each of the 4 names", n)
		}
		x.injects(4, adminapi.FateDelivered) // of another provider
		sleep(DefaultInjectQuiet)
		if fate := inject("tap.c"); fate != adminapi.FateDelivered {
			t.Errorf("after a quiet time: %s, want %s", fate, adminapi.FateDelivered)
		}
	})
}

// What a pass withdraws is not given to the session, and its place in the queue is free. What
// others inject stays.
func TestWithdrawnInjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPushing(t)
		s, err := x.g.Register(SessionSpec{ID: "s2"}, HostInfo{Kind: "test", Send: true},
			quietHost{})
		if err != nil {
			t.Fatal(err)
		}
		x.inject()
		if _, err := x.s.Prompt(t.Context(), Prompt{Text: "work"}); err != nil {
			t.Fatal(err)
		}
		pass := x.g.Issue(PassSpec{Trust: TrustProject, Session: "s1", Name: "goals",
			Owner: "goals"})
		p := &inbox{arrived: make(chan struct{}, 1), closed: make(chan struct{})}
		c := x.g.Connect(p, ConnOptions{})
		c.Receive(protocol.Append(nil, &protocol.Auth{Token: pass.Token()}))
		c.Receive([]byte(`{"type":"hello","protocolVersion":2,"session":"s1","name":"goals"}`))
		for range 2 { // as many as may wait
			sleep(time.Second)
			for range protocol.MaxQueuedInjects {
				c.Receive([]byte(`{"type":"push","level":"inject","event":"on","requestId":"r"}`))
			}
			x.c.Receive([]byte(`{"type":"push","level":"inject","event":"failed"}`))
			s.WithdrawInjects(pass) // it is another session
			if n := x.s.QueuedInjects(); n <= protocol.MaxQueuedInjects {
				t.Errorf("%d injects wait, want those of both providers", n)
			}
			x.s.WithdrawInjects(pass)
		}
		c.Closed()
		if n := x.s.QueuedInjects(); n != 2 {
			t.Errorf("%d injects wait at the end, want the 2 of the other provider", n)
		}
		fates := map[string]int{}
		for _, m := range p.drain() {
			if a, ok := m.(*protocol.Ack); ok {
				fates[strings.TrimSpace(a.Fate+" "+a.Reason)]++
			}
		}
		const each = 2 * protocol.MaxQueuedInjects
		want := map[string]int{"queued": each, "dropped its provider has withdrawn it": each}
		if !maps.Equal(fates, want) {
			t.Errorf("receipts: got %v, want %v", fates, want)
		}
	})
}

// An inject of a person counts as the user's word: it ends pauses and is never paused.
// What the person only stores or shows does not count.
func TestPersonsInjectIsTheUsersWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPushing(t)
		person := func(level protocol.Level, want adminapi.Fate) {
			t.Helper()
			r, err := x.s.Push(t.Context(), "tapctl", &protocol.Push{Level: level, Event: "look"})
			if err != nil || r.Fate != want {
				t.Errorf("%s: %s %s %v, want no error and Fate %s", level, r.Fate, r.Reason, err,
					want)
			}
			x.s.Idle()
			synctest.Wait()
		}
		x.injects(4, adminapi.FateDelivered)
		person(protocol.LevelSurface, adminapi.FateSurfaced)
		x.injects(1, adminapi.FateSurfaced)
		for range 6 { // as often as the budget allows
			person(protocol.LevelInject, adminapi.FateDelivered)
		}
		x.injects(4, adminapi.FateDelivered)
		x.injects(1, adminapi.FateSurfaced)
	})
}

// Events that come while there is no session wait for the next one, and for that one
// only. The newest stay, and the timeline says how many were dropped.
func TestEventsWaitForASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		defer g.Drain(context.Background())
		var last time.Time
		for i := range maxWaitingEvents + 5 {
			r, err := g.StoreEvent(t.Context(), "ci", &protocol.Push{Level: protocol.LevelKeep,
				Stream: "Builds",
				Event:  fmt.Sprint(i), Metadata: protocol.Raw(`{"n":1}`)})
			if err != nil || r.Fate != adminapi.FateStored ||
				!strings.Contains(r.Reason, "kept for the next one") {
				t.Fatalf("the receipt is %+v, %v, want %v for the next session", r, err,
					adminapi.FateStored)
			}
			if i == maxWaitingEvents+4 {
				last = time.Now()
			}
			sleep(time.Second / protocol.PushRate)
		}
		for _, m := range []*protocol.Push{{Level: protocol.LevelSurface, Event: "e"},
			{Level: protocol.LevelKeep, Prompt: "p"}} {
			if _, err := g.StoreEvent(t.Context(), "ci", m); err == nil {
				t.Errorf(
					"StoreEvent of %+v: no error, want one: only keep without a prompt can wait", m)
			}
		}
		sleep(time.Hour)
		first, err := g.Register(SessionSpec{ID: "s1", CWD: "/c"}, HostInfo{Kind: "test"},
			quietHost{})
		if err != nil {
			t.Fatal(err)
		}
		second, err := g.Register(SessionSpec{ID: "s2", CWD: "/c"}, HostInfo{Kind: "test"},
			quietHost{})
		if err != nil {
			t.Fatal(err)
		}
		rows := first.History(nil, 0, time.Time{})
		if len(rows) != maxWaitingEvents || rows[0].Event != fmt.Sprint(maxWaitingEvents+4) ||
			rows[0].Stream != "builds" || !rows[0].TS.Equal(last) ||
			string(rows[0].Metadata) != `{"n":1}` {
			t.Errorf(
				"%d rows, the newest %+v, want %d, the newest the last one with its stream, time and metadata",
				len(rows), rows[0], maxWaitingEvents,
			)
		}
		if n := len(second.History(nil, 0, time.Time{})); n != 0 {
			t.Errorf("another session has %d, want 0", n)
		}
		lines, _ := first.Timeline(0)
		want := "100 events that came while there was no session are in its streams; 5 more are lost, which did not fit"
		if got := lines[1].Message; got != want {
			t.Errorf("the timeline says %q, want %q", got, want)
		}
		// With a session there it is pushed to that.
		m := &protocol.Push{Level: protocol.LevelKeep, Event: "e"}
		if _, err := g.StoreEvent(t.Context(), "ci", m); err != nil ||
			len(second.History(nil, 0, time.Time{})) != 1 {
			t.Error(err)
		}
	})
}
