//go:build runtime

package langserver

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tapgw/internal/taptest/cloud"
)

// A workspace's own instructions reach the model only once the user trusts it.
func TestTrust(t *testing.T) {
	for name, trusted := range map[string]bool{"untrusted": false, "trusted": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options, _ *cloud.Cloud) {
				o.Trusted = trusted
				for file, text := range map[string]string{
					".github/copilot-instructions.md":        "Always rhyme.",
					".github/instructions/x.instructions.md": "---\napplyTo: '**'\n---\nNever rhyme.",
					".github/agents/poet.agent.md":           "---\nname: poet\ndescription: Rhymes.\n---\nYou are a poet.",
				} {
					path := filepath.Join(o.Workspace, file)
					if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
						t.Fatal(err)
					}
				}
			})
			r.good(t, "hello")
			body := string(r.cloud.Requests()[0].Body)
			for _, text := range []string{"Always rhyme.", "Never rhyme."} {
				if strings.Contains(body, text) != trusted {
					t.Errorf("%q reaches the model: %v", text, !trusted)
				}
			}
			var agents []struct{ Name string }
			folders := object{"workspaceFolders": []any{r.options.folder()}}
			if err := r.call(within(t), "copilot/customAgent/list", folders, &agents); err != nil {
				t.Fatal(err)
			}
			found := false
			for _, a := range agents {
				found = found || a.Name == "poet"
			}
			if found != trusted {
				t.Errorf("agents %v", agents)
			}
		})
	}
}
