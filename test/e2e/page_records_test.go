//go:build e2e && linux

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
)

// writeRecords writes a file of records as a gateway would have, oldest first.
func (h *home) writeRecords(records []message) {
	h.t.Helper()
	if err := os.MkdirAll(h.state("records"), 0o700); err != nil {
		h.t.Fatal(err)
	}
	var text strings.Builder
	for _, r := range records {
		// A line begins with its time, its kind and its session.
		fmt.Fprintf(
			&text,
			`{"ts":%q,"kind":%q`,
			r["ts"].(time.Time).UTC().Format("2006-01-02T15:04:05.000000Z"),
			r["kind"],
		)
		for _, name := range slices.Concat([]string{"session"}, slices.Sorted(names(r))) {
			if value, ok := r[name]; ok && name != "ts" && name != "kind" {
				data, err := json.Marshal(value)
				if err != nil {
					h.t.Fatal(err)
				}
				fmt.Fprintf(&text, ",%q:%s", name, data)
			}
		}
		text.WriteString("}\n")
	}
	if err := os.WriteFile(h.state("records/00000001.jsonl"), []byte(text.String()),
		0o600); err != nil {
		h.t.Fatal(err)
	}
}

// names yields the members of a message but its session.
func names(m message) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for name := range m {
			if name != "session" && !yield(name) {
				return
			}
		}
	}
}

// waitRecords waits until the list has so many records.
func (v *view) waitRecords(n int) {
	v.t.Helper()
	v.until(`document.querySelector(".records .timeline").dataset.entries === %s`, fmt.Sprint(n))
}

// TestPageRecords follows what happens, filters it with the keyboard, and opens a record.
func TestPageRecords(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	v := h.browser().profile(t).openView(h.link(), bypassPolicy())
	v.waitText(".connection", "Live")
	v.show("Records")
	v.waitText(".records .start", "Nothing is recorded yet")
	v.checkWidths("records-empty")

	session := h.local("--label", "desk")
	v.waitText(".record", "desk")
	h.bindProvider(session, "greeter", "greet")
	h.ask(session, `call:greet {"name":"Ada"}`)
	v.waitText(".record", "greet")
	h.tapctl("push", "--session", session, "--stream", "builds", "--level", "keep", hostile)
	v.waitText(".record", hostileShown)

	v.press("f")
	v.until(`document.activeElement.id === "records-since"`)
	v.focusOn("#records-tool")
	v.press("greet")
	v.press(kb.Enter)
	v.until(`location.hash === "#/records/tool=greet"`)
	v.waitText(".records .hint", "1 record")
	v.focusOn(".record summary")
	v.press(kb.Enter)
	v.waitText(".record pre", `"tool": "greet"`)
	v.waitText(".record", "Its session")
	v.checkWidths("records")

	v.fill("#records-session", "desk") // a label of a session that runs counts as its id
	v.press(kb.Enter)
	v.until(`new URLSearchParams(location.hash.split("/")[2]).get("session") === %s`, session)
	v.waitText(".records .hint", "1 record")
	eval[any](v.tab, `location.hash = "#/records/tool=nothing", 0`)
	v.waitText(".records .start", "No record matches this filter")
	v.focusOn(".records .start a")
	v.press(kb.Enter)
	v.waitText(".record", hostileShown)
	if n := eval[int](v.tab, `document.querySelectorAll("main img").length`); n > 0 {
		t.Errorf("the page has %d pictures of a push's text, want none", n)
	}
	v.checkFaults(g.origin())
}

const (
	manyRecords = 10_000
	longTrace   = "00000000000000000000000000000001"
	nestedTrace = "00000000000000000000000000000002"
)

// somebodysRecords are ten thousand of a day: among them a trace of 1,200, and one with spans, a
// pause of an hour and hostile texts.
func somebodysRecords(end time.Time) []message {
	list := make([]message, 0, manyRecords)
	for i := range manyRecords - 1206 {
		list = append(list, message{"ts": end.Add(time.Duration(i-manyRecords) * 5 * time.Second),
			"kind":    "call",
			"session": "s1", "provider": "ci", "tool": fmt.Sprintf("tool-%d", i), "outcome": "ok",
			"durationMs": 3.5})
	}
	for i := range 1200 {
		list = append(list, message{"ts": end.Add(time.Duration(i-5000) * time.Second),
			"kind": "call", "session": "s1",
			"trace": longTrace, "tool": fmt.Sprintf("step-%d", i), "outcome": "ok",
			"durationMs": 900})
	}
	at := end.Add(-3 * time.Second)
	for _, r := range []message{
		{"ts": at.Add(-time.Hour), "kind": "source", "provider": "build", "span": "a1",
			"outcome": "failed", "durationMs": 400},
		{"ts": at.Add(-time.Hour), "kind": "push", "provider": "build", "span": "a2",
			"parent": "a1", "event": hostile, "stream": "build", "level": "inject",
			"fate": "delivered"},
		{"ts": at.Add(-time.Second), "kind": "call", "tool": "read", "span": "a4", "parent": "a3",
			"outcome": "failed", "code": "TIMEOUT", "durationMs": 700},
		{"ts": at.Add(-time.Second), "kind": "gate", "tool": "bash", "by": "guard",
			"outcome": "deny", "durationMs": 2},
		{"ts": at, "kind": "turn", "span": "a3", "parent": "a2", "by": "provider", "outcome": "ok",
			"durationMs": 2500},
		{"ts": at, "kind": "session", "span": "a9", "parent": "a9", "state": "end"},
	} {
		r["trace"], r["session"] = nestedTrace, "s2"
		list = append(list, r)
	}
	return list
}

// TestPageTraces scrolls through ten thousand records, of which few are in the document, and shows
// traces.
func TestPageTraces(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.writeRecords(somebodysRecords(time.Now().Add(-time.Minute)))
	g := h.serve()
	v := h.browser().profile(t).openView(h.link(), bypassPolicy())
	v.waitText(".connection", "Live")
	eval[any](v.tab, `location.hash = "#/records", 0`)
	v.waitRecords(200)
	eval[any](
		v.tab,
		`window.scrolling = setInterval(() => { const t = document.querySelector(".records .timeline"); t.scrollTop = t.scrollHeight; }, 20), 0`,
	)
	v.waitRecords(manyRecords)
	v.waitText(".record", "tool-0")
	eval[any](v.tab, `clearInterval(scrolling), 0`)
	if n := eval[int](v.tab, pageNodes); n > 3000 {
		t.Errorf("with %d records the document has %d elements, want at most 3000", manyRecords, n)
	}
	h.local("--label", "desk") // while somebody reads far below, nothing moves
	v.waitText(".newest", "1 new")
	v.click(".newest")
	v.waitText(".record", "desk")
	v.until(`document.querySelector(".records .timeline").scrollTop === 0`)

	eval[any](v.tab, `location.hash = "#/records/trace=`+longTrace+`", 0`)
	v.until(`document.querySelectorAll(".trace tbody tr").length === 500`)
	v.button("Show 500 of 700 more")
	v.button("Show 200 of 200 more")
	v.until(`document.querySelectorAll(".trace tbody tr").length === 1200`)
	nestedTraceShown(t, v)
	v.checkFaults(g.origin())
}

// nestedTraceShown looks at a trace with spans: their levels, bars, the folded pause, and the
// record behind a bar.
func nestedTraceShown(t *testing.T, v *view) {
	t.Helper()
	eval[any](v.tab, `location.hash = "#/records/trace=`+nestedTrace+`", 0`)
	v.until(`document.querySelectorAll(".trace tbody tr").length === 6`)
	got := eval[[]string](v.tab,
		`[...document.querySelectorAll(".trace .what")].map((e) => e.textContent)`)
	want := []string{
		"Level 1: source build", "Level 2: push build: " + hostileShown,
		"Level 3: turn prompt of provider", "Level 4: call read", "Level 5: gate bash, by guard",
		"Level 1: session s2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the trace reads %q, want %q", got, want)
	}
	v.waitText(".trace caption", "6 records in 1 h 0 min")
	v.waitText(".trace caption", "folded: 1 pause of together")
	v.waitText(".scale", "⋯ ")
	v.until(
		`(([source, , turn, call]) => source.right < turn.left && turn.left <= call.left && call.right <= turn.right + 1)(
		[...document.querySelectorAll(".trace .ran")].map((e) => e.getBoundingClientRect()))`,
	)
	v.focusOn(".trace .what")
	v.press(kb.ArrowDown + kb.ArrowDown + kb.ArrowDown + kb.Enter)
	v.waitText(".trace pre", `"code": "TIMEOUT"`)
	v.click(".trace tbody tr:last-child .picture")
	v.waitText(".trace pre", `"state": "end"`)
	v.checkWidths("trace")
	eval[any](v.tab, `location.hash = "#/records/trace=0123456789abcdef0123456789abcdef", 0`)
	v.waitText(".records .start", "No record matches this filter")
}

// TestPageTrace follows what a source begins to the call that its prompt makes, as bars of one
// trace.
func TestPageTrace(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serveFiles()
	session := h.local("--label", "desk")
	h.bindProvider(session, "greeter", "greet")
	h.put("work/prompt", `call:greet {"name":"Ada"}`+"\n")
	h.put("providers/wake.toml", "kind = \"source\"\nrun = [\"cat\", \"prompt\"]\ncwd = \""+
		h.path("work")+"\"\nevery = \"1h\"\nlevel = \"inject\"\n")
	v := h.browser().profile(t).openView(h.link())
	v.waitText(".connection", "Live")
	eval[any](v.tab, `location.hash = "#/records/tool=greet", 0`)
	v.waitText(".record", "greet")
	v.click(".record summary")
	v.waitText(".record a", "Its trace")
	eval[any](v.tab,
		`[...document.querySelectorAll(".record a")].find((a) => a.textContent === "Its trace").click(), 0`)
	for _, bar := range []string{"Level 1: source wake", "Level 2: push wake", "call greet"} {
		v.waitText(".trace .what", bar)
	}
	v.waitText(".trace .what", "turn prompt of")
	v.keepPicture("trace")
	v.checkFaults(g.origin())
}
