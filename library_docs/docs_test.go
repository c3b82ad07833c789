package library_docs //nolint:revive,staticcheck // see doc.go

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

// context7 is a fake of Context7 that answers by path and records the requests.
type context7 struct {
	*httptest.Server
	asked []string
}

func newContext7(t *testing.T, search, docs http.HandlerFunc) *context7 {
	t.Helper()
	s := &context7{}
	refuse := func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("asked for %s, want another request", r.URL)
		http.Error(w, "no", http.StatusInternalServerError)
	}
	if search == nil {
		search = refuse
	}
	if docs == nil {
		docs = refuse
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v2/libs/search", search)
	mux.HandleFunc("GET /api/v2/context", docs)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked = append(s.asked, r.URL.Path+"?"+r.URL.Query().Encode())
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func answerWith(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

const jsonType, textType = "application/json", "text/plain; charset=utf-8"

// closedPort is an address without a listener.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

func TestResolveID(t *testing.T) {
	react := `{"results": [
		{"id": "/facebook/react", "title": "React", "description": "A library\nfor interfaces.", "trustScore": 9.8},
		{"id": "bad id", "title": "no"}, {"id": "/has space/x"}, {"id": ""},
		{"id": "/reactjs/react.dev", "title": "Docs", "description": ""}]}`
	t.Run("bundled", func(t *testing.T) {
		d := Docs{BaseURL: newContext7(t, nil, nil).URL}
		got, err := d.ResolveID(t.Context(), "Playwright-Java", "anything")
		if err != nil ||
			!strings.HasPrefix(got,
				"On hand, always available:\n- playwright: Playwright. Browser automation") ||
			!strings.HasSuffix(got, `get_library_docs with libraryId "playwright" and a query.`) {
			t.Errorf("got %q, %v, want %q at the beginning and %q at the end", got, err,
				"On hand, always available:\n- playwright: Playwright. Browser automation",
				`get_library_docs with libraryId "playwright" and a query.`)
		}
	})
	t.Run("found", func(t *testing.T) {
		srv := newContext7(t, answerWith(200, jsonType, react), nil)
		d := Docs{BaseURL: srv.URL + "/"}
		got, err := d.ResolveID(t.Context(), "react", "state & effects")
		want :=
			"Found by Context7:\n- /facebook/react: React. A library for interfaces\n- /reactjs/react.dev: Docs\n" +
				`Next: get_library_docs with libraryId "/facebook/react", or another of these, and a query.`
		if err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
		if got, want := strings.Join(srv.asked,
			" "), "/api/v2/libs/search?libraryName=react&query=state+%26+effects"; got != want {
			t.Errorf("asked for %q, want %q", got, want)
		}
	})
	t.Run("without a query", func(t *testing.T) {
		srv := newContext7(t, answerWith(200, jsonType, react), nil)
		if _, err := (&Docs{BaseURL: srv.URL}).ResolveID(t.Context(), "react", " "); err != nil ||
			!strings.HasSuffix(srv.asked[0], "&query=react") {
			t.Errorf("asked for %q, %v, want %q at the end", srv.asked, err, "&query=react")
		}
	})

	const onHand = `libraryName "react": on hand are cucumber, gherkin, java, mermaid, playwright, selenium; asking Context7: `
	faults := []struct {
		name    string
		handler http.HandlerFunc
		want    string
	}{
		{"not found", answerWith(200, jsonType, `{"results": []}`), "it knows no such library"},
		{"nothing usable", answerWith(200, jsonType, `{"results": [{"id": "x"}]}`),
			"it knows no such library"},
		{"rate limit",
			answerWith(429, jsonType, `{"error": "x", "message": "Too many\nrequests."}`),
			"it answered 429: Too many requests."},
		{"broken", answerWith(502, textType, "<html>"), "it answered 502 Bad Gateway"},
		{"garbage", answerWith(200, jsonType, "{]"), "its list of libraries can't be read: "},
		{"another shape", answerWith(200, jsonType, `{"results": "x"}`),
			"its list of libraries can't be read: "},
		{"a page to sign in", answerWith(200, "text/html; charset=utf-8", "<html>hello"),
			"a web page came instead of an answer"},
		{"too much", answerWith(200, jsonType, strings.Repeat(" ", maxBody+1)),
			"its answer is larger than 2 MiB"},
		{"cut off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		}, "it can't be reached: unexpected EOF"},
	}
	for _, tt := range faults {
		t.Run(tt.name, func(t *testing.T) {
			d := Docs{BaseURL: newContext7(t, tt.handler, nil).URL}
			_, err := d.ResolveID(t.Context(), "react", "")
			checkFault(t, err, onHand+tt.want)
		})
	}
	t.Run("unreachable", func(t *testing.T) {
		_, err := (&Docs{BaseURL: closedPort(t)}).ResolveID(t.Context(), "react", "")
		checkFault(t, err, onHand+"it can't be reached: dial tcp")
	})
	t.Run("no address", func(t *testing.T) {
		_, err := (&Docs{BaseURL: "http://[::1"}).ResolveID(t.Context(), "react", "")
		checkFault(t, err, onHand+"its address is not one: ")
	})
	t.Run("empty name", func(t *testing.T) {
		_, err := (&Docs{}).ResolveID(t.Context(), " ", "")
		checkFault(t, err, "libraryName: empty: name the library")
	})
	t.Run("broken library of the user", func(t *testing.T) {
		d := Docs{BaseURL: closedPort(t),
			UserDir: write(t, map[string]string{"acme/x": "", "Bad/x": ""})}
		_, err := d.ResolveID(t.Context(), "acme", "")
		checkFault(t, err, `libraryName "acme": `)
		if !strings.Contains(err.Error(), "acme: no documentation") ||
			!strings.Contains(err.Error(), "Bad: not an ID") {
			t.Errorf("got %v, want %q in it and %q in it", err, "acme: no documentation",
				"Bad: not an ID")
		}
	})
}

// checkFault fails unless err is one line and begins with begin.
func checkFault(t *testing.T, err error, begin string) {
	t.Helper()
	if err == nil || !strings.HasPrefix(err.Error(), begin) || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want one line that begins with %q", err, begin)
	}
}

func TestGet(t *testing.T) {
	t.Run("bundled", func(t *testing.T) {
		d := Docs{BaseURL: newContext7(t, nil, nil).URL}
		got, err := d.Get(t.Context(), "pw", "wait for element")
		if err != nil || !strings.HasPrefix(got, "## Auto-waiting") ||
			utf8.RuneCountInString(got) > 4000 {
			t.Errorf("got %.100q, %v, want %q at the beginning", got, err, "## Auto-waiting")
		}
	})
	t.Run("bundled, no query", func(t *testing.T) {
		d := Docs{BaseURL: newContext7(t, nil, nil).URL}
		got, err := d.Get(t.Context(), "gherkin", " ")
		if err != nil || !strings.HasPrefix(got, "# Gherkin\n") {
			t.Errorf("got %.100q, %v, want %q at the beginning", got, err, "# Gherkin\n")
		}
	})
	t.Run("of the user", func(t *testing.T) {
		d := Docs{BaseURL: newContext7(t, nil, nil).URL,
			UserDir: write(t, map[string]string{"acme/x.md": "## Zebra\n\nstripes\n"})}
		if got, err := d.Get(t.Context(), "acme", "zebra"); err != nil ||
			got != "## Zebra\n\nstripes" {
			t.Errorf("got %q, %v, want %q", got, err, "## Zebra\n\nstripes")
		}
	})
	t.Run("empty ID", func(t *testing.T) {
		_, err := (&Docs{}).Get(t.Context(), "", "state")
		checkFault(t, err, "libraryId: empty: ")
	})
	t.Run("no query for Context7", func(t *testing.T) {
		_, err := (&Docs{BaseURL: newContext7(t, nil, nil).URL}).Get(t.Context(), "react", "")
		checkFault(t, err, "query: empty: ")
	})
}

func TestGetFromContext7(t *testing.T) {
	found := answerWith(200, jsonType, `{"results": [{"id": "/facebook/react", "title": "React"}]}`)
	t.Run("Context7's own ID", func(t *testing.T) {
		srv := newContext7(t, nil, answerWith(200, textType, "### useState\ntext\n"))
		d := Docs{BaseURL: srv.URL}
		got, err := d.Get(t.Context(), "/facebook/react", "state?")
		if want := "From Context7, /facebook/react:\n\n### useState\ntext"; err != nil ||
			got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
		want := "/api/v2/context?libraryId=%2Ffacebook%2Freact&query=state%3F"
		if got := strings.Join(srv.asked, " "); got != want {
			t.Errorf("asked for %q, want %q", got, want)
		}
	})
	t.Run("an ID without its slash", func(t *testing.T) {
		srv := newContext7(t, nil, answerWith(200, textType, "text"))
		if got, err := (&Docs{BaseURL: srv.URL}).Get(t.Context(), "facebook/react",
			"state"); err != nil ||
			!strings.HasSuffix(got, "react:\n\ntext") {
			t.Errorf("got %q, %v, want %q at the end", got, err, "react:\n\ntext")
		}
	})
	t.Run("a name is looked up first", func(t *testing.T) {
		srv := newContext7(t, found, answerWith(200, textType, "text"))
		if got, err := (&Docs{BaseURL: srv.URL}).Get(t.Context(), "react", "state"); err != nil ||
			got != "From Context7, /facebook/react:\n\ntext" {
			t.Errorf("got %q, %v, want %q", got, err, "From Context7, /facebook/react:\n\ntext")
		}
	})
	t.Run("bundled, but nothing on it", func(t *testing.T) {
		srv := newContext7(t, found, answerWith(200, textType, "text"))
		if got, err := (&Docs{BaseURL: srv.URL}).Get(t.Context(), "webdriver",
			"zebra"); err != nil ||
			!strings.HasSuffix(got, "text") {
			t.Errorf("got %q, %v, want %q at the end", got, err, "text")
		}
		want := "/api/v2/libs/search?libraryName=selenium&query=zebra " +
			"/api/v2/context?libraryId=%2Ffacebook%2Freact&query=zebra"
		if got := strings.Join(srv.asked, " "); got != want {
			t.Errorf("asked for %q, want %q", got, want)
		}
	})
	t.Run("long text is cut", func(t *testing.T) {
		srv := newContext7(t, nil,
			answerWith(200, textType, "```js\n"+strings.Repeat("line();\n", 2000)))
		got, err := (&Docs{BaseURL: srv.URL}).Get(t.Context(), "/facebook/react", "state")
		if n := utf8.RuneCountInString(got); err != nil || n > 4000 || n < 3900 ||
			!strings.HasSuffix(got, "line();\n```\n[...]") {
			t.Errorf("got %d characters, ends with %q, %v, want %q at the end", n,
				got[max(0, len(got)-30):], err,
				"line();\n```\n[...]")
		}
	})
}

// Faults of Context7 are named. A bundled library answers with its overview then.
func TestGetFaults(t *testing.T) {
	found := answerWith(200, jsonType, `{"results": [{"id": "/facebook/react", "title": "React"}]}`)
	faults := []struct {
		name    string
		handler http.HandlerFunc
		want    string
	}{
		{"not found",
			answerWith(404, jsonType,
				`{"error": "library_not_found", "message": "No such library."}`),
			"it answered 404: No such library."},
		{"moved",
			answerWith(301, jsonType,
				`{"error": "moved", "message": "x", "redirectUrl": "/new/id"}`),
			"it has the library under another ID: /new/id"},
		{
			"not ready",
			answerWith(202, jsonType, `{"message": "Not finalized yet."}`),
			"it answered 202: Not finalized yet.",
		},
		{
			"key refused",
			answerWith(401, jsonType, `{"message": "Invalid API key."}`),
			"it answered 401: Invalid API key.",
		},
		{
			"nothing on it",
			answerWith(200, textType, "No content available"),
			"it has nothing on this in /facebook/react",
		},
		{"empty", answerWith(200, textType, " \n"), "it has nothing on this in /facebook/react"},
		{"no text", answerWith(200, textType, "\xff\xfe"), "its answer is no text"},
		{"a page to sign in", answerWith(200, "text/html", "<html>"),
			"a web page came instead of an answer"},
		{"too much", answerWith(200, textType, strings.Repeat("x", maxBody+1)),
			"its answer is larger than 2 MiB"},
	}
	for _, tt := range faults {
		t.Run(tt.name, func(t *testing.T) {
			d := Docs{BaseURL: newContext7(t, found, tt.handler).URL}
			_, err := d.Get(t.Context(), "/facebook/react", "state")
			checkFault(t, err,
				`libraryId "/facebook/react": on hand are cucumber, gherkin, java, mermaid, playwright, `+
					`selenium; asking Context7: `+tt.want)

			got, err := d.Get(t.Context(), "selenium", "zebra")
			if begin := `Nothing on "zebra" in selenium; asking Context7: ` + tt.want; err != nil ||
				!strings.HasPrefix(got, begin) ||
				!strings.Contains(got, ". What there is:\n\n# Selenium\n") ||
				utf8.RuneCountInString(got) > 4000 {
				t.Errorf("got %.200q, %v, want %q at the beginning and %q in it", got, err, begin,
					". What there is:\n\n# Selenium\n")
			}
		})
	}
	t.Run("unreachable", func(t *testing.T) {
		d := Docs{BaseURL: closedPort(t)}
		got, err := d.Get(t.Context(), "java", "zebra")
		if err != nil || !strings.Contains(got, "\n\n# Java\n") ||
			!strings.Contains(got, "## Records") {
			t.Errorf("got %.200q, %v, want %q in it and %q in it", got, err, "\n\n# Java\n",
				"## Records")
		}
		_, err = d.Get(t.Context(), "react", "state")
		checkFault(t, err, `libraryId "react": on hand are `)
	})
}

func TestKey(t *testing.T) {
	var got string
	srv := newContext7(t, nil, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Authorization")
		http.Error(w, "no", http.StatusForbidden)
	})
	for _, tt := range []struct{ field, env, want string }{
		{"", "", ""},
		{"", "from-env", "Bearer from-env"},
		{"from-field", "from-env", "Bearer from-field"},
	} {
		t.Setenv("CONTEXT7_API_KEY", tt.env)
		d := Docs{BaseURL: srv.URL, APIKey: tt.field}
		if _, err := d.Get(t.Context(), "/a/b", "c"); err == nil ||
			strings.Contains(err.Error(), "from-") {
			t.Errorf(`the error is %v, want an error and no "from-" in it`, err)
		}
		if got != tt.want {
			t.Errorf("sent %q, want %q", got, tt.want)
		}
	}
}

// After a cancellation the error is that of the context, without an overview or a word
// about Context7.
func TestCancel(t *testing.T) {
	begun := make(chan struct{})
	hang := func(_ http.ResponseWriter, r *http.Request) {
		begun <- struct{}{}
		<-r.Context().Done()
	}
	d := Docs{BaseURL: newContext7(t, hang, hang).URL}
	for name, ask := range map[string]func(context.Context) (string, error){
		"resolve": func(ctx context.Context) (string, error) {
			return d.ResolveID(ctx, "react", "")
		},
		"get":     func(ctx context.Context) (string, error) { return d.Get(ctx, "/a/b", "c") },
		"bundled": func(ctx context.Context) (string, error) { return d.Get(ctx, "java", "zebra") },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-begun
			cancel()
		}()
		if _, err := ask(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want %v", name, err, context.Canceled)
		}
	}
}

// silent never answers.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// TestPatience: one question waits ten seconds for all requests to Context7 together.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := Docs{HTTP: &http.Client{Transport: silent{}}}
		for name, ask := range map[string]func() error{
			"resolve": func() error { _, err := d.ResolveID(t.Context(), "react", ""); return err },
			"get":     func() error { _, err := d.Get(t.Context(), "react", "c"); return err },
		} {
			begin := time.Now()
			err := ask()
			if err == nil ||
				!strings.Contains(err.Error(), "asking Context7: no answer within 10s") {
				t.Errorf("%s: got %v, want %q in it", name, err,
					"asking Context7: no answer within 10s")
			}
			if took := time.Since(begin); took != 10*time.Second {
				t.Errorf("%s: took %v, want %v", name, took, 10*time.Second)
			}
		}
	})
}
