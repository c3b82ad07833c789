//go:build e2e && linux

package e2e_test

import (
	"testing"

	"github.com/chromedp/chromedp/kb"

	"tapgw/internal/adminapi"
)

// hostile is a text that somebody made to break a page or to look like another one.
const hostile = "<img src=x onerror=alert(1)>\x1b[31mred\x07 \u202egpj.exe"

// hostileShown is how the page has it.
const hostileShown = `<img src=x onerror=alert(1)>\u001b[31mred\u0007 \u202egpj.exe`

// hostileSource makes a source whose command prints a hostile line. It has run once when this
// returns.
func (h *home) hostileSource(name string) {
	h.t.Helper()
	h.put("work/hostile", hostile+"\n")
	h.put("providers/"+name+".toml", "kind = \"source\"\nrun = [\"cat\", \"hostile\"]\ncwd = \""+
		h.path("work")+"\"\nevery = \"1h\"\nlevel = \"keep\"\n")
	h.waitSource(name, func(s adminapi.Source) bool {
		return s.Runs == 1 && s.State == adminapi.SourceWaiting
	})
}

// focusOn presses Tab until an element has the focus, as somebody without a mouse does.
func (v *view) focusOn(selector string) {
	v.t.Helper()
	for range 60 {
		if eval[bool](v.tab, `Boolean(document.activeElement?.matches(%s))`, selector) {
			return
		}
		v.press(kb.Tab)
	}
	v.t.Fatalf("60 times Tab do not lead to %s, want them to", selector)
}

// TestPageSources looks at a source with the keyboard alone: its state, its log, its events. It
// runs, stops and starts it, and follows what somebody else does.
func TestPageSources(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serveFiles()
	session := h.local("--label", "desk")
	v := h.browser().profile(t).openView(h.link(), bypassPolicy())
	v.waitText(".connection", "Live")
	v.show("Sources")
	v.waitText(".sources .start", "No file names a source")
	v.checkWidths("sources-empty")

	h.hostileSource("build")
	v.waitText(".sources tbody th", "build")
	v.waitText(".sources .next", "in ")
	v.waitText(".sources .session", "all")
	v.focusOn(".sources tbody a")
	v.press(kb.Enter)
	v.until(`location.hash === "#/sources/build"`)
	v.waitText(".detail .entry", hostileShown)
	v.waitText(".detail .said-list", hostileShown)
	v.waitText(".detail .said-list", "desk")
	v.checkWidths("source")

	h.put("providers/broken.toml", "kind = \"source\"\nrun = [\"not-there\"]\n")
	v.waitText(".sources .why", "not-there")
	h.removeFile("providers/broken.toml")
	v.until(`document.querySelectorAll(".sources tbody tr").length === 1`)

	v.focusOn(`[aria-label="Run now build"]`)
	v.press(kb.Enter)
	h.waitSource("build", func(s adminapi.Source) bool { return s.Runs == 2 })
	v.until(`document.querySelector(".sources .runs").textContent === "2"`)
	v.until(`document.querySelectorAll(".said-list li").length === 2`)
	v.focusOn(`[aria-label="Stop… build"]`)
	v.press(kb.Enter)
	v.waitText("dialog", "Stop the source?")
	v.focusOn(`dialog [type=submit]`)
	v.press(kb.Enter)
	v.waitNoDialog()
	v.waitText(".sources .chip", "stopped")
	v.focusOn(`[aria-label="Start build"]`)
	v.press(kb.Enter)
	v.waitText(".sources .chip", "waiting")

	h.tapctl("sources", "stop", "build")
	v.waitText(".sources .chip", "stopped")
	h.tapctl("sessions", "stop", session)
	h.removeFile("providers/build.toml")
	v.waitText(".detail .entry", "No file names this source now.")
	v.waitText(".sources .start", "No file names a source")
	if n := eval[int](v.tab, `document.querySelectorAll("main img").length`); n > 0 {
		t.Errorf("the page has %d pictures that a command printed, want none", n)
	}
	v.checkFaults(g.origin())
}

// TestPageRestart: the page is where it was when the gateway is restarted, and when the browser has
// signed in again.
func TestPageRestart(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serveFiles()
	h.local("--label", "desk")
	h.hostileSource("build")
	v := h.browser().profile(t).openView(h.link())
	v.waitText(".connection", "Live")
	eval[any](v.tab, `location.hash = "#/sources/build", 0`)
	v.waitText(".sources tbody th", "build")
	v.waitText(".detail .entry", hostileShown)
	g.restart(func() {
		v.waitText(".connection", "Connection lost")
	}, "--config", h.path("tapgw.toml"))
	v.waitText(".connection", "Live") // it is signed in still
	v.waitText(".sources tbody th", "build")
	v.waitText(".detail h2", "build")
	eval[any](v.tab, `location.hash = "#/records/kind=source", 0`)
	v.waitText(".record", "build") // of the gateway before
	h.tapctl("open", "--sign-out")
	v.waitText("main", "tapctl open")
	v.reload()
	v.fill("#credential", h.link())
	v.press("\r")
	v.waitText(".record", "build")
}
