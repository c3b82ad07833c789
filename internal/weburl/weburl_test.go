package weburl

import (
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"https://docs.example":                  "https docs.example 443 /",
		"HTTP://User@Docs.Example.:8080/a/../b": "http docs.example 8080 /b",
		"https:docs.example":                    "https docs.example 443 /",
		`https:\\docs.example\a`:                "https docs.example 443 /a",
		"https:///docs.example":                 "https docs.example 443 /",
		" ht\ntps://do\tcs.example\n":           "https docs.example 443 /",
		"https://ｄｏｃｓ.example":                  "https docs.example 443 /",
		"https://docs。example":                  "https docs.example 443 /",
		"https://docs%2Eexample":                "https docs.example 443 /",
		"https://do\u00adcs.example":            "https docs.example 443 /",
		"https://faß.example":                   "https xn--fa-hia.example 443 /",
		"https://docs.example:443/%zz":          "https docs.example 443 /%zz",
		"http://127.1":                          "http 127.0.0.1 80 /",
		"http://2130706433":                     "http 127.0.0.1 80 /",
		"http://0x7f.1":                         "http 127.0.0.1 80 /",
		"http://0177.0.0.1":                     "http 127.0.0.1 80 /",
		"http://０x７f.1":                         "http 127.0.0.1 80 /",
		"http://%31%32%37.1":                    "http 127.0.0.1 80 /",
		"http://127.0.0.1.":                     "http 127.0.0.1 80 /",
		"http://[::1]":                          "http ::1 80 /",
		"http://[0:0:0:0:0:0:0:1]":              "http ::1 80 /",
		"http://[::ffff:127.0.0.1]":             "http 127.0.0.1 80 /",
		"http://[::FFFF:7f00:1]":                "http 127.0.0.1 80 /",
		"data:x":                                "data   x",

		"": "", "x": "", "://": "", "https://": "", "https://.": "", "https://%zz/": "",
		"https://a b/":     "",
		"http://1.2.3.4.5": "",
		"http://256.1.1.1": "", "http://[fe80::1%25eth0]/": "", "https://xn--zz/": "",
		"https://a:99999/": "",
		"https://a%00b/":   "",
		"https://" + strings.Repeat("a", maxLength): "",
	} {
		u, err := Parse(in)
		got := strings.Join([]string{u.Scheme, u.Host, u.Port, u.Path}, " ")
		if err != nil {
			got = ""
		}
		if got != want {
			t.Errorf("%.80q: %q (%v), want %q", in, got, err, want)
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, tt := range []struct {
		pattern, url   string
		allows, denies bool
	}{
		{"docs.example", "https://docs.example/x", true, true},
		{"docs.example", "http://docs.example/x", true, true},
		{"docs.example", "https://docs.example:8443/x", false, true},
		{"docs.example", "https://u@docs.example/", false, true},
		{"docs.example", "ftp://docs.example/", false, true},
		{"docs.example", "https://a.docs.example/", false, false},
		{"*.docs.example", "https://a.b.docs.example/", true, true},
		{"*.docs.example", "https://docs.example/", false, false},
		{"*.docs.example", "https://notdocs.example/", false, false},
		{"https://docs.example", "http://docs.example/", false, false},
		{"docs.example:443", "https://docs.example/", true, true},
		{"docs.example:443", "http://docs.example/", false, false},
		{"Ｄocs.Example.", "https://docs.example/", true, true},
		{"[::1]", "http://[::1]/", true, true},
		{"[::1]:80", "http://[0::1]/", true, true},
		{"127.1", "http://2130706433/", true, true},
		{"bücher.example", "https://xn--bcher-kva.example/", true, true},
		{"a.example/b", "https://a.example/b", true, true},
		{"a.example/b/", "https://a.example/b/c", true, true},
		{"a.example/b", "https://a.example/bc", false, false},
		{"a.example/b", "https://a.example/c/../b", true, true},
		{"a.example/b", "https://a.example/c/..%2fb", false, true},
		{"a.example/b", "https://a.example/%62/c", true, true},
		{"a.example/b", "https://a.example/%2562", false, true},
		{"a.example/b", "https://a.example//b", false, true},
		{"a.example/b", "https://a.example/b%2f..", false, true},
		{"a.example/b", "https://a.example/b/..;/c", false, true},
		{"a.example/b", "https://a.example/b;x=1/c", false, true},
		{"a.example/b", "https://a.example/b%3bx/c", false, true},
		{"a.example/b", "https://a.example/x/..;y/b", false, true},
		{"a.example/b", "https://a.example/b%00", false, true},
		{"a.example/a b", "https://a.example/a%20b/", false, false}, // no pattern
	} {
		p, err := ParsePattern(tt.pattern)
		u, uerr := Parse(tt.url)
		if uerr != nil {
			t.Fatal(uerr)
		}
		if err != nil {
			p = Pattern{host: "none"}
		}
		if allows, denies := p.Allows(u), p.Denies(u); allows != tt.allows || denies != tt.denies {
			t.Errorf("%s, %s: allows %v, denies %v, want %v and %v", tt.pattern, tt.url, allows,
				denies, tt.allows, tt.denies)
		}
	}
	for _, bad := range []string{"", "*", "*.", "ftp://a", "a b", "u@a", "a?x", "a#x", "a.*.b",
		"a:0", "a:x", "a:99999",
		"a/*", "://a", "%zz", "*.1.2.3.4", `a\b`, "a\nb"} {
		if p, err := ParsePattern(bad); err == nil {
			t.Errorf("%q is a pattern: %+v, want an error", bad, p)
		}
	}
}

// A parsed URL is canonical, also for the standard library, and parsing takes a bounded
// time.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"https:evil.example", `https:\\a\b`, "http://0x7f.1/",
		"http://[::1%25x]",
		"https://a/%zz/../%2e", "https://a:b@c:1/?d#e", "data:x", "http://ａ。b",
		"https://" + strings.Repeat("%25", 100), "a:" + strings.Repeat("\x9c", 1000)} {
		f.Add(s)
	}
	pattern, err := ParsePattern("evil.example/private")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		start := time.Now()
		u, err := Parse(s)
		if err != nil {
			return
		}
		if again, err := Parse(u.Href); err != nil || again != u {
			t.Errorf("%q: %+v, read again %+v, %v, want no error and %+v", s, u, again, err, u)
		}
		if std, err := url.Parse(u.Href); err == nil &&
			(u.Scheme == "http" || u.Scheme == "https") && canonical(std.Hostname()) != u.Host {
			t.Errorf("%q: host %q, of the standard library %q", s, u.Host, std.Hostname())
		}
		if pattern.Allows(u) && !pattern.Denies(u) {
			t.Errorf("%q is allowed by what does not deny it", s)
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("%d bytes took %v, want at most %v", len(s), d, 5*time.Second)
		}
	})
}
