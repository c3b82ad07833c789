package gateway

import (
	"context"
	"testing"
	"testing/synctest"

	"tapgw/internal/protocol"
)

// When another provider changes its tools, a call that was checked is not checked again:
// else a call with long arguments would never catch up with a provider that updates fast.
func TestCheckedCallIsNotCheckedAgain(t *testing.T) {
	synctest.Test(t, testCheckedCall)
}

func testCheckedCall(t *testing.T) {
	g := New(Options{})
	defer g.Drain(context.Background())
	s, err := g.Register(SessionSpec{ID: "s1", CWD: "/c"}, HostInfo{Kind: "test"}, quietHost{})
	if err != nil {
		t.Fatal(err)
	}
	// with an instance, since the route of a tool that one provider has never changes
	connectProvider(
		t,
		g,
		`"name":"p","instance":"i","tools":[{"name":"t","description":"d","parameters":{"type":"object","required":["n"]}}]`,
	)
	c := &call{pending: &Pending{}, session: s, name: "t", callerArgs: protocol.Raw(`{"n":1}`)}
	before := s.routes.Load()
	if err := c.prepare(before); err != nil {
		t.Fatal(err)
	}
	connectProvider(t, g, `"name":"other","tools":[{"name":"u","description":"d","parameters":{}}]`)
	after := s.routes.Load()
	if after.find("t") == before.find("t") {
		t.Fatal("the routes did not change, want another route to the tool: the test shows nothing")
	}
	c.callerArgs = protocol.Raw(`{}`) // a second check would refuse these
	if err := c.prepare(after); err != nil || c.route != after.find("t") ||
		string(c.args) != `{"n":1}` {
		t.Errorf(
			"prepare with new routes: got %v with arguments %s, want nil with those that were checked",
			err, c.args,
		)
	}
}

// A retry may ask gates before its first attempt has noted that it is done. An interrupt
// still finds the call.
func TestRetryStaysAmongTheCallsAtGates(t *testing.T) {
	s := &Session{askingGates: map[*Pending]int{}}
	p := &Pending{}
	s.setAskingGates(p, true)
	s.setAskingGates(p, true)
	s.setAskingGates(p, false)
	if got := len(s.askingGates); got != 1 {
		t.Errorf("with one attempt at its gates: got %d calls, want 1", got)
	}
	s.setAskingGates(p, false)
	if got := len(s.askingGates); got != 0 {
		t.Errorf("with no attempt at its gates: got %d calls, want 0", got)
	}
}
