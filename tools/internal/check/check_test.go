package check

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// files writes files and returns the sorted paths of those with an ending.
func files(t *testing.T, tree map[string]string, ending string) (paths []string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range tree {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if strings.HasSuffix(path, ending) {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// without leaves only these programs on PATH.
func without(t *testing.T, names ...string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path, err := exec.LookPath(name)
		if err == nil {
			err = os.Symlink(path, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

func TestFiles(t *testing.T) {
	tests := []struct {
		name   string
		tree   map[string]string
		ending string
		path   []string // nil: as it is
		by     string
		want   []string // FILE:LINE:COL: part of the message
	}{
		{"go", map[string]string{
			"go.mod": "module x\n\ngo 1.24\n",
			"a.go":   "package x\n\nfunc f() int { return \"s\" }\n",
			"b/b.go": "package b\n\nvar x int = y\n", "b/c.go": "package b\n",
		}, ".go", nil, "go vet", []string{"a.go:3:23: cannot use", "b.go:3:13: undefined: y"}},
		{"go is fine", map[string]string{"go.mod": "module x\n", "a.go": "package x\n"}, ".go", nil,
			"go vet", nil},
		{"go vet has words",
			map[string]string{"go.mod": "module x\n",
				"a.go": "package x\n\nimport \"fmt\"\n\nfunc f() { fmt.Printf(\"%d\", \"x\") }\n"},
			".go", nil, "go vet", []string{"fmt.Printf"}},
		{"go without a module", map[string]string{"a.go": "package x\n\nfunc f( {\n"}, ".go", nil,
			"",
			[]string{"a.go:3:9: "}},
		{"go of no package",
			map[string]string{"go.mod": "module x\n\nrequire example.com/none v1.0.0\n",
				"a.go": "package x\n\nimport _ \"example.com/none\"\n\nfunc f( {}\n"}, ".go", nil,
			"",
			[]string{"a.go:5:"}},
		{"go without go", map[string]string{"a.go": "package x\n\nfunc f( {\n",
			"b.go": "package b\n"}, ".go",
			[]string{}, "the Go parser (syntax only)", []string{"a.go:3:9: expected"}},
		{"python", map[string]string{"a.py": "def f(:\n  pass\n",
			"b.py": "print('not run')\nundefined\n", "c.py": "x = 1\n\ty = 2\n"}, ".py", nil,
			"the Python compiler (syntax only)", []string{"a.py:1:", "c.py:2:"}},
		{"python in another encoding",
			map[string]string{"a.py": "# -*- coding: latin-1 -*-\nx = '\xe9'\n",
				"b.py": "x = '\xe9'\n"}, ".py", nil, "", []string{"b.py:1:"}},
		{"node", map[string]string{"a.js": "const = 1\n", "b.mjs": "",
			"c.js": "console.log(1)\n\n}\n"}, ".js", nil,
			"node --check (syntax only)", []string{"a.js:1:0: SyntaxError: Unexpected token",
				"c.js:3:0: SyntaxError"}},
		{"a module", map[string]string{"a.mjs": "import x from 'x'\nexport const y = \n"}, ".mjs",
			nil, "",
			[]string{"a.mjs:3:0: SyntaxError"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			paths := files(t, tt.tree, tt.ending)
			if tt.path != nil {
				without(t, tt.path...)
			}
			got, by, err := Files(t.Context(), filepath.Dir(paths[0]), paths)
			if err != nil || tt.by != "" && by != tt.by || len(got) < len(tt.want) ||
				len(tt.want) == 0 && len(got) > 0 {
				t.Fatalf("by %s: %v, %v, want at least %d by %s", by, got, err, len(tt.want), tt.by)
			}
			for i, want := range tt.want {
				if line := fmt.Sprintf("%s:%d:%d: %s", filepath.Base(got[i].Path), got[i].Line,
					got[i].Col,
					got[i].Message); !strings.Contains(line, want) {
					t.Errorf("got %q, want %q", line, want)
				}
			}
		})
	}
}

func TestFilesThatCannotBeChecked(t *testing.T) {
	without(t)
	for path, want := range map[string]string{
		"/a.py": "python3", "/a.js": "node", "/a.ts": "typescript-language-server",
		"/a.txt": `nothing here checks ".txt"`,
	} {
		if _, _, err := Files(t.Context(), "/work", []string{path}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %q in it", path, err, want)
		}
	}
}
