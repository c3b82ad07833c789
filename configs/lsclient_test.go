package configs

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/adrg/xdg"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestLSClientSampleEqualsDefaults(t *testing.T) {
	got, err := LSFiles{User: "lsclient.toml"}.Load()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(DefaultLSClient(), got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the sample is not the default (-default +sample):\n%s", diff)
	}
	var keys map[string]any
	if _, err := toml.DecodeFile("lsclient.toml", &keys); err != nil {
		t.Fatal(err)
	}
	if n, want := countLeaves(keys), fields(reflect.TypeFor[LSClient]()); n != want {
		t.Errorf("the sample sets %d keys, there are %d: document every key there, want %d", n,
			want, want)
	}
}

func TestParseLSClientTakesEveryKey(t *testing.T) {
	c, faults := ParseLSClient("/etc/x/lsclient.toml", []byte(`
server = "./ls"
model = "gpt-x"
max_rounds = 3
library_docs = "docs"
tool_timeout = "30s"
[tools]
dirs = ["mine", "/abs"]
env = ["JIRA_TOKEN", "AWS_*"]
replace = ["read_file"]
[proxy]
url = "http://proxy.example:3128"
strict_ssl = false
auth_env = "PROXY_AUTH"
[github]
enterprise = "https://ghe.example"
[gateway]
use = "on"
url = "ws://127.0.0.1:1"
[conversations]
save = false
keep_days = 0
keep = 7
[allow]
terminal = ["go test *"]
outside = ["/tmp/**"]
web = ["wiki.local"]
mcp = ["files/read"]
tools = ["deploy"]
[mcp.files]
command = ["npx", "files"]
env = { A = "1" }
[mcp.far]
url = "https://far.example/mcp"
[roles.tester]
description = "tests"
instructions = "Be quick."
model = "gpt-x"
tools = ["read"]
`))
	if len(faults) > 0 {
		t.Fatalf("faults: %v, want none", faults)
	}
	want := LSClient{
		Server: "/etc/x/ls", Model: "gpt-x", MaxRounds: 3,
		LibraryDocs: "/etc/x/docs",
		ToolTimeout: 30 * time.Second,
		Tools: DropIns{
			Dirs: []string{"/etc/x/mine", "/abs"}, Env: []string{"JIRA_TOKEN", "AWS_*"},
			Replace: []string{"read_file"},
		},
		Proxy:   Proxy{URL: "http://proxy.example:3128", AuthEnv: "PROXY_AUTH"},
		GitHub:  GitHub{Enterprise: "https://ghe.example"},
		Gateway: LSGateway{Use: GatewayOn, URL: "ws://127.0.0.1:1"},
		Kept:    KeptConversations{Keep: 7},
		Allow: AllowList{
			Terminal: []string{"go test *"},
			Outside:  []string{"/tmp/**"},
			Web:      []string{"wiki.local"},
			MCP:      []string{"files/read"},
			Tools:    []string{"deploy"},
		},
		MCP: map[string]MCPServer{
			"files": {Command: []string{"npx", "files"}, Env: map[string]string{"A": "1"}},
			"far":   {URL: "https://far.example/mcp"},
		},
		Roles: map[string]Role{
			"tester": {Description: "tests", Instructions: "Be quick.", Model: "gpt-x",
				Tools: []string{"read"}},
		},
	}
	if diff := cmp.Diff(want, c); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A list of directories stands for the table that has them.
func TestToolsMayBeAList(t *testing.T) {
	home := atHome(t)
	for text, want := range map[string]string{
		`tools = ["mine"]`:               "1:1",
		"\n[tools]\n  dirs = [\"mine\"]": "3:3",
		"\ntools.dirs = [\"mine\"]":      "2:7",
		"\n\n[tools]\nenv = [\"A\"]":     "1:1",
	} {
		file := filepath.Join(home, "lsclient.toml")
		write(t, file, text)
		f := LSFiles{User: file}
		c, err := f.Load()
		if err != nil ||
			strings.Contains(text, "mine") &&
				!slices.Equal(c.Tools.Dirs, []string{filepath.Join(home, "mine")}) {
			t.Errorf("%q: got the directories %q, %v", text, c.Tools.Dirs, err)
		}
		at := f.Where("tools.dirs", "")
		if got := fmt.Sprintf("%d:%d", at.Line, at.Column); got != want {
			t.Errorf("%q: the key is at %s, want %s", text, got, want)
		}
	}
}

func TestLSClientFaults(t *testing.T) {
	tests := []struct{ text, want string }{
		{`modle = "x"`, "1:1: unknown key modle"},
		{`max_rounds = 0`, "1:1: max_rounds: 0 is not from 1 to 500"},
		{`tool_timeout = "soon"`, `1:1: tool_timeout: "soon" is not a time`},
		{`tool_timeout = 5`, `1:1: tool_timeout: must be a time such as`},
		{"[proxy]\nurl = \"http://me:secret@proxy\"", "2:1: proxy.url: must not hold a user name"},
		{"[github]\nenterprise = \"http://x\"", "2:1: github.enterprise: is not the https URL"},
		{"[gateway]\nuse = \"maybe\"", `2:1: gateway.use: "maybe" is not one of`},
		{"[conversations]\nkeep = -1", "2:1: conversations.keep: -1 is not from 0 to 100000"},
		{"[allow]\noutside = [\"tmp\"]", `allow.outside[0]: "tmp" is not a glob of absolute paths`},
		{
			"tools = [\"a\"]\ntools.replace = [\"b\"]",
			"1:1: tools: is both a list and a table: write the list as tools.dirs",
		},
		{"tools.env = [\"B\"]\ntools = []", "tools: is both a list and a table"},
		{`tools = "mine"`, "1:1: tools: must be a table, found a string"},
		{`tools = ["a", ""]`, "1:15: tools[1]: must be a directory"},
		{"[tools]\ndirs = [1]", "2:9: tools.dirs[0]: must be a string"},
		{"[tools]\nenv = [\"A\", \"sk-secret\"]",
			"2:13: tools.env[1]: is not the name of an environment variable"},
		{"[tools]\nenv = [\"*\"]", "2:8: tools.env[0]: is not the name of an environment variable"},
		{"[tools]\ndir = []", "2:1: unknown key tools.dir: there are dirs, env, replace"},
		{"[roles.x]\ntools = []", "1:8: roles.x: needs a description"},
		{"[roles.x]\ndescription = \"\"", "2:1: roles.x.description: must not be empty"},
		{"[mcp.x]\nenv = {}", "1:6: mcp.x: needs either command or url"},
		{"[mcp.x]\ncommand = [\"a\"]\nurl = \"http://x\"",
			"1:6: mcp.x: needs either command or url"},
		{"[mcp.x]\nurl = \"ftp://x\"", "2:1: mcp.x.url: is not an http or https URL"},
	}
	for _, tt := range tests {
		_, faults := ParseLSClient("lsclient.toml", []byte(tt.text))
		if len(faults) != 1 || !strings.Contains(faults[0].Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.text, faults, tt.want)
		}
	}
}

// atHome gives the test a config directory of its own and returns it.
func atHome(t *testing.T) string {
	t.Helper()
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	t.Setenv(EnvLSConfig, "")
	xdg.Reload()
	t.Cleanup(xdg.Reload)
	return filepath.Join(home, "tapgw")
}

// A project's file counts once the user trusts the directory, comes over the
// user's, and can't say what is started.
func TestFindLSClient(t *testing.T) {
	user, work := atHome(t), real(t)
	write(t, filepath.Join(user, "lsclient.toml"), "model = \"users\"\nmax_rounds = 7")
	write(t, filepath.Join(user, "tools", "a.py"), "")
	project := filepath.Join(work, ".tapgw", "lsclient.toml")
	write(t, project, `model = "projects"`)
	write(t, filepath.Join(work, "configs", "tools", "b.py"), "")

	find := func() LSFiles {
		t.Helper()
		f, err := FindLSClient(work, "")
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	f := find()
	if f.Project != "" || f.Untrusted != project ||
		!slices.Equal(f.ToolDirs, []string{filepath.Join(user, "tools")}) {
		t.Errorf(
			`an untrusted project gives %+v, want Project "", Untrusted %v and %v`,
			f, project, []string{filepath.Join(user, "tools")},
		)
	}
	if _, _, err := Trust(work); err != nil {
		t.Fatal(err)
	}
	f = find()
	if f.Project != project || f.Untrusted != "" ||
		!slices.Equal(
			f.ToolDirs,
			[]string{
				filepath.Join(work, ".tapgw", "tools"),
				filepath.Join(work, "configs", "tools"),
				filepath.Join(user, "tools"),
			},
		) {
		t.Errorf(
			`a trusted project gives %+v, want Project %v, Untrusted "" and %v`,
			f, project,
			[]string{
				filepath.Join(work, ".tapgw", "tools"), filepath.Join(work, "configs", "tools"),
				filepath.Join(user, "tools"),
			},
		)
	}
	c, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	if c.Model != "projects" || c.MaxRounds != 7 || !slices.Equal(c.Tools.Dirs, f.ToolDirs) {
		t.Errorf(`the files together give %+v, want Model "projects", MaxRounds 7 and %v`, c,
			f.ToolDirs)
	}
	write(t, project, `server = "./evil"`)
	if c, err := f.Load(); err != nil || c.Model != "users" || c.Server != "" {
		t.Errorf(
			`changed since it was trusted: %+v, %v, want no error, Model "users" and Server ""`, c,
			err)
	}
	if f := find(); f.Project != "" || f.Untrusted != project || f.Why == nil ||
		!strings.Contains(f.Why.Error(),
			".tapgw/lsclient.toml has changed since you trusted it: run tapgw trust ") {
		t.Errorf("changed since it was trusted: %+v", f)
	}
	if _, _, err := Trust(work); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Load(); err == nil ||
		!strings.Contains(err.Error(), "1:1: server: a project's file can't set it") {
		t.Errorf(
			`a project's server gave %v, want an error and "1:1: server: a project's file can't set it" in it`,
			err,
		)
	}
	named, err := FindLSClient(work, project)
	if err != nil || named.User != project || named.Project != "" {
		t.Errorf(`a named file gives %+v, %v, want no error, User %v and Project ""`, named, err,
			project)
	}
	if _, err := FindLSClient(work, "missing.toml"); err == nil {
		t.Error("FindLSClient of a missing file: no error, want one")
	}
}

func TestTrust(t *testing.T) {
	atHome(t)
	work := t.TempDir()
	below, link := filepath.Join(work, "below"), filepath.Join(t.TempDir(), "link")
	if err := os.Mkdir(below, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(below, link); err != nil {
		t.Fatal(err)
	}
	is := func(dir string, want bool) {
		t.Helper()
		if got, err := Trusted(dir); err != nil || got != want {
			t.Errorf("Trusted(%s) = %v, %v, want %v", dir, got, err, want)
		}
	}
	is(below, false)
	for range 2 {
		if _, _, err := Trust(link); err != nil {
			t.Fatal(err)
		}
	}
	is(below, true)
	is(link, true)
	is(work, false)
	if projects, err := TrustedProjects(); err != nil || len(projects) != 1 {
		t.Errorf("trusted are %v, %v, want one", projects, err)
	}
	if _, _, err := Trust(work); err != nil {
		t.Fatal(err)
	}
	if was, err := Untrust(below); err != nil || !was {
		t.Errorf("Untrust gave %v, %v, want true", was, err)
	}
	is(below, true) // by the directory above
	if was, err := Untrust(work); err != nil || !was {
		t.Errorf("Untrust gave %v, %v, want true", was, err)
	}
	is(below, false)
	if was, err := Untrust(work); err != nil || was {
		t.Errorf("Untrust of what is not trusted gave %v, %v, want false", was, err)
	}
	if _, _, err := Trust("/"); err == nil {
		t.Error("Trust(/): no error, want one")
	}
	if _, _, err := Trust(filepath.Join(work, "missing")); err == nil {
		t.Error("Trust of a missing directory: no error, want one")
	}
}
