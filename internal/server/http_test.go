package server_test

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// withStage runs a test with a gateway and its server, on the clock of a synctest bubble.
func withStage(t *testing.T, f func(t *testing.T, s *stage)) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "websocket")
		defer s.close()
		f(t, s)
	})
}

// get makes one request on a connection of its own.
func (s *stage) get(method, path, host string, header http.Header) *http.Response {
	s.t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: s.pipes.dial,
		DisableKeepAlives: true}}
	r, err := http.NewRequestWithContext(s.ctx, method, "http://127.0.0.1:9400"+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	r.Host = host
	maps.Copy(r.Header, header)
	response, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = response.Body.Close()
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response
}

func body(r *http.Response) string {
	b, _ := io.ReadAll(r.Body)
	return string(b)
}

const ownHost = "127.0.0.1:9400"

// upgrade asks for a WebSocket.
func upgrade(more ...string) http.Header {
	h := http.Header{
		"Connection":            {"Upgrade"},
		"Upgrade":               {"websocket"},
		"Sec-Websocket-Version": {"13"},
		"Sec-Websocket-Key":     {"dGhlIHNhbXBsZSBub25jZQ=="},
	}
	for i := 0; i < len(more); i += 2 {
		h.Set(more[i], more[i+1])
	}
	return h
}

// The guard checks the Host header, then the origin, then the token.
func TestGuard(t *testing.T) {
	withStage(t, func(t *testing.T, s *stage) {
		bearer := func(token string) http.Header {
			return http.Header{"Authorization": {"Bearer " + token}}
		}
		foreign := http.Header{"Origin": {"https://evil.example"}}
		for _, tc := range []struct {
			method, path, host string
			header             http.Header
			status             int
			says               string
		}{
			{"GET", "/", ownHost, nil, 200, "Providers connect here"},
			{"HEAD", "/", ownHost, nil, 200, ""},
			{"POST", "/", ownHost, nil, 405, "only GET"},
			{"GET", "/healthz", ownHost, nil, 200, `{"status":"ok"}`},
			{"GET", "/healthz", "[::1]:9400", nil, 200, "ok"},
			{"GET", "/healthz", "localhost", nil, 200, "ok"},
			{"GET", "/healthz", "evil.example", nil, 421, "evil.example is not a loopback name"},
			{"GET", "/", "127.attacker.example", nil, 421, "UNAUTHORIZED"},
			{"GET", "/", "evil.example", upgrade(), 421, "UNAUTHORIZED"},
			{"GET", "/", ownHost, foreign, 403, "other origins"},
			{"GET", "/healthz", ownHost, foreign, 403, "other origins"},
			{"GET", "/host", ownHost, upgrade("Origin", "https://evil.example"), 403,
				"other origins"},
			{"GET", "/api/v1/status", ownHost, http.Header{"Origin": {"https://evil.example"},
				"Authorization": {"Bearer " + s.gateway.AdminToken()}}, 403, "other origins"},
			{"GET", "/metrics", ownHost,
				http.Header{"Origin": {"null"},
					"Authorization": {"Bearer " + s.gateway.AdminToken()}}, 403, "other origins"},
			{"GET", "/metrics", ownHost, nil, 401, "AUTH_FAILED"},
			{"GET", "/metrics", ownHost, bearer("adm-0"), 401, "AUTH_FAILED"},
			{"GET", "/metrics", ownHost, bearer(s.gateway.InstanceToken()), 401, "AUTH_FAILED"},
			{"GET", "/metrics", ownHost, http.Header{"Authorization": {s.gateway.AdminToken()}},
				401, "AUTH_FAILED"},
			{"GET", "/metrics", ownHost,
				http.Header{"Authorization": {"bearer " + s.gateway.AdminToken()}}, 200,
				"tapgw_sessions 0"},
			{"GET", "/mcp", ownHost, nil, 401, "AUTH_FAILED"},
			{"GET", "/mcp", ownHost,
				http.Header{"Authorization": {"BEARER " + s.gateway.AdminToken()}}, 404,
				"there is no /mcp"},
			{"GET", "/mcp", ownHost, bearer(s.gateway.AdminToken()), 404, "there is no /mcp"},
			{"GET", "/metrics?token=" + s.gateway.AdminToken(), ownHost, nil, 401, "AUTH_FAILED"},
			{"GET", "/metrics", ownHost, bearer(s.gateway.AdminToken()), 200, "tapgw_sessions 0"},
			{"GET", "/metrics", ownHost,
				http.Header{"Origin": {"http://" + ownHost},
					"Authorization": {"Bearer " + s.gateway.AdminToken()}}, 200,
				"tapgw_sessions 0"},
			{"GET", "/api/v1/sessions", ownHost, nil, 401, "AUTH_FAILED"},
			{"GET", "/api/v1/sessions", ownHost, bearer(s.gateway.AdminToken()), 200, "[]"},
			{"GET", "/api/v9/sessions", ownHost, nil, 401, "AUTH_FAILED"},
			{"GET", "/api/v9/sessions", ownHost, bearer(s.gateway.AdminToken()), 404, "NOT_FOUND"},
			{"GET", "/host", ownHost, nil, 426, "connect by WebSocket"},
			{"GET", "/secret", ownHost, nil, 404, "there is no /secret"},
			{"GET", "/secret", ownHost, bearer(s.gateway.AdminToken()), 404, "there is no /secret"},
			{"GET", "/", ownHost, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}},
				400, ""},
		} {
			r := s.get(tc.method, tc.path, tc.host, tc.header)
			got := body(r)
			if r.StatusCode != tc.status || !strings.Contains(got, tc.says) {
				t.Errorf("%s %s at %s: got %d %s, want %d %s", tc.method, tc.path, tc.host,
					r.StatusCode, got,
					tc.status,
					tc.says)
			}
			if r.Header.Get("X-Content-Type-Options") != "nosniff" ||
				r.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s %s: got headers %v, want nosniff and no-store", tc.method, tc.path,
					r.Header)
			}
			if r.StatusCode == 401 && r.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s: got no WWW-Authenticate, want one with 401", tc.method, tc.path)
			}
			if strings.Contains(got, s.gateway.AdminToken()) ||
				strings.Contains(got, s.gateway.InstanceToken()) {
				t.Errorf("%s %s: got a token in the answer, want none: %s", tc.method, tc.path, got)
			}
		}
	})
}

// advance waits on the bubble's clock.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// While the gateway drains it refuses WebSockets and answers other requests. Every connection gets
// a close frame.
func TestDraining(t *testing.T) {
	withStage(t, func(t *testing.T, s *stage) {
		if err := s.session([]string{"s1"}); err != nil {
			t.Fatal(err)
		}
		for _, step := range joinSteps([]string{"a", "s1", "t"}) {
			if err := s.do(step); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if err := s.dial("h", "/host", nil); err != nil {
			t.Fatal(err)
		}
		s.collect()
		done := make(chan error)
		go func() { done <- s.server.Shutdown(s.ctx) }()
		synctest.Wait()
		for _, path := range []string{"/", "/host"} {
			r := s.get("GET", path, ownHost, upgrade())
			if r.StatusCode != 503 || r.Header.Get("Retry-After") == "" {
				t.Errorf("%s: got %d, want 503 with Retry-After", path, r.StatusCode)
			}
		}
		if r := s.get("GET", "/healthz", ownHost, nil); r.StatusCode != 200 {
			t.Errorf("healthz: got %d, want 200", r.StatusCode)
		}
		s.conns["a"].send([]byte(`{"type":"shutdown.ready","sessionId":"s1"}`))
		start := time.Now()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("got %s until the end, want at most 1 s after all answered", took)
		}
		synctest.Wait()
		came := strings.Join(s.collect(), "\n")
		for _, want := range []string{`"state":"shutdown.pending"`,
			"a<close 1001 the gateway is shutting down",
			"h<close 1001 the gateway is shutting down",
			`s1: close "the gateway is shutting down"`} {
			if !strings.Contains(came, want) {
				t.Errorf("want %q in:\n%s", want, came)
			}
		}
	})
}

// The metrics have the numbers of calls, pushes, errors and connections.
func TestMetrics(t *testing.T) {
	withStage(t, func(t *testing.T, s *stage) {
		if err := s.session([]string{"s1"}); err != nil {
			t.Fatal(err)
		}
		for _, step := range append(joinSteps([]string{"a", "s1", "t"}),
			"call c1 s1 t", `a> {"type":"tool.result","id":"$id1","data":1}`,
			`a> {"type":"tool.result","id":"$id1","data":1}`,
			"call c2 s1 nothing", `a> {"type":"push","level":"keep","event":"e"}`, "a> nonsense",
			"connect b",
			`b> {"type":"auth","token":"ptk-0"}`, "wait 1s") {
			if err := s.do(step); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			s.collect() // names the ids
		}
		r := s.get("GET", "/metrics", ownHost,
			http.Header{"Authorization": {"Bearer " + s.gateway.AdminToken()}})
		got := body(r)
		if !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("got content type %q, want text/plain", r.Header.Get("Content-Type"))
		}
		for _, want := range []string{"tapgw_sessions 1", "tapgw_providers 1",
			"tapgw_connections 1", "tapgw_calls_total 2", "tapgw_calls_failed_total 1",
			"tapgw_pushes_total 1", "tapgw_late_messages_total 1", "tapgw_errors_sent_total 2",
			"tapgw_connections_total 2",
			"tapgw_auth_failures_total 1", "tapgw_tool_refreshes_total 1",
			"tapgw_slow_consumers_total 0"} {
			if !regexp.MustCompile("(?m)^" + want + "$").MatchString(got) {
				t.Errorf("want a line %q in:\n%s", want, got)
			}
		}
	})
}
