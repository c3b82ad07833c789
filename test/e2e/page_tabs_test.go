//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/chromedp/cdproto/emulation"
)

// TestPageTabs has ten tabs of one browser on ten sessions. Each shows what happens in its own, and takes a prompt: the
// six connections that a browser has to one server are not used up by what streams.
func TestPageTabs(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	p := h.browser().profile(t)
	var tabs []*view
	for i := range 10 {
		session := h.local("--label", fmt.Sprint("tab ", i))
		address := fmt.Sprintf("%s/#/sessions/%s", g.origin(), session)
		if i == 0 {
			address = h.link()
		}
		v := p.openView(address)
		if i == 0 {
			v.visit(fmt.Sprintf("%s/#/sessions/%s", g.origin(), session))
		}
		v.waitText(".session h2", fmt.Sprint("tab ", i))
		v.waitText(".connection", "Live")
		tabs = append(tabs, v)
	}
	for i, v := range tabs {
		v.fill(".composer textarea", fmt.Sprint("say hello ", i))
		v.button("Send")
		v.waitText(".entry", fmt.Sprint("say hello ", i))
	}
	for i, v := range tabs {
		v.waitText(".connection", "Live")
		if faults := v.faultsSoFar(); len(faults) > 0 {
			t.Errorf("tab %d has the faults %q, want none", i, faults)
		}
	}
}

// TestPageDrafts has a prompt that is not sent yet. It is there when the page is loaded again, for its session alone,
// and no more once it was sent.
func TestPageDrafts(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	desk, lab := h.local("--label", "desk"), h.local("--label", "lab")
	v := h.browser().profile(t).openView(h.link())
	show := func(session, label string) {
		v.visit(fmt.Sprintf("%s/?%s#/sessions/%s", g.origin(), label, session))
		v.waitText(".session h2", label)
	}
	const draft = "say half a prompt"
	show(desk, "desk")
	v.fill("#prompt", draft)
	show(lab, "lab")
	v.until(`document.querySelector("#prompt").value === ""`)
	show(desk, "desk")
	v.until(`document.querySelector("#prompt").value === %s && !document.querySelector(".composer .primary").disabled`,
		draft)
	v.button("Send")
	v.waitText(".entry", draft)
	v.until(`document.querySelector("#prompt").value === "" && !sessionStorage.length`)
	if faults := v.faultsSoFar(); len(faults) > 0 {
		t.Errorf("the page has the faults %q, want none", faults)
	}
}

// TestPageSteps goes through more sessions than the list has room for. The chosen one is always in view, and shown as
// chosen, also where the system's colours replace the page's.
func TestPageSteps(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	const n = 24
	for i := range n {
		h.local("--label", fmt.Sprint("session ", i))
	}
	v := h.browser().profile(t).openView(h.link())
	v.until(`document.querySelectorAll(".items li").length === Number(%s)`, strconv.Itoa(n))
	v.visit(g.origin() + "/?again#/sessions/" + eval[string](v.tab,
		`document.querySelector(".items a").getAttribute("href").split("/")[2]`))
	v.waitText(".connection", "Live")
	v.do("colours of the system", command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "forced-colors", Value: "active"}},
	}))
	const chosen = `[...document.querySelectorAll(".items li")].findIndex((li) => li.querySelector("[aria-current]"))`
	for i := 1; i < n; i++ {
		v.press("j")
		v.until(chosen+` === Number(%s)`, strconv.Itoa(i))
	}
	const inView = `((a, box) => a.top >= box.top - 1 && a.bottom <= Math.min(box.bottom, innerHeight) + 1)(
		document.querySelector(".items [aria-current]").getBoundingClientRect(),
		document.querySelector(".side").getBoundingClientRect())`
	v.until(inView)
	if style := eval[string](v.tab, `getComputedStyle(document.querySelector(".items [aria-current]")).outlineStyle`); style != "solid" {
		t.Errorf("with the system's colours the chosen session has the outline %q, want solid", style)
	}
	for i := n - 2; i >= 0; i-- {
		v.press("k")
		v.until(chosen+` === Number(%s)`, strconv.Itoa(i))
	}
	v.until(inView)
}
