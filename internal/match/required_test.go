package match

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlclark/regexp2"
)

func TestRequired(t *testing.T) {
	tests := []struct {
		pattern string
		want    [][]string
	}{
		{`git\s+push`, [][]string{{"git"}, {"push"}}},
		{`a`, nil}, // a letter alone is worth nothing
		{`foo|bar`, [][]string{{"foo", "bar"}}},
		{`(?:push|fetch)\b.*origin`, [][]string{{"push", "fetch"}, {"origin"}}},
		{`(?:push|(?:fetch|pull) all|)x`, nil},
		{`(?:push|f.tch)`, [][]string{{"push", "tch"}}},
		{`(?:push|f.t.)`, nil},
		{`foo|`, nil},
		{`(?:foo)?bar`, [][]string{{"bar"}}},
		{`(?:foo)*bar`, [][]string{{"bar"}}},
		{`(?:foo)+bar`, [][]string{{"foo"}, {"bar"}}},
		{`(?:foo){0,2}bar`, [][]string{{"bar"}}},
		{`(?:foo|bar){2,}?`, [][]string{{"foo", "bar"}}},
		{`(foo)\1bar`, [][]string{{"foo"}, {"bar"}}},
		{`(?=.*foo)(?!.*bar)baz`, [][]string{{"foo"}, {"baz"}}},
		{`(?<=foo)bar(?<!baz)`, [][]string{{"bar"}}},
		{`(?i)foo`, nil},
		{`(?i:foo)bar`, [][]string{{"bar"}}},
		{`[^"]*`, nil},
		{`\ud800foo`, nil},
		{strings.Repeat("ab.", 20), slices.Repeat([][]string{{"ab"}}, maxRequired)},
		{strings.Repeat("ab|", 20) + "cd", nil},
	}
	for _, tt := range tests {
		if got := requiredTexts(parse(tt.pattern)); !slices.EqualFunc(got, tt.want, slices.Equal) {
			t.Errorf("%s: got %q, want %q", tt.pattern, got, tt.want)
		}
	}
}

// TestRequiredIsInEveryMatch shows that a text that the engine matches is never ruled
// out before, neither by required texts nor by their pairs.
func TestRequiredIsInEveryMatch(t *testing.T) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, seed))
	matches, ruledOut := 0, 0
	for range 4000 {
		expr, text := randomPattern(random, 3), randomText(random)
		re, err := regexp2.Compile(expr, regexp2.ECMAScript)
		if err != nil {
			continue
		}
		re.MatchTimeout = 100 * time.Millisecond // of what explodes, nothing can be said
		found, err := re.MatchString(text)
		if err != nil {
			continue
		}
		p, err := Compile(expr)
		if err != nil {
			t.Fatal(err)
		}
		s := NewIndexedText(text)
		p.re = nil // what is left is what comes before the engine
		switch {
		case found && p.Match(s) == No:
			t.Fatalf("%q matches %q, but %q is taken for required", expr, text, p.required)
		case found:
			matches++
		case p.Match(s) == No:
			ruledOut++
		}
	}
	if matches < 400 || ruledOut < 400 {
		t.Errorf(
			"%d patterns matched and %d were ruled out: the test shows little, want at least 400 and at least 400",
			matches, ruledOut,
		)
	}
}

func randomPattern(r *rand.Rand, depth int) string {
	var b strings.Builder
	for range 1 + r.IntN(3) {
		if depth == 0 || r.IntN(2) == 0 {
			atoms := []string{"ab", "aab", "ba", "a", "b", "é", `"a`, ".", "[ab]", `\w`, `\b`, "^",
				"$", "/b"}
			b.WriteString(atoms[r.IntN(len(atoms))])
		} else {
			open := []string{"(", "(?:", "(?=", "(?!", "(?<=", "(?<!", "(?i:", "(?>"}[r.IntN(8)]
			b.WriteString(open + randomPattern(r, depth-1) + ")")
		}
		b.WriteString([]string{"", "", "", "*", "+", "?", "{2}", "{0,2}", "+?", "{2,}",
			"|"}[r.IntN(11)])
	}
	return b.String()
}

func randomText(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(12) {
		b.WriteString([]string{"a", "b", "A", "ab", "é", `"`, "/", " "}[r.IntN(8)])
	}
	return b.String()
}

// TestAffordable shows that a pattern with a slow step is tried on shorter texts, and
// that usual patterns are not.
func TestAffordable(t *testing.T) {
	for _, expr := range []string{`\s`, `\S+`, `[^\s"'\\]+`, `(?i)[a-z]+`, `[\w.-]+@[\w.-]+`,
		`\p{L}+`,
		`(?:push|fetch|pull|clone)\b`, `git push origin main`} {
		if got := affordableText(parse(expr)); got != maxText {
			t.Errorf("%s is tried on %d bytes only, want %d", expr, got, maxText)
		}
	}
	var chars strings.Builder
	for r := 'Ā'; chars.Len() < 900; r += 2 {
		chars.WriteRune(r)
	}
	p, err := Compile("[^" + chars.String() + "]y")
	if err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int]Result{2: Yes, maxText: Undecided} {
		if got := p.Match(NewText(strings.Repeat("x", size-1) + "y")); got != want {
			t.Errorf("on %d bytes: got %d, want %d", size, got, want)
		}
	}
}
