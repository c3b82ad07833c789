package builtin

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tapgw/tools"
)

// A read-only tool starts no program of the workspace: none on a PATH that leads into it,
// none in node_modules, and none that git's configuration or a version manager's files
// name.
func TestReadOnlyToolsRunNothingOfTheWorkspace(t *testing.T) {
	env := space(t, map[string]string{
		"go.mod":    "module x\n\ngo 1.21\n\ntoolchain go1.99-evil\n",
		"a.go":      "package x\n\nvar a int = nothing\n",
		"a_test.go": "package x\n",
		"b.py":      "x =\n", "c.ts": "let x: number = 'a'\n", "d.js": "let = 1\n",
		"package.json":   `{"name":"x","scripts":{"test":"touch ran"}}`,
		"tsconfig.json":  `{"compilerOptions":{"plugins":[{"name":"evil"}]}}`,
		".tool-versions": "nodejs path:./bin\npython path:./bin\n",
		".git/HEAD":      "ref: refs/heads/main\n", ".git/objects/": "", ".git/refs/": "",
		".gitattributes": "* filter=evil diff=evil\n",
	})
	ran := filepath.Join(t.TempDir(), "ran")
	script := "#!/bin/sh\necho \"$0 $*\" >> " + ran + "\n"
	put(t, env, ".git/config",
		"[core]\nrepositoryformatversion = 0\nfsmonitor = "+env.Root+
			"/bin/git\n[filter \"evil\"]\nclean = "+env.Root+"/bin/git\n")
	for _, dir := range []string{"bin", "node_modules/.bin", ".venv/bin"} {
		for _, name := range []string{"git", "go", "gopls", "go1.99-evil", "node", "python",
			"python3",
			"pyright-langserver", "typescript-language-server", "rg", "gopackagesdriver", "sh"} {
			put(t, env, filepath.Join(dir, name), script)
			if err := os.Chmod(filepath.Join(env.Root, dir, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(t, env, "node_modules/typescript/lib/tsserver.js",
		"require('fs').writeFileSync('"+ran+"', 'tsserver')")
	t.Setenv("PATH", strings.Join([]string{
		filepath.Join(env.Root, "bin"), filepath.Join(env.Root, "node_modules/.bin"),
		filepath.Join(env.Root, ".venv/bin"), "node_modules/.bin", os.Getenv("PATH"),
	}, ":"))
	t.Setenv("VIRTUAL_ENV", filepath.Join(env.Root, ".venv"))
	t.Setenv("GOFLAGS", "")
	t.Cleanup(Close)
	of := map[string]args{
		"read_file": {"filePath": "a.go"}, "list_dir": {"path": "."},
		"file_search": {"query": "**"}, "grep_search": {"query": "x", "isRegexp": false},
		"get_errors": {}, "get_changed_files": {"diffs": true},
		"list_code_usages":         {"symbolName": "a"},
		"search_workspace_symbols": {"symbolName": "a"},
		"find_test_files":          {"filePaths": []string{"a.go"}},
		"get_doc_info":             {"filePaths": []string{"a.go"}},
		"get_project_setup_info":   {"projectType": "any"},
		"memory":                   {"command": "list"},
	}
	for _, tool := range All() {
		if tool.Kind != tools.Read {
			continue
		}
		in, ok := of[tool.Name]
		if !ok {
			t.Errorf("%s is a read-only tool, want a call of it in this test", tool.Name)
			continue
		}
		r, err := call(t, env, tool.Name, in)
		if err != nil && strings.Contains(err.Error(), "wrong arguments") {
			t.Errorf("%s: %v, want its arguments taken", tool.Name, err)
		}
		if data, err := os.ReadFile(ran); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s ran %s (and said %q), want nothing run", tool.Name, data, r.Text())
			_ = os.Remove(ran)
		}
		delete(of, tool.Name)
	}
	if len(of) > 0 {
		t.Errorf("calls of tools that are not read-only: %v, want none",
			slices.Collect(maps.Keys(of)))
	}
}

// A git of the workspace is not run for a repository in the workspace either.
func TestRepositoryInTheWorkspaceRunsNothingOfIt(t *testing.T) {
	env := space(t,
		map[string]string{"vendor/.git/HEAD": "ref: refs/heads/main\n", "vendor/.git/objects/": "",
			"vendor/.git/refs/": ""})
	ran := filepath.Join(t.TempDir(), "ran")
	put(t, env, "bin/git", "#!/bin/sh\ntouch "+ran+"\n")
	if err := os.Chmod(filepath.Join(env.Root, "bin/git"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Join(env.Root, "bin")+":"+os.Getenv("PATH"))
	if _, err := call(t, env, "get_changed_files", args{"repositoryPath": "vendor"}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the git of the workspace was run, want the system's")
	}
}
