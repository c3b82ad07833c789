package cluster

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/taptest/membus"
)

// A provider of one session of another gateway sees and serves that session alone, and so does one
// whose file names labels.
func TestServesSingleSessionElsewhere(t *testing.T) {
	for name, spec := range map[string]func(session string) gateway.PassSpec{
		"by its id": func(session string) gateway.PassSpec {
			return gateway.PassSpec{Trust: gateway.TrustProject, Session: session, At: "a"}
		},
		"by a label": func(string) gateway.PassSpec {
			return gateway.PassSpec{Trust: gateway.TrustExternal, MatchLabels: true,
				Match: func(v adminapi.Session) bool { return v.Label == "work" }}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membus.New(1 << 20)
				here, there := newMachine(t, b, "a", nil), newMachine(t, b, "b", nil)
				third := newMachine(t, b, "c", nil)
				defer here.close()
				defer there.close()
				defer third.close()
				s, other := here.session("work"), here.session("other")
				own, far := there.session("mine"), third.session("far")
				meet()
				pass := there.gateway.Issue(spec(s.ID()))
				p := there.connect(pass.Token())
				defer p.conn.Closed()
				meet()
				for _, m := range p.take() {
					for _, hidden := range []*gateway.Session{other, far} {
						if strings.Contains(m, hidden.ID()) {
							t.Errorf("it is told of session %s: %s", hidden.View().Label, m)
						}
					}
				}
				for _, refused := range []*gateway.Session{other, own, far} {
					p.send(fmt.Sprintf(helloTool, refused.ID()))
					e := last[*protocol.Error](p)
					if e.Code != protocol.CodeInvalidSession &&
						e.Code != protocol.CodeUnauthorized {
						t.Errorf("hello to session %s: %v, want refused", refused.View().Label, e)
					}
				}
				hello := fmt.Sprintf(helloTool, s.ID())
				if name == "by its id" {
					hello = strings.Replace(hello, fmt.Sprintf(`"session":%q,`, s.ID()), "", 1)
				}
				p.send(hello)
				if ack := last[*protocol.HelloAck](p); ack.SessionID != s.ID() {
					t.Errorf("bound to %q, want %q", ack.SessionID, s.ID())
				}
				if !pass.IsBound() {
					t.Error("its pass is not bound")
				}
				for _, none := range []*gateway.Session{other, own, far} {
					if n := len(none.Tools()); n != 0 {
						t.Errorf("session %s has %d tools, want none", none.View().Label, n)
					}
				}
				done := call(s, "t")
				c := last[*protocol.ToolCall](p)
				p.send(fmt.Sprintf(`{"type":"tool.result","id":%q,"data":1}`, c.ID))
				if o := <-done; o.Failed() {
					t.Errorf("the call: %+v, want the answer", o)
				}
				pass.Revoke()
				meet()
				if n := len(s.Tools()); n != 0 {
					t.Errorf("%d tools after the pass has ended, want none", n)
				}
			})
		})
	}
}

// A gateway that is asked for the sessions of others knows only those that are shared, and no
// session with an id of its own.
func TestElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membus.New(1 << 20)
		var changes atomic.Int64
		here := newMachine(t, b, "a", func(o *Options) { o.Share = []string{"work*"} })
		there := newMachine(t, b, "b", func(o *Options) {
			o.Share, o.Changed = []string{"gpu"}, func() { changes.Add(1) }
		})
		defer here.close()
		defer there.close()
		s := here.session("work")
		here.session("secret")
		own := there.session("work-too")
		meet()
		there.cluster.heard("a", Beat{Version: "1", Lists: 1})
		meet()
		list := there.cluster.Elsewhere("gpu")
		isRight := len(list) == 1 && list[0].ID == s.ID() && list[0].Gateway == "a" &&
			list[0].CWD == ""
		if !isRight || changes.Load() == 0 {
			t.Errorf("%+v after %d changes, want the shared session of a, without a directory",
				list, changes.Load())
		}
		if list := there.cluster.Elsewhere("cpu"); len(list) != 0 {
			t.Errorf("%+v for a provider that is not shared, want none", list)
		}
		there.cluster.mu.Lock()
		there.cluster.members["a"].shared.Sessions = []adminapi.Session{
			{ID: own.ID()}, {ID: ""}, {ID: strings.Repeat("x", 1000)}, {ID: "e", State: "ending"},
		}
		there.cluster.mu.Unlock()
		if list := there.cluster.Elsewhere("gpu"); len(list) != 0 {
			t.Errorf("%+v of a gateway that makes sessions up, want none", list)
		}
	})
}
