package server

import (
	"io"
	"net/http"
	"regexp"
	"testing"

	"tapgw/internal/gateway"
)

// The metrics tell of the process by the names that every Prometheus board knows,
// and of turns and injects.
func TestMetrics(t *testing.T) {
	f := newRESTFixture(t)
	id := f.mustStart("local")
	s, _ := f.gateway.Session(id)
	turn, err := s.Turn(t.Context(), gateway.Prompt{Text: "hello"})
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = turn.Next(t.Context())
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.gateway.AdminToken())
	response, err := f.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(response.Body)
	_ = response.Body.Close()
	for _, line := range []string{`tapgw_turns_total 1`, `tapgw_injects_paused_total 0`,
		`tapgw_sessions 1`,
		`go_goroutines \d+`, `process_resident_memory_bytes [\d.e+]+`,
		`process_open_fds \d+`, `process_start_time_seconds [\d.e+]+`} {
		if !regexp.MustCompile("(?m)^" + line + "$").Match(text) {
			t.Errorf("want %s, got\n%s", line, text)
		}
	}
}
