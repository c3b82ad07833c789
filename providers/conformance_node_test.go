//go:build runtime

package providers_test

import (
	"os"
	"path/filepath"
	"testing"

	"tapgw/internal/conformance"
)

// TestNodeConforms judges the samples of the Node SDK, and the template in Node with the SDK beside it.
func TestNodeConforms(t *testing.T) {
	sdk := nodePackage(t)
	for _, name := range []string{"echo", "all"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conforms(t, kitCalls(), "node", filepath.Join(sdk, "test", "sample.mjs"), name)
		})
	}
	t.Run("template", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(filepath.Join("templates", "node"))); err != nil {
			t.Fatal(err)
		}
		modules := filepath.Join(dir, "node_modules")
		if err := os.Mkdir(modules, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(sdk, filepath.Join(modules, "tapgw-provider")); err != nil {
			t.Fatal(err)
		}
		conforms(t, conformance.ProviderOptions{}, "node", filepath.Join(dir, "provider.mjs"))
	})
}
