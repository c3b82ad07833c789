package gitwatch_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestUnits runs the template's own tests with Debian's interpreter, which has its
// python3-websockets. It runs a copy: go test then knows that its result depends on these files.
func TestUnits(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts Python")
	}
	dir := t.TempDir()
	for from, to := range map[string]string{".": "templates/git-watch", "../../python": "python"} {
		if err := os.CopyFS(filepath.Join(dir, to), os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("/usr/bin/python3", "-B", "-m", "unittest")
	cmd.Dir = filepath.Join(dir, "templates", "git-watch")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the tests of git-watch: got %v, want them to pass\n%s", err, out)
	}
}
