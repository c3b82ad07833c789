package providers_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/providers"
)

// A wrong change is refused before anything is sent, and changes nothing.
func TestWrongChanges(t *testing.T) {
	long := strings.Repeat("x", 1025)
	ctx := context.Background() // of no bubble
	tests := map[string]struct {
		do   func(p *providers.Provider) (uint64, error)
		want string
	}{
		"context": {func(p *providers.Provider) (uint64, error) {
			return p.SetContext(ctx, strings.Repeat("x", 8193))
		},
			"setting the context: PAYLOAD_TOO_LARGE: context.update.context: 8193 bytes are over the limit of 8192"},
		"pattern": {func(p *providers.Provider) (uint64, error) {
			_, err := p.Deny(ctx, providers.Match{Args: long}, "")
			return 0, err
		},
			"adding a rule: INVALID_JSON: hooks.update.onPreToolUse[0].match.args: must be at most 1024 bytes"},
		"no text": {func(p *providers.Provider) (uint64, error) {
			_, err := p.AddContext(ctx, providers.Match{}, "")
			return 0, err
		}, "hooks.update.onPreToolUse[0].content: is required"},
		"rules": {func(p *providers.Provider) (uint64, error) {
			for range 50 {
				if _, err := p.Gate(ctx, providers.Match{}, allow); err != nil {
					return 0, err
				}
			}
			_, err := p.Gate(ctx, providers.Match{}, allow)
			return 0, err
		},
			"adding a gate: PAYLOAD_TOO_LARGE: hooks.update.onPreToolUse: 51 hook rules are over the limit of 50"},
		"section": {func(p *providers.Provider) (uint64, error) {
			return p.Append(ctx, "", "x")
		}, "its name is empty"},
		"stream": {func(p *providers.Provider) (uint64, error) { return p.SetFilter(ctx, "a@_b") },
			"filter.set.stream: must be 1 to 64"},
		"outcome": {func(p *providers.Provider) (uint64, error) {
			return p.SetFilter(ctx, "a", providers.FilterRule{Match: "x", Outcome: "loud"})
		}, "filter.set.rules[0].outcome: must be one of drop, keep, surface, inject"},
		"no match": {func(p *providers.Provider) (uint64, error) {
			return p.SetFilter(ctx, "a", providers.FilterRule{Outcome: providers.Drop})
		}, "filter.set.rules[0].match: is required"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := providers.New("sample", nil)
			if _, err := tt.do(p); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
		t.Run(name+", bound", func(t *testing.T) {
			bound(t,
				func(t *testing.T, _ *network, peer *peer, p *providers.Provider,
					_ *providers.Options) {
					c := later(func() (uint64, error) { return tt.do(p) })
					for name == "rules" {
						m := peer.next("hooks.update")
						peer.confirm(m, "s1", 1)
						if len(m["onPreToolUse"].([]any)) == 50 {
							break
						}
					}
					if got := receive(t, c); got.err == nil ||
						!strings.Contains(got.err.Error(), tt.want) {
						t.Errorf("got %v, want %s", got.err, tt.want)
					}
					c = later(func() (uint64, error) { return p.SetContext(ctx, "on") })
					peer.confirm(peer.next("context.update"), "s1", 3)
					if got := receive(t, c); got != (changed{3, nil}) {
						t.Errorf("the next change: got %v, want %v", got, changed{3, nil})
					}
				})
		})
	}
}

// A change that the gateway refuses has not happened.
func TestChangeRefused(t *testing.T) {
	bound(t,
		func(t *testing.T, n *network, peer *peer, p *providers.Provider, _ *providers.Options) {
			c := later(func() (uint64, error) {
				return p.AddTool(t.Context(), fixed("a", "first", nil))
			})
			peer.confirm(peer.next("tools.update"), "s1", 1)
			receive(t, c)
			c = later(func() (uint64, error) {
				return p.AddTool(t.Context(), fixed("a", "second", nil))
			})
			m := peer.next("tools.update")
			// The gateway has not confirmed it, but goes by it maybe.
			peer.refuse(m, "TOOL_CONFLICT", "tool a is taken")
			got := receive(t, c)
			if codeOf(got.err) != providers.CodeToolConflict ||
				!strings.HasPrefix(got.err.Error(), "adding tool a: ") {
				t.Errorf("got %v, want TOOL_CONFLICT", got.err)
			}
			peer.send(`{"type":"tool.call","id":"c1","sessionId":"s1","tool":"a","args":{}}`)
			peer.expect(`{"type":"tool.result","id":"c1","data":"first"}`)

			c = later(func() (uint64, error) { return p.SetContext(t.Context(), "never") })
			peer.refuse(peer.next("context.update"), "UNAUTHORIZED", "not you")
			if got := receive(t, c); codeOf(got.err) != providers.CodeUnauthorized {
				t.Errorf("got %v, want UNAUTHORIZED", got.err)
			}
			peer.cut()
			next := n.accept(t)
			next.next("auth")
			next.send(oneSession)
			if hello := next.next("hello"); hello["context"] != "" || toolNames(hello) != "a" {
				t.Errorf("hello %v, want tool a and no context", hello)
			}
		})
}

// Changes are sent one at a time. A change that is RATE_LIMITED is sent again.
func TestChangesInOrder(t *testing.T) {
	bound(t,
		func(t *testing.T, _ *network, peer *peer, p *providers.Provider, _ *providers.Options) {
			first := later(func() (uint64, error) { return p.SetContext(t.Context(), "1") })
			m := peer.next("context.update")
			synctest.Wait()
			second := later(func() (uint64, error) { return p.SetContext(t.Context(), "2") })
			synctest.Wait()
			third := later(func() (uint64, error) { return p.SetFilter(t.Context(), "git") })
			synctest.Wait()
			peer.refuse(m, "RATE_LIMITED", "one at a time")
			start := time.Now()
			m = peer.next("context.update")
			if took := time.Since(start); took != time.Second || m["context"] != "1" {
				t.Errorf("%v came again after %v, want the first after 1 s", m, took)
			}
			peer.confirm(m, "s1", 1)
			m = peer.next("context.update")
			if m["context"] != "2" {
				t.Errorf("%v, want the second", m)
			}
			peer.confirm(m, "s1", 2)
			peer.confirm(peer.next("filter.set"), "s1", 3)
			for i, c := range []<-chan changed{first, second, third} {
				if got := receive(t, c); got != (changed{uint64(i + 1), nil}) {
					t.Errorf("change %d: %v, want %v", i+1, got, changed{uint64(i + 1), nil})
				}
			}
		})
}

// The caller's context ends the wait. A change that was not sent is dropped; a sent one takes its
// course.
func TestChangeGivenUp(t *testing.T) {
	bound(t,
		func(t *testing.T, _ *network, peer *peer, p *providers.Provider, _ *providers.Options) {
			ctx, cancel := context.WithCancel(t.Context())
			sent := later(func() (uint64, error) {
				return p.AddTool(ctx, fixed("sent", "sent", nil))
			})
			m := peer.next("tools.update")
			waits := later(func() (uint64, error) {
				return p.AddTool(ctx, fixed("waits", nil, nil))
			})
			synctest.Wait()
			cancel()
			for _, c := range []<-chan changed{sent, waits} {
				if got := receive(t, c); !errors.Is(got.err, context.Canceled) {
					t.Errorf("got %v, want context.Canceled", got.err)
				}
			}
			peer.confirm(m, "s1", 1)
			synctest.Wait()
			last := later(func() (uint64, error) {
				return p.AddTool(t.Context(), fixed("last", nil, nil))
			})
			m = peer.next("tools.update")
			if got := toolNames(m); got != "sent last" {
				t.Errorf("tools %q, want sent last", got)
			}
			peer.confirm(m, "s1", 2)
			receive(t, last)
		})
}

// A connection that is lost loses no change: the next hello has it.
func TestChangeWhileConnectionEnds(t *testing.T) {
	bound(t,
		func(t *testing.T, n *network, peer *peer, p *providers.Provider, _ *providers.Options) {
			sent := later(func() (uint64, error) { return p.SetContext(t.Context(), "sent") })
			peer.next("context.update")
			synctest.Wait()
			waits := later(func() (uint64, error) { return p.Append(t.Context(), "tone", "waits") })
			synctest.Wait()
			peer.cut()
			for _, c := range []<-chan changed{sent, waits} {
				if got := receive(t, c); got != (changed{}) {
					t.Errorf("got %v, want 0 and no error", got)
				}
			}
			next := n.accept(t)
			next.next("auth")
			appended := later(func() (uint64, error) {
				return p.Append(t.Context(), "tone", "now")
			})
			if got := receive(t, appended); got != (changed{}) {
				t.Errorf("without a session: %v, want 0 and no error", got)
			}
			next.send(oneSession)
			hello := next.next("hello")
			transforms, _ := hello["hooks"].(object)["transforms"].(object)
			if tone, _ := transforms["tone"].(object); hello["context"] != "sent" ||
				tone["content"] != "now" {
				t.Errorf("hello %v, want the present offer", hello)
			}
			// A change while the hello is under way follows it.
			c := later(func() (uint64, error) { return p.SetContext(t.Context(), "next") })
			synctest.Wait()
			next.ack("s1")
			next.confirm(next.next("context.update"), "s1", 1)
			if got := receive(t, c); got != (changed{1, nil}) {
				t.Errorf("got %v, want %v", got, changed{1, nil})
			}
		})
}

// The end of a session reverts no change.
func TestChangeWhileSessionEnds(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		done := make(chan changed, 2)
		var p *providers.Provider
		o := n.options(
			providers.Options{OnSession: func(ctx context.Context, e providers.SessionEvent) {
				revision, err := p.SetContext(ctx, "ended "+e.Session)
				done <- changed{revision, err}
			}})
		errs := errorsOf(o)
		p = providers.New("sample", o)
		run(t, p)
		peer := g.accept()
		peer.bind()
		synctest.Wait()
		c := later(func() (uint64, error) { return p.SetContext(t.Context(), "under way") })
		m := peer.next("context.update")
		peer.send(
			`{"type":"session.lifecycle","sessionId":"s1","state":"shutdown.pending","deadline":10000}`)
		for _, c := range []<-chan changed{c, done} {
			if got := receive(t, c); got != (changed{}) {
				t.Errorf("got %v, want 0 and no error", got)
			}
		}
		peer.next("shutdown.ready")
		peer.refuse(m, "INVALID_STATE", "not now") // too late for anybody
		peer.send(`{"type":"sessions.updated","active":[{"id":"s2","label":"","cwd":"/"}]}`)
		if hello := peer.next("hello"); hello["context"] != "ended s1" {
			t.Errorf("hello %v, want the last context", hello)
		}
		synctest.Wait()
		if len(errs) != 0 {
			t.Errorf("OnError heard %v, want none", <-errs)
		}
	})
}

// If a gateway does not answer an update, the provider connects again.
func TestChangeUnanswered(t *testing.T) {
	bound(t,
		func(t *testing.T, n *network, peer *peer, p *providers.Provider, _ *providers.Options) {
			c := later(func() (uint64, error) { return p.SetContext(t.Context(), "hello?") })
			peer.next("context.update")
			next := n.accept(t)
			if got := receive(t, c); got != (changed{}) {
				t.Errorf("got %v, want 0 and no error", got)
			}
			next.next("auth")
		})
}

// A gateway of the core profile confirms nothing and knows no request ids.
func TestChangesOfCore(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		p := providers.New("sample", n.options(providers.Options{}))
		run(t, p)
		peer := g.accept()
		peer.next("auth")
		peer.send(oneSession)
		peer.next("hello")
		peer.send(`{"type":"hello.ack","protocolVersion":2,"providerId":"p-1","sessionId":"s1"}`)
		synctest.Wait()
		start := time.Now()
		c := later(func() (uint64, error) {
			return p.AddTool(t.Context(), fixed("a", "done", nil))
		})
		peer.next("tools.update")
		// It is called before anything says that it was taken.
		peer.send(`{"type":"tool.call","id":"c1","sessionId":"s1","tool":"a","args":{}}`)
		peer.expect(`{"type":"tool.result","id":"c1","data":"done"}`)
		if got := receive(t, c); got != (changed{}) || time.Since(start) != 250*time.Millisecond {
			t.Errorf("got %v after %v, want 0 and no error after 250 ms", got, time.Since(start))
		}
		c = later(func() (uint64, error) { return p.AddTool(t.Context(), fixed("b", nil, nil)) })
		peer.next("tools.update")
		peer.send(
			`{"type":"error","code":"TOOL_CONFLICT","message":"b is taken","replyTo":"tools.update"}`)
		if got := receive(t, c); codeOf(got.err) != providers.CodeToolConflict {
			t.Errorf("got %v, want TOOL_CONFLICT", got.err)
		}
	})
}

// The function AddTool does not wait; the gateway's refusal goes to OnError.
func TestAddToolWhileBound(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		o := n.options(providers.Options{})
		errs := errorsOf(o)
		p := providers.New("sample", o)
		run(t, p)
		peer := g.accept()
		peer.bind()
		synctest.Wait()
		providers.AddTool(p, "greet", "Say hello", greet)
		peer.refuse(peer.next("tools.update"), "TOOL_CONFLICT", "greet is taken")
		if err := receive(t, errs); codeOf(err) != providers.CodeToolConflict ||
			!strings.HasPrefix(err.Error(), "adding tool greet: ") {
			t.Errorf("OnError heard %v, want TOOL_CONFLICT", err)
		}
		// A list that cannot be is told when its turn comes.
		var many []providers.Tool
		for i := range 100 {
			many = append(many, fixed(fmt.Sprintf("t%d", i), nil, nil))
		}
		c := later(func() (uint64, error) { return p.SetTools(t.Context(), many) })
		m := peer.next("tools.update")
		providers.AddTool(p, "greet", "Say hello", greet)
		peer.confirm(m, "s1", 1)
		receive(t, c)
		if err := receive(t, errs); !strings.Contains(err.Error(),
			"101 tools are over the limit of 100") {
			t.Errorf("OnError heard %v, want the limit", err)
		}
	})
}

// A change that is too large to send changes nothing.
func TestChangeTooLarge(t *testing.T) {
	bound(t,
		func(t *testing.T, _ *network, peer *peer, p *providers.Provider, _ *providers.Options) {
			if _, err := p.Replace(t.Context(), "tone", strings.Repeat("x", 2<<20)); codeOf(
				err) != providers.CodePayloadTooLarge {
				t.Errorf("got %v, want PAYLOAD_TOO_LARGE", err)
			}
			c := later(func() (uint64, error) { return p.SetContext(t.Context(), "on") })
			peer.confirm(peer.next("context.update"), "s1", 1)
			if got := receive(t, c); got != (changed{1, nil}) {
				t.Errorf("got %v, want %v", got, changed{1, nil})
			}
		})
}
