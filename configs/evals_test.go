package configs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const wholeCase = `title = "The weather comes from the tool"
category = "tools"
prompts = ["What is the weather in Oslo?", "And now?"]
repeat = 3
min_rate = 0.5
wait = "2s"
[budget]
time = "1m"
turns = 4
calls = 0
[workspace]
"src/main.go" = "package main\n"
[[provider]]
name = "weather"
context = "It is winter."
[[provider.tool]]
name = "get_weather"
description = "Tell the weather"
parameters = '{"type":"object","properties":{"city":{"type":"string"}}}'
timeout = "3s"
[[provider.tool.answer]]
args = '"city":"Oslo"'
json = '{"sky":"rain"}'
[[provider.tool.answer]]
error = "no such city"
code = "NOT_FOUND"
delay = "1s"
[[provider.gate]]
tool = "get_*"
args = "Oslo"
decision = "deny"
reason = "not today"
[[provider.push]]
text = "storm"
level = "inject"
after_call = "get_weather"
[expect]
order = ["get_weather", "say"]
[[expect.call]]
tool = "get_weather"
args = "Oslo"
outcome = "ok"
[[expect.call]]
tool = "shell"
max = 0
[[expect.file]]
path = "src/main.go"
unchanged = true
[[expect.stream]]
stream = "weather@weather"
contains = "storm"
[[observation]]
text = "it names the sky"
pattern = "rain"
[[prohibited]]
text = "it says that it looked out of the window"
unless_call = "look"
[judge]
rubric = "Is it short?"
pass = ["Rain."]
fail = ["Well, well, well."]
`

func TestParseEvalCase(t *testing.T) {
	c, faults := ParseEvalCase("dir/weather.toml", []byte(wholeCase))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if c.ID != "weather" || len(c.Prompts) != 2 || c.Repeat != 3 || c.MinRate != 0.5 ||
		c.Wait != 2*time.Second || c.Budget != (EvalBudget{time.Minute, 4, 0}) {
		t.Errorf("got %+v, want what the file says", c)
	}
	p := c.Providers[0]
	if a := p.Tools[0].Answers; len(a) != 2 || a[0].Args == nil || a[1].Code != "NOT_FOUND" ||
		a[1].Delay != time.Second {
		t.Errorf("got the answers %+v, want one for Oslo, and NOT_FOUND after a second", a)
	}
	if len(p.Gates) != 1 || p.Gates[0].Args != "Oslo" || len(p.Pushes) != 1 ||
		p.Pushes[0].AfterCall != "get_weather" {
		t.Errorf("got the provider %+v, want its gate and its push", p)
	}
	if calls := c.Calls; calls[0].Min != 1 || calls[0].Max != -1 || calls[1].Min != 0 ||
		calls[1].Max != 0 {
		t.Errorf("got the calls %+v, want at least one, and none", calls)
	}
	if !c.NeedsJudge() || c.Observations[0].Pattern == nil || c.Prohibited[0].Pattern != nil {
		t.Errorf("got %+v and %+v, want one claim for a pattern and one for the judge",
			c.Observations, c.Prohibited)
	}
}

// Each fault has its place, and names its key.
func TestEvalCaseFaults(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"no prompt":   {`title = "x"`, "1:1: prompt: is missing"},
		"unknown key": {"prompt = 'x'\nnoise = 1", "2:1: unknown key noise: there are "},
		"unknown below": {
			"prompt = 'x'\n[expect]\n[[expect.call]]\ntool = 'a'\nif = 1",
			"5:1: unknown key expect.call[0].if",
		},
		"two prompts": {"prompt = 'x'\nprompts = ['y']", "2:1: prompts: excludes prompt"},
		"out of it": {"prompt = 'x'\n[workspace]\n'../x' = ''",
			`3:1: workspace."../x": "../x" leads out`},
		"absolute":         {"prompt = 'x'\n[workspace]\n'/etc/x' = ''", `"/etc/x" leads out`},
		"through a parent": {"prompt = 'x'\n[workspace]\n'a/../../x' = ''", "leads out"},
		"two forms":        {"prompt = 'x'\n[workspace]\n'a/./x' = ''", "is not the short form"},
		"file and dir": {
			"prompt = 'x'\n[workspace]\n'a' = ''\n'a/b' = ''",
			`"a" is a file, and a directory for "a/b"`,
		},
		"file outside": {"prompt = 'x'\n[[expect.file]]\npath = '../../etc/passwd'",
			"3:1: expect.file[0].path: "},
		"unknown file": {
			"prompt = 'x'\n[[expect.file]]\npath = 'a'\nunchanged = true",
			`"a" is no file of [workspace]`,
		},
		"pattern": {"prompt = 'x'\n[[expect.call]]\ntool = 'a'\nargs = '('",
			"4:1: expect.call[0].args: "},
		"bounds": {"prompt = 'x'\n[[expect.call]]\ntool = 'a'\nmin = 3\nmax = 2",
			"3 is more than max, 2"},
		"schema": {"prompt = 'x'\n[[provider]]\nname = 'p'\n[[provider.tool]]\nname = 'a'\ndescription = 'b'\n" +
			"parameters = '[]'", "7:1: provider[0].tool[0].parameters: "},
		"tool's name": {"prompt = 'x'\n[[provider]]\nname = 'p'\n[[provider.tool]]\nname = 'a b'\ndescription = 'b'",
			"5:1: provider[0].tool[0].name: "},
		"two answers": {"prompt = 'x'\n[[provider]]\nname = 'p'\n[[provider.tool]]\nname = 'a'\ndescription = 'b'\n" +
			"[[provider.tool.answer]]\ntext = 'a'\nerror = 'b'",
			"9:1: provider[0].tool[0].answer[0].error: excludes"},
		"twice": {
			"prompt = 'x'\n[[provider]]\nname = 'p'\n[[provider]]\nname = 'p'",
			`5:1: provider[1].name: "p" stands`,
		},
		"no such turn": {"prompt = 'x'\n[[provider]]\nname = 'p'\n[[provider.push]]\ntext = 'a'\nafter_turn = 2",
			"6:1: provider[0].push[0].after_turn: 2 never comes: the case has 1 prompt"},
		"program and tool": {"prompt = 'x'\n[[provider]]\nname = 'p'\ncommand = ['a']\n[[provider.tool]]\nname = 'b'\n" +
			"description = 'c'", "5:12: provider[0].tool: excludes command"},
		"no program": {"prompt = 'x'\n[[provider]]\nname = 'p'\ncommand = ['']",
			"must be the name of a program"},
		"judge alone": {"prompt = 'x'\n[judge]\npass = ['a']", "2:2: judge: has nothing to judge"},
		"rate":        {"prompt = 'x'\nmin_rate = 2", "2:1: min_rate: 2 is not above 0"},
		"no TOML":     {"prompt =", "is not TOML"},
	}
	for name, tt := range tests {
		c, faults := ParseEvalCase("c.toml", []byte(tt.text))
		if len(faults) != 1 || !strings.Contains(faults[0].Error(), tt.want) {
			t.Errorf("%s: got %v, want one fault with %q", name, []Fault(faults), tt.want)
		}
		if len(c.Prompts) > 0 {
			t.Errorf("%s: got the prompts %q of a wrong case, want none", name, c.Prompts)
		}
	}
}

func TestEvalVariant(t *testing.T) {
	c, faults := ParseEvalCase("weather.toml", []byte(wholeCase))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	v, faults := ParseEvalVariant(
		"short.toml",
		[]byte("prompt = 'In short: {prompt}'\n[tools]\nget_weather = 'Ask me'\n"+
			"[contexts]\nweather = 'It is summer.'"),
	)
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	got, changed := v.Apply(c)
	if !changed || got.Prompts[1] != "In short: And now?" ||
		got.Providers[0].Tools[0].Description != "Ask me" ||
		got.Providers[0].Context != "It is summer." {
		t.Errorf("got %+v (changed: %t), want the variant's texts", got, changed)
	}
	if c.Prompts[1] != "And now?" || c.Providers[0].Tools[0].Description != "Tell the weather" {
		t.Errorf("the case itself became %+v, want it as it was", c)
	}
	if _, changed := (&EvalVariant{Tools: map[string]string{"other": "x"}}).Apply(c); changed {
		t.Error("a variant of another tool changes the case, want that it changes nothing")
	}
	for text, want := range map[string]string{
		"":                    "1:1: changes nothing",
		"prompt = 'be brief'": "1:1: prompt: must have {prompt}",
		"[tools]\na = 1":      "2:1: tools.a: must be a string",
	} {
		if _, faults := ParseEvalVariant("v.toml", []byte(text)); len(faults) != 1 ||
			!strings.Contains(faults[0].Error(), want) {
			t.Errorf("%q: got %v, want one fault with %q", text, []Fault(faults), want)
		}
	}
}

func TestEvalCases(t *testing.T) {
	dir := t.TempDir()
	if _, err := EvalCases(dir); err == nil || !strings.Contains(err.Error(), "has no case") {
		t.Errorf("an empty directory: got %v, want that it has no case", err)
	}
	for name, text := range map[string]string{
		"b.toml": "prompt = 'b'", "a.toml": "prompt = 'a'", "notes.md": "#", ".hidden.toml": "x",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cases, err := EvalCases(dir)
	if err != nil || len(cases) != 2 || cases[0].ID != "a" || cases[1].ID != "b" {
		t.Errorf("got %v (%v), want the cases a and b", cases, err)
	}
	for _, name := range []string{"b.toml", "c.toml"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x = 1\nprompt = 'x'"),
			0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := EvalCases(dir); err == nil ||
		!strings.Contains(err.Error(), "b.toml:1:1: unknown key x") ||
		!strings.Contains(err.Error(), "1 more") {
		t.Errorf("two wrong files: got %v, want the faults of both", err)
	}
}

// No case, however it is written, panics, leads out of its workspace or has numbers beyond the
// bounds.
func FuzzParseEvalCase(f *testing.F) {
	f.Add(wholeCase)
	f.Add("prompt = 'x'\n[workspace]\n'a/../..' = ''\n")
	f.Add("[[provider]]\n[[provider.tool]]\n[[provider.tool.answer]]\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, faults := ParseEvalCase("c.toml", []byte(text))
		for _, fault := range faults {
			if fault.Line < 1 || fault.Column < 1 || strings.Contains(fault.Message, "\n") {
				t.Errorf("got the fault %q, want one line at a place of the text", fault.Error())
			}
		}
		if len(faults) > 0 {
			return
		}
		if len(c.Prompts) == 0 || c.Repeat < 1 || c.Repeat > 1000 {
			t.Errorf("got %d prompts and %d runs, want some", len(c.Prompts), c.Repeat)
		}
		for path := range c.Workspace {
			if !filepath.IsLocal(path) {
				t.Errorf("got the file %q, want one below the workspace", path)
			}
		}
	})
}
