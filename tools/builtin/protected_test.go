package builtin

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tapgw/tools"
)

// No tool writes files that make programs run, however their place is named, unless a
// person allows it.
func TestWritesToProtectedPlaces(t *testing.T) {
	of := map[string]func(path string) args{
		"create_file": func(p string) args {
			return args{"filePath": p, "content": "evil"}
		},
		"create_directory":      func(p string) args { return args{"dirPath": p + "/new"} },
		"insert_edit_into_file": func(p string) args { return args{"filePath": p, "code": "evil"} },
		"replace_string_in_file": func(p string) args {
			return args{"filePath": p, "oldString": "old", "newString": "evil", "explanation": ""}
		},
		"multi_replace_string": func(p string) args {
			return args{"explanation": "",
				"replacements": []args{{"filePath": p, "oldString": "old", "newString": "evil",
					"explanation": ""}}}
		},
		"apply_patch": func(p string) args {
			return args{"explanation": "",
				"input": "*** Begin Patch\n*** Update File: x\n*** Move to: " + p +
					"/moved\n@@\n-old\n+evil\n*** End Patch"}
		},
		"apply_patch, deleting": func(p string) args {
			return args{"explanation": "",
				"input": "*** Begin Patch\n*** Delete File: " + p + "\n*** End Patch"}
		},
		"apply_patch, taking out": func(p string) args {
			return args{"explanation": "",
				"input": "*** Begin Patch\n*** Update File: " + p +
					"\n*** Move to: elsewhere\n@@\n-old\n+evil\n*** End Patch"}
		},
	}
	for _, tool := range All() {
		if tool.Kind == tools.Edit && of[tool.Name] == nil {
			t.Errorf("%s writes, want a call of it in this test", tool.Name)
		}
	}
	for name, in := range of {
		name, _, _ = strings.Cut(name, ",")
		for _, path := range []string{
			".git/config", ".GIT/config", "./a/../.git/config", "link/config", "file", "dangling",
			".tapgw/tools/x.py", ".tapgw/tapgw.toml", ".github/hooks/x.json",
			"configs/providers/x.toml", "mytools/x.py", ".vscode/tasks.json", "ROOT/.git/config",
		} {
			env := space(t, files{"x": "old\n", ".git/config": "old", "mytools/x.py": "old"})
			env.Sources = []string{filepath.Join(env.Root, "mytools")}
			if err := errors.Join(os.Symlink(".git", filepath.Join(env.Root, "link")),
				os.Symlink(".git/config", filepath.Join(env.Root, "file")),
				os.Symlink(".git/hooks/pre-commit",
					filepath.Join(env.Root, "dangling"))); err != nil {
				t.Fatal(err)
			}
			path = strings.ReplaceAll(path, "ROOT", env.Root)
			before := snapshot(t, env)
			_, err := call(t, env, name, in(path))
			refused := err != nil && strings.Contains(err.Error(), "is protected") &&
				strings.Contains(err.Error(), "nobody can be asked here")
			if nothing := err != nil &&
				strings.Contains(err.Error(), "a part of this path is a file"); !refused &&
				!nothing {
				t.Errorf("%s of %s: %v, want a refusal", name, path, err)
			}
			if after := snapshot(t, env); !maps.Equal(before, after) {
				t.Errorf("%s of %s: changed to %v, want nothing changed", name, path, after)
			}
		}
	}
	env := space(t, files{".git/config": "old"})
	asked := ""
	env.Protected = func(_ context.Context, path, why string) error {
		asked = path + " " + why
		return nil
	}
	if _, err := call(t, env, "create_file", of["create_file"](".git/config")); err != nil ||
		!strings.Contains(asked, env.Root+"/.git/config it is or lies in .git") {
		t.Errorf("allowed: %v, asked %q, want a question about %s and no error", err, asked,
			env.Root+"/.git/config")
	}
	if snapshot(t, env)[".git/config"] != "evil" {
		t.Error("an allowed edit of .git/config was not written, want it")
	}
}
