//go:build e2e && linux

package e2e_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"

	"tapgw/internal/client"
	"tapgw/internal/protocol"
)

// TestPageTabs has ten tabs of one browser on ten sessions. Each shows what happens in its own, and
// takes a prompt, an answer and an interrupt: the six connections that a browser has to one server
// are not used up by what streams.
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
	// A question is answered in the one, and a turn is interrupted in another one, while all others
	// stream.
	for i, v := range tabs {
		v.fill(".composer textarea", fmt.Sprintf(`ask:input {"message":"Which of %d?"}`, i))
		v.button("Send")
		v.waitText(".session .card", fmt.Sprintf("Which of %d?", i))
		v.waitText(".chip", "busy")
	}
	for i, v := range tabs {
		if i%2 == 0 {
			v.fill(".session .card input", fmt.Sprint("this of ", i))
			v.press("\r")
			v.waitText(".entry", fmt.Sprint("this of ", i))
		} else {
			v.button("Interrupt")
		}
		v.until(
			`!document.querySelector(".session .card") && document.querySelector(".session .chip").textContent === "idle"`)
	}
	for i, v := range tabs {
		v.waitText(".connection", "Live")
		if faults := v.faultsSoFar(); len(faults) > 0 {
			t.Errorf("tab %d has the faults %q, want none", i, faults)
		}
	}
}

// TestPageDrafts has a prompt that is not sent yet. It is there when the page is loaded again, for
// its session alone, and no more once it was sent.
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
	v.until(
		`document.querySelector("#prompt").value === %s && !document.querySelector(".composer .primary").disabled`,
		draft)
	v.button("Send")
	v.waitText(".entry", draft)
	v.until(`document.querySelector("#prompt").value === "" && !sessionStorage.length`)
	if faults := v.faultsSoFar(); len(faults) > 0 {
		t.Errorf("the page has the faults %q, want none", faults)
	}
}

// TestPageDraftStays has a prompt that is not sent when the gateway is restarted. It is in the open
// page when the session is back, and can be sent.
func TestPageDraftStays(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	prompts := make(chan string, 1)
	s, err := client.Host(t.Context(), client.Options{URL: g.url, Token: h.read(".admin-token")},
		client.HostOptions{
			Name: "teller", Version: "1", ID: "desk", Label: "desk", CWD: h.path("work"),
			State: func(bool, error) {},
		})
	if err != nil {
		t.Fatal(err)
	}
	v := h.browser().profile(t).openView(h.link())
	v.waitText(".session h2", "desk")
	v.fill("#prompt", "half")
	s.Close(t.Context(), "the gateway starts anew")
	g = g.restart(func() { v.waitText(".connection", "Connection lost") })
	v.waitText(".connection", "Live")
	s, err = client.Host(t.Context(), client.Options{URL: g.url, Token: h.read(".admin-token")},
		client.HostOptions{
			Name: "teller", Version: "1", ID: "desk", Label: "desk", CWD: h.path("work"),
			State: func(bool, error) {},
			Send:  func(p protocol.HostPrompt) { prompts <- p.Prompt },
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background(), "told all") })
	v.until(
		`document.querySelector("#prompt").checkVisibility() && document.querySelector("#prompt").value === "half"`)
	v.button("Send")
	select {
	case got := <-prompts:
		if got != "half" {
			t.Errorf("the session got the prompt %q, want half", got)
		}
	case <-time.After(patience):
		t.Fatal("the session got no prompt")
	}
	v.until(`document.querySelector("#prompt").value === "" && !sessionStorage.length`)
}

// TestPageSteps goes through more sessions than the list has room for. The chosen one is always in
// view, and shown as chosen, also where the system's colours replace the page's.
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
	v.do("colours of the system",
		command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "forced-colors", Value: "active"}},
		}))
	const chosen = `[...document.querySelectorAll(".items li")].findIndex((li) => li.querySelector("[aria-current]"))`
	v.until(chosen + ` === 0`) // the list is there
	for i := 1; i < n; i++ {
		v.press("j")
		v.until(chosen+` === Number(%s)`, strconv.Itoa(i))
	}
	const inView = `((a, box) => a.top >= box.top - 1 && a.bottom <= Math.min(box.bottom, innerHeight) + 1)(
		document.querySelector(".items [aria-current]").getBoundingClientRect(),
		document.querySelector(".side").getBoundingClientRect())`
	v.until(inView)
	if style := eval[string](v.tab,
		`getComputedStyle(document.querySelector(".items [aria-current]")).outlineStyle`); style != "solid" {
		t.Errorf("with the system's colours the chosen session has the outline %q, want solid",
			style)
	}
	for i := n - 2; i >= 0; i-- {
		v.press("k")
		v.until(chosen+` === Number(%s)`, strconv.Itoa(i))
	}
	v.until(inView)
}
