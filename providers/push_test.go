package providers_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/providers"
)

// pushed starts a push.
func pushed(ctx context.Context, p *providers.Provider, e providers.Event,
	opts ...providers.PushOption) <-chan pushResult {
	c := make(chan pushResult, 1)
	go func() {
		r, err := p.Push(ctx, e, opts...)
		c <- pushResult{r, err}
	}()
	return c
}

type pushResult struct {
	receipt providers.Receipt
	err     error
}

func TestPush(t *testing.T) {
	bound(t,
		func(t *testing.T, _ *network, peer *peer, p *providers.Provider, _ *providers.Options) {

			c := pushed(t.Context(), p, providers.Event{
				Text: "a <b>", Level: providers.Inject, Stream: "ci",
				Metadata: map[string]any{"n": 1}, Prompt: "look",
				Session: "s1",
			})
			peer.expect(
				`{"type":"push","stream":"ci","sessionId":"s1","event":"a <b>","prompt":"look","level":"inject","metadata":{"n":1},"requestId":"push-1"}`)
			peer.send(
				`{"type":"ack","requestId":"push-1","sessionId":"s1","seq":7,"fate":"queued","reason":"the session is busy"}`)
			if got := receive(t, c); got.err != nil ||
				!reflect.DeepEqual(got.receipt, providers.Receipt{Session: "s1", Seq: 7,
					Fate:   providers.Queued,
					Reason: "the session is busy"}) {
				t.Errorf(
					"got %+v, want no error and %v",
					got, providers.Receipt{Session: "s1", Seq: 7, Fate: providers.Queued,
						Reason: "the session is busy"},
				)
			}

			// A gateway that gives receipts is waited for.
			c = pushed(t.Context(), p, providers.Event{Text: "second"})
			peer.expect(`{"type":"push","event":"second","level":"surface","requestId":"push-2"}`)
			pass(5 * time.Second)
			synctest.Wait()
			if len(c) != 0 {
				t.Fatal("Push returned, want it to wait for its receipt")
			}
			peer.send(
				`{"type":"error","code":"RATE_LIMITED","message":"slow down","replyTo":"push","requestId":"push-2"}`)
			var e *providers.Error
			if got := receive(t, c); !errors.As(got.err, &e) ||
				e.Code != providers.CodeRateLimited || !e.Retryable {
				t.Errorf("got %v, want RATE_LIMITED, retryable", got.err)
			}

			// Two at once keep their answers apart.
			first := pushed(t.Context(), p, providers.Event{Text: "third"})
			peer.next("push")
			second := pushed(t.Context(), p, providers.Event{Text: "fourth"})
			peer.next("push")
			peer.send(
				`{"type":"error","code":"UNAUTHORIZED","message":"no","replyTo":"push","requestId":"push-4"}`)
			peer.send(
				`{"type":"ack","requestId":"push-3","sessionId":"s1","seq":8,"fate":"surfaced"}`)
			if got := receive(t, second); codeOf(got.err) != "UNAUTHORIZED" {
				t.Errorf(`fourth: %v, want "UNAUTHORIZED"`, got.err)
			}
			if got := receive(t, first); got.err != nil || got.receipt.Seq != 8 {
				t.Errorf("third: %+v, want no error and Seq 8", got)
			}

			// The caller's context ends the wait and nothing else.
			ctx, cancel := context.WithCancel(t.Context())
			c = pushed(ctx, p, providers.Event{Text: "fifth"})
			peer.next("push")
			cancel()
			if got := receive(t, c); !errors.Is(got.err, context.Canceled) {
				t.Errorf("got %v, want context.Canceled", got.err)
			}

			// A lost connection ends it too.
			c = pushed(t.Context(), p, providers.Event{Text: "sixth"})
			peer.next("push")
			peer.cut()
			if got := receive(t, c); !errors.Is(got.err, providers.ErrNotConnected) {
				t.Errorf("got %v, want ErrNotConnected", got.err)
			}
		})
}

// A gateway of the core profile answers a push only when it refuses it, and
// knows no request ids.
func TestPushWithoutReceipts(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		o := n.options(providers.Options{})
		errs := errorsOf(o)
		p := providers.New("sample", o)
		run(t, p)
		peer := g.accept()
		peer.bind()
		synctest.Wait()

		// The gateway sent a reconnect token, so it is likely to give receipts; after a silence it
		// is not.
		for _, want := range []time.Duration{5 * time.Second, 250 * time.Millisecond} {
			start := time.Now()
			if r, err := p.Push(t.Context(), providers.Event{Text: "hi"}); err != nil ||
				!reflect.DeepEqual(r, providers.Receipt{}) {
				t.Errorf("got %v, %v, want no error and %v", r, err, providers.Receipt{})
			}
			if took := time.Since(start); took != want {
				t.Errorf("took %v, want %v", took, want)
			}
			peer.next("push")
		}
		c := pushed(t.Context(), p, providers.Event{Text: "hi"})
		peer.next("push")
		peer.send(`{"type":"error","code":"RATE_LIMITED","message":"slow down","replyTo":"push"}`)
		if got := receive(t, c); codeOf(got.err) != providers.CodeRateLimited {
			t.Errorf("got %v, want RATE_LIMITED", got.err)
		}
		// One that belongs to no push that waits is not lost.
		peer.send(`{"type":"error","code":"INVALID_SESSION","message":"gone","replyTo":"push"}`)
		if err := receive(t, errs); codeOf(err) != providers.CodeInvalidSession {
			t.Errorf("OnError heard %v, want INVALID_SESSION", err)
		}
	})
}

func TestPushHelpers(t *testing.T) {
	bound(t,
		func(t *testing.T, _ *network, peer *peer, p *providers.Provider, _ *providers.Options) {
			for level, f := range map[string]func(context.Context, string) error{"keep": p.Keep,
				"surface": p.Surface,
				"inject":  p.Inject} {
				if err := f(t.Context(), "hi"); err != nil {
					t.Errorf("pushing with level %s: got %v, want no error", level, err)
				}
				if m := peer.next("push"); m["level"] != level || m["event"] != "hi" {
					t.Errorf(`%s sent %v, want %v and "hi"`, level, m, level)
				}
			}
		})
}

// A wrong event is refused before it is sent.
func TestWrongPush(t *testing.T) {
	peer, r := connected(t, nil, fixed("quick", "done", nil))
	peer.send(`{"type":"tool.call","id":"c1","sessionId":"s1","tool":"quick","args":{}}`)
	peer.next("tool.result") // it is bound now
	tests := map[string]struct {
		event providers.Event
		want  string
	}{
		"nothing": {providers.Event{}, "push.event: is required"},
		"level": {providers.Event{Text: "hi", Level: "loud"},
			"push.level: must be one of keep, surface, inject"},
		"stream": {providers.Event{Text: "hi", Stream: "/"}, "push.stream: must be"},
		"metadata": {providers.Event{Text: "hi", Metadata: map[string]any{"f": func() {}}},
			"Event.Metadata"},
		"too large": {providers.Event{Text: strings.Repeat("x", 2<<20)},
			"over the limit of 2097152"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := r.p.Push(t.Context(), tt.event)
			if err == nil || !strings.HasPrefix(err.Error(), "pushing: ") ||
				!strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
	peer.send(`{"type":"tool.call","id":"c2","sessionId":"s1","tool":"quick","args":{}}`)
	peer.expect(`{"type":"tool.result","id":"c2","data":"done"}`)
}
