package cluster

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/taptest/membus"
)

// recorder keeps records.
type recorder struct {
	mu   sync.Mutex
	list []string
}

func (r *recorder) record(rec adminapi.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list,
		strings.Join([]string{rec.State, rec.Gateway, rec.Command, rec.Outcome, rec.Code}, " "))
}

func (r *recorder) take() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.list = nil }()
	return strings.Join(r.list, ", ")
}

func TestForward(t *testing.T) {
	large := bytes.Repeat([]byte("0123456789"), 300_000)
	api := http.NewServeMux()
	api.HandleFunc("POST /api/v1/echo", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(r.URL.Query().Get("q") + string(body)))
	})
	api.HandleFunc("GET /api/v1/large", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(large)
	})
	for name, test := range map[string]struct {
		to, method, path, body string
		status                 int
		answer                 string
		here, there            string // records
	}{
		"an action": {"b", "POST", "/echo?q=1", "two", 201, "1two",
			"sent b POST /echo ok 201", "served a POST /echo ok 201"},
		"a long answer": {"b", "GET", "/large", "", 200, string(large), "", ""},
		"nothing there": {"b", "POST", "/none", "", 404, "404", "sent b POST /none failed 404",
			"served a POST /none failed 404"},
		"not allowed": {"c", "POST", "/echo", "", 403, "UNAUTHORIZED",
			"sent c POST /echo failed 403", ""},
		"a query in the path":   {"b", "GET", "/large%3f?q=1", "", 404, "404", "", ""},
		"a path without a root": {"b", "GET", "x/large", "", 400, "malformed", "", ""},
		"not admitted":          {"x", "POST", "/echo", "", 404, "not in admit", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membus.New(1 << 20)
				var hereRecords, thereRecords recorder
				here := newMachine(t, b, "a", func(o *Options) { o.Record = hereRecords.record })
				there := newMachine(t, b, "b", func(o *Options) {
					o.API, o.Control, o.Record = api, []string{"a"}, thereRecords.record
				})
				third := newMachine(t, b, "c", func(o *Options) { o.API = api })
				defer here.close()
				defer there.close()
				defer third.close()
				meet()
				path, query, _ := strings.Cut(test.path, "?")
				r := httptest.NewRequestWithContext(t.Context(), test.method, "/?"+query,
					strings.NewReader(test.body))
				w := httptest.NewRecorder()
				here.cluster.Forward(w, r, test.to, path)
				if w.Code != test.status || !strings.Contains(w.Body.String(), test.answer) {
					t.Errorf("%d with %d bytes %.100s, want %d with %.100s",
						w.Code, w.Body.Len(), w.Body, test.status, test.answer)
				}
				if got := w.Header().Get("Content-Type"); strings.HasPrefix(got, "text/") {
					t.Errorf(
						"the type is %s, want none that a browser shows as a page of this gateway",
						got)
				}
				synctest.Wait()
				if got := hereRecords.take(); got != test.here {
					t.Errorf("records here: %q, want %q", got, test.here)
				}
				if got := thereRecords.take(); got != test.there {
					t.Errorf("records there: %q, want %q", got, test.there)
				}
			})
		})
	}
}

// A request ends on both sides when its client is gone, and when the other gateway is.
func TestForwardEnds(t *testing.T) {
	for name, end := range map[string]func(b *membus.Bus, giveUp func()){
		"the client is gone":        func(_ *membus.Bus, giveUp func()) { giveUp() },
		"the other gateway is gone": func(b *membus.Bus, _ func()) { b.Cut("a", "b", true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membus.New(1 << 20)
				served := make(chan struct{})
				here := newMachine(t, b, "a", nil)
				there := newMachine(t, b, "b", func(o *Options) {
					o.Control = []string{"a"}
					o.API = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						defer close(served)
						for err := error(nil); err == nil; { // more than anybody takes
							_, err = w.Write(make([]byte, 1<<10))
						}
					})
				})
				defer here.close()
				defer there.close()
				meet()
				ctx, giveUp := context.WithCancel(t.Context())
				defer giveUp()
				done := make(chan struct{})
				go func() {
					defer close(done)
					r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
					here.cluster.Forward(slowWriter{httptest.NewRecorder()}, r, "b", "/x")
				}()
				time.Sleep(time.Second)
				end(b, giveUp)
				<-done
				<-served
			})
		})
	}
}

// slowWriter takes its time.
type slowWriter struct{ http.ResponseWriter }

func (w slowWriter) Write(data []byte) (int, error) {
	time.Sleep(time.Millisecond)
	return len(data), nil
}
