package builtin

import (
	"fmt"
	"strings"
	"testing"
)

func TestFileSearch(t *testing.T) {
	tree := files{
		".gitignore": "*.log\nbuild/\n", "main.go": "", "cmd/Main.go": "", "src/app.ts": "",
		"src/deep/app.test.ts": "", "build/app.js": "", "x.log": "", ".github/ci.yml": "",
		"domain/a.txt": "",
	}
	runTools(t, "file_search", []toolTest{
		{"glob", tree, args{"query": "**/*.ts"}, "src/app.ts\nsrc/deep/app.test.ts", "", nil},
		{"glob without a slash", tree, args{"query": "*.{go,yml}"},
			".github/ci.yml\ncmd/Main.go\nmain.go", "", nil},
		{"glob, anchored", tree, args{"query": "src/*.ts"}, "src/app.ts", "", nil},
		{"below the root", tree, args{"query": "ROOT/src/**"}, "src/app.ts\nsrc/deep/app.test.ts",
			"", nil},
		{"directory", tree, args{"query": "src/"}, "src/app.ts\nsrc/deep/app.test.ts", "", nil},
		{"part of a name, the best first", tree, args{"query": "main"},
			"cmd/Main.go\nmain.go\ndomain/a.txt", "", nil},
		{"whole name first", tree, args{"query": "app.ts"}, "src/app.ts", "", nil},
		{"part of a path", tree, args{"query": "deep/app"}, "src/deep/app.test.ts", "", nil},
		{"capitals", tree, args{"query": "Main"}, "cmd/Main.go", "", nil},
		{"at most", tree, args{"query": "**/*.ts", "maxResults": 1},
			"src/app.ts\n[1 of 2 files: narrow the query, or ask for more with maxResults (up to 2000)]", "", nil},
		{"ignored", tree, args{"query": "*.log"}, `~No file fits "*.log"`, "", nil},
		{"all", tree, args{"query": "."}, "~.github/ci.yml\n.gitignore\ncmd/Main.go", "", nil},
		{"outside", tree, args{"query": "/etc/*"}, "", "/etc/* is outside the workspace", nil},
		{"upwards", tree, args{"query": "../*"}, "", "leads out of the workspace", nil},
		{"no pattern", tree, args{"query": "[a"}, "", "is no glob pattern", nil},
		{"empty", tree, args{"query": ""}, "", "the pattern is empty", nil},
		{"none wanted", tree, args{"query": "*", "maxResults": -1}, "", "maxResults is -1", nil},
	})
}

func TestGrepSearch(t *testing.T) {
	tree := files{
		".gitignore": "*.log\n", "a.go": "package a\n\nfunc Needle() {}\n",
		"b/b.ts": "needle()\nneedle()\n", "x.log": "needle\n", "bin": "needle\x00",
	}
	runTools(t, "grep_search", []toolTest{
		{"text", tree, args{"query": "needle"},
			"a.go:3: func Needle() {}\nb/b.ts:1: needle()\nb/b.ts:2: needle()", "",
			nil},
		{"capitals", tree, args{"query": "Needle()"}, "a.go:3: func Needle() {}", "", nil},
		{"regexp", tree, args{"query": `^func \w+`, "isRegexp": true}, "a.go:3: func Needle() {}",
			"", nil},
		{"include", tree, args{"query": "needle", "includePattern": "**/*.go"},
			"a.go:3: func Needle() {}", "", nil},
		{"at most", tree, args{"query": "needle", "maxResults": 1},
			"a.go:3: func Needle() {}\n[1 of 3 lines, in 2 files: narrow the query or includePattern, or ask for " +
				"more with maxResults (up to 2000)]", "", nil},
		{"nothing", tree, args{"query": "haystack", "includePattern": "*.go"},
			`No line with "haystack" in files that fit "*.go".`, "", nil},
		{"no regexp", tree, args{"query": "(", "isRegexp": true}, "", `searching for "(": `, nil},
		{"empty", tree, args{"query": ""}, "", "the query is empty", nil},
		{"lines", tree, args{"query": "a\nb"}, "", "spans lines", nil},
		{"outside", tree, args{"query": "a", "includePattern": "/etc/**"}, "",
			"outside the workspace", nil},
	})
	env := space(t, tree)
	res, err := call(t, env, "grep_search",
		args{"query": "needle", "includePattern": env.Root + "/b"})
	if err != nil || res.Text() != "b/b.ts:1: needle()\nb/b.ts:2: needle()" {
		t.Errorf("a directory by its whole path: %q, %v, want %q", res.Text(), err,
			"b/b.ts:1: needle()\nb/b.ts:2: needle()")
	}
}

// Without ripgrep the answers are the same, and an error names the syntax of regular
// expressions.
func TestSearchWithoutRipgrep(t *testing.T) {
	env := space(t, files{".gitignore": "*.log\n", "a.go": "needle\n", "x.log": "needle\n"})
	t.Setenv("PATH", t.TempDir())
	if res, err := call(t, env, "grep_search", args{"query": "needle"}); err != nil ||
		res.Text() != "a.go:1: needle" {
		t.Errorf("got %q, %v, want %q", res.Text(), err, "a.go:1: needle")
	}
	if res, err := call(t, env, "file_search", args{"query": "*"}); err != nil ||
		res.Text() != ".gitignore\na.go" {
		t.Errorf("got %q, %v, want %q", res.Text(), err, ".gitignore\na.go")
	}
	if _, err := call(t, env, "grep_search",
		args{"query": "(?=x)", "isRegexp": true}); err == nil ||
		!strings.Contains(err.Error(), "Go's regexp: ripgrep is not installed") {
		t.Errorf("got error %v, want %q in it", err, "Go's regexp: ripgrep is not installed")
	}
}

// The size of an answer is bounded.
func TestGrepSearchCaps(t *testing.T) {
	wide := strings.Repeat("x", 10_000) + "needle" + strings.Repeat("y", 10_000) + "\n"
	env := space(t,
		files{"many": strings.Repeat(wide, 50), "more": strings.Repeat("needle\n", 30_000)})
	res, err := call(t, env, "grep_search", args{"query": "needle", "maxResults": 5000})
	if err != nil {
		t.Fatal(err)
	}
	got := res.Text()
	if lines := strings.Split(got, "\n"); len(lines) != maxResults+1 ||
		!strings.HasPrefix(lines[maxResults], fmt.Sprintf("[%d of more than ", maxResults)) {
		t.Errorf(
			"%d lines, the last is %q, want %d and the number of all",
			len(lines), lines[len(lines)-1], maxResults+1,
		)
	}
	if !strings.HasPrefix(got, "many:1: …xxx") || !strings.Contains(got, "xneedley") ||
		len(got) > 100_000 {
		t.Errorf("got %d bytes: %.200q, want %q at the beginning and %q in it", len(got), got,
			"many:1: …xxx", "xneedley")
	}
}
