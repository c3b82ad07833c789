//go:build e2e && linux

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/client"
)

// dayEntries are about what happens in a session in a busy day.
const dayEntries = 6000

// TestPageHistory opens a session after a long day. By scrolling up a person sees all that the log
// has, once and in its order, and after a reload the same.
func TestPageHistory(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	s, err := client.Host(t.Context(), client.Options{URL: g.url, Token: h.read(".admin-token")},
		client.HostOptions{
			Name: "teller", Version: "1", ID: "day", Label: "day", CWD: h.path("work"),
			State: func(bool, error) {},
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
			s.Event("tool.execution_complete",
				message{"tool": "read", "args": message{"path": "a.go"},
					"result": message{"type": "success", "output": fmt.Sprint("line ", i)}})
		default:
			s.Event("assistant.message", message{"content": fmt.Sprint("answer ", i)})
		}
		if i%1500 == 1499 { // ten a second are allowed
			h.waitLogEnds("day", fmt.Sprint("answer ", i))
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
		// it began with the newest
		v.until(`Number(document.querySelector(".timeline").dataset.entries) < 5000`)
		v.until(`(() => {
			const timeline = document.querySelector(".timeline");
			timeline.scrollTop = 0;
			return Number(timeline.dataset.entries) > Number(%s) && timeline.textContent.includes("question 0");
		})()`, fmt.Sprint(dayEntries))
		seen[n] = eval[[]string](v.tab, `[...document.querySelectorAll(".block")].flatMap((b) => b.block.entries)
			.filter((e) => e.kind !== "tool").map((e) => e.text)`)
	}
	if !slices.Equal(seen[0], seen[1]) {
		t.Errorf("after a reload there are %d entries, want the %d of before", len(seen[1]),
			len(seen[0]))
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
				t.Fatalf("the page has %d entries, the log %d lines; number %d is %q, want %q",
					len(seen[0]), len(log), i, seen[0][i], log[i])
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

// waitLogEnds waits for the last line of a session's log. The events of a host come over another
// connection than a push that follows them.
func (h *home) waitLogEnds(session, text string) {
	h.t.Helper()
	eventually(h.t, patience, func() error {
		if end := h.tapctl("sessions", "log", session, "--last", "1"); !strings.HasSuffix(end,
			text) {
			return fmt.Errorf("the log of %s ends with %q, want %q", session, end, text)
		}
		return nil
	})
}

// push pushes an event at level surface.
func (h *home) push(session, event string) {
	h.t.Helper()
	h.tapctl("push", "--session", session, "--stream", "builds", event)
}

// dayPart is how many things happen in each part of a day.
const dayPart = 900

// TestPageDay looks at a session all day: live, over a connection that is cut, in a hidden tab, and
// while the page is loaded again. In the end the page has each line of the log, each call and each
// kept event, once and in order.
func TestPageDay(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	w := newWire(t, strings.TrimPrefix(g.url, "ws://"))
	origin := "http://" + w.l.Addr().String()
	s, err := client.Host(t.Context(), client.Options{URL: g.url, Token: h.read(".admin-token")},
		client.HostOptions{
			Name: "teller", Version: "1", ID: "day", Label: "day", CWD: h.path("work"),
			State: func(bool, error) {},
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background(), "told all") })
	v := h.browser().profile(t).openView(throughPort(t, h.link(), origin))
	origin = throughPort(t, g.origin(), origin)
	v.waitText(".session h2", "day")
	v.waitText(".connection", "Live")
	var calls, kept []string
	n := 0
	happen := func() {
		for range dayPart {
			switch n++; n % 5 {
			case 0, 1:
				s.Event("user.message", message{"content": fmt.Sprint("question ", n)})
			case 2:
				s.Event("tool.execution_complete",
					message{"tool": "read", "args": message{"path": "a.go"},
						"result":     message{"type": "success", "output": fmt.Sprint("line ", n)},
						"durationMs": n})
				calls = append(calls, fmt.Sprintf("line %d after %d", n, n))
			case 3:
				s.Event("tool.execution_complete",
					message{"tool": "test", "args": message{"path": "a.go"},
						"result":     message{"type": "failure", "output": fmt.Sprint("fault ", n)},
						"durationMs": n})
				calls = append(calls, fmt.Sprintf("fault %d after %d", n, n))
			default:
				s.Event("assistant.message",
					message{"content": fmt.Sprintf("answer %d\n\n- with `code`", n)})
			}
			if n%300 == 0 { // ten a second are allowed
				h.waitLogEnds("day", fmt.Sprint("question ", n))
				h.push("day", fmt.Sprint("build ", n))
				h.tapctl("push", "--session", "day", "--stream", "quiet", "--level", "keep",
					fmt.Sprint("kept ", n))
				kept = append(kept, fmt.Sprint("kept ", n))
			}
		}
	}
	last := func() { v.waitText(".entry", fmt.Sprint("kept ", n)) }

	happen() // while the page looks
	last()
	w.set(true)
	v.waitText(".connection", "Connection lost")
	happen() // while the connection is cut
	w.set(false)
	v.waitText(".connection", "Live")
	last()
	given := v.givenUp()
	eval[any](v.tab, `Object.defineProperty(document, "hidden", { value: true, configurable: true }),
		document.dispatchEvent(new Event("visibilitychange")), 0`)
	v.waitGivenUp(given)
	happen() // while nobody looks
	eval[any](v.tab,
		`delete document.hidden, document.dispatchEvent(new Event("visibilitychange")), 0`)
	last()
	compareWithLog(t, v, h, calls, kept)

	var loading sync.WaitGroup
	loading.Go(happen) // while the page is loaded again
	v.visit(origin + "/?again#/sessions/day")
	loading.Wait()
	last()
	v.until(`(() => {
		const timeline = document.querySelector(".timeline");
		timeline.scrollTop = 0;
		return timeline.textContent.includes("session started"); // the first line
	})()`)
	compareWithLog(t, v, h, calls, kept)
}

// compareWithLog compares a page's entries one by one with the log's lines, and with the calls and
// the events that are in no line.
func compareWithLog(t *testing.T, v *view, h *home, calls, kept []string) {
	t.Helper()
	const entries = `[...document.querySelectorAll(".block")].flatMap((b) => b.block.entries)`
	var log []string
	for line := range strings.Lines(h.tapctl("sessions", "log", "day", "--json") + "\n") {
		var l adminapi.TimelineLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		log = append(log, l.Message)
	}
	compareEach(t, "lines", eval[[]string](v.tab,
		entries+`.filter((e) => e.kind !== "tool" && e.level !== "keep").map((e) => e.text)`), log)
	compareEach(t, "calls", eval[[]string](v.tab, entries+`.filter((e) => e.kind === "tool")
		.map((e) => (e.result?.content ?? e.error.message) + " after " + e.took)`), calls)
	compareEach(t, "kept events", eval[[]string](v.tab,
		entries+`.filter((e) => e.level === "keep").map((e) => e.text)`), kept)
}

func compareEach(t *testing.T, name string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf(
				"the page has %d %s, want %d; the first that differs is number %d: %q, want %q",
				len(got), name,
				len(want), i, got[min(i, len(got)):min(i+1, len(got))],
				want[min(i, len(want)):min(i+1, len(want))])
		}
	}
}
