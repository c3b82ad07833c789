//go:build e2e && linux

package e2e_test

import (
	"strings"
	"testing"
)

// TestTerminalPerson has what the person at a terminal sees and decides: the code of a provider
// that wants to pair, who has spoken, who has denied a call and why, and a turn that is stopped
// from outside. What others write makes the terminal do nothing but show it.
func TestTerminalPerson(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	h.install("--hooks", "--extension")
	m := model(t, greeter)
	x := h.terminals(m, 1).open("work", extensionsOn)
	session := x.joined()

	page := g.connect()
	page.send(message{"type": "auth", "mode": "pair", "name": "page"})
	page.next("auth.pairing")
	code := h.pairing().Code
	x.waitScreen("Provider 'page' requesting access. Pairing code: " + code)
	page.send(message{"type": "auth.confirm", "code": code})
	page.next("sessions")

	// The escapes are a title of the window, a cleared screen and a bell.
	const evil = "\x1b]0;stolen\x07\x1b[2J\u009b2J"
	h.tapctl("push", "--session", session, "--provider", "ci", "--level", "surface",
		evil+"The build is red.")
	x.waitScreen("ci: The build is red.", "Pairing code: "+code)
	h.tapctl("push", "--session", session, "--provider", "ci", "--level", "inject",
		evil+"The tests failed.")
	x.waitScreen("[from provider ci]", "The tests failed.", ready)
	x.waitHeard(`[from provider ci]\nThe tests failed.`)

	p := g.guard(session, forbids)
	x.enter(`call:bash {"command": "touch forbidden", "description": "touches"}`)
	p.deny(evil + "Nobody touches this.")
	x.waitScreen("guard: Nobody touches this.", ready)
	x.made("forbidden", false)
	title := x.must("display-message", "-p", "-t", "="+x.name+":", "#{pane_title}")
	if screen := x.screen(); strings.Contains(title+screen, "stolen") ||
		strings.Contains(screen, "2J") {
		t.Errorf("the terminal obeys or shows the escapes of others; its title is %q:\n%s", title,
			screen)
	}

	slow := h.bindProvider(session, "toolbox", "greet_all,wait_here")
	x.greets("greet_all", "Ann")
	x.enter("call:wait_here {}")
	slow.expect("called wait_here")
	h.tapctl("sessions", "interrupt", session)
	slow.expect("ended wait_here")
	x.waitScreen("Operation aborted by user", ready)
}
