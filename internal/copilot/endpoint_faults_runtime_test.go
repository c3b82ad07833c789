//go:build runtime

package copilot

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"tapgw/internal/gateway"
	"tapgw/internal/scriptmodel"
)

// TestModelFaults: whatever an endpoint does to a turn, the timeline says what
// happened, the turn ends within its budget, and the session goes on.
func TestModelFaults(t *testing.T) {
	never := make(chan struct{})
	faulty := func(r *scriptmodel.Request) scriptmodel.Reply {
		switch scriptmodel.Prompt(r.LastUser()) {
		case "slow":
			return scriptmodel.Reply{Text: "never said", Gate: never}
		case "stall":
			return scriptmodel.Reply{Text: "one moment please", Pause: never}
		case "cut":
			return scriptmodel.Reply{Text: "half of a sentence", Cut: true}
		case "loop":
			return scriptmodel.Reply{ToolCalls: []scriptmodel.ToolCall{{Name: "say",
				Args: `{"x":"again"}`}}}
		case "bad request":
			return scriptmodel.Reply{Status: http.StatusBadRequest, Text: "no such parameter"}
		case "unauthorized":
			return scriptmodel.Reply{Status: http.StatusUnauthorized, Text: "a wrong key"}
		case "busy":
			return scriptmodel.Reply{
				Status: http.StatusTooManyRequests, Text: "too many requests",
				Header: http.Header{"Retry-After": {"60"}},
			}
		case "broken":
			return scriptmodel.Reply{Status: http.StatusInternalServerError, Text: "it broke"}
		}
		return obey(r)
	}
	h := newHosted(t, newRigWith(t, faulty, lean, func(o *Options) {
		o.MaxTurnTime, o.MaxRounds = 10*time.Second, 5
	}))
	nonsense := h.garbled()

	tests := []struct {
		prompt, endpoint string
		timeline         []string // parts of it, one of which is there
	}{
		{"slow", "",
			[]string{"it took longer than 10s (max_turn_time in [copilot] of tapgw.toml)"}},
		{"stall", "", []string{"it took longer than 10s (max_turn_time"}},
		{"loop", "",
			[]string{"the model called tools in 5 rounds (max_rounds in [copilot] of tapgw.toml)"}},
		{"bad request", "", []string{"no such parameter"}},
		{"unauthorized", "", []string{"401"}},
		{"busy", "", []string{"429"}},
		{"broken", "", []string{"500"}},
		{"cut", "", []string{"connection", "terminated", "stream", "network", "fetch failed"}},
		{"nonsense", nonsense, []string{"JSON", "parse", "json", "expected"}},
	}
	var asking sync.WaitGroup
	for _, tc := range tests {
		s, err := h.g.Start(
			h.r.ctx,
			gateway.StartRequest{
				Host: Kind, Model: "scripted", CWD: h.r.cwd, Label: tc.prompt,
				ProviderURL: tc.endpoint,
				ProviderKey: tc.endpoint,
			},
		)
		if err != nil {
			t.Fatalf("%s: %v", tc.prompt, err)
		}
		h.provide(s, "tests")
		asking.Go(func() {
			said, errs, end := turnOf(h.r.ctx, s, user(tc.prompt))
			lines := timeline(s)
			if len(errs) == 0 && errors.Is(end, gateway.ErrTurnEnded) {
				t.Errorf("%s: the turn was whole: it said %q, want errors, or another end\n%s",
					tc.prompt, said, lines)
			}
			found := false
			for _, part := range tc.timeline {
				found = found || strings.Contains(lines, part)
			}
			if !found {
				t.Errorf("%s: the timeline has none of %q, want one of them:\n%s", tc.prompt,
					tc.timeline, lines)
			}
			if state := s.View().State; state != "idle" && state != "busy" {
				t.Errorf(`%s: the session is %s, want "idle" or "busy"`, tc.prompt, state)
			}
			said, errs, end = turnOf(h.r.ctx, s, user("hello"))
			if said != "You said: hello" || len(errs) > 0 || !errors.Is(end, gateway.ErrTurnEnded) {
				t.Errorf(
					"%s: the next turn said %q, errors %q, ended %v, want \"You said: hello\", none and %v\n%s",
					tc.prompt, said, errs, end, gateway.ErrTurnEnded, timeline(s),
				)
			}
		})
	}
	asking.Wait()
}

// garbled is an endpoint before the scripted one, which answers the prompt nonsense
// with what is no completion.
func (h *hosted) garbled() string {
	h.t.Helper()
	model, err := url.Parse(h.r.model.URL)
	if err != nil {
		h.t.Fatal(err)
	}
	model.Path = ""
	proxy := httputil.NewSingleHostReverseProxy(model)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		at := bytes.LastIndex(body, []byte(`"role":"user"`))
		if at < 0 || !bytes.Contains(body[at:], []byte("nonsense")) {
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			proxy.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {\"choices\": [oops\n\ndata: <html>\n\n")
	}))
	h.t.Cleanup(server.Close)
	return server.URL + "/v1"
}
