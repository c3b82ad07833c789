package markdown

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

func TestRender(t *testing.T) {
	tests := []struct{ name, source, want string }{
		{"heading", "## A *b*", "## A b"},
		{"paragraph", "one two three four five", "one two three four\nfive"},
		{"hard break", "a  \nb", "a\nb"},
		{"list", "- a\n- b\n  - c\n", "• a\n• b\n  • c"},
		{"ordered", "3. a\n4. b", "3. a\n4. b"},
		{"loose list", "- a\n\n- b", "• a\n\n• b"},
		{"tasks", "- [x] a\n- [ ] b", "• ☑ a\n• ☐ b"},
		{"quote", "> a\n>\n> b", "│ a\n│\n│ b"},
		{"code is not wrapped", "```go\nfunc main() { println(1, 2) }\n```",
			"    func main() { println(1, 2) }"},
		{"link", "[a](http://b.example)", "a (http://b.example)"},
		{"table", "|a|bb|\n|-|-|\n|ccc|d|", "a   │ bb\n────────\nccc │ d"},
		{"wide table", "|a|b|\n|-|-|\n|ccccccccc|ddddddddddd|",
			"a │ b\n────────────────────\nccccccccc │\nddddddddddd"},
		{"entity", "a &lt; b &amp; c", "a < b & c"},
		{"html", "a <b>c</b>", "a <b>c</b>"},
		{"wide characters", "日本語日本語日本語日本語", "日本語日本語日本語日\n本語"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := (Renderer{Width: 20}).Render(test.source); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestStylesComeBack(t *testing.T) {
	got := Renderer{Width: 80, Color: true}.Render("**a `b` c**")
	want := "\x1b[1ma \x1b[36mb\x1b[0m\x1b[1m c\x1b[0m"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestHostileText(t *testing.T) {
	tests := map[string]string{
		"escape sequence":       "a \x1b[31mred\x1b]0;title\x07 \u009b2J",
		"as character entity":   "a &#27;[31m &#x9b;2J",
		"in code":               "```\n\x1b[2J\n```\n`\x1b[2J`",
		"in an address":         "[a](<http://x\x1b[2J>)",
		"carriage return":       "good\rbad",
		"direction":             "a \u202e b \u2066",
		"nested quotes":         strings.Repeat(">", 16<<10) + "a",
		"nested lists":          strings.Repeat("- ", 8<<10) + "a",
		"nested emphasis":       strings.Repeat("*a ", 5<<10),
		"brackets":              strings.Repeat("[", 16<<10),
		"columns":               strings.Repeat("|a", 5<<10) + "\n" + strings.Repeat("|-", 5<<10),
		"open fence":            "```\n" + strings.Repeat("x", 1<<20),
		"endless line":          strings.Repeat("word ", 200<<10),
		"endless line unbroken": strings.Repeat("x", 1<<20),
	}
	for name, source := range tests {
		t.Run(name, func(t *testing.T) {
			s := Stream{Renderer: Renderer{Width: 80}}
			var out strings.Builder
			for len(source) > 0 {
				n := min(len(source), 4096)
				out.WriteString(s.Add(source[:n]))
				if coming := s.Coming(); len(coming) > 40*maxPending {
					t.Fatalf("%d bytes are coming, want at most %d", len(coming), 40*maxPending)
				}
				source = source[n:]
			}
			out.WriteString(s.End())
			if got := out.String(); clean(got) != got {
				t.Errorf(
					"the terminal gets %.200q, want no control character but those of the renderer",
					got)
			}
		})
	}
}

func TestStreamGivesOutBlocksAsTheyEnd(t *testing.T) {
	steps := []struct{ piece, done, coming string }{
		{"# Tit", "", "# Tit"},
		{"le\nsome ", "# Title\n", "\nsome"},
		{"text\n", "", "\nsome text"},
		{"\n", "", "\nsome text"},
		{"- a\n", "\nsome text\n", "\n• a"},
		{"  b\n\n  c\n", "", "\n• a b\n\n  c"},
		{"```go\n", "\n• a b\n\n  c\n\n", ""},
		{"x :=", "", "    x :="},
		{" 1\n\n", "    x := 1\n\n", ""},
		{"# no heading\n", "    # no heading\n", ""},
		{"```\n", "", ""},
		{"end", "", "\nend"},
	}
	s := Stream{Renderer: Renderer{Width: 40}}
	for _, step := range steps {
		if got := s.Add(step.piece); got != step.done {
			t.Fatalf("after %q got %q, want %q", step.piece, got, step.done)
		}
		if got := s.Coming(); got != step.coming {
			t.Fatalf("after %q got %q coming, want %q", step.piece, got, step.coming)
		}
	}
	if got, want := s.End(), "\nend\n"; got != want {
		t.Errorf("at the end got %q, want %q", got, want)
	}
}

// FuzzStream holds that no text is lost, whatever the pieces, and that no control character comes
// out.
func FuzzStream(f *testing.F) {
	f.Add("# a\n\n- b\n\n  ```\n  c\n  ```\n\n> d\n", 3)
	f.Add("```go\nx\x1b[2J", 1)
	f.Add("a &#27; | b\n-|-\n", 7)
	f.Fuzz(func(t *testing.T, source string, n int) {
		s := Stream{Renderer: Renderer{Width: 30}}
		var out strings.Builder
		for rest := source; rest != ""; {
			k := min(max(n, 1), len(rest))
			out.WriteString(s.Add(rest[:k]))
			_ = s.Coming()
			rest = rest[k:]
		}
		out.WriteString(s.End())
		got := out.String()
		if clean(got) != got {
			t.Errorf("%q became %q, want %q, without control characters", source, got, clean(got))
		}
		for line := range strings.Lines(got) {
			if w := ansi.StringWidth(line); w > 30+maxPending {
				t.Errorf("%q became a line of %d columns, want at most %d", source, w,
					30+maxPending)
			}
		}
	})
}
