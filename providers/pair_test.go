package providers_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/providers"
)

type paired struct {
	token string
	err   error
}

func pairing(ctx context.Context, p *providers.Provider, ask func(context.Context, string) (string,
	error)) <-chan paired {
	c := make(chan paired, 1)
	go func() {
		token, err := p.Pair(ctx, ask)
		c <- paired{token, err}
	}()
	return c
}

func typing(code string) func(context.Context, string) (string, error) {
	return func(context.Context, string) (string, error) { return code, nil }
}

const pairPrompt = `{"type":"auth.pairing","prompt":"Enter the code"}`

// A paired provider runs with the pairing's token until its session ends.
func TestPair(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		p := providers.New("browser", n.options(providers.Options{Session: "s1", Instance: "tab"}))
		prompts := make(chan string, 1)
		c := pairing(t.Context(), p, func(_ context.Context, prompt string) (string, error) {
			prompts <- prompt
			return "847293", nil
		})
		peer := g.accept()
		peer.expect(
			`{"type":"auth","mode":"pair","session":"s1","name":"browser","instance":"tab"}`)
		peer.send(`{"type":"weather"}`)
		peer.send(pairPrompt)
		if got := receive(t, prompts); got != "Enter the code" {
			t.Errorf("asked %q, want %q", got, "Enter the code")
		}
		peer.expect(`{"type":"auth.confirm","code":"847293"}`)
		peer.send(
			`{"type":"sessions","token":"ext-tok-1","active":[{"id":"s1","label":"","cwd":"/"}]}`)
		if got := receive(t, c); got != (paired{"ext-tok-1", nil}) {
			t.Errorf("got %v, want %v", got, paired{"ext-tok-1", nil})
		}
		peer.closed()

		r := run(t, p)
		peer = g.accept()
		peer.expect(`{"type":"auth","token":"ext-tok-1"}`)
		peer.send(oneSession)
		peer.next("hello")
		peer.ack("s1")
		synctest.Wait()
		peer.cut()
		peer = g.accept()
		peer.expect(`{"type":"auth","reconnectToken":"rt-s1","name":"browser","instance":"tab"}`)
		peer.send(oneSession)
		peer.next("hello")
		peer.ack("s1")
		synctest.Wait()
		// Its end is the end of the pairing.
		peer.send(
			`{"type":"session.lifecycle","sessionId":"s1","state":"shutdown.pending","deadline":10000}`)
		peer.next("shutdown.ready")
		peer.next("goodbye")
		if err := r.wait(); !errors.Is(err, providers.ErrNotPaired) {
			t.Errorf("Run returned %v, want ErrNotPaired", err)
		}
	})
}

// A pairing ends when the gateway does not know its token any more.
func TestPairingOver(t *testing.T) {
	tests := map[string]func(peer *peer){
		"token refused": func(peer *peer) { refuse(peer) },
		"session gone": func(peer *peer) {
			peer.send(`{"type":"sessions","active":[{"id":"s2","label":""}]}`)
			peer.next("hello")
			peer.send(
				`{"type":"error","code":"INVALID_SESSION","message":"not open to this token","replyTo":"hello"}`)
		},
	}
	for name, then := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				g := n.gateway(t)
				r := run(t,
					providers.New("browser", n.options(providers.Options{Token: "ext-tok-1"})))
				peer := g.accept()
				peer.next("auth")
				then(peer)
				if err := r.wait(); !errors.Is(err, providers.ErrNotPaired) ||
					strings.Contains(err.Error(), "ext-tok") {
					t.Errorf("Run returned %v, want ErrNotPaired and no token", err)
				}
			})
		})
	}
}

func TestPairFails(t *testing.T) {
	tests := map[string]struct {
		ask  func(context.Context, string) (string, error)
		do   func(p *peer)
		want string
	}{
		"wrong code": {typing("000000"), func(p *peer) {
			p.send(pairPrompt)
			p.next("auth.confirm")
			p.send(
				`{"type":"error","code":"AUTH_FAILED","message":"the pairing code is wrong","replyTo":"auth.confirm"}`)
		}, "AUTH_FAILED: the pairing code is wrong"},
		"no session": {nil, func(p *peer) {
			p.send(
				`{"type":"error","code":"INVALID_SESSION","message":"there is no session","replyTo":"auth"}`)
		}, "INVALID_SESSION: there is no session"},
		"no pairing": {nil, func(p *peer) {
			p.send(`{"type":"sessions","active":[]}`)
		}, "does it know pairing?"},
		"no answer": {nil, func(*peer) {}, "deadline exceeded"},
		"gone":      {nil, func(p *peer) { p.cut() }, "the gateway went away"},
		"not typed": {func(context.Context, string) (string, error) {
			return "", errors.New("the user has left")
		},
			func(p *peer) {
				p.send(pairPrompt)
				p.closed()
			}, "the user has left"},
		"nothing typed": {typing(""), func(p *peer) {
			p.send(pairPrompt)
			p.closed()
		}, "auth.confirm.code: is required"},
		"expired": {func(ctx context.Context, _ string) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		},
			func(p *peer) {
				p.send(pairPrompt)
				pass(2 * time.Minute)
				_ = p.ws.Close(1008, "the pairing code has expired")
			}, "the gateway closed it: the pairing code has expired (1008)"},
		"no answer to the code": {typing("123456"), func(p *peer) {
			p.send(pairPrompt)
			p.next("auth.confirm")
		}, "no answer within 10s"},
		"no token": {typing("123456"), func(p *peer) {
			p.send(pairPrompt)
			p.next("auth.confirm")
			p.send(oneSession)
		}, "the gateway gave no token"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				g := n.gateway(t)
				p := providers.New("browser", n.options(providers.Options{}))
				c := pairing(t.Context(), p, tt.ask)
				peer := g.accept()
				peer.expect(`{"type":"auth","mode":"pair","name":"browser"}`)
				tt.do(peer)
				got := receive(t, c)
				if got.err == nil ||
					!strings.HasPrefix(got.err.Error(), `pairing provider "browser": `) ||
					!strings.Contains(got.err.Error(), tt.want) {
					t.Errorf("got %v, want %s", got.err, tt.want)
				}
				// It runs as if nothing had been.
				run(t, p)
				g.accept().expect(`{"type":"auth","token":"ptk-file"}`)
			})
		})
	}

	t.Run("given up", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *network) {
			g := n.gateway(t)
			ctx, cancel := context.WithCancel(t.Context())
			asked := make(chan bool, 1)
			c := pairing(ctx, providers.New("browser", n.options(providers.Options{})),
				func(ctx context.Context, _ string) (string, error) {
					asked <- true
					<-ctx.Done()
					return "", ctx.Err()
				})
			peer := g.accept()
			peer.next("auth")
			peer.send(pairPrompt)
			receive(t, asked)
			cancel()
			if got := receive(t, c); !errors.Is(got.err, context.Canceled) {
				t.Errorf("got %v, want context.Canceled", got.err)
			}
		})
	})
	t.Run("nobody there", func(t *testing.T) {
		home(t)
		for name, p := range map[string]*providers.Provider{
			"connecting to": providers.New("browser",
				&providers.Options{URL: "ws://127.0.0.1:1"}),
			"its name must be":   providers.New(".b", nil),
			"Options.URL: \"x\"": providers.New("browser", &providers.Options{URL: "x"}),
		} {
			if _, err := p.Pair(t.Context(), typing("1")); err == nil ||
				!strings.Contains(err.Error(), name) {
				t.Errorf("got %v, want %s", err, name)
			}
		}
	})
}
