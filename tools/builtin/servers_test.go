package builtin

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var wholePath = os.Getenv("PATH")

// onPath leaves only these programs on PATH. A name with a slash is a file to link.
func onPath(t *testing.T, names ...string) {
	t.Helper()
	t.Setenv("PATH", wholePath) // a test may choose anew
	dir := t.TempDir()
	for _, name := range names {
		path, err := filepath.Abs(name)
		switch {
		case name == "python3": // what is on PATH may be a script that looks for it
			var out []byte
			out, err = exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
			path = strings.TrimSpace(string(out))
		case !strings.Contains(name, "/"):
			path, err = exec.LookPath(name)
		}
		if err == nil {
			err = os.Symlink(path, filepath.Join(dir, filepath.Base(name)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
	t.Cleanup(Close)
}

var sources = map[string]string{
	"go.mod":   "module x\n\ngo 1.24\n",
	"a.go":     "package x\n\ntype T struct{}\n\nfunc Parse() {}\n\nfunc (t *T) Parse() { Parse() }\n",
	"sub/b.go": "package sub\n\n// Parse is a word here.\nvar parse = 1\n",
	"c.py":     "def parse_all():\n    return 1\n",
	"d.txt":    "Parse nothing\n",
	"e.ts":     "export const Parse = 1\n",
}

func TestListCodeUsages(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: it starts programs or waits for them")
	}
	const words = "a.go:5: func Parse() {}\na.go:7: func (t *T) Parse() { Parse() }\n"
	tests := []struct {
		name string
		path []string
		dies bool
		in   args
		want string
		err  string
	}{
		{name: "by a server", path: []string{"testdata/servers/gopls", "python3"},
			in: args{"symbolName": "Parse"},
			want: "3 usages of Parse (by gopls)\n" + words +
				"sub/b.go:3: // Parse is a word here."},
		{name: "a method", path: []string{"testdata/servers/gopls", "python3"},
			in: args{"symbolName": "T.Parse"},
			want: "3 usages of T.Parse (by gopls)\n" + words +
				"sub/b.go:3: // Parse is a word here."},
		{name: "from a file", path: []string{"testdata/servers/gopls", "python3"},
			in:   args{"symbolName": "parse", "filePaths": []string{"sub/b.go"}},
			want: "1 usage of parse (by gopls)\nsub/b.go:4: var parse = 1"},
		{name: "what no server knows", path: []string{"testdata/servers/gopls", "python3"},
			in: args{"symbolName": "parse_all"},
			want: "1 usage of parse_all (no language server knows it; by searching for the word " +
				"parse_all)\nc.py:1: def parse_all():"},
		{name: "by a server that dies", path: []string{"testdata/servers/gopls", "python3"},
			dies: true,
			in:   args{"symbolName": "Parse"},
			want: "~(gopls could not be asked: gopls ended"},
		{name: "without one", in: args{"symbolName": "Parse"},
			want: "5 usages of Parse (by searching for the word Parse)\n" + words +
				"d.txt:1: Parse nothing\ne.ts:1: export const Parse = 1\nsub/b.go:3: // Parse is a word here."},
		{name: "small letters", in: args{"symbolName": "parse"},
			want: "1 usage of parse (by searching for the word parse)\nsub/b.go:4: var parse = 1"},
		{name: "nowhere", in: args{"symbolName": "Nothing"},
			want: "No usages of Nothing were found (by searching for the word Nothing)"},
		{name: "no word at all", in: args{"symbolName": "a(b"},
			want: "No usages of a(b were found (by searching for the word a(b)"},
		{name: "empty", in: args{"symbolName": " "}, err: "symbolName is empty"},
		{name: "no such file", in: args{"symbolName": "x", "filePaths": []string{"none.go"}},
			err: "none.go does not exist"},
		{name: "outside", in: args{"symbolName": "x", "filePaths": []string{"/etc/passwd"}},
			err: "outside the workspace"},
	}
	for _, tt := range tests {
		onPath(t, tt.path...)
		if t.Setenv("GOPLS_DIES", ""); tt.dies {
			t.Setenv("GOPLS_DIES", "1")
		}
		runTools(t, "list_code_usages",
			[]toolTest{{name: tt.name, files: sources, args: tt.in, want: tt.want, err: tt.err}})
	}
}

func TestSearchWorkspaceSymbols(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: it starts programs or waits for them")
	}
	server := []string{"testdata/servers/gopls", "python3"}
	tests := []struct {
		path []string
		test toolTest
	}{
		{server, toolTest{name: "by a server", args: args{"symbolName": "T.Parse"},
			want: "2 symbols for T.Parse (by gopls)\na.go:7: function T.Parse\na.go:5: function x.Parse"}},
		{server, toolTest{name: "what no server knows", args: args{"symbolName": "parse_a"},
			want: "1 symbol for parse_a (by searching for declarations)\nc.py:1: def parse_all():"}},
		{nil, toolTest{name: "without one", args: args{"symbolName": "pars"},
			want: "5 symbols for pars (by searching for declarations)\na.go:5: func Parse() {}\na.go:7: func (t *T) " +
				"Parse() { Parse() }\nc.py:1: def parse_all():\ne.ts:1: export const Parse = 1\nsub/b.go:4: var " +
				"parse = 1"}},
		{nil, toolTest{name: "only as a word", args: args{"symbolName": "nothing"},
			want: "1 symbol for nothing (by searching for declarations; by searching for the word " +
				"nothing)\nd.txt:1: Parse nothing"}},
		{nil, toolTest{name: "nowhere", args: args{"symbolName": "zzz"},
			want: "~No symbol zzz was found"}},
		{nil, toolTest{name: "empty", args: args{"symbolName": ""}, err: "symbolName is empty"}},
	}
	for _, tt := range tests {
		onPath(t, tt.path...)
		tt.test.files = sources
		runTools(t, "search_workspace_symbols", []toolTest{tt.test})
	}
}

func TestGetErrors(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: it starts programs or waits for them")
	}
	files := map[string]string{"go.mod": "module x\n\ngo 1.24\n",
		"a.go": "package x\n\nvar broken int = \"s\"\n", "b.py": "def f(:\n", "c.ts": "x",
		"d.txt": "x"}
	server := []string{"testdata/servers/gopls", "python3"}
	tests := []struct {
		path []string
		test toolTest
	}{
		{server, toolTest{name: "by a server", args: args{"filePaths": []string{"a.go"}},
			want: "1 problem in 1 file (by gopls)\na.go:3:5: error: it is\n    broken (compiler)"}},
		{server, toolTest{name: "none", args: args{"filePaths": []string{"ok.go"}},
			files: map[string]string{"ok.go": "package x\n"},
			want:  "No errors in 1 file (by gopls)"}},
		{[]string{"go", "python3"},
			toolTest{name: "by compilers", args: args{"filePaths": []string{"a.go", "b.py"}},
				want: "~2 problems in 2 files (by go vet; by the Python compiler (syntax only))\na.go:3:18: error: " +
					"cannot use \"s\""}},
		{[]string{"go"},
			toolTest{name: "what cannot be checked",
				args: args{"filePaths": []string{"c.ts", "d.txt"}},
				want: "No errors in 2 files (c.ts not checked: typescript-language-server is not on PATH outside of " +
					"the workspace; d.txt not checked: nothing here checks \".txt\" files)"}},
		{[]string{"python3"}, toolTest{name: "all files", args: args{}, want: "~in 3 files ("}},
		{nil, toolTest{name: "no source", args: args{}, files: map[string]string{"x.txt": ""},
			want: "There are no source files to check."}},
		{nil, toolTest{name: "no such file", args: args{"filePaths": []string{"z.go"}},
			err: "z.go does not exist"}},
		{nil, toolTest{name: "a directory", args: args{"filePaths": []string{"."}},
			err: "is a directory"}},
	}
	for _, tt := range tests {
		onPath(t, tt.path...)
		if tt.test.files == nil {
			tt.test.files = files
		}
		runTools(t, "get_errors", []toolTest{tt.test})
	}
}

// Without names, get_errors checks the files that git reports as changed.
func TestGetErrorsOfChangedFiles(t *testing.T) {
	env := space(t, map[string]string{"a.go": "package x\n", "b c.go": "package x\n"})
	for _, argv := range [][]string{{"init", "-q"}, {"add", "."},
		{"-c", "user.name=n", "-c", "user.email=e@example.com", "commit", "-qm", "one"}} {
		cmd := exec.Command("git", argv...)
		cmd.Dir = env.Root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %s", argv, out)
		}
	}
	onPath(t, "git")
	for _, want := range []string{"No errors in 2 files", "1 problem in 1 file",
		"1 problem in 2 files"} {
		res, err := call(t, env, "get_errors", args{})
		if err != nil || !strings.HasPrefix(res.Text(), want) {
			t.Errorf("got %q, %v, want %q", res.Text(), err, want)
		}
		if want[0] == 'N' {
			put(t, env, "b c.go", "package x\n}\n")
		} else {
			put(t, env, "new.go", "package x\n")
		}
	}
}
