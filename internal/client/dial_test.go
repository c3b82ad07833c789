package client

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/statedir"
	"tapgw/internal/taptest"
)

// heard is all that came over the connections of a listener.
type heard struct {
	mu   sync.Mutex
	text strings.Builder
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(p)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

// impostor listens until the test ends, answers each request with what answer
// returns, and keeps what it heard.
func impostor(
	t *testing.T, network, address string, answer func(request *http.Request) string,
) (url string, h *heard) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	h = &heard{}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer func() { _ = c.Close() }()
				in := bufio.NewReader(io.TeeReader(c, h))
				for {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					if _, err := io.WriteString(c, answer(r)); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	return "ws://" + l.Addr().String(), h
}

// Whoever took the gateway's port hears neither the token nor a prompt, whatever it
// answers, and is not waited for.
func TestImpostorHearsNothing(t *testing.T) {
	const secret, prompt = "adm-secret", "the launch code"
	gateway := httptest.NewServer(taptest.Proving(http.NotFoundHandler(), secret))
	defer gateway.Close()
	relay := func(r *http.Request) string { // hands the question on to the real gateway
		out, err := http.NewRequest(r.Method, gateway.URL+r.URL.Path, nil)
		if err != nil {
			return ""
		}
		out.Header = r.Header
		answer, err := gateway.Client().Do(out)
		if err != nil {
			return ""
		}
		defer func() { _ = answer.Body.Close() }()
		var b strings.Builder
		_ = answer.Write(&b)
		return b.String()
	}
	for name, tc := range map[string]struct {
		answer func(*http.Request) string
		says   string
	}{
		"a web server": {func(*http.Request) string {
			return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
		},
			"it could not prove that it knows the token"},
		"an earlier answer": {func(*http.Request) string {
			return "HTTP/1.1 200 OK\r\nTapgw-Proof: 00 127.0.0.1:1\r\nContent-Length: 0\r\n\r\n"
		}, "it could not prove"},
		"another gateway": {func(*http.Request) string {
			return "HTTP/1.1 401 Unauthorized\r\nContent-Length: 53\r\n\r\n" +
				`{"error":{"code":"AUTH_FAILED","message":"not mine"}}`
		}, "it could not prove"},
		"a relay": {relay, "it passes connections on: "},
		"no HTTP": {func(*http.Request) string { return "220 smtp.example ESMTP\r\n" },
			"it does not answer as a gateway does"},
		"more than asked": {func(r *http.Request) string {
			return relay(r) + "HTTP/1.1 200 OK\r\n\r\n"
		},
			"it passes connections on"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := alone(t)
			write(t, dir+"/"+statedir.AdminTokenFile, secret)
			url, h := impostor(t, "tcp", "127.0.0.1:0", tc.answer)
			c, err := New(Options{URL: url})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			err = c.Send(t.Context(), "s", adminapi.Query{Prompt: prompt})
			if e := cli.AsError(err); e.Exit != cli.ExitUnreachable ||
				!strings.Contains(e.Message, "is not your gateway: "+tc.says) {
				t.Errorf("got exit %d: %v; want %d and …%s…", e.Exit, err, cli.ExitUnreachable,
					tc.says)
			}
			_, err = Host(t.Context(), Options{URL: url}, HostOptions{Name: "x", CWD: "/"})
			if exit := cli.AsError(err).Exit; exit != cli.ExitUnreachable {
				t.Errorf("a session host: got exit %d: %v, want %d", exit, err, cli.ExitUnreachable)
			}
			_, _, err = c.Dial(t.Context(), "/", nil)
			if exit := cli.AsError(err).Exit; exit != cli.ExitUnreachable {
				t.Errorf("a WebSocket: got exit %d: %v, want %d", exit, err, cli.ExitUnreachable)
			}
			if text := h.String(); strings.Contains(text, secret) ||
				strings.Contains(text, prompt) || !strings.Contains(text, "GET /healthz") {
				t.Errorf("it was sent %q, want the question alone", text)
			}
		})
	}
}

// A tunnel is one's own where the user gave both the URL and the token.
func TestTunnelThatWasNamed(t *testing.T) {
	const secret = "adm-secret"
	alone(t)
	gateway := httptest.NewServer(
		taptest.Proving(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "[]")
		}), secret))
	defer gateway.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var copying sync.WaitGroup
	defer copying.Wait()
	defer func() { _ = l.Close() }()
	copying.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", gateway.Listener.Addr().String())
			if err != nil {
				_ = c.Close()
				return
			}
			copying.Go(func() { _, _ = io.Copy(far, c); _ = far.Close() })
			copying.Go(func() { _, _ = io.Copy(c, far); _ = c.Close() })
		}
	})
	c, err := New(Options{URL: "ws://" + l.Addr().String(), Token: secret})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Sessions(t.Context()); err != nil {
		t.Error(err)
	}
}

// A listener that says nothing may be a gateway that hangs: nobody is told that it is none, nor to
// start one. It is not waited for until the command's own time is over.
func TestSilentListener(t *testing.T) {
	dir := alone(t)
	write(t, dir+"/"+statedir.AdminTokenFile, "adm-secret")
	url, _ := impostor(t, "tcp", "127.0.0.1:0", func(*http.Request) string { return "" })
	c, err := New(Options{URL: url})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	synctest.Test(t, func(t *testing.T) {
		conn, silent := net.Pipe()
		defer func() { _ = silent.Close() }()
		go func() { _, _ = io.Copy(io.Discard, silent) }()
		start := time.Now()
		_, err := c.proven(t.Context(), conn, "h")
		if e := cli.AsError(err); e.Exit != cli.ExitUnreachable ||
			!strings.Contains(e.Message, "did not answer within 5s: your gateway hangs") {
			t.Errorf("got exit %d: %v, want %d after 5s", e.Exit, err, cli.ExitUnreachable)
		}
		if got := time.Since(start); got != proofTimeout {
			t.Errorf("it was waited for %v, want %v", got, proofTimeout)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Sessions(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: got %v, want %v", err, context.Canceled)
	}
}

// The files of a gateway that was killed count for nothing.
func TestKilledGatewayIsNone(t *testing.T) {
	dir := alone(t)
	url, h := impostor(t,
		"tcp", "127.0.0.1:0", func(*http.Request) string {
			return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]"
		})
	write(t, dir+"/"+statedir.InfoFile, `{"url":"`+url+`","pid":1}`)
	write(t, dir+"/"+statedir.AdminTokenFile, "adm-secret")
	ends := running(t, dir)
	for _, tc := range []struct {
		alive bool
		says  string
	}{{true, "is not your gateway"}, {false, "is of a gateway that has ended"}} {
		if !tc.alive {
			ends()
		}
		c, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Sessions(t.Context())
		c.Close()
		if e := cli.AsError(err); e.Exit != cli.ExitUnreachable ||
			!strings.Contains(e.Message, tc.says) {
			t.Errorf("alive %v: got exit %d: %v, want …%s…", tc.alive, e.Exit, err, tc.says)
		}
	}
	if text := h.String(); strings.Contains(text, "adm-secret") ||
		strings.Count(text, "GET ") != 1 {
		t.Errorf("it was sent %q, want one question without the token", text)
	}
}

// Somebody may have removed the file of a gateway that runs: that is no reason to go on as if there
// were none.
func TestGatewayWithoutItsFileIsNotNone(t *testing.T) {
	dir := alone(t)
	for _, isRunning := range []bool{false, true} {
		if isRunning {
			running(t, dir)
		}
		c, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Sessions(t.Context())
		c.Close()
		if cli.AsError(err).Exit != cli.ExitUnreachable || errors.Is(err, ErrNone) == isRunning {
			t.Errorf("a gateway runs %v: got %v, want exit %d, and no gateway %v", isRunning, err,
				cli.ExitUnreachable, !isRunning)
		}
	}
}
