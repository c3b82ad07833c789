package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
)

func TestWatch(t *testing.T) {
	c := asks(t, func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query()["name"]; r.URL.Path != "/api/v1/events" ||
			!slices.Equal(got, []string{"sessions", "pairings"}) {
			t.Errorf("got a request for %s, want the events sessions and pairings", r.URL)
		}
		_, _ = io.WriteString(w,
			"retry: 1000\n\nevent: sessions\ndata: [{\"a\": \"event: x\"}]\nid: 1.1\n\n:\n\n")
		_, _ = io.WriteString(w, "event: pairings\ndata: []\nid: 1.2\n\nevent: sessions\ndata: [1")
	})
	var got []string
	var last error
	for s, err := range c.Watch(t.Context(), adminapi.StateSessions, adminapi.StatePairings) {
		if last = err; err == nil {
			got = append(got, fmt.Sprintf("%s %s", s.Name, s.Data))
		}
	}
	if want := []string{`sessions [{"a": "event: x"}]`, "pairings []"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if e := cli.AsError(last); e.Exit != cli.ExitUnreachable {
		t.Errorf("the end: got %v, want exit %d", last, cli.ExitUnreachable)
	}
}

func TestWatchEnds(t *testing.T) {
	c := asks(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "event: sessions\ndata: []\nid: 1.1\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var last error
	for _, err := range c.Watch(ctx, adminapi.StateSessions) {
		cancel()
		last = err
	}
	if e := cli.AsError(last); e.Code != cli.CodeCancelled {
		t.Errorf("the end: got %v, want %s", last, cli.CodeCancelled)
	}
	for range c.Watch(t.Context(), adminapi.StateSessions) { //nolint:errcheck // it is left at once
		break // leaves nothing behind
	}
}

func TestFollowSession(t *testing.T) {
	text :=
		"event: timeline\ndata: {}\nid: 1.1.0.0\n\nevent: live\ndata: {\"callback\":\"onIdle\"}\nid: 1.1.1.0\n\n"
	for _, tt := range []struct {
		name, text string
		want       []string
		exit       int
	}{
		{"ends with the session", text + "event: ended\ndata: {}\nid: 1.1.1.0.end\n\n",
			[]string{"timeline", "live", "ended"}, cli.ExitDone},
		{"ends with the gateway", text, []string{"timeline", "live"}, cli.ExitUnreachable},
	} {
		c := asks(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/v1/sessions/s/events" || r.URL.Query().Get("last") != "7" {
				t.Errorf("%s: got a request for %s, want the last 7 events of session s", tt.name,
					r.URL)
			}
			_, _ = io.WriteString(w, tt.text)
		})
		var got []string
		exit := cli.ExitDone
		for e, err := range c.FollowSession(t.Context(), "s", 7) {
			if err != nil {
				exit = cli.AsError(err).Exit
				break
			}
			got = append(got, e.Name)
		}
		if !slices.Equal(got, tt.want) || exit != tt.exit {
			t.Errorf("%s: got %q and exit %d, want %q and exit %d", tt.name, got, exit, tt.want,
				tt.exit)
		}
	}
}
