//go:build e2e && linux

package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"tapgw/internal/client"
)

// told is a session whose host is the test, and a page that shows it.
type told struct {
	*view
	t *testing.T
	g *gateway
	s *client.HostSession
}

func newTold(t *testing.T) *told {
	t.Helper()
	h := newHome(t)
	p := &told{t: t, g: h.serve()}
	var err error
	p.s, err = client.Host(t.Context(), client.Options{URL: p.g.url, Token: h.read(".admin-token")}, client.HostOptions{
		Name: "teller", Version: "1", ID: "told", Label: "told", CWD: h.path("work"), State: func(bool, error) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.s.Close(context.Background(), "told all") })
	p.view = h.browser().profile(t).openView(h.link())
	p.waitText(".connection", "Live")
	p.visit(p.g.origin() + "/?turns#/sessions/told")
	p.waitText(".session h2", "told")
	return p
}

// TestPageTurns shows a session's timeline: long messages, code, turns, and what is looked for in them.
func TestPageTurns(t *testing.T) {
	t.Parallel()
	p := newTold(t)
	t.Run("LongMessage", func(t *testing.T) { longMessageShows(t, p) })
	p.checkFaults(p.g.origin())
}

// A long message shows its beginning at once, all of it when a person asks, and is copied whole.
func longMessageShows(t *testing.T, p *told) {
	p.s.Event("user.message", message{"content": "write much"})
	var long strings.Builder
	for i := 0; long.Len() < 600_000; i++ {
		fmt.Fprintf(&long, "- item %d\n", i)
		if i%10 == 0 {
			fmt.Fprintf(&long, "\n## Part %d\n\nSome **text** with `code`.\n\n```go\nx := %d\n```\n\n", i, i)
		}
	}
	long.WriteString("the very end")
	p.s.Event("assistant.message", message{"content": long.String()})
	p.waitText(".entry.message", "item 100")
	p.waitText(".entry.prompt", "write much")
	if text := p.text(".entry.message"); len(text) > 100_000 || strings.Contains(text, "the very end") {
		t.Errorf("the page shows %d bytes of it, want its beginning", len(text))
	}
	p.button(fmt.Sprintf("Show all (%.0f kB)", float64(long.Len())/1000))
	p.waitText(".entry.message", "the very end")
}
