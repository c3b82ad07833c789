//go:build runtime

package providers_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestChat runs the tests that the template chat has in its own language, and the compiler over its
// types.
func TestChat(t *testing.T) {
	dir := chatTemplate(t)
	t.Run("types", func(t *testing.T) {
		t.Parallel()
		runNode(t, dir, "node", filepath.Join(nodeModules(t), "typescript", "bin", "tsc"), "-p",
			".")
	})
	for _, file := range []string{"config", "telegram", "slack"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			runNode(t, dir, "node", "--test", filepath.Join("test", file+".test.mjs"))
		})
	}
}

// chatTemplate copies the template to where its imports find the SDK and the packages that `make
// runtime` installed.
func chatTemplate(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("templates", "chat"))); err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(dir, "node_modules")
	if err := os.Mkdir(modules, 0o700); err != nil {
		t.Fatal(err)
	}
	sdk := nodePackage(t)
	runNode(t, sdk, "npm", "run", "prepack", "--silent") // writes its types
	links := map[string]string{"tapgw-provider": sdk}
	for _, name := range []string{"ws", "@types"} {
		links[name] = filepath.Join(nodeModules(t), name)
	}
	for name, target := range links {
		if err := os.Symlink(target, filepath.Join(modules, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
