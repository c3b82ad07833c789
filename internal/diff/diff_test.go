package diff

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestString(t *testing.T) {
	text := func(s string) *string { return &s }
	tests := map[string]struct {
		name     string
		was, now *string
		want     string
	}{
		"same": {"x", text("a\n"), text("a\n"), ""},
		"created": {"d/x", nil, text("a\nb\n"),
			"--- /dev/null\n+++ b/d/x\n@@ -0,0 +1,2 @@\n+a\n+b\n"},
		"empty":   {"x", nil, text(""), "--- /dev/null\n+++ b/x\n"},
		"deleted": {"x", text("a\n"), nil, "--- a/x\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n"},
		"a line end that goes": {"x", text("a\nb\n"), text("a\nb"),
			"--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n-b\n+b\n\\ No newline at end of file\n"},
		"two hunks": {"x", text("1\n2\n3\n4\n5\n6\n7\n8\n9\n"), text("0\n1\n2\n3\n4\n5\n6\n7\n8\n"),
			"--- a/x\n+++ b/x\n@@ -1,3 +1,4 @@\n+0\n 1\n 2\n 3\n@@ -6,4 +7,3 @@\n 6\n 7\n 8\n-9\n"},
		"binary": {
			"x",
			text("\x00"),
			text("ab"),
			"Files a/x and b/x differ: a binary file, 1 bytes before and 2 now\n",
		},
		"many lines": {"x", nil, text(strings.Repeat("\n", maxLines+1)),
			"Files /dev/null and b/x differ: too many lines to compare, 0 before and 200001 now\n"},
		"a name with a line end": {"x\n+++ b/y", nil, text(""),
			"--- /dev/null\n+++ \"b/x\\n+++ b/y\"\n"},
	}
	for name, tt := range tests {
		d := New(tt.name, tt.was, tt.now)
		if got := d.String(); got != tt.want {
			t.Errorf("%s: got\n%swant\n%s", name, got, tt.want)
		}
	}
}

// Many small changes stay small changes.
func TestManyChanges(t *testing.T) {
	numbered := func(word string, every int) string {
		var b strings.Builder
		for i := range 3000 {
			if i%every == 0 {
				fmt.Fprintf(&b, "%s %d\n", word, i)
			} else {
				fmt.Fprintf(&b, "line %d\n", i)
			}
			b.WriteString("}\n\n") // lines that occur often
		}
		return b.String()
	}
	was, now := numbered("line", 10), numbered("word", 10)
	d := New("x", &was, &now)
	if d.Added != 300 || d.Removed != 300 {
		t.Errorf("300 changed lines are +%d -%d", d.Added, d.Removed)
	}
}

// apply makes the new version from the old one and the hunks.
func apply(t *testing.T, was string, d Diff) string {
	t.Helper()
	lines := strings.SplitAfter(was, "\n")
	var b strings.Builder
	at := 0
	for _, h := range d.Hunks {
		start := max(0, h.OldStart-1)
		if h.OldLines == 0 {
			start = h.OldStart
		}
		b.WriteString(strings.Join(lines[at:start], ""))
		at = start
		for _, l := range h.Lines {
			text := l.Text + "\n"
			if l.NoEOL {
				text = l.Text
			}
			if l.Kind != Insert {
				if lines[at] != text {
					t.Fatalf("the diff has %q for line %d, which is %q", text, at+1, lines[at])
				}
				at++
			}
			if l.Kind != Delete {
				b.WriteString(text)
			}
		}
	}
	return b.String() + strings.Join(lines[at:], "")
}

// The diff of any two texts leads from the one to the other.
func FuzzNew(f *testing.F) {
	f.Add("a\nb\nc\n", "a\nc\nb\n")
	f.Add("", "x")
	f.Add("}\n}\n}\n", "}\n\n}\n")
	f.Add("a\r\nb\r\n", "a\nb")
	f.Fuzz(func(t *testing.T, was, now string) {
		d := New("x", &was, &now)
		if d.Note != "" {
			return
		}
		if got := apply(t, was, d); got != now {
			t.Errorf("from %q the diff leads to %q, want %q:\n%s", was, got, now, d.String())
		}
	})
}

// What git applies is what was meant.
func TestGitApplies(t *testing.T) {
	was, now := "a\nb\nc\nd\ne\nf\ng\nh\ni", "b\nc\nX\nd\ne\nf\ng\nh\ni\nj\n"
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "x"), []byte(was), 0o600); err != nil {
		t.Fatal(err)
	}
	d := New("x", &was, &now)
	git := exec.CommandContext(t.Context(), "git", "apply", "-")
	git.Dir, git.Stdin = dir, strings.NewReader(d.String())
	if out, err := git.CombinedOutput(); err != nil {
		t.Fatalf("git apply: %v\n%s%s", err, out, d.String())
	}
	if got, err := os.ReadFile(filepath.Join(dir, "x")); err != nil || string(got) != now {
		t.Errorf("git made %q, %v; want %q", got, err, now)
	}
}

func BenchmarkNew(b *testing.B) {
	lines := func(n int, line func(i int) string) string {
		var t strings.Builder
		for i := range n {
			t.WriteString(line(i) + "\n")
		}
		return t.String()
	}
	numbered := func(word string) func(int) string {
		return func(i int) string { return fmt.Sprintf("%s %d of a file", word, i) }
	}
	for _, bb := range []struct{ name, was, now string }{
		{"10,000 new", "", lines(10_000, numbered("line"))},
		{"10,000, every third changed", lines(10_000, numbered("line")),
			lines(10_000, func(i int) string {
				return numbered([]string{"word", "line", "line"}[i%3])(i)
			})},
		{"50,000 different", lines(50_000, numbered("line")), lines(50_000, numbered("word"))},
		{"50,000 braces", lines(50_000, func(i int) string { return "}"[:i%2] }),
			lines(50_000, func(i int) string { return "}"[:i%3/2] })},
		{"50,000 reversed", lines(50_000, numbered("line")), lines(50_000, func(i int) string {
			return numbered("line")(50_000 - i)
		})},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d := New("x", &bb.was, &bb.now)
				_ = d.String()
			}
		})
	}
}
