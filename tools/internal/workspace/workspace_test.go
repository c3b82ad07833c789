package workspace

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// tree makes a workspace beside a directory that tools must not reach:
//
//	ws/a.txt  ws/dir/b.txt  ws/in -> dir  ws/abs -> <ws>/dir  ws/out -> ../secret
//	ws/file -> /…/secret/key  ws/new -> ../secret/new  ws/loop -> loop  ws/pipe
//	secret/key
func tree(t testing.TB) (root, secret string) {
	t.Helper()
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	root, secret = filepath.Join(base, "ws"), filepath.Join(base, "secret")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(root, "dir"), 0o755),
		os.Mkdir(secret, 0o755),
		os.WriteFile(filepath.Join(root, "a.txt"), []byte("inside"), 0o644),
		os.WriteFile(filepath.Join(root, "dir", "b.txt"), []byte("inside"), 0o644),
		os.WriteFile(filepath.Join(secret, "key"), []byte("secret"), 0o644),
		os.Symlink("dir", filepath.Join(root, "in")),
		os.Symlink(filepath.Join(root, "dir"), filepath.Join(root, "abs")),
		os.Symlink("../secret", filepath.Join(root, "out")),
		os.Symlink(filepath.Join(secret, "key"), filepath.Join(root, "file")),
		os.Symlink("../secret/new", filepath.Join(root, "new")),
		os.Symlink("dir/../../secret/key", filepath.Join(root, "round")),
		os.Symlink("loop", filepath.Join(root, "loop")),
		syscall.Mkfifo(filepath.Join(root, "pipe"), 0o644),
		os.Symlink(root, filepath.Join(base, "alias")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return root, secret
}

func TestAt(t *testing.T) {
	root, secret := tree(t)
	tests := []struct {
		path string
		name string // of the place
		want string // part of the error
	}{
		{"a.txt", "a.txt", ""},
		{"./dir/../a.txt", "a.txt", ""},
		{".", ".", ""},
		{root, ".", ""},
		{root + "/", ".", ""},
		{root + "/dir//b.txt", "dir/b.txt", ""},
		{"file://" + root + "/a.txt", "a.txt", ""},
		{"file://localhost" + root + "/with%20space", "with space", ""},
		{"in/b.txt", "in/b.txt", ""},
		{"abs/b.txt", "abs/b.txt", ""},
		{root + "/../alias/dir/b.txt", "dir/b.txt", ""},
		{"missing/deep/x.go", "missing/deep/x.go", ""},
		{"..a", "..a", ""},
		{"a://b", "", "no file of this machine"},
		{"", "", "empty"},
		{"a\x00b", "", "NUL"},
		{"file://" + root + "/a%00b", "", "NUL"},
		{"..", "", "outside the workspace"},
		{"../ws2", "", "outside the workspace"},
		{root + "2/x", "", "outside the workspace"},
		{"/etc/passwd", "", "outside the workspace"},
		{"dir/../../secret/key", "", "outside the workspace"},
		{"file:///etc/passwd", "", "outside the workspace"},
		{"file://host/etc/passwd", "", "no file of this machine"},
		{"file:relative", "file:relative", ""}, // a name like any other
		{"http://localhost/x", "", "no file of this machine"},
		{"vscode-remote://x/y", "", "no file of this machine"},
		{"out/key", "", "leads to " + secret},
		{"out", "", "leads to " + secret},
		{"file", "", "leads to " + secret},
		{"new", "", "leads to " + secret},
		{"round", "", "leads to " + secret},
		{"in/../out/key", "", "leads to " + secret},
		{"loop", "", "symbolic links"},
		{"a.txt/b", "", "is a file, not a directory"},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			p, err := Files{Root: root}.At(t.Context(), tt.path, false)
			if err == nil {
				defer p.Close()
			}
			if tt.want != "" {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Fatalf("got error %v, want %q", err, tt.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if p.Name != tt.name {
				t.Errorf("its name is %q, want %q", p.Name, tt.name)
			}
			if !filepath.IsAbs(p.Path) {
				t.Errorf("its path is %q, want an absolute one", p.Path)
			}
		})
	}
}

// The policy decides about the target of a link.
func TestOutside(t *testing.T) {
	root, secret := tree(t)
	type question struct {
		path  string
		write bool
	}
	var asked []question
	files := Files{Root: root, Outside: func(_ context.Context, path string, write bool) error {
		asked = append(asked, question{path, write})
		if write && !strings.HasPrefix(path, filepath.Join(secret, "deep")) {
			return errors.New("only reading is allowed")
		}
		return nil
	}}
	p, err := files.At(t.Context(), "file", false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if data, err := p.Read(); err != nil || string(data) != "secret" {
		t.Errorf("read %q, %v, want %q", data, err, "secret")
	}
	if _, err := files.At(t.Context(), "new", true); err == nil ||
		!strings.Contains(err.Error(), "only reading is allowed") {
		t.Errorf("got error %v, want the policy's", err)
	}
	deep, err := files.At(t.Context(), "out/deep/er/x", true)
	if err != nil {
		t.Fatal(err)
	}
	defer deep.Close()
	if _, err := deep.Write("text"); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(secret, "deep", "er", "x")); err != nil ||
		string(data) != "text" {
		t.Errorf("the file holds %q, %v, want %q", data, err, "text")
	}
	want := []question{{filepath.Join(secret, "key"), false}, {filepath.Join(secret, "new"), true},
		{filepath.Join(secret, "deep", "er", "x"), true}}
	if len(asked) != len(want) {
		t.Fatalf("asked %v, want %v", asked, want)
	}
	for i := range want {
		if asked[i] != want[i] {
			t.Errorf("asked %v, want %v", asked[i], want[i])
		}
	}
}

// A link that changes after the decision does not lead out.
func TestLinkSwapped(t *testing.T) {
	root, secret := tree(t)
	p, err := Files{Root: root}.At(t.Context(), "dir/key", true)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := os.Rename(filepath.Join(root, "dir"), filepath.Join(root, "old")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../secret", filepath.Join(root, "dir")); err != nil {
		t.Fatal(err)
	}
	if data, err := p.Read(); err == nil {
		t.Errorf("read %q through the link, want an error", data)
	}
	if _, err := p.Write("mine"); err == nil {
		t.Error("wrote through the link, want an error")
	}
	if data, _ := os.ReadFile(filepath.Join(secret, "key")); string(data) != "secret" {
		t.Errorf("the file outside holds %q, want %q", data, "secret")
	}
}

func TestRead(t *testing.T) {
	root, _ := tree(t)
	if err := os.WriteFile(filepath.Join(root, "bin"), []byte("PNG\x00\x01"), 0o644); err != nil {
		t.Fatal(err)
	}
	large, err := os.Create(filepath.Join(root, "large"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(large.Truncate(MaxText+1), large.Close()); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ path, text, want string }{
		{"a.txt", "inside", ""},
		{"in/b.txt", "inside", ""},
		{"missing", "", "missing does not exist"},
		{"dir", "", "dir is a directory, not a file"},
		{"pipe", "", "pipe is a named pipe, not a file"},
		{"bin", "", "bin is a binary file of 5 bytes"},
		{"large", "", "large is larger than 16 MB"},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			p, err := Files{Root: root}.At(t.Context(), tt.path, false)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			text, err := p.ReadText()
			if tt.want == "" && (err != nil || text != tt.text) ||
				tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %q, error %v, want %q", text, err, tt.want)
			}
		})
	}
	p, err := Files{Root: "/", Outside: nil}.At(t.Context(), "/dev/null", false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Read(); err == nil || !strings.Contains(err.Error(), "is a device") {
		t.Errorf("got error %v for a device, want %q in it", err, "is a device")
	}
}

func TestErrorsKeepTheirCause(t *testing.T) {
	root, _ := tree(t)
	p, err := Files{Root: root}.At(t.Context(), "missing", false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Stat(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want one that is fs.ErrNotExist", err)
	}
}

func TestExplain(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&fs.PathError{Op: "openat", Path: "q", Err: syscall.EACCES}, "x: permission denied"},
		{&fs.PathError{Op: "openat", Path: "q", Err: syscall.ENOENT}, "x does not exist"},
		{&fs.PathError{Op: "openat", Path: "q", Err: syscall.EEXIST}, "x exists already"},
		{&os.LinkError{Op: "renameat", Old: "q", New: "r", Err: syscall.ENOSPC},
			"x: no space left on device"},
		{&fs.PathError{Op: "openat", Path: "q", Err: errors.New("path escapes from parent")},
			"x: path escapes from parent"},
		{errors.New("odd"), "x: odd"},
	} {
		if got := explain("x", tt.err); got.Error() != tt.want || !errors.Is(got, tt.err) {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestNoWorkspace(t *testing.T) {
	if _, err := (Files{Root: filepath.Join(t.TempDir(), "gone")}).At(t.Context(), "x",
		false); err == nil ||
		!strings.Contains(err.Error(), "the workspace cannot be opened") {
		t.Errorf("got error %v, want %q in it", err, "the workspace cannot be opened")
	}
}

// No path leads out of the workspace, for reading or writing.
func FuzzAt(f *testing.F) {
	for _, seed := range []string{
		"a.txt", "in/b.txt", "out/key", "file", "new", "round", "loop", "../secret/key",
		"/etc/passwd",
		"abs/../../secret/key",
		"file:///etc/passwd", "file://%2e%2e/secret", "file://localhost/../secret",
		"in/../../secret/new2",
		"./../ws/../secret/key",
		"out/../a.txt", "\x00", "//", "a\\..\\..\\b", "dir/new/../../../secret/x",
		"FILE:///etc/passwd",
		"../alias/../secret/key",
	} {
		f.Add(seed)
	}
	root, secret := tree(f)
	f.Fuzz(func(t *testing.T, path string) {
		p, err := Files{Root: root}.At(t.Context(), path, true)
		if err != nil {
			return
		}
		defer p.Close()
		if data, err := p.Read(); err == nil && string(data) != "inside" {
			t.Errorf("through %q: got %q, want %q", path, data, "inside")
		}
		if created, err := p.Write("inside"); err == nil && created {
			defer func() { _ = p.Remove() }()
		}
		entries, err := os.ReadDir(secret)
		if err != nil || len(entries) != 1 {
			t.Errorf("%q wrote beside the secret: %v, %v, want nothing more there", path, entries,
				err)
		}
		if data, _ := os.ReadFile(filepath.Join(secret, "key")); string(data) != "secret" {
			t.Errorf("%q wrote over the secret: got %q, want %q", path, data, "secret")
		}
		if entries, err := os.ReadDir(filepath.Dir(root)); err != nil || len(entries) != 3 {
			t.Errorf("%q wrote beside the workspace: %v, %v, want nothing more there", path,
				entries, err)
		}
	})
}
