package langserver

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

const (
	// envRipgrep names the ripgrep that the server searches with. Without it the server unpacks one
	// of its own below [envUnpacked], in place, and takes whatever is there for whole: a server
	// that ends meanwhile leaves a file that breaks the searches of every later one, an editor's
	// too.
	envRipgrep = "GITHUB_COPILOT_RIPGREP_PATH_OVERRIDE"
	// envUnpacked names the directory in which the server has a directory pkg of its unpacked
	// files. Default: ~/.cache.
	envUnpacked = "PKG_NATIVE_CACHE_PATH"
)

// ripgrep returns the server's ripgrep. The searches of conversations are ours, so without an
// installed one it may be a file that is no program; the server must only not unpack its own.
func ripgrep() string {
	if path, err := exec.LookPath("rg"); err == nil {
		return path
	}
	return os.DevNull
}

// BrokenRipgrep returns the unpacked ripgreps of language servers whose content is damaged: a
// server ended while it unpacked them. Searches of editors fail until a person removes them; their
// servers then unpack them again.
func BrokenRipgrep() (paths []string) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil
	}
	dir := cmp.Or(os.Getenv(envUnpacked), filepath.Join(home, ".cache"))
	found, _ := filepath.Glob(filepath.Join(dir, "pkg", "*", "rg*"))
	for _, path := range found {
		// The server names the directory by the SHA-256 of its content.
		if sum, err := sum(path); err == nil && sum != filepath.Base(filepath.Dir(path)) {
			paths = append(paths, path)
		}
	}
	return paths
}

func sum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
