package providers_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/providers"
)

// gated is a provider with one gate, that is bound.
func gated(t *testing.T, decide func(context.Context, providers.GateCall) (providers.Decision,
	error), opts ...func(*providers.Rule)) (*peer, *running) {
	t.Helper()
	p := providers.New("sample", &providers.Options{Logger: quiet})
	must[*providers.Rule](t)(p.Gate(t.Context(), providers.Match{}, decide, opts...))
	home(t)
	g := newGateway(t)
	t.Setenv("TAP_GATEWAY_URL", g.url)
	t.Setenv("TAP_PROVIDER_TOKEN", "ptk-1")
	r := run(t, p)
	peer := g.accept()
	peer.bind()
	return peer, r
}

const check = `{"type":"gate.check","gateId":"gate-1","callId":"g1","sessionId":"s1","tool":"bash","args":{"command":"git push"},"traceparent":"00-1-2-01"}`

// A gate allows only by saying so.
func TestGate(t *testing.T) {
	tests := map[string]struct {
		decide func() (providers.Decision, error)
		want   string
	}{
		"allow": {func() (providers.Decision, error) {
			return providers.Allow(), nil
		}, `"decision":"allow"`},
		"allow with": {func() (providers.Decision, error) {
			return providers.AllowWith("mind CI"), nil
		},
			`"decision":"context","reason":"mind CI"`},
		"deny": {func() (providers.Decision, error) { return providers.Deny("CI is red"), nil },
			`"decision":"deny","reason":"CI is red"`},
		"nothing": {func() (providers.Decision, error) { return providers.Decision{}, nil },
			`"decision":"deny","reason":"The gate did not decide."`},
		"error": {func() (providers.Decision, error) {
			return providers.Allow(), errors.New("CI is down")
		},
			`"decision":"deny","reason":"CI is down"`},
		"panic": {func() (providers.Decision, error) { panic("ouch") },
			`"decision":"deny","reason":"The gate panicked: ouch"`},
		"goexit": {func() (providers.Decision, error) {
			runtime.Goexit()
			return providers.Allow(), nil
		},
			`"decision":"deny","reason":"The gate's function ended its goroutine."`},
		"too large": {func() (providers.Decision, error) {
			return providers.AllowWith(strings.Repeat("x", 2<<20)),
				nil
		},
			`"decision":"deny","reason":"The gate's answer is too large to be sent."`},
	}
	for name, tt := range tests {
		for _, opts := range [][]func(*providers.Rule){nil, {providers.FailOpen}} {
			t.Run(fmt.Sprintf("%s, %d options", name, len(opts)), func(t *testing.T) {
				calls := make(chan providers.GateCall, 1)
				peer, _ := gated(t,
					func(_ context.Context, call providers.GateCall) (providers.Decision, error) {
						calls <- call
						return tt.decide()
					}, opts...)
				peer.send(check)
				peer.expect(`{"type":"gate.result","gateId":"gate-1","callId":"g1",` + tt.want +
					`}`)
				call := receive(t, calls)
				if call.ID != "g1" || call.Session != "s1" || call.Tool != "bash" ||
					string(call.Args) != `{"command":"git push"}` ||
					call.Traceparent != "00-1-2-01" {
					t.Errorf("the gate was asked about %+v, want gate g1 of session s1 about bash",
						call)
				}
			})
		}
	}
}

// An unknown or removed gate denies; a rule without a gate is not asked.
func TestUnknownGate(t *testing.T) {
	bound(t,
		func(t *testing.T, _ *network, peer *peer, p *providers.Provider, _ *providers.Options) {
			gates := make(chan *providers.Rule, 1)
			go func() {
				gates <- must[*providers.Rule](t)(p.Gate(t.Context(), providers.Match{}, allow))
			}()
			m := peer.next("hooks.update")
			// The gateway may ask by the new rules before it is heard to confirm them.
			peer.send(check)
			peer.expect(`{"type":"gate.result","gateId":"gate-1","callId":"g1","decision":"allow"}`)
			peer.confirm(m, "s1", 4)
			gate := receive(t, gates)
			if gate.Revision != 4 {
				t.Errorf("revision %d, want 4", gate.Revision)
			}
			removed := later(func() (uint64, error) { return gate.Remove(t.Context()) })
			m = peer.next("hooks.update")
			peer.send(check)
			peer.expect(`{"type":"gate.result","gateId":"gate-1","callId":"g1","decision":"allow"}`)
			peer.confirm(m, "s1", 5)
			receive(t, removed)
			peer.send(check)
			peer.expect(
				`{"type":"gate.result","gateId":"gate-1","callId":"g1","decision":"deny","reason":"Provider sample has no gate \"gate-1\"."}`)
		})
}

// The answer of a gate after five seconds has no effect: the gateway has denied the call or let it
// run. Other gates work meanwhile.
func TestSlowGate(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		p := providers.New("sample", n.options(providers.Options{}))
		causes := make(chan error, 1)
		must[*providers.Rule](t)(p.Gate(t.Context(), providers.Match{},
			func(ctx context.Context, call providers.GateCall) (providers.Decision, error) {
				if call.ID != "g1" {
					return providers.Allow(), nil
				}
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return providers.Allow(), nil
			}))
		run(t, p)
		peer := g.accept()
		peer.bind()
		start := time.Now()
		peer.send(check)
		peer.send(strings.Replace(check, "g1", "g2", 1))
		peer.expect(`{"type":"gate.result","gateId":"gate-1","callId":"g2","decision":"allow"}`)
		if !time.Now().Equal(start) {
			t.Errorf("the second waited %v for the first, want no wait", time.Since(start))
		}
		if cause := receive(t, causes); cause.Error() != "cancelled: timeout" ||
			time.Since(start) != 5*time.Second {
			t.Errorf("ended by %v after %v, want by timeout after 5 s", cause, time.Since(start))
		}
		synctest.Wait()
		peer.send(strings.Replace(check, "g1", "g3", 1))
		peer.expect(`{"type":"gate.result","gateId":"gate-1","callId":"g3","decision":"allow"}`)
	})
}

func TestTransform(t *testing.T) {
	tests := map[string]struct {
		rewrite func(s providers.Section) (string, error)
		want    string
	}{
		"text": {func(s providers.Section) (string, error) {
			return fmt.Sprintf("%s of %s was <%s>", s.Name, s.Session, s.Current), nil
		}, "tone of s1 was <dry>"},
		"nothing": {func(providers.Section) (string, error) { return "", nil }, ""},
		"error": {func(providers.Section) (string, error) {
			return "half", errors.New("no")
		}, "dry"},
		"panic": {func(providers.Section) (string, error) { panic("ouch") }, "dry"},
		"goexit": {func(providers.Section) (string, error) {
			runtime.Goexit()
			return "", nil
		}, "dry"},
		"too large": {func(providers.Section) (string, error) {
			return strings.Repeat("x", 2<<20), nil
		}, "dry"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				g := n.gateway(t)
				p := providers.New("sample", n.options(providers.Options{}))
				must[uint64](t)(p.Transform(t.Context(), "tone",
					func(_ context.Context, s providers.Section) (string,
						error) {
						return tt.rewrite(s)
					}))
				run(t, p)
				peer := g.accept()
				peer.bind()
				start := time.Now()
				peer.send(
					`{"type":"transform.request","callId":"t1","sessionId":"s1","section":"tone","current":"dry"}`)
				peer.expect(fmt.Sprintf(`{"type":"transform.result","callId":"t1","content":%q}`,
					tt.want))
				peer.send(
					`{"type":"transform.request","callId":"t2","sessionId":"s1","section":"other","current":"wet"}`)
				peer.expect(`{"type":"transform.result","callId":"t2","content":"wet"}`)
				if !time.Now().Equal(start) {
					t.Errorf("took %v, want no time", time.Since(start))
				}
			})
		})
	}
}

// A section that takes more than two seconds stays as it is, as the gateway has
// decided by then.
func TestSlowTransform(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		p := providers.New("sample", n.options(providers.Options{}))
		took := make(chan time.Duration, 1)
		must[uint64](t)(p.Transform(t.Context(), "tone",
			func(ctx context.Context, _ providers.Section) (string,
				error) {
				start := time.Now()
				<-ctx.Done()
				took <- time.Since(start)
				return "late", nil
			}))
		run(t, p)
		peer := g.accept()
		peer.bind()
		peer.send(
			`{"type":"transform.request","callId":"t1","sessionId":"s1","section":"tone","current":"dry"}`)
		if d := receive(t, took); d != 2*time.Second {
			t.Errorf("ended after %v, want 2 s", d)
		}
		synctest.Wait()
		peer.send(
			`{"type":"transform.request","callId":"t2","sessionId":"s1","section":"other","current":"wet"}`)
		peer.expect(`{"type":"transform.result","callId":"t2","content":"wet"}`)
	})
}
