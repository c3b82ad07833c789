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
