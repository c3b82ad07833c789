package providers_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/providers"
)

// notes collects events, to compare them without an order.
type notes struct {
	mu    sync.Mutex
	lines []string
}

func (n *notes) add(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lines = append(n.lines, fmt.Sprintf(format, args...))
}

// take returns the lines since, sorted.
func (n *notes) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	lines := n.lines
	n.lines = nil
	slices.Sort(lines)
	return lines
}

func (n *notes) expect(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	slices.Sort(want)
	if got := n.take(); !slices.Equal(got, want) {
		t.Errorf("happened %q, want %q", got, want)
	}
}

// A provider of all sessions is bound to each. It joins later sessions when it is prepared for
// them, and leaves sessions that end.
func TestAllSessions(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		var happened notes
		release := map[string]chan struct{}{}
		for _, s := range []string{"s1", "s2", "s3", "s4"} {
			release[s] = make(chan struct{})
		}
		p := providers.New("sample", n.options(providers.Options{
			Session: providers.AllSessions, Context: "all",
			PrepareSession: func(ctx context.Context, s providers.Session) {
				happened.add("preparing %s %s %s", s.ID, s.Label, s.CWD)
				select {
				case <-release[s.ID]:
				case <-ctx.Done():
					happened.add("%s is no more", s.ID)
				}
			},
			OnBound: func(ctx context.Context, b providers.Binding) {
				happened.add("bound to %s in %s", b.Session, b.CWD)
				<-ctx.Done()
				happened.add("unbound from %s: %v", b.Session, context.Cause(ctx))
			},
			OnSession: func(_ context.Context, e providers.SessionEvent) {
				happened.add("%s %s", e.Session, e.State)
			},
		}))
		must[uint64](t)(p.SetFilter(t.Context(), "git"))
		must[uint64](t)(p.SetContext(t.Context(), "of three", "s3"))
		run(t, p)
		peer := g.accept()
		peer.next("auth")
		peer.list("sessions")
		synctest.Wait() // there is nothing to bind to yet
		peer.list("sessions", "s1", "s2")
		happened.expect(t, "preparing s1 the s1 /s1", "preparing s2 the s2 /s2")
		close(release["s1"])
		synctest.Wait()
		close(release["s2"])
		peer.expect(
			`{"type":"hello","name":"sample","protocolVersion":2,"session":"all","tools":[],"hooks":{},"subscribe":[],"context":"all"}`)
		peer.ackAll("s1", "s2")
		for _, s := range []string{"s1", "s2"} {
			m := peer.next("filter.set")
			if m["sessionId"] != s {
				t.Errorf("%v, want one for %s", m, s)
			}
			peer.confirm(m, s, 1)
		}
		happened.expect(t, "bound to s1 in /s1", "bound to s2 in /s2", "s1 idle", "s1 started",
			"s2 idle", "s2 started")

		// One that comes is joined when it is prepared, by itself.
		peer.list("sessions.updated", "s1", "s2", "s3", "s4")
		happened.expect(t, "preparing s3 the s3 /s3", "preparing s4 the s4 /s4")
		peer.list("sessions.updated", "s1", "s2", "s3") // s4 goes before it is ready
		happened.expect(t, "s4 is no more")
		close(release["s3"])
		peer.expect(`{"type":"session.ready","sessionId":"s3"}`)
		peer.list("sessions.updated", "s1", "s2", "s3")
		peer.started("s3")
		m := peer.next("filter.set")
		synctest.Wait()
		if m["sessionId"] != "s3" {
			t.Errorf("%v, want one for s3", m)
		}
		peer.confirm(m, "s3", 1)
		m = peer.next("context.update")
		if m["sessionId"] != "s3" || m["context"] != "of three" {
			t.Errorf("%v, want the context of s3", m)
		}
		peer.confirm(m, "s3", 2)
		happened.expect(t, "s3 started", "s3 idle", "bound to s3 in /s3")
	})
}

// A change is for all sessions and confirmed by all.
func TestAllSessionsConfirm(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		var happened notes
		p := providers.New("sample", n.options(providers.Options{
			Session: providers.AllSessions,
			OnBound: func(ctx context.Context, b providers.Binding) {
				happened.add("bound to %s", b.Session)
				<-ctx.Done()
				happened.add("unbound from %s: %v", b.Session, context.Cause(ctx))
			},
		}))
		run(t, p)
		peer := g.accept()
		peer.bindAll("s1", "s2", "s3")
		happened.expect(t, "bound to s1", "bound to s2", "bound to s3")
		c := later(func() (uint64, error) { return p.SetContext(t.Context(), "new") })
		m := peer.next("context.update")
		for i, s := range []string{"s2", "s3", "s1"} {
			synctest.Wait()
			if len(c) != 0 {
				t.Fatalf("confirmed by %d sessions only, want none", i)
			}
			peer.confirm(m, s, 10-i)
		}
		if got := receive(t, c); got != (changed{10, nil}) {
			t.Errorf("got %v, want the highest revision", got)
		}

		// One that ends while it is asked is not waited for.
		c = later(func() (uint64, error) { return p.SetContext(t.Context(), "newer") })
		m = peer.next("context.update")
		peer.confirm(m, "s1", 11)
		peer.send(
			`{"type":"session.lifecycle","sessionId":"s2","state":"shutdown.pending","deadline":10000}`)
		peer.expect(`{"type":"shutdown.ready","sessionId":"s2"}`)
		happened.expect(t, "unbound from s2: cancelled: session ended")
		peer.list("sessions.updated", "s1", "s2", "s3") // not gone yet: not joined again
		synctest.Wait()
		peer.list("sessions.updated", "s1") // and s3 without a word
		happened.expect(t, "unbound from s3: cancelled: session ended")
		if got := receive(t, c); got != (changed{11, nil}) {
			t.Errorf("got %v, want revision 11", got)
		}

		// Without any session it is still bound, and no session confirms a change.
		peer.list("sessions.updated")
		happened.expect(t, "unbound from s1: cancelled: session ended")
		c = later(func() (uint64, error) { return p.SetContext(t.Context(), "newest") })
		peer.next("context.update")
		if got := receive(t, c); got != (changed{}) {
			t.Errorf("got %v, want 0 and no error", got)
		}
		if _, err := p.Push(t.Context(),
			providers.Event{Text: "anyone?", Broadcast: true}); !errors.Is(err,
			providers.ErrNotConnected) {
			t.Errorf("pushing to nobody: %v, want ErrNotConnected", err)
		}
	})
}

// Sessions are prepared once, not for each connection.
func TestAllSessionsReconnect(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		var happened notes
		p := providers.New("sample", n.options(providers.Options{
			Session: providers.AllSessions,
			PrepareSession: func(_ context.Context, s providers.Session) {
				happened.add("preparing %s", s.ID)
			},
			OnBound: func(_ context.Context, b providers.Binding) {
				happened.add("bound to %s", b.Session)
			},
		}))
		must[uint64](t)(p.SetContext(t.Context(), "of two", "s2"))
		run(t, p)
		peer := g.accept()
		peer.bindAll("s1", "s2")
		peer.confirm(peer.next("context.update"), "s2", 1)
		happened.expect(t, "preparing s1", "preparing s2", "bound to s1", "bound to s2")
		peer.cut()
		peer = g.accept()
		peer.expect(`{"type":"auth","reconnectToken":"rt-all","name":"sample"}`)
		peer.list("sessions", "s2", "s3")
		if hello := peer.next("hello"); hello["session"] != "all" ||
			hello["reconnectToken"] != "rt-all" {
			t.Errorf("hello %v, want all sessions and the token", hello)
		}
		peer.ackAll("s2", "s3")
		m := peer.next("context.update")
		if m["context"] != "of two" {
			t.Errorf("%v, want the context of s2", m)
		}
		peer.confirm(m, "s2", 1)
		happened.expect(t, "preparing s3", "bound to s2", "bound to s3")
	})
}

// A session that starts while the hello is on its way is prepared before anything else happens with
// it.
func TestAllSessionsCrossing(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		var happened notes
		release := make(chan struct{})
		p := providers.New("sample", n.options(providers.Options{
			Session: providers.AllSessions,
			PrepareSession: func(_ context.Context, s providers.Session) {
				if s.ID == "s2" {
					<-release
				}
				happened.add("prepared %s", s.ID)
			},
			OnBound: func(_ context.Context, b providers.Binding) {
				happened.add("bound to %s", b.Session)
			},
		}))
		run(t, p)
		peer := g.accept()
		peer.next("auth")
		peer.list("sessions", "s1")
		peer.next("hello")
		peer.list("sessions.updated", "s1", "s2", "s3")
		synctest.Wait() // s3 is prepared, but not asked for: it may be in the hello's
		peer.ackAll("s1", "s2", "s3")
		happened.expect(t, "prepared s1", "bound to s1", "prepared s3", "bound to s3")
		peer.expect(`{"type":"session.ready","sessionId":"s3"}`) // it was ready at the ack
		close(release)
		happened.expect(t, "prepared s2", "bound to s2")

		// One that ends while it is prepared is never opened.
		peer.list("sessions.updated", "s1", "s2", "s3", "s4")
		peer.expect(`{"type":"session.ready","sessionId":"s4"}`)
		peer.send(`{"type":"session.lifecycle","sessionId":"s4","state":"started"}`)
		// not in the list
		peer.send(`{"type":"session.lifecycle","sessionId":"s5","state":"started"}`)
		happened.expect(t, "prepared s4", "bound to s4")
	})
}

// A session that ends while it is prepared is let go at once, and never opened.
func TestAllSessionsEndsEarly(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		var happened notes
		o := n.options(providers.Options{
			Session: providers.AllSessions,
			PrepareSession: func(ctx context.Context, s providers.Session) {
				if s.ID == "s2" {
					<-ctx.Done()
					happened.add("s2 is no more")
				}
			},
			OnBound: func(_ context.Context, b providers.Binding) {
				happened.add("bound to %s", b.Session)
			},
			OnSession: func(_ context.Context, e providers.SessionEvent) {
				happened.add("%s %s", e.Session, e.State)
			},
		})
		errs := errorsOf(o)
		p := providers.New("sample", o)
		must[uint64](t)(p.SetFilter(t.Context(), "git"))
		run(t, p)
		peer := g.accept()
		peer.next("auth")
		peer.list("sessions", "s1")
		peer.next("hello")
		peer.list("sessions.updated", "s1", "s2")
		peer.ackAll("s2", "s1")
		peer.confirm(peer.next("filter.set"), "s1", 1)
		happened.expect(t, "bound to s1", "s1 started", "s1 idle", "s2 started", "s2 idle")
		peer.send(
			`{"type":"session.lifecycle","sessionId":"s2","state":"shutdown.pending","deadline":10000}`)
		peer.expect(`{"type":"shutdown.ready","sessionId":"s2"}`)
		happened.expect(t, "s2 is no more", "s2 shutdown.pending")

		// One that comes without having been asked for, prepared or not.
		peer.list("sessions.updated", "s1", "s2", "s3")
		peer.expect(`{"type":"session.ready","sessionId":"s3"}`)
		peer.started("s3")
		m := peer.next("filter.set")
		// It ends while it is given its filter.
		peer.send(
			`{"type":"session.lifecycle","sessionId":"s3","state":"shutdown.pending","deadline":10000}`)
		peer.refuse(m, "INVALID_SESSION", "gone")
		peer.expect(`{"type":"shutdown.ready","sessionId":"s3"}`)
		happened.expect(t, "s3 started", "s3 idle", "s3 shutdown.pending")
		if len(errs) != 0 {
			t.Errorf("OnError heard %v, want none", <-errs)
		}
	})
}

// A session that could not be joined is asked for again when something changed.
func TestSessionNotReady(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		o := n.options(providers.Options{Session: providers.AllSessions})
		errs := errorsOf(o)
		p := providers.New("sample", o)
		must[uint64](t)(p.AddTool(t.Context(), fixed("greet", nil, nil)))
		run(t, p)
		peer := g.accept()
		peer.bindAll("s1")
		peer.list("sessions.updated", "s1", "s2")
		for _, again := range []func(){
			func() { peer.list("sessions.updated", "s1", "s2") },
			func() {
				c := later(func() (uint64, error) { return p.RemoveTool(t.Context(), "greet") })
				peer.next("session.ready") // a change may cure it; this one is not made yet
				peer.send(
					`{"type":"error","code":"TOOL_CONFLICT","message":"greet is taken","replyTo":"session.ready","sessionId":"s2"}`)
				peer.confirm(peer.next("tools.update"), "s1", 1)
				receive(t, c)
				<-errs //nolint:errcheck // it is there
				peer.list("sessions.updated", "s1", "s2")
			},
		} {
			peer.expect(`{"type":"session.ready","sessionId":"s2"}`)
			peer.send(
				`{"type":"error","code":"TOOL_CONFLICT","message":"greet is taken","replyTo":"session.ready","sessionId":"s2"}`)
			if err := receive(t, errs); codeOf(err) != providers.CodeToolConflict {
				t.Errorf("OnError heard %v, want TOOL_CONFLICT", err)
			}
			again()
		}
		peer.expect(`{"type":"session.ready","sessionId":"s2"}`)
		peer.started("s2")
		c := later(func() (uint64, error) { return p.SetContext(t.Context(), "both") })
		m := peer.next("context.update")
		peer.confirm(m, "s1", 2)
		peer.confirm(m, "s2", 1)
		if got := receive(t, c); got != (changed{2, nil}) {
			t.Errorf("got %v, want %v", got, changed{2, nil})
		}
	})
}

// Binding to all sessions may be refused.
func TestAllSessionsUnauthorized(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		r := run(t,
			providers.New("sample", n.options(providers.Options{Session: providers.AllSessions})))
		peer := g.accept()
		peer.next("auth")
		peer.list("sessions", "s1")
		peer.next("hello")
		peer.send(
			`{"type":"error","code":"UNAUTHORIZED","message":"hello.session: choose one","replyTo":"hello"}`)
		peer.next("goodbye")
		if err := r.wait(); codeOf(err) != providers.CodeUnauthorized {
			t.Errorf("Run returned %v, want UNAUTHORIZED", err)
		}
	})
}

// A broadcast has a receipt, or an error, of each session.
func TestBroadcast(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		p := providers.New("sample", n.options(providers.Options{Session: providers.AllSessions}))
		run(t, p)
		peer := g.accept()
		peer.bindAll("s1", "s2", "s3", "s4")
		synctest.Wait()
		c := pushed(t.Context(), p, providers.Event{Text: "hi", Broadcast: true},
			providers.WaitDelivered)
		peer.expect(
			`{"type":"push","event":"hi","level":"surface","broadcast":true,"requestId":"push-1"}`)
		peer.send(`{"type":"ack","requestId":"push-1","sessionId":"s1","seq":4,"fate":"queued"}`)
		peer.send(
			`{"type":"error","code":"RATE_LIMITED","message":"slow down","replyTo":"push","requestId":"push-1","sessionId":"s2"}`)
		peer.send(`{"type":"ack","requestId":"push-1","sessionId":"s3","seq":9,"fate":"delivered"}`)
		peer.list("sessions.updated", "s1", "s2", "s3") // s4 has gone
		pass(time.Minute)
		if len(c) != 0 {
			t.Fatal("Push returned, want it to wait for s1")
		}
		peer.send(
			`{"type":"ack","requestId":"push-1","sessionId":"s1","seq":4,"fate":"surfaced","reason":"paused"}`)
		got := receive(t, c)
		want := []providers.Receipt{{Session: "s3", Seq: 9, Fate: providers.Delivered},
			{Session: "s1", Seq: 4, Fate: providers.Surfaced, Reason: "paused"}}
		if fmt.Sprint(got.receipt.Each) != fmt.Sprint(want) {
			t.Errorf("receipts %+v, want %+v", got.receipt.Each, want)
		}
		if got.err == nil || codeOf(got.err) != providers.CodeRateLimited ||
			!strings.Contains(got.err.Error(), `session "s4" has ended`) {
			t.Errorf("error %v, want RATE_LIMITED and the end of s4", got.err)
		}

		// To one of them, and to a session that does not exist.
		c = pushed(t.Context(), p, providers.Event{Text: "hi", Session: "s2"})
		peer.expect(
			`{"type":"push","event":"hi","sessionId":"s2","level":"surface","requestId":"push-2"}`)
		peer.send(`{"type":"ack","requestId":"push-2","sessionId":"s2","seq":1,"fate":"delivered"}`)
		if got := receive(t, c); got.err != nil || got.receipt.Session != "s2" {
			t.Errorf(`got %+v, want no error and Session "s2"`, got)
		}
		c = pushed(t.Context(), p, providers.Event{Text: "hi"})
		peer.expect(`{"type":"push","event":"hi","level":"surface","requestId":"push-3"}`)
		peer.send(
			`{"type":"error","code":"INVALID_SESSION","message":"push.sessionId: is required","replyTo":"push","requestId":"push-3"}`)
		if got := receive(t, c); codeOf(got.err) != providers.CodeInvalidSession {
			t.Errorf("got %v, want INVALID_SESSION", got.err)
		}
	})
}

// A queued event is followed to its turn, if that is asked for.
func TestWaitDelivered(t *testing.T) {
	bound(t,
		func(t *testing.T, _ *network, peer *peer, p *providers.Provider, _ *providers.Options) {
			for i, tt := range []struct {
				fates []string
				want  providers.Fate
			}{
				{[]string{"queued", "delivered"}, providers.Delivered},
				{[]string{"queued", "surfaced"}, providers.Surfaced},
				{[]string{"queued", "dropped"}, providers.Dropped},
				{[]string{"stored"}, providers.Stored},
			} {
				c := pushed(t.Context(), p, providers.Event{Text: "hi", Level: providers.Inject},
					providers.WaitDelivered)
				peer.next("push")
				for n, fate := range tt.fates {
					synctest.Wait()
					if len(c) != 0 {
						t.Fatalf("%v: returned after %d receipts, want none", tt.fates, n)
					}
					peer.send(
						fmt.Sprintf(
							`{"type":"ack","requestId":"push-%d","sessionId":"s1","seq":7,"fate":%q}`, i+1,
							fate))
					if fate == "queued" {
						pass(time.Hour)
					}
				}
				if got := receive(t, c); got.err != nil || got.receipt.Fate != tt.want ||
					got.receipt.Seq != 7 {
					t.Errorf("%v: got %+v, want no error, Fate %v and Seq 7", tt.fates, got,
						tt.want)
				}
			}
			// The second receipt of one that was not waited for is no news.
			c := pushed(t.Context(), p, providers.Event{Text: "hi", Level: providers.Inject})
			peer.next("push")
			peer.send(
				`{"type":"ack","requestId":"push-5","sessionId":"s1","seq":8,"fate":"queued"}`)
			if got := receive(t, c); got.receipt.Fate != providers.Queued {
				t.Errorf("got %+v, want %v", got, providers.Queued)
			}
			peer.send(
				`{"type":"ack","requestId":"push-5","sessionId":"s1","seq":8,"fate":"delivered"}`)
			// The end of the session ends the wait.
			c = pushed(t.Context(), p, providers.Event{Text: "hi", Level: providers.Inject},
				providers.WaitDelivered)
			peer.next("push")
			peer.send(
				`{"type":"ack","requestId":"push-6","sessionId":"s1","seq":9,"fate":"queued"}`)
			peer.list("sessions.updated")
			if got := receive(t, c); codeOf(got.err) != providers.CodeInvalidSession {
				t.Errorf("got %v, want INVALID_SESSION", got.err)
			}
		})
}
