//go:build e2e && linux

package e2e_test

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestPageLook changes the page's colours, which stay after a reload and in another tab.
func TestPageLook(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	profile := h.browser().profile(t)
	v := profile.openView(h.link())
	v.waitText(".connection", "Live")
	v.setTheme("light")
	const background = `getComputedStyle(document.body).backgroundColor`
	light := eval[string](v.tab, background)
	v.setTheme("dark")
	v.until(background+` !== %s`, light)
	dark := eval[string](v.tab, background)
	const look = `[...document.querySelectorAll(".bar button")].find((b) => b.title.startsWith("Colours"))`
	for _, want := range []struct{ says, background string }{
		{"Colours: light", light}, {"Colours: dark", dark},
		{"Colours: as the system has them", dark}, {"Colours: light", light},
	} {
		eval[any](v.tab, look+`.click(), 0`)
		v.until(look+`.getAttribute("aria-label") === %s && `+background+` === %s`, want.says,
			want.background)
	}
	v.visit(g.origin() + "/?again")
	v.waitText(".connection", "Live")
	v.until(background+` === %s`, light)
	other := profile.openView(g.origin() + "/")
	other.setTheme("dark")
	other.waitText(".connection", "Live")
	other.until(background+` === %s`, light)
	eval[any](v.tab, look+`.click(), 0`)
	eval[any](v.tab, look+`.click(), 0`) // the system's
	other.until(background+` === %s`, dark)
	v.checkFaults(g.origin())
}

// tabTo presses Tab until what a selector names has the focus.
func (v *view) tabTo(selector string) {
	v.t.Helper()
	for range 80 {
		if eval[bool](v.tab, `document.activeElement.matches(%s)`, selector) {
			return
		}
		v.press(kb.Tab)
	}
	v.t.Fatalf("80 times Tab do not lead to %s", selector)
}

// TestPageByKeys starts a session, prompts it, answers what it asks, interrupts it, finds something
// in it and stops it, with the keyboard alone.
func TestPageByKeys(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	v := h.browser().profile(t).openView(h.link())
	v.waitText(".connection", "Live")
	v.press("n")
	v.waitText("dialog h2", "New session")
	v.tabTo("#start-host")
	v.press("l") // local
	v.tabTo("#start-cwd")
	v.press(kb.End)
	v.press(kb.Home, chromedp.KeyModifiers(chromedp.ModifierShift))
	v.press(h.path("work"))
	v.tabTo("#start-label")
	v.press("by keys\r")
	v.waitNoDialog()
	v.waitText(".session h2", "by keys")

	prompt := func(text string) {
		t.Helper()
		v.press("/")
		v.until(`document.activeElement.id === "prompt"`)
		v.press(text)
		v.press("\r", chromedp.KeyModifiers(chromedp.ModifierCtrl))
		v.until(`document.querySelector("#prompt").value === ""`)
		v.press(kb.Escape)
	}
	prompt(`ask:permission {"message":"May I?","detail":"make one"}`)
	v.waitText(".session .card pre", "make one")
	v.press("q")
	v.until(`document.activeElement.matches(".session .card")`)
	v.press("a")
	v.until(asksGone)
	v.waitText(".timeline", "once")

	prompt(`ask:permission {"message":"May I?","detail":"make two"}`)
	v.waitText(".session .card pre", "make two")
	v.press("q")
	v.tabTo(".session .card input")
	v.press("not now\r")
	v.until(asksGone)
	v.waitText(".timeline", "not now")

	prompt(`ask:permission {"message":"May I?","detail":"make three"}`)
	v.waitText(".session .card pre", "make three")
	v.press("i")
	v.until(asksGone)

	v.press("f")
	v.until(`document.activeElement.type === "search"`)
	v.press("deny not now")
	v.waitText(".find .count", "1 of 1")
	v.press(kb.Escape)
	v.tabTo(".session header .danger")
	v.press("\r")
	v.waitText("dialog h2", "Stop")
	v.tabTo(`dialog [type="submit"]`)
	v.press("\r")
	v.waitNoDialog()
	v.waitText(".session .chip", "ended")
	v.checkFaults(g.origin())
}
