//go:build runtime

package main

import (
	"path/filepath"
	"testing"

	"tapgw/internal/copilot"
	"tapgw/internal/scriptmodel"
)

// TestHooksOnCopilot runs hooks that are programs on the real runtime.
func TestHooksOnCopilot(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	cli := copilot.Installed(root)
	if cli == "" {
		t.Fatal("no Copilot runtime: run make runtime")
	}
	model, err := scriptmodel.Start("127.0.0.1:0", scriptmodel.Calls)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(model.Close)
	runScripts(t, "testdata/hooks", map[string]string{"COPILOT_CLI_PATH": cli,
		"MODEL_URL": model.URL})
}
