package server

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/gateway"
)

func TestKnownHost(t *testing.T) {
	s := &Server{gateway: gateway.New(gateway.Options{})}
	s.Configure([]string{"Box.example"}, false)
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
		if s.knownHost(host) != known {
			t.Errorf("%q: known is %v", host, !known)
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
		if foreignOrigin(r) != tc.foreign {
			t.Errorf("%s, %q: foreign is %v", tc.host, tc.origins, !tc.foreign)
		}
	}
}

// More than 20 wrong tokens in a minute, and that address waits a minute.
func TestSecrets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s secrets
		for range 20 {
			s.bad("a")
		}
		if s.blocked("a") || s.blocked("b") {
			t.Fatal("20 are too many")
		}
		s.bad("a")
		if !s.blocked("a") || s.blocked("b") {
			t.Fatalf("after 21: a %v, b %v", s.blocked("a"), s.blocked("b"))
		}
		wait(59 * time.Second)
		if !s.blocked("a") {
			t.Fatal("free before its minute was over")
		}
		wait(time.Second)
		if s.blocked("a") {
			t.Fatal("still blocked after a minute")
		}
		// Slow guessing is never blocked: 20 in any minute.
		for range 100 {
			s.bad("slow")
			wait(3001 * time.Millisecond)
		}
		if s.blocked("slow") {
			t.Fatal("20 a minute are too many")
		}
		// Addresses are forgotten.
		for i := range 1000 {
			s.bad(string(rune('A' + i)))
		}
		wait(2 * time.Minute)
		s.bad("last")
		if len(s.from) != 1 {
			t.Fatalf("%d addresses are remembered", len(s.from))
		}
	})
}

// wait is on a bubble's clock.
func wait(d time.Duration) { <-time.After(d) }

func TestSlots(t *testing.T) {
	var s slots
	for i := range 50 {
		if !s.take() {
			t.Fatalf("the %dth is refused", i+1)
		}
	}
	for range 3 {
		if s.take() {
			t.Fatal("the 51st is let in")
		}
	}
	s.give()
	if !s.take() || s.take() {
		t.Fatal("one that left made room for not exactly one")
	}
}

func TestRemoteAndTLS(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "[::1]:5000"
	if got := remote(r); got != "::1" {
		t.Errorf("remote is %q", got)
	}
	r.RemoteAddr = "pipe"
	if got := remote(r); got != "pipe" {
		t.Errorf("remote is %q", got)
	}
	s := New(Options{Gateway: gateway.New(gateway.Options{}), TLS: &tls.Config{MinVersion: tls.VersionTLS12}})
	if err := s.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, l := range s.listeners {
			_ = l.Close()
		}
	}()
	if got := s.URL()[:16]; got != "wss://127.0.0.1:" {
		t.Errorf("URL is %s", s.URL())
	}
}
