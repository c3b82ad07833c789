//go:build e2e && linux

package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"tapgw/internal/adminapi"
)

// answer is what the gateway says to a request.
type answer struct {
	status int
	header http.Header
	body   string
	conn   net.Conn // of an upgrade
}

// request writes a request as it is, byte by byte, on a connection of its own.
func (g *gateway) request(addr, first string, headers ...string) answer {
	g.t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(c, first+" HTTP/1.1\r\n"+strings.Join(headers,
		"\r\n")+"\r\n\r\n"); err != nil {
		g.t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		g.t.Fatalf("%s %q: %v", first, headers, err)
	}
	a := answer{status: r.StatusCode, header: r.Header, conn: c}
	if r.StatusCode != http.StatusSwitchingProtocols {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			g.t.Fatal(err)
		}
		a.body = string(body)
		_ = c.Close()
	}
	return a
}

// complains checks that an answer is an error document.
func (a answer) complains(t *testing.T, what string) {
	t.Helper()
	var doc struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil || doc.Error.Code == "" ||
		doc.Error.Message == "" || strings.Contains(doc.Error.Message, "\n") {
		t.Errorf("%s: the answer is %q, want one line of JSON with a code and a message", what,
			a.body)
	}
}

var upgrade = []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
	"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg=="}

func TestHostAndOriginGuards(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	addr := strings.TrimPrefix(g.url, "ws://")
	_, port, _ := net.SplitHostPort(addr)
	admin := "Authorization: Bearer " + h.read(".admin-token")
	host := "Host: " + addr
	for _, c := range []struct {
		what, first string
		headers     []string
		want        int
	}{
		{"plain", "GET /healthz", []string{host}, 200},
		{"a name for this machine", "GET /healthz", []string{"Host: localhost:" + port}, 200},
		{"IPv6", "GET /healthz", []string{"Host: [::1]:" + port}, 200},
		{"another Host", "GET /healthz", []string{"Host: evil.example"}, 421},
		{"a Host that only begins well", "GET /api/v1/status",
			[]string{"Host: 127.0.0.1.evil.example:" + port, admin},
			421},
		{"a Host that only looks well", "GET /api/v1/status",
			[]string{"Host: localhost.evil.example", admin}, 421},
		{"another Host, upgrade", "GET /", append([]string{"Host: evil.example:" + port},
			upgrade...), 421},
		{"no token", "GET /api/v1/status", []string{host}, 401},
		{"wrong token", "GET /api/v1/status",
			[]string{host, "Authorization: Bearer adm-00000000000000000000000000000000"}, 401},
		{"a provider's token", "GET /api/v1/status", []string{host, "Authorization: Bearer " +
			h.read(".provider-token")}, 401},
		{"no token for metrics", "GET /metrics", []string{host}, 401},
		{"token", "GET /api/v1/status", []string{host, admin}, 200},
		{"own origin", "GET /api/v1/status", []string{host, admin, "Origin: http://" + addr}, 200},
		{"foreign origin", "GET /api/v1/status",
			[]string{host, admin, "Origin: https://evil.example"}, 403},
		{"no origin's origin", "GET /api/v1/status", []string{host, admin, "Origin: null"}, 403},
		{"another port's origin", "GET /metrics",
			[]string{host, admin, "Origin: http://127.0.0.1:1"}, 403},
		{"foreign origin at the page", "GET /", []string{host, "Origin: https://evil.example"},
			403},
		{"foreign origin at /host", "GET /host",
			append([]string{host, "Origin: https://evil.example"}, upgrade...),
			403},
		{"provider", "GET /", append([]string{host}, upgrade...), 101},
		{"foreign origin, provider", "GET /", append([]string{host, "Origin: https://evil.example"},
			upgrade...), 101},
		{"nothing there", "GET /nothing", []string{host}, 404},
	} {
		a := g.request(addr, c.first, c.headers...)
		if a.status != c.want {
			t.Errorf("%s: %s %q gives %d, want %d: %s", c.what, c.first, c.headers, a.status,
				c.want, a.body)
		} else if a.status >= 400 {
			a.complains(t, c.what)
		}
	}
	if a := g.request("[::1]:"+port, "GET /healthz", "Host: [::1]:"+port); a.status != 200 {
		t.Errorf("at [::1] /healthz gives %d, want 200", a.status)
	}

	// A page of another origin may connect, but not with the gateway's own tokens.
	page := g.connectFrom("https://evil.example")
	page.send(message{"type": "auth", "token": h.read(".provider-token")})
	if e := page.next("error"); e["code"] != "AUTH_FAILED" {
		t.Errorf(`a foreign page with the provider token gets %v, want "AUTH_FAILED"`, e)
	}
	if code := page.waitClosed(); code != websocket.StatusPolicyViolation {
		t.Errorf("and is closed with %v, want %v", code, websocket.StatusPolicyViolation)
	}
}

// TestConnectionCap uses up all connections, beside ones that say nothing and take no place.
func TestConnectionCap(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	addr := strings.TrimPrefix(g.url, "ws://")
	head := append([]string{"Host: " + addr}, upgrade...)
	began := time.Now()
	silent := g.connect()
	for i := range 60 {
		if a := g.request(addr, "GET /", head...); a.status != http.StatusSwitchingProtocols {
			t.Fatalf("connection %d gets %d: %s, want %v", i+2, a.status, a.body,
				http.StatusSwitchingProtocols)
		}
	}
	for range 50 {
		p := g.connect()
		p.send(message{"type": "auth", "token": h.read(".provider-token")})
		p.next("sessions")
	}
	a := g.request(addr, "GET /", head...)
	if a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf(
			"connection 51 gets %d, Retry-After %q, want %d with a time",
			a.status, a.header.Get("Retry-After"), http.StatusServiceUnavailable,
		)
	}
	a.complains(t, "connection 51")
	if code := g.get("/healthz"); code != http.StatusOK {
		t.Errorf("at the limit /healthz gives %d, want %v", code, http.StatusOK)
	}
	if status, err := g.api().Status(t.Context()); err != nil {
		t.Errorf("at the limit the admin API says: %v", err)
	} else if !slices.ContainsFunc(status.Faults, func(f adminapi.Fault) bool {
		return strings.Contains(f.Message,
			"max_connections: 50 of 50 provider connections are in use, and 1 more were refused")
	}) {
		t.Errorf("at the limit the faults are %v, want that 50 of 50 are in use", status.Faults)
	}
	if n := h.metric("tapgw_connections_refused_total"); n != 1 {
		t.Errorf("%v connections were refused, say the metrics, want 1", n)
	}

	// Who does not authenticate in time is closed.
	if code := silent.waitClosed(); code != websocket.StatusPolicyViolation {
		t.Errorf("a silent connection is closed with %v, want %v", code,
			websocket.StatusPolicyViolation)
	}
	if took := time.Since(began); took < 10*time.Second {
		t.Errorf("a silent connection is closed after %v, want at least %v", took, 10*time.Second)
	}
}

// TestWrongTokens tries one after the other until the address is told that there were
// too many; the right one is let in all the while.
func TestWrongTokens(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	addr := strings.TrimPrefix(g.url, "ws://")
	host := "Host: " + addr
	admin := "Authorization: Bearer " + h.read(".admin-token")
	guess := 0
	wrong := func() string {
		guess++
		return fmt.Sprintf("%032x", guess)
	}
	for range 10 {
		c := g.connect()
		c.send(message{"type": "auth", "token": "ptk-" + wrong()})
		if e := c.next("error"); e["code"] != "AUTH_FAILED" {
			t.Errorf(`a wrong token gets %v, want "AUTH_FAILED"`, e)
		}
		if code := c.waitClosed(); code != websocket.StatusPolicyViolation {
			t.Errorf("a wrong token is closed with %v, want %v", code,
				websocket.StatusPolicyViolation)
		}
	}
	for range 10 {
		if a := g.request(addr, "GET /api/v1/status", host,
			"Authorization: Bearer adm-"+wrong()); a.status != http.StatusUnauthorized {
			t.Errorf("wrong token %d gives %d, want %v", guess, a.status, http.StatusUnauthorized)
		}
	}
	if a := g.request(addr, "GET /api/v1/status", host, admin); a.status != http.StatusOK {
		t.Fatalf("after 20 wrong tokens the right one gives %d: %s, want %v", a.status, a.body,
			http.StatusOK)
	}
	if a := g.request(addr, "GET /api/v1/status", host,
		"Authorization: Bearer adm-"+wrong()); a.status != http.StatusUnauthorized {
		t.Errorf("wrong token %d gives %d, want %v", guess, a.status, http.StatusUnauthorized)
	}
	a := g.request(addr, "GET /api/v1/status", host, "Authorization: Bearer adm-"+wrong())
	if a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
		t.Errorf(
			"wrong token %d gives %d, Retry-After %q, want %d with a time",
			guess, a.status, a.header.Get("Retry-After"), http.StatusTooManyRequests,
		)
	}
	a.complains(t, "one wrong token too many")
	if a := g.request(addr, "GET /api/v1/status", host, admin); a.status != http.StatusOK {
		t.Errorf("after 22 wrong tokens the right one gives %d: %s, want %v", a.status, a.body,
			http.StatusOK)
	}
	if a := g.request(addr, "GET /healthz", host); a.status != http.StatusOK {
		t.Errorf("after 22 wrong tokens /healthz gives %d: %s, want %v", a.status, a.body,
			http.StatusOK)
	}
	g.peer(h.local(), "late", message{"name": "tool"})
}
