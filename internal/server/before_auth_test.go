package server_test

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A gateway admits 50 providers and refuses the upgrade of the next. What has not authenticated
// takes no place and is closed after 10 s; session hosts do not count.
func TestConnectionCap(t *testing.T) {
	withStage(t, func(t *testing.T, s *stage) {
		dial := func(name, path string) {
			t.Helper()
			if err := s.dial(name, path, nil); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		auth := func(name string) {
			s.conns[name].send([]byte(`{"type":"auth","token":"` + s.gateway.InstanceToken() +
				`"}`))
			synctest.Wait()
		}
		refused := func() {
			t.Helper()
			r := s.get("GET", "/", ownHost, upgrade())
			if r.StatusCode != 503 || r.Header.Get("Retry-After") == "" ||
				!strings.Contains(body(r), "RATE_LIMITED") {
				t.Fatalf("the 51st connection: got %d %v, want 503 RATE_LIMITED with Retry-After",
					r.StatusCode, r.Header)
			}
		}
		for i := range 60 {
			dial(fmt.Sprintf("silent%d", i), "/")
		}
		for i := range 49 {
			dial(fmt.Sprintf("p%d", i), "/")
			auth(fmt.Sprintf("p%d", i))
		}
		dial("p49", "/")
		dial("late", "/") // the gateway does not know yet which of the two is the 50th
		s.collect()
		auth("p49")
		if said := strings.Join(s.collect(), "\n"); !strings.Contains(said, `"type":"sessions"`) {
			t.Fatalf("the 50th provider: got %s, want it let in", said)
		}
		refused()
		auth("late")
		if said := strings.Join(s.collect(), "\n"); !strings.Contains(said, `"RATE_LIMITED"`) {
			t.Errorf(
				"a provider that was connected before the 50th was let in: got %s, want RATE_LIMITED", said)
		}
		for i := range 3 {
			dial(fmt.Sprintf("h%d", i), "/host")
		}
		if r := s.get("GET", "/healthz", ownHost, nil); r.StatusCode != 200 {
			t.Errorf("healthz: got %d, want 200", r.StatusCode)
		}
		s.conns["p7"].hangUp()
		synctest.Wait()
		dial("p50", "/")
		auth("p50")
		refused()
		s.collect()
		advance(10 * time.Second)
		if n := strings.Count(strings.Join(s.collect(), "\n"),
			"<close 1008 no auth within 10s"); n < 60 {
			t.Errorf("after 10 s %d silent connections were closed with 1008, want 60 at least", n)
		}
		refused()
	})
}

// A connection, of a session host too, may send 64 KiB before it has authenticated, in one
// frame or many. After that the usual limits hold.
func TestLittleBeforeAuth(t *testing.T) {
	withStage(t, func(t *testing.T, s *stage) {
		if err := s.session([]string{"s1"}); err != nil {
			t.Fatal(err)
		}
		auth := func(pad int) []byte {
			return fmt.Appendf(nil, `{"type":"auth","token":%q,"pad":%q}`,
				s.gateway.InstanceToken(), strings.Repeat("x", pad))
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
			"some frames": {"/", append(slices.Repeat([][]byte{small}, 50), auth(0)),
				`"type":"sessions"`},
			"a host": {"/host", [][]byte{bytes.Repeat([]byte("x"), junk+1)}, ""},
			"pairing": {"/", append([][]byte{[]byte(`{"type":"auth","mode":"pair"}`)},
				slices.Repeat([][]byte{small}, 70)...), ""},
			"much when it is in": {"/",
				[][]byte{auth(0), fmt.Appendf(nil,
					`{"type":"hello","name":"p","protocolVersion":2,"session":"s1","pad":%q}`,
					strings.Repeat("x",
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
				t.Errorf("%s: got closed %v, %.300s; want closed %v, %s", name, closed, said,
					tt.in == "", tt.in)
			}
		}
	})
}

// Pages of other origins that have not paired use up neither the connections of providers nor the
// pairings of programs and of pages of other sites.
func TestPagesKeepToThemselves(t *testing.T) {
	withStage(t, func(t *testing.T, s *stage) {
		if err := s.session([]string{"s1"}); err != nil {
			t.Fatal(err)
		}
		from := func(site string) http.Header {
			return http.Header{"Origin": {"https://" + site + ".example"}}
		}
		for i := range 4 {
			if err := s.dial(fmt.Sprintf("evil%d", i), "/", from("evil")); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.dial("evil4", "/", from("evil")); err == nil {
			t.Error("a fifth page of one origin waits to be let in, want a refusal")
		}
		for range 6 { // the sixth is one too many, for that origin
			s.conns["evil0"].send(
				[]byte(`{"type":"auth","mode":"pair","name":"bank","session":"nowhere"}`))
		}
		synctest.Wait()
		if said := strings.Join(s.collect(), "\n"); strings.Count(said, "INVALID_SESSION") != 5 ||
			strings.Count(said, "RATE_LIMITED") != 1 {
			t.Errorf(
				"six pairings of a page: got %s, want five INVALID_SESSION and one RATE_LIMITED",
				said)
		}
		for _, name := range []string{"program", "page"} { // $code is the last one's
			var header http.Header
			if name == "page" {
				header = from("good")
			}
			if err := s.dial(name, "/", header); err != nil {
				t.Fatal(err)
			}
			s.conns[name].send([]byte(`{"type":"auth","mode":"pair","name":"calc"}`))
			synctest.Wait()
			if said := strings.Join(s.collect(), "\n"); !strings.Contains(said,
				`"type":"auth.pairing"`) {
				t.Errorf("%s pairs meanwhile: got %s, want auth.pairing", name, said)
			}
		}
		for i := range 50 {
			name := fmt.Sprintf("p%d", i)
			if err := s.dial(name, "/", nil); err != nil {
				t.Fatalf("beside 5 pages and a program, connection %d: %v", i+2, err)
			}
			s.conns[name].send([]byte(`{"type":"auth","token":"` + s.gateway.InstanceToken() +
				`"}`))
			synctest.Wait()
		}
		// A page that is let in takes a place, and may try again while there is none.
		s.conns["page"].send([]byte(s.names.reveal(`{"type":"auth.confirm","code":"$code"}`)))
		synctest.Wait()
		if said := strings.Join(s.collect(), "\n"); !strings.Contains(said,
			`"RATE_LIMITED","message":"50 providers are connected`) {
			t.Errorf("a page beside 50 programs: got %s, want RATE_LIMITED", said)
		}
		s.conns["p0"].hangUp()
		synctest.Wait()
		s.conns["page"].send([]byte(`{"type":"auth.confirm","code":"no"}`))
		synctest.Wait()
		if said := strings.Join(s.collect(), "\n"); !strings.Contains(said, `"AUTH_FAILED"`) {
			t.Errorf("a page when there is a connection left: got %s, want AUTH_FAILED", said)
		}
	})
}

// A page that guesses codes gains nothing by sending another origin with each guess.
func TestPairingIsNotGuessed(t *testing.T) {
	withStage(t, func(t *testing.T, s *stage) {
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
				advance(time.Minute)
			}
			if err := s.dial(name, "/", header); err != nil {
				t.Fatal(err)
			}
			s.conns[name].send([]byte(`{"type":"auth","mode":"pair","name":"calc"}`))
			synctest.Wait()
			if said := strings.Join(s.collect(), "\n"); !strings.Contains(said,
				`"type":"auth.pairing"`) {
				t.Errorf("%s pairs: got %s, want auth.pairing", name, said)
			}
		}
	})
}

// Wrong tokens at /, /host and the API count together. After the 21st in a minute further wrong
// ones get 429 for a minute. A right token is never refused because of them.
func TestWrongTokensAddUp(t *testing.T) {
	withStage(t, func(t *testing.T, s *stage) {
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
			if r := s.get("GET", "/metrics", ownHost,
				http.Header{"Authorization": {"Bearer adm-0"}}); r.StatusCode != 401 {
				t.Fatalf("round %d: got %d, want 401", i, r.StatusCode)
			}
		}
		bad := http.Header{"Authorization": {"Bearer adm-0"}}
		for _, path := range []string{"/metrics", "/api/v1/status"} {
			if r := s.get("GET", path, ownHost, bad); r.StatusCode != 429 ||
				r.Header.Get("Retry-After") != "60" {
				t.Errorf("%s with a wrong token: got %d %v, want 429 and Retry-After 60", path,
					r.StatusCode, r.Header)
			}
		}
		good := http.Header{"Authorization": {"Bearer " + s.gateway.AdminToken()}}
		for path, header := range map[string]http.Header{"/metrics": good, "/api/v1/sessions": good,
			"/":        nil,
			"/healthz": nil} {
			if r := s.get("GET", path, ownHost, header); r.StatusCode != 200 {
				t.Errorf("%s with the right token, or where none is needed: got %d, want 200", path,
					r.StatusCode)
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
			if got := answer("p"+name, "/", fmt.Sprintf(`{"type":"auth","token":%q}`,
				name)); !strings.Contains(got,
				want) {
				t.Errorf("a provider with %.5s…: got %s, want %s", name, got, want)
			}
		}
		for name, want := range map[string]string{"adm-0": "too many wrong tokens",
			s.gateway.AdminToken(): `"protocolVersion":1`} {
			if got := answer("h"+name, "/host",
				fmt.Sprintf(
					`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"token":%q,"host":{"name":"x"}}}`, name)); !strings.Contains(
				got,
				want,
			) {
				t.Errorf("a host with %.5s…: got %s, want %s", name, got, want)
			}
		}
		advance(time.Minute)
		if r := s.get("GET", "/metrics", ownHost, bad); r.StatusCode != 401 {
			t.Errorf("after a minute: got %d, want 401", r.StatusCode)
		}
		// A missing token is no guess.
		for range 30 {
			s.get("GET", "/metrics", ownHost, nil)
		}
		if r := s.get("GET", "/metrics", ownHost, bad); r.StatusCode != 401 {
			t.Errorf("after requests without a token: got %d, want 401", r.StatusCode)
		}
	})
}
