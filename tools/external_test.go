package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dropins writes a directory of drop-ins. Names that end in + are executable.
func dropins(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		dropinFile(t, dir, name, text)
	}
	return dir
}

// dropinFile writes a file as editors do: a new one, renamed to its place.
func dropinFile(t testing.TB, dir, name, text string) {
	t.Helper()
	mode := os.FileMode(0o644)
	if base, ok := strings.CutSuffix(name, "+"); ok {
		name, mode = base, 0o755
	}
	tmp := filepath.Join(dir, ".tmp")
	err := errors.Join(os.WriteFile(tmp, []byte(text), mode), os.Chmod(tmp, mode),
		os.Rename(tmp, filepath.Join(dir, name)))
	if err != nil {
		t.Fatal(err)
	}
}

// pyTool is a Python drop-in that answers a text.
func pyTool(name, answer string) string {
	return fmt.Sprintf(`from tools._base import ToolContext
SCHEMA = {
    "name": %q,
    "description": "Answers a text.",
    "inputSchema": {"type": "object", "properties": {}, "required": []},
}
def execute(tool_input, ctx: ToolContext) -> list:
    return [{"type": "text", "value": %q}]
`, name, answer)
}

func external(t testing.TB) *External {
	t.Helper()
	x := &External{}
	t.Cleanup(x.Close)
	return x
}

// found lists in one line what was loaded: the names of tools, then ! and the file of each
// fault.
func found(tools []*Tool, faults []Fault) string {
	var all []string
	for _, tool := range tools {
		all = append(all, tool.Name)
	}
	for _, f := range faults {
		all = append(all, "!"+filepath.Base(f.File))
	}
	return strings.Join(all, " ")
}

// run calls a tool of a list as a caller does.
func run(t testing.TB, tools []*Tool, env *Env, name string, in args) (string, error) {
	t.Helper()
	i := slices.IndexFunc(tools, func(tool *Tool) bool { return tool.Name == name })
	if i < 0 {
		t.Fatalf("no tool %s, want it", name)
	}
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	res, err := tools[i].Call(t.Context(), env, raw)
	if res.Data != nil {
		return string(res.Data), err
	}
	return res.Text(), err
}

// The two examples of the document about drop-in tools work unchanged.
func TestTheDocumentsExamples(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: it starts programs or waits for them")
	}
	env := space(t, map[string]string{"a.txt": "1", "b.txt": "1", "new.txt": "1"})
	t.Setenv("HOME", t.TempDir())
	for _, argv := range [][]string{
		{"init", "-q"}, {"add", "a.txt", "b.txt"},
		{"-c", "user.name=n", "-c", "user.email=e@example.com", "commit", "-qm", "one"},
	} {
		cmd := exec.Command("git", argv...)
		cmd.Dir = env.Root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %s", argv, out)
		}
	}
	put(t, env, "a.txt", "2")
	tools, faults := external(t).Load(t.Context(), filepath.Join("testdata", "dropins"))
	if got := found(tools, faults); got != "get_changed_files memory" {
		t.Fatalf("found %s, %v, want %q", got, faults, "get_changed_files memory")
	}
	for _, step := range []struct {
		tool string
		in   args
		want string
	}{
		{"get_changed_files", args{}, "## Unstaged changes\na.txt\n\n## Untracked files\nnew.txt"},
		{"get_changed_files", args{"sourceControlState": "staged"}, "No changed files found."},
		{"memory", args{"command": "list"}, "No memories saved yet."},
		{"memory", args{"command": "save", "path": "../x/notes.md", "content": "remember"},
			"Saved memory 'notes.md'."},
		{"memory", args{"command": "list"}, "notes.md"},
		{"memory", args{"command": "read", "path": "notes.md"}, "remember"},
		{"memory", args{"command": "delete", "path": "notes.md"}, "Deleted memory 'notes.md'."},
		{"memory", args{"command": "read", "path": "notes.md"}, "Memory 'notes.md' not found."},
		{"memory", args{"command": "save"}, "Error: 'path' is required for save/read/delete."},
	} {
		if got, err := run(t, tools, env, step.tool, step.in); got != step.want || err != nil {
			t.Errorf("%s %v: %q, %v; want %q", step.tool, step.in, got, err, step.want)
		}
	}
	if _, err := run(t, tools, env, "memory", args{"command": "burn"}); err == nil ||
		!strings.Contains(err.Error(), "command") {
		t.Errorf("a command that is none: got %v, want %q in it", err, "command")
	}
}

func TestLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: it starts programs or waits for them")
	}
	schema := func(inner string) string {
		return "SCHEMA = {'name': 'x', 'description': 'd', 'inputSchema': {" + inner +
			"}}\ndef execute(i, c): return 'x'"
	}
	const manifest = "description = \"d\"\ncommand = [\"cat\"]\n"
	tests := []struct {
		name   string
		files  map[string]string
		want   string // as found says
		faults []string
	}{
		{"nothing", nil, "", nil},
		{"both kinds",
			map[string]string{"a.py": pyTool("a", ""), "b.tool.toml": manifest,
				"c.tool.json": `{"description": "d", "command": ["cat"]}`}, "a b c", nil},
		{"what is no tool", map[string]string{
			"_x.py": pyTool("x",
				""), "__init__.py": "raise 1", "x.py": "raise 1", "z.py": "def execute(): pass",
			"README.md": "", "run.sh+": "exit 1", ".h.py": pyTool("h", ""), "b.py~": "",
			"tool.toml":  "",
			".tool.toml": "",
		}, "", nil},
		{"names", map[string]string{"a.py": pyTool("zeta", ""), "b.py": pyTool("alpha", "")},
			"alpha zeta", nil},
		{"one bad file",
			map[string]string{"a.py": pyTool("a", ""), "b.py": "SCHEMA = {\ndef execute",
				"c.tool.toml": "command = 1", "d.tool.toml": manifest}, "a d !b.py !c.tool.toml",
			[]string{"b.py:1: SyntaxError", "c.tool.toml:1: command"}},
		{"SCHEMA alone", map[string]string{"a.py": "\nSCHEMA = 5", "b.py": "SCHEMA = = 1",
			"_c.py": "SCHEMA = {", "__init__.py": "SCHEMA = {"}, "!a.py !b.py",
			[]string{"a.py:2: it has SCHEMA but no function execute", "b.py:1: SyntaxError"}},
		{"no required", map[string]string{"a.py": schema(`'type': 'object', 'properties': {}`)},
			"!a.py",
			[]string{`a.py:1: tool "x": the schema of the parameters needs "required"`}},
		{"required None",
			map[string]string{"a.py": schema(
				`'type': 'object', 'properties': {}, 'required': None`)}, "!a.py",
			[]string{"required"}},
		{"no properties", map[string]string{"a.py": schema(`'type': 'object', 'required': []`)},
			"!a.py",
			[]string{"properties"}},
		{"empty schema", map[string]string{"a.py": schema(``)}, "!a.py", []string{"type"}},
		{"two types",
			map[string]string{
				"a.py": schema(
					`'type': 'object', 'properties': {'p': {'type': ['string', 'null'], 'description': 'd'}}, 'required': []`,
				),
			}, "!a.py", []string{`"p" needs exactly one "type"`}},
		{"no description of a property",
			map[string]string{"a.tool.toml": manifest +
				"[parameters]\ntype = \"object\"\nrequired = []\nproperties.p.type = \"string\""},
			"!a.tool.toml",
			[]string{`a.tool.toml:3: tool "a": property "p" needs a "description"`}},
		{"no description", map[string]string{"a.tool.toml": `command = ["cat"]`}, "!a.tool.toml",
			[]string{"description is missing"}},
		{"schema left out",
			map[string]string{"a.py": "SCHEMA = {'name': 'x', 'description': 'd'}\ndef execute(i, c): return 'x'"}, "x",
			nil},
		{"no name", map[string]string{"a.py": pyTool("a b", "")}, "!a.py",
			[]string{"1 to 64 letters"}},
		{"a name twice",
			map[string]string{"a.py": pyTool("same", ""), "b.py": pyTool("same", ""),
				"same.tool.toml": manifest},
			"same !b.py !same.tool.toml",
			[]string{"b.py:2: ", "a.py has the name \"same\" already",
				"a.py has the name \"same\" already"}},
		{"a name of the server", map[string]string{"a.py": pyTool("read_file", ""),
			"run_subagent.tool.toml": manifest},
			"!a.py !run_subagent.tool.toml",
			[]string{`"read_file" belongs to a tool of the language server: choose another`,
				`"run_subagent"`}},
		{"a name of ours", map[string]string{"a.py": pyTool("memory", "")}, "memory", nil},
		{"a kind that is none", map[string]string{"a.tool.toml": "kind = \"magic\"\n" + manifest},
			"!a.tool.toml",
			[]string{`kind "magic" is none of read, edit, terminal, web`}},
		{"a kind that only the program has",
			map[string]string{"a.tool.toml": "kind = \"unknown\"\n" + manifest},
			"!a.tool.toml", []string{`kind "unknown" is none of read, edit, terminal, web`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := dropins(t, tt.files)
			tools, faults := external(t).Load(t.Context(), dir, filepath.Join(dir, "none"), dir)
			if got := found(tools, faults); got != tt.want {
				t.Errorf("found %q, want %q", got, tt.want)
			}
			all := fmt.Sprint(faults)
			for _, part := range tt.faults {
				_, rest, ok := strings.Cut(all, part)
				if !ok {
					t.Fatalf("got %s, want %q in it", all, part)
				}
				all = rest
			}
			for _, tool := range tools {
				if err := tool.Check(); err != nil || filepath.Dir(tool.Source) != dir {
					t.Errorf("%s of %s: %v, want %v", tool.Name, tool.Source, err, dir)
				}
			}
		})
	}
}

func TestEarlierDirectoriesWin(t *testing.T) {
	one, two := dropins(t, map[string]string{"z.py": pyTool("t", "one")}), dropins(t,
		map[string]string{"a.py": pyTool("t", "two")})
	tools, faults := external(t).Load(t.Context(), one, two)
	if got, err := run(t, tools, space(t, nil), "t", args{}); got != "one" || err != nil ||
		len(faults) != 1 || faults[0].File != filepath.Join(two, "a.py") {
		t.Errorf("got %q, %v, faults %v, want %q", got, err, faults, "one")
	}
}

func TestLoadWithoutPython(t *testing.T) {
	dir := dropins(t,
		map[string]string{"a.py": pyTool("a", ""), "b.py": pyTool("b", ""), "_c.py": "",
			"d.tool.toml": "description = \"d\"\ncommand = [\"/bin/cat\"]"})
	t.Setenv("PATH", t.TempDir())
	tools, faults := external(t).Load(t.Context(), dir)
	if got := found(tools, faults); got != "d !"+filepath.Base(dir) {
		t.Errorf("found %s, want %q", got, "d !"+filepath.Base(dir))
	}
	if len(faults) != 1 ||
		!strings.Contains(faults[0].Reason,
			"its Python tools (a.py, b.py) cannot be used: python3 is not on PATH: install") {
		t.Errorf("faults %v, want %q in it", faults,
			"its Python tools (a.py, b.py) cannot be used: python3 is not on PATH: install")
	}
	if got, err := run(t, tools, space(t, nil), "d", args{}); got != "{}" || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, "{}")
	}
}

func TestDropInsRun(t *testing.T) {
	dir := dropins(t, map[string]string{
		"writes.py": `import os
SCHEMA = {"name": "writes", "description": "Writes.", "kind": "edit", "inputSchema": {"type": "object", "properties": {
    "path": {"type": "string", "description": "where"}}, "required": ["path"]}}
def execute(i, ctx):
    path = os.path.join(ctx.workspace_root, i["path"])
    with open(path, "w") as f: f.write("text")
    ctx.sync_file_to_server(path, "text")
    return {"result": "success"}
`,
		"silent.py":      "SCHEMA = {'name': 'silent', 'description': 'd'}\ndef execute(i, c): pass",
		"env.tool.toml":  "description = \"d\"\nkind = \"terminal\"\ntimeout = \"90s\"\n",
		"env+":           "#!/bin/sh\necho \"$MINE.$SECRET.$PWD\"\n",
		"slow.tool.toml": "description = \"d\"\ntimeout = \"100ms\"\ncommand = [\"sleep\", \"1000\"]\n",
		"log.tool.toml":  "description = \"d\"\ncommand = [\"sh\", \"-c\", \"echo oops >&2\"]\n",
	})
	t.Setenv("MINE", "mine")
	t.Setenv("SECRET", "secret")
	var mu sync.Mutex
	var log []string
	x := external(t)
	x.Allow = func() []string { return []string{"MI*"} }
	x.Log = func(file, line string) {
		mu.Lock()
		defer mu.Unlock()
		log = append(log, filepath.Base(file)+": "+line)
	}
	tools, faults := x.Load(t.Context(), dir)
	if got := found(tools, faults); got != "env log silent slow writes" {
		t.Fatalf("found %s, %v, want %q", got, faults, "env log silent slow writes")
	}
	if tools[0].Kind != Terminal || tools[0].Timeout != 90*time.Second ||
		tools[2].Kind != Unknown || tools[4].Kind != Edit {
		t.Errorf("kinds and timeouts: %+v, want terminal, %v, unknown and edit", tools,
			90*time.Second)
	}
	env := space(t, nil)
	synced := map[string]string{}
	env.Sync = func(path, content string) { synced[path] = content }
	res, err := tools[4].Call(t.Context(), env, json.RawMessage(`{"path":"a.txt"}`))
	if err != nil || string(res.Data) != `{"result": "success"}` || len(res.Written) != 1 {
		t.Errorf("writes: got %+v, %v, want %q", res, err, `{"result": "success"}`)
	}
	checkWritten(t, env, res, synced)
	if _, err := run(t, tools, env, "writes", args{"path": 5}); err == nil ||
		!strings.Contains(err.Error(), "path") {
		t.Errorf("wrong arguments: got %v, want %q in it", err, "path")
	}
	if got, err := run(t, tools, env, "env", args{}); got != "mine.."+env.Root+"\n" || err != nil {
		t.Errorf("env: got %q, %v, want %q", got, err, "mine.."+env.Root+"\n")
	}
	if got, err := run(t, tools, env, "silent",
		args{}); got != "silent is done; it has nothing to say." || err != nil {
		t.Errorf("silent: got %q, %v, want %q", got, err, "silent is done; it has nothing to say.")
	}
	if _, err := run(t, tools, env, "slow", args{}); !errors.Is(err, context.DeadlineExceeded) ||
		!strings.Contains(err.Error(), "slow did not finish within 100ms") {
		t.Errorf("slow: got %v, want %q in it", err, "slow did not finish within 100ms")
	}
	if _, err := run(t, tools, env, "log", args{}); err != nil {
		t.Errorf("log: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Contains(log, "sh: oops") {
		t.Errorf("logged %q, want sh: oops", log)
	}
}

// A file that has not changed keeps its tool and its process. A change of a file that
// it imports counts as its own.
func TestReload(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: it starts programs or waits for them")
	}
	counter := func(name string) string {
		return strings.Replace(pyTool(name, "x"), `return [{"type": "text", "value": "x"}]`,
			"N[0] += 1; return str(N[0])\nN = [0]", 1)
	}
	dir := dropins(t, map[string]string{
		"alpha.py": counter("a"), "beta.py": "from tools._b import NAME\n" +
			strings.Replace(counter("b"), `"b"`, "NAME", 1), "_b.py": "NAME = 'b'",
		"e.tool.toml": "description = \"d\"\n", "e+": "#!/bin/sh\necho 1\n",
		"f.tool.toml": "description = \"d\"\ncommand = [\"cat\"]\n",
	})
	x, env := external(t), space(t, nil)
	load := func(want string) []*Tool {
		t.Helper()
		tools, faults := x.Load(t.Context(), dir)
		if got := found(tools, faults); got != want {
			t.Fatalf("found %s, want %s: %v", got, want, faults)
		}
		return tools
	}
	answers := func(tools []*Tool, want ...string) {
		t.Helper()
		for i := 0; i < len(want); i += 2 {
			if got, err := run(t, tools, env, want[i],
				args{}); strings.TrimSpace(got) != want[i+1] || err != nil {
				t.Errorf("%s: %q, %v; want %s", want[i], got, err, want[i+1])
			}
		}
	}
	first := load("a b e f")
	answers(first, "a", "1", "b", "1", "e", "1")

	second := load("a b e f")
	if !slices.Equal(first, second) {
		t.Errorf("nothing changed, and some tools are others, want the same: %v, then %v", first,
			second)
	}
	answers(second, "a", "2", "b", "2")

	dropinFile(t, dir, "_b.py", "NAME = 'bb'")
	dropinFile(t, dir, "e+", "#!/bin/sh\necho 2\n")
	third := load("a bb e f")
	if third[0] != first[0] || third[3] != first[3] || third[2] == first[2] {
		t.Errorf("want the same tools for a and f and another for e, got %v, then %v", first, third)
	}
	answers(third, "a", "3", "bb", "1", "e", "2")
	// The old tool can still be called.
	answers(first, "e", "2")

	dropinFile(t, dir, "alpha.py", "SCHEMA = {} execute")
	if err := os.Remove(filepath.Join(dir, "e")); err != nil {
		t.Fatal(err)
	}
	answers(load("bb f !alpha.py !e.tool.toml"), "bb", "2")
	dropinFile(t, dir, "alpha.py", counter("a"))
	answers(load("a bb f !e.tool.toml"), "a", "1", "bb", "3")
}

// Watch reports tools that come, change, break, are mended and go, and leaves the others
// as they are.
func TestWatch(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: it starts programs or waits for them")
	}
	dir := filepath.Join(t.TempDir(), "tools")
	x, env := external(t), space(t, nil)
	type state struct {
		tools  []*Tool
		faults []Fault
	}
	reports := make(chan state, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		x.Watch(ctx, []string{dir}, func(tools []*Tool, faults []Fault) {
			reports <- state{tools, faults}
		})
	})
	defer wg.Wait()
	defer cancel()
	until := func(want string) []*Tool {
		t.Helper()
		deadline := time.After(60 * time.Second)
		var last string
		for last != want {
			select {
			case s := <-reports:
				if last = found(s.tools, s.faults); last == want {
					return s.tools
				}
			case <-deadline:
				t.Fatalf("the last report is %s, want %s", last, want)
			}
		}
		return nil
	}
	until("")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	dropinFile(t, dir, "a.py", pyTool("a", "1"))
	until("a")
	dropinFile(t, dir, "b.tool.toml", "description = \"d\"\n")
	until("a !b.tool.toml") // its program is missing
	dropinFile(t, dir, "b.sh+", "#!/bin/sh\necho b\n")
	b := until("a b")[1]
	dropinFile(t, dir, "a.py", pyTool("aa", "2"))
	tools := until("aa b")
	if got, err := run(t, tools, env, "aa", args{}); got != "2" || err != nil {
		t.Errorf("aa: %q, %v, want %q", got, err, "2")
	}
	dropinFile(t, dir, "a.py", pyTool("aa", "3")+"\n{}['x']")
	if tools = until("b !a.py"); tools[0] != b {
		t.Error("b is another tool, want the same: nothing of it changed")
	}
	dropinFile(t, dir, "a.py", pyTool("aa", "4"))
	if got, err := run(t, until("aa b"), env, "aa", args{}); got != "4" || err != nil {
		t.Errorf("aa: %q, %v, want %q", got, err, "4")
	}
	if err := os.Remove(filepath.Join(dir, "b.tool.toml")); err != nil {
		t.Fatal(err)
	}
	until("aa")
}

// A drop-in that is removed while it runs finishes.
func TestRemovedWhileItRuns(t *testing.T) {
	dir := dropins(t, map[string]string{"a.py": `SCHEMA = {"name": "a", "description": "d"}
def execute(i, ctx):
    ctx.open_document("", "", "")
    open("go").read()
    return "finished"
`})
	x, env := external(t), space(t, nil)
	tools, _ := x.Load(t.Context(), dir)
	if out, err := exec.Command("mkfifo",
		filepath.Join(env.Root, "go")).CombinedOutput(); err != nil {
		t.Fatalf("mkfifo: %v: %s", err, out)
	}
	started := make(chan struct{})
	env.Open = func(string, string, string) { close(started) }
	var wg sync.WaitGroup
	wg.Go(func() {
		if got, err := run(t, tools, env, "a", args{}); got != "finished" || err != nil {
			t.Errorf("got %q, %v, want %q", got, err, "finished")
		}
	})
	<-started
	if err := os.Remove(filepath.Join(dir, "a.py")); err != nil {
		t.Fatal(err)
	}
	if tools, faults := x.Load(t.Context(), dir); len(tools)+len(faults) != 0 {
		t.Errorf("found %s, want none", found(tools, faults))
	}
	x.Close()
	put(t, env, "go", "")
	wg.Wait()
}
