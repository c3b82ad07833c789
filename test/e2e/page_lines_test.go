//go:build e2e && linux

package e2e_test

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"tapgw/internal/client"
)

// TestPageLongLines has long lines and words in each kind of entry, on a desk and on a phone:
// nothing is cut off at the right, and each button that copies is in view.
func TestPageLongLines(t *testing.T) {
	t.Parallel()
	h := newHome(t)
	g := h.serve()
	s, err := client.Host(t.Context(), client.Options{URL: g.url, Token: h.read(".admin-token")},
		client.HostOptions{
			Name: "teller", Version: "1", ID: "long", Label: "long", CWD: h.path("work"),
			State: func(bool, error) {},
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background(), "told all") })
	v := h.browser().profile(t).openView(h.link())
	v.waitText(".connection", "Live")
	v.waitText(".session h2", "long")
	long := strings.Repeat("x", 700)
	s.Event("user.message", message{"content": "prompt " + long})
	s.Event("assistant.message", message{"content": "word " + long + "\n\n```\ncode " + long +
		"\n```\n\n`inline " + long + "`\n\n| a | b |\n|---|---|\n| " + long + " | c |"})
	s.Event("tool.execution_complete", message{"tool": "read", "args": message{"path": long},
		"result": message{"type": "success", "output": "line " + long}})
	h.tapctl("push", "--session", "long", "--level", "surface", "event "+long)
	v.waitText(".entry.push", "event xxx")
	v.waitText(".entry.tool", "read")
	v.click(".entry.tool summary")
	v.waitText(".entry.tool .part", "line xxx")
	for _, width := range []int64{1280, 360} {
		v.do("changing the width", chromedp.EmulateViewport(width, 900))
		v.until(`[...document.querySelectorAll(".entry, .entry *")].every((e) =>
			e.getBoundingClientRect().right <= innerWidth + 1 || e.closest("pre *, .wide *") || !e.checkVisibility())`)
		v.until(`document.querySelectorAll(".entry.tool .copy").length === 2 &&
			[...document.querySelectorAll(".copy")].every((e) => e.getBoundingClientRect().right <= innerWidth)`)
	}
}
