//go:build e2e && linux

package e2e_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestPageQueue sees the prompts that wait above the composer, changes one, takes one back, sends
// one now, and interrupts the turn: nothing is lost. On a phone all of it is in sight.
func TestPageQueue(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	session := h.local("--label", "desk")
	v := h.browser().profile(t).openView(h.link(), bypassPolicy())
	v.waitText(".connection", "Live")
	turn := h.asking(session, `ask:permission {"message":"May I?"}`)
	v.waitText(".session h2", "desk")
	v.waitText(".session .card .text", "May I?")
	for _, text := range []string{"one", "two", "three"} {
		v.fill("#prompt", text)
		v.button("Queue")
		v.waitText(".queue .what", text)
	}
	press := func(text, label string) {
		t.Helper()
		v.until(`window.pressed = [...document.querySelectorAll(".queue li")].find((e) =>
			e.querySelector(".what").textContent === %s)?.querySelectorAll("button")[["Edit", "Send it now",
			"Cancel"].indexOf(%s)]`, text, label)
		v.settled()
		v.do("pressing "+label, chromedp.Click(chromedp.JSPath("window.pressed")))
	}
	press("two", "Cancel")
	v.until(`![...document.querySelectorAll(".queue .what")].some((e) => e.textContent === "two")`)
	press("one", "Edit")
	v.fill("#queued-prompt", "first")
	v.button("Save")
	v.waitNoDialog()
	v.waitText(".queue .what", "first")
	press("three", "Send it now")
	v.waitText(".queue .sent", "three")

	v.do("making it a phone", chromedp.EmulateViewport(360, 740))
	v.until(inSight, ".queue li, .queue button, #prompt, .composer .primary")
	small := eval[[]string](v.tab, `[...document.querySelectorAll(".queue button, .composer button")]
		.filter((e) => e.checkVisibility()).map((e) => [e.textContent, e.getBoundingClientRect()])
		.filter(([, r]) => r.height < 44 || r.width < 44).map(([text, r]) => text + " " + r.width + "x" + r.height)`)
	if len(small) > 0 {
		t.Errorf("these are too small for a thumb: %q, want 44x44", small)
	}
	v.checkWidths("queue")

	h.tapctl("sessions", "interrupt", session)
	turn.wait(patience)
	v.waitText(".entry.prompt", "three")
	v.waitText(".entry.prompt", "first")
	v.until(`document.querySelector(".queue").hidden`)
	log := h.tapctl("sessions", "log", session)
	if strings.Contains(log, "user: one") || strings.Contains(log, "user: two") {
		t.Errorf("the session got what was changed or taken back:\n%s", log)
	}
	pageComposes(t, v)
	v.checkFaults(g.origin())
}

// pageComposes goes through earlier prompts and back to the draft, and sends with the key that the
// person chose.
func pageComposes(t *testing.T, v *view) {
	t.Helper()
	holds := v.holds
	v.waitText(".composer .primary", "Send")
	sent := eval[[]string](v.tab,
		`[...document.querySelectorAll(".entry.prompt")].map((e) => e.entry.text)`)
	last := sent[len(sent)-1]
	v.fill("#prompt", "my draft")
	v.press(kb.ArrowUp)
	holds(last)
	v.press(kb.ArrowUp)
	holds(sent[len(sent)-2])
	v.press("+")
	v.press(kb.ArrowDown)
	holds(last)
	v.press(kb.ArrowUp)
	holds(sent[len(sent)-2] + "+")
	v.press(kb.ArrowDown + kb.ArrowDown)
	holds("my draft")

	v.press("\r")
	holds("my draft\n")
	v.press(kb.ArrowUp + kb.ArrowUp) // to the first line, and from there
	holds(last)
	v.press(kb.ArrowDown)
	holds("my draft\n")
	eval[bool](v.tab, `(() => {
		const key = document.querySelector(".send-key");
		key.value = "sends";
		return key.dispatchEvent(new Event("change"));
	})()`)
	v.press("\r", chromedp.KeyModifiers(chromedp.ModifierShift))
	holds("my draft\n\n")
	eval[bool](v.tab, `document.querySelector("#prompt").dispatchEvent(
		new KeyboardEvent("keydown", { key: "Enter", isComposing: true, cancelable: true }))`)
	v.press("more")
	holds("my draft\n\nmore")
	v.enter()
	v.waitText(".entry.prompt", "more")
	holds("")
	v.do("reloading", chromedp.Reload())
	v.waitText(".entry.prompt", "more")
	v.until(`document.querySelector(".send-key").value === "sends"`)
	v.fill("#prompt", "kept")
	v.press(kb.ArrowUp)
	holds("my draft\n\nmore")
	v.enter()
	holds("kept")
	v.checkAccessibility("composer")
}
