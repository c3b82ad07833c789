package console

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"tapgw/internal/diff"
)

func newDiff(name, was, now string) *diff.Diff {
	d := diff.New(name, &was, &now)
	return &d
}

// A diff shows what a person needs to see, and nothing that a terminal obeys.
func TestShowDiff(t *testing.T) {
	tests := map[string]struct {
		d    *diff.Diff
		view diffView
		want string
	}{
		"plain": {newDiff("x", "a\nb\n", "a\nc"), diffView{},
			"changed x +1 -1\n  @@ -1,2 +1,2 @@\n   a\n  -b\n  +c (no line end)"},
		"colours": {newDiff("x", "b\n", "c\n"), diffView{color: true},
			"\x1b[01mchanged x +1 -1\x1b[0m\n" +
				"  \x1b[34m@@ -1 +1 @@\x1b[0m\n  \x1b[31m-b\x1b[0m\n  \x1b[32m+c\x1b[0m"},
		"hostile": {newDiff("x\x1b[2J\n", "", "\x1b]0;t\a\u202eb\u200b\x1b[31m\r\n\xff\n"),
			diffView{},
			`changed x\x1b[2J\n +2 -0` + "\n  @@ -0,0 +1,2 @@\n" +
				`  +\x1b]0;t\x07\u202eb\u200b\x1b[31m\x0d` + "\n" + `  +\xff`},
		"CR LF before and after": {newDiff("x", "a\r\n", "b\r\n"), diffView{},
			"changed x +1 -1\n  @@ -1 +1 @@\n  -a\n  +b"},
		"line ends that change": {newDiff("x", "a\r\n", "a\n"), diffView{},
			"changed x +1 -1\n  @@ -1 +1 @@\n  -a\\x0d\n  +a"},
		"binary": {newDiff("x", "\x00", ""), diffView{},
			"changed x (a binary file, 1 bytes before and 0 now)"},
	}
	for name, tt := range tests {
		if got := tt.view.show(tt.d); got != tt.want {
			t.Errorf("%s: got\n%q, want\n%q", name, got, tt.want)
		}
	}
}

func TestShowLongDiff(t *testing.T) {
	d := newDiff("x", "", strings.Repeat("line\n", 120)+strings.Repeat("é", 1000))
	got := diffView{more: "/diff shows all"}.show(d)
	if !strings.HasPrefix(got, "changed x +121 -0\n") ||
		!strings.HasSuffix(got, "\n  … 82 more lines; /diff shows all") ||
		strings.Count(got, "\n") != shownLines+1 {
		t.Errorf("a long diff shows as\n%s\nwant its size, %d lines and how to see all", got,
			shownLines)
	}
	got = diffView{all: true}.show(d)
	if strings.Count(got, "\n") != 122 || !strings.Contains(got, strings.Repeat("é", 1000)) {
		t.Errorf("all of a long diff shows as\n%s\nwant its 122 lines, none of them cut", got)
	}
	long := newDiff("x", "", strings.Repeat("é", 1000)+"\n")
	if got := (diffView{}).show(long); !strings.HasSuffix(got,
		strings.Repeat("é", 250)+" … 1500 more bytes") {
		t.Errorf("a long line shows as\n%s\nwant it cut at a whole character", got)
	}
}

// An event of --json holds a diff of bounded size that says what it lacks.
func TestDiffText(t *testing.T) {
	got := diffText([]diff.Diff{*newDiff("a", "", "1\n"),
		*newDiff("b", "", strings.Repeat("0123456\n", 100_000))})
	if !strings.HasPrefix(got, "--- a/a\n+++ b/a\n@@ -0,0 +1 @@\n+1\n--- a/b\n") ||
		len(got) > maxDiffJSON+100 || !strings.HasSuffix(got, " more bytes\n") {
		t.Errorf("got %d bytes that begin with %.50q and end in %q, want the first diff whole, "+
			"at most %d bytes, and how many more bytes there are", len(got), got, got[len(got)-40:],
			maxDiffJSON+100)
	}
}

func BenchmarkShowDiff(b *testing.B) {
	text := func(word string) string {
		var t strings.Builder
		for i := range 10_000 {
			fmt.Fprintf(&t, "\tfor i := range %s { // line %d of a file\n", word, i)
		}
		return t.String()
	}
	was, now := text("old"), text("new")
	for name, was := range map[string]*string{"new": nil, "changed": &was} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				d := diff.New("x", was, &now)
				diffView{color: true, all: true}.print(io.Discard, &d)
			}
		})
	}
}
