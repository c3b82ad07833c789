package assembly

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tapgw/configs"
)

// What sources did is forgotten after a time, but not that of a source that may run once a year.
func TestForgetSources(t *testing.T) {
	dir := t.TempDir()
	now := time.Now()
	age := map[string]time.Duration{
		"yearly.json": 2 * forgottenAfter, "gone.json": 2 * forgottenAfter,
		"loop@session.json": 2 * forgottenAfter,
		"recent.json":       time.Hour,
	}
	for name, d := range age {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, now.Add(-d), now.Add(-d)); err != nil {
			t.Fatal(err)
		}
	}
	forgetSources(dir, func() []configs.ProviderFile {
		return []configs.ProviderFile{{Provider: &configs.Provider{Name: "yearly"}}}
	}, now)
	for name, want := range map[string]bool{
		"yearly.json": true, "gone.json": false, "loop@session.json": false, "recent.json": true,
	} {
		if _, err := os.Stat(filepath.Join(dir, name)); (err == nil) != want {
			t.Errorf("%s is there: got %v, want %v", name, err == nil, want)
		}
	}
}

// A session host chooses the ids of its sessions; none leads out of the directory.
func TestSourceStateStaysInItsDirectory(t *testing.T) {
	dir := t.TempDir()
	seen := map[string]string{}
	for _, id := range []string{
		"x", "/../../../x", "a/../../x", "..", "%2F", "/", "\x00", strings.Repeat("/", 128),
		strings.Repeat("x", 128),
	} {
		file := sourceState(dir, &configs.Provider{Name: "loop"}, id)
		if filepath.Dir(file) != dir || strings.ContainsRune(file, 0) ||
			len(filepath.Base(file)) > 255 {
			t.Errorf("session %q: got %q, want a file of %s", id, file, dir)
		}
		if other, taken := seen[file]; taken {
			t.Errorf("sessions %q and %q share %s, want a file each", id, other, file)
		}
		seen[file] = id
	}
}
