package builtin

import (
	"os/exec"
	"strings"
	"testing"
)

func TestFindTestFiles(t *testing.T) {
	tree := files{"a/x.go": "", "a/x_test.go": "", "src/p.rs": "#[cfg(test)]\nmod tests {}\n",
		"README.md": "", "py/m.py": "", ".gitignore": "gen\n", "gen/m_test.py": ""}
	runTools(t, "find_test_files", []toolTest{
		{"one", tree, args{"filePaths": []string{"a/x.go"}}, "a/x.go: tests:\n  a/x_test.go", "",
			nil},
		{"back", tree, args{"filePaths": []string{"./a/x_test.go"}},
			"a/x_test.go: sources:\n  a/x.go", "", nil},
		{"in the file itself", tree, args{"filePaths": []string{"src/p.rs"}},
			"src/p.rs: tests:\n  src/p.rs (#[cfg(test)] in the file itself)", "", nil},
		{"none, and ignored ones don't count", tree, args{"filePaths": []string{"py/m.py"}},
			"py/m.py: no test of it was found. By convention it is tests/test_m.py.", "", nil},
		{"several, one is missing", tree, args{"filePaths": []string{"a/x.go", "a/y.go"}},
			"a/x.go: tests:\n  a/x_test.go\na/y.go does not exist", "", nil},
		{"all are missing", tree, args{"filePaths": []string{"q.go", "README.md"}}, "",
			"q.go does not exist; README.md: no conventions are known", nil},
		{"none named", tree, args{"filePaths": []string{}}, "",
			"filePaths names 0 files: name 1 to 50", nil},
	})
}

func TestGetDocInfo(t *testing.T) {
	tree := files{
		"x.go":    "// Package x is short.\npackage x\n\n// Do does.\nfunc Do(a int) error {\n\treturn nil\n}\n",
		"crlf.py": "\uFEFFclass A:\r\n    def go(self):\r\n        pass", "bin": "\x00",
		"odd.xyz": "a\n", "empty": "", "many.py": strings.Repeat("def f(): pass\n", maxSymbols+3),
	}
	runTools(t, "get_doc_info", []toolTest{
		{"Go", tree, args{"filePaths": []string{"x.go"}},
			"## x.go\nGo, 7 lines, 83 bytes\n\nPackage x is short.\n\n5: func Do(a int) error", "",
			nil},
		{"traits", tree, args{"filePaths": []string{"crlf.py"}},
			"## crlf.py\nPython, 3 lines, 44 bytes, BOM, CRLF, no newline at the end\n\n1: class A\n  2: def go(self)",
			"", nil},
		{"unknown, empty and binary", tree, args{"filePaths": []string{"odd.xyz", "empty", "bin"}},
			"## odd.xyz\nunknown language, 1 lines, 2 bytes\n## empty\nunknown language, 0 lines, 0 bytes\nbin is a " +
				"binary file of 1 bytes: it has no text to work on", "", nil},
		{"many", tree, args{"filePaths": []string{"many.py"}},
			"~\n[3 more declarations: read the file from line 81]", "", nil},
		{"directory", tree, args{"filePaths": []string{"."}}, "", ". is a directory", nil},
		{"none", tree, args{"filePaths": []string{}}, "", "filePaths names 0 files: name 1 to 50",
			nil},
	})
}

func TestGetProjectSetupInfo(t *testing.T) {
	tree := files{"go.mod": "module m\n", "Makefile": "test: x\n"}
	runTools(t, "get_project_setup_info", []toolTest{
		{"any", tree, args{"projectType": "any"},
			"## go project m in .\nbuild: go build ./...\ntest: go test ./...\nvet: go vet ./...\n\n## make project " +
				"in .\ntest: make test", "", nil},
		{"one", tree, args{"projectType": "Golang"},
			"## go project m in .\nbuild: go build ./...\ntest: go test ./...\nvet: go vet ./...",
			"", nil},
		{"not here", tree, args{"projectType": "rust"},
			"There is no rust project here. One is begun with: cargo init\nWhat is here: go, make.",
			"", nil},
		{"nothing here", files{"x": ""}, args{"projectType": "any"}, "~No project was recognised",
			"", nil},
		{"no kind", tree, args{"projectType": "cobol"}, "", `no kind of project is called "cobol"`,
			nil},
	})
}

func TestGetChangedFiles(t *testing.T) {
	env := space(t, files{"sub/a": "1\n", "b": "1\n"})
	t.Setenv("HOME", env.Home)
	t.Setenv("XDG_CONFIG_HOME", env.Home)
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = env.Root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v: %s", args, err, out)
		}
	}
	if _, err := call(t, env, "get_changed_files", args{}); err == nil ||
		!strings.Contains(err.Error(), "asking git about .: not a git repository") {
		t.Errorf("got error %v outside of a repository, want %q in it", err,
			"asking git about .: not a git repository")
	}
	run("init", "-q")
	run("add", ".")
	run("-c", "user.name=n", "-c", "user.email=e@x", "commit", "-q", "-m", "x")
	if res, err := call(t, env, "get_changed_files", args{}); err != nil ||
		res.Text() != "No changed files found." {
		t.Errorf("got %q, %v in a clean repository, want %q", res.Text(), err,
			"No changed files found.")
	}
	put(t, env, "sub/a", "2\n")
	run("mv", "b", "c")
	put(t, env, "sub/new", "")
	put(t, env, "large", strings.Repeat("long line\n", 10_000))
	run("add", "large")
	for _, tt := range []struct {
		args args
		want string
	}{
		{args{"sourceControlState": "unstaged"}, "## Unstaged changes\nsub/a"},
		{args{},
			"## Staged files\nb -> c (renamed)\nlarge (added)\n\n## Unstaged changes\nsub/a\n\n## Untracked " +
				"files\nsub/new"},
		{args{"repositoryPath": "sub"},
			"## Unstaged changes\nsub/a\n\n## Untracked files\nsub/new"},
		{args{"repositoryPath": env.Root + "/sub", "sourceControlState": "untracked"},
			"## Untracked files\nsub/new"},
		{args{"repositoryPath": "sub", "diffs": true, "sourceControlState": "unstaged"},
			"## Unstaged changes\nsub/a\n\ndiff --git a/sub/a b/sub/a\n~-1\n+2"},
		{args{"diffs": true, "sourceControlState": "staged"},
			"## Staged files\nb -> c (renamed)\nlarge (added)\n\ndiff --git a/b b/c\n~ more bytes of this patch: " +
				"name a directory in repositoryPath]"},
	} {
		res, err := call(t, env, "get_changed_files", tt.args)
		begin, end, part := strings.Cut(tt.want, "~")
		if got := res.Text(); err != nil || !part && got != tt.want ||
			!strings.HasPrefix(got, begin) || !strings.HasSuffix(got, end) ||
			len(got) > maxDiff+1000 {
			t.Errorf("%v: got %q, %v, want %q", tt.args, got, err, tt.want)
		}
	}
	for _, tt := range []struct {
		args args
		want string
	}{
		{args{"repositoryPath": "c"}, "c is a file, not a directory"},
		{args{"repositoryPath": "q"}, "q does not exist"},
		{args{"sourceControlState": "merged"}, "sourceControlState"},
	} {
		if _, err := call(t, env, "get_changed_files", tt.args); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: got error %v, want %q", tt.args, err, tt.want)
		}
	}
}
