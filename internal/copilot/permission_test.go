package copilot

import (
	"os"
	"path/filepath"
	"testing"
)

func TestInside(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "dir")
	for _, d := range []string{"dir/a/b/c", "dir/..hidden", "dirty", "other"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{
		"dir/out": "../other", "dir/in": "a/b/c", "dir/deep": "a/b/c", "dir/nowhere": "../nowhere", "also": "dir",
	} {
		if err := os.Symlink(to, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		path string
		want bool
	}{
		{"dir", true},
		{"dir/", true},
		{"dir/a/b", true},
		{"dir/new/file", true},
		{"dir/..hidden/x", true},
		{"dir/in/x", true},
		{"also/a", true},
		{"dirty", false},
		{"other", false},
		{"dir/..", false},
		{"dir/../other", false},
		{"dir/out", false},
		{"dir/out/x", false},
		{"dir/nowhere", false},
		{"dir/a/../../other", false},
		{"dir/new/../../other/x", false},
		// The system goes to the parent of where the symlink leads, who cleans
		// paths to that of the symlink: neither may be outside.
		{"dir/out/../dir/a", true},
		{"dir/deep/../../../../other", false},
		{"dir/deep/../../../other", false},
	}
	for _, tt := range tests {
		if got := inside(root+"/"+tt.path, dir); got != tt.want {
			t.Errorf("%s: %t", tt.path, got)
		}
	}
	if inside("/", "") {
		t.Error("something is inside no directory")
	}
}
