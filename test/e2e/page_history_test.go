//go:build e2e && linux

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/client"
)

// dayEntries are about what happens in a session in a busy day.
const dayEntries = 6000

// TestPageHistory opens a session after a long day. By scrolling up a person sees all that the log has, once and in
// its order, and after a reload the same.
func TestPageHistory(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	s, err := client.Host(t.Context(), client.Options{URL: g.url, Token: h.read(".admin-token")}, client.HostOptions{
		Name: "teller", Version: "1", ID: "day", Label: "day", CWD: h.path("work"), State: func(bool, error) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background(), "told all") })
	for i := range dayEntries {
		switch i % 3 {
		case 0:
			s.Event("user.message", message{"content": fmt.Sprint("question ", i)})
		case 1:
			s.Event("tool.execution_complete", message{"tool": "read", "args": message{"path": "a.go"},
				"result": message{"type": "success", "output": fmt.Sprint("line ", i)}})
		default:
			s.Event("assistant.message", message{"content": fmt.Sprint("answer ", i)})
		}
		if i%1500 == 1499 { // ten a second are allowed
			// The host's events come over another connection than the push: they are waited for.
			eventually(t, patience, func() error {
				end := h.tapctl("sessions", "log", "day", "--last", "1")
				if !strings.HasSuffix(end, fmt.Sprint("answer ", i)) {
					return fmt.Errorf("the log ends with %q, want answer %d", end, i)
				}
				return nil
			})
			h.push("day", fmt.Sprint("build ", i))
		}
	}
	last := fmt.Sprint("answer ", dayEntries-1)
	v := h.browser().profile(t).openView(h.link())
	var seen [2][]string
	for n := range seen {
		if n > 0 {
			v.visit(g.origin() + "/?again#/sessions/day")
		}
		v.waitText(".entry", last)
		v.until(`Number(document.querySelector(".timeline").dataset.entries) < 5000`) // it began with the newest
		v.until(`(() => {
			const timeline = document.querySelector(".timeline");
			timeline.scrollTop = 0;
			return Number(timeline.dataset.entries) > Number(%s) && timeline.textContent.includes("question 0");
		})()`, fmt.Sprint(dayEntries))
		seen[n] = eval[[]string](v.tab, `[...document.querySelectorAll(".block")].flatMap((b) => b.block.entries)
			.filter((e) => e.kind !== "tool").map((e) => e.text)`)
	}
	if !slices.Equal(seen[0], seen[1]) {
		t.Errorf("after a reload there are %d entries, want the %d of before", len(seen[1]), len(seen[0]))
	}
	var log []string
	for line := range strings.Lines(h.tapctl("sessions", "log", "day", "--json") + "\n") {
		var l adminapi.TimelineLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		log = append(log, l.Message)
	}
	if !slices.Equal(seen[0], log) {
		for i := range min(len(log), len(seen[0])) {
			if log[i] != seen[0][i] {
				t.Fatalf("the page has %d entries, the log %d lines; number %d is %q, want %q", len(seen[0]), len(log), i,
					seen[0][i], log[i])
			}
		}
		t.Errorf("the page has %d entries, the log %d lines, want the same", len(seen[0]), len(log))
	}
	v.checkFaults(g.origin())

	// Where a session has ended before its beginning was loaded, the page says so.
	v.visit(g.origin() + "/?ended#/sessions/day")
	v.waitText(".entry", last)
	s.Close(t.Context(), "told all")
	v.waitText(".entry", "The session has ended.")
	v.until(`(() => {
		document.querySelector(".timeline").scrollTop = 0;
		return document.querySelector(".entry").textContent.includes("What came before is gone");
	})()`)
}

// push pushes an event at level surface.
func (h *home) push(session, event string) {
	h.t.Helper()
	h.tapctl("push", "--session", session, "--stream", "builds", event)
}
