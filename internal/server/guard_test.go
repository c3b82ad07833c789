package server

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/gateway"
)

func TestKnownHost(t *testing.T) {
	s := &Server{gateway: gateway.New(gateway.Options{})}
	s.Configure([]string{"Box.example"}, false, 0)
	for host, known := range map[string]bool{
		"localhost":                 true,
		"localhost:9400":            true,
		"LocalHost:9400":            true,
		"127.0.0.1":                 true,
		"127.0.0.1:9400":            true,
		"127.8.9.10:1":              true,
		"[::1]":                     true,
		"[::1]:9400":                true,
		"[0:0:0:0:0:0:0:1]:9400":    true,
		"[::ffff:127.0.0.1]:9400":   true,
		"box.example":               true,
		"BOX.example:443":           true,
		"":                          false,
		":9400":                     false,
		"localhost.":                false,
		"localhost.attacker.exampl": false,
		"127.attacker.example":      false,
		"127.0.0.1.nip.example":     false,
		"127.1":                     false,
		"2130706433":                false,
		"0x7f.0.0.1":                false,
		"0.0.0.0:9400":              false,
		"[::]:9400":                 false,
		"[fe80::1%25lo]:9400":       false,
		"192.168.1.5:9400":          false,
		"example.com":               false,
		"box.example.evil":          false,
	} {
		if s.isKnownHost(host) != known {
			t.Errorf("%q: got known %v, want %v", host, !known, known)
		}
	}
}

func TestForeignOrigin(t *testing.T) {
	for _, tc := range []struct {
		host    string
		origins []string
		foreign bool
	}{
		{"127.0.0.1:9400", nil, false},
		{"127.0.0.1:9400", []string{"http://127.0.0.1:9400"}, false},
		{"127.0.0.1:9400", []string{"https://127.0.0.1:9400"}, false},
		{"localhost:9400", []string{"http://LOCALHOST:9400"}, false},
		{"[::1]:9400", []string{"http://[::1]:9400"}, false},
		{"127.0.0.1:9400", []string{"http://localhost:9400"}, true},
		{"127.0.0.1:9400", []string{"http://127.0.0.1:9401"}, true},
		{"127.0.0.1:9400", []string{"http://127.0.0.1"}, true},
		{"127.0.0.1:9400", []string{"https://evil.example"}, true},
		{"127.0.0.1:9400", []string{"http://127.0.0.1:9400.evil.example"}, true},
		{"127.0.0.1:9400", []string{"http://evil.example/127.0.0.1:9400"}, true},
		{"127.0.0.1:9400", []string{"http://127.0.0.1:9400@evil.example"}, true},
		{"127.0.0.1:9400", []string{"null"}, true},
		{"127.0.0.1:9400", []string{""}, true},
		{"127.0.0.1:9400", []string{"file://"}, true},
		{"127.0.0.1:9400", []string{"chrome-extension://127.0.0.1:9400"}, true},
		{"127.0.0.1:9400", []string{"//127.0.0.1:9400"}, true},
		{"127.0.0.1:9400", []string{"http://127.0.0.1:9400", "https://evil.example"}, true},
		{"127.0.0.1:9400", []string{"http://127.0.0.1:9400", "http://127.0.0.1:9400"}, true},
		{"127.0.0.1:9400", []string{"http://%zz"}, true},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = tc.host
		r.Header["Origin"] = tc.origins
		if isForeignOrigin(r) != tc.foreign {
			t.Errorf("%s, %q: got foreign %v, want %v", tc.host, tc.origins, !tc.foreign,
				tc.foreign)
		}
	}
}

// More than 20 wrong tokens in a minute, and that address waits a minute.
func TestAuthFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s authFailures
		for range 20 {
			s.record("a")
		}
		if s.isBlocked("a") || s.isBlocked("b") {
			t.Fatalf(
				"after 20 failures of a: a blocked %v, b blocked %v, want neither",
				s.isBlocked("a"), s.isBlocked("b"),
			)
		}
		s.record("a")
		if !s.isBlocked("a") || s.isBlocked("b") {
			t.Fatalf("after 21 failures of a: got a blocked %v, b blocked %v, want true and false",
				s.isBlocked("a"), s.isBlocked("b"))
		}
		wait(59 * time.Second)
		if !s.isBlocked("a") {
			t.Fatal("59 s after the 21st failure a is free, want it blocked")
		}
		wait(time.Second)
		if s.isBlocked("a") {
			t.Fatal("a minute after the 21st failure a is blocked, want it free")
		}
		// Slow guessing is never blocked: 20 in any minute.
		for range 100 {
			s.record("slow")
			wait(3001 * time.Millisecond)
		}
		if s.isBlocked("slow") {
			t.Fatal("20 failures in each minute block, want them free")
		}
		// Addresses are forgotten.
		for i := range 1000 {
			s.record(string(rune('A' + i)))
		}
		wait(2 * time.Minute)
		s.record("last")
		if len(s.bySource) != 1 {
			t.Fatalf("got %d sources, want only those of the last minutes", len(s.bySource))
		}
	})
}

// wait is on a bubble's clock.
func wait(d time.Duration) { <-time.After(d) }

// Provider connections have a limit, web pages that wait to be let in have one of their own, and
// those of each origin another. A refusal is a fault for a while.
func TestConnectionLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Gateway: gateway.New(gateway.Options{}), MaxConnections: 3})
		program := httptest.NewRequest(http.MethodGet, "/", nil)
		page := func(n int) *http.Request {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Origin", fmt.Sprintf("https://site%d.example", n))
			return r
		}
		take := func(r *http.Request) *admission {
			t.Helper()
			p, full := s.connections.reserve(r)
			if p == nil {
				t.Fatalf("a connection was refused: %v, want it let in", full)
			}
			if r == program && !p.admit() {
				t.Fatal("a program is not admitted, want it admitted")
			}
			return p
		}
		full := func(r *http.Request, want string) {
			t.Helper()
			if p, why := s.connections.reserve(r); p != nil || !strings.Contains(why, want) {
				t.Fatalf("let in, or told %q, want %q", why, want)
			}
		}
		var waiting []*admission
		for n := range maxWaitingPages / maxWaitingPerOrigin {
			for range maxWaitingPerOrigin {
				waiting = append(waiting, take(page(n)))
			}
			full(page(n), "4 of this origin")
		}
		full(page(1000), "16 web pages wait")
		if s.ConnectionFault() != "" {
			t.Errorf("pages that wait are counted as connections: %s, want no fault",
				s.ConnectionFault())
		}
		first, second := take(program), take(program)
		for range 2 { // a page that is admitted stays admitted
			if !waiting[0].admit() {
				t.Fatal("a page is refused although a connection is left, want it admitted")
			}
		}
		take(page(1000)).release() // it made room
		if got := s.ConnectionFault(); !strings.Contains(got,
			"max_connections: 3 of 3 provider connections") {
			t.Errorf("got fault %q, want 3 of 3 connections in use", got)
		}
		full(program,
			"3 providers are connected, which is the limit (max_connections in tapgw.toml)")
		if waiting[1].admit() {
			t.Fatal("a page is admitted as the fourth of three, want a refusal")
		}
		first.release()
		first.release()
		if !waiting[1].admit() || waiting[2].admit() {
			t.Fatal("one connection ended, want exactly one page admitted in its place")
		}
		second.release()
		for _, p := range waiting {
			p.release()
		}
		if used, _, refused := s.connections.usage(); used != 0 ||
			s.connections.waitingPages != 0 || len(s.connections.waitingByOrigin) != 0 ||
			refused != 3 {
			t.Errorf(
				"%d used, %d wait, %v, %d refused, want 0, 0, none and 3",
				used, s.connections.waitingPages, s.connections.waitingByOrigin, refused,
			)
		}
		if got := s.ConnectionFault(); !strings.Contains(got,
			"0 of 3 provider connections are in use, and 3 more were refused") {
			t.Errorf("after the refusals: got fault %q, want 3 refused", got)
		}
		wait(limitFaultTime + 1)
		if got := s.ConnectionFault(); got != "" {
			t.Errorf("long after the refusals: got fault %q, want none", got)
		}
		s.Configure(nil, false, 1)
		take(program)
		full(program, "1 providers are connected")
		s.cancel()
	})
}

func TestURLWithTLS(t *testing.T) {
	s := New(Options{Gateway: gateway.New(gateway.Options{}),
		TLS: &tls.Config{MinVersion: tls.VersionTLS12}})
	if err := s.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, l := range s.listeners {
			_ = l.Close()
		}
	}()
	if got := s.URL()[:16]; got != "wss://127.0.0.1:" {
		t.Errorf(`URL is %s, want "wss://127.0.0.1:"`, s.URL())
	}
}
