//go:build runtime

package main

import (
	"path/filepath"
	"testing"

	"tapgw/internal/copilot"
)

// TestDemoOnCopilot runs the demo and the doctor on the real runtime.
func TestDemoOnCopilot(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	cli := copilot.Installed(root)
	if cli == "" {
		t.Fatal("no Copilot runtime: run make runtime")
	}
	runScripts(t, "testdata/runtime", map[string]string{"COPILOT_CLI_PATH": cli})
}
