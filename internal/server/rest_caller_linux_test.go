package server

import (
	"fmt"
	"io"
	"net"
	"testing"

	"tapgw/internal/gateway"
)

// What comes after a caller hung up is for the next one, also before the gateway
// has noticed.
func TestRESTCallerGoesAway(t *testing.T) {
	f := newRESTFixture(t)
	id := f.mustStart("gpt-5-mini")
	s, _ := f.gateway.Session(id)
	for i := range 100 {
		c := f.raw("copilot/session/" + id + "/live")
		var caller *restCaller
		f.waitUntil(func() bool { caller = f.caller(id); return caller != nil })
		_ = c.Close()
		f.waitUntil(func() bool { return caller.hasHungUp() || f.caller(id) == nil })
		s.Event(gateway.Event{Callback: gateway.OnAgentStart, ID: fmt.Sprint(i)})
		f.wantJSON("the next call", f.live(id),
			fmt.Sprintf(`{"callback":"onAgentStart","turnId":"%d"}`, i))
	}
}

// A caller that disconnected before its answer is distinguished from one that left after it.
func TestRESTCallerState(t *testing.T) {
	f := newRESTFixture(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	pair := func() (theirs net.Conn, c *restCaller) {
		t.Helper()
		theirs, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		ours, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = theirs.Close(), ours.Close() })
		return theirs, &restCaller{conn: ours}
	}
	theirs, c := pair()
	if c.hasHungUp() || c.wasReset() {
		t.Error("a caller that waits is gone, want it there")
	}
	_ = theirs.Close()
	f.waitUntil(c.hasHungUp)
	if c.wasReset() {
		t.Error("wasReset before anything was written: true, want false")
	}
	if _, err := io.WriteString(c.conn, "too late"); err != nil {
		t.Fatal(err)
	}
	f.waitUntil(c.wasReset)

	theirs, c = pair()
	if _, err := io.WriteString(c.conn, "in time"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(theirs, make([]byte, len("in time"))); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	f.waitUntil(c.hasHungUp)
	if c.wasReset() {
		t.Error("wasReset of a caller that left with its answer: true, want false")
	}
	if gone := (&restCaller{}); gone.hasHungUp() || gone.wasReset() {
		t.Error("an unknown caller counts as gone, want not")
	}
}
