package search

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// tree makes a directory with files, once with ripgrep and once without; both must find
// the same. The user's configuration of git has no effect.
func tree(t testing.TB, files map[string]string) map[string]Tree {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(base, "home")
	dir := filepath.Join(base, "ws")
	t.Setenv("HOME", home)
	t.Setenv("XDG_CONFIG_HOME", home)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	rg, err := exec.LookPath("rg")
	if err != nil {
		t.Fatal("ripgrep (rg) is not installed: the tests need it")
	}
	return trees(t, dir, rg)
}

func trees(t testing.TB, dir, rg string) map[string]Tree {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	return map[string]Tree{
		"ripgrep": {Dir: dir, FS: root.FS(), Ripgrep: rg},
		"own":     {Dir: dir, FS: root.FS()},
	}
}

// list is the files of a tree in order.
func list(t testing.TB, tr Tree, include *Glob) (files []string) {
	t.Helper()
	files, err := tr.Files(t.Context(), include)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}

func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return string(out)
}

var project = map[string]string{
	".gitignore":          "*.log\n/build/\nnode_modules\n!keep.log\n",
	".github/ci.yml":      "run: make Needle\n",
	"main.go":             "package main\n\nfunc main() { needle() }\n",
	"src/a.go":            "// needle one\nvar x = 1\n// Needle two\n",
	"src/deep/b_test.go":  "needle\r\nother\r\n",
	"src/deep/app.ts":     "const needle = 1",
	"src/.gitignore":      "local.txt\n!/deep/*.tmp\n",
	"src/local.txt":       "needle\n",
	"local.txt":           "needle\n",
	"out.log":             "needle\n",
	"keep.log":            "needle\n",
	"build/gen.go":        "needle\n",
	"src/build/gen.go":    "needle\n",
	"node_modules/x/i.js": "needle\n",
	"pic.png":             "\x89PNG\x00needle\n",
	"src/umläut ö.txt":    "nadel\nneedle\n",
	".git/info/exclude":   "*.tmp\n",
	"x.tmp":               "needle\n",
	"src/deep/y.tmp":      "needle\n",
}

func TestFiles(t *testing.T) {
	want := []string{
		".github/ci.yml", ".gitignore", "keep.log", "local.txt", "main.go", "pic.png",
		"src/.gitignore", "src/a.go",
		"src/build/gen.go", "src/deep/app.ts", "src/deep/b_test.go", "src/deep/y.tmp",
		"src/umläut ö.txt",
	}
	tr := tree(t, project)["own"]
	// not followed, nor listed
	if err := os.Symlink("/etc", filepath.Join(tr.Dir, "link")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, list(t, tr, nil)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	for pattern, want := range map[string][]string{
		"src/**/*.{go,ts}": {"src/a.go", "src/build/gen.go", "src/deep/app.ts",
			"src/deep/b_test.go"},
		"deep":  {"src/deep/app.ts", "src/deep/b_test.go", "src/deep/y.tmp"},
		"*.log": {"keep.log"},
		"link":  nil,
	} {
		glob, err := ParseGlob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, list(t, tr, glob)); diff != "" {
			t.Errorf("files of %s (-want +got):\n%s", pattern, diff)
		}
	}
}

// In a directory of a repository the rules above it count too, but not in a nested
// repository.
func TestPartOfRepository(t *testing.T) {
	all := tree(t, map[string]string{
		".gitignore": "*.log\n/sub/gen\n", "sub/.gitignore": "!x.log\n", "sub/a.log": ".",
		"sub/x.log": ".", "sub/gen/b": ".", "sub/c": ".",
		"sub/inner/d.log": ".", "sub/inner/e": ".", ".git/info/exclude": "c2\n", "sub/c2": ".",
		"sub/inner/.git/info/exclude": "e\n",
	})
	sub := trees(t, filepath.Join(all["own"].Dir, "sub"), all["ripgrep"].Ripgrep)
	want := []string{".gitignore", "c", "inner/d.log", "x.log"}
	if got := list(t, sub["own"], nil); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	for name, tr := range sub {
		var got []string
		found, err := tr.Grep(t.Context(), Query{Text: "."})
		for _, m := range found.Matches {
			got = append(got, m.Path)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
}

func TestGrep(t *testing.T) {
	glob := func(p string) *Glob {
		g, err := ParseGlob(p)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	tests := []struct {
		name  string
		query Query
		want  []string // path:line: text
	}{
		{"all", Query{Text: "needle"}, []string{
			".github/ci.yml:1: run: make Needle", "keep.log:1: needle", "local.txt:1: needle",
			"main.go:3: func main() { needle() }",
			"src/a.go:1: // needle one", "src/a.go:3: // Needle two", "src/build/gen.go:1: needle",
			"src/deep/app.ts:1: const needle = 1",
			"src/deep/b_test.go:1: needle", "src/deep/y.tmp:1: needle",
			"src/umläut ö.txt:2: needle",
		}},
		{"capitals", Query{Text: "Needle"},
			[]string{".github/ci.yml:1: run: make Needle", "src/a.go:3: // Needle two"}},
		{"a letter with capitals beyond ASCII", Query{Text: "NADEL"}, nil},
		{"fixed", Query{Text: "main() {"}, []string{"main.go:3: func main() { needle() }"}},
		{"begins with a dash", Query{Text: "--x"}, nil},
		{"regexp", Query{Text: `^func \w+\(\)`, Regexp: true},
			[]string{"main.go:3: func main() { needle() }"}},
		{"regexp, escapes are no capitals", Query{Text: `\Seedle\s(one|two)$`, Regexp: true},
			[]string{"src/a.go:1: // needle one", "src/a.go:3: // Needle two"}},
		{"end of a CRLF line", Query{Text: `needle$`, Regexp: true, Include: glob("*_test.go")},
			[]string{"src/deep/b_test.go:1: needle"}},
		{"include by name", Query{Text: "needle", Include: glob("*.{go,ts}")}, []string{
			"main.go:3: func main() { needle() }", "src/a.go:1: // needle one",
			"src/a.go:3: // Needle two",
			"src/build/gen.go:1: needle",
			"src/deep/app.ts:1: const needle = 1", "src/deep/b_test.go:1: needle",
		}},
		{"include braces in braces", Query{Text: "needle", Include: glob("*.{tsx,{ts,y}}")},
			[]string{"src/deep/app.ts:1: const needle = 1"}},
		{"include by path", Query{Text: "needle", Include: glob("src/*.go")},
			[]string{"src/a.go:1: // needle one", "src/a.go:3: // Needle two"}},
		{"include a directory", Query{Text: "needle", Include: glob("src/deep")},
			[]string{"src/deep/app.ts:1: const needle = 1", "src/deep/b_test.go:1: needle",
				"src/deep/y.tmp:1: needle"}},
		{"include does not bring back what is ignored",
			Query{Text: "needle", Include: glob("*.log")},
			[]string{"keep.log:1: needle"}},
		{"include with a space", Query{Text: "needle", Include: glob("src/umläut *")},
			[]string{"src/umläut ö.txt:2: needle"}},
		{"include hidden", Query{Text: "make", Include: glob(".github/**")},
			[]string{".github/ci.yml:1: run: make Needle"}},
		{"nothing", Query{Text: "haystack"}, nil},
	}
	all := tree(t, project)
	for _, tt := range tests {
		for name, tr := range all {
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				found, err := tr.Grep(t.Context(), tt.query)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, m := range found.Matches {
					got = append(got, fmt.Sprintf("%s:%d: %s", m.Path, m.Line, m.Text))
				}
				if diff := cmp.Diff(tt.want, got); diff != "" || found.More {
					t.Errorf("matches (-want +got), more: %v\n%s", found.More, diff)
				}
			})
		}
	}
}

func TestGrepErrors(t *testing.T) {
	tests := []struct {
		query Query
		want  string
	}{
		{Query{Text: ""}, "the query is empty"},
		{Query{Text: "a\nb"}, "spans lines"},
		{Query{Text: `a\nb`, Regexp: true}, "spans lines"},
		{Query{Text: `a\\\nb`, Regexp: true}, "spans lines"},
		{Query{Text: `(`, Regexp: true}, "("},
		{Query{Text: `a{`, Regexp: true}, ""}, // one takes it, the other doesn't: no matter
		{Query{Text: `(?=x)`, Regexp: true}, "look"},
	}
	for name, tr := range tree(t, project) {
		for _, tt := range tests {
			_, err := tr.Grep(t.Context(), tt.query)
			want := tt.want
			if name == "own" && want == "look" {
				want = "Go's regexp: ripgrep is not installed"
			}
			if want != "" &&
				(err == nil || !strings.Contains(err.Error(), want) ||
					strings.Contains(err.Error(), "\n")) {
				t.Errorf("%s %q: got error %v, want %q in one line", name, tt.query.Text, err, want)
			}
		}
	}
}

// Long lines, names with newlines, and a file with a NUL at its end are no problem.
func TestGrepOddFiles(t *testing.T) {
	wide := strings.Repeat("é", 300_000)
	all := tree(t, map[string]string{
		"wide":      wide + "needle" + wide + "\nneedle\n",
		"new\nline": "needle\n",
		"late\n2":   "needle\n" + strings.Repeat("x\n", 100_000) + "\x00needle\n",
		"tail":      "a needle",
		"latin":     "\xe4 needle \xff\n",
	})
	half := strings.Repeat("é", excerptBefore/2)
	want := []Match{
		{"latin", 1, "\xe4 needle \xff"},
		{"new\nline", 1, "needle"},
		{"tail", 1, "a needle"},
		{"wide", 1, "…" + half + "needle" + strings.Repeat("é", (excerptAfter-len("needle"))/2) +
			"…"},
		{"wide", 2, "needle"},
	}
	for name, tr := range all {
		for _, include := range []*Glob{nil, {pattern: "*", baseOnly: true}} {
			found, err := tr.Grep(t.Context(), Query{Text: "needle", Include: include})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, found.Matches); diff != "" {
				t.Errorf("%s, %v (-want +got):\n%s", name, include, diff)
			}
		}
	}
}

// A search works with more files than fit on a command line.
func TestGrepManyFiles(t *testing.T) {
	files := map[string]string{".gitignore": "*.log\n", "x.log": "needle\n"}
	for i := range maxArgs / 200 {
		files[fmt.Sprintf("d%d/%s%d", i%10, strings.Repeat("n", 200), i)] = ""
	}
	files["d1/x.c"] = "needle\n"
	files["e.c"] = "needle\n"
	include, err := ParseGlob("d*/*")
	if err != nil {
		t.Fatal(err)
	}
	found, err := tree(t, files)["ripgrep"].Grep(t.Context(),
		Query{Text: "needle", Include: include})
	if want := []Match{{"d1/x.c", 1, "needle"}}; err != nil || !slices.Equal(found.Matches, want) {
		t.Errorf("got %v, %v, want %v", found.Matches, err, want)
	}
}

// A search stops at its limit.
func TestGrepStops(t *testing.T) {
	for name, tr := range tree(t, map[string]string{"a": strings.Repeat("x\n", maxMatches+10)}) {
		found, err := tr.Grep(t.Context(), Query{Text: "x"})
		if err != nil || !found.More || len(found.Matches) != maxMatches {
			t.Errorf(
				"%s: %d matches, more: %v, %v, want %d, true and no error",
				name, len(found.Matches), found.More, err, maxMatches,
			)
		}
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tr := range tree(t, project) {
		if _, err := tr.Grep(ctx, Query{Text: "needle"}); err == nil {
			t.Errorf("%s: Grep answers when cancelled, want an error", name)
		}
		if _, err := tr.Files(ctx, nil); err == nil {
			t.Errorf("%s: Files answers when cancelled, want an error", name)
		}
	}
}

func TestGlob(t *testing.T) {
	tests := []struct {
		pattern, path string
		want          bool
	}{
		{"*.go", "a/b/c.go", true},
		{"*.go", "c.go", true},
		{"*.go", "c.GO", false},
		{"c.go", "a/c.go", true},
		{"src", "src/a/b", true},
		{"src/", "x/src/b", true},
		{"/src", "src/b", true},
		{"/src", "x/src/b", false},
		{"./src/*.go", "src/a.go", true},
		{"src/*.go", "src/b/a.go", false},
		{"src/**/*.go", "src/a.go", true},
		{"src/**/*.go", "src/b/c/a.go", true},
		{"**/foo/**/*.js", "a/foo/b/c.js", true},
		{"*.{ts,tsx}", "a/b.tsx", true},
		{"[ab]?.txt", "a1.txt", true},
		{"[!ab]?.txt", "a1.txt", false},
		{".", "a/b", true},
		{"**", "a/b", true},
		{"a*", "b/a/c", false},
		{"a*/", "b/a/c", true},
		{"src/*", "src/b/a.go", false},
		{"*/deep", "src/deep/x", true},
	}
	for _, tt := range tests {
		g, err := ParseGlob(tt.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := g.Match(tt.path); got != tt.want {
			t.Errorf("%s fits %s: %v, want %v", tt.pattern, tt.path, got, tt.want)
		}
	}
	for _, p := range []string{"[a", "{a", "a/[", `a\`} {
		if _, err := ParseGlob(p); err == nil {
			t.Errorf("%s is taken, want an error", p)
		}
	}
}
