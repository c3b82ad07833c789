//go:build e2e && linux

package e2e_test

import (
	"encoding/json"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"tapgw/internal/adminapi"
)

// TestPageGoals starts a goal with the keyboard alone, follows its turns until its budget ends, and
// one that is met.
func TestPageGoals(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serveFiles()
	v := h.browser().profile(t).openView(h.link(), bypassPolicy())
	v.waitText(".connection", "Live")
	v.show("Goals")
	v.waitText(".goals .start", "There is no goal.")
	v.checkWidths("goals-empty")
	v.focusOn(".goals .start button")
	v.press(kb.Enter)
	v.waitText("dialog", "none runs")
	v.press(kb.Escape)
	v.waitNoDialog()

	session := h.local("--label", "desk")
	v.press(kb.Enter) // the focus is on the button again
	v.waitText("dialog #goal-session", "desk")
	v.focusOn("#goal-text")
	v.press("the report is there <b>now</b>")
	v.focusOn("#check-1-command")
	v.press("make test")
	v.focusOn("dialog .row > button")
	v.checkWidths("goal-start")
	goalWithTwoChecks(v)
	v.waitNoDialog()
	v.waitText(".goals .contract", "the report is there <b>now</b>")
	v.waitText(".goals tbody .chip", "out of budget")
	v.waitText(".turns", "Turn 2")
	v.waitText(".turns > li", "2 checks missing")
	v.waitText(".turns > li", "call make test")
	v.waitText(".checks li", "file report.md")
	v.waitText(".budgets", "2 of 2")
	v.checkWidths("goal")

	// One whose file comes is met, with the evidence.
	h.put("work/report.md", "done")
	// the gateway keeps it so
	const shown = `<img src=x onerror=alert(1)>\x1b[31mred\x07 \u202egpj.exe`
	met, err := g.api().StartGoal(t.Context(), adminapi.GoalRequest{
		Session: session, Text: hostile, Checks: []json.RawMessage{[]byte(`{"file":"report.md"}`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	v.waitText(".goals tbody th", shown)
	eval[any](v.tab, `location.hash = "#/goals/" + %s, 0`, met.ID)
	v.waitText(".goals .detail .chip", "met")
	v.waitText(".checks .ok", "file report.md")
	v.waitText(".goals .contract", shown)
	if n := eval[int](v.tab, `document.querySelectorAll("main img, main b").length`); n > 0 {
		t.Errorf("the page has %d elements of a goal's text, want none", n)
	}
	v.checkFaults(g.origin())
}

// goalWithTwoChecks adds a second check in the dialog, takes it away, adds another and starts the
// goal.
func goalWithTwoChecks(v *view) {
	v.t.Helper()
	v.button("Add a check")
	v.focusOn(`[aria-label="Remove check 2"]`)
	v.press(kb.Enter)
	v.until(`document.activeElement.textContent === "Add a check"`)
	v.press(kb.Enter)
	v.until(`document.activeElement.matches("[aria-label='Check 3']")`)
	eval[any](v.tab, `(() => {
		const kind = document.activeElement;
		kind.value = "file";
		kind.dispatchEvent(new Event("change"));
		return 0;
	})()`)
	v.press(kb.Tab + kb.Tab)
	v.until(`document.activeElement.id === "check-3-path"`)
	v.press("report.md")
	v.fill("#goal-turns", "2")
	v.press(kb.Enter)
}
