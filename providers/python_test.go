package providers_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// systemPython is Debian's own interpreter, which has its python3-websockets; another python3 may
// come first on PATH.
const systemPython = "/usr/bin/python3"

// python makes a command of the interpreter in providers/python.
func python(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	if testing.Short() {
		t.Skip("it starts Python")
	}
	cmd := exec.Command(systemPython, args...) //nolint:gosec // the tests name it
	cmd.Dir = "python"
	return cmd
}

// TestPythonUnits runs the tests that the Python SDK has of its own: schemas, the package, and the
// SDK under fire.
func TestPythonUnits(t *testing.T) {
	t.Parallel()
	out, err := python(t, "-B", "-m", "unittest", "discover", "-s", "tests").CombinedOutput()
	if err != nil {
		t.Errorf("the tests of the Python SDK: got %v, want them to pass\n%s", err, out)
	}
}

// TestPythonScenarios plays the scenarios with the samples in Python.
func TestPythonScenarios(t *testing.T) {
	_ = python(t) // not in a short run
	playSDK(t, systemPython, "-B", filepath.Join("python", "tests", "sample.py"))
}

// TestPythonDocuments runs the blocks of the documents against the gateway, in the order in which
// they stand.
func TestPythonDocuments(t *testing.T) {
	for _, name := range []string{"providers.md", "providers-python.md"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.session("s1")
			file := filepath.Join("..", "..", "docs", name)
			cmd := python(t, "-B", filepath.Join("tests", "blocks.py"), file)
			cmd.Env = append(cmd.Environ(), "TAP_GATEWAY_URL="+w.url,
				"TAP_PROVIDER_TOKEN="+w.gateway.InstanceToken(),
				"INTERNAL_TOKEN="+w.gateway.AdminToken(), "QUESTIONS_TOKEN="+
					w.withGrant("phone").Token())
			text, err := os.ReadFile(filepath.Join("..", "docs", name))
			if err != nil {
				t.Fatal(err)
			}
			n := strings.Count(string(text), "\n```python\n")
			out, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(out), fmt.Sprintf("\n%d blocks\n", n)) {
				t.Errorf("the blocks of the document: got %v, want that all %d ran\n%s", err, n,
					out)
			}
		})
	}
}
