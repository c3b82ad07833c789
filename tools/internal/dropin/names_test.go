package dropin

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// layout makes a module of a directory tools: its imports, and a body of execute. files lie
// beside the directory, or in it if they begin with "tools/".
func layout(t *testing.T, files map[string]string, imports []string, body string) *Module {
	t.Helper()
	tree := map[string]string{"tools/t.py": strings.Join(imports, "\n") + "\nSCHEMA = {}\n" +
		"def execute(tool_input: dict, ctx: ToolContext) -> ToolResult:\n    return " + body + "\n"}
	maps.Copy(tree, files)
	p, interpreter := python(t)
	m := p.Module(interpreter, filepath.Join(write(t, tree), "tools", "t.py"))
	t.Cleanup(m.Close)
	return m
}

// The names that tool modules of the Python client import, in its current layout and in the
// first one, and what the tools do with them.
var theirImports = map[string][]string{
	"current": {
		"from copilot_cli.tools._base import ToolContext, ToolResult, TOOL_OUTPUT_LIMIT",
		"from copilot_cli.tools import t as itself",
		"from copilot_cli.log import get_logger",
		"from copilot_cli.platform_utils import find_grep, path_to_file_uri",
		"from copilot_cli.lsp_bridge import _SYMBOL_KINDS, _uri_to_path",
		"from copilot_cli.library_docs import search_docs, resolve, LIBRARIES",
	},
	"first": {
		"from tools._base import ToolContext, ToolResult, TOOL_OUTPUT_LIMIT",
		"from log import get_logger",
		"from platform_utils import find_grep, path_to_file_uri",
		"from lsp_bridge import _SYMBOL_KINDS, _uri_to_path",
		"from library_docs import search_docs, resolve, LIBRARIES",
	},
}

func TestNamesOfTheOtherClient(t *testing.T) {
	tests := []struct{ body, want string }{
		{`str(isinstance(ctx, ToolContext)) + str(ctx.lsp_bridge)`, "TrueNone"},
		{`str(TOOL_OUTPUT_LIMIT)`, "4000"},
		{`str(get_logger("tools").debug("%d matches", 5))`, "None"},
		{`str(find_grep()).rpartition("/")[2]`, "grep"},
		{`path_to_file_uri("/a b/ü") + " " + _uri_to_path("file:///a%20b/%C3%BC") + " " + _uri_to_path("/x")`,
			"file:///a%20b/%C3%BC /a b/ü /x"},
		{`" ".join(_SYMBOL_KINDS[k] for k in (1, 5, 12, 26)) + _SYMBOL_KINDS.get(0, "!")`,
			"File Class Function TypeParameter!"},
		{`" ".join(sorted(LIBRARIES)) + str("pw" in LIBRARIES)`, "pages walrusFalse"},
		{`" ".join(lib["id"] for lib in resolve(" Walrus "))`, "walrus"},
		{`" ".join(lib["title"] for lib in resolve("wal"))`, "The Walrus Walpages"},
		{`" ".join(lib["id"] for lib in resolve("walrus-java"))`, "walrus"},
		{`str(resolve("")) + str(resolve("none"))`, "[][]"},
		{`search_docs("walrus", "how to feed fish", max_chars=4000).replace("\n", "|")`,
			"## Feed|give fish||---||## Swim|fish"}, // by words, three times for those in a heading
		{`search_docs("walrus", "feed fish", max_chars=20).replace("\n", "|")`,
			"## Feed|give fish"},
		// the beginning
		{`search_docs("walrus", "zzz", max_chars=15).replace("\n", "|")`, "## Swim|fish"},
		{`search_docs("none", "fish") + "."`, "."},
	}
	libraries := func() []Library {
		return []Library{
			{ID: "pages", Title: "Walpages", Aliases: []string{"wallet"},
				Sections: []string{"## P"}},
			{ID: "walrus", Title: "The Walrus", Aliases: []string{"wal"},
				Sections: []string{"## Swim\nfish", "## Feed\ngive fish", "## Sleep"}},
		}
	}
	for name, imports := range theirImports {
		var bodies []string
		for _, tt := range tests {
			bodies = append(bodies, tt.body)
		}
		m := layout(t, nil, imports, "["+strings.Join(bodies, ",\n        ")+"]")
		a, err := m.Call(t.Context(), Call{Root: t.TempDir(), Input: json.RawMessage(`{}`),
			Libraries: libraries})
		if err != nil || len(a.Parts) != len(tests) {
			t.Errorf("%s layout: %q, %v", name, a.Parts, err)
			continue
		}
		for i, tt := range tests {
			if a.Parts[i] != tt.want {
				t.Errorf("%s layout: %s: got %q, want %q", name, tt.body, a.Parts[i], tt.want)
			}
		}
	}
}

// What a directory brings along counts, and what the workspace has does not.
func TestOwnModulesComeFirst(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: it starts programs or waits for them")
	}
	evil := write(t, map[string]string{"log.py": "raise RuntimeError('the workspace')",
		"copilot_cli/__init__.py": "raise RuntimeError('the workspace')"})
	t.Chdir(evil)
	theirs :=
		"from dataclasses import dataclass\nToolResult = list\n@dataclass\nclass ToolContext:\n" +
			"    workspace_root: str\n    sync_file_to_server: object\n    open_document: object\n" +
			"    def hello(self): return 'theirs'\n"
	tests := []struct {
		name    string
		files   map[string]string
		imports []string
		body    string
		want    string
	}{
		{"_base of the current layout", map[string]string{"tools/_base.py": theirs},
			[]string{"from copilot_cli.tools._base import ToolContext, ToolResult"}, "ctx.hello()",
			"theirs"},
		{"_base of the first layout", map[string]string{"tools/_base.py": theirs},
			[]string{"from tools._base import ToolContext, ToolResult"}, "ctx.hello()", "theirs"},
		{"a module beside the directory", map[string]string{"log.py": "get_logger = str"},
			[]string{"from log import get_logger",
				"from tools._base import ToolContext, ToolResult"},
			"get_logger('x')", "x"},
		{"a whole package beside the directory",
			map[string]string{"copilot_cli/__init__.py": "",
				"copilot_cli/log.py": "get_logger = str"},
			[]string{"from copilot_cli.log import get_logger",
				"from tools._base import ToolContext, ToolResult"},
			"get_logger('x')", "x"},
		{"their __init__ does not run",
			map[string]string{"tools/__init__.py": "raise RuntimeError"},
			[]string{"from copilot_cli.tools._base import ToolContext, ToolResult"}, "'fine'",
			"fine"},
	}
	for _, tt := range tests {
		m := layout(t, tt.files, tt.imports, tt.body)
		a, err := m.Call(t.Context(), Call{Root: evil, Input: json.RawMessage(`{}`)})
		if err != nil || !slices.Equal(a.Parts, []string{tt.want}) {
			t.Errorf("%s: got %q, %v, want %q", tt.name, a.Parts, err, tt.want)
		}
	}
	m := layout(t, nil, []string{"import copilot_cli.nothing", "ToolContext = ToolResult = list"},
		"1")
	if _, err := m.Call(t.Context(), Call{Root: evil, Input: json.RawMessage(`{}`)}); err == nil ||
		!strings.Contains(err.Error(), "No module named 'copilot_cli.nothing'") {
		t.Errorf("a name that there is not: %v", err)
	}
}

// A process gets the documentation once, and only for a module that uses it.
func TestLibrariesAreSentOnce(t *testing.T) {
	for _, tt := range []struct {
		imports string
		want    int
	}{{"from copilot_cli.library_docs import LIBRARIES", 1}, {"LIBRARIES = 'x'", 0}} {
		sent := 0
		libraries := func() []Library {
			sent++
			return []Library{{ID: "x", Aliases: []string{}, Sections: []string{}}}
		}
		m := layout(t, nil, []string{"from tools._base import ToolContext, ToolResult", tt.imports},
			"' '.join(LIBRARIES)")
		for range 2 {
			c := Call{Root: t.TempDir(), Input: json.RawMessage(`{}`), Libraries: libraries}
			if a, err := m.Call(t.Context(), c); err != nil || a.Parts[0] != "x" {
				t.Errorf("%s: got %q, %v", tt.imports, a.Parts, err)
			}
		}
		if sent != tt.want {
			t.Errorf("%s: the documentation was sent %d times, want %d", tt.imports, sent, tt.want)
		}
	}
}
