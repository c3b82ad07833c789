package instructions

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// project makes a project with the given files; "-> X" is a symbolic link to X.
func project(t *testing.T, files map[string]string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "p")
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		err := error(nil)
		if to, ok := strings.CutPrefix(text, "-> "); ok {
			err = os.Symlink(to, file)
		} else {
			err = os.WriteFile(file, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestProject(t *testing.T) {
	root := project(t, map[string]string{
		"AGENTS.md": "root\n", "a/CLAUDE.md": "of a", "a/b/AGENTS.md": "of b",
		"a/b/c/AGENTS.md": "of c", "other/AGENTS.md": "of other",
		".github/copilot-instructions.md": "for Copilot",
	})
	files, left := Project(root, filepath.Join(root, "a", "b"))
	want := []File{{"AGENTS.md", "root"}, {".github/copilot-instructions.md", "for Copilot"},
		{"a/CLAUDE.md", "of a"}, {"a/b/AGENTS.md", "of b"}}
	if diff := cmp.Diff(want, files); diff != "" || left != nil {
		t.Errorf("got files that differ (-want +got):\n%s\nleft out %v, want none", diff, left)
	}
	files, left = Project(root, root)
	if diff := cmp.Diff(want[:2], files); diff != "" || left != nil {
		t.Errorf("of the root: got files that differ (-want +got):\n%s\nleft out %v, want none",
			diff, left)
	}
	if files, left = Project(root, filepath.Dir(root)); files != nil || len(left) != 1 {
		t.Errorf("outside: got %v, left out %v; want no file", files, left)
	}
}

func TestBelow(t *testing.T) {
	root := project(t, map[string]string{
		"AGENTS.md": "root", "a/AGENTS.md": "of a", "a/b/CLAUDE.md": "of b",
		"a/b/c/AGENTS.md": "of c", "a/b/c/x.go": "package c", "d/x.go": "package d",
	})
	for _, tt := range []struct {
		dir, target string
		want        []File
	}{
		{"", "x.go", nil},
		{"", "d/x.go", nil},
		{"", "a", []File{{"a/AGENTS.md", "of a"}}},
		{"", "a/b/c/x.go", []File{{"a/AGENTS.md", "of a"}, {"a/b/CLAUDE.md", "of b"},
			{"a/b/c/AGENTS.md", "of c"}}},
		{"a", "a/b/new/y.go", []File{{"a/b/CLAUDE.md", "of b"}}},
		{"a", "d/x.go", nil},
		{"a", "../x.go", nil},
	} {
		got, left := Below(root, filepath.Join(root, tt.dir), filepath.Join(root, tt.target))
		if diff := cmp.Diff(tt.want, got); diff != "" || left != nil {
			t.Errorf(
				"below %q for %s: got files that differ (-want +got):\n%s\nleft out %v, want none",
				tt.dir, tt.target, diff, left)
		}
	}
}

// What is not a short text of the project is left out, and the reason is named.
func TestLeftOut(t *testing.T) {
	const leadsOut = "is a symbolic link that leads out of the project"
	large := strings.Repeat("x", maxFile)
	for name, tt := range map[string]struct {
		files map[string]string
		want  []LeftOut
	}{
		"a link out of the project": {map[string]string{"AGENTS.md": "-> ../secret"},
			[]LeftOut{{"AGENTS.md", leadsOut}}},
		"an absolute link": {map[string]string{"AGENTS.md": "-> /etc/hostname"},
			[]LeftOut{{"AGENTS.md", leadsOut}}},
		"a directory that is such a link": {map[string]string{".github": "-> ../"},
			[]LeftOut{{Names[2], leadsOut}}},
		"a link within it": {map[string]string{"AGENTS.md": "-> docs/a.md", "docs/a.md": "x"},
			nil},
		"a link to nothing": {map[string]string{"AGENTS.md": "-> docs/a.md"}, nil},
		"a directory": {map[string]string{"AGENTS.md/x": ""},
			[]LeftOut{{"AGENTS.md", "is not a file"}}},
		"too large": {map[string]string{"AGENTS.md": large + "x"},
			[]LeftOut{{"AGENTS.md", "is larger than 64 KiB: shorten it"}}},
		"too large in common": {map[string]string{"AGENTS.md": large, "CLAUDE.md": "y" + large[1:],
			Names[2]: "z"},
			[]LeftOut{{Names[2],
				"with it the instructions are larger than 128 KiB: shorten them"}}},
		"no text": {map[string]string{"AGENTS.md": "\xff"},
			[]LeftOut{{"AGENTS.md", "is not text in UTF-8"}}},
		"empty": {map[string]string{"AGENTS.md": " \n"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			root := project(t, tt.files)
			if err := os.WriteFile(filepath.Join(root, "..", "secret"), []byte("secret"),
				0o600); err != nil {
				t.Fatal(err)
			}
			files, left := Project(root, root)
			if diff := cmp.Diff(tt.want, left); diff != "" {
				t.Errorf("left out (-want +got):\n%s", diff)
			}
			for _, f := range files {
				if strings.Contains(f.Text, "secret") {
					t.Errorf("%s holds %q, want no text of the file outside the project", f.Path,
						f.Text)
				}
			}
		})
	}
}

// A named pipe holds nothing up.
func TestPipe(t *testing.T) {
	root := project(t, map[string]string{"x": ""})
	if err := syscall.Mkfifo(filepath.Join(root, "AGENTS.md"), 0o600); err != nil {
		t.Fatal(err)
	}
	if files, left := Project(root, root); files != nil || len(left) != 1 ||
		left[0].Reason != "is not a file" {
		t.Errorf("got %v, left out %v; want it left out", files, left)
	}
}

// A text that two files share, as when one is a link to the other, is sent once.
func TestSameText(t *testing.T) {
	root := project(t, map[string]string{"AGENTS.md": "the same", "CLAUDE.md": "-> AGENTS.md"})
	if files, left := Project(root, root); len(files) != 1 || left != nil {
		t.Errorf("got %v, left out %v; want one file", files, left)
	}
}

func TestUser(t *testing.T) {
	dir := project(t, map[string]string{"elsewhere": "mine", "AGENTS.md": "-> elsewhere"})
	if files, left := User(filepath.Join(dir, "AGENTS.md")); len(files) != 1 ||
		files[0].Text != "mine" || left != nil {
		t.Errorf("got %v, left out %v; want the text", files, left)
	}
	if files, left := User(filepath.Join(dir, "nothing")); files != nil || left != nil {
		t.Errorf("no file: got %v, left out %v; want neither", files, left)
	}
}

func TestRules(t *testing.T) {
	root := project(t, map[string]string{
		"good/.github/instructions/go.instructions.md":  "x",
		"good/.github/instructions/a/b.instructions.md": "y",
		"bad/.github/instructions/out.instructions.md":  "-> /etc/hostname",
		"dir/.github/instructions":                      "-> /etc",
		"large/.github/instructions/l.instructions.md":  strings.Repeat("x", maxAll+1),
		"none/x": "",
	})
	for dir, want := range map[string]struct {
		names int
		why   string
	}{
		"good": {2, ""}, "none": {0, ""}, "large": {0, "larger than 128 KiB"},
		"bad": {0, "leads out of the project"}, "dir": {0, "leads out of the project"},
	} {
		names, why := Rules(root, filepath.Join(root, dir))
		if len(names) != want.names || !strings.Contains(why, want.why) ||
			(why == "") != (want.why == "") {
			t.Errorf("%s: got %q and %q, want %d files and %q", dir, names, why, want.names,
				want.why)
		}
	}
}

func TestNested(t *testing.T) {
	root := project(t, map[string]string{
		"AGENTS.md": "x", ".github/copilot-instructions.md": "x", "a/AGENTS.md": "x",
		"a/b/.github/copilot-instructions.md": "x", "node_modules/p/AGENTS.md": "x",
		"a/b/NOAGENTS.md": "x", "a/CLAUDE.md": "-> /etc/hostname", "c/AGENTS.md/x": "x",
	})
	want := []string{"a/AGENTS.md", "a/b/.github/copilot-instructions.md"}
	if diff := cmp.Diff(want, Nested(root, root)); diff != "" {
		t.Errorf("nested in the root (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[1:], Nested(root, filepath.Join(root, "a"))); diff != "" {
		t.Errorf("nested below a (-want +got):\n%s", diff)
	}
}

// A second name of a file in a directory of secrets is no instruction, wherever it stands.
func TestSecrets(t *testing.T) {
	root, state := project(t, map[string]string{"AGENTS.md": "plain", "sub/x": ""}), t.TempDir()
	secret := filepath.Join(state, "logins", "token")
	if err := os.MkdirAll(filepath.Dir(secret), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"CLAUDE.md", "sub/rule.md"} {
		if err := os.Link(secret, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	const why = "is another name of a file with secrets"
	files, left := Project(root, root, filepath.Join(state, "gone"), state)
	if diff := cmp.Diff([]File{{"AGENTS.md", "plain"}}, files); diff != "" {
		t.Errorf("got files that differ (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]LeftOut{{"CLAUDE.md", why}}, left); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
	files, left = RuleFiles(root, "sub", state)
	if diff := cmp.Diff([]LeftOut{{"sub/rule.md", why}}, left); diff != "" || files != nil {
		t.Errorf("of rules: got %v, left out (-want +got):\n%s", files, diff)
	}
}

func TestRuleFiles(t *testing.T) {
	large := strings.Repeat("x", maxFile+1)
	root := project(t, map[string]string{
		"r/a.md": "first", "r/b/c.md": "second", "r/b/again.md": "second", "r/d.txt": "no rule",
		"r/out.md":   "-> ../../x",
		"r/large.md": large, "r/dir": "-> ..", "r/in.md": "-> ../in.md", "in.md": "third",
		"s": "-> /",
	})
	files, left := RuleFiles(root, "r")
	if diff := cmp.Diff([]File{{"r/a.md", "first"}, {"r/b/again.md", "second"},
		{"r/in.md", "third"}},
		files); diff != "" {
		t.Errorf("got files that differ (-want +got):\n%s", diff)
	}
	want := []LeftOut{{"r/large.md", "is larger than 64 KiB: shorten it"},
		{"r/out.md", "is a symbolic link that leads out of the project"}}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
	for _, dir := range []string{"none", "s", "r/a.md"} {
		if files, _ := RuleFiles(root, dir); dir != "r/a.md" && files != nil {
			t.Errorf("%s: got %v, want no file", dir, files)
		}
	}
}
