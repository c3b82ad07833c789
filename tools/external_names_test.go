package tools

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Beside the built-in tools, a drop-in has the name of one of them only if it may replace it.
func TestReplace(t *testing.T) {
	dir := dropins(t, map[string]string{"a.py": pyTool("memory", "mine"),
		"b.py": pyTool("read_file", ""), "c.py": pyTool("run_subagent", ""),
		"d.py": pyTool("other", "")})
	x := external(t)
	x.Beside = func() []*Tool { return []*Tool{{Name: "memory"}, {Name: "read_file"}} }
	var replace []string
	x.Replace = func() []string { return replace }
	for _, tt := range []struct{ replace, want string }{
		{"", "other !a.py !b.py !c.py"},
		{"read_file run_subagent", "other read_file run_subagent !a.py"},
		{"memory none", "memory other !b.py !c.py"},
	} {
		replace = strings.Fields(tt.replace)
		tools, faults := x.Load(t.Context(), dir)
		if got := found(tools, faults); got != tt.want {
			t.Errorf("with replace %q: found %s, want %s", tt.replace, got, tt.want)
		}
	}
	replace = nil
	_, faults := x.Load(t.Context(), dir)
	for i, want := range []string{
		`a.py:2: the name "memory" belongs to a built-in tool: choose another, or let this file take its place by ` +
			`tools.replace = ["memory"] in lsclient.toml`,
		`b.py:2: the name "read_file" belongs to a built-in tool`,
		`c.py:2: the name "run_subagent" belongs to a tool of the language server`,
	} {
		if got := faults[i].String(); !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}

// A module of the Python client finds the bundled documentation, and the user's.
func TestDropInLibraries(t *testing.T) {
	dir := dropins(t, map[string]string{"docs.py": `from copilot_cli.library_docs import resolve, search_docs
SCHEMA = {"name": "docs", "description": "Reads.", "kind": "read"}
def execute(i, ctx):
    return [library["id"] for name in ("pw", "mine") for library in resolve(name)] + [search_docs("mine", "walrus")]
`})
	env := space(t, nil)
	env.Libraries = filepath.Join(t.TempDir(), "docs")
	if err := os.MkdirAll(filepath.Join(env.Libraries, "mine"), 0o755); err != nil {
		t.Fatal(err)
	}
	dropinFile(t, filepath.Join(env.Libraries, "mine"), "a.md",
		"# Mine\n\nMy own.\n\n## Walrus\n\nIt swims.\n")
	tools, faults := external(t).Load(t.Context(), dir)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	want := "playwright\nmine\n## Walrus\n\nIt swims."
	if got, err := run(t, tools, env, "docs", args{}); got != want || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
