//go:build e2e && linux

package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"tapgw/internal/client"
)

// entriesBefore are more entries than the page loads at first.
const entriesBefore = 2600

// TestPageFind looks for a text in a long session: in entries that the page has not loaded, in a
// message where several elements have it, and in the result of a call that is folded. It is marked
// where it is, and Enter goes around. The address of what was found opens it in another browser.
func TestPageFind(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	s, err := client.Host(t.Context(), client.Options{URL: g.url, Token: h.read(".admin-token")},
		client.HostOptions{
			Name: "teller", Version: "1", ID: "hay", Label: "hay", CWD: h.path("work"),
			State: func(bool, error) {},
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background(), "told all") })
	s.Event("user.message", message{"content": "the oldest Needle? (1)"})
	for i := range entriesBefore {
		s.Event("user.message", message{"content": fmt.Sprint("hay ", i)})
	}
	s.Event("tool.execution_complete", message{"tool": "read", "args": message{"path": "a.go"},
		"result": message{"type": "success", "output": strings.Repeat("hay\n", 8000) +
			"a needle? (2)"}})
	for i := range 100 {
		s.Event("user.message", message{"content": fmt.Sprint("more hay ", i)})
	}
	s.Event("assistant.message", message{"content": "The **need**le? (3) is `here`."})
	s.Event("user.message", message{"content": "the end"})

	b := h.browser()
	v := b.profile(t).openView(h.link())
	v.waitText(".entry", "the end")
	// it began with the newest
	v.until(`Number(document.querySelector(".timeline").dataset.entries) < 2500`)
	v.press("f")
	v.until(`document.activeElement.matches(".find input")`)
	// at waits until the n-th place is the one that is marked and in sight, and the field has the
	// focus.
	at := func(n int, text string) {
		t.Helper()
		v.waitText(".find .count", fmt.Sprintf("%d of 3", n))
		v.until(`(() => {
			const [range] = CSS.highlights.get("found-here") ?? [], box = range?.getBoundingClientRect();
			return range?.toString() === %s && box.height > 0 && box.top > 100 && box.bottom < innerHeight &&
				document.activeElement.matches(".find input") && range.commonAncestorContainer.parentElement.closest(".entry");
		})()`, text)
	}
	v.press("needle? (")
	at(3, "needle? (")
	v.press("\r", chromedp.KeyModifiers(chromedp.ModifierShift))
	at(2, "needle? (")
	v.press("\r", chromedp.KeyModifiers(chromedp.ModifierShift))
	at(1, "Needle? (")
	v.keepPicture("found")
	v.press("\r", chromedp.KeyModifiers(chromedp.ModifierShift))
	at(3, "needle? (")
	v.press("\r") // from the end to the beginning
	at(1, "Needle? (")
	v.click(`.find [aria-label^="Next"]`)
	v.until(`[...CSS.highlights.get("found-here")][0]?.toString() === "needle? ("`)

	// What comes is counted. What is nowhere is said to be.
	s.Event("user.message", message{"content": "a needle? (4)"})
	v.waitText(".find .count", "2 of 4")
	v.fill(".find input", "unicorn")
	v.waitText(".find .count", "not found")
	v.until(
		`CSS.highlights.get("found-here").size === 0 && !document.querySelector(".find .count").textContent.includes("…")`)

	// Escape ends the search where it came to. The address of that opens it elsewhere, behind the
	// sign-in.
	v.fill(".find input", "oldest")
	v.waitText(".find .count", "1 of 1")
	eval[any](v.tab,
		`Object.defineProperty(navigator, "clipboard", { value: { writeText: async (text) => { window.copied = text; } } }), 0`)
	v.press(kb.Escape)
	v.until(
		`document.activeElement.matches(".entry") && document.activeElement.textContent.includes("the oldest Needle")`)
	v.until(`CSS.highlights.get("found-here").size === 0`)
	v.press("l")
	v.waitText(".toast", "address is copied")
	address := eval[string](v.tab, `copied`)
	v.checkFaults(g.origin())

	other := b.profile(t).openView(address)
	other.fill("#credential", h.link())
	other.press("\r")
	other.until(
		`document.activeElement.matches(".entry") && document.activeElement.textContent.includes("the oldest Needle")`)
	other.until(
		`((r) => r.top >= 0 && r.bottom <= innerHeight)(document.activeElement.getBoundingClientRect())`)
	// The time of an entry is its address too.
	other.waitText(".entry time a", ":")
	eval[any](other.tab, `[...document.querySelectorAll(".entry")].find((e) => e.textContent.includes("hay 3"))
		.querySelector("time a").click(), 0`)
	other.until(
		`document.activeElement.textContent.includes("hay 3") && location.hash.split("/").length === 4`)
	// One of another session of this name is gone.
	eval[any](other.tab, `location.hash = "#/sessions/hay/1abc.0.0.0.0.7", 0`)
	other.waitText(".toast", "gone")
	if faults := other.faultsSoFar(); len(faults) > 0 {
		t.Errorf("the page has the faults %q, want none", faults)
	}
}
