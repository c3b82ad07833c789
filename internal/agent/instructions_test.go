package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tapgw/internal/agent/workspace"
	"tapgw/internal/langserver"
)

func TestPathsIn(t *testing.T) {
	for input, want := range map[string][]string{
		`{"filePath":"a/b","content":"c/d"}`:                        {"a/b"},
		`{"filePaths":["a","b"],"query":"c"}`:                       {"a", "b"},
		`{"replacements":[{"filePath":"a","oldString":"x"}],"n":1}`: {"a"},
		`{"path":"file:///a b"}`:                                    {"/a b"},
		`{"path":{"deep":["a"]}}`:                                   nil,
		`{"path":5}`:                                                nil,
		`no JSON`:                                                   nil,
		`{"paths":[` + strings.Repeat(`"a",`, 2*maxPaths) + `"last"]}`: slices.Repeat([]string{"a"},
			maxPaths),
	} {
		if got := pathsIn(json.RawMessage(input)); !slices.Equal(got, want) {
			t.Errorf("%.60s: got %q, want %q", input, got, want)
		}
	}
}

// The instructions of a directory come once in a conversation, also through a workspace that is a
// symbolic link.
func TestNestedInstructionsComeOnce(t *testing.T) {
	real := t.TempDir()
	if err := os.MkdirAll(filepath.Join(real, "sub", "deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"AGENTS.md": "of all", "sub/AGENTS.md": "of sub",
		"sub/deep/CLAUDE.md": "of deep"} {
		if err := os.WriteFile(filepath.Join(real, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	v := &Conversation{
		Options: Options{Workspace: &workspace.Workspace{Options: workspace.Options{Dir: link,
			Note: t.Logf}}},
		instructions: &instructionSet{workspace: real, root: real, given: map[string]bool{}},
	}
	call := func(path string) string {
		input, err := json.Marshal(map[string]string{"filePath": path})
		if err != nil {
			t.Fatal(err)
		}
		return v.nestedInstructions(langserver.Invocation{Input: input})
	}
	for _, tt := range []struct {
		path string
		want []string
	}{
		{"x.go", nil},
		{link + "/sub/x.go", []string{"of sub"}},
		{real + "/sub/y.go", nil},
		{"sub/deep/z.go", []string{"of deep"}},
		{"../sub/x.go", nil},
	} {
		got := call(tt.path)
		for _, text := range []string{"of all", "of sub", "of deep"} {
			if strings.Contains(got, text) != slices.Contains(tt.want, text) {
				t.Errorf("%s: got %q, want the texts %q", tt.path, got, tt.want)
			}
		}
	}
	other := langserver.Invocation{ConversationID: "other",
		Input: json.RawMessage(`{"path":"sub/x.go"}`)}
	if got := v.nestedInstructions(other); !strings.Contains(got, "of sub") {
		t.Errorf("in another conversation: got %q, want it again", got)
	}
	v.instructions.forget()
	if got := call("sub/x.go"); !strings.Contains(got, "of sub") {
		t.Errorf("in a new conversation: got %q, want it again", got)
	}
}
