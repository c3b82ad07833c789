package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/gateway"
	"tapgw/internal/server"
)

// openServer is a server at real addresses.
type openServer struct {
	t              *testing.T
	gateway        *gateway.Gateway
	main, webhooks string // addresses
	held           []net.Conn
}

// newOpenServer serves until the test ends. Its webhook "known" takes what has the token "right".
func newOpenServer(t *testing.T) *openServer {
	o := &openServer{t: t, gateway: gateway.New(gateway.Options{})}
	s := server.New(server.Options{Gateway: o.gateway,
		Webhooks: func(_ context.Context, _ string, h http.Header, _ []byte) (int, string) {
			if h.Get("Authorization") != "Bearer right" {
				return http.StatusUnauthorized, "wrong"
			}
			return http.StatusAccepted, "taken"
		}})
	if err := s.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	webhooks, err := s.ListenWebhooks("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.main, o.webhooks = strings.TrimPrefix(s.URL(), "ws://"), webhooks.String()
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		for _, c := range o.held {
			_ = c.Close()
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutting down: %v", err)
		}
		if err := <-served; err != nil {
			t.Errorf("serving: %v", err)
		}
	})
	return o
}

// hold opens n connections, sends a text on each and keeps them. The server may have closed any.
func (o *openServer) hold(n int, address, text string) {
	o.t.Helper()
	for range n {
		c, err := net.Dial("tcp", address)
		if err != nil {
			o.t.Error(err)
			return
		}
		_, _ = io.WriteString(c, text)
		o.held = append(o.held, c)
	}
}

// holdAsStranger is hold by another user, if this process may be one: the kernel gives a socket to
// the user of the thread that makes it.
func (o *openServer) holdAsStranger(n int, address, text string) {
	o.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if os.Geteuid() == 0 {
			_, _, _ = syscall.RawSyscall(syscall.SYS_SETFSUID, 65534, 0, 0)
		}
		o.hold(n, address, text)
	}()
	<-done
}

// ask sends a request on a connection of its own and returns the answer's status, or the error.
func (o *openServer) ask(address, request string) string {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(4 * time.Second)) // the half-sent requests have five
	if _, err := io.WriteString(c, request); err != nil {
		return err.Error()
	}
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err.Error()
	}
	_ = answer.Body.Close()
	return answer.Status
}

// provide connects a provider and returns the first message that it gets for its token.
func (o *openServer) provide() string {
	ctx, cancel := context.WithTimeout(o.t.Context(), 4*time.Second)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "ws://"+o.main, nil)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = ws.CloseNow() }()
	token, _ := json.Marshal(o.gateway.InstanceToken())
	if err := ws.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"type":"auth","token":%s}`,
		token)); err != nil {
		return err.Error()
	}
	_, said, err := ws.Read(ctx)
	if err != nil {
		return err.Error()
	}
	return string(said)
}

const (
	halfHeader = "POST /hooks/known HTTP/1.1\r\nHost: localhost\r\nAuthorization: Be"
	halfBody   = "POST /hooks/known HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{"
	whole      = "POST /hooks/known HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer right\r\n" +
		"Content-Length: 2\r\n\r\n{}"
)

// Who has no secret and holds half-sent requests, new ones all the time and a byte on each now and
// then, keeps no sender out, although all come from one address, as behind a proxy.
func TestHalfSentWebhooks(t *testing.T) {
	for name, text := range map[string]string{"header": halfHeader, "body": halfBody} {
		for port, address := range map[string]func(*openServer) string{
			"own":  func(o *openServer) string { return o.main },
			"only": func(o *openServer) string { return o.webhooks },
		} {
			t.Run(name+"/"+port, func(t *testing.T) {
				o := newOpenServer(t)
				o.hold(400, address(o), text)
				for i := range 10 {
					if got := o.ask(address(o), whole); got != "202 Accepted" {
						t.Errorf("right request %d: got %s, want 202", i, got)
					}
					o.hold(20, address(o), text)
					for _, c := range o.held {
						_, _ = io.WriteString(c, "x")
					}
				}
			})
		}
	}
}

// Sockets that say nothing keep neither a provider nor tapctl out, whoever they belong to; and a
// provider that has not authenticated yet keeps its connection while another user opens more than
// there is room for.
func TestSilentSockets(t *testing.T) {
	const upgrade = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
	for name, text := range map[string]string{
		"sockets": "", "half requests": "GET / HTTP/1.1\r\n", "upgrades": upgrade,
	} {
		t.Run(name, func(t *testing.T) {
			o := newOpenServer(t)
			early, err := net.Dial("tcp", o.main)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = early.Close() }()
			o.hold(60, o.main, text)
			o.holdAsStranger(400, o.main, text)
			for i := range 10 {
				if got := o.provide(); !strings.Contains(got, `"type":"sessions"`) {
					t.Errorf("provider %d: got %s, want sessions", i, got)
				}
				status := "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " +
					o.gateway.AdminToken() + "\r\n\r\n"
				if got := o.ask(o.main, status); got != "200 OK" {
					t.Errorf("status %d: got %s, want 200", i, got)
				}
				o.holdAsStranger(20, o.main, text)
			}
			if os.Geteuid() != 0 {
				return // this process can't be another user
			}
			_ = early.SetDeadline(time.Now().Add(4 * time.Second))
			if _, err := io.WriteString(early, upgrade); err != nil {
				t.Fatal(err)
			}
			answer, err := http.ReadResponse(bufio.NewReader(early), nil)
			if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
				t.Errorf("our oldest connection: got %v, %v, want it upgraded", answer, err)
			}
		})
	}
}
