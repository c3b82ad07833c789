package copilot

import (
	"fmt"
	"testing"

	"tapgw/internal/gateway"
)

// TestGoesOn: only what the runtime writes behind a command's output says that the command goes on.
func TestGoesOn(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"<command started in background with shellId: s1>":                                          "s1",
		"a\n<command with shellId: 0 is still running after 30 seconds. You will be notified.>":     "0",
		"<command started in background with shellId: s1>\n<shellId: 2 completed with exit code 0>": "",
		"<command with shellId: a b is still running>":                                              "",
		"": "",
	} {
		got := ""
		if m := goesOn.FindStringSubmatch(text); m != nil {
			got = m[1] + m[2]
		}
		if got != want {
			t.Errorf("%q: got shell %q, want %q", text, got, want)
		}
	}
}

// TestBackground: the end of a command is its own, and a shell with two commands at once tells of
// neither.
func TestBackground(t *testing.T) {
	t.Parallel()
	b := background{}
	b.add("a", gateway.Event{ID: "1"})
	b.add("b", gateway.Event{ID: "2"})
	b.add("b", gateway.Event{ID: "3"})
	for _, c := range []struct{ shell, want string }{{"a", "1 = 7"}, {"a", "none"}, {"b", "none"},
		{"c", "none"}} {
		got := "none"
		if e := b.end(c.shell, 7); e != nil {
			got = fmt.Sprint(e.ID, " = ", *e.ExitCode)
		}
		if got != c.want {
			t.Errorf("shell %s: got %s, want %s", c.shell, got, c.want)
		}
	}
	b.add("a", gateway.Event{ID: "4"})
	if e := b.end("a", 0); e == nil || e.ID != "4" {
		t.Errorf("a shell that is used again: got %+v, want command 4", e)
	}
	for i := range 2 * maxBackground {
		b.add(fmt.Sprint(i), gateway.Event{})
	}
	if len(b) != maxBackground {
		t.Errorf("%d commands are followed, want %d", len(b), maxBackground)
	}
}
