package search

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ignoring are the files of the trees of these tests.
var ignoring = []string{
	"a", "b", "ab", "a.log", "b.log", "a b", "#x", "!x", "x ", "-", "]", "[", "\\", "A", "1",
	"d/a", "d/b", "d/a.log", "d/e/a", "d/e/f/a", "d/e/f/b.log", "d/log/a", "log/a", "log/d/b",
	"e/a", "e/d/a", "a.d/x", "d*/a", "d/.h", ".h/a",
}

// ignoredLike compares the files of a Tree with those that git lists.
func ignoredLike(t *testing.T, tr Tree, rules, deeper string) {
	t.Helper()
	for name, text := range map[string]string{".gitignore": rules, "d/.gitignore": deeper} {
		if err := os.WriteFile(filepath.Join(tr.Dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := strings.FieldsFunc(git(t, tr.Dir, "ls-files", "-o", "-z", "--exclude-standard"),
		func(r rune) bool { return r == 0 })
	slices.Sort(want)
	got := list(t, tr, nil)
	if !slices.Equal(got, want) {
		t.Errorf("rules %q, in d %q: got %q, want %q as of git", rules, deeper, got, want)
	}
}

func repository(t *testing.T) Tree {
	t.Helper()
	files := make(map[string]string)
	for _, f := range ignoring {
		files[f] = ""
	}
	tr := tree(t, files)["own"]
	git(t, tr.Dir, "init", "-q")
	git(t, tr.Dir, "config", "core.ignorecase", "false")
	return tr
}

func TestIgnoreLikeGit(t *testing.T) {
	tr := repository(t)
	for _, rules := range []string{
		"", "a", "/a", "a/", "d/", "d/a", "/d/a", "*.log", "*.log\n!a.log", "d\n!d/a", "d/*\n!d/a",
		"**/a", "a/**", "d/**", "d/**/a", "**", "**/", "*", "*/", "*\n!*/\n!*.log",
		"# a\na", "\\#x", "\\!x", "!x", "x\\ ", "x ", "a\\ b", "a b  ", "a\r\nb", "\uFEFFa", "[ab]",
		"[!a]", "[^a]",
		"[a-b]", "[]]", "[]-]", "[\\]]", "[[:alpha:]]", "[[:digit:][:upper:]]", "[[:nope:]]", "[a",
		"[", "[]", "[!]",
		"\\", "a\\", "\\a", "\\\\", "a**", "**a", "d/**a", "***", "***/a", "a***b", "d/***/a", "?",
		"??", "d?a",
		"d[/]a", "d[.-0]a", "d/[!b]", "/", "//", "/*", "/*/a", "*/a", "*/*/a", "log/", "/log", "*d",
		"d/e/f", "d//a", "!", "!!a", "{a,b}", "*.{log,x}", "a.d/", ".*", "-", "[+--]", "[---]",
	} {
		ignoredLike(t, tr, rules, "")
	}
	for _, deeper := range []string{"/a", "!a", "e/", "!e/", "**/a", "!*.log", "/e/f/*", "../a",
		"*"} {
		ignoredLike(t, tr, "a\n*.log\n", deeper)
	}
}

// quirk matches a ** behind a part of a name. By gitignore(5) and in ripgrep it means
// two *; git itself reads it differently.
var quirk = regexp.MustCompile(`[^/\n!]\*\*/`)

// A ? matches one character, as in ripgrep, and not one byte, as in git.
func TestIgnoreCharacters(t *testing.T) {
	for rule, want := range map[string]bool{"é": true, "?": true, "??": false, "[é]": true,
		"[à-ü]": true,
		"[!é]":  false, "[!a]": true} {
		if got := ignores(nil).with(rule, ".").isIgnored("é", false); got != want {
			t.Errorf("%s ignores é: %v, want %v", rule, got, want)
		}
	}
}

// Random rules ignore the same files as in git.
func TestIgnoreLikeGitAtRandom(t *testing.T) {
	tr := repository(t)
	r := rand.New(rand.NewPCG(7, 7))
	pieces := []string{"a", "b", "d", "e", "f", ".log", "*", "**", "?", "/", "/", "[ab]", "[!a]",
		"\\", "!", " ", "\n", "\n", "**/", "/**"}
	random := func() string {
		var b strings.Builder
		for range 1 + r.IntN(8) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		return b.String()
	}
	for range 100 {
		rules, deeper := random(), random()
		if quirk.MatchString(rules + "\n" + deeper) {
			continue
		}
		ignoredLike(t, tr, rules, deeper)
		if t.Failed() {
			return
		}
	}
}

// No rules and no path cause a panic.
func FuzzIgnore(f *testing.F) {
	f.Add("*.log\n!a.log\n/d/**/x\n", "d/e/x")
	f.Add("[[:alpha:]-\\]]?\\", "\xff")
	f.Add("[z-a]\n[é-\xff]\n", "é")
	f.Fuzz(func(t *testing.T, text, path string) {
		rules := ignores(nil).with(text, "d")
		if rules.isIgnored("x/"+path, false) {
			t.Errorf("rules of d ignore x/%q, want them to hold in d only", path)
		}
		rules.isIgnored("d/"+path, true)
	})
}
