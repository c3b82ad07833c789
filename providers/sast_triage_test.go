package providers_test

import (
	"path/filepath"
	"testing"
)

// TestSASTTriageUnits runs the tests that the template sast-triage has in its own language.
func TestSASTTriageUnits(t *testing.T) {
	t.Parallel()
	cmd := python(t, "-B", "-m", "unittest", "discover", "-s", "tests")
	cmd.Dir = filepath.Join("templates", "sast-triage")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the tests of sast-triage: got %v, want them to pass\n%s", err, out)
	}
}
