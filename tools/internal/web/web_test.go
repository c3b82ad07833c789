package web

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPublic(t *testing.T) {
	for address, want := range map[string]bool{
		"8.8.8.8": true, "1.1.1.1": true, "2606:4700::1111": true, "::ffff:8.8.8.8": true,
		"64:ff9b::808:808": true, "172.32.0.1": true, "2002:808:808::1": true,
		"127.0.0.1": false, "127.9.9.9": false, "::1": false, "0.0.0.0": false, "::": false,
		"0.1.2.3": false, "10.0.0.1": false, "172.16.0.1": false, "172.31.255.255": false,
		"192.168.1.1":     false,
		"169.254.169.254": false, "fe80::1": false, "fe80::1%eth0": false, "fd00:ec2::254": false,
		"fc00::1":    false,
		"100.64.0.1": false, "100.100.100.200": false, "100.127.255.255": false,
		"168.63.129.16":    false,
		"::ffff:127.0.0.1": false, "::ffff:10.0.0.1": false, "::127.0.0.1": false,
		"::ffff:169.254.169.254": false,
		"64:ff9b::7f00:1":        false, "64:ff9b::a9fe:a9fe": false, "64:ff9b:1::a00:1": false,
		"2002:7f00:1::1":   false,
		"2002:a9fe:a9fe::": false,
		"2001::1":          false, "2001:db8::1": false, "fec0::1": false, "4000::1": false,
		"224.0.0.1":       false,
		"ff02::1":         false,
		"255.255.255.255": false, "240.0.0.1": false, "198.18.0.1": false, "192.0.2.1": false,
	} {
		if got := isPublic(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
	}
}

// only allows one server.
func only(s *httptest.Server) Fetcher {
	at := netip.MustParseAddrPort(s.Listener.Addr().String())
	return Fetcher{Private: func(_ context.Context, _ string, addr netip.AddrPort) error {
		if addr == at {
			return nil
		}
		return errors.New("not this one")
	}}
}

func server(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

func TestFetchRefuses(t *testing.T) {
	var asked atomic.Int32
	s := server(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
	for address, want := range map[string]string{
		s.URL:                                  "127.0.0.1 is at 127.0.0.1, which is not on the public internet",
		"http://localhost:" + port:             "localhost is at ",
		"http://[::ffff:127.0.0.1]:" + port:    "not on the public internet",
		"http://[::1]:" + port:                 "not on the public internet",
		"http://0.0.0.0:" + port:               "not on the public internet",
		"http://169.254.169.254/latest":        "not on the public internet",
		"http://10.1.2.3":                      "not on the public internet",
		"file:///etc/passwd":                   "only http and https",
		"gopher://example.com":                 "only http and https",
		"http://127.1:" + port:                 "not on the public internet",
		"http:2130706433:" + port:              "not on the public internet",
		`http:\\0x7f.1:` + port + `\x`:         "not on the public internet",
		"http://１２７.0.0.1:" + port:             "not on the public internet",
		"http://169%2e254.169.254/latest":      "not on the public internet",
		"http://user:secret@127.0.0.1:" + port: "a name and a password",
		"http://user:secret@a b/":              "is no URL of a page",
		"/etc/passwd":                          "has to be http or https",
		"http://":                              "with a host",
		"http://a b/":                          "is no URL of a page",
		"":                                     "has to be http or https",
	} {
		_, err := Fetcher{}.Fetch(t.Context(), address)
		if err == nil || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", address, err, want)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the server was asked %d times, want 0", n)
	}
}

// An allowed page does not lead to a refused one by a redirect.
func TestRedirects(t *testing.T) {
	var asked atomic.Int32
	inside := server(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	var s *httptest.Server // its handler knows it
	s = server(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/inside":
			http.Redirect(w, r, inside.URL, http.StatusFound)
		case "/file":
			w.Header().Set("Location", "file:///etc/passwd")
			w.WriteHeader(http.StatusFound)
		case "/user":
			http.Redirect(w, r, "http://a:b@"+r.Host, http.StatusFound)
		case "/loop":
			http.Redirect(w, r, "/loop", http.StatusFound)
		case "/moved":
			http.Redirect(w, r, "/there", http.StatusMovedPermanently)
		case "/there":
			w.Header().Set("Content-Type", "text/plain")
			_, _ = io.WriteString(w, "here")
		}
	})
	f := only(s)
	for path, want := range map[string]string{
		"/inside": "127.0.0.1 is at 127.0.0.1, which is not on the public internet: not this one",
		"/file":   "only http and https", "/user": "a name and a password",
		"/loop": "more than 5 redirects",
	} {
		if _, err := f.Fetch(t.Context(), s.URL+path); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the server inside was asked %d times, want 0", n)
	}
	p, err := f.Fetch(t.Context(), s.URL+"/moved#part")
	if err != nil || string(p.Body) != "here" || p.URL != s.URL+"/there" {
		t.Errorf("moved: got %q at %s, %v, want %q", p.Body, p.URL, err, "here")
	}
}

func TestFetch(t *testing.T) {
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		kind, body := "text/plain; charset=utf-8", ""
		switch r.URL.Path {
		case "/text":
			body = "hällo"
		case "/json":
			kind, body = "Application/Vnd.X+JSON", `{"a":1}`
		case "/latin1":
			kind, body = "text/plain", "h\xe4llo"
		case "/long":
			body = strings.Repeat("é", maxBody)
		case "/bomb":
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Type", "text/plain")
			z := gzip.NewWriter(w)
			for range 64 {
				_, _ = z.Write(make([]byte, 1<<20))
			}
			_ = z.Close()
			return
		case "/pdf":
			kind = "application/pdf"
		case "/missing":
			http.NotFound(w, r)
			return
		case "/html":
			kind, body = "", "<!doctype html><p>x"
		case "/short":
			w.Header().Set("Content-Length", "100")
			body = "x"
		}
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, body)
	})
	tests := []struct{ path, kind, body, err string }{
		{"/text", "text/plain", "hällo", ""},
		{"/json", "application/vnd.x+json", `{"a":1}`, ""},
		{"/latin1", "text/plain", "hällo", ""},
		{"/html", "text/html", "<!doctype html><p>x", ""},
		{"/pdf", "", "", "is application/pdf, not text"},
		{"/missing", "", "", "answers 404 Not Found"},
		{"/short", "", "", "unexpected EOF"},
	}
	f := only(s)
	for _, tt := range tests {
		p, err := f.Fetch(t.Context(), s.URL+tt.path)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, want %q", tt.path, err, tt.err)
			}
		} else if err != nil || string(p.Body) != tt.body || p.Type != tt.kind || p.Cut {
			t.Errorf("%s: %+v, %v, want %q of type %s, whole", tt.path, p, err, tt.body, tt.kind)
		}
	}
	for _, path := range []string{"/long", "/bomb"} {
		p, err := f.Fetch(t.Context(), s.URL+path)
		if err != nil || !p.Cut || len(p.Body) > maxBody || len(p.Body) < maxBody-utf8.UTFMax ||
			!utf8.Valid(p.Body) {
			t.Errorf(
				"%s: %d bytes, cut %v, %v, want about %d, cut, without half a character",
				path, len(p.Body), p.Cut, err, maxBody,
			)
		}
	}
}

// A silent server costs a bounded time, and a caller can give up at once.
func TestFetchEnds(t *testing.T) {
	over := make(chan struct{})
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			_ = http.NewResponseController(w).Flush()
		}
		<-over
	})
	defer close(over)
	f := only(s)
	f.limit = 50 * time.Millisecond
	for _, path := range []string{"/silent", "/slow"} {
		if _, err := f.Fetch(t.Context(), s.URL+path); err == nil ||
			!strings.Contains(err.Error(), "nothing came within 50ms") {
			t.Errorf("%s: got error %v, want %q in it", path, err, "nothing came within 50ms")
		}
	}
	f.limit = 0
	ctx, cancel := context.WithCancel(t.Context())
	f.Private = func(context.Context, string, netip.AddrPort) error { cancel(); return nil }
	if _, err := f.Fetch(ctx, s.URL); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

// A proxy may have any address, but gets only requests for allowed pages.
func TestProxy(t *testing.T) {
	proxy := server(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, "by proxy: ", r.URL)
	})
	at, _ := url.Parse(proxy.URL)
	f := Fetcher{lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
		switch host {
		case "inside.example.":
			return []netip.Addr{netip.MustParseAddr("8.8.8.8"), netip.MustParseAddr("10.0.0.1")},
				nil
		case "public.example.":
			return []netip.Addr{netip.MustParseAddr("8.8.8.8")}, nil
		}
		return nil, &net.DNSError{Err: "no such host", Name: host}
	}, Proxy: func(r *http.Request) (*url.URL, error) {
		if r.URL.Hostname() == "127.0.0.2" { // as NO_PROXY has it
			return nil, nil
		}
		return at, nil
	}}
	for address, want := range map[string]string{
		"http://public.example/x":      "by proxy: http://public.example/x",
		`http:\\ｐublic%2eexample\a\..`: "by proxy: http://public.example/",
		"http://8.8.8.8/":              "by proxy: http://8.8.8.8/",
		"http://134744072/":            "by proxy: http://8.8.8.8/",
	} {
		if p, err := f.Fetch(t.Context(), address); err != nil || string(p.Body) != want {
			t.Errorf("%s: got %q, %v, want %q", address, p.Body, err, want)
		}
	}
	for _, address := range []string{
		"http://127.0.0.1/", "http://169.254.169.254/", "http://[::ffff:10.0.0.1]/",
		"http://localhost/",
		"http://metadata.google.internal/",
		"http://printer.local./", "http://127.0.0.2/", "http://inside.example/",
		"http://INSIDE.example./",
		"http://127.1/", "http://2130706433/", "http://0x7f.1/", "http://0177.1/",
		"http://１２７.0.0.１/", "http://①②7.1/",
		"http://127。1/", "http://%31%32%37.1/", "http://[::1]/",
		"http://[::ffff:7f00:1]/", "http://0/", "http://169.16689662/", "http://LOCALHOST./",
		"http://ｌocalhost/",
		"http://x.localhost/", "http://intranet/", "http://wiki.corp/",
		"http://only-the-proxy-knows.example/", "http:127.1/", `http:\\127.1`,
	} {
		if p, err := f.Fetch(t.Context(), address); err == nil {
			t.Errorf("%s: %q, want a refusal", address, p.Body)
		}
	}
}

// Behind a proxy, Private decides about hosts without an address here, and about each
// host that a page redirects to.
func TestProxyAsks(t *testing.T) {
	var reached []string
	proxy := server(t, func(w http.ResponseWriter, r *http.Request) {
		reached = append(reached, r.URL.String())
		w.Header().Set("Content-Type", "text/plain")
		if to := r.URL.Query().Get("to"); to != "" {
			w.Header().Set("Location", to)
			w.WriteHeader(http.StatusFound)
		}
	})
	at, _ := url.Parse(proxy.URL)
	var asked []string
	f := Fetcher{
		Proxy: http.ProxyURL(at),
		lookup: func(_ context.Context, host string) ([]netip.Addr, error) {
			return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
		},
		Private: func(_ context.Context, host string, addr netip.AddrPort) error {
			asked = append(asked, fmt.Sprint(host, " ", addr.IsValid()))
			if host == "wiki.example" {
				return nil
			}
			return errors.New("no")
		},
	}
	for address, want := range map[string]string{
		"http://wiki.example/": "",
		"http://other.example/": "other.example has no address that is known here: " +
			"only the proxy knows where it leads: no",
		"http://wiki.example/?to=http://0x7f.1/": "127.0.0.1 is at 127.0.0.1, which is not on the " +
			"public internet: no",
		"http://wiki.example/?to=http://%EF%BD%8Fther.example/": "other.example has no address",
		"http://wiki.example/?to=https:127.1":                   "no",
		"http://wiki.example/?to=/there":                        "",
	} {
		reached, asked = nil, nil
		_, err := f.Fetch(t.Context(), address)
		if want == "" && err != nil || want != "" &&
			(err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
		for _, r := range reached {
			if !strings.HasPrefix(r, "http://wiki.example/") {
				t.Errorf("%s: the proxy was asked for %s, want %q at the beginning", address, r,
					"http://wiki.example/")
			}
		}
		if len(asked) == 0 {
			t.Errorf("%s: nobody was asked, want the server asked", address)
		}
	}
}

func TestText(t *testing.T) {
	p := Page{URL: "https://example.com/docs/", Type: "text/html",
		Body: []byte(`<!doctype html><html><head><title>A &amp;
B</title><style>x{}</style></head><body><nav><a href="/">Home</a></nav>
<h1>Waiting</h1><p>Use <code>wait_for</code> or <a href="../more">more</a>.</p><script>alert(1)</script>
<pre><code class="language-go">x := 1
</code></pre><table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr></table><footer>(c)</footer></body></html>`)}
	c, err := p.Content(t.Context())
	want :=
		"# Waiting\n\nUse `wait_for` or [more](https://example.com/more).\n\n```go\nx := 1\n```\n\n| a | b " +
			"|\n|---|---|\n| 1 | 2 |"
	if err != nil || c.Title != "A & B" || c.Text != want || c.Cut {
		t.Errorf("got %v, %+v, want %q", err, c, "A & B")
	}
	p = Page{Type: "text/plain", Body: []byte("<b>")}
	if c, err := p.Content(t.Context()); c != (Content{Text: "<b>"}) || err != nil {
		t.Errorf("plain: %+v, %v, want %+v and no error", c, err, (Content{Text: "<b>"}))
	}
}

// bombs returns small pages that would expand to large ones. They repeat what they
// have many of only a fourth as often in short mode.
func bombs() map[string]string {
	n := func(times int) int {
		if testing.Short() {
			return times / 4
		}
		return times
	}
	return map[string]string{
		"a cell that spans": "<table><tr><td colspan=60000 rowspan=60000>x</td></tr></table>",
		"rows beside columns": "<table><tr>" + strings.Repeat("<td>", n(100_000)) +
			strings.Repeat("<tr>", n(100_000)) +
			"</table>",
		"spans in many rows": "<table>" + strings.Repeat("<tr><td rowspan=1000 colspan=19>",
			n(5000)) + "</table>",
		"a wide cell": "<table><tr><td>" + strings.Repeat("w", 500_000) +
			strings.Repeat("<tr><td>x", 9000) +
			"</table>",
		"rows in rows":  "<table><tr><td><math>" + strings.Repeat("<tr><td>x", 200) + "</table>",
		"unclosed tags": unclosed("b", 400) + strings.Repeat("<p>x", n(400_000)),
		"unclosed in a cell": unclosed("b", 400) + "<table><td>" + strings.Repeat("</b>", 400) +
			"</table>" + strings.Repeat("<p>x", n(400_000)),
		"lists in lists": strings.Repeat("<ol start=999999999999999999><li>", 200) +
			strings.Repeat("x<br>", n(300_000)),
		"quotations": strings.Repeat("<blockquote>", 400) +
			strings.Repeat("x<br>", n(300_000)),
		"deep": strings.Repeat("<div>", 20_000) + "deep",
		"attributes": "<b" + manyAttributes(100_000) + "><b" + manyAttributes(100_000) +
			">x",
		"links to a long place": strings.Repeat("<a href=x>y</a>", n(100_000)),
		"many elements":         strings.Repeat("<p>", n(600_000)),
	}
}

func unclosed(tag string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "<%s class=%d>", tag, i)
	}
	return b.String()
}

func manyAttributes(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, " a%d", i)
	}
	return b.String()
}

// convert makes Markdown of a page and returns how many bytes of memory that took.
func convert(t *testing.T, body string) (c Content, allocated uint64, err error) {
	t.Helper()
	p := Page{URL: "https://example.com/" + strings.Repeat("long/", 1000), Type: "text/html",
		Body: []byte(body)}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	c, err = p.Content(t.Context())
	runtime.ReadMemStats(&after)
	return c, after.TotalAlloc - before.TotalAlloc, err
}

// The text of a small page, and the memory for it, are bounded.
func TestContentIsBounded(t *testing.T) {
	for name, body := range bombs() {
		t.Run(name, func(t *testing.T) {
			c, allocated, err := convert(t, body)
			if len(c.Text) > maxText {
				t.Errorf("got %d bytes of text, want at most %d", len(c.Text), maxText)
			}
			if allocated > 1<<30 {
				t.Errorf("%d MB of memory, want at most 1024", allocated>>20)
			}
			if err == nil && !strings.Contains(c.Text, "x") && strings.Contains(body, "x") &&
				name != "a wide cell" {
				t.Errorf("got %.100q, want an x in it", c.Text)
			}
		})
	}
}

func FuzzContent(f *testing.F) {
	for _, body := range bombs() {
		f.Add(body[:min(len(body), 2000)], body[max(0, len(body)-8):], 100)
	}
	f.Fuzz(func(t *testing.T, head, again string, times int) {
		times = min(max(times, 0), 100_000)
		body := head + strings.Repeat(again, min(times, maxBody/4/(len(again)+1)))
		c, allocated, _ := convert(t, body)
		if len(c.Text) > maxText || allocated > 1<<30 {
			t.Errorf("got %d bytes of text and %d MB of memory, want at most %d and 1024",
				len(c.Text), allocated>>20, maxText)
		}
		if !utf8.ValidString(c.Text) {
			t.Errorf("the text is no UTF-8, want it to be: %q", c.Text)
		}
	})
}

func TestBest(t *testing.T) {
	filler := func(name string) string {
		return "## " + name + "\n\n" + strings.Repeat("Nothing of interest here.\n\n", 40)
	}
	text := "Intro.\n\n" + filler("One") +
		"## Waiting\n\nWait for elements.\n\n```\n# not a heading: wait\n```\n\n" + filler("Two") +
		"## Other\n\nAlso about waiting for an element.\n"
	best, left := Best(text, "how to wait for an element", 1000)
	want :=
		"## Waiting\n\nWait for elements.\n\n```\n# not a heading: wait\n```\n\n[...]\n\n## Other\n\nAlso about " +
			"waiting for an element."
	if best != want || left != 3 {
		t.Errorf("left %d, got:\n%s, want %q", left, best, want)
	}
	if best, left := Best(text, "zebra", 1200); !strings.HasPrefix(best, "Intro.\n\n## One") ||
		left == 0 {
		t.Errorf("nothing fits: left %d, got:\n%s, want %q at the beginning", left, best,
			"Intro.\n\n## One")
	}
	if best, left := Best("short", "zebra", 1000); best != "short" || left != 0 {
		t.Errorf("short: %q, %d, want %q", best, left, "short")
	}
}

func FuzzBest(f *testing.F) {
	f.Add("# A\n\ntext\n\n```\n# b\n```\n## C\n"+strings.Repeat("word ", 1000), "word a", 500)
	f.Add(strings.Repeat("é", 5000), "é", 100)
	f.Add("~~~\n#\n\n\n#", "", 3)
	f.Fuzz(func(t *testing.T, text, query string, room int) {
		room &= 0x3fff
		best, left := Best(text, query, room)
		if len(best) > max(room, 0) || left < 0 {
			t.Errorf("%d bytes in %d, left %d, want no more than fits", len(best), room, left)
		}
		if utf8.ValidString(text) && !utf8.ValidString(best) {
			t.Errorf("a character was cut: %q, want whole characters", best)
		}
	})
}

// A page of brackets is converted in bounded time. A converter that looks for the end
// of each bracket would take hours, longer than the limit of the tests.
func TestContentOfBrackets(t *testing.T) {
	length := maxBody
	if testing.Short() {
		length /= 4
	}
	for _, text := range []string{"[", "- ", "`"} {
		page := Page{URL: "https://h.example/", Type: "text/html",
			Body: []byte(strings.Repeat(text, length/len(text)))}
		if _, err := page.Content(t.Context()); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}
