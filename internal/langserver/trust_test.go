//go:build runtime

package langserver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tapgw/internal/taptest/cloud"
)

// A workspace's own agents and instructions for files reach the model only once the user trusts it.
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
			r.mustTurn(t, "hello")
			body := string(r.cloud.Requests()[0].Body)
			if strings.Contains(body, "Never rhyme.") != trusted {
				t.Errorf("the instructions reach the model: %v, want %v", !trusted, trusted)
			}
			if strings.Contains(body, "Always rhyme.") {
				t.Error("the server reads copilot-instructions.md by itself, want only ours")
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
				t.Errorf("agents %v, want %v", agents, trusted)
			}
		})
	}
}

// Instructions and the limit of rounds can change between turns, and the server's MCP servers go
// on.
func TestConfigure(t *testing.T) {
	r := newRig(t, withMCP(t), func(o *Options, _ *cloud.Cloud) {
		o.Instructions = "Speak plainly."
	})
	r.set(func() { r.confirm = func(context.Context, Confirmation) error { return nil } })
	r.waitMCP(t)
	r.mustTurn(t, "hello")
	if err := r.SetInstructions("Rhyme."); err != nil {
		t.Fatal(err)
	}
	if err := r.SetMaxRounds(1); err != nil {
		t.Fatal(err)
	}
	result, _, err := r.turn(t, `call:mcp_tiny_shout {"text":"hey"}`)
	if failed, ok := errors.AsType[*TurnError](err); !ok || failed.Code != CodeTooManyRounds ||
		result.Rounds != 1 {
		t.Errorf(
			"a turn with a limit of one round ended with %v after %d, want too many rounds after 1",
			err, result.Rounds)
	}
	if err := r.SetMaxRounds(0); err != nil {
		t.Fatal(err)
	}
	result, e := r.mustTurn(t, `call:mcp_tiny_shout {"text":"hey"}`)
	if result.Rounds != 2 || result.Text != "HEY" {
		t.Errorf("got %d rounds and %v, want 2 rounds with a tool of the MCP server", result.Rounds,
			e)
	}
	first, last := string(r.cloud.Requests()[0].Body),
		string(r.cloud.Requests()[r.requestCount()-1].Body)
	if strings.Count(first, "Speak plainly.") != 1 || strings.Count(last, "Rhyme.") != 1 ||
		strings.Contains(last, "Speak plainly.") {
		t.Errorf("the requests are %.500s, then %.500s, want the instructions of each time once",
			first, last)
	}
}
