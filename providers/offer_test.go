package providers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"tapgw/providers"
)

// later runs a change on a goroutine of its own.
func later(f func() (uint64, error)) <-chan changed {
	c := make(chan changed, 1)
	go func() {
		revision, err := f()
		c <- changed{revision, err}
	}()
	return c
}

type changed struct {
	revision uint64
	err      error
}

// confirm answers an update that the provider sent.
func (p *peer) confirm(m object, session string, revision int) {
	p.t.Helper()
	p.send(fmt.Sprintf(`{"type":"ack","requestId":%q,"sessionId":%q,"revision":%d}`, m["requestId"],
		session, revision))
}

// refuse answers an update, or whatever has a request id.
func (p *peer) refuse(m object, code, text string) {
	p.t.Helper()
	p.send(fmt.Sprintf(`{"type":"error","code":%q,"message":%q,"replyTo":%q,"requestId":%q}`, code,
		text, m["type"], m["requestId"]))
}

// bound is a provider in a bubble that is bound to s1.
func bound(
	t *testing.T,
	f func(t *testing.T, n *network, peer *peer, p *providers.Provider, o *providers.Options),
) {
	t.Helper()
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		o := n.options(providers.Options{})
		p := providers.New("sample", o)
		run(t, p)
		peer := g.accept()
		peer.bind()
		synctest.Wait()
		f(t, n, peer, p, o)
	})
}

func allow(context.Context, providers.GateCall) (providers.Decision, error) {
	return providers.Allow(), nil
}

func same(_ context.Context, s providers.Section) (string, error) { return s.Current, nil }

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// The hello, and the messages between it and OnBound, contain everything that was offered before
// the connection.
func TestHelloCarriesTheOffer(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		began := make(chan providers.Binding, 1)
		p := providers.New("sample", n.options(providers.Options{
			Context: "CI is green", StartupContext: "3 endpoints",
			Concurrency: providers.Concurrency{Max: 2, Scope: providers.PerTool},
			OnBound:     func(_ context.Context, b providers.Binding) { began <- b },
		}))
		ctx := t.Context()
		rule, revision := must[*providers.Rule](t), must[uint64](t)
		rule(p.Deny(ctx, providers.Match{Tool: "shell", Args: "rm -rf"}, "no"))
		rule(p.AddContext(ctx, providers.Match{File: "*.sql", Provider: "other"}, "careful"))
		rule(p.Gate(ctx, providers.Match{Tool: "shell"}, allow))
		gone := rule(p.Gate(ctx, providers.Match{Tool: "edit"}, allow))
		rule(p.Gate(ctx, providers.Match{Tool: "edit"}, allow, providers.FailOpen))
		revision(gone.Remove(ctx))
		revision(p.Append(ctx, "safety", "be kind"))
		revision(p.Prepend(ctx, "tone", "at first"))
		revision(p.Replace(ctx, "tone", "instead"))
		revision(p.Transform(ctx, "custom_instructions", same))
		revision(p.Prepend(ctx, "guidelines", "gone"))
		if r, err := p.RemoveTransform(ctx, "guidelines"); r != 0 || err != nil {
			t.Errorf("a change without a connection returned %d, %v, want 0, nil", r, err)
		}
		revision(p.SetFilter(ctx, "git",
			providers.FilterRule{Match: "behind=0", Outcome: providers.Drop},
			providers.FilterRule{Match: ".*", Outcome: providers.Keep}))
		revision(p.SetFilter(ctx, "ci"))
		revision(p.SetContext(ctx, "only here", "s1"))
		revision(p.SetContext(ctx, "only there", "s2"))
		revision(p.AddTool(ctx, fixed("mine", nil, nil), "s1"))
		providers.Subscribe(p, func(context.Context, providers.UserMessage) {})
		providers.Subscribe(p, func(context.Context, providers.ToolExecution) {})
		run(t, p)

		peer := g.accept()
		peer.next("auth")
		peer.send(oneSession)
		peer.expect(`{"type":"hello","name":"sample","protocolVersion":2,"session":"s1","tools":[],
			"context":"CI is green","startup_context":"3 endpoints","concurrency":{"max":2,"scope":"tool"},
			"subscribe":["tool.execution_complete","user.message"],
			"hooks":{"onPreToolUse":[
				{"match":{"tool":"shell","args":"rm -rf"},"action":"deny","reason":"no"},
				{"match":{"file":"*.sql","provider":"other"},"action":"context","content":"careful"},
				{"match":{"tool":"shell"},"action":"gate","gateId":"gate-1"},
				{"match":{"tool":"edit"},"action":"gate","gateId":"gate-3","failOpen":true}],
			"transforms":{"safety":{"action":"append","content":"be kind"},"tone":{"action":"replace","content":"instead"},
				"custom_instructions":{"action":"callback"}}}}`)
		peer.ack("s1")
		for _, want := range []string{
			`{"type":"filter.set","requestId":"update-1","sessionId":"s1","stream":"ci","rules":[]}`,
			`{"type":"filter.set","requestId":"update-2","sessionId":"s1","stream":"git","rules":[
				{"match":"behind=0","outcome":"drop"},{"match":".*","outcome":"keep"}]}`,
			`{"type":"tools.update","requestId":"update-3","sessionId":"s1","tools":[{"name":"mine","description":"does mine","parameters":{"type":"object"}}]}`,
			`{"type":"context.update","requestId":"update-4","sessionId":"s1","context":"only here"}`,
		} {
			peer.expect(want)
			synctest.Wait()
			if len(began) != 0 {
				t.Fatalf(
					"OnBound began %d times, want that it waits until the gateway has confirmed all offers",
					len(began),
				)
			}
			if err := p.Keep(ctx, "too early"); !errors.Is(err, providers.ErrNotConnected) {
				t.Fatalf("pushing: %v, want ErrNotConnected", err)
			}
			var m object
			if err := json.Unmarshal([]byte(want), &m); err != nil {
				t.Fatal(err)
			}
			peer.confirm(m, "s1", 1)
		}
		if b := receive(t, began); b != (providers.Binding{Session: "s1", CWD: "/one",
			ProviderID: "p-1",
			PersistDir: "/var/p/"}) {
			t.Errorf(
				"bound to %+v, want %+v",
				b,
				(providers.Binding{Session: "s1", CWD: "/one", ProviderID: "p-1",
					PersistDir: "/var/p/"}),
			)
		}
	})
}

// A refusal of one of these messages is reported, and the rest takes effect.
func TestRestoreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		o := n.options(providers.Options{})
		errs := errorsOf(o)
		p := providers.New("sample", o)
		must[uint64](t)(p.SetFilter(t.Context(), "git",
			providers.FilterRule{Match: "(", Outcome: providers.Keep}))
		run(t, p)
		peer := g.accept()
		peer.bind()
		peer.refuse(peer.next("filter.set"), "INVALID_JSON", "filter.set.rules[0].match: no")
		if err := receive(t, errs); codeOf(err) != providers.CodeInvalidJSON ||
			!strings.HasPrefix(err.Error(), "setting the filter of git: ") {
			t.Errorf(
				`OnError heard %v, want %v and "setting the filter of git: " at its start`,
				err, providers.CodeInvalidJSON,
			)
		}
		synctest.Wait()
		c := later(func() (uint64, error) { return p.SetContext(t.Context(), "on") })
		peer.confirm(peer.next("context.update"), "s1", 3)
		if got := receive(t, c); got != (changed{3, nil}) {
			t.Errorf("got %v, want %v", got, changed{3, nil})
		}
	})
}

// Each kind of change is one message, answered with a revision.
func TestChanges(t *testing.T) {
	bound(t,
		func(t *testing.T, _ *network, peer *peer, p *providers.Provider, _ *providers.Options) {
			ctx := t.Context()
			var rule *providers.Rule
			of := func(r *providers.Rule, err error) (uint64, error) {
				if err != nil {
					return 0, err
				}
				rule = r
				return r.Revision, nil
			}
			tests := []struct {
				do   func() (uint64, error)
				want string // without type's request id
			}{
				{func() (uint64, error) { return p.AddTool(ctx, fixed("a", nil, nil)) },
					`{"type":"tools.update","tools":[{"name":"a","description":"does a","parameters":{"type":"object"}}]}`},
				{func() (uint64, error) {
					return p.RemoveTool(ctx, "a")
				}, `{"type":"tools.update","tools":[]}`},
				{func() (uint64, error) { return p.AddTool(ctx, fixed("b", nil, nil), "s1") },
					`{"type":"tools.update","sessionId":"s1","tools":[{"name":"b","description":"does b","parameters":{"type":"object"}}]}`},
				{func() (uint64, error) { return p.AddTool(ctx, fixed("c", nil, nil)) },
					`{"type":"tools.update","tools":[{"name":"c","description":"does c","parameters":{"type":"object"}}],"remove":[]}`},
				{func() (uint64, error) {
					return p.RemoveTool(ctx, "b")
				}, `{"type":"tools.update","remove":["b"]}`},
				{func() (uint64, error) { return p.RemoveTool(ctx, "c", "s1") },
					`{"type":"tools.update","sessionId":"s1","tools":[]}`},
				{func() (uint64, error) {
					return p.SetTools(ctx, []providers.Tool{fixed("d", nil, nil)})
				},
					`{"type":"tools.update","tools":[{"name":"d","description":"does d","parameters":{"type":"object"}}]}`},
				{func() (uint64, error) { return of(p.Deny(ctx, providers.Match{Tool: "x"}, "")) },
					`{"type":"hooks.update","onPreToolUse":[{"match":{"tool":"x"},"action":"deny"}]}`},
				{func() (uint64, error) {
					return rule.Remove(ctx)
				}, `{"type":"hooks.update","onPreToolUse":[]}`},
				{func() (uint64, error) { return of(p.Gate(ctx, providers.Match{}, allow)) },
					`{"type":"hooks.update","onPreToolUse":[{"match":{},"action":"gate","gateId":"gate-1"}]}`},
				{func() (uint64, error) { return p.Append(ctx, "tone", "b") },
					`{"type":"hooks.update","transforms":{"tone":{"action":"append","content":"b"}}}`},
				{func() (uint64, error) { return p.Transform(ctx, "tone", same) },
					`{"type":"hooks.update","transforms":{"tone":{"action":"callback"}}}`},
				{func() (uint64, error) { return p.RemoveTransform(ctx, "tone") },
					`{"type":"hooks.update","transforms":{"tone":null}}`},
				{func() (uint64, error) {
					return p.SetContext(ctx, "now")
				}, `{"type":"context.update","context":"now"}`},
				{func() (uint64, error) { return p.SetContext(ctx, "", "s1") },
					`{"type":"context.update","sessionId":"s1","context":""}`},
				{func() (uint64, error) {
					return p.SetFilter(ctx, "git",
						providers.FilterRule{Match: "x", Outcome: providers.Inject})
				},
					`{"type":"filter.set","stream":"git","rules":[{"match":"x","outcome":"inject"}]}`},
				{func() (uint64, error) { return p.SetFilter(ctx, "git") },
					`{"type":"filter.set","stream":"git","rules":[]}`},
			}
			for i, tt := range tests {
				c := later(tt.do)
				request := fmt.Sprintf(`"requestId":"update-%d"`, i+1)
				peer.expect(strings.Replace(tt.want, `",`, `",`+request+`,`, 1))
				synctest.Wait()
				if len(c) != 0 {
					t.Fatalf("%s: did not wait for the gateway, want none", tt.want)
				}
				peer.send(fmt.Sprintf(`{"type":"ack",%s,"sessionId":"s1","revision":%d}`, request,
					10+i))
				if got := receive(t, c); got != (changed{uint64(10 + i), nil}) {
					t.Errorf("%s: got %v, want %v", tt.want, got, changed{uint64(10 + i), nil})
				}
			}
		})
}
