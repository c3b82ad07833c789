package builtin

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files")

// noTool are the files of this package without a tool.
var noTool = []string{"builtin.go", "edits.go", "servers.go"}

// toolFiles lists the files that must register one tool each, without ".go".
func toolFiles(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f, "_test.go") && !slices.Contains(noTool, f) {
			names = append(names, strings.TrimSuffix(f, ".go"))
		}
	}
	return names
}

// registered lists the names of the tools that a source file registers, with "?" for a
// name that is no literal.
func registered(t *testing.T, file string, src any) (names []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, src, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		fun := call.Fun
		if x, ok := fun.(*ast.IndexExpr); ok { // add[In](...)
			fun = x.X
		}
		if id, ok := fun.(*ast.Ident); !ok || id.Name != "add" {
			return true
		}
		name := "?"
		ast.Inspect(call.Args[0], func(n ast.Node) bool {
			if kv, ok := n.(*ast.KeyValueExpr); ok {
				key, _ := kv.Key.(*ast.Ident)
				value, _ := kv.Value.(*ast.BasicLit)
				if key != nil && key.Name == "Name" && value != nil {
					name, _ = strconv.Unquote(value.Value)
				}
			}
			return true
		})
		names = append(names, name)
		return true
	})
	return names
}

// TestOneToolAFile fails on a file that does not register exactly one tool of its name.
func TestOneToolAFile(t *testing.T) {
	files := toolFiles(t)
	for _, name := range files {
		if got := registered(t, name+".go", nil); !slices.Equal(got, []string{name}) {
			t.Errorf("%s.go registers %q, want %q alone", name, got, name)
		}
	}
	var all []string
	for _, tool := range All() {
		all = append(all, tool.Name)
	}
	if !slices.Equal(all, files) {
		t.Errorf("All has the tools %q, want those of the files: %q", all, files)
	}
}

// TestRegistered proves that the test above can fail.
func TestRegistered(t *testing.T) {
	tests := []struct {
		src  string
		want []string
	}{
		{`var _ = add(&tools.Tool{Name: "a"}, f)`, []string{"a"}},
		{`func init() { add[in](&tools.Tool{Name: "a"}, f) }`, []string{"a"}},
		{`var _ = 1`, nil},
		{`var _, _ = add(&tools.Tool{Name: "a"}, f), add(&tools.Tool{Name: "b"}, f)`,
			[]string{"a", "b"}},
		{`const n = "a"; var _ = add(&tools.Tool{Name: n}, f)`, []string{"?"}},
	}
	for _, tt := range tests {
		if got := registered(t, "x.go", "package tools\n"+tt.src); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.src, got, tt.want)
		}
	}
}

// TestSchemas compares what the model and the server see of each tool with a golden file;
// -update writes the files.
func TestSchemas(t *testing.T) {
	dir := filepath.Join("testdata", "schemas")
	for _, tool := range All() {
		t.Run(tool.Name, func(t *testing.T) {
			if err := tool.Check(); err != nil {
				t.Fatal(err)
			}
			var got bytes.Buffer
			enc := json.NewEncoder(&got)
			enc.SetEscapeHTML(false)
			enc.SetIndent("", "  ")
			if err := enc.Encode(map[string]any{
				"name": tool.Name, "description": tool.Description, "kind": tool.Kind.String(),
				"inputSchema": tool.Parameters,
			}); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, tool.Name+".json")
			if *update {
				if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want) {
				t.Errorf("got another %s, want it as it is (go test -update writes it):\n%s", file,
					got.Bytes())
			}
		})
	}
	golden, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range golden {
		if name := strings.TrimSuffix(filepath.Base(file), ".json"); builtIn(name) == nil {
			t.Errorf("%s is of no tool, want it removed", file)
		}
	}
}
