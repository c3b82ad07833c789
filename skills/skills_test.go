package skills

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestFrontMatter holds the skills against what agents ask of one: a name that is its directory's,
// and a description of at most 1,000 characters on a line that needs no quotes in YAML.
func TestFrontMatter(t *testing.T) {
	front := regexp.MustCompile(
		`^---\nname: ([a-z0-9-]{1,64})\ndescription: (.{20,1000})\n---\n\n# `)
	var names []string
	for _, s := range All() {
		names = append(names, s.Name)
		m := front.FindStringSubmatch(s.Text)
		if m == nil || m[1] != s.Name || strings.Contains(m[2], ": ") ||
			strings.Contains(m[2], " #") {
			t.Errorf("%s: begins with %.300q, want its name, a plain description and a heading",
				s.Name, s.Text)
		}
		if lines := strings.Count(s.Text, "\n"); lines > 120 {
			t.Errorf("%s: has %d lines, want at most 120", s.Name, lines)
		}
	}
	want := []string{"tap-create-provider", "tap-goal", "tap-loop", "tap-monitor",
		"tap-orchestrate"}
	if !slices.Equal(names, want) {
		t.Errorf("the skills are %q, want %q", names, want)
	}
}

// project returns the folders of an empty project.
func project(t *testing.T) (dir string, folders []Folder) {
	t.Helper()
	dir = t.TempDir()
	folders, err := Folders(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, folders
}

// each looks into a folder, and does something with each skill.
func each(t *testing.T, f Folder, do func(Found) error) error {
	t.Helper()
	found, err := f.Look()
	if err != nil {
		return err
	}
	for _, s := range found {
		if err := do(s); err != nil {
			return err
		}
	}
	return nil
}

// tree lists the files and links below a directory, with their content.
func tree(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if e.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			all = append(all, path+" -> "+target)
			return err
		}
		data, err := os.ReadFile(path)
		all = append(all, path+"\n"+string(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestLinks makes each element of the path a link to a directory outside. Nothing there is written
// or removed.
func TestLinks(t *testing.T) {
	outside := t.TempDir()
	for _, name := range []string{".claude", ".claude/skills", ".claude/skills/tap-loop"} {
		dir, folders := project(t)
		link := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(outside, link); err != nil {
			t.Fatal(err)
		}
		err := each(t, folders[1], Found.Write)
		if err == nil ||
			!strings.Contains(err.Error(), link+" is a symbolic link that leads out of "+dir) {
			t.Errorf("%s: got %v, want that it leads out", name, err)
		}
		if got := tree(t, outside); len(got) > 0 {
			t.Fatalf("%s: outside is now %q, want nothing", name, got)
		}
	}
}

// TestFileInTheWay puts a file where a directory is needed, or a link to one. The error names it,
// and it stays.
func TestFileInTheWay(t *testing.T) {
	for _, name := range []string{".claude", ".claude/skills", ".claude/skills/tap-loop"} {
		for _, isLink := range []bool{false, true} {
			dir, folders := project(t)
			file := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				t.Fatal(err)
			}
			at := file
			if isLink {
				at = filepath.Join(filepath.Dir(file), "mine")
				if err := os.Symlink("mine", file); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(at, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
			was := tree(t, dir)
			_, err := folders[1].Look()
			if err == nil || !strings.Contains(err.Error(), file+" is no directory: move it away") {
				t.Errorf("%s, a link: %v: got %v, want that it is no directory", name, isLink, err)
			}
			if got := tree(t, dir); !slices.Equal(got, was) {
				t.Errorf("%s: the project is now %q, want %q", name, got, was)
			}
		}
	}
}

// TestUserFileInTheWay has files in place of the agents' own directories, and of those above them.
func TestUserFileInTheWay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("COPILOT_HOME", file)
	t.Setenv("CLAUDE_CONFIG_DIR", filepath.Join(file, "a", "b"))
	folders, err := Folders("")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		_, err := f.Look()
		if err == nil ||
			!strings.Contains(err.Error(), ": "+file+" is no directory: move it away") {
			t.Errorf("%s: got %v, want that %s is no directory", f.For, err, file)
		}
	}
}

// TestLinkedFile wants a SKILL.md that is a link, here to a text that tapgw wrote, to be a
// person's.
func TestLinkedFile(t *testing.T) {
	dir, folders := project(t)
	f := folders[0]
	s := All()[0]
	target := filepath.Join(dir, "target.md")
	link := filepath.Join(f.Path, s.Name, fileName)
	found, err := f.Look()
	if err != nil {
		t.Fatal(err)
	}
	if err := found[0].Write(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link, target); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	was := tree(t, dir)
	if err := each(t, f, Found.Write); err != nil {
		t.Fatal(err)
	}
	if err := each(t, f, Found.Remove); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, dir); !slices.Equal(got, was) {
		t.Errorf("after install and uninstall: %q, want %q", got, was)
	}
	found, err = f.Look()
	if err != nil || found[0].State != Changed {
		t.Errorf("the link is %q (%v), want %q", found[0].State, err, Changed)
	}
}

// older is a skill as another version of tapgw wrote it.
const older = `---
name: tap-goal
description: As it was once.
metadata:
  tapgw-sha256: 864798eebeb1e66880a51572200a24df79ed3d8c71d439055b3a983e303568e9
---
Older.
`

// TestChangedMeanwhile changes a file between the look and the deed.
func TestChangedMeanwhile(t *testing.T) {
	_, folders := project(t)
	f := folders[0]
	found, err := f.Look()
	if err != nil {
		t.Fatal(err)
	}
	s := found[0]
	if err := s.Write(); err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile(s.File)
	if err != nil {
		t.Fatal(err)
	}
	mine := []byte("mine")
	for verb, do := range map[string]func(Found) error{
		"write": Found.Write, "remove": Found.Remove,
	} {
		text := ours
		if verb == "write" {
			text = []byte(older)
		}
		if err := os.WriteFile(s.File, text, 0o600); err != nil {
			t.Fatal(err)
		}
		found, err := f.Look()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(s.File, mine, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := do(found[0]); err == nil || !strings.Contains(err.Error(), "changed meanwhile") {
			t.Errorf("%s: got %v, want that the file was changed meanwhile", verb, err)
		}
		if got, err := os.ReadFile(s.File); err != nil || string(got) != string(mine) {
			t.Errorf("%s: the file is %q (%v), want %q", verb, got, err, mine)
		}
	}
}

// TestOthersStay wants other files, and links in place of directories, to stay where tapgw removes
// its own.
func TestOthersStay(t *testing.T) {
	dir, folders := project(t)
	real := filepath.Join(dir, "real")
	if err := os.MkdirAll(real, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", filepath.Join(dir, ".claude")); err != nil {
		t.Fatal(err)
	}
	if err := each(t, folders[1], Found.Write); err != nil {
		t.Fatalf("a link within the project: %v, want that it is followed", err)
	}
	notes := filepath.Join(folders[1].Path, "tap-loop", "notes.md")
	if err := os.WriteFile(notes, []byte("n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := each(t, folders[1], Found.Remove); err != nil {
		t.Fatal(err)
	}
	want := []string{
		filepath.Join(dir, ".claude") + " -> real", filepath.Join(real, "skills", "tap-loop",
			"notes.md") + "\nn",
	}
	if got := tree(t, dir); !slices.Equal(got, want) {
		t.Errorf("left: %q, want %q", got, want)
	}
}
