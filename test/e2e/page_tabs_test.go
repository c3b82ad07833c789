//go:build e2e && linux

package e2e_test

import (
	"fmt"
	"testing"
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
