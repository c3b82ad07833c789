package providers_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/providers"
)

// A lost connection comes back with the reconnect token, to the same session.
func TestReconnect(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		o := n.options(providers.Options{Instance: "i1"})
		errs := errorsOf(o)
		causes := make(chan error, 1)
		p := providers.New("sample", o)
		if _, err := p.AddTool(t.Context(),
			raw("hang", func(ctx context.Context, _ json.RawMessage) (any, error) {
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return nil, nil
			})); err != nil {
			t.Fatal(err)
		}
		run(t, p)
		peer := g.accept()
		peer.next("auth")
		peer.send(threeSessions)
		peer.next("hello")
		peer.ack("s1")
		peer.send(`{"type":"tool.call","id":"c1","sessionId":"s1","tool":"hang","args":{}}`)
		synctest.Wait()

		peer.cut()
		start := time.Now()
		if cause := receive(t, causes); cause.Error() != "cancelled: disconnected" {
			t.Errorf(`the call's cause is %v, want "cancelled: disconnected"`, cause)
		}
		peer = g.accept()
		if took := time.Since(start); took > 300*time.Millisecond {
			t.Errorf("came back after %v, want at most 0.3 s", took)
		}
		if err := receive(t, errs); !strings.Contains(err.Error(), "lost") {
			t.Errorf("OnError heard %v, want that the connection was lost", err)
		}
		peer.expect(`{"type":"auth","reconnectToken":"rt-s1","name":"sample","instance":"i1"}`)
		peer.send(
			`{"type":"sessions","active":[{"id":"s2","label":"","cwd":"/","foreground":true},{"id":"s1","label":"","cwd":"/"}]}`)
		hello := peer.next("hello")
		if hello["session"] != "s1" || hello["reconnectToken"] != "rt-s1" {
			t.Errorf("hello %v, want session s1 and reconnectToken rt-s1", hello)
		}

		// The token is good for one connection.
		peer.cut()
		peer = g.accept()
		peer.expect(`{"type":"auth","token":"ptk-file"}`)
		peer.send(oneSession)
		peer.next("hello")
		peer.send(
			`{"type":"hello.ack","protocolVersion":2,"providerId":"p-1","sessionId":"s1","reconnectToken":"rt-second"}`)
		synctest.Wait()

		// When it is refused, the other token follows at once.
		peer.cut()
		peer = g.accept()
		peer.expect(`{"type":"auth","reconnectToken":"rt-second","name":"sample","instance":"i1"}`)
		at := time.Now()
		peer.send(`{"type":"error","code":"AUTH_FAILED","message":"expired"}`)
		peer.cut()
		peer = g.accept()
		peer.expect(`{"type":"auth","token":"ptk-file"}`)
		if !time.Now().Equal(at) {
			t.Errorf("the token came %v later, want at once", time.Since(at))
		}
	})
}

// A reconnect token is not sent to a gateway that can't know it: after 30 s, or to the next
// gateway.
func TestReconnectTokenForgotten(t *testing.T) {
	tests := map[string]func(t *testing.T, dir string){
		"after 30 s": func(_ *testing.T, _ string) { pass(31 * time.Second) },
		"next gateway": func(t *testing.T, dir string) {
			writeState(t, dir, ".provider-token", "ptk-next")
		},
		"same token, next gateway": func(t *testing.T, dir string) {
			writeState(t, dir, "gateway.json", `{"url":"ws://127.0.0.1:1","startedAt":"later"}`)
		},
	}
	for name, then := range tests {
		t.Run(name, func(t *testing.T) {
			dir := home(t)
			writeState(t, dir, ".provider-token", "ptk-file")
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				g := n.gateway(t)
				run(t, providers.New("sample", n.options(providers.Options{})))
				g.accept().bind()
				synctest.Wait()
				g.stop()
				synctest.Wait()
				then(t, dir)
				if m := n.gateway(t).accept().next("auth"); m["reconnectToken"] != nil ||
					m["token"] == nil {
					t.Errorf("auth %v, want the token of the file", m)
				}
			})
		})
	}
}

// The next gateway is found within 5 s, however long no gateway ran, and its token is read from its
// file.
func TestNextGateway(t *testing.T) {
	for _, gone := range []time.Duration{0, time.Second, 10 * time.Second, time.Hour} {
		t.Run(gone.String(), func(t *testing.T) {
			dir := home(t)
			writeState(t, dir, ".provider-token", "ptk-first")
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork()
				g := n.gateway(t)
				o := n.options(providers.Options{})
				errs := errorsOf(o)
				run(t, providers.New("sample", o))
				g.accept().bind()
				synctest.Wait()
				g.stop()
				pass(gone)
				writeState(t, dir, ".provider-token", "ptk-second")
				g = n.gateway(t)
				start := time.Now()
				peer := g.accept()
				peer.expect(`{"type":"auth","token":"ptk-second"}`)
				peer.send(oneSession)
				peer.next("hello")
				if took := time.Since(start); took > time.Second {
					t.Errorf("came after %v, want at most a second", took)
				}
				synctest.Wait()
				if len(errs) != 1 {
					t.Errorf("OnError heard %d errors, want the first only", len(errs))
				}
			})
		})
	}
}

// Without a gateway and a token, Run waits for them.
func TestNoGatewayYet(t *testing.T) {
	dir := home(t)
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		o := n.options(providers.Options{})
		errs := errorsOf(o)
		p := providers.New("sample", o)
		run(t, p)
		if err := receive(t, errs); !strings.Contains(err.Error(), "no token") ||
			!strings.Contains(err.Error(), "TAP_PROVIDER_TOKEN") {
			t.Errorf("OnError heard %v, want that there is no token", err)
		}
		if err := p.Inject(t.Context(), "hi"); !errors.Is(err, providers.ErrNotConnected) {
			t.Errorf("pushing: %v, want ErrNotConnected", err)
		}
		pass(time.Minute)
		g := n.gateway(t)
		writeState(t, dir, ".provider-token", "ptk-file")
		g.accept().bind()
	})
}

func refuse(p *peer) {
	p.t.Helper()
	p.send(`{"type":"error","code":"AUTH_FAILED","message":"unknown token"}`)
	_ = p.ws.CloseNow()
}

// The token of Options is the only one; its refusal ends Run.
func TestGivenTokenRefused(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		r := run(t, providers.New("sample", n.options(providers.Options{Token: "ptk-given"})))
		peer := g.accept()
		peer.expect(`{"type":"auth","token":"ptk-given"}`)
		refuse(peer)
		err := r.wait()
		if err == nil || !strings.Contains(err.Error(), "Options.Token") ||
			strings.Contains(err.Error(), "ptk-given") {
			t.Errorf("Run returned %v, want an error that names Options.Token and not the token",
				err)
		}
	})
}

// The environment's token may be of an earlier gateway: the file's token follows at once. A refused
// token is sent rarely, because the gateway locks out an address that tries too many.
func TestRefusedTokens(t *testing.T) {
	dir := home(t)
	t.Setenv("TAP_PROVIDER_TOKEN", "ptk-env")
	writeState(t, dir, ".provider-token", "ptk-file")
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		g := n.gateway(t)
		run(t, providers.New("sample", n.options(providers.Options{})))
		start := time.Now()
		for _, want := range []string{"ptk-env", "ptk-file"} {
			peer := g.accept()
			if got := peer.next("auth")["token"]; got != want {
				t.Fatalf("token %v, want %s", got, want)
			}
			refuse(peer)
		}
		if !time.Now().Equal(start) {
			t.Errorf("the second token came %v later, want at once", time.Since(start))
		}
		pass(29 * time.Second)
		if dials := g.dials.Load(); dials != 2 {
			t.Errorf("%d connections in 29 s, want 2", dials)
		}
		// A new token is tried without waiting for that.
		writeState(t, dir, ".provider-token", "ptk-new")
		start = time.Now()
		for {
			peer := g.accept()
			if peer.next("auth")["token"] == "ptk-new" {
				break
			}
			refuse(peer)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("the new token came after %v, want at most a second", took)
		}
	})
}

// If a gateway freezes in its handshake, after auth, after hello or later, the provider connects
// again.
func TestFrozenGateway(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		p := providers.New("sample", n.options(providers.Options{}))
		run(t, p)
		peer := g.accept()
		peer.next("auth")
		peer = g.accept() // 10 s later
		peer.next("auth")
		peer.send(oneSession)
		peer.next("hello")
		peer = g.accept()
		peer.bind()
		synctest.Wait()
		start := time.Now()
		close(peer.freeze)
		peer.send(`{"type":"nothing"}`)
		pushed := make(chan error, 1)
		peer = nil
		go func() {
			for {
				if err := p.Keep(t.Context(), "anyone there?"); err != nil {
					pushed <- err
					return
				}
			}
		}()
		next := acceptWithin(t, g, time.Minute)
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("noticed after %v, want at most 30 s", took)
		}
		if err := receive(t, pushed); !errors.Is(err, providers.ErrNotConnected) {
			t.Errorf("pushing to a dead gateway: %v, want ErrNotConnected", err)
		}
		next.next("auth")
	})
}

func acceptWithin(t testing.TB, g *gateway, d time.Duration) *peer {
	t.Helper()
	select {
	case p := <-g.peers:
		return p
	case <-time.After(d):
		t.Fatal("no provider connected, want one")
		return nil
	}
}

// An idle connection is kept.
func TestIdleConnection(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		run(t, providers.New("sample", n.options(providers.Options{})))
		peer := g.accept()
		peer.bind()
		pass(24 * time.Hour)
		if dials := g.dials.Load(); dials != 1 {
			t.Errorf("%d connections in a day, want 1", dials)
		}
		peer.send(`{"type":"tool.call","id":"c1","sessionId":"s1","tool":"x","args":{}}`)
		peer.next("tool.result")
	})
}

// A gateway that accepts the provider and drops it again gets few attempts.
func TestFlappingGateway(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		run(t, providers.New("sample", n.options(providers.Options{})))
		start := time.Now()
		for time.Since(start) < time.Minute {
			peer := g.accept()
			peer.bind()
			peer.cut()
		}
		if dials := g.dials.Load(); dials > 40 {
			t.Errorf("%d connections in a minute, want at most 40", dials)
		}
	})
}

// At its end Run waits for functions that return when their context ends, and leaves others behind.
func TestStop(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		g := n.gateway(t)
		p := providers.New("sample", n.options(providers.Options{}))
		release := make(chan struct{})
		causes := make(chan error, 1)
		if _, err := p.SetTools(t.Context(), []providers.Tool{
			raw("hang", func(ctx context.Context, _ json.RawMessage) (any, error) {
				<-ctx.Done()
				causes <- context.Cause(ctx)
				return nil, nil
			}),
			raw("deaf", func(context.Context, json.RawMessage) (any, error) {
				<-release
				return nil, nil
			}),
		}); err != nil {
			t.Fatal(err)
		}
		r := run(t, p)
		peer := g.accept()
		peer.bind()
		peer.send(`{"type":"tool.call","id":"c1","sessionId":"s1","tool":"hang","args":{}}`)
		peer.send(`{"type":"tool.call","id":"c2","sessionId":"s1","tool":"deaf","args":{}}`)
		synctest.Wait()
		if err := p.Run(t.Context()); err == nil ||
			!strings.Contains(err.Error(), "running already") {
			t.Errorf(`a second Run returned %v, want an error and "running already" in it`, err)
		}
		start := time.Now()
		r.stop()
		peer.next("goodbye")
		if cause := receive(t, causes); cause.Error() != "cancelled: stopped" {
			t.Errorf(`the call's cause is %v, want "cancelled: stopped"`, cause)
		}
		if err := r.wait(); err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
		if took := time.Since(start); took > 6*time.Second {
			t.Errorf("Run took %v to return, want at most 6 s", took)
		}
		close(release)
		synctest.Wait()

		// It can run again.
		r = run(t, p)
		g.accept().bind()
		r.stop()
		if err := r.wait(); err != nil {
			t.Errorf("the second Run returned %v, want nil", err)
		}
	})
}
