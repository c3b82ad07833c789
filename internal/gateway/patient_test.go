package gateway

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// patientHost takes no injects while why is set. A test changes it only while the session's worker
// waits.
type patientHost struct {
	quietHost
	why  string
	sent []Prompt
}

func (h *patientHost) whyNotNow() string { return h.why }

func (h *patientHost) Send(_ context.Context, p Prompt) error {
	h.sent = append(h.sent, p)
	return nil
}

func newPatient(t *testing.T) (*pushing, *patientHost) {
	g, h := New(Options{}), &patientHost{why: "nobody types"}
	s, err := g.Register(SessionSpec{ID: "s1", Label: "l", CWD: "/c"},
		HostInfo{Kind: "test", Send: true, WhyNotNow: h.whyNotNow}, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Drain(context.Background()) })
	c, p := connectProvider(t, g, `"name":"ci"`)
	p.drain()
	return &pushing{t: t, g: g, s: s, c: c, p: p}, h
}

// An idle session whose host can't take injects keeps them, says why in the receipt, and gives them
// when it can.
func TestInjectsWaitForPatientHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, h := newPatient(t)
		if a := x.inject(); a.Fate != string(adminapi.FateQueued) || a.Reason != "nobody types" {
			t.Fatalf("receipt: %s (%s), want queued (nobody types)", a.Fate, a.Reason)
		}
		if len(h.sent) > 0 {
			t.Fatalf("the host got %+v, want nothing yet", h.sent)
		}
		begun := time.Now()
		r, err := x.s.Push(t.Context(), "admin", &protocol.Push{Level: protocol.LevelInject,
			Event: "by hand"})
		if err != nil || r.Fate != adminapi.FateQueued || time.Since(begun) > 0 {
			t.Fatalf("Push: %+v, %v after %v, want queued at once", r, err, time.Since(begun))
		}
		synctest.Wait() // until the worker has asked the host about this one, too
		h.why = ""
		x.s.RetryInjects()
		synctest.Wait()
		x.s.Idle()
		synctest.Wait()
		if len(h.sent) != 2 || h.sent[0].Text != "e1" || h.sent[1].Text != "by hand" {
			t.Fatalf("the host got %+v, want e1 and then what was pushed by hand", h.sent)
		}
	})
}

// A host may take what waits itself. That counts as delivered, and against a provider that never
// stops.
func TestTakeInject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, _ := newPatient(t)
		if p, ok := x.s.TakeInject(); ok {
			t.Fatalf("TakeInject: %+v, want none", p)
		}
		taken := 0
		for range protocol.MaxInjectCycles + 3 {
			x.inject()
			p, ok := x.s.TakeInject()
			if !ok {
				continue
			}
			taken++
			if p.Text == "" || p.Source != SourceProvider+"ci" {
				t.Errorf("TakeInject: %+v, want a text from provider:ci", p)
			}
			synctest.Wait()
			if a := x.lastAck(); a.Fate != string(adminapi.FateDelivered) {
				t.Errorf("receipt: %s, want delivered", a.Fate)
			}
		}
		if want := protocol.MaxInjectCycles + 1; taken != want {
			t.Errorf("%d injects were taken in a row, want %d and then a pause", taken, want)
		}
		if len(x.warnings()) == 0 {
			t.Error("no warning about the pause, want one")
		}
	})
}

// lastAck is the last receipt that the provider got since the test looked.
func (x *pushing) lastAck() (last protocol.Ack) {
	for _, m := range x.p.drain() {
		if a, ok := m.(*protocol.Ack); ok {
			last = *a
		}
	}
	return last
}

// A session whose agent works already waits for the providers that are on their way, and not for
// others.
func TestAwaitProviders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		t.Cleanup(func() { g.Drain(context.Background()) })
		register := func(id string) *Session {
			s, err := g.Register(SessionSpec{ID: id, CWD: "/c"}, HostInfo{Kind: "test"},
				quietHost{})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		await := func(s *Session) time.Duration {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			begun := time.Now()
			s.AwaitProviders(ctx)
			return time.Since(begun)
		}
		first := register("s1")
		if took := await(first); took > 0 {
			t.Errorf("without providers: %v, want no wait", took)
		}
		connectProvider(t, g, `"name":"other"`) // of s1
		c := g.Connect(&inbox{arrived: make(chan struct{}, 1), closed: make(chan struct{})},
			ConnOptions{})
		t.Cleanup(c.Closed)
		c.Receive(fmt.Appendf(nil, `{"type":"auth","token":%q}`, g.AdminToken()))
		c.Receive([]byte(`{"type":"hello","protocolVersion":2,"session":"all","name":"gate"}`))
		second := register("s2")
		go func() {
			<-time.After(300 * time.Millisecond)
			c.Receive([]byte(`{"type":"session.ready","sessionId":"s2"}`))
		}()
		if took := await(second); took != 300*time.Millisecond {
			t.Errorf("with a provider of all sessions: %v, want until it is bound", took)
		}
		if took := await(register("s3")); took != time.Second {
			t.Errorf("with a provider that does not answer: %v, want the whole time", took)
		}
	})
}
