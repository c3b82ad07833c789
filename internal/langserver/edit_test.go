//go:build runtime

package langserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tapgw/internal/scriptmodel"
	"tapgw/tools"
	"tapgw/tools/builtin"
)

// editing offers the built-in edit tools and a script for the model.
type editing struct {
	*rig
	t   testing.TB
	dir string
}

// builtIn finds a built-in tool.
func builtIn(name string) *tools.Tool {
	all := builtin.All()
	return all[slices.IndexFunc(all, func(t *tools.Tool) bool { return t.Name == name })]
}

func newEditor(t testing.TB, more ...*tools.Tool) *editing {
	t.Helper()
	r := shared(t)
	dir, err := os.MkdirTemp(r.workspace, "edits ")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	env := tools.Env{Root: r.workspace}
	var list []Tool
	for _, tool := range append([]*tools.Tool{builtIn("insert_edit_into_file"),
		builtIn("create_file"),
		builtIn("replace_string_in_file"), builtIn("apply_patch"), builtIn("read_file")}, more...) {
		i := slices.IndexFunc(list, func(t Tool) bool { return t.Name == tool.Name })
		if i >= 0 { // a drop-in instead
			list = slices.Delete(list, i, i+1)
		}
		list = append(list, r.WorkspaceTool(tool, env))
	}
	r.offer(t, list...)
	return &editing{r, t, dir}
}

func (e *editing) write(name, content string) string {
	e.t.Helper()
	path := filepath.Join(e.dir, name)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		e.t.Fatal(err)
	}
	return path
}

func (e *editing) checkFile(path, want string) {
	e.t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		e.t.Errorf("%s holds %q, %v; want %q", filepath.Base(path), got, err, want)
	}
}

// step is the model's part of a round: an action beside it, and a call.
type step struct {
	before func()
	tool   string
	args   map[string]string
}

// runSteps makes the model take steps in a turn and returns the answer of each call.
func (e *editing) runSteps(steps ...step) []string {
	e.t.Helper()
	var answers []string
	n := 0
	e.cloud.SetReply(func(req *scriptmodel.Request) scriptmodel.Reply {
		if n > 0 {
			answers = append(answers, req.LastResult())
		}
		if n == len(steps) {
			return scriptmodel.Reply{Text: "done"}
		}
		s := steps[n]
		n++
		if s.before != nil {
			s.before()
		}
		args, err := json.Marshal(s.args)
		if err != nil {
			e.t.Error(err)
		}
		return scriptmodel.Reply{ToolCalls: []scriptmodel.ToolCall{{Name: s.tool,
			Args: string(args)}}}
	})
	e.mustTurn(e.t, "edit")
	if len(answers) != len(steps) {
		e.t.Fatalf("%d answers to %d calls, want %d", len(answers), len(steps), len(steps))
	}
	return answers
}

func replace(path, old, now string) step {
	return step{tool: "replace_string_in_file", args: map[string]string{"filePath": path,
		"oldString": old, "newString": now, "explanation": "a test"}}
}

func TestEdits(t *testing.T) {
	e := newEditor(t)
	text := e.write("text", "one\ntwo\nthree\n")
	fresh := filepath.Join(e.dir, "deep", "fresh é.txt")
	answers := e.runSteps(
		step{tool: "create_file", args: map[string]string{"filePath": fresh,
			"content": "hello\nworld\n"}},
		replace(text, "two", "TWO"),
		step{tool: "insert_edit_into_file", args: map[string]string{"filePath": text,
			"code":        "one\nTWO\nthree\nfour\n",
			"explanation": "a test"}},
		step{tool: "apply_patch", args: map[string]string{"explanation": "a test",
			"input": "*** Begin Patch\n*** Update File: " + text +
				"\n@@\n one\n-TWO\n+2\n three\n*** End Patch"}},
	)
	e.checkFile(fresh, "hello\nworld\n")
	e.checkFile(text, "one\n2\nthree\nfour\n")
	// The model reads the new text whole after it wrote a file.
	for i, want := range map[int]string{0: "hello\nworld\n", 2: "one\nTWO\nthree\nfour\n"} {
		if !strings.Contains(answers[i], want) {
			t.Errorf("the model saw %q, want it to hold %q", answers[i], want)
		}
	}
}

// A file that changes between two edits loses nothing: not when a person writes it, and not when a
// tool had opened it at the server before.
func TestEditsKeepWhatOthersWrote(t *testing.T) {
	parameters := json.RawMessage(
		`{"type":"object","properties":{"filePath":{"type":"string","description":"a file"}},"required":["filePath"]}`)

	opens := func(name string, then func(env *tools.Env, path string) error) *tools.Tool {
		return &tools.Tool{Name: name, Description: "Opens a file.", Parameters: parameters,
			Run: func(_ context.Context, env *tools.Env, args json.RawMessage) (tools.Result,
				error) {
				var in struct{ FilePath string }
				if err := json.Unmarshal(args, &in); err != nil {
					return tools.Result{}, err
				}
				text, err := os.ReadFile(in.FilePath)
				if err != nil {
					return tools.Result{}, err
				}
				// a space is not escaped here
				env.Open("file://"+in.FilePath, "plaintext", string(text))
				env.Open(in.FilePath, "", string(text))

				return tools.Result{Parts: []string{"opened"}}, errors.Join(err,
					then(env, in.FilePath))
			}}
	}
	addLine := func(path, line string) (string, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		now := string(text) + line
		return now, os.WriteFile(path, []byte(now), 0o644)
	}
	e := newEditor(t,
		opens("only_opens", func(*tools.Env, string) error { return nil }),
		opens("opens_and_writes", func(_ *tools.Env, path string) error {
			_, err := addLine(path, "silent\n")
			return err
		}),
		opens("opens_and_syncs", func(env *tools.Env, path string) error {
			now, err := addLine(path, "synced\n")
			env.Sync(path, now)
			return err
		}),
	)
	open := func(tool, path string) step {
		return step{tool: tool, args: map[string]string{"filePath": path}}
	}
	path := e.write("text", "one\ntwo\n")
	outside := func(line string) func() {
		return func() {
			if _, err := addLine(path, line); err != nil {
				t.Error(err)
			}
		}
	}
	second := replace(path, "two", "TWO")
	second.before = outside("three\n")
	third := replace(path, "three", "THREE")
	third.before = outside("four\n")
	answers := e.runSteps(
		replace(path, "one", "ONE"), second,
		open("only_opens", path), third,
		open("opens_and_writes", path), replace(path, "four", "FOUR"),
		open("opens_and_syncs", path), replace(path, "silent", "SILENT"),
	)
	e.checkFile(path, "ONE\nTWO\nTHREE\nFOUR\nSILENT\nsynced\n")
	for i, a := range answers {
		if strings.Contains(a, "failed") {
			t.Errorf(`call %d: %s, want no "failed" in it`, i+1, a)
		}
	}
	if len(e.docs.open) != 0 {
		t.Errorf("still open: %v, want none", e.docs.open)
	}
}

// A drop-in in place of create_file answers as the document says: a dict, and a file synced. The
// model still gets to see the file.
func TestCreateFileThatIsADropIn(t *testing.T) {
	e := newEditor(t, &tools.Tool{
		Name: "create_file", Description: "Creates a file.",
		Parameters: builtIn("create_file").Parameters,
		Run: func(_ context.Context, env *tools.Env, args json.RawMessage) (tools.Result, error) {
			var in struct{ FilePath, Content string }
			if err := json.Unmarshal(args, &in); err != nil {
				return tools.Result{}, err
			}
			if in.Content == "refuse" {
				return tools.Result{Data: json.RawMessage(
					`{"result":"error","message":"no room"}`)}, nil
			}
			in.Content = "// licence\n" + in.Content
			err := os.WriteFile(in.FilePath, []byte(in.Content), 0o644)
			env.Sync(in.FilePath, in.Content)
			return tools.Result{Data: json.RawMessage(`{"result":"success"}`),
					Written: []tools.Written{{Path: in.FilePath, Content: in.Content,
						Created: true}}},
				err
		},
	})
	path := filepath.Join(e.dir, "new.go")
	create := func(content string) step {
		return step{tool: "create_file", args: map[string]string{"filePath": path,
			"content": content}}
	}
	answers := e.runSteps(create("package x\n"), create("refuse"))
	if want := "// licence\npackage x\n"; !strings.Contains(answers[0], want) {
		t.Errorf("the model saw %q, want it to hold %q", answers[0], want)
	}
	if !strings.Contains(answers[1], "failed") || !strings.Contains(answers[1], "no room") {
		t.Errorf(`the model saw %q of the failure, want "failed" and "no room" in it`, answers[1])
	}
	e.checkFile(path, "// licence\npackage x\n")
}

// No tool of the model's leads out of the workspace by a symbolic link, and our tools refuse files
// outside and say why.
func TestOutside(t *testing.T) {
	e := newEditor(t)
	outside := filepath.Join(t.TempDir(), "outside.txt")
	if err := os.WriteFile(outside, []byte("secret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(e.dir, "link")
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	var asked []string
	e.set(func() {
		e.confirm = func(_ context.Context, q Confirmation) error {
			asked = append(asked, fmt.Sprint(q.Tool, " ", q.Path == outside, " ", q.Ours))
			if !q.Ours {
				return errors.New("not ours")
			}
			return nil
		}
	})
	for _, path := range []string{outside, link} {
		var steps []step
		for tool, args := range map[string]map[string]string{
			"read_file":              {"filePath": path},
			"create_file":            {"filePath": path, "content": "x"},
			"insert_edit_into_file":  {"filePath": path, "code": "x", "explanation": ""},
			"replace_string_in_file": replace(path, "secret", "public").args,
			"apply_patch": {"explanation": "",
				"input": "*** Begin Patch\n*** Update File: " + path +
					"\n@@\n-secret\n+public\n*** End Patch"},
		} {
			steps = append(steps, step{tool: tool, args: args})
		}
		n := e.requestCount()
		for i, a := range e.runSteps(steps...) {
			if !strings.Contains(a, "outside") || strings.Contains(a, "skip") {
				t.Errorf("%s of %s answered %q, want the reason", steps[i].tool,
					filepath.Base(path), a)
			}
		}
		for _, q := range e.requestsAfter(n) {
			if strings.Contains(q.LastUser(), "secret\n") || len(q.Tools) == 0 {
				t.Errorf("the model saw %q, want nothing of the file", q.LastUser())
			}
		}
	}
	for _, q := range asked {
		if !strings.HasSuffix(q, " true true") {
			t.Errorf("asked about %q, want only our tools", q)
		}
	}
	e.checkFile(outside, "secret\n")
}

// Questions about commands name their parts. Without a policy the answer is no.
func TestTerminalIsAsked(t *testing.T) {
	r := shared(t)
	ran := 0
	terminal := tool("run_in_terminal", func(context.Context, Invocation) Outcome {
		ran++
		return Succeeded("ran")
	})
	r.offer(t, terminal)
	var asked Confirmation
	const prompt = `call:run_in_terminal {"command":"git status && rm -rf x"}`
	r.set(func() {
		r.confirm = func(_ context.Context, q Confirmation) error {
			asked = q
			return nil
		}
	})
	if result, _ := r.mustTurn(t, prompt); result.Text != "ran" || ran != 1 {
		t.Errorf(`allowed: %q, want "ran", once`, result.Text)
	}
	if asked.Kind != Terminal || !asked.Ours ||
		!slices.Equal(asked.Command, []string{"git status", "rm -rf x"}) ||
		asked.ConversationID == "" || asked.CallID == "" || asked.Message == "" {
		t.Errorf("asked %+v, want a terminal's two commands with the ids of the call", asked)
	}
	for name, confirm := range map[string]func(context.Context, Confirmation) error{
		"refused":     func(context.Context, Confirmation) error { return errors.New("no") },
		"broken down": func(context.Context, Confirmation) error { panic("the policy") },
	} {
		r.set(func() { r.confirm = confirm })
		result, e := r.mustTurn(t, prompt)
		want := map[string]string{"refused": "no", "broken down": "the policy broke down"}[name]
		if !strings.Contains(result.Text, want) ||
			ran != 1 ||
			e.call(t, "run_in_terminal").State != Failed {
			t.Errorf("%s: %q, %v, want %q, one call and %v", name, result.Text, e.calls(), want,
				Failed)
		}
	}
}
