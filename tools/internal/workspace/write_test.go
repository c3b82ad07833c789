package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// at opens places of a workspace for the length of a test.
func at(t *testing.T, root, path string) *Place {
	t.Helper()
	p, err := Files{Root: root}.At(t.Context(), path, true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// checkFiles fails unless the directory has exactly these files, by path.
func checkFiles(t *testing.T, root string, want map[string]string) {
	t.Helper()
	got := make(map[string]string)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() {
			got[rel+"/"] = ""
			return nil
		}
		data, err := os.ReadFile(path)
		got[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range got {
		if w, ok := want[name]; !ok {
			t.Errorf("there is %s with %q, want no such file", name, data)
		} else if data != w {
			t.Errorf("%s holds %q, want %q", name, data, w)
		}
	}
	for name := range want {
		if _, ok := got[name]; !ok {
			t.Errorf("there is no %s, want it", name)
		}
	}
}

func put(t *testing.T, root, name, data string, mode fs.FileMode) {
	t.Helper()
	file := filepath.Join(root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755),
		os.WriteFile(file, []byte(data), 0o600),
		os.Chmod(file, mode)); err != nil {
		t.Fatal(err)
	}
}

func TestWrite(t *testing.T) {
	root := t.TempDir()
	put(t, root, "run.sh", "old", 0o750)
	put(t, root, "ro", "old", 0o444)
	put(t, root, "target", "old", 0o644)
	if err := os.Symlink("target", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	bom := "\uFEFFone\r\ntwo\r\n"
	if created, err := at(t, root, "run.sh").Write(bom); err != nil || created {
		t.Errorf("created %v, %v, want false and no error", created, err)
	}
	if created, err := at(t, root, "new/deep/x").Write("x"); err != nil || !created {
		t.Errorf("created %v, %v, want true and no error", created, err)
	}
	if _, err := at(t, root, "link").Write("through"); err != nil {
		t.Error(err)
	}
	if _, err := at(t, root, "ro").Write("no"); err == nil ||
		!strings.Contains(err.Error(), "ro is read-only") {
		t.Errorf("got error %v for a read-only file, want %q in it", err, "ro is read-only")
	}
	if _, err := at(t, root, "new").Write("no"); err == nil ||
		!strings.Contains(err.Error(), "new is a directory") {
		t.Errorf("got error %v for a directory, want %q in it", err, "new is a directory")
	}
	checkFiles(t, root, map[string]string{
		"run.sh": bom, "ro": "old", "target": "through", "link": "through", "new/": "",
		"new/deep/":  "",
		"new/deep/x": "x",
	})
	if info, err := os.Stat(filepath.Join(root, "run.sh")); err != nil ||
		info.Mode().Perm() != 0o750 {
		t.Errorf("its mode is %v, %v, want it kept", info.Mode(), err)
	}
	if info, err := os.Lstat(filepath.Join(root, "link")); err != nil ||
		info.Mode()&fs.ModeSymlink == 0 {
		t.Errorf("the link became %v, %v, want a link as before", info.Mode(), err)
	}
}

func TestMkdir(t *testing.T) {
	root := t.TempDir()
	put(t, root, "file", "", 0o644)
	for _, tt := range []struct {
		path    string
		created bool
		want    string
	}{
		{"a/b/c", true, ""},
		{"a/b/c", false, ""},
		{".", false, ""},
		{"file", false, "file is a file, not a directory"},
	} {
		created, err := at(t, root, tt.path).Mkdir()
		if created != tt.created || tt.want == "" && err != nil ||
			tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: created %v, error %v, want %v, %q", tt.path, created, err, tt.created,
				tt.want)
		}
	}
}

func ptr(s string) *string { return &s }

// Commit makes all changes or none, and leaves no temporary files.
func TestCommit(t *testing.T) {
	tests := []struct {
		name    string
		changes func(at func(string) *Place) []*Change
		// between the resolving of the places and the commit
		damage func(t *testing.T, root string)
		want   string
		after  map[string]string
	}{
		{
			name: "all kinds",
			changes: func(at func(string) *Place) []*Change {
				return []*Change{
					{At: at("a"), Was: ptr("A"), Now: ptr("A2")},
					{At: at("b"), Was: ptr("B")},
					{At: at("sub/new"), Now: ptr("N")},
					{At: at("c"), Any: true, Now: ptr("C2")},
				}
			},
			after: map[string]string{"a": "A2", "sub/": "", "sub/new": "N", "c": "C2"},
		},
		{
			name: "the last has changed",
			changes: func(at func(string) *Place) []*Change {
				return []*Change{{At: at("sub/deep/new"), Now: ptr("N")},
					{At: at("a"), Was: ptr("A"), Now: ptr("A2")}, {At: at("b"), Was: ptr("other")}}
			},
			want: "b changed in the meantime",
		},
		{
			name: "one is gone",
			changes: func(at func(string) *Place) []*Change {
				return []*Change{{At: at("a"), Was: ptr("A"), Now: ptr("A2")},
					{At: at("missing"), Was: ptr("x"), Now: ptr("y")}}
			},
			want: "missing does not exist",
		},
		{
			name: "one is there",
			changes: func(at func(string) *Place) []*Change {
				return []*Change{{At: at("a"), Was: ptr("A"), Now: ptr("A2")},
					{At: at("b"), Now: ptr("y")}}
			},
			want: "b exists already",
		},
		{
			name: "twice the same",
			changes: func(at func(string) *Place) []*Change {
				return []*Change{{At: at("a"), Was: ptr("A"), Now: ptr("A2")},
					{At: at("./a"), Was: ptr("A"), Now: ptr("A3")}}
			},
			want: "a is changed twice",
		},
		{
			// Its parent is a file by then, so that the last one cannot be staged.
			name: "staging fails",
			changes: func(at func(string) *Place) []*Change {
				return []*Change{{At: at("a"), Was: ptr("A"), Now: ptr("A2")},
					{At: at("b"), Was: ptr("B")}, {At: at("dir/new"), Now: ptr("N")}}
			},
			damage: func(t *testing.T, root string) { put(t, root, "dir", "F", 0o644) },
			want:   "dir/new",
			after:  map[string]string{"a": "A", "b": "B", "c": "C", "dir": "F"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			before := map[string]string{"a": "A", "b": "B", "c": "C"}
			for name, data := range before {
				put(t, root, name, data, 0o640)
			}
			changes := tt.changes(func(path string) *Place { return at(t, root, path) })
			if tt.damage != nil {
				tt.damage(t, root)
			}
			err := Commit(changes)
			if tt.want == "" && err != nil || tt.want != "" &&
				(err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
			if tt.after == nil {
				tt.after = before
			}
			checkFiles(t, root, tt.after)
		})
	}
}

// A Commit that fails halfway, because a directory has taken the place of the last file,
// undoes the changes before.
func TestCommitRollsBack(t *testing.T) {
	root := t.TempDir()
	put(t, root, "a", "A", 0o751)
	put(t, root, "b", "B", 0o640)
	put(t, root, "kept", "K", 0o644)
	if err := os.Link(filepath.Join(root, "a"), filepath.Join(root, "a2")); err != nil {
		t.Fatal(err)
	}
	changes := []*Change{
		{At: at(t, root, "a"), Was: ptr("A"), Now: ptr("A2")},
		{At: at(t, root, "b"), Was: ptr("B")},
		{At: at(t, root, "sub/new"), Now: ptr("N")},
		{At: at(t, root, "last"), Any: true, Now: ptr("L")},
	}
	// Staged by hand, so that the world can change before the replacing.
	for _, c := range changes {
		if err := c.stage(true); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "last", "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	for _, c := range changes {
		if err = c.apply(); err != nil {
			break
		}
	}
	if err == nil || !strings.Contains(err.Error(), "last") {
		t.Fatalf("got error %v, want one about the last", err)
	}
	if err := finish(changes, true); err != nil {
		t.Fatal(err)
	}
	checkFiles(t, root, map[string]string{"a": "A", "a2": "A", "b": "B", "kept": "K", "last/": "",
		"last/full/": ""})
	a, _ := os.Stat(filepath.Join(root, "a"))
	a2, _ := os.Stat(filepath.Join(root, "a2"))
	if !os.SameFile(a, a2) || a.Mode().Perm() != 0o751 {
		t.Errorf("a is not the file that it was: mode %v, want the same file with 0751", a.Mode())
	}
}
