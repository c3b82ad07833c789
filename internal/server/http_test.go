package server_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// onStage runs a test with a gateway and its server, in a bubble.
func onStage(t *testing.T, f func(t *testing.T, s *stage)) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "websocket")
		defer s.close()
		f(t, s)
	})
}

// get makes one request on a connection of its own.
func (s *stage) get(method, path, host string, header http.Header) *http.Response {
	s.t.Helper()
	client := &http.Client{Transport: &http.Transport{DialContext: s.pipes.dial, DisableKeepAlives: true}}
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

const here = "127.0.0.1:9400"

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

// Who may ask for what, in the order of the guard: Host, origin, tokens.
func TestGuard(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		bearer := func(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }
		foreign := http.Header{"Origin": {"https://evil.example"}}
		for _, tc := range []struct {
			method, path, host string
			header             http.Header
			status             int
			says               string
		}{
			{"GET", "/", here, nil, 200, "Providers connect here"},
			{"HEAD", "/", here, nil, 200, ""},
			{"POST", "/", here, nil, 405, "only GET"},
			{"GET", "/healthz", here, nil, 200, `{"status":"ok"}`},
			{"GET", "/healthz", "[::1]:9400", nil, 200, "ok"},
			{"GET", "/healthz", "localhost", nil, 200, "ok"},
			{"GET", "/healthz", "evil.example", nil, 421, "evil.example is not a loopback name"},
			{"GET", "/", "127.attacker.example", nil, 421, "UNAUTHORIZED"},
			{"GET", "/", "evil.example", upgrade(), 421, "UNAUTHORIZED"},
			{"GET", "/", here, foreign, 403, "other origins"},
			{"GET", "/healthz", here, foreign, 403, "other origins"},
			{"GET", "/host", here, upgrade("Origin", "https://evil.example"), 403, "other origins"},
			{"GET", "/api/v1/status", here, http.Header{"Origin": {"https://evil.example"},
				"Authorization": {"Bearer " + s.gateway.AdminToken()}}, 403, "other origins"},
			{"GET", "/metrics", here,
				http.Header{"Origin": {"null"},
					"Authorization": {"Bearer " + s.gateway.AdminToken()}}, 403, "other origins"},
			{"GET", "/metrics", here, nil, 401, "AUTH_FAILED"},
			{"GET", "/metrics", here, bearer("adm-0"), 401, "AUTH_FAILED"},
			{"GET", "/metrics", here, bearer(s.gateway.InstanceToken()), 401, "AUTH_FAILED"},
			{"GET", "/metrics", here, http.Header{"Authorization": {s.gateway.AdminToken()}}, 401, "AUTH_FAILED"},
			{"GET", "/metrics?token=" + s.gateway.AdminToken(), here, nil, 401, "AUTH_FAILED"},
			{"GET", "/metrics", here, bearer(s.gateway.AdminToken()), 200, "tapgw_sessions 0"},
			{"GET", "/metrics", here,
				http.Header{"Origin": {"http://" + here},
					"Authorization": {"Bearer " + s.gateway.AdminToken()}}, 200, "tapgw_sessions 0"},
			{"GET", "/api/v1/sessions", here, nil, 401, "AUTH_FAILED"},
			{"GET", "/api/v1/sessions", here, bearer(s.gateway.AdminToken()), 200, "[]"},
			{"GET", "/api/v9/sessions", here, nil, 401, "AUTH_FAILED"},
			{"GET", "/api/v9/sessions", here, bearer(s.gateway.AdminToken()), 404, "NOT_FOUND"},
			{"GET", "/host", here, nil, 426, "connect by WebSocket"},
			{"GET", "/secret", here, nil, 404, "there is no /secret"},
			{"GET", "/secret", here, bearer(s.gateway.AdminToken()), 404, "there is no /secret"},
			{"GET", "/", here, http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, 400, ""},
		} {
			r := s.get(tc.method, tc.path, tc.host, tc.header)
			got := body(r)
			if r.StatusCode != tc.status || !strings.Contains(got, tc.says) {
				t.Errorf("%s %s at %s: %d %s; want %d %s", tc.method, tc.path, tc.host, r.StatusCode, got, tc.status,
					tc.says)
			}
			if r.Header.Get("X-Content-Type-Options") != "nosniff" || r.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s %s: headers %v", tc.method, tc.path, r.Header)
			}
			if r.StatusCode == 401 && r.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s: no WWW-Authenticate", tc.method, tc.path)
			}
			if strings.Contains(got, s.gateway.AdminToken()) || strings.Contains(got, s.gateway.InstanceToken()) {
				t.Errorf("%s %s: a token in the answer: %s", tc.method, tc.path, got)
			}
		}
	})
}

// 50 connections of providers, also of those that did not authenticate yet, which
// are out after 10 s; session hosts don't count.
func TestConnectionCap(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		for i := range 50 {
			if err := s.dial(fmt.Sprintf("p%d", i), "/", nil); err != nil {
				t.Fatalf("connection %d: %v", i+1, err)
			}
		}
		refused := func() {
			t.Helper()
			r := s.get("GET", "/", here, upgrade())
			if r.StatusCode != 503 || r.Header.Get("Retry-After") == "" || !strings.Contains(body(r), "RATE_LIMITED") {
				t.Fatalf("the 51st: %d %v", r.StatusCode, r.Header)
			}
		}
		refused()
		for i := range 3 {
			if err := s.dial(fmt.Sprintf("h%d", i), "/host", nil); err != nil {
				t.Fatalf("a session host: %v", err)
			}
		}
		if r := s.get("GET", "/healthz", here, nil); r.StatusCode != 200 {
			t.Errorf("healthz: %d", r.StatusCode)
		}
		s.conns["p7"].hangUp()
		synctest.Wait()
		if err := s.dial("p50", "/", nil); err != nil {
			t.Fatal(err)
		}
		refused()
		for i := range 20 {
			s.conns[fmt.Sprintf("p%d", i)].send([]byte(`{"type":"auth","token":"` + s.gateway.InstanceToken() + `"}`))
		}
		pass(10 * time.Second)
		for i := range 31 {
			if err := s.dial(fmt.Sprintf("q%d", i), "/", nil); err != nil {
				t.Fatalf("after 10 s, connection %d: %v", i+1, err)
			}
		}
		refused()
	})
}

// Before it has authenticated a connection may send 64 KiB, in one frame or in many, a
// session host too; then as much as ever.
func TestLittleBeforeAuth(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		if err := s.session([]string{"s1"}); err != nil {
			t.Fatal(err)
		}
		auth := func(pad int) []byte {
			return fmt.Appendf(nil, `{"type":"auth","token":%q,"pad":%q}`, s.gateway.InstanceToken(),
				strings.Repeat("x", pad))
		}
		small, junk := []byte(`{"type":"none","pad":"`+strings.Repeat("x", 1000)+`"}`), 64<<10
		for name, tt := range map[string]struct {
			path   string
			frames [][]byte
			in     string // "": closed
		}{
			"fits":         {"/", [][]byte{auth(60 << 10)}, `"type":"sessions"`},
			"one frame":    {"/", [][]byte{auth(junk)}, ""},
			"a huge frame": {"/", [][]byte{auth(10 << 20)}, ""},
			"many frames":  {"/", append(slices.Repeat([][]byte{small}, 70), auth(0)), ""},
			"some frames":  {"/", append(slices.Repeat([][]byte{small}, 50), auth(0)), `"type":"sessions"`},
			"a host":       {"/host", [][]byte{bytes.Repeat([]byte("x"), junk+1)}, ""},
			"pairing": {"/", append([][]byte{[]byte(`{"type":"auth","mode":"pair"}`)},
				slices.Repeat([][]byte{small}, 70)...), ""},
			"much when it is in": {"/",
				[][]byte{auth(0), fmt.Appendf(nil,
					`{"type":"hello","name":"p","protocolVersion":2,"session":"s1","pad":%q}`, strings.Repeat("x",
						1<<20))}, `"type":"hello.ack"`},
		} {
			if err := s.dial(name, tt.path, nil); err != nil {
				t.Fatal(err)
			}
			for _, f := range tt.frames {
				s.conns[name].send(f)
				synctest.Wait()
			}
			said := strings.Join(s.collect(), "\n")
			if closed := strings.Contains(said,
				"<close 1008 more than 64 KiB before authentication"); closed == (tt.in != "") ||
				!strings.Contains(said, tt.in) {
				t.Errorf("%s: closed %v, %.300s", name, closed, said)
			}
		}
	})
}

// Pages of other origins that have not paired take no place of the providers', and
// pair without using up what others may: programs, and pages of other sites.
func TestPagesKeepToThemselves(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		if err := s.session([]string{"s1"}); err != nil {
			t.Fatal(err)
		}
		from := func(site string) http.Header { return http.Header{"Origin": {"https://" + site + ".example"}} }
		for i := range 4 {
			if err := s.dial(fmt.Sprintf("evil%d", i), "/", from("evil")); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.dial("evil4", "/", from("evil")); err == nil {
			t.Error("a fifth page of one origin waits to be let in")
		}
		for range 6 { // the sixth is one too many, for that origin
			s.conns["evil0"].send([]byte(`{"type":"auth","mode":"pair","name":"bank","session":"nowhere"}`))
		}
		synctest.Wait()
		if said := strings.Join(s.collect(), "\n"); strings.Count(said, "INVALID_SESSION") != 5 ||
			strings.Count(said, "RATE_LIMITED") != 1 {
			t.Errorf("six pairings of a page: %s", said)
		}
		for name, header := range map[string]http.Header{"program": nil, "page": from("good")} {
			if err := s.dial(name, "/", header); err != nil {
				t.Fatal(err)
			}
			s.conns[name].send([]byte(`{"type":"auth","mode":"pair","name":"calc"}`))
			synctest.Wait()
			if said := strings.Join(s.collect(), "\n"); !strings.Contains(said, `"type":"auth.pairing"`) {
				t.Errorf("%s pairs meanwhile: %s", name, said)
			}
		}
		for i := range 49 {
			if err := s.dial(fmt.Sprintf("p%d", i), "/", nil); err != nil {
				t.Fatalf("beside 5 pages and a program, connection %d: %v", i+2, err)
			}
		}
		// A page that is let in takes a place, and may try again while there is none.
		s.conns["page"].send([]byte(s.names.reveal(`{"type":"auth.confirm","code":"$code"}`)))
		synctest.Wait()
		if said := strings.Join(s.collect(), "\n"); !strings.Contains(said,
			`"RATE_LIMITED","message":"50 providers are connected`) {
			t.Errorf("a page beside 50 programs: %s", said)
		}
		s.conns["p0"].hangUp()
		synctest.Wait()
		s.conns["page"].send([]byte(`{"type":"auth.confirm","code":"no"}`))
		synctest.Wait()
		if said := strings.Join(s.collect(), "\n"); !strings.Contains(said, `"AUTH_FAILED"`) {
			t.Errorf("a page with room: %s", said)
		}
	})
}

// Whoever guesses codes gains nothing by naming another origin with each.
func TestPairingIsNotGuessed(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		if err := s.session([]string{"s1"}); err != nil {
			t.Fatal(err)
		}
		tried := 0
		for i := range 100 {
			name := fmt.Sprintf("guess%d", i)
			if err := s.dial(name, "/",
				http.Header{"Origin": {fmt.Sprintf("https://a%d.evil.example", i)}}); err != nil {
				t.Fatal(err)
			}
			s.conns[name].send([]byte(`{"type":"auth","mode":"pair","name":"calc"}`))
			synctest.Wait()
			tried += strings.Count(strings.Join(s.collect(), "\n"), `"type":"auth.pairing"`)
			s.conns[name].hangUp()
			synctest.Wait()
		}
		if tried != 10 {
			t.Errorf("%d pairings in one minute, want 10", tried)
		}
		// Programs have a count of their own, and the minute ends.
		for _, name := range []string{"program", "page"} {
			header := http.Header{}
			if name == "page" {
				header.Set("Origin", "https://good.example")
				pass(time.Minute)
			}
			if err := s.dial(name, "/", header); err != nil {
				t.Fatal(err)
			}
			s.conns[name].send([]byte(`{"type":"auth","mode":"pair","name":"calc"}`))
			synctest.Wait()
			if said := strings.Join(s.collect(), "\n"); !strings.Contains(said, `"type":"auth.pairing"`) {
				t.Errorf("%s pairs: %s", name, said)
			}
		}
	})
}

// pass lets time go by on a bubble's clock.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// Wrong tokens at /, /host and REST count together: with the 21st in a minute further
// wrong ones are told so for a minute. The right one is never refused for them.
func TestWrongTokensAddUp(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		for i := range 7 {
			name := fmt.Sprintf("p%d", i)
			if err := s.dial(name, "/", nil); err != nil {
				t.Fatal(err)
			}
			s.conns[name].send([]byte(`{"type":"auth","token":"ptk-0"}`))
			name = fmt.Sprintf("h%d", i)
			if err := s.dial(name, "/host", nil); err != nil {
				t.Fatal(err)
			}
			s.conns[name].send(
				[]byte(
					`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"token":"adm-0","host":{"name":"x"}}}`,
				),
			)
			synctest.Wait()
			// The 21st itself is still answered.
			if r := s.get("GET", "/metrics", here,
				http.Header{"Authorization": {"Bearer adm-0"}}); r.StatusCode != 401 {
				t.Fatalf("round %d: %d", i, r.StatusCode)
			}
		}
		bad := http.Header{"Authorization": {"Bearer adm-0"}}
		for _, path := range []string{"/metrics", "/api/v1/status"} {
			if r := s.get("GET", path, here, bad); r.StatusCode != 429 || r.Header.Get("Retry-After") != "60" {
				t.Errorf("%s with a wrong token: %d %v", path, r.StatusCode, r.Header)
			}
		}
		good := http.Header{"Authorization": {"Bearer " + s.gateway.AdminToken()}}
		for path, header := range map[string]http.Header{"/metrics": good, "/api/v1/sessions": good, "/": nil,
			"/healthz": nil} {
			if r := s.get("GET", path, here, header); r.StatusCode != 200 {
				t.Errorf("%s with the right token, or where none is needed: %d", path, r.StatusCode)
			}
		}
		answer := func(name, path, text string) string {
			if err := s.dial(name, path, nil); err != nil {
				t.Fatal(err)
			}
			s.collect()
			s.conns[name].send([]byte(text))
			synctest.Wait()
			return strings.Join(s.collect(), "\n")
		}
		for name, want := range map[string]string{"ptk-0": "too many wrong tokens",
			s.gateway.InstanceToken(): `"type":"sessions"`} {
			if got := answer("p"+name, "/", fmt.Sprintf(`{"type":"auth","token":%q}`, name)); !strings.Contains(got,
				want) {
				t.Errorf("a provider with %.5s…: %s", name, got)
			}
		}
		for name, want := range map[string]string{"adm-0": "too many wrong tokens",
			s.gateway.AdminToken(): `"protocolVersion":1`} {
			if got := answer("h"+name, "/host",
				fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"token":%q,"host":{"name":"x"}}}`, name)); !strings.Contains(
				got,
				want,
			) {
				t.Errorf("a host with %.5s…: %s", name, got)
			}
		}
		pass(time.Minute)
		if r := s.get("GET", "/metrics", here, bad); r.StatusCode != 401 {
			t.Errorf("after a minute: %d", r.StatusCode)
		}
		// A missing token is no guess.
		for range 30 {
			s.get("GET", "/metrics", here, nil)
		}
		if r := s.get("GET", "/metrics", here, bad); r.StatusCode != 401 {
			t.Errorf("after requests without a token: %d", r.StatusCode)
		}
	})
}

// While the gateway drains, upgrades are refused and the rest still answers; when
// it is done every connection has been told.
func TestDraining(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		if err := s.session([]string{"s1"}); err != nil {
			t.Fatal(err)
		}
		for _, step := range joining([]string{"a", "s1", "t"}) {
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
			r := s.get("GET", path, here, upgrade())
			if r.StatusCode != 503 || r.Header.Get("Retry-After") == "" {
				t.Errorf("%s: %d", path, r.StatusCode)
			}
		}
		if r := s.get("GET", "/healthz", here, nil); r.StatusCode != 200 {
			t.Errorf("healthz: %d", r.StatusCode)
		}
		s.conns["a"].send([]byte(`{"type":"shutdown.ready","sessionId":"s1"}`))
		start := time.Now()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("took %s more though everybody had answered", took)
		}
		synctest.Wait()
		came := strings.Join(s.collect(), "\n")
		for _, want := range []string{`"state":"shutdown.pending"`, "a<close 1001 the gateway is shutting down",
			"h<close 1001 the gateway is shutting down", `s1: close "the gateway is shutting down"`} {
			if !strings.Contains(came, want) {
				t.Errorf("no %q in\n%s", want, came)
			}
		}
	})
}

// The counters count.
func TestMetrics(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		if err := s.session([]string{"s1"}); err != nil {
			t.Fatal(err)
		}
		for _, step := range append(joining([]string{"a", "s1", "t"}),
			"call c1 s1 t", `a> {"type":"tool.result","id":"$id1","data":1}`,
			`a> {"type":"tool.result","id":"$id1","data":1}`,
			"call c2 s1 nothing", `a> {"type":"push","level":"keep","event":"e"}`, "a> nonsense", "connect b", `b> {"type":"auth","token":"ptk-0"}`, "wait 1s") {
			if err := s.do(step); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			s.collect() // names the ids
		}
		r := s.get("GET", "/metrics", here, http.Header{"Authorization": {"Bearer " + s.gateway.AdminToken()}})
		got := body(r)
		if !strings.HasPrefix(r.Header.Get("Content-Type"), "text/plain") {
			t.Errorf("content type %q", r.Header.Get("Content-Type"))
		}
		for _, want := range []string{"tapgw_sessions 1", "tapgw_providers 1", "tapgw_connections 1",
			"tapgw_calls_total 2", "tapgw_calls_failed_total 1",
			"tapgw_pushes_total 1", "tapgw_late_messages_total 1", "tapgw_errors_sent_total 2",
			"tapgw_connections_total 2",
			"tapgw_auth_failures_total 1", "tapgw_tool_refreshes_total 1", "tapgw_slow_consumers_total 0"} {
			if !regexp.MustCompile("(?m)^" + want + "$").MatchString(got) {
				t.Errorf("no %q in\n%s", want, got)
			}
		}
	})
}

// frame is a WebSocket frame as a client sends it.
func frame(fin bool, opcode byte, masked bool, payload []byte) []byte {
	b := []byte{opcode, 0}
	if fin {
		b[0] |= 0x80
	}
	switch n := len(payload); {
	case n < 126:
		b[1] = byte(n)
	case n < 1<<16:
		b[1] = 126
		b = binary.BigEndian.AppendUint16(b, uint16(n))
	default:
		b[1] = 127
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	if !masked {
		return append(b, payload...)
	}
	b[1] |= 0x80
	mask := [4]byte{1, 2, 3, 4}
	b = append(b, mask[:]...)
	for i, c := range payload {
		b = append(b, c^mask[i%4])
	}
	return b
}

// rawClient has upgraded a connection and speaks frames.
type rawClient struct {
	t    *testing.T
	conn io.ReadWriteCloser
	in   *bufio.Reader
}

func (s *stage) raw(path string) *rawClient {
	c, err := s.pipes.dial(s.ctx, "", "")
	if err != nil {
		s.t.Fatal(err)
	}
	go func() {
		_, _ = io.WriteString(
			c,
			"GET "+path+" HTTP/1.1\r\nHost: 127.0.0.1:9400\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
		)
	}()
	in := bufio.NewReader(c)
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusSwitchingProtocols {
		s.t.Fatalf("upgrade: %d", r.StatusCode)
	}
	return &rawClient{s.t, c, in}
}

func (c *rawClient) send(frames ...[]byte) {
	if _, err := c.conn.Write(bytes.Join(frames, nil)); err != nil {
		c.t.Error(err)
	}
}

// next reads a frame of the server.
func (c *rawClient) next() (opcode byte, payload string, err error) {
	var head [2]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return 0, "", err
	}
	n := int(head[1])
	switch n {
	case 126:
		var l [2]byte
		if _, err := io.ReadFull(c.in, l[:]); err != nil {
			return 0, "", err
		}
		n = int(binary.BigEndian.Uint16(l[:]))
	case 127:
		var l [8]byte
		if _, err := io.ReadFull(c.in, l[:]); err != nil {
			return 0, "", err
		}
		n = int(binary.BigEndian.Uint64(l[:]))
	}
	p := make([]byte, n)
	_, err = io.ReadFull(c.in, p)
	return head[0] & 15, string(p), err
}

// closeCode reads on until the server closes and says with which code: 0 when it
// just hung up.
func (c *rawClient) closeCode() int {
	for {
		opcode, payload, err := c.next()
		switch {
		case err != nil:
			return 0
		case opcode == 8 && len(payload) >= 2:
			return int(binary.BigEndian.Uint16([]byte(payload)))
		}
	}
}

const (
	opContinue = 0
	opText     = 1
	opPing     = 9
	opPong     = 10
)

// A message may come in pieces, with pings between.
func TestFragments(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		c := s.raw("/")
		auth := []byte(`{"type":"auth","token":"` + s.gateway.InstanceToken() + `"}`)
		var frames [][]byte
		for i := range auth {
			op := byte(opContinue)
			if i == 0 {
				op = opText
			}
			frames = append(frames, frame(i == len(auth)-1, op, true, auth[i:i+1]),
				frame(true, opPing, true, []byte{byte(i)}))
		}
		go c.send(frames...)
		pongs := 0
		for {
			op, payload, err := c.next()
			if err != nil {
				t.Fatal(err)
			}
			if op == opPong {
				pongs++
			} else if op == opText {
				if payload != `{"type":"sessions","active":[]}` {
					t.Errorf("got %s", payload)
				}
				break
			}
		}
		if pongs < len(auth)-1 {
			t.Errorf("%d pongs for %d pings", pongs, len(auth))
		}
		_ = c.conn.Close()
	})
}

// A flood of pings is answered and starves nobody.
func TestPingFlood(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		flood := s.raw("/")
		var frames [][]byte
		for range 5000 {
			frames = append(frames, frame(true, opPing, true, []byte("ping")))
		}
		go flood.send(frames...)
		c := s.raw("/")
		go c.send(frame(true, opText, true, []byte(`{"type":"auth","token":"`+s.gateway.InstanceToken()+`"}`)))
		if _, payload, err := c.next(); err != nil || !strings.Contains(payload, "sessions") {
			t.Errorf("the other got %q, %v", payload, err)
		}
		for i := range 5000 {
			if op, _, err := flood.next(); err != nil || op != opPong {
				t.Fatalf("pong %d: %d %v", i, op, err)
			}
		}
		_ = flood.conn.Close()
		_ = c.conn.Close()
	})
}

// What is no WebSocket frame, or not one of a client, ends the connection, and
// only it.
func TestBadFrames(t *testing.T) {
	for name, bad := range map[string][]byte{
		"not masked":         frame(true, opText, false, []byte(`{}`)),
		"unknown opcode":     frame(true, 3, true, []byte(`{}`)),
		"reserved bit":       append([]byte{0x80 | 0x40 | opText}, frame(true, opText, true, []byte(`{}`))[1:]...),
		"continuation first": frame(true, opContinue, true, []byte(`{}`)),
		"long ping":          frame(true, opPing, true, make([]byte, 126)),
		"ping in pieces":     frame(false, opPing, true, []byte("x")),
		"text in text": append(frame(false, opText, true, []byte(`{`)),
			frame(true, opText, true, []byte(`}`))...),
		"negative length":        {0x81, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4},
		"invalid close code":     frame(true, 8, true, []byte{0, 1}),
		"close of one byte":      frame(true, 8, true, []byte{3}),
		"no frame":               []byte("GET / HTTP/1.1\r\n\r\n"),
		"nothing, and then none": nil,
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, func(t *testing.T, s *stage) {
				other := s.raw("/")
				c := s.raw("/")
				if bad == nil {
					_ = c.conn.Close()
				} else {
					go func() { _, _ = c.conn.Write(bad) }()
					c.closeCode()
					_ = c.conn.Close()
				}
				synctest.Wait()
				go other.send(
					frame(true, opText, true, []byte(`{"type":"auth","token":"`+s.gateway.InstanceToken()+`"}`)),
				)
				if _, payload, err := other.next(); err != nil || !strings.Contains(payload, "sessions") {
					t.Errorf("the other got %q, %v", payload, err)
				}
				_ = other.conn.Close()
			})
		})
	}
}

// Text that is not UTF-8 is INVALID_JSON, and the connection goes on.
func TestBadUTF8(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		c := s.raw("/")
		go c.send(frame(true, opText, true, []byte("{\"type\":\"auth\",\"token\":\"\xff\"}")),
			frame(true, opText, true, []byte(`{"type":"auth","token":"`+s.gateway.InstanceToken()+`"}`)))
		for _, want := range []string{"not valid UTF-8", `"sessions"`} {
			if _, payload, err := c.next(); err != nil || !strings.Contains(payload, want) {
				t.Errorf("got %q, %v; want %s", payload, err, want)
			}
		}
		_ = c.conn.Close()
	})
}

// The frame that is one byte too long is closed with 1009, also while it is still
// coming; with 1008 by the 64th KiB where nobody has authenticated.
func TestFrameWithoutEnd(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		for _, want := range []protocol.CloseCode{protocol.ClosePolicy, protocol.CloseTooBig} {
			c := s.raw("/")
			go func() {
				if want == protocol.CloseTooBig {
					c.send(frame(true, opText, true, []byte(`{"type":"auth","token":"`+s.gateway.InstanceToken()+`"}`)))
				}
				part := make([]byte, 1<<20)
				op := byte(opText)
				for range 64 { // it would go on for ever
					if _, err := c.conn.Write(frame(false, op, true, part)); err != nil {
						return
					}
					op = opContinue
				}
			}()
			if code := c.closeCode(); code != int(want) {
				t.Errorf("closed with %d, want %d", code, want)
			}
			_ = c.conn.Close()
		}
	})
}

// A provider that stops reading is closed; those beside it, and the caller,
// notice nothing but the end of its own call.
func TestFrozenProvider(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		if err := s.session([]string{"s1", "live"}); err != nil {
			t.Fatal(err)
		}
		session, _ := s.gateway.Session("s1")
		frozen := s.raw("/")
		go frozen.send(
			frame(true, opText, true, []byte(`{"type":"auth","token":"`+s.gateway.InstanceToken()+`"}`)),
			frame(
				true,
				opText,
				true,
				[]byte(
					`{"type":"hello","name":"frozen","protocolVersion":2,"session":"s1","tools":[{"name":"f","description":"d","parameters":{}}]}`,
				),
			),
		)
		for range 4 {
			if _, _, err := frozen.next(); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range joining([]string{"a", "s1", "t"}) {
			if err := s.do(step); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		s.collect()
		// It reads nothing from here on. Large calls fill what may wait for it.
		type ended struct {
			o     gateway.Outcome
			after time.Duration
		}
		ends := make(chan ended, 10)
		start := time.Now()
		big := protocol.Raw(`{"x":"` + strings.Repeat("x", 1<<20) + `"}`)
		for range 10 {
			go func() {
				o := session.CallTool(s.ctx, gateway.Call{Name: "f", Args: big})
				ends <- ended{o, time.Since(start)}
			}()
		}
		late := 0 // those that began when it was closed already: what waits for it is 8 MiB at least
		for range 10 {
			e := <-ends
			if e.o.ErrorCode == protocol.CodeNotFound && late < 2 {
				late++
			} else if e.o.ErrorCode != protocol.CodeDisconnected || e.after > 10*time.Second {
				t.Errorf("%s after %s", e.o.ErrorCode, e.after)
			}
		}
		if n := s.gateway.Stats().SlowPeers.Load(); n != 1 {
			t.Errorf("%d slow consumers", n)
		}
		for _, step := range []string{"call c1 s1 t", `a> {"type":"tool.result","id":"$id1","data":"fine"}`} {
			if err := s.do(step); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if came := strings.Join(s.collect(), "\n"); strings.HasPrefix(step, "a>") &&
				!strings.Contains(came, `c1= "fine" after 0s`) {
				t.Errorf("the other: %s", came)
			}
		}
		_ = frozen.conn.Close()
	})
}

// A session host that is busy while several large results come keeps its
// sessions; one that reads nothing for 10 s does not.
func TestBusyHost(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		host := s.raw("/host")
		request := func(text string) {
			go host.send(frame(true, opText, true, []byte(text)))
			synctest.Wait()
		}
		answer := func() string {
			_, payload, err := host.next()
			if err != nil {
				t.Fatal(err)
			}
			return payload
		}
		request(
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"token":"` +
				s.gateway.AdminToken() + `","host":{"name":"x"}}}`,
		)
		answer()
		request(`{"jsonrpc":"2.0","id":2,"method":"session/register","params":{"id":"e1","label":"l","cwd":"/c"}}`)
		answer()
		for _, step := range joining([]string{"a", "e1", "t"}) {
			if err := s.do(step); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		call := func(id int) {
			request(
				fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tool/call","params":{"sessionId":"e1","name":"t"}}`,
					id),
			)
		}
		for i := range 4 {
			call(10 + i)
		}
		s.collect() // names the ids
		for i := range 4 {
			if err := s.do(fmt.Sprintf(`a>pad 5242880 {"type":"tool.result","id":"$id%d","data":"$pad"}`,
				i+1)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		pass(9 * time.Second)
		large := 0
		for large < 4 {
			if got := answer(); len(got) > 5<<20-200 {
				large++
			}
		}
		call(20)
		s.collect()
		if err := s.do(`a> {"type":"tool.result","id":"$id5","data":"unread"}`); err != nil {
			t.Fatal(err)
		}
		pass(10 * time.Second)
		if n := s.gateway.Stats().SlowPeers.Load(); n != 1 {
			t.Errorf("%d slow consumers", n)
		}
		pass(41 * time.Second) // 30 s for the host to come back, 10 s for the provider
		if n := len(s.gateway.Sessions()); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
		_ = host.conn.Close()
	})
}
