package configs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHooks(t *testing.T) {
	const text = `
[[hooks]]
on = "pre_tool_use"
match = "shell"
command = ["./no-push.sh", "--strict"]
timeout = "2s"
fail = "open"

[[hooks]]
on = "session_end"
url = "http://127.0.0.1:1/hook"
timeout = "1m"

[copilot]
max_rounds = 3
`
	dir := t.TempDir()
	c, faults := Parse(filepath.Join(dir, "tapgw.toml"), []byte(text))
	if len(faults) > 0 {
		t.Fatalf("faults: %v, want none", faults)
	}
	want := []Hook{
		{
			On:       HookPreToolUse,
			Match:    "shell",
			Command:  []string{filepath.Join(dir, "no-push.sh"), "--strict"},
			Dir:      dir,
			Timeout:  2 * time.Second,
			FailOpen: true,
		},
		{On: HookSessionEnd, URL: "http://127.0.0.1:1/hook", Dir: dir, Timeout: time.Minute},
	}
	if diff := cmp.Diff(want, c.Hooks); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if c.Copilot.MaxRounds != 3 {
		t.Errorf("what follows the hooks was lost: %d, want 3", c.Copilot.MaxRounds)
	}
}

func TestHookFaults(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"[[hooks]]\ncommand = [\"x\"]\n", `t:1:1: hooks[0].on: is required`},
		{"[[hooks]]\non = \"pre_tool\"\ncommand = [\"x\"]\n",
			`t:2:1: hooks[0].on: "pre_tool" is not one of`},
		{"[[hooks]]\non = \"error\"\n", `t:1:1: hooks[0].command: is required, or url`},
		{"[[hooks]]\non = \"error\"\ncommand = []\n",
			`t:3:1: hooks[0].command: is required, or url`},
		{"[[hooks]]\non = \"error\"\ncommand = [\"\"]\n", `t:3:12: hooks[0].command[0]: is empty`},
		{"[[hooks]]\non = \"error\"\ncommand = [\"x\"]\nurl = \"http://h/\"\n",
			`t:4:1: hooks[0].url: can't stand beside command`},
		{"[[hooks]]\non = \"error\"\nurl = \"ftp://h/\"\n",
			`t:3:1: hooks[0].url: is not an http or https URL`},
		{"[[hooks]]\non = \"error\"\nurl = \"http://me:secret@h/\"\n",
			`t:3:1: hooks[0].url: must not hold a user name or password`},
		{"[[hooks]]\non = \"error\"\ncommand = [\"x\"]\nmatch = \"shell\"\n",
			`t:4:1: hooks[0].match: is for pre_tool_use and post_tool_use`},
		{"[[hooks]]\non = \"post_tool_use\"\ncommand = [\"x\"]\nfail = \"open\"\n",
			`t:4:1: hooks[0].fail: is for pre_tool_use`},
		{"[[hooks]]\non = \"pre_tool_use\"\ncommand = [\"x\"]\ntimeout = \"6s\"\n",
			`t:4:1: hooks[0].timeout: 6s is more than 5s`},
		{"[[hooks]]\non = \"pre_tool_use\"\ncommand = [\"x\"]\nfail = \"ajar\"\n",
			`t:4:1: hooks[0].fail: "ajar" is not one of`},
		{"[[hooks]]\non = \"error\"\ncommand = [\"x\"]\n[[hooks]]\non = \"error\"\ncommand = [\"x\"]\nshell = true\n", `t:7:1: unknown key hooks[1].shell`},
		{"[hooks]\non = \"error\"\n",
			`t:1:2: hooks: must be an array of tables, each [[hooks]], found a table`},
		{"hooks = 1\n", `t:1:1: hooks: must be an array of tables`},
		{"hooks = [1]\n", `t:1:1: hooks: must be an array of tables`},
		{"hooks = [{ on = \"error\", command = [\"x\"], what = 1 }]\n",
			`t:1:43: unknown key hooks[0].what`},
	} {
		_, faults := Parse("t", []byte(tt.text))
		if len(faults) == 0 || !strings.HasPrefix(faults[0].Error(), tt.want) {
			t.Errorf("%s\nsays %v\nwant %s", tt.text, faults, tt.want)
		}
	}
}

// A project's file never says what runs on the user's machine.
func TestProjectHasNoHooks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tapgw.toml")
	if err := os.WriteFile(file, []byte("[[hooks]]\non = \"error\"\ncommand = [\"x\"]\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	_, err := withProject("", file)
	if err == nil ||
		!strings.Contains(err.Error(), "tapgw.toml:1:3: hooks: a project's file can't set it") {
		t.Errorf(
			"a project's hooks: %v, want an error and %q in it",
			err, "tapgw.toml:1:3: hooks: a project's file can't set it",
		)
	}
}

func TestChangedHooks(t *testing.T) {
	a, b := Default(), Default()
	b.Hooks = []Hook{{On: HookError, Command: []string{"x"}}}
	if got := Changed(a, b); !cmp.Equal(got, []string{"hooks"}) {
		t.Errorf("changed: %v, want hooks", got)
	}
}
