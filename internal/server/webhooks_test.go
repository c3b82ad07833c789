package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
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
		f.server.webhooks.listeners = append(f.server.webhooks.listeners, f.only)
		served := make(chan error, 1)
		go func() { served <- f.server.Serve() }()
		test(f)
		if err := f.server.Shutdown(t.Context()); err != nil {
			t.Errorf("shutting down: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
		h := f.server.webhooks
		if n := len(f.server.unproven.list) + len(h.unproven.list) + len(h.bodies.list); n != 0 {
			t.Errorf("%d connections are counted at the end, want 0", n)
		}
	})
}

func (f *webhookFixture) take(
	_ context.Context, name string, h http.Header, body []byte,
) (int, string) {
	if name != "known" || h.Get("Authorization") != "Bearer right" {
		return http.StatusUnauthorized, "wrong"
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.taken = append(f.taken, string(body))
	return http.StatusAccepted, "taken"
}

// raw sends bytes to a listener and returns the first line of each answer until the server hangs up
// or says nothing.
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
		"right": {post("/hooks/known", "right", "", "a"), "202", 1},
		"two in a row": {strings.Repeat(post("/hooks/known", "right", "", "a"), 2), "202 202",
			2},
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
		"endless chunks": {chunked + "\r\n" + strings.Repeat("10000\r\n"+big[:0x10000]+"\r\n",
			20), "413", 0},
		"two lengths": {"POST /hooks/known HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer right\r\n" +
			"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", "400", 0},
		// What is behind the last chunk is a request of its own, whatever Content-Length says of
		// it.
		"chunks and a length": {chunked + "Content-Length: 3\r\n\r\n0\r\n\r\n" +
			post("/hooks/known", "wrong", "", ""), "202 401", 1},
		"a strange encoding": {"POST /hooks/known HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, gzip\r\n\r\n", "501", 0},
		"a huge header": {post("/hooks/known", "right", "X: "+strings.Repeat("x", 80<<10)+
			"\r\n", "a"), "431", 0},
	} {
		t.Run(name, func(t *testing.T) {
			inWebhookBubble(t, func(f *webhookFixture) {
				for where, l := range map[string]*restPipes{"own": f.own, "only": f.only} {
					f.taken = nil
					if got := strings.Join(f.raw(l, tt.text), " "); got != tt.want ||
						len(f.taken) != tt.taken {
						f.Errorf("%s: got %s and %d taken, want %s and %d", where, got,
							len(f.taken), tt.want, tt.taken)
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
		paths := []string{"/", "/host", "/mcp", "/metrics", "/healthz", "/page/", "/signin",
			"/api/v1/sessions",
			"/api/config", "/hooks", "//api/v1/status", "/hooks/../api/v1/status",
			"/hooks/x/../../metrics", "*"}
		for _, method := range []string{"GET", "POST", "OPTIONS", "DELETE"} {
			for _, path := range paths {
				for _, upgrade := range []string{"",
					"Upgrade: websocket\r\nConnection: Upgrade\r\n" +
						"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"} {
					got := f.raw(f.only, method+" "+path+" HTTP/1.1\r\nHost: anything\r\n"+token+
						upgrade+"\r\n")
					// 307 and 301 are the cleaned path; net/http answers OPTIONS * itself.
					if len(got) != 1 || got[0] != "404" && got[0] != "307" && got[0] != "301" &&
						path != "*" {
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
			if got := f.raw(f.own, post(path, "guess", "Connection: close\r\n",
				"")); got[0] != "401" {
				f.Fatalf("guess %d: got %v, want 401", i, got)
			}
		}
		for _, path := range []string{"/hooks/known", "/hooks/other", "/api/v1/status"} {
			if got := f.raw(f.own, post(path, "guess", "Connection: close\r\n",
				"")); got[0] != "429" {
				f.Errorf("one more at %s: got %v, want 429", path, got)
			}
		}
		if got := f.raw(f.own, post("/hooks/known", "right", "", "")); got[0] != "202" {
			f.Errorf("the right secret: got %v, want 202", got)
		}
		f.raw(f.own, post("/hooks/"+strings.Repeat("n", 10_000), "guess", "", ""))
		if log := f.log.String(); strings.Contains(log, "guess") ||
			strings.Contains(log, strings.Repeat("n", 1000)) {
			f.Errorf("the log has the secret or a path without end: %.2000s", log)
		}
	})
}

// Who begins a request and does not end it is let go of soon, also who sends a byte now and then.
func TestWebhookSlowRequests(t *testing.T) {
	inWebhookBubble(t, func(f *webhookFixture) {
		head := "POST /hooks/known HTTP/1.1\r\nHost: localhost\r\n"
		for name, tt := range map[string]struct {
			at   *restPipes
			text string
			want time.Duration
		}{
			"no header":     {f.only, "", webhookHeaderTimeout},
			"half a header": {f.only, head, webhookHeaderTimeout},
			"half a body": {f.only, head + "Content-Length: 1000000\r\n\r\n{",
				webhookBodyTimeout},
			"half a body at our own port": {f.own, head + "Content-Length: 1000000\r\n\r\n{",
				webhookBodyTimeout},
		} {
			c, err := tt.at.dial()
			if err != nil {
				f.Fatal(err)
			}
			began := time.Now()
			var sender sync.WaitGroup
			sender.Go(func() {
				_, err := io.WriteString(c, tt.text)
				for ; err == nil; _, err = io.WriteString(c, "x") {
					wait(time.Second)
				}
			})
			_, _ = io.Copy(io.Discard, c)
			if took := time.Since(began); took < tt.want || took > tt.want+time.Second {
				f.Errorf("%s: it was let go of after %s, want %s", name, took, tt.want)
			}
			_ = c.Close()
			sender.Wait()
		}
	})
}

// The body that a sender announces takes no memory before it comes.
func TestWebhookAnnouncedBody(t *testing.T) {
	r := httptest.NewRequest(http.MethodPost, "/hooks/known", io.MultiReader(strings.NewReader("{"),
		iotest.ErrReader(io.ErrUnexpectedEOF)))
	r.ContentLength = webhookMaxBody
	if body, err := new(webhooks).read(httptest.NewRecorder(), r); err == nil || cap(body) > 8<<10 {
		t.Errorf("got %v and %d bytes for a body of 1, want an error and few", err, cap(body))
	}
}

// Many large bodies at once fill no memory: the oldest goes, and a right request needs not wait. A
// small body takes no place.
func TestWebhookBodiesAreBounded(t *testing.T) {
	inWebhookBubble(t, func(f *webhookFixture) {
		var open []net.Conn
		half := strings.Repeat("x", webhookMaxBody-1)
		// one byte is missing
		head := strings.TrimSuffix(post("/hooks/known", "right", "", half+"x"), "x")
		for range webhookMaxBodies {
			c, err := f.own.dial()
			if err != nil {
				f.Fatal(err)
			}
			if _, err := io.WriteString(c, head); err != nil {
				f.Fatal(err)
			}
			open = append(open, c)
		}
		synctest.Wait()
		if n := len(f.server.webhooks.bodies.list); n != webhookMaxBodies {
			f.Errorf("%d bodies are read, want %d", n, webhookMaxBodies)
		}
		send := func(size int) {
			for i := range 10 {
				request := post("/hooks/known", "right", "Connection: close\r\n",
					strings.Repeat("a", size))
				if got := f.raw(f.own, request); len(got) != 1 || got[0] != "202" {
					f.Errorf("request %d of %d bytes beside half bodies: got %v, want 202", i, size,
						got)
				}
			}
		}
		send(webhookSmallBody)
		if n := len(f.server.webhooks.bodies.list); n != webhookMaxBodies {
			f.Errorf("%d bodies are read after small ones came, want %d", n, webhookMaxBodies)
		}
		send(webhookSmallBody + 1)
		for i, c := range open {
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			_, err := c.Read(make([]byte, 1))
			// right ones give their place back
			if isClosed := errors.Is(err, io.EOF); isClosed != (i == 0) {
				f.Errorf("half body %d: got closed %v, want only the oldest closed", i, isClosed)
			}
			_ = c.Close()
		}
	})
}
