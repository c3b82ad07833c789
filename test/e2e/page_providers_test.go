//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp/kb"
)

// waitProvider waits until a provider stands in the list with a state, and its row has these buttons.
func (v *view) waitProvider(name, state string, buttons ...string) {
	v.t.Helper()
	v.until(`[...document.querySelectorAll(".providers tbody tr")].some((tr) =>
		tr.querySelector("th a").textContent === %s && tr.querySelector(".chip").textContent === %s &&
		[...tr.querySelectorAll("button")].filter((b) => !b.hidden).map((b) => b.textContent).join() ===
			(%s ?? []).join())`, name, state, buttons)
}

// TestPageProviders goes through providers in all their states: what does not run says why and offers what would work,
// a stopped one is started again, and one that ends again and again has its reason, next start and log where it stands.
func TestPageProviders(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serveFiles()
	session := h.local("--label", "desk")
	weather := fmt.Sprintf("kind = \"command\"\nname = \"weather\"\ncommand = [%q, \"__demo-provider\"]\n", tapgw)
	h.put("providers/sky.toml", weather)
	h.put("providers/off.toml", weather+"enabled = false\n")
	h.put("providers/nobody.toml", weather+"sessions = { label = \"nobody\" }\n")
	g.peer(session, "guest")
	v := h.browser().profile(t).openView(h.link(), bypassPolicy())
	v.waitText(".connection", "Live")
	v.show("Providers")
	v.waitProvider("sky", "running", "Restart", "Stop…")
	v.waitProvider("off", "stopped")
	v.waitText(".providers td", "enabled = false")
	v.waitProvider("nobody", "waiting", "Stop…")
	v.waitProvider("guest", "bound", "Stop…")
	v.waitText(".providers td", "only who started it can start it again")

	// What is wrong stands where it is: the line above all views leads there.
	eval[any](v.tab, `window.nexts = new Set(), new MutationObserver(() => {
		for (const el of document.querySelectorAll(".provider ~ *, .next time")) nexts.add(el.textContent);
	}).observe(document.querySelector(".providers"), { subtree: true, childList: true, characterData: true }), 0`)
	h.put("providers/wrong.toml", "kind = \"command\"\ncomand = [\"ci\"]\n")
	h.put("providers/loops.toml", "kind = \"command\"\ncommand = [\"sh\", \"-c\", \"echo going under; exit 3\"]\n")
	v.waitProvider("wrong", "failed")
	v.waitProvider("loops", "failed", "Start", "Stop…")
	v.until(`[...nexts].some((text) => text.startsWith("in "))`)
	v.until(`document.querySelector(".banners").textContent === "2 providers with a fault: loops, wrong"`)
	v.show("Activity")
	v.focusOn(`.banner a[href$=loops]`)
	v.press(kb.Enter)
	v.waitText(".provider h2", "loops")
	v.waitText(".provider .why-now", "not started again after 5 failures in a minute")
	v.waitText(".provider .entry", "going under")
	v.waitText(".provider .faults", "loops.toml:1:1")
	v.checkEverywhere("providers-failed")
	h.put("providers/loops.toml", weather+"prefix = \"my_\"\n")
	v.waitProvider("loops", "running", "Restart", "Stop…")
	v.waitText(".toollist", "my_get_weather")
	v.until(`!document.querySelector(".providers .next:not([hidden])")`)

	// There and back, with the keyboard alone.
	v.focusOn(`[aria-label="Stop… sky"]`)
	v.press(kb.Enter)
	v.waitText("dialog", "It stays stopped until somebody starts it")
	v.focusOn(`dialog [type=submit]`)
	v.press(kb.Enter)
	v.waitNoDialog()
	v.waitProvider("sky", "stopped", "Start")
	h.toolsAre(session, map[string]string{"my_get_weather": ""})
	v.focusOn(`[aria-label="Start sky"]`)
	v.press(kb.Enter)
	v.waitProvider("sky", "running", "Restart", "Stop…")
	h.toolsAre(session, map[string]string{"my_get_weather": "", "get_weather": ""})
	h.removeFile("providers/loops.toml")
	v.waitText(".provider .why-now", "No file names it, and it is not connected.")
	v.checkFaults(g.origin())
}
