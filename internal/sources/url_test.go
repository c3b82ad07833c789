package sources_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// page is a server whose answers the test decides.
type page struct {
	*httptest.Server
	answers chan http.HandlerFunc
	asked   chan http.Header
}

func newPage(t *testing.T) *page {
	p := &page{answers: make(chan http.HandlerFunc, 1), asked: make(chan http.Header, 1)}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.asked <- r.Header
		(<-p.answers)(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

func says(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

// ran waits until the source has run n times.
func (w *world) ran(n int) adminapi.Source {
	w.Helper()
	defer w.gateway.Watch()()
	for {
		changes := w.gateway.Changes()
		list := w.set.List()
		if len(list) == 1 && list[0].Runs == n && list[0].State == adminapi.SourceWaiting &&
			!list[0].NextRunAt.IsZero() {
			return list[0]
		}
		if err := w.gateway.WaitChange(w.Context(), changes); err != nil {
			w.Fatal(err)
		}
	}
}

// A URL makes an event when its answer changes. The first answer makes no event.
func TestURLThatChanges(t *testing.T) {
	tests := []struct {
		name, text string
		answers    []string
		want       []string
	}{
		{"whole", "", []string{"one", "one", "two"}, []string{"two"}},
		{"body", `text = "now: {body}"`, []string{"one", "two"}, []string{"now: two"}},
		{"lines", `compare = "lines"`, []string{"a\nb\n", "b\nc\r\n", "c\na\n"},
			[]string{"c", "a"}},
		{"pointer", `compare = "/jobs/0/state"
text = "{jobs.0.id}: {value}"`, []string{
			`{"at": 1, "jobs": [{"id": 12345678901234567890, "state": "runs"}]}`,
			`{"at": 2, "jobs": [{"id": 12345678901234567890, "state": "runs"}]}`,
			`{"at": 3, "jobs": [{"id": 12345678901234567890, "state": "failed"}]}`,
			`{"at": 4, "jobs": []}`,
		}, []string{"12345678901234567890: failed", ": there is nothing at /jobs/0/state"}},
		{
			"filter",
			`filter = [{ match = "two", outcome = "drop" }]`,
			[]string{"one", "two", "three"},
			[]string{"three"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, p := newWorld(t), newPage(t)
			s := w.session()
			stop := w.run(fmt.Sprintf("url = %q\nevery = \"1h\"\n%s", p.URL, test.text),
				protocol.AllSessions)
			for i, answer := range test.answers {
				if i > 0 {
					w.set.Trigger("watch")
				}
				p.answers <- says(200, answer)
				<-p.asked
				if v := w.ran(i + 1); v.Reason != "" {
					t.Errorf("run %d: got the reason %q, want none", i, v.Reason)
				}
			}
			w.want("events", w.wait(s, len(test.want)), test.want)
			if err := stop(); err != nil {
				t.Error(err)
			}
			w.end()
		})
	}
}

// The server is asked whether its answer is the one that the source has, also after a restart. A
// file with another URL or another compare has nothing to compare with.
func TestURLIsAskedForWhatIsNew(t *testing.T) {
	t.Setenv("PAGE_KEY", "k1")
	w, p := newWorld(t), newPage(t)
	s := w.session()
	file := fmt.Sprintf("url = %q\nevery = \"1h\"\nheaders = { X-Key = \"${PAGE_KEY}\" }\n", p.URL)
	wantHeaders := func(etag, modified string) {
		t.Helper()
		h := <-p.asked
		got := []string{h.Get("If-None-Match"), h.Get("If-Modified-Since"), h.Get("X-Key"),
			h.Get("User-Agent")}
		w.want("If-None-Match, If-Modified-Since, X-Key, User-Agent", got,
			[]string{etag, modified, "k1", "tapgw"})
	}
	const modified = "Wed, 21 Oct 2015 07:28:00 GMT"
	stop := w.run(file, protocol.AllSessions)
	p.answers <- says(200, "one", "ETag", `"1"`, "Last-Modified", modified)
	wantHeaders("", "")
	w.ran(1)
	w.set.Trigger("watch")
	p.answers <- says(304, "", "ETag", `"1"`)
	wantHeaders(`"1"`, modified)
	w.ran(2)
	if err := stop(); err != nil {
		t.Error(err)
	}
	stop = w.run(file, protocol.AllSessions)
	w.ran(2)
	w.set.Trigger("watch")
	p.answers <- says(200, "two", "ETag", `"2"`)
	wantHeaders(`"1"`, modified)
	w.want("events", w.wait(s, 1), []string{"two"})
	w.ran(3)
	if err := stop(); err != nil {
		t.Error(err)
	}
	stop = w.run(file+"compare = \"lines\"\n", protocol.AllSessions)
	w.ran(3)
	w.set.Trigger("watch")
	p.answers <- says(200, "three")
	wantHeaders("", "")
	w.ran(4)
	w.want("events after another compare", w.events(s, "watch@watch"), []string{"two"})
	if err := stop(); err != nil {
		t.Error(err)
	}
	w.end()
}

// A server that fails is asked less often, the source says why, and its answers make no event.
func TestURLThatFails(t *testing.T) {
	big := strings.Repeat("x", 1<<20+1)
	tests := []struct {
		name   string
		answer http.HandlerFunc
		reason string
		wait   time.Duration // at least, until the next run
	}{
		{"status", says(500, "oh"), "answered 500 Internal Server Error", 2 * time.Second},
		{"patience", says(429, "", "Retry-After", "120"), "answered 429 Too Many Requests",
			110 * time.Second},
		{"date", says(503, "", "Retry-After", "Thu, 31 Dec 2099 23:59:59 GMT"), "answered 503",
			23 * time.Hour},
		{"large", says(200, big), "answered with more than 1 MiB", 0},
		{"redirect", says(302, "", "Location", "http://other.example/x"),
			"redirects to http://other.example", 0},
		{"no JSON", says(200, "<html>"), "the answer is not JSON", 0},
		{"unasked 304", says(304, ""), "answered 304 Not Modified", 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w, p := newWorld(t), newPage(t)
			s := w.session()
			stop := w.run(fmt.Sprintf("url = %q\nevery = \"2s\"\ncompare = \"/a\"\n",
				p.URL+"/?key=secret"), s.ID())
			p.answers <- test.answer
			<-p.asked
			v := w.ran(1)
			if !strings.Contains(v.Reason, test.reason) || strings.Contains(v.Reason, "secret") {
				t.Errorf("reason: got %q, want it to say %q and nothing secret", v.Reason,
					test.reason)
			}
			if got := v.NextRunAt.Sub(v.LastRunAt); got < test.wait {
				t.Errorf("the next run is after %s, want at least %s", got, test.wait)
			}
			w.want("events", w.events(s, "watch@watch"), nil)
			if err := stop(); err != nil {
				t.Error(err)
			}
			w.end()
		})
	}
}

// A command whose output is JSON can be compared by a part of it; stderr does not count then.
func TestCommandThatPrintsJSON(t *testing.T) {
	w := newWorld(t)
	s := w.session()
	stop := w.run(`run = "echo noise >&2; echo x >> n; echo '{\"n\":' $(wc -l < n) ', \"at\":' $(date +%s%N) '}'"
every = "1h"
compare = "/n"
text = "n is {value} of {n}"
`, s.ID())
	w.ran(1)
	w.set.Trigger("watch")
	w.want("events", w.wait(s, 1), []string{"n is 2 of 2"})
	w.ran(2)
	if err := stop(); err != nil {
		t.Error(err)
	}
	w.end()
}
