//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"tapgw/internal/adminapi"
	"tapgw/internal/scriptmodel"
)

// TestPageFigures reads the figures of a real session, of a provider and of streams, and follows
// bars to their entries.
func TestPageFigures(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	h.put("work/list.txt", "milk\n")
	m := model(t, scriptmodel.Calls)
	h.serve()
	notes := h.local("--label", "empty")
	v := h.browser().profile(t).openView(h.link(), bypassPolicy())
	v.waitText(".session h2", "empty")
	v.focusOn(".figures-box summary")
	v.press(kb.Enter)
	for _, text := range []string{"The host has not told how full", "No model was called",
		"have no turn"} {
		v.waitText(".figures-box", text)
	}
	v.checkEverywhere("figures-empty")
	h.tapctl("sessions", "stop", notes)

	session := h.copilot(m, "--label", "review", "--cwd", h.path("work"))
	h.bindProvider(session, "greeter", "greet")
	h.ask(session, `call:greet {"name":"Ada"}`)
	h.ask(session, fmt.Sprintf(`call:view {"path":%q}`, h.path("work/list.txt")))
	h.ask(session, `call:greet {"name":"Bob"}`)
	for _, level := range []string{"keep", "keep", "surface"} {
		h.tapctl("push", "--session", session, "--stream", "builds", "--level", level, "--provider",
			"ci", hostile)
	}
	eval[any](v.tab, `location.hash = %s, 0`, "#/sessions/"+session)
	v.waitText(".session h2", "review")
	v.until(`document.querySelectorAll(".figures figure").length === 3`)
	figuresOfSession(t, v, session)
	v.checkEverywhere("figures")
	barLeadsToEntry(t, v)
	figuresOfProvider(t, v)
	figuresOfStreams(v, session)
}

// figuresOfSession compares the columns and tables with the usage that the gateway tells.
func figuresOfSession(t *testing.T, v *view, session string) {
	t.Helper()
	usage := eval[adminapi.Usage](v.tab,
		`fetch("/api/v1/sessions/" + %s + "/usage?calls=1").then((r) => r.json())`, session)
	c := usage.Context
	if len(usage.Turns) != 3 || len(usage.ModelCalls) != 6 || c.Tokens == 0 ||
		c.Tokens != c.System+c.Tools+c.Messages {
		t.Fatalf("the usage: got %+v, want 3 turns, 6 calls of models and a context of three parts",
			usage)
	}
	v.waitText("figcaption", "6 calls of models: ")
	// The heights of the columns are as the numbers.
	const heights = `[...[...document.querySelectorAll("figure")].find((f) => f.textContent.startsWith(%s))
		.querySelectorAll(".plot g")].map((g) => [...g.querySelectorAll("rect")]
		.reduce((sum, r) => sum + r.getBoundingClientRect().height, 0))`
	checkProportion(t, "context", eval[[]float64](v.tab, heights, "Context"),
		func(turn adminapi.TurnUsage) int64 { return turn.Context.Tokens }, usage.Turns)
	checkProportion(t, "tokens", eval[[]float64](v.tab, heights, "Tokens"),
		func(turn adminapi.TurnUsage) int64 { return turn.Input + turn.Output }, usage.Turns)
	v.focusOn("figure summary")
	v.press(kb.Enter)
	want := []string{"Turn 3", fmt.Sprint(c.Tokens), fmt.Sprint(c.System), fmt.Sprint(c.Tools),
		fmt.Sprint(c.Messages)}
	v.until(`((row) => %s.every((text, i) => row[i] === text))(
		[...document.querySelectorAll("figure tbody")[0].rows[2].cells].map((c) => c.innerText))`, want)
	// The name of a turn leads to its prompt.
	v.focusOn("figure tbody button")
	v.press(kb.Enter)
	v.until(
		`document.activeElement.matches(".entry.prompt") && document.activeElement.textContent.includes("Ada")`)
	v.click("figure details[open] summary")
}

// checkProportion checks that columns are as high as the numbers that they show.
func checkProportion(
	t *testing.T, name string, got []float64, number func(adminapi.TurnUsage) int64,
	turns []adminapi.TurnUsage,
) {
	t.Helper()
	if len(got) != len(turns) {
		t.Fatalf("the figure of %s has %d columns, want %d", name, len(got), len(turns))
	}
	for i, turn := range turns {
		want := got[0] * float64(number(turn)) / float64(number(turns[0]))
		if got[i] < want-1 || got[i] > want+1 || got[i] == 0 {
			t.Errorf("%s: column %d is %.1f pixels high, want %.1f", name, i+1, got[i], want)
		}
	}
}

// barLeadsToEntry goes through the waterfall of a turn: calls of the model, of the host's own tools
// and of providers.
func barLeadsToEntry(t *testing.T, v *view) {
	t.Helper()
	rows := func(n int, kinds ...string) {
		t.Helper()
		v.until(`((chips) => chips.length === Number(%s) && %s.every((k) => chips.includes(k)))(
			[...document.querySelectorAll(".figures .trace .chip")].map((c) => c.textContent))`, fmt.Sprint(n), kinds)
	}
	rows(4, "turn", "model", "provider")
	v.waitText("figcaption", "2 model calls")
	v.click(".figures .trace .ran.provider")
	v.until(
		`document.activeElement.matches(".entry.tool") && document.activeElement.textContent.includes("Bob")`)
	v.focusOn("#figure-turn")
	v.press(kb.ArrowDown)
	rows(4, "turn", "model", "built-in")
	v.waitText("figcaption", "1 built-in call")
	v.press(kb.ArrowDown)
	rows(4, "turn", "model", "provider")
	// What was hidden is shown for it, by the keyboard too.
	v.click(".toggles button:nth-child(2)")
	v.until(`!document.querySelector(".entry.tool")`)
	v.until(
		`(window.call = [...document.querySelectorAll(".figures .what")].find((b) => b.textContent.includes("greet")))`)
	eval[any](v.tab, `call.focus(), 0`)
	v.press(kb.Enter)
	v.until(
		`document.activeElement.matches(".entry.tool") && document.activeElement.textContent.includes("Ada")`)
}

// figuresOfProvider compares a tool's histogram with the percentiles that the gateway tells.
func figuresOfProvider(t *testing.T, v *view) {
	t.Helper()
	eval[any](v.tab, `location.hash = "#/providers/greeter", 0`)
	v.waitText(".provider .toollist", "greet")
	v.click(".provider > details > summary")
	v.waitText("figcaption", "2 calls since ")
	v.waitText("figcaption", "0 failed (0 %)")
	loads := eval[adminapi.Diagnostics](v.tab,
		`fetch("/api/v1/diagnostics").then((r) => r.json())`).Providers
	if len(loads) != 1 || loads[0].Calls != 2 {
		t.Fatalf("the load of the providers: got %+v, want one with 2 calls", loads)
	}
	want := eval[string](v.tab, `((duration) =>
		"greet 2 calls: p50 " + duration(Number(%s)) + " (line), p99 " + duration(Number(%s)) + " (dashed).")(`+pageDuration(t)+`)`,
		fmt.Sprint(loads[0].P50Ms), fmt.Sprint(loads[0].P99Ms))
	v.waitText("figcaption", want)
	// The columns have all calls, and so has the table.
	v.until(`[...document.querySelectorAll(".toolfigures figure:last-child tbody td")]
		.reduce((n, td) => n + Number(td.textContent), 0) === 2`)
	v.until(`document.querySelectorAll(".toolfigures .plot line").length === 2`)
	v.checkEverywhere("figures-provider")
}

// figuresOfStreams counts the events of a stream.
func figuresOfStreams(v *view, session string) {
	eval[any](v.tab, `location.hash = %s, 0`, "#/streams/"+session)
	v.waitText("summary", "Push rates")
	v.focusOn("main > .streams details:nth-of-type(2) summary")
	v.press(kb.Enter)
	v.waitText("figcaption", "builds@ci 3 events since ")
	v.waitText("figcaption", "0 dropped")
	v.checkEverywhere("figures-streams")
}
