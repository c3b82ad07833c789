package langserver

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// An unpacked ripgrep whose content is not the one that its directory names is broken.
func TestBrokenRipgrep(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv(envUnpacked, "")
	whole := sha256.Sum256([]byte("whole"))
	other := sha256.Sum256([]byte("other"))
	for sum, content := range map[string]string{
		hex.EncodeToString(whole[:]): "whole", hex.EncodeToString(other[:]): "oth",
	} {
		at := filepath.Join(dir, ".cache", "pkg", sum)
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(at, "rg"), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{filepath.Join(dir, ".cache", "pkg", hex.EncodeToString(other[:]), "rg")}
	if got := BrokenRipgrep(); !slices.Equal(got, want) {
		t.Errorf("broken are %q, want %q", got, want)
	}
	t.Setenv(envUnpacked, filepath.Join(dir, "elsewhere"))
	if got := BrokenRipgrep(); len(got) > 0 {
		t.Errorf("with %s broken are %q, want none", envUnpacked, got)
	}
}
