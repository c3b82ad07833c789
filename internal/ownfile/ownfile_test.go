package ownfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// samples has a text of each form.
var samples = map[string]struct {
	form Form
	text string
}{
	"front matter": {FrontMatter, "---\nname: tap-x\ndescription: What it is for.\n---\n\n# X\n"},
	"json":         {JSON, "{\n  \"version\": 1,\n  \"hooks\": {\n    \"a\": []\n  }\n}\n"},
	"javascript":   {JavaScript, "import { spawn } from \"node:child_process\";\nspawn(\"x\");\n"},
}

// TestMark wants every change of a marked text to show.
func TestMark(t *testing.T) {
	for name, s := range samples {
		text := s.form.put(s.text, digest(s.text), 2)
		plain, made, ok := s.form.read(text)
		if plain != s.text || !ok || s.form.counts && made != 2 {
			t.Errorf("%s: read %q, %d directories, ours %v; want %q, 2, true", name, plain, made,
				ok, s.text)
		}
		for i := range text {
			_, made, ours := s.form.read(text[:i] + string(text[i]^1) + text[i+1:])
			if ours && made == 2 { // another count is no change of what the file does
				t.Fatalf("%s: with byte %d changed it counts as ours, want that it does not", name,
					i)
			}
		}
		for _, changed := range []string{text + "\n", s.text, text + text, "", "\ufeff" + text} {
			if _, _, ours := s.form.read(changed); ours {
				t.Errorf("%s: %q counts as ours, want that it does not", name, changed)
			}
		}
	}
}

// file returns a file in an empty directory that is not there yet, two directories deep.
func file(t *testing.T) File {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	return File{Path: filepath.Join(root, "a", "b", "x.json"), Root: root,
		Text: samples["json"].text, Form: JSON}
}

func look(t *testing.T, f File, want string) Found {
	t.Helper()
	found, err := f.Look()
	if err != nil || found.State != want {
		t.Fatalf("the file is %q (%v), want %q", found.State, err, want)
	}
	return found
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestDirectories wants the directories that were there to stay, and those that were made for the
// file to go, also after an update by a version that finds them all.
func TestDirectories(t *testing.T) {
	for _, there := range []string{"", "root", "root/a", "root/a/b"} {
		f := file(t)
		base := filepath.Dir(f.Root)
		must(t, os.MkdirAll(filepath.Join(base, there), 0o700))
		must(t, look(t, f, Absent).Write())
		look(t, f, Installed)
		f.Text = strings.Replace(f.Text, "1", "2", 1)
		must(t, look(t, f, Outdated).Write())
		must(t, look(t, f, Installed).Remove())
		left := ""
		for _, dir := range []string{"root", "root/a", "root/a/b"} {
			if _, err := os.Stat(filepath.Join(base, dir)); err == nil {
				left = dir
			}
		}
		if left != there {
			t.Errorf("%q was there before, and %q is now", there, left)
		}
	}
}

// TestRace installs and removes from many goroutines at once. Each finds the work done, or does it.
func TestRace(t *testing.T) {
	f := file(t)
	together := func(do func(Found) error) {
		found, err := f.Look()
		must(t, err)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				// removed between look and deed
				if err := do(found); err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
	together(Found.Write)
	look(t, f, Installed)
	entries, err := os.ReadDir(filepath.Dir(f.Path))
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("there are %d files, want 1: %v", len(entries), entries)
	}
	together(Found.Remove)
	look(t, f, Absent)
}

// TestFullDisk wants nothing to be left of a file that can't be written, and the old one to stay.
func TestFullDisk(t *testing.T) {
	f := file(t)
	must(t, look(t, f, Absent).Write())
	was, err := os.ReadFile(f.Path)
	must(t, err)
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit))
	full := limit
	full.Cur = 10
	f.Text += "\n"
	found := look(t, f, Outdated)
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full))
	err = found.Write()
	must(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit))
	if err == nil || !strings.Contains(err.Error(), "writing "+f.Path) {
		t.Errorf("got %v, want that writing %s failed", err, f.Path)
	}
	now, err := os.ReadFile(f.Path)
	must(t, err)
	entries, err := os.ReadDir(filepath.Dir(f.Path))
	must(t, err)
	if string(now) != string(was) || len(entries) != 1 {
		t.Errorf("there are %d files, and ours says %q; want 1 that says %q", len(entries), now,
			was)
	}
}

// TestReadOnly wants an error that names the file where the directory may not be written.
func TestReadOnly(t *testing.T) {
	f := file(t)
	// a file where the directory should be: this holds for root, too
	must(t, os.WriteFile(f.Root, nil, 0o600))
	if _, err := f.Look(); err == nil || !strings.Contains(err.Error(), f.Path) {
		t.Errorf("got %v, want an error that names %s", err, f.Path)
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range samples {
		f.Add(s.form.put(s.text, digest(s.text), 1))
	}
	f.Fuzz(func(t *testing.T, text string) {
		for name, s := range samples {
			plain, made, ok := s.form.read(text)
			if ok && s.form.put(plain, digest(plain), made) != text {
				t.Errorf("%s: %q counts as ours, and is not what tapgw writes", name, text)
			}
		}
	})
}

// TestRemoveEmpty wants directories to go as far as they are empty, and neither links nor what is
// not below.
func TestRemoveEmpty(t *testing.T) {
	home := t.TempDir()
	at := func(path string) string { return filepath.Join(home, path) }
	for _, dir := range []string{"a/b/c", "full/x", "real"} {
		must(t, os.MkdirAll(at(dir), 0o700))
	}
	must(t, os.WriteFile(at("full/mine"), nil, 0o600))
	must(t, os.Symlink(at("real"), at("link")))
	for _, dir := range []string{"a/b/c", "full/x", "link"} {
		RemoveEmpty(at(dir), home)
	}
	RemoveEmpty(at("real"), at("full"))
	RemoveEmpty(home, home)
	for path, want := range map[string]bool{
		"a": false, "full/x": false, "full/mine": true, "link": true, "real": true,
	} {
		if _, err := os.Lstat(at(path)); (err == nil) != want {
			t.Errorf("%s is there: %v, want %v", path, err == nil, want)
		}
	}
}
