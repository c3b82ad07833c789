//go:build runtime

package providers_test

import (
	"os"
	"path/filepath"
	"testing"

	"tapgw/internal/conformance"
)

// TestNodeConforms judges the samples of the Node SDK, and the templates in Node.
func TestNodeConforms(t *testing.T) {
	sdk := nodePackage(t)
	for _, name := range []string{"echo", "all"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conforms(t, kitCalls(), "node", filepath.Join(sdk, "test", "sample.mjs"), name)
		})
	}
	root := nodeTemplates(t, sdk)
	for name, command := range map[string][]string{
		"node":    {"node", "node/provider.mjs"},
		"browser": {"env", "BROWSER_PORT=0", "node", "browser/browser.mjs"},
		"jira-github": {"env", "GITHUB_TOKEN=none", "node", "jira-github/main.mjs", "--source",
			"github",
			"--api", "http://127.0.0.1:1", "--repo", "owner/name", "--label", "agent"},
		"chat": {"env", "CHAT_SERVICE=telegram", "CHAT_USERS=1", "TELEGRAM_BOT_TOKEN=1:none",
			"CHAT_API=http://127.0.0.1:1", "node", "chat/chat.mjs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for i, word := range command {
				if filepath.Ext(word) == ".mjs" {
					command[i] = filepath.Join(root, word)
				}
			}
			conforms(t, conformance.ProviderOptions{}, command...)
		})
	}
}

// nodeTemplates copies the templates to where their imports find the SDK, and returns their
// directory.
func nodeTemplates(t *testing.T, sdk string) (dir string) {
	t.Helper()
	root := t.TempDir()
	dir = filepath.Join(root, "providers", "templates")
	if err := os.CopyFS(dir, os.DirFS("templates")); err != nil {
		t.Fatal(err)
	}
	modules := filepath.Join(root, "node_modules")
	if err := os.Mkdir(modules, 0o700); err != nil {
		t.Fatal(err)
	}
	for at, target := range map[string]string{
		filepath.Join(modules, "tapgw-provider"): sdk,
		filepath.Join(root, "providers", "node"): sdk,
		filepath.Join(modules, "ws"):             filepath.Join(nodeModules(t), "ws"),
	} {
		if err := os.Symlink(target, at); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
