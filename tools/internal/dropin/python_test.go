package dropin

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tapgw/internal/proc"
)

// interpreter is the path of the real program, because python3 may be a script.
var interpreter = sync.OnceValues(func() (string, error) {
	path, err := Python{}.Interpreter()
	if err != nil {
		return "", err
	}
	out, err := exec.Command(path, "-c", "import sys; print(sys.executable)").Output()
	return strings.TrimSpace(string(out)), err
})

// python is what the tests' modules run with.
func python(t *testing.T) (Python, string) {
	t.Helper()
	path, err := interpreter()
	if err != nil {
		t.Fatal(err)
	}
	return Python{Env: proc.Environ(nil, "PYENV_*")}, path
}

// module makes a module of a body of execute.
func module(t *testing.T, lines ...string) *Module {
	t.Helper()
	text :=
		"import os, sys, time, threading, subprocess\nfrom tools._base import ToolContext\nSCHEMA = {}\n" +
			"def execute(tool_input, ctx):\n    " + strings.Join(lines, "\n    ") + "\n"
	p, interpreter := python(t)
	m := p.Module(interpreter, filepath.Join(write(t, map[string]string{"t.py": text}), "t.py"))
	t.Cleanup(m.Close)
	return m
}

func TestProbe(t *testing.T) {
	const good = "SCHEMA = {'name': 'x', 'description': 'd', 'inputSchema': {'type': 'object', 'properties': {}, " +
		"'required': []}}\ndef execute(i, c): pass\n"
	// Of a fault, want is a part; + is for a tool, - for no tool.
	files := []struct{ name, text, want string }{
		{"a_good.py", good, "+"},
		{"b_exits.py", "SCHEMA = {}\nimport os; os._exit(7)\ndef execute(i, c): pass",
			"importing it ended the process: exit code 7"},
		{"c_good.py", "print('{\"skip\": true}')\nimport sys; sys.stdout.flush()\n" + good, "+"},
		{"d_syntax.py", "SCHEMA = {}\n\ndef execute(i, c) pass",
			"line 3: SyntaxError: expected ':'"},
		{"e_raises.py", good + "\n{}['x']", "line 4: KeyError: 'x'"},
		{"f_exit.py", good + "import sys; sys.exit('bye')", "line 3: it called sys.exit(bye)"},
		{"g_no_execute.py", "\nSCHEMA: dict = {}\n# no execute",
			"line 2: it has SCHEMA but no function execute"},
		{"g_not_run.py", "import os\nif 1: SCHEMA, x = {}, os._exit(7)", "-"},
		{"g_broken.py", "SCHEMA = {}\nx = = 1", "line 2: SyntaxError"},
		{"g_broken_script.py", "# the SCHEMA of a table\nx = = 1", "line 2: SyntaxError"},
		{"g_mentions.py", "import os\nos._exit(7) # dumps the SCHEMA", "-"},
		{"g_only_execute.py", "def execute(i, c): pass # no SCHEMA", "-"},
		{"g_nul.py", "SCHEMA = {}\x00", "null bytes"},
		{"h_list.py", "SCHEMA = []\ndef execute(i, c): pass", "SCHEMA is a list, not a dict"},
		{"i_text.py", "SCHEMA = {}\nexecute = 'x'", "execute is a str, not a function"},
		{"j_set.py", "SCHEMA = {'name': {1}}\ndef execute(i, c): pass",
			"TypeError: Object of type set is not JSON serializable"},
		{"k_nan.py", "SCHEMA = {'name': float('nan')}\ndef execute(i, c): pass", "JSON"},
		{"l_no_name.py", "\n\nSCHEMA = {'description': 'd'}\ndef execute(i, c): pass",
			`line 3: SCHEMA["name"] must be there and be a text`},
		{"m_missing.py", good + "import no_such_module", "No module named 'no_such_module'"},
		{"n_helper.py", "from tools._help import SCHEMA\nfrom ._help import execute", "+"},
		{"p_crashes.py",
			"import os, signal, sys\nprint('last words')\nos.kill(os.getpid(), signal.SIGKILL)\nSCHEMA = execute = {}",
			"last words"},
		{"q_sibling.py", "from tools.a_good import *\nSCHEMA['name'] = 'q'", "+"},
		{"r_json.py", "import json\n" + good, "+"},
	}
	tree := map[string]string{"_help.py": good, "__init__.py": "raise 1",
		"json.py": "raise RuntimeError('not this one')"}
	var paths []string
	for _, f := range files {
		tree[f.name] = f.text
	}
	dir := write(t, tree)
	for _, f := range files {
		paths = append(paths, filepath.Join(dir, f.name))
	}
	p, interpreter := python(t)
	var mu sync.Mutex
	var log []string
	p.Log = func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		log = append(log, line)
	}
	got, realPath, err := p.Probe(t.Context(), interpreter, paths)
	if err != nil || len(got) != len(files) {
		t.Fatalf("%d probed, %v, want %d", len(got), err, len(files))
	}
	if info, err := os.Stat(realPath); err != nil || !info.Mode().IsRegular() {
		t.Errorf("interpreter %q: %v, want a file", realPath, err)
	}
	for i, f := range files {
		switch {
		case f.want == "+":
			if got[i].Spec == nil || got[i].Fault != nil {
				t.Errorf("%s: %+v, %v, want a spec and no fault", f.name, got[i].Spec, got[i].Fault)
			}
		case f.want == "-":
			if got[i] != (Probed{}) {
				t.Errorf("%s: %+v, want neither", f.name, got[i])
			}
		case got[i].Fault == nil || !strings.Contains(got[i].Fault.Error(), f.want):
			t.Errorf("%s: %v, want %q", f.name, got[i].Fault, f.want)
		}
	}
	if s := got[0].Spec; s != nil &&
		(s.Name != "x" || s.Description != "d" || s.Line != 1 ||
			string(s.Parameters) != `{"type": "object", "properties": {}, "required": []}`) {
		t.Errorf(
			"got spec %+v with the parameters %s, want x of line 1, an object without properties",
			s, s.Parameters)
	}
	mu.Lock()
	defer mu.Unlock()
	if !slices.Contains(log, `{"skip": true}`) {
		t.Errorf(`printed %q, want {"skip": true} among them`, log)
	}
}

// The import of a module has a time limit.
func TestProbeOfModuleThatHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: it starts programs or waits for them")
	}
	dir := write(t,
		map[string]string{"a.py": "import time # SCHEMA execute\nwhile True: time.sleep(1)"})
	p, interpreter := python(t)
	p.limit = 2 * time.Second
	got, _, err := p.Probe(t.Context(), interpreter, []string{filepath.Join(dir, "a.py")})
	if err != nil || len(got) != 1 || got[0].Fault == nil ||
		got[0].Fault.Reason != "importing it takes more than 2s" {
		t.Errorf("got %+v, %v, want %q", got, err, "importing it takes more than 2s")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := p.Probe(ctx, interpreter, []string{filepath.Join(dir, "a.py")}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("cancelled: %v, want %v", err, context.Canceled)
	}
}

func TestProbeWithoutPython(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := (Python{}).Interpreter(); !errors.Is(err, errNoPython) {
		t.Errorf("error %v, want %v", err, errNoPython)
	}
	if _, err := (Python{Path: "/no/python"}).Interpreter(); err == nil ||
		!strings.Contains(err.Error(), "/no/python") {
		t.Errorf("error %v, want %q in it", err, "/no/python")
	}
	if _, _, err := (Python{}).Probe(t.Context(), "/bin/false", []string{"x.py"}); err == nil ||
		!strings.Contains(err.Error(), "/bin/false does not run") {
		t.Errorf("error %v, want %q in it", err, "/bin/false does not run")
	}
}

func TestMayBeTool(t *testing.T) {
	for source, want := range map[string]bool{
		"SCHEMA = 1\ndef execute(): pass": true, "from x import *": true,
		"from x import SCHEMA, execute": true,
		"SCHEMA = {":                    true, "": false, "def execute(): pass": false,
		"DB_SCHEMA = 1": false, "print('hello')": false,
	} {
		if MayBeTool([]byte(source)) != want {
			t.Errorf("%q: another error, want %v", source, want)
		}
	}
}

func TestModuleAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: it starts programs or waits for them")
	}
	tests := []struct {
		name, body string
		parts      []string
		data, err  string
	}{
		{name: "list", body: `return [{"type": "text", "value": tool_input["a"] + " ü"}]`,
			parts: []string{"1 ü"}},
		{name: "dict", body: `return {"result": "success"}`, data: `{"result": "success"}`},
		{name: "error dict", body: `return {"result": "error", "message": "nope"}`, err: "nope"},
		{name: "text", body: `return "x"`, parts: []string{"x"}},
		{name: "None", body: `pass`},
		{name: "wrong shape", body: `return 5`, err: "t.py: it returned 5: a tool returns a list"},
		{name: "set", body: `return {1}`,
			err: "t.py: it returned what JSON cannot hold: Object of type set is not JSON serializable"},
		{name: "not a number", body: `return [float("inf")]`,
			err: "t.py: it returned what JSON cannot hold"},
		{name: "bytes", body: `return b"x"`, err: "what JSON cannot hold"},
		{name: "circle", body: "x = []; x.append(x); return x", err: "what JSON cannot hold"},
		{name: "coroutine", body: "async def f(): return 'x'\n    return f()",
			parts: []string{"x"}},
		{name: "lone surrogate", body: `return "a\udc80"`, parts: []string{"a\uFFFD"}},
		{name: "exception", body: `return {}["x"]`, err: "t.py: line 5: KeyError: 'x'"},
		{name: "exception further down", body: `os.stat("/no/such")`,
			err: "t.py: line 5: FileNotFoundError"},
		{name: "endless recursion", body: `return execute(tool_input, ctx)`, err: "RecursionError"},
		{name: "exit", body: `sys.exit(3)`, err: "t.py: line 5: it called sys.exit(3)"},
		{name: "prints",
			body: `print("x"); os.write(1, b'{"call":1,"result":"no"}\n'); os.system("echo y"); print("e", file=sys.stderr); return "ok"`, parts: []string{"ok"}},
		{name: "reads",
			body:  `return repr(sys.stdin.read()) + subprocess.run("cat", capture_output=True, text=True).stdout`,
			parts: []string{"''"}},
		{name: "place", body: `return ctx.workspace_root + " " + os.getcwd()`,
			parts: []string{"ROOT ROOT"}},
		{name: "context",
			body: `return [type(ctx).__name__, str(isinstance(ctx, ToolContext)), str(ctx.lsp_bridge)]`, parts: []string{"ToolContext", "True", "None"}},
		{name: "1 MB", body: `return "x" * (1 << 20)`, parts: []string{strings.Repeat("x", 1<<20)}},
		{name: "too much", body: `return "x" * (17 << 20)`,
			err: "t.py: it sent more than 16 MB at once"},
		{name: "all memory", body: `return len(bytearray(1 << 46))`, err: "MemoryError"},
		{name: "process gone", body: `print("last words"); os._exit(4)`,
			err: "t.py: its process ended in the middle of the call: exit code 4\nlast words"},
		{name: "process killed", body: `os.kill(os.getpid(), 9)`,
			err: "its process ended in the middle of the call: signal: killed"},
		{name: "fork that comes back", body: `return str(os.fork() != 0)`, parts: []string{"True"}},
		{name: "sync no text", body: `ctx.sync_file_to_server("x", b"y")`,
			err: "content must be str, not bytes"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, root := module(t, tt.body), t.TempDir()
			a, err := m.Call(t.Context(),
				Call{Root: root, Input: json.RawMessage("{\n\"a\": \"1\"}")})
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("error %v, want %q", err, tt.err)
				}
				return
			}
			for i, part := range tt.parts {
				tt.parts[i] = strings.ReplaceAll(part, "ROOT", root)
			}
			if err != nil || !slices.Equal(a.Parts, tt.parts) || string(a.Data) != tt.data {
				t.Errorf(
					"got %.200q, data %s, %v, want %.200q, %s and no error",
					a.Parts, a.Data, err, tt.parts, tt.data,
				)
			}
		})
	}
}

func TestSyncAndOpen(t *testing.T) {
	m := module(t,
		`from pathlib import Path`,
		`ctx.sync_file_to_server(Path("a.txt"), "one")`,
		`ctx.open_document("file:///x", "go", "package x")`,
		`ctx.sync_file_to_server("/b.txt", "two")`,
		`if tool_input.get("fail"): raise OSError("late")`,
		`return {"result": "success"}`)
	root := t.TempDir()
	var reported []string
	c := Call{
		Root: root, Input: json.RawMessage(`{}`),
		Sync: func(path, content string) { reported = append(reported, path+"="+content) },
		Open: func(uri, language, text string) {
			reported = append(reported, uri+" "+language+" "+text)
		},
	}
	want := []string{filepath.Join(root, "a.txt") + "=one", "file:///x go package x", "/b.txt=two"}
	a, err := m.Call(t.Context(), c)
	if err != nil || !slices.Equal(reported, want) || len(a.Wrote) != 2 ||
		a.Wrote[1] != (Wrote{"/b.txt", "two"}) {
		t.Errorf("reported %q, wrote %q, %v, want %q", reported, a.Wrote, err, want)
	}
	// Files that were written before the failure are reported.
	reported, c.Input = nil, json.RawMessage(`{"fail":true}`)
	if _, err := m.Call(t.Context(), c); err == nil || !slices.Equal(reported, want) {
		t.Errorf("reported %q, %v, want %q", reported, err, want)
	}
	c.Sync, c.Open, c.Input = nil, nil, json.RawMessage(`{}`)
	if _, err := m.Call(t.Context(), c); err != nil {
		t.Errorf("nobody listens: %v", err)
	}
}

// A process keeps the state of its module until it ends.
func TestStateIsKept(t *testing.T) {
	m := module(t,
		`n = globals().setdefault("N", [0])`,
		`n[0] += 1`,
		`if tool_input.get("die"): os._exit(1)`,
		`if tool_input.get("raise"): raise ValueError("x")`,
		`return str(n[0])`)
	root := t.TempDir()
	for i, step := range []struct{ input, want string }{
		{`{}`, "1"}, {`{}`, "2"}, {`{"raise":true}`, ""}, {`{}`, "4"}, {`{"die":true}`, ""},
		{`{}`, "1"}, {`{}`, "2"},
	} {
		a, err := m.Call(t.Context(), Call{Root: root, Input: json.RawMessage(step.input)})
		if got := strings.Join(a.Parts, ""); got != step.want || (err == nil) != (step.want != "") {
			t.Errorf("call %d: %q, %v; want %q", i, got, err, step.want)
		}
	}
	m.Close()
	if a, err := m.Call(t.Context(), Call{Root: root, Input: json.RawMessage(`{}`)}); err != nil ||
		a.Parts[0] != "1" {
		t.Errorf("after Close: %v, %v, want %q", a, err, "1")
	}
}

// Simultaneous calls run in processes of their own, which do not affect each other: the
// first waits for the second, the second for the third, and the third one dies.
func TestCallsDontMeet(t *testing.T) {
	m := module(t,
		`n = tool_input["n"]`,
		`if n > 0: open("fifo%d" % n).read()`,
		`if n < 2: open("fifo%d" % (n + 1), "w").close()`,
		`if n == 0: os._exit(1)`,
		`return str(os.getpid())`)
	root := t.TempDir()
	for _, name := range []string{"fifo1", "fifo2"} {
		if err := syscall.Mkfifo(filepath.Join(root, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	pids := make([]string, 3)
	for n := range 3 {
		wg.Go(func() {
			a, err := m.Call(t.Context(),
				Call{Root: root, Input: json.RawMessage(`{"n":` + strconv.Itoa(2-n) + `}`)})
			if (err != nil) != (2-n == 0) {
				t.Errorf("call %d: %v, want an error: %v", 2-n, err, 2-n == 0)
			}
			pids[2-n] = strings.Join(a.Parts, "")
		})
	}
	wg.Wait()
	if pids[1] == pids[2] {
		t.Errorf("both calls ran in process %s, want one for each", pids[1])
	}
}

// A cancelled call ends its process, even if that ignores SIGTERM.
func TestCancelKills(t *testing.T) {
	m := module(t,
		`import signal`,
		`signal.signal(signal.SIGTERM, signal.SIG_IGN)`,
		`child = subprocess.Popen(["sleep", "1000"])`,
		`ctx.open_document(str(os.getpid()), str(child.pid), "")`,
		`while True: time.sleep(1000)`)
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		var pids []string
		_, err := m.Call(ctx, Call{Root: t.TempDir(), Input: json.RawMessage(`{}`),
			Open: func(pid, child, _ string) {
				pids = []string{pid, child}
				cancel()
			}})
		if !errors.Is(err, context.Canceled) || len(pids) != 2 {
			t.Fatalf("ended with %v, %v, want %v and two processes", err, pids, context.Canceled)
		}
		for _, pid := range pids {
			gone(t, pid)
		}
	}
}

// Messages of a thread that outlives its call do not reach other calls.
func TestLateWordsAreDropped(t *testing.T) {
	m := module(t,
		`if tool_input["n"] == 0:`,
		`    go = globals().setdefault("GO", threading.Event())`,
		`    def late():`,
		`        go.wait()`,
		`        ctx.sync_file_to_server("/late", "x")`,
		`        globals()["SAID"].set()`,
		`    globals()["SAID"] = threading.Event()`,
		`    threading.Thread(target=late, daemon=True).start()`,
		`    return "started"`,
		`GO.set()`,
		`SAID.wait()`,
		`return "done"`)
	root := t.TempDir()
	for n := range 2 {
		_, err := m.Call(t.Context(),
			Call{Root: root, Input: json.RawMessage(`{"n":` + strconv.Itoa(n) + `}`),
				Sync: func(path, _ string) {
					t.Errorf("call %d was notified of %s, want no more", n, path)
				}})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A directory's own _base replaces ours, with the context that it defines.
func TestOwnBase(t *testing.T) {
	dir := write(t, map[string]string{
		"_base.py": "class ToolContext:\n    def __init__(self, workspace_root, sync_file_to_server, " +
			"open_document): self.workspace_root = workspace_root\n    def hello(self): return 'hello'\n",
		"t.py": "from tools._base import ToolContext\nSCHEMA = {}\ndef execute(i, ctx): return ctx.hello()",
	})
	p, interpreter := python(t)
	m := p.Module(interpreter, filepath.Join(dir, "t.py"))
	defer m.Close()
	a, err := m.Call(t.Context(), Call{Root: t.TempDir(), Input: json.RawMessage(`{}`)})
	if err != nil || a.Parts[0] != "hello" {
		t.Errorf("got %q, %v, want %q", a.Parts, err, "hello")
	}
}

// A call fails while its module can't be imported, and works again afterwards.
func TestModuleBreaksAndMends(t *testing.T) {
	dir := write(t,
		map[string]string{"t.py": "SCHEMA = {}\nraise OSError('disk')\ndef execute(i, ctx): pass"})
	p, interpreter := python(t)
	m := p.Module(interpreter, filepath.Join(dir, "t.py"))
	defer m.Close()
	if _, err := m.Call(t.Context(), Call{Root: dir, Input: json.RawMessage(`{}`)}); err == nil ||
		err.Error() != "t.py: line 2: OSError: disk" {
		t.Errorf("error %v, want %q", err, "t.py: line 2: OSError: disk")
	}
	if err := os.WriteFile(filepath.Join(dir, "t.py"), []byte("def execute(i, ctx): return 'fine'"),
		0o644); err != nil {
		t.Fatal(err)
	}
	if a, err := m.Call(t.Context(), Call{Root: dir, Input: json.RawMessage(`{}`)}); err != nil ||
		a.Parts[0] != "fine" {
		t.Errorf("got %q, %v, want %q", a.Parts, err, "fine")
	}
	if _, err := m.Call(t.Context(),
		Call{Root: "/no/such", Input: json.RawMessage(`{}`)}); err == nil ||
		!strings.Contains(err.Error(), "/no/such") {
		t.Errorf("no workspace: %v, want %q in it", err, "/no/such")
	}
}

// gone waits until a process has ended, reaped or not.
func gone(t *testing.T, pid string) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("process %s still runs, want its end", pid)
		}
	}
}
