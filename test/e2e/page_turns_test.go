//go:build e2e && linux

package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"tapgw/internal/client"
	"tapgw/internal/scriptmodel"
)

// told is a session whose host is the test, and a page that shows it.
type told struct {
	*view
	t *testing.T
	g *gateway
	s *client.HostSession
}

func newTold(t *testing.T) *told {
	t.Helper()
	h := newHome(t)
	p := &told{t: t, g: h.serve()}
	var err error
	p.s, err = client.Host(t.Context(), client.Options{URL: p.g.url, Token: h.read(".admin-token")},
		client.HostOptions{
			Name: "teller", Version: "1", ID: "told", Label: "told", CWD: h.path("work"),
			State: func(bool, error) {},
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.s.Close(context.Background(), "told all") })
	p.view = h.browser().profile(t).openView(h.link(), bypassPolicy())
	p.waitText(".connection", "Live")
	p.visit(p.g.origin() + "/?turns#/sessions/told")
	p.waitText(".session h2", "told")
	return p
}

// TestPageTurns shows a session's timeline: long messages, code, turns, and what is looked for in
// them.
func TestPageTurns(t *testing.T) {
	t.Parallel()
	p := newTold(t)
	t.Run("Fold", func(_ *testing.T) { turnsFold(p) })
	t.Run("LongMessage", func(t *testing.T) { longMessageShows(t, p) })
	p.checkFaults(p.g.origin())
}

// longMessage is 600 kB of Markdown.
func longMessage() string {
	var long strings.Builder
	for i := 0; long.Len() < 600_000; i++ {
		fmt.Fprintf(&long, "- item %d\n", i)
		if i%10 == 0 {
			fmt.Fprintf(&long,
				"\n## Part %d\n\nSome **text** with `code`.\n\n```go\nx := %d\n```\n\n", i, i)
		}
	}
	return long.String() + "the very end"
}

// A long message shows its beginning at once, all of it when a person asks, and is copied whole.
func longMessageShows(t *testing.T, p *told) {
	p.s.Event("user.message", message{"content": "write much"})
	long := longMessage()
	p.s.Event("assistant.message", message{"content": long})
	p.waitText(".entry.message", "item 100")
	p.waitText(".entry.prompt", "write much")
	if text := p.text(".entry.message"); len(text) > 100_000 ||
		strings.Contains(text, "the very end") {
		t.Errorf("the page shows %d bytes of it, want its beginning", len(text))
	}
	p.button(fmt.Sprintf("Show all (%.0f kB)", float64(len(long))/1000))
	p.waitText(".entry.message", "the very end")
}

// turnsFold folds turns by mouse and by keys, and goes from one to the next.
func turnsFold(p *told) {
	for i, tool := range []string{"read", "build", "test"} {
		p.s.Event("user.message", message{"content": "step " + tool})
		for _, failed := range []string{"success", "failure"} {
			p.s.Event("tool.execution_complete",
				message{"tool": tool, "args": message{"path": "a.go"},
					"result":     message{"type": failed, "output": tool + " put out"},
					"durationMs": 2500 * (i + 1)})
		}
		p.s.Event("assistant.message", message{"content": "did " + tool})
	}
	p.waitText(".entry.message", "did test")
	const turn = `[...document.querySelectorAll(".entry.prompt")].find((e) => e.textContent.includes(%s))`
	p.until(turn+`.querySelector(".turn").textContent.includes("2 calls (build 2), 1 failed")`,
		"step build")
	// The host's own durations are shown, not the time between two events.
	p.until(`((calls) => calls.length === 6 && calls[2].includes("5.0 s"))(
		[...document.querySelectorAll(".entry.tool .took")].map((e) => e.textContent))`)

	// By a key, which folds the turn of the entry that has the focus.
	eval[any](p.tab, turn+`.tabIndex = -1, `+turn+`.focus(), 0`, "step build", "step build")
	p.press("c")
	p.until(turn+`.querySelector("[aria-expanded=false]") && document.activeElement === `+turn,
		"step build", "step build")
	p.until(`((text) => !text.includes("did build") && text.includes("did read") && text.includes("did test"))(
		document.querySelector(".timeline").textContent)`)
	p.press("c")
	p.waitText(".entry.message", "did build")
	p.button("Fold turns")
	p.until(
		`!document.querySelector(".entry.message") && document.querySelectorAll(".entry.prompt").length === 3`)

	// What comes in a folded turn is counted there, and a new turn is unfolded. Find unfolds a turn
	// that has the text.
	p.s.Event("assistant.message", message{"content": "late word"})
	p.s.Event("user.message", message{"content": "step last"})
	p.s.Event("assistant.message", message{"content": "did last"})
	p.waitText(".entry.message", "did last")
	p.until(`!document.querySelector(".timeline").textContent.includes("late word")`)
	p.fill(".find input", "late word")
	p.waitText(".entry.message", "late word")
	p.until(turn+`.querySelector("[aria-expanded=true]")`, "step test")
	p.until(turn+`.querySelector("[aria-expanded=false]")`, "step build")
	p.fill(".find input", " ")
	p.waitText(".entry.message", "did last")
	// So does the address of an entry.
	place := eval[string](p.tab, turn+`.entry.all.find((e) => e.text === "did build").place`,
		"step build")
	eval[any](p.tab, `location.hash = "#/sessions/told/" + %s, 0`, place)
	p.waitText(".entry.message", "did build")
	p.until(turn+`.querySelector("[aria-expanded=false]")`, "step read")
	p.press(kb.Escape)
	p.press("?")
	p.waitText("dialog", "fold the turn")
	p.press(kb.Escape)
	p.waitNoDialog()

	// By mouse.
	p.button("Fold turns")
	p.until(`!document.querySelector(".entry.message")`)
	eval[any](p.tab, turn+`.querySelector(".turn").id = "one", 0`, "step test")
	p.click("#one")
	p.until(
		`document.querySelectorAll(".entry.message").length === 2 && document.activeElement.matches(".turn")`)
	p.button("Fold turns")
	p.button("Fold turns")
	p.waitText(".entry.message", "did last")
}

// TestPageCode shows code with its language, in colours, and wraps it as a person wants, also after
// a reload.
func TestPageCode(t *testing.T) {
	t.Parallel()
	p := newTold(t)
	const code = "func main() { // says \"hello\"\n\tprintln(\"hello\", 42)\n}"
	p.s.Event("user.message", message{"content": "show code"})
	p.s.Event("tool.execution_complete", message{"tool": "diff", "args": message{"n": 7},
		"result": message{"type": "success",
			"output": "--- a.txt\n+++ b.txt\n@@ -1 +1 @@\n-old\n+new"}})
	p.s.Event("assistant.message",
		message{"content": "```go\n" + code + "\n```\n\n```sql\nSELECT 1 -- one\n```" +
			"\n\n```rust\n'a '" + strings.Repeat(`\'`, 600) + "' 'b'\n```"})
	p.waitText(".code .head", "go")
	const tokens = `((all) => %s.every((want) => all.includes(want)))([...document.querySelectorAll(".code span[class]")]
		.map((e) => e.className + " " + e.textContent))`
	p.until(tokens, []string{"t-word func", `t-comment // says "hello"`, `t-string "hello"`,
		"t-number 42", "t-word SELECT", "t-comment -- one", "t-string 'b'"})
	if eval[bool](p.tab,
		`[...document.querySelectorAll(".t-string")].some((e) => e.textContent.length > 1100)`) {
		t.Error("a string without an end near it is coloured: many of them take quadratic time")
	}
	p.until(`[...document.querySelectorAll(".code code")].some((e) => e.textContent === %s)`, code)
	eval[any](p.tab, `[...document.querySelectorAll(".entry.tool summary")].at(-1).id = "diff", 0`)
	p.click("#diff")
	p.until(tokens, []string{"t-removed -old", "t-added +new", "t-number @@ -1 +1 @@", `t-key "n"`,
		"t-number 7"})
	const wraps = `[...document.querySelectorAll(".code pre")].every((e) => getComputedStyle(e).whiteSpace.startsWith(%s))`
	p.until(wraps, "pre")
	p.click(".message .code .wrap")
	p.until(wraps, "pre-wrap")
	p.click(".message .code .tab")
	p.until(`getComputedStyle(document.querySelector(".message .code pre")).tabSize === "8"`)
	p.visit(p.g.origin() + "/?code#/sessions/told")
	p.waitText(".code .head", "Tab")
	p.until(`(([wrap, tab]) => wrap === '" on"' && tab === '" 8"')([".wrap", ".tab"].map((it) =>
		getComputedStyle(document.querySelector(".message .code " + it), "::after").content))`)
	p.until(wraps, "pre-wrap")
	p.checkEverywhere("code")
	p.checkFaults(p.g.origin())
}

// TestPageCalls shows calls that a real runtime makes beside each other: with the durations that it
// measured, what the provider told of them, and how the model was tried again.
func TestPageCalls(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.put("work/list.txt", "milk\n")
	failures := 2
	m := model(t, func(r *scriptmodel.Request) scriptmodel.Reply {
		if strings.Contains(r.LastUser(), "flaky") && failures > 0 {
			failures--
			return scriptmodel.Reply{Status: http.StatusInternalServerError, Text: "overloaded"}
		}
		return scriptmodel.Calls(r)
	})
	g := h.serve()
	session := h.copilot(m, "--label", "calls", "--cwd", h.path("work"))
	h.bindProvider(session, "walker", "steps,greet")
	h.ask(session, fmt.Sprintf("call:view {\"path\":%q}\ncall:steps\ncall:greet {\"name\":\"Ada\"}",
		h.path("work/list.txt")))
	h.ask(session, "flaky")
	took := map[string]float64{}
	for line := range strings.Lines(h.tapctl("sessions", "log", session, "--events")) {
		var e struct {
			Type string
			Data struct {
				ToolCallID string
				DurationMs float64
			}
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		if e.Type == "model.tool_execution" {
			took[e.Data.ToolCallID] = e.Data.DurationMs
		}
	}
	if len(took) != 3 {
		t.Fatalf("the runtime told the durations %v, want those of three calls", took)
	}
	v := h.browser().profile(t).openView(h.link())
	v.waitText(".connection", "Live")
	for _, again := range []string{"live", "again"} {
		v.visit(g.origin() + "/?" + again + "#/sessions/" + session)
		v.waitText(".entry.message", "You said: flaky")
		for id, ms := range took {
			v.until(`((duration) => ((call) => call.querySelector(".took").textContent ===
				duration(Math.round(Number(%s) * 1000) / 1000))([...document.querySelectorAll(".entry.tool")].find((e) => e.entry.id === %s)))(`+pageDuration(t)+`)`,
				fmt.Sprint(ms), id)
		}
		v.until(`((e) => e.steps.join() === "one of two,two of two")(
			[...document.querySelectorAll(".entry.tool")].find((e) => e.entry.name === "steps").entry)`)
		v.until(
			`![...document.querySelectorAll(".entry.note")].some((e) => e.textContent.includes("of two"))`)
		// The attempts are one note, with each of them in it.
		v.until(`document.querySelectorAll(".entry.note details li").length >= 2 &&
			[...document.querySelectorAll(".entry.note")].filter((e) => /a call of model|asking the model/.test(e.textContent)).length === 1`)
		v.until(`((texts) => texts.length === 2 && texts[0].includes("3 calls (") && texts.every((t) => t.includes("tokens in")))(
			[...document.querySelectorAll(".turn")].map((e) => e.textContent))`)
	}
	v.checkFaults(g.origin())
}
