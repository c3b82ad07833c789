package providers_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/providers"
)

// bubble runs f in a synctest bubble, with a network for its gateways.
func bubble(t *testing.T, f func(t *testing.T, n *network)) {
	t.Helper()
	dir := home(t)
	writeState(t, dir, ".provider-token", "ptk-file")
	synctest.Test(t, func(t *testing.T) { f(t, newNetwork()) })
}

// options fills in the options that every provider in a bubble needs.
func (n *network) options(o providers.Options) *providers.Options {
	o.Logger, o.HTTPClient = quiet, n.client
	return &o
}

// The first session may come later, as another sessions message or as an update.
func TestWaitForSession(t *testing.T) {
	for _, typ := range []string{"sessions", "sessions.updated"} {
		t.Run(typ, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				g := n.gateway(t)
				p := providers.New("sample", n.options(providers.Options{
					Instance: "i1", Metadata: map[string]any{"title": "a <b>"},
				}))
				providers.AddTool(p, "greet", "Say hello", greet,
					providers.Timeout(1500*time.Millisecond))
				if _, err := p.AddTool(t.Context(), providers.Tool{
					Name: "raw", Description: "By hand", SkipValidation: true,
					Parameters: json.RawMessage(`{"type":"object","properties":{"b":{},"a":{}}}`),
					Handler:    fixed("raw", nil, nil).Handler,
				}); err != nil {
					t.Fatal(err)
				}
				if _, err := p.AddTool(t.Context(), fixed("plain", nil, nil)); err != nil {
					t.Fatal(err)
				}
				r := run(t, p)
				peer := g.accept()
				peer.expect(`{"type":"auth","token":"ptk-file"}`)
				peer.send(`{"type":"sessions","active":[]}`)
				pass(time.Hour)
				peer.send(strings.Replace(oneSession, "sessions", typ, 1))
				peer.expect(`{"type":"hello","name":"sample","instance":"i1","metadata":{"title":"a <b>"},
					"protocolVersion":2,"session":"s1","hooks":{},"subscribe":[],"context":"","tools":[
					{"name":"greet","description":"Say hello","timeout":1500,"parameters":{"type":"object","additionalProperties":false,
						"properties":{"name":{"type":"string","description":"who to greet"},"loud":{"type":"boolean"}},"required":["name"]}},
					{"name":"raw","description":"By hand","validate":false,"parameters":{"type":"object","properties":{"b":{},"a":{}}}},
					{"name":"plain","description":"does plain","parameters":{"type":"object"}}]}`)
				peer.ack("s1")

				r.stop()
				peer.expect(`{"type":"goodbye","reason":"shutting down"}`)
				peer.closed()
				if err := r.wait(); err != nil {
					t.Errorf("Run returned %v, want nil", err)
				}
			})
		})
	}
}

const threeSessions = `{"type":"sessions","active":[
	{"id":"s1","label":"one","cwd":"/one"},{"id":"s2","label":"two","cwd":"/two"},{"id":"s3","label":"three"}]}`

func TestPick(t *testing.T) {
	tests := map[string]struct {
		opts providers.Options
		want string
	}{
		"first": {providers.Options{}, "s1"},
		"by id": {providers.Options{Session: "s2"}, "s2"},
		"chosen": {providers.Options{PickSession: func(active []providers.Session) string {
			return active[1].ID
		}},
			"s2"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				g := n.gateway(t)
				run(t, providers.New("sample", n.options(tt.opts)))
				peer := g.accept()
				peer.next("auth")
				peer.send(threeSessions)
				if got := peer.next("hello")["session"]; got != tt.want {
					t.Errorf("bound to %v, want %s", got, tt.want)
				}
			})
		})
	}
}

// A provider of one session waits for it.
func TestPickWaits(t *testing.T) {
	for name, o := range map[string]providers.Options{
		"by id": {Session: "s9"},
		"chosen": {PickSession: func(active []providers.Session) string {
			if last := active[len(active)-1]; last.ID == "s9" && last.CWD == "/nine" &&
				last.Label == "nine" && last.Foreground {
				return last.ID
			}
			return ""
		}},
		"unknown": {PickSession: func([]providers.Session) string { return "s9" }},
		"panics": {PickSession: func(active []providers.Session) string {
			_ = active[3]
			return "s9"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				g := n.gateway(t)
				run(t, providers.New("sample", n.options(o)))
				peer := g.accept()
				peer.next("auth")
				peer.send(threeSessions)
				synctest.Wait()
				peer.send(`{"type":"sessions.updated","active":[{"id":"s1","label":""},{"id":"s2","label":""},{"id":"s3","label":""},
					{"id":"s9","label":"nine","cwd":"/nine","foreground":true}]}`)
				if got := peer.next("hello")["session"]; got != "s9" {
					t.Errorf("bound to %v, want s9", got)
				}
			})
		})
	}
}

// The end of a session ends its calls and functions; then the gateway gets the confirmation, and
// the provider goes to another session on the same connection.
func TestSessionEnds(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		var mu sync.Mutex
		var events []string
		note := func(event string) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, event)
		}
		callCause := make(chan error, 1)
		cleanup := make(chan struct{})
		p := providers.New("sample", n.options(providers.Options{
			OnBound: func(ctx context.Context, b providers.Binding) {
				note("bound to " + b.Session + " as " + b.ProviderID + " in " + b.PersistDir)
				<-ctx.Done()
				note("unbound: " + context.Cause(ctx).Error())
			},
			OnSession: func(ctx context.Context, e providers.SessionEvent) {
				if e.State == providers.SessionEnding {
					deadline, _ := ctx.Deadline()
					note("ending in " + e.Deadline.String() + ", left " +
						time.Until(deadline).String())
					<-cleanup
					return
				}
				note(string(e.State))
			},
		}))
		if _, err := p.AddTool(t.Context(),
			raw("hang", func(ctx context.Context, _ json.RawMessage) (any, error) {
				<-ctx.Done()
				callCause <- context.Cause(ctx)
				return nil, ctx.Err()
			})); err != nil {
			t.Fatal(err)
		}
		run(t, p)
		peer := g.accept()
		peer.bind()
		synctest.Wait()
		peer.send(`{"type":"session.lifecycle","sessionId":"s1","state":"started"}`)
		peer.send(`{"type":"session.lifecycle","sessionId":"s1","state":"idle"}`)
		peer.send(`{"type":"tool.call","id":"c1","sessionId":"s1","tool":"hang","args":{}}`)
		synctest.Wait()
		peer.send(
			`{"type":"session.lifecycle","sessionId":"s1","state":"shutdown.pending","deadline":10000}`)
		peer.expect(`{"type":"tool.result","id":"c1","error":"Cancelled","errorCode":"CANCELLED"}`)
		if cause := receive(t, callCause); cause.Error() != "cancelled: session ended" {
			t.Errorf(`the call's cause is %v, want "cancelled: session ended"`, cause)
		}
		// While it cleans up, the provider can still say something.
		synctest.Wait()
		done := make(chan error, 1)
		go func() { done <- p.Keep(t.Context(), "last words") }()
		m := peer.next("push")
		peer.send(`{"type":"ack","requestId":"` + m["requestId"].(string) + `","sessionId":"s1"}`)
		if err := receive(t, done); err != nil {
			t.Errorf("pushing while the session ends: got %v, want no error", err)
		}
		close(cleanup)
		peer.expect(`{"type":"shutdown.ready","sessionId":"s1"}`)
		synctest.Wait()
		if err := p.Keep(t.Context(), "too late"); !errors.Is(err, providers.ErrNotConnected) {
			t.Errorf("pushing without a session: %v, want ErrNotConnected", err)
		}

		// As long as the ended one is in the list, the gateway is not done.
		peer.send(
			`{"type":"sessions.updated","active":[{"id":"s1","label":"","cwd":"/"},{"id":"s2","label":"","cwd":"/"}]}`)
		synctest.Wait()
		peer.send(`{"type":"sessions.updated","active":[{"id":"s2","label":"","cwd":"/"}]}`)
		hello := peer.next("hello")
		if hello["session"] != "s2" || hello["reconnectToken"] != nil {
			t.Errorf("hello %v, want session s2 and no reconnectToken", hello)
		}
		peer.ack("s2")
		synctest.Wait()
		want := []string{
			"bound to s1 as p-1 in /var/p/", "started", "idle", "ending in 10s, left 10s",
			"unbound: cancelled: session ended", "bound to s2 as p-1 in /var/p/",
		}
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(want)
		slices.Sort(events) // callbacks of different kinds run side by side
		if !slices.Equal(events, want) {
			t.Errorf("events %q, want %q", events, want)
		}
	})
}

// Cleaning up may take as long as the gateway gives it, no longer.
func TestSessionEndsAtDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		p := providers.New("sample", n.options(providers.Options{
			OnSession: func(ctx context.Context, _ providers.SessionEvent) {
				<-ctx.Done()
				panic("callbacks may panic")
			},
		}))
		run(t, p)
		peer := g.accept()
		peer.bind()
		start := time.Now()
		peer.send(
			`{"type":"session.lifecycle","sessionId":"s1","state":"shutdown.pending","deadline":3000}`)
		peer.expect(`{"type":"shutdown.ready","sessionId":"s1"}`)
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("ready after %v, want 3 s", took)
		}
		// The list without it came while it cleaned up, or after: both do.
		peer.send(`{"type":"sessions.updated","active":[]}`)
		peer.send(`{"type":"sessions.updated","active":[{"id":"s1","label":"again","cwd":"/"}]}`)
		peer.next("hello")
	})
}

// A session that is missing in a new list has ended, also without a warning.
func TestSessionVanishes(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		p := providers.New("sample", n.options(providers.Options{}))
		run(t, p)
		peer := g.accept()
		peer.bind()
		peer.send(`{"type":"sessions.updated","active":[{"id":"s2","label":"","cwd":"/"}]}`)
		if got := peer.next("hello")["session"]; got != "s2" {
			t.Errorf("bound to %v, want s2", got)
		}
	})
}

// A refusal that waiting can't help ends Run, with a goodbye.
func TestHelloRefusedForGood(t *testing.T) {
	for _, code := range []providers.Code{
		providers.CodeInvalidJSON, providers.CodePayloadTooLarge, providers.CodeUnsupportedVersion,
		"UNAUTHORIZED",
	} {
		t.Run(string(code), func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				g := n.gateway(t)
				r := run(t, providers.New("sample", n.options(providers.Options{})))
				peer := g.accept()
				peer.next("auth")
				peer.send(oneSession)
				peer.next("hello")
				peer.send(`{"type":"error","code":"` + string(code) +
					`","message":"hello.tools[0]: is bad","replyTo":"hello"}`)
				peer.next("goodbye")
				peer.closed()
				err := r.wait()
				if codeOf(err) != code ||
					!strings.Contains(err.Error(), "hello.tools[0]: is bad") ||
					!strings.Contains(err.Error(), `provider "sample"`) {
					t.Errorf("Run returned %v, want %s and its text", err, code)
				}
			})
		})
	}
}

// A hello that is refused for now is sent again, at most ten times a minute.
func TestHelloRefusedForNow(t *testing.T) {
	for _, code := range []providers.Code{providers.CodeToolConflict,
		providers.CodeDuplicateInstance,
		providers.CodeRateLimited, "NEW_CODE"} {
		t.Run(string(code), func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				g := n.gateway(t)
				o := n.options(providers.Options{})
				errs := errorsOf(o)
				p := providers.New("sample", o)
				run(t, p)
				peer := g.accept()
				peer.next("auth")
				peer.send(oneSession)
				start, times := time.Now(), 0
				for time.Since(start) < time.Minute {
					peer.next("hello")
					times++
					peer.send(`{"type":"error","code":"` + string(code) +
						`","message":"not now","replyTo":"hello"}`)
					if err := receive(t, errs); codeOf(err) != code {
						t.Fatalf("OnError heard %v, want %s", err, code)
					}
				}
				if times < 5 || times > 10 {
					t.Errorf("%d hellos in a minute, want 5 to 10", times)
				}
				// A change of the tools may cure it at once.
				at := time.Now()
				if _, err := p.AddTool(t.Context(), fixed("renamed", nil, nil)); err != nil {
					t.Fatal(err)
				}
				peer.next("hello")
				if !time.Now().Equal(at) {
					t.Errorf("hello came %v after the change, want at once", time.Since(at))
				}
				peer.ack("s1")
				synctest.Wait()
				if err := p.Keep(t.Context(), "bound"); err != nil {
					t.Errorf("pushing after the binding: got %v, want no error", err)
				}
			})
		})
	}
}

// INVALID_SESSION is not the provider's fault: it takes the next session that
// it may bind to, or waits for another list.
func TestInvalidSession(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		run(t, providers.New("sample", n.options(providers.Options{})))
		peer := g.accept()
		peer.next("auth")
		peer.send(threeSessions)
		for _, want := range []string{"s1", "s2"} {
			if got := peer.next("hello")["session"]; got != want {
				t.Fatalf("hello for %v, want %s", got, want)
			}
			peer.send(
				`{"type":"error","code":"INVALID_SESSION","message":"not yours","replyTo":"hello"}`)
		}
		synctest.Wait()
		pass(time.Minute)
		peer.send(`{"type":"sessions.updated","active":[{"id":"s2","label":"","cwd":"/"}]}`)
		if got := peer.next("hello")["session"]; got != "s2" {
			t.Errorf("hello for %v, want s2", got)
		}
	})
}

func toolNames(m object) string {
	var names []string
	tools, _ := m["tools"].([]any)
	for _, t := range tools {
		names = append(names, t.(object)["name"].(string))
	}
	return strings.Join(names, " ")
}

// Errors about things that had just ended are not reported to the user; other errors are.
func TestCrossedErrors(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		o := n.options(providers.Options{})
		errs := errorsOf(o)
		run(t, providers.New("sample", o))
		peer := g.accept()
		peer.bind()
		for _, m := range []string{
			`"code":"INVALID_STATE","message":"","replyTo":"shutdown.ready"`,
			`"code":"INVALID_SESSION","message":"","replyTo":"shutdown.ready"`,
			`"code":"INVALID_STATE","message":"","replyTo":"tool.progress"`,
			`"code":"UNKNOWN_CALL_ID","message":"","replyTo":"tool.result"`,
			`"code":"INVALID_JSON","message":"tool.result.id: is required","replyTo":"tool.result"`,
		} {
			peer.send(`{"type":"error",` + m + `}`)
		}
		if err := receive(t, errs); codeOf(err) != providers.CodeInvalidJSON {
			t.Errorf("OnError heard %v, want INVALID_JSON only", err)
		}
	})
}
