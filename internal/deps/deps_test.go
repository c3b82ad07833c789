// Package deps holds the test that keeps the rooms of the project in their
// layers: imports go down only, and rooms of one layer don't know each other.
package deps

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	module     = "tapgw"
	copilotSDK = "github.com/github/copilot-sdk/go"
)

// layers says which rooms stand on which. A package belongs to the room with
// the longest path that it begins with.
var layers = [][]string{
	{".", "internal/chans", "internal/lazyregexp", "internal/secrets", "internal/spans",
		"internal/visible"},
	{"internal/protocol", "internal/proof", "internal/adminapi", "internal/proc", "internal/watch",
		"internal/cli",
		"internal/git", "internal/protect", "library_docs", "internal/jsonrpc", "internal/otlp",
		"internal/scriptmodel", "internal/shellrule", "internal/weburl", "internal/statedir",
		"internal/diff", "internal/markdown", "internal/extension", "internal/patch",
		"testdata/sdk"},
	{"internal/match", "internal/ownfile", "internal/schedule", "internal/terminal",
		"internal/recording", "internal/toolsearch", "internal/instructions", "internal/link",
		"internal/gitread"},
	{"internal/tapconfig", "internal/filelist"},
	{"configs", "providers", "tools", "internal/gateway", "internal/client",
		"internal/conversations", "internal/checkpoint", "internal/orchestrate",
		"internal/conformance"},
	{"internal/daemon", "internal/evidence"},
	{"internal/copilot", "internal/hooks", "internal/langserver", "internal/mcpbridge",
		"internal/evals", "internal/goals", "internal/mcpclients", "internal/mcpserver",
		"internal/records", "internal/sources", "internal/terminals", "internal/cluster",
		"internal/supervisor", "internal/taptools", "internal/server", "internal/service",
		"internal/dashboard", "skills", "tools/provide"},
	{"internal/agent", "internal/assembly", "internal/install", "internal/scaffold"},
	{"internal/demo", "internal/doctor"},
	{"cmd/tapgw", "cmd/tapctl", "cmd/lsclient", "providers/templates", "bench", "test"},
}

// testOnly are packages that only tests import; they may import anything.
var testOnly = []string{"internal/taptest", "internal/deps"}

// direct lists what a room may not import itself, whatever its packages import
// in turn.
var direct = map[string][]string{
	"internal/gateway": {"net", "net/http"},
}

// users lists who may import a package or a module: what they weigh must not get into other
// programs.
var users = map[string][]string{
	copilotSDK:                         {"internal/copilot"},
	"github.com/nats-io":               {"internal/cluster", "test"},
	"github.com/ncruces/go-sqlite3":    {"internal/records/recordsql"},
	"tapgw/internal/records/recordsql": {"internal/records/recordsql", "cmd/tapctl", "bench"},
}

// only lists all that a room may import beyond the standard library.
var only = map[string][]string{
	"internal/protocol": {"github.com/google/jsonschema-go", "github.com/go-json-experiment/json"},
}

// pkg is what `go list -json` says about a package.
type pkg struct {
	ImportPath   string
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

// within reports whether path is root or lies below it.
func within(path, root string) bool {
	return path == root || strings.HasPrefix(path, root+"/")
}

func withinAny(path string, roots []string) bool {
	return slices.ContainsFunc(roots, func(root string) bool { return within(path, root) })
}

// local cuts the module from an import path, and makes the package at its root "."; ok is false for
// other modules.
func local(path string) (rest string, ok bool) {
	if path == module {
		return ".", true
	}
	return strings.CutPrefix(path, module+"/")
}

func standard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return first != module && !strings.Contains(first, ".")
}

// roomOf finds the room and layer of a path in the module; layer is -1 where
// there is none.
func roomOf(path string) (room string, layer int) {
	layer = -1
	for i, rooms := range layers {
		for _, r := range rooms {
			if within(path, r) && len(r) > len(room) {
				room, layer = r, i
			}
		}
	}
	return room, layer
}

// check returns one line for each import that breaks a rule.
func check(pkgs []pkg) (faults []string) {
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Sprintf(format, args...))
	}
	for _, p := range pkgs {
		path, _ := local(p.ImportPath)
		for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			for what, may := range users {
				if within(imp, what) && !withinAny(path, may) {
					fault("%s imports %s: only %s may", path, imp, strings.Join(may, ", "))
				}
			}
		}
		if len(p.GoFiles) == 0 || withinAny(path, testOnly) {
			continue
		}
		room, layer := roomOf(path)
		if layer < 0 {
			fault("%s: stands in no layer: give it one in internal/deps", path)
			continue
		}
		for _, imp := range p.Imports {
			target, ours := local(imp)
			switch {
			case ours && withinAny(target, testOnly):
				fault("%s imports %s: only tests may", path, target)
			case ours:
				r, l := roomOf(target)
				switch {
				case r == room:
				case l > layer:
					fault("%s imports %s: upward, from layer %d to %d", path, target, layer, l)
				case l == layer:
					fault("%s imports %s: sideways, both in layer %d", path, target, l)
				}
			case slices.Contains(direct[room], imp):
				fault("%s imports %s: not in this room", path, imp)
			}
			if allowed, strict := only[room]; strict && !ours && !standard(imp) &&
				!withinAny(imp, allowed) {
				fault(
					"%s imports %s: this room takes the standard library and %s alone",
					path,
					imp,
					strings.Join(allowed, ", "),
				)
			}
		}
	}
	return faults
}

// packages lists every package of the module, with what each tag adds.
func packages(t *testing.T) (pkgs []pkg) {
	t.Helper()
	cmd := exec.Command("go", "list", "-tags", "runtime,e2e,soak",
		"-json=ImportPath,GoFiles,Imports,TestImports,XTestImports", "./...")
	cmd.Dir = "../.."
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("listing packages: %v: %s", err, stderr.String())
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("reading the list of packages: %v", err)
		}
		pkgs = append(pkgs, p)
	}
	if len(pkgs) < 2 {
		t.Fatalf("go list found %d packages, want at least 2", len(pkgs))
	}
	return pkgs
}

func TestImports(t *testing.T) {
	for _, f := range check(packages(t)) {
		t.Error(f)
	}
}

// TestDependenciesAreExplained holds README.md of this directory to what is imported.
func TestDependenciesAreExplained(t *testing.T) {
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	doc, _, _ = bytes.Cut(doc, []byte("\n## npm")) // those are the tests' and no Go module
	var modules []string
	for _, m := range regexp.MustCompile(`(?m)^\t(\S+) v`).FindAllSubmatch(mod, -1) {
		modules = append(modules, string(m[1]))
	}
	used := make(map[string]bool)
	for _, p := range packages(t) {
		for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if _, ours := local(imp); ours || standard(imp) {
				continue
			}
			from := "" // the longest: a module may lie below another
			for _, m := range modules {
				if within(imp, m) && len(m) > len(from) {
					from = m
				}
			}
			if from == "" {
				t.Errorf("%s imports %s: not in go.mod, want a text", p.ImportPath, imp)
				continue
			}
			used[from] = true
		}
	}
	explained := make(map[string]bool)
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllSubmatch(doc, -1) {
		explained[string(m[1])] = true
	}
	for m := range used {
		if !explained[m] {
			t.Errorf("internal/deps/README.md has no line for %s, want one", m)
		}
	}
	for m := range explained {
		if !used[m] {
			t.Errorf("internal/deps/README.md explains %s, want no line for it: nothing imports it",
				m)
		}
	}
}

// TestCheck proves on made-up graphs that the test above can fail.
func TestCheck(t *testing.T) {
	one := func(path string, imports ...string) []pkg {
		return []pkg{{ImportPath: module + "/" + path, GoFiles: []string{"x.go"}, Imports: imports}}
	}
	tests := []struct {
		name string
		pkgs []pkg
		want string // part of the one fault; empty: none
	}{
		{"down", one("internal/server", "net/http", "tapgw/internal/gateway",
			"tapgw/internal/protocol", "github.com/coder/websocket"), ""},
		{"down two layers", one("cmd/tapgw", "tapgw/internal/protocol"), ""},
		{"own sub-package", one("internal/gateway/sub", "tapgw/internal/gateway"), ""},
		{"template on its SDK", one("providers/templates/hello", "tapgw/providers"), ""},
		{"upward", one("internal/protocol", "tapgw/internal/gateway"), "upward, from layer 1 to 4"},
		{"upward from a sub-package", one("internal/gateway/sub", "tapgw/internal/server"),
			"upward, from layer 4 to 6"},
		{"SDK on its template", one("providers", "tapgw/providers/templates/hello"), "upward"},
		{"sideways", one("internal/server", "tapgw/internal/copilot"), "sideways, both in layer 6"},
		{"tools on their adapter", one("tools", "tapgw/tools/provide"), "upward"},
		{"two commands", one("cmd/tapctl", "tapgw/cmd/tapgw"), "sideways"},
		{"no layer", one("internal/util"), "stands in no layer"},
		{"taptest in production", one("internal/server", "tapgw/internal/taptest"),
			"only tests may"},
		{"taptest in a test", []pkg{{ImportPath: "tapgw/internal/server", GoFiles: []string{"x.go"},
			TestImports: []string{"tapgw/internal/taptest"}}}, ""},
		{"only tests in it",
			[]pkg{{ImportPath: "tapgw/internal/anything",
				TestImports: []string{"tapgw/cmd/tapgw"}}},
			""},
		{"net in gateway", one("internal/gateway", "net"), "imports net: not in this room"},
		{"HTTP in gateway", one("internal/gateway", "net/http"),
			"imports net/http: not in this room"},
		{"net/netip in gateway", one("internal/gateway", "net/netip"), ""},
		{"HTTP elsewhere", one("internal/client", "net/http"), ""},
		{"Copilot SDK", one("internal/copilot", copilotSDK, copilotSDK+"/rpc"), ""},
		{"Copilot SDK elsewhere", one("internal/server", copilotSDK+"/rpc"),
			"only internal/copilot may"},
		{"Copilot SDK in a test elsewhere",
			[]pkg{{ImportPath: "tapgw/test/e2e", XTestImports: []string{copilotSDK}}},
			"only internal/copilot may"},
		{"SQLite", one("internal/records/recordsql", "github.com/ncruces/go-sqlite3"), ""},
		{"SQLite beside it", one("internal/records", "github.com/ncruces/go-sqlite3"),
			"only internal/records/recordsql may"},
		{"SQL in tapctl", one("cmd/tapctl", "tapgw/internal/records/recordsql"), ""},
		{"SQL in the gateway", one("cmd/tapgw", "tapgw/internal/records/recordsql"),
			"cmd/tapctl, bench may"},
		{"libraries of protocol", one("internal/protocol", "encoding/json",
			"github.com/google/jsonschema-go/jsonschema",
			"github.com/go-json-experiment/json/jsontext"), ""},
		{"another library in protocol", one("internal/protocol", "github.com/coder/websocket"),
			"standard library and"},
		{"a name that only begins alike",
			one("internal/protocol", "github.com/google/jsonschema-gone"),
			"standard library and"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := check(tt.pkgs)
			if tt.want == "" {
				if len(got) > 0 {
					t.Fatalf("found %q, want nothing", got)
				}
				return
			}
			if len(got) != 1 || !strings.Contains(got[0], tt.want) {
				t.Fatalf("found %q, want one fault with %q", got, tt.want)
			}
		})
	}
}
