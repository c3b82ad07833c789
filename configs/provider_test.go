package configs

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestProviderSamples(t *testing.T) {
	want := map[string]Provider{
		"hello": {
			Kind: KindCommand, Command: []string{"go", "run", "./providers/templates/hello"},
			CWD: ".",
			Env: map[string]string{"LOG": "1"}, Sessions: Sessions{Mode: SessionsEach},
			Enabled: true,
		},
		"weather": {
			Kind: KindHTTP, CWD: ".", Sessions: Sessions{Mode: SessionsAll}, Enabled: true,
			HTTP: []HTTPTool{{
				Name: "forecast", Description: "The weather of the coming days at a place",
				Method: "POST",
				URL: Template{
					{Text: "https://weather.example/v1/"},
					{Arg: "place"},
					{Text: "/forecast?days="},
					{Arg: "days"},
				},
				Headers: map[string]string{"Authorization": "Bearer ${WEATHER_KEY}"},
				Body:    `{"units": "{units}", "days": "{days}"}`, Timeout: 10 * time.Second,
				Result: "/forecast",
				Args: []HTTPArg{
					{Name: "days", Type: "integer"},
					{Name: "place", Type: "string", Description: "a town", Required: true},
					{Name: "units", Type: "string", Enum: []string{"metric", "imperial"}},
				},
			}},
		},
		"mcp-files": {
			Kind: KindMCP, CWD: ".", Sessions: Sessions{Mode: SessionsEach}, Enabled: true,
			Command: []string{"npx", "-y", "@modelcontextprotocol/server-filesystem"},
			MCP:     MCPUpstream{Resources: true, Prompts: true}, Rules: ToolRules{Prefix: "fs_"},
		},
		"mcp-remote": {
			Kind: KindMCP, CWD: ".", Sessions: Sessions{Mode: SessionsAll}, Enabled: true,
			MCP: MCPUpstream{
				URL:       "https://tools.example/mcp",
				Headers:   map[string]string{"Authorization": "Bearer ${TOOLS_TOKEN}"},
				Resources: true, Prompts: true,
				Events: []MCPEvent{
					{Resource: "tickets://open/*", Read: true, Stream: "tickets", Level: "inject"},
					{Log: "error", Level: "surface"},
				},
			},
			Rules: ToolRules{Allow: []string{"search_*", "get_*"}},
		},
		"mytools": {Kind: KindTools, CWD: ".", Dir: "mytools",
			Sessions: Sessions{Mode: SessionsAll}, Enabled: true},
		"ci-review": {
			Kind: KindCommand, CWD: ".", Sessions: Sessions{Mode: SessionsEach}, Enabled: true,
			Command: []string{"go", "run", "./providers/templates/ci-review"},
			Env:     map[string]string{"GITHUB_TOKEN": "${GITHUB_TOKEN}"},
		},
		"guard": {
			Kind: KindCommand, CWD: ".", Sessions: Sessions{Mode: SessionsEach}, Enabled: true,
			Command: []string{"go", "run", "./providers/templates/guard", "-file",
				"/home/me/.ci-status"},
			Required: true,
		},
		"jira-github": {
			Kind: KindCommand, CWD: ".", Sessions: Sessions{Mode: SessionsEach}, Enabled: true,
			Command: []string{"node", "providers/templates/jira-github/main.mjs", "--source",
				"github", "--repo", "OWNER/NAME", "--label", "agent", "--allow", "comment,status"},
			Env: map[string]string{"GITHUB_TOKEN": "${GITHUB_TOKEN}"},
		},
		"git-watch": {
			Kind: KindCommand, CWD: ".", Sessions: Sessions{Mode: SessionsEach}, Enabled: true,
			Command: []string{"python3", "-B", "providers/templates/git-watch/git_watch.py"},
			Env:     map[string]string{"PYTHONPATH": "providers/python"},
		},
		"browser": {
			Kind: KindCommand, CWD: ".", Sessions: Sessions{Mode: SessionsAll}, Enabled: true,
			Command: []string{"node", "providers/templates/browser/browser.mjs"},
			Env:     map[string]string{"BROWSER_PORT": "9402", "BROWSER_ALLOW": ""},
		},
		"chat": {
			Kind: KindCommand, CWD: ".", Sessions: Sessions{Mode: SessionsAll}, Enabled: true,
			Command: []string{"node", "providers/templates/chat/chat.mjs"},
			Grants:  []string{"questions"},
			Env: map[string]string{"CHAT_SERVICE": "telegram", "CHAT_USERS": "123456789",
				"CHAT_CHATS":         "",
				"TELEGRAM_BOT_TOKEN": "${TELEGRAM_BOT_TOKEN}"},
		},
		"sast-triage": {
			Kind: KindCommand, CWD: ".", Sessions: Sessions{Mode: SessionsAll}, Enabled: true,
			Command: []string{"python3", "providers/templates/sast-triage/sast_triage.py"},
			Env: map[string]string{"PYTHONPATH": "providers/python", "SAST_FILES": "**/*.sarif",
				"SAST_INJECT": "high", "SAST_SURFACE": "medium"},
		},
		"editor": {
			Kind: KindConnect, CWD: ".", Sessions: Sessions{Mode: SessionsAll}, Enabled: true,
			Grants: []string{"context"},
		},
	}
	maps.Copy(want, sourceSamples())
	samples, err := filepath.Glob("providers/*.sample")
	if err != nil || len(samples) != len(want) {
		t.Errorf("samples %v, %v, want no error and %v of them", samples, err, len(want))
	}
	for _, file := range samples {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		p, faults := ParseProvider(strings.TrimSuffix(file, ".sample"), data)
		if len(faults) > 0 {
			t.Errorf("%s: %v, want none", file, faults)
			continue
		}
		expected := want[p.Name]
		expected.Name, expected.File = p.Name, p.File
		if diff := cmp.Diff(expected, p, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", file, diff)
		}
	}
}

func TestHTTPFaults(t *testing.T) {
	const head = "kind = \"http\"\n[tools.t]\ndescription = \"d\"\n"
	tests := []struct {
		name, text string
		want       []string
	}{
		{
			"nothing of it",
			"kind = \"http\"\n[tools.t]",
			[]string{"2:8: tools.t.description: is missing", "2:8: tools.t.url: is missing"},
		},
		{
			"tool's name",
			"kind = \"http\"\n[tools.\"a b\"]\ndescription = \"d\"\nurl = \"http://h\"",
			[]string{`tools."a b": is not a tool's name`},
		},
		{"no tool", "kind = \"http\"\ntools = {}", []string{"2:1: tools: has 0 tools"}},
		{"no URL", head + `url = "h/x"`, []string{"4:1: tools.t.url: is not an http or https URL"}},
		{"another scheme", head + `url = "file:///etc/passwd"`,
			[]string{"is not an http or https URL"}},
		{"password", head + `url = "http://u:secret@h/"`,
			[]string{"must not hold a user name or password"}},
		{"fragment", head + `url = "http://h/#x"`, []string{"nothing behind a #"}},
		{"argument as host", head + "url = \"http://{a}/\"\nargs.a = {}",
			[]string{"must name its host"}},
		{"argument in the host", head + "url = \"http://h{a}?x\"\nargs.a = {}",
			[]string{"must name its host"}},
		{
			"argument as port",
			head + "url = \"http://h:1{a}\"\nargs.a = {}",
			[]string{"4:1: tools.t.url: is not an http"},
		},
		{"argument as scheme", head + "url = \"http{a}://h/\"\nargs.a = {}",
			[]string{"4:1: tools.t.url:"}},
		{"brace", head + `url = "http://h/{a"`, []string{"has a { that is neither"}},
		{"unknown argument", head + `url = "http://h/{a}"`,
			[]string{"4:1: tools.t.url: {a} is no argument"}},
		{
			"optional in the path",
			head + "url = \"http://h/{a}\"\nargs.a = { required = false }",
			[]string{"{a} stands in the path and may be left out"},
		},
		{
			"unused argument",
			head + "url = \"http://h/\"\nargs.a = {}",
			[]string{"5:6: tools.t.args.a: is in neither url nor body"},
		},
		{
			"argument's keys",
			head + "url = \"http://h/?a={a}\"\nargs.a = { type = \"list\", enum = [1], x = 1 }",
			[]string{
				`"list" is not one of "string", "integer"`, "enum[0]: must be a string",
				"unknown key tools.t.args.a.x",
			},
		},
		{
			"enum of a number",
			head + "url = \"http://h/?a={a}\"\nargs.a = { type = \"number\", enum = [\"1\"] }",
			[]string{"enum: is for strings"},
		},
		{
			"argument's name",
			head + "url = \"http://h/\"\nargs.\"1\" = {}",
			[]string{`is not an argument's name`, "is in neither"},
		},
		{
			"headers",
			head +
				"url = \"http://h/\"\nheaders = { Host = \"x\", \"a b\" = \"x\", C = \"${1}\", D = \"a\\nb\" }",
			[]string{
				"tools.t.headers.Host: is not a header that can be set",
				`tools.t.headers."a b": is not a header`, "tools.t.headers.C: ${1} is not the name",
				"tools.t.headers.D: must be one line",
			},
		},
		{"body", head + "url = \"http://h/\"\nbody = '{'",
			[]string{"5:1: tools.t.body: is not JSON"}},
		{
			"argument of the body",
			head + "url = \"http://h/\"\nbody = '[\"{x}\"]'",
			[]string{"5:1: tools.t.body: {x} is no argument"},
		},
		{"brace in the body", head + "url = \"http://h/\"\nbody = '[\"{\"]'",
			[]string{"has a { that is neither"}},
		{
			"body of a GET",
			head + "url = \"http://h/\"\nbody = '[]'\nmethod = \"GET\"",
			[]string{"5:1: tools.t.body: a GET request has none"},
		},
		{"method", head + "url = \"http://h/\"\nmethod = \"get\"",
			[]string{`"get" is not one of "GET"`}},
		{"timeout", head + "url = \"http://h/\"\ntimeout = 1",
			[]string{`must be a time such as "30s"`}},
		{"result", head + "url = \"http://h/\"\nresult = \"a.b\"",
			[]string{"is neither \"text\" nor"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, faults := ParseProvider("f.toml", []byte(tt.text))
			matchFaults(t, faults, tt.want)
			if strings.Contains(lines(faults), "secret") {
				t.Errorf(`the fault repeats a secret: %v, want no "secret" in it`, faults)
			}
		})
	}
}

func TestParseTemplate(t *testing.T) {
	for _, tt := range []struct {
		text string
		want Template
	}{
		{"", nil},
		{"a{b}c", Template{{Text: "a"}, {Arg: "b"}, {Text: "c"}}},
		{"{{{b}}}{{c}}", Template{{Text: "{"}, {Arg: "b"}, {Text: "}{c}"}}},
	} {
		got, err := ParseTemplate(tt.text)
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%q: %v\n%s", tt.text, err, diff)
		}
	}
	for _, text := range []string{"{", "}", "{a", "{a b}", "{}", "{1}", "{{a}"} {
		if got, err := ParseTemplate(text); err == nil {
			t.Errorf("%q: took it as %v, want an error", text, got)
		}
	}
}

func TestSessionsMatch(t *testing.T) {
	for _, tt := range []struct {
		s    Sessions
		want bool
	}{
		{Sessions{}, true},
		{Sessions{Label: "l", CWD: "/w/*", Host: "local"}, true},
		{Sessions{Label: "L"}, false},
		{Sessions{CWD: "/w/**"}, true},
		{Sessions{CWD: "/w"}, false},
		{Sessions{Host: "copilot"}, false},
	} {
		if got := tt.s.Match("l", "/w/d", "local"); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt.s, got, tt.want)
		}
	}
}

// TestProviderVariables: a program's variable may name one of the gateway's, and one that is not
// set is named.
func TestProviderVariables(t *testing.T) {
	t.Setenv("SECRET", "s3cret")
	env := map[string]string{"TOKEN": "Bot ${SECRET}", "PLAIN": "$SECRET"}
	want := map[string]string{"TOKEN": "Bot s3cret", "PLAIN": "$SECRET"}
	if got, err := (&Provider{Env: env}).Variables(); err != nil || !maps.Equal(got, want) {
		t.Errorf("the variables %v become %v (%v), want %v and no error", env, got, err, want)
	}
	const missing = "env.TOKEN needs the variable NOT_SET, which the gateway's environment does not have"
	bad := Provider{Env: map[string]string{"TOKEN": "${NOT_SET}"}}
	if _, err := bad.Variables(); err == nil || err.Error() != missing {
		t.Errorf("a variable that is not set: %v, want %q", err, missing)
	}
}
