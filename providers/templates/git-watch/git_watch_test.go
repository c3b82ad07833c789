package gitwatch_test

import (
	"os/exec"
	"testing"
)

// TestUnits runs the template's own tests with Debian's interpreter, which has its python3-websockets.
func TestUnits(t *testing.T) {
	if testing.Short() {
		t.Skip("the template's tests need python3-websockets")
	}
	out, err := exec.Command("/usr/bin/python3", "-B", "-m", "unittest").CombinedOutput()
	if err != nil {
		t.Errorf("the tests of git-watch: got %v, want them to pass\n%s", err, out)
	}
}
