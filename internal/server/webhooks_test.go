package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/gateway"
)

// webhookFixture is a server whose webhook "known" takes what has the token "right".
type webhookFixture struct {
	*testing.T
	server    *Server
	own, only *restPipes // the gateway's listener, and that for webhooks

	mu    sync.Mutex
	taken []string // bodies
	log   strings.Builder
}

// inWebhookBubble runs a test with a fixture.
func inWebhookBubble(t *testing.T, test func(f *webhookFixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &webhookFixture{
			T:   t,
			own: &restPipes{conns: make(chan net.Conn), done: make(chan struct{})},
		}
		f.only = &restPipes{conns: make(chan net.Conn), done: make(chan struct{})}
		f.server = New(Options{
			Gateway: gateway.New(gateway.Options{}), Webhooks: f.take,
			Log: slog.New(slog.NewTextHandler(&f.log, nil)),
		})
		f.server.Use(f.own)
		f.server.webhooks.listeners = append(f.server.webhooks.listeners, &fewConns{Listener: f.only})
		served := make(chan error, 1)
		go func() { served <- f.server.Serve() }()
		test(f)
		if err := f.server.Shutdown(t.Context()); err != nil {
			t.Errorf("shutting down: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
		if n := f.server.webhooks.bodies.Load(); n != 0 {
			t.Errorf("%d bytes of bodies are counted at the end, want 0", n)
		}
	})
}

func (f *webhookFixture) take(_ context.Context, name string, h http.Header, body []byte) (int, string) {
	if name != "known" || h.Get("Authorization") != "Bearer right" {
		return http.StatusUnauthorized, "wrong"
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken = append(f.taken, string(body))
	return http.StatusAccepted, "taken"
}

// raw sends bytes to a listener and returns the first line of each answer until the server hangs up or says nothing.
func (f *webhookFixture) raw(l *restPipes, text string) (statuses []string) {
	f.Helper()
	c, err := l.dial()
	if err != nil {
		f.Fatal(err)
	}
	go func() { _, _ = io.WriteString(c, text) }()
	r := bufio.NewReader(c)
	for {
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		answer, err := http.ReadResponse(r, nil)
		if err != nil {
			_ = c.Close()
			return statuses
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		statuses = append(statuses, strings.Fields(answer.Status)[0])
	}
}

// post is the text of a request.
func post(path, token, headers, body string) string {
	return fmt.Sprintf(
		"POST %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n%sContent-Length: %d\r\n\r\n%s",
		path,
		token,
		headers,
		len(body),
		body,
	)
}

// Whatever a request is, the webhook takes only what is whole, small and shows the secret.
func TestWebhookRequests(t *testing.T) {
	const origin = "Origin: https://evil.example\r\n"
	chunked := "POST /hooks/known HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer right\r\n" +
		"Transfer-Encoding: chunked\r\n"
	big := strings.Repeat("x", webhookMaxBody)
	for name, tt := range map[string]struct {
		text, want string // statuses
		taken      int
	}{
		"right":              {post("/hooks/known", "right", "", "a"), "202", 1},
		"two in a row":       {strings.Repeat(post("/hooks/known", "right", "", "a"), 2), "202 202", 2},
		"wrong":              {post("/hooks/known", "wrong", "", "a"), "401", 0},
		"unknown":            {post("/hooks/other", "right", "", "a"), "401", 0},
		"no name":            {post("/hooks/", "right", "", "a"), "404", 0},
		"two names":          {post("/hooks/known/x", "right", "", "a"), "404", 0},
		"an escaped slash":   {post("/hooks/known%2F..%2Fknown", "right", "", "a"), "401", 0},
		"a way out":          {post("/hooks/%2e%2e%2fapi", "right", "", "a"), "401", 0},
		"GET":                {"GET /hooks/known HTTP/1.1\r\nHost: localhost\r\n\r\n", "405", 0},
		"GET of another":     {"GET /hooks/other HTTP/1.1\r\nHost: localhost\r\n\r\n", "405", 0},
		"of a page":          {post("/hooks/known", "wrong", origin, "a"), "403", 0},
		"with a right token": {post("/hooks/known", "right", origin, "a"), "202", 1},
		"large enough":       {post("/hooks/known", "right", "", big), "202", 1},
		"too large":          {post("/hooks/known", "right", "", big+"x"), "413", 0},
		"too large, unknown": {post("/hooks/other", "wrong", "", big+"x"), "413", 0},
		"chunks":             {chunked + "\r\n1\r\na\r\n0\r\n\r\n", "202", 1},
		"endless chunks":     {chunked + "\r\n" + strings.Repeat("10000\r\n"+big[:0x10000]+"\r\n", 20), "413", 0},
		"two lengths": {"POST /hooks/known HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer right\r\n" +
			"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", "400", 0},
		// What is behind the last chunk is a request of its own, whatever Content-Length says of it.
		"chunks and a length": {chunked + "Content-Length: 3\r\n\r\n0\r\n\r\n" +
			post("/hooks/known", "wrong", "", ""), "202 401", 1},
		"a strange encoding": {"POST /hooks/known HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", "501", 0},
		"a huge header":      {post("/hooks/known", "right", "X: "+strings.Repeat("x", 80<<10)+"\r\n", "a"), "431", 0},
	} {
		t.Run(name, func(t *testing.T) {
			inWebhookBubble(t, func(f *webhookFixture) {
				for where, l := range map[string]*restPipes{"own": f.own, "only": f.only} {
					f.taken = nil
					if got := strings.Join(f.raw(l, tt.text), " "); got != tt.want || len(f.taken) != tt.taken {
						f.Errorf("%s: got %s and %d taken, want %s and %d", where, got, len(f.taken), tt.want, tt.taken)
					}
				}
			})
		})
	}
}

// The listener for webhooks serves nothing else, by no method, not even to who has the admin token.
func TestWebhookListenerServesNothingElse(t *testing.T) {
	inWebhookBubble(t, func(f *webhookFixture) {
		token := "Authorization: Bearer " + f.server.gateway.AdminToken() + "\r\n"
		paths := []string{"/", "/host", "/mcp", "/metrics", "/healthz", "/page/", "/signin", "/api/v1/sessions",
			"/api/config", "/hooks", "//api/v1/status", "/hooks/../api/v1/status", "/hooks/x/../../metrics", "*"}
		for _, method := range []string{"GET", "POST", "OPTIONS", "DELETE"} {
			for _, path := range paths {
				for _, upgrade := range []string{"", "Upgrade: websocket\r\nConnection: Upgrade\r\n" +
					"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"} {
					got := f.raw(f.only, method+" "+path+" HTTP/1.1\r\nHost: anything\r\n"+token+upgrade+"\r\n")
					// 307 and 301 are the cleaned path; net/http answers OPTIONS * itself.
					if len(got) != 1 || got[0] != "404" && got[0] != "307" && got[0] != "301" && path != "*" {
						f.Errorf("%s %s: got %v, want 404", method, path, got)
					}
				}
			}
		}
	})
}

// Wrong secrets count like wrong tokens, together with them. A right one is taken all the same.
func TestWebhookWrongSecretsAreCounted(t *testing.T) {
	inWebhookBubble(t, func(f *webhookFixture) {
		for i := range maxAuthFailures + 1 {
			path := []string{"/hooks/known", "/hooks/other"}[i%2]
			if got := f.raw(f.own, post(path, "guess", "Connection: close\r\n", "")); got[0] != "401" {
				f.Fatalf("guess %d: got %v, want 401", i, got)
			}
		}
		for _, path := range []string{"/hooks/known", "/hooks/other", "/api/v1/status"} {
			if got := f.raw(f.own, post(path, "guess", "Connection: close\r\n", "")); got[0] != "429" {
				f.Errorf("one more at %s: got %v, want 429", path, got)
			}
		}
		if got := f.raw(f.own, post("/hooks/known", "right", "", "")); got[0] != "202" {
			f.Errorf("the right secret: got %v, want 202", got)
		}
		f.raw(f.own, post("/hooks/"+strings.Repeat("n", 10_000), "guess", "", ""))
		if log := f.log.String(); strings.Contains(log, "guess") || strings.Contains(log, strings.Repeat("n", 1000)) {
			f.Errorf("the log has the secret or a path without end: %.2000s", log)
		}
	})
}

// Who begins a request and does not end it is let go of, and takes no memory for what it announced.
func TestWebhookSlowBody(t *testing.T) {
	inWebhookBubble(t, func(f *webhookFixture) {
		for where, l := range map[string]*restPipes{"own": f.own, "only": f.only} {
			c, err := l.dial()
			if err != nil {
				f.Fatal(err)
			}
			began := time.Now()
			if _, err := fmt.Fprintf(c, "POST /hooks/known HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{"); err != nil {
				f.Fatal(err)
			}
			synctest.Wait()
			if n := f.server.webhooks.bodies.Load(); n > 8<<10 {
				f.Errorf("%s: %d bytes are taken for a body of 1, want few", where, n)
			}
			_, _ = io.Copy(io.Discard, c)
			if took := time.Since(began); took > webhookTimeout+time.Second {
				f.Errorf("%s: it was let go of after %s, want %s", where, took, webhookTimeout)
			}
		}
	})
}

// Many bodies at once fill no memory, and those that are refused may come again.
func TestWebhookBodiesAreBounded(t *testing.T) {
	inWebhookBubble(t, func(f *webhookFixture) {
		var open []net.Conn
		half := strings.Repeat("x", webhookMaxBody-1)
		head := strings.TrimSuffix(post("/hooks/known", "right", "", half+"x"), "x") // one byte is missing
		for range webhookMaxBodies/webhookMaxBody + 1 {
			c, err := f.own.dial()
			if err != nil {
				f.Fatal(err)
			}
			go func() { _, _ = io.WriteString(c, head) }()
			open = append(open, c)
		}
		synctest.Wait()
		if n := f.server.webhooks.bodies.Load(); n > webhookMaxBodies {
			f.Errorf("the bodies have %d bytes, want at most %d", n, webhookMaxBodies)
		}
		refused := 0
		for _, c := range open {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			if answer, err := http.ReadResponse(bufio.NewReader(c), nil); err == nil && answer.StatusCode == 503 {
				refused++
			}
			_ = c.Close()
		}
		if refused == 0 {
			f.Error("no request was refused, want the last ones")
		}
		synctest.Wait()
		if got := f.raw(f.own, post("/hooks/known", "right", "", "a")); len(got) != 1 || got[0] != "202" {
			f.Errorf("afterwards: got %v, want 202", got)
		}
	})
}

// addressConn is a connection from an address.
type addressConn struct {
	net.Conn

	from   string
	closed *int
}

func (c addressConn) Close() error { *c.closed++; return nil }

func (c addressConn) RemoteAddr() net.Addr { return addressOf(c.from) }

type addressOf string

func (addressOf) Network() string  { return "tcp" }
func (a addressOf) String() string { return string(a) }

// connList is a listener at which connections have come.
type connList struct {
	net.Listener

	list []net.Conn
}

func (l *connList) Accept() (net.Conn, error) {
	if len(l.list) == 0 {
		return nil, net.ErrClosed
	}
	c := l.list[0]
	l.list = l.list[1:]
	return c, nil
}

// Of 10,000 connections few are kept, and few of one address; who hangs up makes room.
func TestWebhookConnectionsAreBounded(t *testing.T) {
	for name, tt := range map[string]struct {
		address func(i int) string
		want    int
	}{
		"one address":     {func(i int) string { return fmt.Sprintf("192.0.2.1:%d", i) }, webhookMaxConnsEach},
		"loopback":        {func(i int) string { return fmt.Sprintf("127.0.0.%d:%d", i%250, i) }, webhookMaxConnsEach},
		"one IPv6 subnet": {func(i int) string { return fmt.Sprintf("[2001:db8::%x]:1", i) }, webhookMaxConnsEach},
		"many addresses":  {func(i int) string { return fmt.Sprintf("10.0.%d.%d:1", i/250, i%250) }, webhookMaxConns},
	} {
		closed := 0
		from := &connList{}
		for i := range 10_000 {
			from.list = append(from.list, addressConn{from: tt.address(i), closed: &closed})
		}
		l := &fewConns{Listener: from}
		var kept []net.Conn
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			kept = append(kept, c)
		}
		if len(kept) != tt.want || closed != 10_000-tt.want {
			t.Errorf("%s: %d connections are kept and %d closed, want %d and %d", name, len(kept), closed, tt.want,
				10_000-tt.want)
		}
		for _, c := range kept {
			_ = c.Close()
			_ = c.Close() // net/http does
		}
		from.list = append(from.list, addressConn{from: tt.address(1), closed: &closed})
		if _, err := l.Accept(); err != nil || l.all != 1 {
			t.Errorf("%s: after all hung up: %v and %d connections, want one", name, err, l.all)
		}
	}
}
