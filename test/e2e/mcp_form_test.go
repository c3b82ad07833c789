//go:build e2e && linux

package e2e_test

import (
	"strings"
	"testing"

	"tapgw/internal/scriptmodel"
)

// formAnswer is what the page sends of the form of server-everything. The model gets it back in the
// tool's result.
const formAnswer = `"action": "accept", "content": { "birthdate": "1815-12-10", "check": true, ` +
	`"email": "ada@example.com", "firstLine": "It was a dark and stormy night.", "homepage": "https://example.com/ada", ` +
	`"integer": 36, "legacyTitledEnum": "pet-2", "name": "Ada Lovelace", "number": 2.718, ` +
	`"titledMultipleSelectEnum": [ "fish-1", "fish-3" ], "titledSingleSelectEnum": "hero-2", ` +
	`"untitledMultipleSelectEnum": [ "Guitar", "Drums", "Bass" ], "untitledSingleSelectEnum": "Phoebe" }`

// TestMCPForm answers on the page what a real MCP server asks while a real session calls its tool:
// a form with a field of each kind that MCP has. What the form does not allow keeps it open.
func TestMCPForm(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	m := model(t, scriptmodel.Calls)
	g := h.serveFiles()
	h.mcpFile("everything", "")
	session := h.copilot(m)
	h.waitTool(session, "trigger-elicitation-request")
	v := h.browser().profile(t).openView(h.link())
	v.waitText(".connection", "Live")

	turn := h.asking(session, "call:trigger-elicitation-request")
	v.waitText(".card.question .text",
		"everything: Please provide inputs for the following fields:")
	v.keepPicture("asked")
	v.fill(".card .field:first-child input", "Ada Lovelace") // what must be filled comes first
	for id, text := range map[string]string{"email": "ada", "homepage": "https://example.com/ada",
		"integer": "101",
		"number":  "2.718"} {
		v.fill(`.card [id$="-`+id+`"]`, text)
	}
	eval[any](v.tab, `document.querySelector('.card [id$="-birthdate"]').value = "1815-12-10"`)
	for label, option := range map[string]string{"Untitled Single Select Enum": "Phoebe",
		"Titled Single Select Enum": "Green Lantern", "Legacy Titled Single Select Enum": "Dogs"} {
		v.choose(label, option)
	}
	for _, label := range []string{"Boolean", "Piano", "Drums", "Bass", "Trout"} {
		v.tick(label)
	}

	// The browser asks for what is wrong in a field, the gateway refuses what is wrong with
	// several.
	for id, right := range map[string]string{"email": "ada@example.com", "integer": "36"} {
		v.until(`document.querySelector(%s).matches(":invalid")`, `.card [id$="-`+id+`"]`)
		v.button("Answer")
		v.until(`document.activeElement.matches(".card :invalid")`)
		v.fill(`.card [id$="-`+id+`"]`, right)
	}
	v.button("Answer")
	v.waitText(".toast", "untitledMultipleSelectEnum")
	v.tick("Piano")
	v.keepPicture("filled")
	v.button("Answer")
	v.until(`!document.querySelector(".card.question")`)
	if code := turn.wait(patience); code != 0 {
		t.Errorf("the turn: code %d, want 0:\n%s", code, turn.output())
	}
	got := strings.Join(strings.Fields(m.Requests()[len(m.Requests())-1].LastResult()), " ")
	if !strings.Contains(got, formAnswer) {
		t.Errorf("the server got %s, want %s", got, formAnswer)
	}

	turn = h.asking(session, "call:trigger-elicitation-request")
	v.button("Decline")
	if code := turn.wait(patience); code != 0 || turn.find("User declined") == "" {
		t.Errorf("declined: code %d, want 0 and that the user declined:\n%s", code, turn.output())
	}
	v.checkFaults(g.origin())
}

// choose chooses an option of a form's list, by what people read.
func (v *view) choose(label, option string) {
	v.t.Helper()
	v.until(`(() => {
		const it = [...document.querySelectorAll(".card select")].find((s) => s.labels[0].textContent === %s);
		const o = [...it.options].find((o) => o.textContent === %s);
		if (o) o.selected = true;
		return o;
	})()`, label, option)
}

// tick ticks a box of a form, or takes the tick away.
func (v *view) tick(label string) {
	v.t.Helper()
	v.until(`window.box = [...document.querySelectorAll(".card input[type=checkbox]")]
		.find((b) => b.labels[0].textContent === %s)`, label)
	eval[any](v.tab, `window.box.click()`)
}
