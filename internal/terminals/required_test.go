package terminals

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// denier is a provider in process that denies what its gate is asked about.
type denier struct {
	conn    *gateway.Conn
	answers []*protocol.GateResult
}

func (p *denier) Send(m protocol.Message) {
	if m, ok := m.(*protocol.GateCheck); ok {
		p.answers = append(p.answers,
			&protocol.GateResult{CallID: m.CallID, Decision: protocol.DecisionDeny, Reason: "guarded"})
	}
}

func (p *denier) Flush() {
	answers := p.answers
	p.answers = nil
	for _, a := range answers {
		p.conn.Receive(protocol.Append(nil, a))
	}
}

func (*denier) Close(protocol.CloseCode, string) {}

// A call of a terminal waits for a required provider that is away, however long after the gateway's start, and
// tapgw hook waits long enough for the denial.
func TestRequiredProviderOfTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gateway.New(gateway.Options{})
		r := New(Options{Gateway: g})
		defer r.Close()
		defer g.Drain(context.Background())
		g.ExpectProviders([]gateway.ExpectedProvider{{Name: "guard", Says: "guard", Owner: "/p", Required: true}})
		pass := g.Issue(gateway.PassSpec{Trust: gateway.TrustProject, All: true, Name: "guard", Owner: "/p"})
		join := func() *denier {
			p := &denier{}
			p.conn = g.Connect(p, gateway.ConnOptions{})
			t.Cleanup(p.conn.Closed)
			p.conn.Receive(fmt.Appendf(nil, `{"type":"auth","token":%q}`, pass.Token()))
			p.conn.Receive([]byte(`{"type":"hello","protocolVersion":2,"session":"all","name":"guard",` +
				`"hooks":{"onPreToolUse":[{"match":{"tool":"shell"},"action":"gate","gateId":"g"}]}}`))
			return p
		}
		n := 0
		call := func(session, tool string, joins time.Duration) (answer, time.Duration) {
			term, err := r.enter(t.Context(), Terminal{Session: session, CWD: "/"})
			if err != nil {
				t.Fatal(err)
			}
			if joins > 0 {
				go func() {
					<-time.After(joins)
					join()
				}()
			}
			n++
			in := input{Session: session, Tool: tool, Args: protocol.Raw(fmt.Sprintf(`{"command":"%d"}`, n))}
			begun := time.Now()
			a := term.hook(t.Context(), EventPreToolUse, in)
			return a, time.Since(begun)
		}
		// In the middle of a turn that is older than the gateway, too.
		a, took := call("s1", "bash", 0)
		if !strings.Contains(a.reason, "provider guard is required here and is not connected") || !a.deny ||
			took > 20*time.Second {
			t.Errorf("without it: %+v after %s, want a denial that names it within 20s", a, took)
		}
		if a, took := call("s2", "bash", 7*time.Second); !a.deny || !strings.Contains(a.reason, "guarded") ||
			took != 7*time.Second {
			t.Errorf("until it joins: %+v after %s, want its denial after 7s", a, took)
		}
		if a, took := call("s2", "view", 0); a.deny || took != 0 {
			t.Errorf("a tool that it has no rule about: %+v after %s, want it allowed at once", a, took)
		}
	})
}
