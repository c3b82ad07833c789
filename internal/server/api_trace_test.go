package server

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// ofTurns has the records of turns.
type ofTurns struct {
	ended chan adminapi.Record
}

func (o *ofTurns) Record(r adminapi.Record) {
	if r.Kind == adminapi.RecordTurn {
		o.ended <- r
	}
}

func (*ofTurns) Pushed(string) []adminapi.Record { return nil }

// A prompt and a push go on with the trace of their request, unless its header is none.
func TestRequestsBringTheirTrace(t *testing.T) {
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	given := "00-" + trace + "-00f067aa0ba902b7-01"
	turns := &ofTurns{ended: make(chan adminapi.Record, 10)}
	g := gateway.New(gateway.Options{
		Recorder: turns,
		Starters: map[string]gateway.Starter{gateway.HostLocal: gateway.LocalStarter{}},
	})
	web := httptest.NewServer(New(Options{Gateway: g}).api)
	defer func() {
		g.Drain(context.Background())
		web.Close()
		web.Client().CloseIdleConnections()
	}()
	s, err := g.Start(t.Context(), gateway.StartRequest{Host: gateway.HostLocal, CWD: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path, body string
		headers    []string
		continues  bool
	}{
		{"query", `{"prompt":"hello"}`, []string{given}, true},
		{"push", `{"prompt":"hello","wait":true}`, []string{given}, true},
		{"query", `{"prompt":"hello"}`, []string{strings.ToUpper(given)}, false},
		{"push", `{"prompt":"hello","wait":true}`, []string{strings.Repeat(given, 100)}, false},
		{"query", `{"prompt":"hello"}`, nil, false},
		{"query", `{"prompt":"hello"}`, []string{given, given}, false},
		{"push", `{"prompt":"hello","wait":true}`, []string{given, ""}, false},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			web.URL+"/api/v1/sessions/"+s.ID()+"/"+tt.path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header["Traceparent"] = tt.headers
		r.Header.Set("Tracestate", strings.Repeat("a=b,", 1000))
		answer, err := web.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		select {
		case turn := <-turns.ended:
			if (turn.Trace == trace) != tt.continues || len(turn.Trace) != 32 ||
				len(turn.Span) != 16 {
				t.Errorf("%s with %.120q: the turn is %q in %q, want the trace given: %v", tt.path,
					tt.headers, turn.Span, turn.Trace, tt.continues)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: no turn has ended, status %s", tt.path, answer.Status)
		}
	}
}
