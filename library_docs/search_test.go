package library_docs //nolint:revive,staticcheck // see doc.go

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// library makes a library of sections that are each given as "heading: text".
func library(sections ...string) Library {
	lib := Library{ID: "acme", Title: "Acme", Description: "A library."}
	for _, s := range sections {
		heading, text, _ := strings.Cut(s, ": ")
		lib.Sections = append(lib.Sections, newSection(heading, "## "+heading+"\n\n"+text))
	}
	return lib
}

func headings(sections []Section) string {
	var names []string
	for _, s := range sections {
		names = append(names, s.Heading)
	}
	return strings.Join(names, " ")
}

func TestRank(t *testing.T) {
	lib := library(
		"Intro: wait once",
		"Waiting: nothing else",
		"Clicks: wait wait wait wait click",
		"Rows: rows of a browser",
		"Other: unrelated, throws",
		"Empty: ",
	)
	tests := []struct{ query, want string }{
		{"wait", "Clicks Waiting Intro"},                  // 4; 1 and 2 for the heading; 1
		{"WAIT", "Clicks Waiting Intro"},                  // case does not count
		{"click", "Clicks"},                               // in the heading and in the text
		{"row", "Rows"},                                   // short: not in "browser" and "throws"
		{"row rows Row", "Rows"},                          // a term counts once, with or without s
		{"how to wait for the x", "Clicks Waiting Intro"}, // fillers and single letters don't count
		{"of", "Rows"},                                    // but where there is nothing else
		{"acme wait", "Clicks Waiting Intro"},             // nor does the library's name
		{"other", "Other"},
		{"intro", "Intro"},
		{"once wait", "Clicks Waiting Intro"}, // 4, 3, 2
		{"zebra", ""},
		{"", ""},
		{" ?! ", ""},
		{"empty", "Empty"},
		{"waiting", "Waiting"},
	}
	for _, tt := range tests {
		t.Run(tt.query, func(t *testing.T) {
			if got := headings(lib.rank(tt.query)); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// Of equal scores, the section with more terms comes first, then the earlier one. An
// exact heading comes before any score.
func TestRankTies(t *testing.T) {
	lib := library("One: red red", "Two: red blue", "Three: blue blue",
		"Four: Two Two Two Two Two Two")
	if got, want := headings(lib.rank("red blue")), "Two One Three"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := headings(lib.rank(" two ")), "Two Four"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A search returns at most the eight best sections.
func TestRankTop(t *testing.T) {
	var sections []string
	for i := range 20 {
		sections = append(sections, fmt.Sprintf("H%02d: %s", i, strings.Repeat("term ", i)))
	}
	if got, want := headings(
		library(sections...).rank("term")), "H19 H18 H17 H16 H15 H14 H13 H12"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestScoreAgainstReference compares scores with a simple implementation of the rule:
// the occurrences of each term, and two more for a term in the heading.
func TestScoreAgainstReference(t *testing.T) {
	reference := func(s Section, query string) (score int) {
		for term := range strings.FieldsSeq(query) {
			for i := range s.Text {
				if i+len(term) <= len(s.Text) && strings.EqualFold(s.Text[i:i+len(term)], term) {
					score++
				}
			}
			if strings.Contains(strings.ToLower(s.Heading), term) {
				score += 2
			}
		}
		return score
	}
	for _, lib := range Bundled() {
		for _, query := range []string{"wait element", "table", "threads", "scenario step",
			"file stream",
			"browser driver", "assert"} {
			words := terms(query, lib.ID)
			for _, s := range lib.Sections {
				if got, _ := s.score(words); got != reference(s, strings.Join(words, " ")) {
					t.Errorf("%s, %q, %q: %d, want %d", lib.ID, query, s.Heading, got,
						reference(s, strings.Join(words, " ")))
				}
			}
		}
	}
}

func TestSearch(t *testing.T) {
	long := strings.Repeat("A line about waiting.\n", 60) // 1,320 characters
	code := "```java\n" + strings.Repeat("wait();\n", 200) + "```\n"

	t.Run("all fits", func(t *testing.T) {
		got := library("A: wait", "B: no", "C: wait wait").Search("wait", 4000)
		if want := "## C\n\nwait wait\n\n## A\n\nwait"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("what does not fit is cut and named", func(t *testing.T) {
		got := library("A: "+long, "B: "+long, "C: "+long, "D: "+long).Search("waiting", 4000)
		for _, want := range []string{"## A\n", "## B\n", "## C\n",
			"\n[...]\n\n[Cut at 4000 characters.",
			`: "C", "D".]`} {
			if !strings.Contains(got, want) {
				t.Errorf("not in it: %q, want %q in it", want, want)
			}
		}
		if strings.Contains(got, "## D") {
			t.Errorf("section D is in %q, want it left out", got)
		}
	})
	t.Run("code that is cut is closed", func(t *testing.T) {
		got := library("A: "+code).Search("wait", 1000)
		if !strings.Contains(got, "wait();\n```\n[...]") {
			t.Errorf("got %q, want %q in it", got, "wait();\n```\n[...]")
		}
	})
	t.Run("nothing found", func(t *testing.T) {
		if got := library("A: wait").Search("zebra", 4000); got != "" {
			t.Errorf(`got %q, want ""`, got)
		}
	})
	t.Run("no room", func(t *testing.T) {
		for n := range 500 {
			if got := library("A: "+code, "B: "+long).Search("wait",
				n); utf8.RuneCountInString(got) > n {
				t.Fatalf("%d characters, want at most %d", utf8.RuneCountInString(got), n)
			}
		}
	})
}

func TestOverview(t *testing.T) {
	for _, lib := range Bundled() {
		got := lib.Overview(4000)
		if n := utf8.RuneCountInString(got); n > 4000 || n < 3000 {
			t.Errorf("%s: %d characters, want at most 4000 and at least 3000", lib.ID, n)
		}
		for i, s := range lib.Sections {
			if !strings.Contains(got, "\n- "+s.Heading+"\n") {
				t.Errorf("%s: got an overview without %q, want all headings", lib.ID, s.Heading)
			}
			if begun := strings.Contains(got, "\n## "+s.Heading+"\n"); begun != (i < 5) {
				t.Errorf("%s: section %d, %q, begun: %v, want %v", lib.ID, i, s.Heading, begun,
					(i < 5))
			}
		}
	}
	if got, want := library("A: a").Overview(4000),
		"# Acme\n\nA library.\n\nSections, each of them a good query:\n- A\n\n## A\n\na"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCut(t *testing.T) {
	tests := []struct {
		name, text string
		n          int
		want       string
	}{
		{"fits", "abc", 3, "abc"},
		{"characters, not bytes", "äöü", 3, "äöü"},
		{"at a paragraph", "one two three four\n\nfive six seven eight nine ten", 40,
			"one two three four\n[...]"},
		{"at a line", "one two three four\nfive six seven eight nine ten", 40,
			"one two three four\n[...]"},
		{"at a word", "one two three four five six seven eight nine", 40,
			"one two three four five\n[...]"},
		{"within a word", strings.Repeat("x", 50), 40, strings.Repeat("x", 25) + "\n[...]"},
		{"no room for anything", "one two three four", 10, ""},
		{"negative", "one", -5, ""},
		{"in a long fence", "`````\n" + strings.Repeat("code\n", 20), 60,
			"`````\n" + strings.Repeat("code\n", 7) + "`````\n[...]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := cut(tt.text, tt.n); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzSearch(f *testing.F) {
	for _, q := range []string{"", "wait for element", "data table", "virtual threads", "a", "  ",
		"é́", "\xff\xfe",
		"元素 待つ", "s s ss sss", strings.Repeat("x ", 1000), "```", "## "} {
		f.Add(q, 4000)
	}
	f.Add("table", 0)
	f.Add("table", -1)
	f.Add("table", math.MinInt)
	f.Add("table", math.MaxInt)
	f.Add("table", 450)
	f.Fuzz(func(t *testing.T, query string, n int) {
		for _, lib := range append(Bundled()[:1:1],
			library("A: ```\nwait", "元素: 待つ wait", query+": x")) {
			got := lib.Search(query, n)
			if c := utf8.RuneCountInString(got); c > max(n, 0) {
				t.Fatalf("%d characters, want at most %d", c, n)
			}
			found := lib.rank(query)
			if len(found) > maxSections || (len(found) == 0) != (got == "") && n > 500 {
				t.Fatalf(
					"%d sections found, text %q, want at most %d, and a text if there are some",
					len(found), got, maxSections,
				)
			}
			upper := strings.ToUpper(query)
			sameSections := slices.EqualFunc(found, lib.rank(upper),
				func(a, b Section) bool { return a.Text == b.Text })
			//nolint:staticcheck // EqualFold folds more
			if !sameSections && strings.ToLower(upper) == strings.ToLower(query) {
				t.Fatalf("the search for %q in capitals finds other sections, want the same", query)
			}
		}
	})
}

func FuzzParsePage(f *testing.F) {
	for _, s := range []string{"", "# T\n\nd\n\n## A\na\n## B\n", "```\n## x\n", "## \n##\n## ##",
		"\ufeff\r\n## A\r\n",
		"~~~ `\n## A"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p := parsePage("file", text)
		if len(p.sections) == 0 &&
			strings.TrimSpace(strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n",
				"\n")) != "" &&
			!strings.Contains(text, "\ufeff") {
			t.Fatalf("got no section of %q, want one", text)
		}
		for _, s := range p.sections {
			if s.Heading == "" || s.Text == "" {
				t.Fatalf("empty section %+v in %q, want a Heading and a Text", s, text)
			}
		}
	})
}
