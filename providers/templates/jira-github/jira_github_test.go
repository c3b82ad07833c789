//go:build runtime

package jiragithub_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestUnits runs the template's own tests, and the compiler over its types, in a copy that finds
// the packages that `make runtime` installed.
func TestUnits(t *testing.T) {
	dir := t.TempDir()
	for from, to := range map[string]string{".": "templates/jira-github", "../../node": "node"} {
		if err := os.CopyFS(filepath.Join(dir, to), os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	modules, err := filepath.Abs("../../../.runtime/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(modules, "ws")); err != nil {
		t.Fatalf("no npm package ws (%v): run make runtime", err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--test", "test/jira-github.test.mjs"},
		{filepath.Join(modules, "typescript", "bin", "tsc"), "-p", "."}} {
		cmd := exec.Command("node", args...)
		cmd.Dir = filepath.Join(dir, "templates", "jira-github")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("node %q: got %v, want success\n%s", args, err, out)
		}
	}
}
