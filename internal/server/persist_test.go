package server_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tapgw/internal/protocol"
	"tapgw/internal/server"
)

func TestPersistMake(t *testing.T) {
	p := server.Persist{Dir: filepath.Join(t.TempDir(), "providers")}
	for range 2 { // the second finds it there
		dir, err := p.Make("a.b")
		if err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(p.Dir, "a.b") + string(filepath.Separator); dir != want {
			t.Errorf("made %q, want %q", dir, want)
		}
		info, err := os.Stat(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != 0o700 {
			t.Errorf("mode %o, want 700", got)
		}
		// Made private again by the second.
		if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(p.Dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Make("file"); err == nil {
		t.Error("a file stands where the directory should be, and that is no error")
	}
}

// newPersistTree makes the directories of the providers a and b, with files and symbolic links,
// below root.
func newPersistTree(t *testing.T, root string) server.Persist {
	t.Helper()
	p := server.Persist{Dir: filepath.Join(root, "providers")}
	for _, name := range []string{"a", "b"} {
		if _, err := p.Make(name); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(p.Dir, "a")
	write := func(path, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(root, path), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, at string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(root, at)); err != nil {
			t.Fatal(err)
		}
	}
	write("outside.txt", "outside")
	write("providers/a/out.txt", "text")
	write("providers/a/out.bin", "\x00\x01\xff")
	write("providers/b/theirs.txt", "theirs")
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
		t.Fatal(err)
	}
	write("providers/a/sub/deep.json", "{}")
	link("out.txt", "providers/a/link.txt")
	link(filepath.Join(dir, "out.txt"), "providers/a/inside.txt")
	link("../../outside.txt", "providers/a/escape.txt")
	link(filepath.Join(root, "outside.txt"), "providers/a/absolute.txt")
	link("../b", "providers/a/neighbour")
	link("loop", "providers/a/loop")
	link("providers", "also")
	return p
}

func TestPersistRead(t *testing.T) {
	root := t.TempDir()
	p := newPersistTree(t, root)
	dir := filepath.Join(p.Dir, "a")
	large := func(name string, size int64) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
		return path
	}

	tests := []struct {
		name, path, mime  string
		want, typ, failed string
	}{
		{"inside", filepath.Join(dir, "out.txt"), "", "text", "text/plain; charset=utf-8", ""},
		{"its own type", filepath.Join(dir, "out.txt"), "text/markdown", "text", "text/markdown",
			""},
		{"a type that is guessed", filepath.Join(dir, "out.bin"), "", "\x00\x01\xff",
			"application/octet-stream", ""},
		{"deeper", filepath.Join(dir, "sub", "deep.json"), "", "{}", "application/json", ""},
		{"by a detour", dir + "/sub/../out.txt", "", "text", "text/plain; charset=utf-8", ""},
		{"a link that stays inside", filepath.Join(dir, "link.txt"), "", "text",
			"text/plain; charset=utf-8", ""},
		{"an absolute link that stays inside", filepath.Join(dir, "inside.txt"), "", "text",
			"text/plain; charset=utf-8", ""},
		{"the directory by a link", filepath.Join(root, "also", "a", "out.txt"), "", "", "",
			"not inside"},
		{"outside", filepath.Join(root, "outside.txt"), "", "", "", "not inside"},
		{"outside by a detour", dir + "/../../outside.txt", "", "", "", "not inside"},
		{"another provider's", filepath.Join(p.Dir, "b", "theirs.txt"), "", "", "", "not inside"},
		{"a name that begins the same", dir + "b/out.txt", "", "", "", "not inside"},
		{"the directory", dir, "", "", "", "not inside"},
		{"relative", "out.txt", "", "", "", "absolute"},
		{"a link that leads out", filepath.Join(dir, "escape.txt"), "", "", "", "escape"},
		{"an absolute link", filepath.Join(dir, "absolute.txt"), "", "", "", "escape"},
		{"a link to a neighbour", filepath.Join(dir, "neighbour", "theirs.txt"), "", "", "",
			"escape"},
		{"a link to itself", filepath.Join(dir, "loop"), "", "", "", "loop"},
		{"a directory", filepath.Join(dir, "sub"), "", "", "", "not a regular file"},
		{"none", filepath.Join(dir, "none.txt"), "", "", "", "none.txt"},
		{"64 MiB and one", large("over.bin", 64<<20+1), "", "", "", "over 64 MiB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := p.Read("a", protocol.FileRef{Path: tt.path, MimeType: tt.mime})
			if tt.failed != "" {
				if err == nil || !strings.Contains(err.Error(), tt.failed) {
					t.Fatalf("got %v and error %v, want one with %q", f, err, tt.failed)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if string(f.Content) != tt.want || f.MimeType != tt.typ ||
				f.Name != filepath.Base(tt.path) {
				t.Errorf("got %s of type %s: %q, want type %s: %q", f.Name, f.MimeType, f.Content,
					tt.typ, tt.want)
			}
		})
	}
	t.Run("64 MiB", func(t *testing.T) {
		f, err := p.Read("a", protocol.FileRef{Path: large("exact.bin", 64<<20)})
		if err != nil || len(f.Content) != 64<<20 {
			t.Errorf("a file of 64 MiB is not read: %v, want all of it", err)
		}
	})
	t.Run("of a directory that a link names", func(t *testing.T) {
		linked := server.Persist{Dir: filepath.Join(root, "also")}
		for _, path := range []string{filepath.Join(root, "also", "a", "out.txt"),
			filepath.Join(dir, "out.txt")} {
			if f, err := linked.Read("a", protocol.FileRef{Path: path}); err != nil ||
				string(f.Content) != "text" {
				t.Errorf(`%s: %v, want no error and "text"`, path, err)
			}
		}
	})
}
