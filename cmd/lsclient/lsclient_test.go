package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/langserver"
	"tapgw/tools"
)

func TestEveryCommandHasExamples(t *testing.T) {
	var walk func(path string, commands []*ucli.Command)
	walk = func(path string, commands []*ucli.Command) {
		for _, c := range commands {
			name := path + " " + c.Name
			if c.Usage == "" || !strings.Contains(c.Description, "Examples:\n") {
				t.Errorf("%s has the usage %q and the description %q, want a usage, and examples in the description",
					name, c.Usage, c.Description)
			}
			walk(name, c.Subcommands)
		}
	}
	walk("lsclient", newApp().Commands)
}

// A flag whose value is one of several, `a|b`, loses it from its text in the help: the text must read well without it.
func TestHelpReadsWell(t *testing.T) {
	for _, line := range []string{"", "agent", "chat", "orchestrate"} {
		var out bytes.Buffer
		if exit := run(append([]string{"lsclient"}, strings.Fields(line+" --help")...), nil, &out, &out); exit != 0 {
			t.Errorf("lsclient %s --help: got exit code %d, want 0", line, exit)
		}
		if gap := regexp.MustCompile(`(?m)^ +-.* (of|to|as|the) *(,|$).*`).FindString(out.String()); gap != "" {
			t.Errorf("lsclient %s --help has %q, want no text that lacks a word", line, gap)
		}
	}
}

// A drop-in replaces the built-in tool of its name, and stands behind the built-in ones else.
func TestTogether(t *testing.T) {
	mine, other := &tools.Tool{Name: "memory", Source: "memory.py"}, &tools.Tool{Name: "a", Source: "a.py"}
	all := withBuiltins([]*tools.Tool{other, mine})
	if len(all) != len(tools.All())+1 || find(all, "memory") != mine || all[len(all)-1] != other {
		t.Errorf("together they are %d tools, built in are %d; want these first, with memory.py in its place",
			len(all), len(tools.All()))
	}
}

// answering is a person who types the lines.
func answering(lines string, shown io.Writer) asker {
	return &lineAsker{in: bufio.NewReader(strings.NewReader(lines)), out: shown}
}

// Without a person, a policy allows what lsclient.toml allows and refuses the rest.
func TestConfirm(t *testing.T) {
	item := configs.LSClient{Allow: configs.AllowList{MCP: []string{"files", "web/get"},
		Outside: []string{"/tmp/ok/**"}}}
	c := &command{}
	c.config.Store(&item)
	v := &conversation{cmd: c, policy: &policy{conf: func() configs.LSClient { return item }}}
	tests := map[string]struct {
		q  langserver.Confirmation
		ok bool
	}{
		"a tool of ours decides itself": {langserver.Confirmation{Ours: true, Kind: langserver.Terminal}, true},
		"a server that is listed": {langserver.Confirmation{Kind: langserver.MCPTool, Server: "files",
			Tool: "read"}, true},
		"a tool that is listed": {langserver.Confirmation{Kind: langserver.MCPTool, Server: "web", Tool: "get"},
			true},
		"another tool of its server": {langserver.Confirmation{Kind: langserver.MCPTool, Server: "web",
			Tool: "post"}, false},
		"a path that is listed": {langserver.Confirmation{Kind: langserver.ReadFile, Path: "/tmp/ok/a"}, true},
		"a path that climbs out of it": {langserver.Confirmation{Kind: langserver.ReadFile, Path: "/tmp/ok/../a"},
			false},
		"another path": {langserver.Confirmation{Kind: langserver.EditFile, Path: "/etc/passwd"},
			false},
		"a command of the server's": {langserver.Confirmation{Kind: langserver.Terminal, Command: []string{"ls"}},
			false},
		"a kind that is not known": {langserver.Confirmation{Kind: "new", Tool: "x"}, false},
	}
	for name, tt := range tests {
		if err := v.decide(t.Context(), tt.q); (err == nil) != tt.ok {
			t.Errorf("%s: got %v, want consent: %v", name, err, tt.ok)
		}
	}
	v.policy.yes = true
	if err := v.decide(t.Context(), langserver.Confirmation{Kind: langserver.EditFile,
		Path: "/etc/passwd"}); err != nil {
		t.Errorf("editing with --yes: got %v, want no error", err)
	}
	err := v.decide(t.Context(), langserver.Confirmation{Kind: langserver.EditFile, Path: "/tmp/ok/.git/config"})
	if err == nil || !strings.Contains(err.Error(), "is protected") ||
		!strings.Contains(err.Error(), "a person must allow such a write") {
		t.Errorf("writing to a protected place with --yes: got %v, want that a person must allow it", err)
	}
	if err := v.decide(t.Context(), langserver.Confirmation{Kind: langserver.ReadFile,
		Path: "/tmp/ok/.git/config"}); err != nil {
		t.Errorf("reading in a protected place: got %v, want no error", err)
	}
	var asked strings.Builder
	v.policy.yes, v.policy.asker = false, answering("y\nn\n", &asked)
	if err := v.policy.protected(t.Context(), "/x/.git/config", "why"); err != nil ||
		!strings.Contains(asked.String(), "write /x/.git/config, which is protected: why") {
		t.Errorf(
			"a person who allows a protected write was asked %q, with the result %v; want the path and why, no error",
			asked.String(),
			err,
		)
	}
	if err := v.policy.protected(t.Context(), "/x/.git/hooks", "why"); err == nil {
		t.Error("a protected write that a person refuses: got no error, want one")
	}
}

// A person must allow each write to a protected place; the answer always is not offered.
func TestProtectedEachTime(t *testing.T) {
	var asked strings.Builder
	p := &policy{
		conf:  func() configs.LSClient { return configs.LSClient{} },
		asker: answering("a\ny\na\n", &asked),
	}
	for i, ok := range []bool{false, true, false} {
		if err := p.protected(t.Context(), "/x/.git/config", "why"); (err == nil) != ok {
			t.Errorf("question %d: got %v, want consent: %v", i, err, ok)
		}
	}
	if n := strings.Count(asked.String(), "Allow it?"); n != 3 || strings.Contains(asked.String(), "[a]lways") {
		t.Errorf("got %d questions, want 3, and none that offers always:\n%s", n, asked.String())
	}
}

// A question shows everything that the person allows.
func TestAskShowsAll(t *testing.T) {
	ask := func(answers, tool, args string) (shown string, err error) {
		var out strings.Builder
		p := &policy{conf: func() configs.LSClient { return configs.LSClient{} },
			asker: answering(answers, &out)}
		kind, source := tools.Terminal, ""
		if tool != "run_in_terminal" {
			source = tool + ".py"
		}
		err = p.tool(t.Context(), &tools.Tool{Name: tool, Kind: kind, Source: source}, json.RawMessage(args))
		return out.String(), err
	}
	command := func(c string) string {
		b, err := json.Marshal(map[string]string{"command": c})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	long := "git status " + strings.Repeat("x", 5000) + "; rm -rf MIDDLE;" + strings.Repeat("y", 5000) + "; rm -rf END"
	shown, err := ask("n\n", "run_in_terminal", command(long))
	if err == nil || !strings.Contains(shown, "git status x") || !strings.Contains(shown, "rm -rf END") ||
		strings.Contains(shown, "MIDDLE") ||
		!strings.Contains(shown, fmt.Sprintf("of %d bytes are left out", len("run: "+long))) ||
		!strings.Contains(shown, "[w]hole") {
		t.Errorf("refusing a long command: got the error %v and\n%s\nwant an error, the command's ends, "+
			"how much is left out, and the choice w", err, shown)
	}
	if shown, err = ask("w\ny\n", "run_in_terminal", command(long)); err != nil || !strings.Contains(shown, long) {
		t.Errorf("a long command after w: got the error %v and\n%s\nwant no error and the whole command", err, shown)
	}
	if shown, err = ask("y\n", "run_in_terminal", command(strings.Repeat("x", maxAsked))); err == nil || shown != "" ||
		!strings.Contains(err.Error(), "65541 bytes long") {
		t.Errorf("a command over %d bytes: got the error %v and %.100q, want its length in the error, and no question",
			maxAsked, err, shown)
	}
	shown, _ = ask("n\n", "run_in_terminal", command("ls '\x1b]'; rm x; '\a' \u202eb\nAllow it? "))
	if !strings.Contains(shown, `run: ls '\x1b]'; rm x; '\x07' \u202eb`+"\n  Allow it?") {
		t.Errorf("a command with control characters is shown as %q, want them escaped", shown)
	}
	if shown, _ = ask("n\n", "deploy", `{"stage":"production"}`); !strings.Contains(shown,
		`use the tool deploy with {"stage":"production"}`) {
		t.Errorf("the question about a drop-in is %q, want the tool's name and its arguments in it", shown)
	}
}

func TestAllowed(t *testing.T) {
	a := configs.AllowList{Terminal: []string{"a"}, Outside: []string{"/b"}, Web: []string{"c"}, Tools: []string{"d"}}
	got := allowed(configs.LSClient{Allow: a})
	if got.Terminal[0] != "a" || got.Outside[0] != "/b" || got.Web[0] != "c" || got.Tools[0] != "d" {
		t.Errorf("got %+v, want what the configuration allows: %+v", got, a)
	}
}

// Tools that are left out for the same reason share a line.
func TestLeftOut(t *testing.T) {
	got := leftOut([]langserver.Fault{{Tool: "a", Reason: "too many"}, {Tool: "x", Reason: "bad"},
		{Tool: "b", Reason: "too many"}, {Tool: "c", Reason: "too many"}, {Tool: "d", Reason: "too many"},
		{Tool: "y", Reason: "worse"}, {Tool: "z", Reason: "worse"}})
	want := []string{"tools a, b, c, d: too many", `tool "x": bad`, "tools y, z: worse"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	var many []langserver.Fault
	for i := range 12 {
		many = append(many, langserver.Fault{Tool: fmt.Sprint(i), Reason: "too many"})
	}
	if got, want := leftOut(many), "tools 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more: too many"; got[0] != want {
		t.Errorf("%q, want %q", got[0], want)
	}
}
