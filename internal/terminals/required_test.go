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
	"tapgw/internal/terminals/hook"
)

// denier is a provider in process that denies each call that its gate is asked about. One goroutine
// reads its frames.
type denier struct{ frames chan []byte }

func (p *denier) Send(m protocol.Message) {
	if m, ok := m.(*protocol.GateCheck); ok {
		p.frames <- protocol.Append(nil,
			&protocol.GateResult{CallID: m.CallID, Decision: protocol.DecisionDeny,
				Reason: "guarded"})
	}
}

func (*denier) Flush() {}

func (*denier) Close(protocol.CloseCode, string) {}

// A call of a terminal waits for a required provider that is away, however long after the gateway's
// start, and tapgw hook waits long enough for the denial.
func TestRequiredProviderOfTerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gateway.New(gateway.Options{})
		r := New(Options{Gateway: g})
		defer r.Close()
		defer g.Drain(context.Background())
		g.ExpectProviders([]gateway.ExpectedProvider{{Name: "guard", Says: "guard", Owner: "/p",
			Required: true}})
		pass := g.Issue(gateway.PassSpec{Trust: gateway.TrustProject, All: true, Name: "guard",
			Owner: "/p"})
		join := func() {
			p := &denier{make(chan []byte, 4)}
			conn := g.Connect(p, gateway.ConnOptions{})
			p.frames <- fmt.Appendf(nil, `{"type":"auth","token":%q}`, pass.Token())
			p.frames <- []byte(
				`{"type":"hello","protocolVersion":2,"session":"all","name":"guard",` +
					`"hooks":{"onPreToolUse":[{"match":{"tool":"shell"},"action":"gate","gateId":"g"}]}}`)
			for {
				select {
				case frame := <-p.frames:
					conn.Receive(frame)
				case <-t.Context().Done():
					conn.Closed()
					return
				}
			}
		}
		n := 0
		call := func(session, tool string, joins time.Duration) (hook.Answer, time.Duration) {
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
			in := input{Session: session, Tool: tool,
				Args: protocol.Raw(fmt.Sprintf(`{"command":"%d"}`, n))}
			begun := time.Now()
			a := term.hook(t.Context(), hook.EventPreToolUse, in)
			return a, time.Since(begun)
		}
		// In the middle of a turn that is older than the gateway, too.
		a, took := call("s1", "bash", 0)
		if !strings.Contains(a.Reason, "provider guard is required here and is not connected") ||
			!a.Deny || took > 20*time.Second {
			t.Errorf("without it: %+v after %s, want a denial that names it within 20s", a, took)
		}
		if a, took := call("s2", "bash", 7*time.Second); !a.Deny ||
			!strings.Contains(a.Reason, "guarded") || took != 7*time.Second {
			t.Errorf("until it joins: %+v after %s, want its denial after 7s", a, took)
		}
		if a, took := call("s2", "view", 0); a.Deny || took != 0 {
			t.Errorf("a tool that it has no rule about: %+v after %s, want it allowed at once", a,
				took)
		}
	})
}
