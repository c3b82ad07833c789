package configs

import (
	"strings"
	"testing"
)

func checkProviderFaults(t *testing.T, tests []faultTest) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, faults := ParseProvider("f.toml", []byte(tt.text))
			matchFaults(t, faults, tt.want)
		})
	}
}

func TestProviderKindFaults(t *testing.T) {
	checkProviderFaults(t, []faultTest{
		{"empty", "", []string{"1:1: kind: is missing"}},
		{
			"kind",
			`kind = "cmd"`,
			[]string{`1:1: kind: "cmd" is not one of "command", "connect", "tools", "http", "mcp"`},
		},
		{
			"command missing",
			`kind = "command"`,
			[]string{`1:1: kind: "command" needs command = ["program", "argument"]`},
		},
		{
			"command as a string",
			"kind = \"command\"\ncommand = \"node p.mjs\"",
			[]string{"2:1: command: must be an array of strings, found a string"},
		},
		{
			"command empty",
			"kind = \"command\"\ncommand = [\"\"]",
			[]string{"2:12: command[0]: must be the name of a program"},
		},
		{
			"command of a connecting one",
			"kind = \"connect\"\ncommand = [\"x\"]",
			[]string{`2:1: command: belongs to a provider of kind "command", "mcp"; this one is of kind "connect"`},
		},
		{
			"http tool of a command",
			"kind = \"command\"\ncommand = [\"x\"]\n[tools.a]\ndescription = \"d\"\nurl = \"http://h\"",
			[]string{`3:2: tools: belongs to a provider of kind "http"`},
		},
		{"tools without a directory", `kind = "tools"`,
			[]string{`1:1: kind: "tools" needs dir = "directory"`}},
		{"http without tools", `kind = "http"`,
			[]string{`1:1: kind: "http" needs a table [tools.NAME]`}},
	})
}

func TestProviderMCPFaults(t *testing.T) {
	checkProviderFaults(t, []faultTest{
		{"neither", `kind = "mcp"`,
			[]string{`1:1: kind: "mcp" needs command = ["program", "argument"], or url = `}},
		{"no words", "kind = \"mcp\"\ncommand = []", []string{`1:1: kind: "mcp" needs command = `}},
		{
			"both", "kind = \"mcp\"\ncommand = [\"x\"]\nurl = \"http://h/mcp\"",
			[]string{"3:1: url: excludes command"},
		},
		{
			"keys of the other",
			"kind = \"mcp\"\nurl = \"http://h/mcp\"\ncwd = \"d\"\nenv = { A = \"b\" }",
			[]string{"3:1: cwd: goes with command", "4:1: env: goes with command"},
		},
		{
			"headers of a program", "kind = \"mcp\"\ncommand = [\"x\"]\nheaders = { A = \"b\" }",
			[]string{"3:1: headers: goes with url"},
		},
		{
			"no URL", "kind = \"mcp\"\nurl = \"ftp://h\"\nname = \"x\"",
			[]string{
				"2:1: url: is not an http or https URL",
				`3:1: name: belongs to a provider of kind "command", "connect"`,
			},
		},
		{
			"secret in the URL",
			"kind = \"mcp\"\nurl = \"https://u:p@h/\"",
			[]string{"2:1: url: must not hold a user name"},
		},
		{
			"secret that is no variable",
			"kind = \"mcp\"\nurl = \"https://h/\"\nheaders = { A = \"${a b}\" }",
			[]string{"3:13: headers.A: ${a b} is not the name of an environment variable"},
		},
		{
			"oauth of a program", "kind = \"mcp\"\ncommand = [\"x\"]\noauth = { port = 1 }",
			[]string{"3:1: oauth: goes with url"},
		},
		{
			"oauth beside a token",
			"kind = \"mcp\"\nurl = \"https://h/\"\nheaders = { authorization = \"x\" }\n[oauth]\nscopes = [\"a\"]",
			[]string{"4:2: oauth: excludes the header Authorization"},
		},
		{
			"oauth",
			"kind = \"mcp\"\nurl = \"https://h/\"\n[oauth]\nclient_id = \"a\"\nclient_secret = \"plain\"\n" +
				"issuer = \"h\"\nscopes = [\"a b\", \"\\u001b\"]\nport = 70000\nclient = \"x\"",
			[]string{
				`5:1: oauth.client_secret: is a secret: write "${NAME}" for a variable`,
				"6:1: oauth.issuer: is not an http or https URL",
				`7:11: oauth.scopes[0]: "a b" is not a scope`,
				"7:18: oauth.scopes[1]: must have printable ASCII characters only",
				"8:1: oauth.port: 70000 is not from 0 to 65535",
				"9:1: unknown key oauth.client: there are",
			},
		},
		{
			"oauth without a client",
			"kind = \"mcp\"\nurl = \"https://h/\"\n[oauth]\nissuer = \"https://h\"\n" +
				"client_secret = \"${A}\"",
			[]string{"4:1: oauth.issuer: goes with client_id",
				"5:1: oauth.client_secret: goes with client_id"},
		},
		{
			"url of a command",
			"kind = \"command\"\ncommand = [\"x\"]\nurl = \"http://h\"\nprompts = false",
			[]string{
				`3:1: url: belongs to a provider of kind "mcp"`,
				`4:1: prompts: belongs to a provider of kind "mcp"`,
			},
		},
	})
}

func TestProviderEventFaults(t *testing.T) {
	const head = "kind = \"mcp\"\nurl = \"http://h/mcp\"\n"
	entry := func(text string) string { return head + "[[events]]\n" + text }
	checkProviderFaults(t, []faultTest{
		{"of another kind", "kind = \"connect\"\n[[events]]\nlog = \"info\"",
			[]string{`2:3: events: belongs to a provider of kind "mcp"`}},
		{"no tables", head + "events = [\"a\"]",
			[]string{"3:1: events: must be an array of tables"}},
		{"about nothing", entry("level = \"keep\""),
			[]string{"3:1: events[0].resource: is missing, or log"}},
		{"about both", entry("resource = \"a:b\"\nlog = \"info\""),
			[]string{"5:1: events[0].log: can't stand beside resource"}},
		{"keys of the other",
			entry("resource = \"a:b\"\nlogger = \"x\"\n[[events]]\nlog = \"info\"\nread = true"),
			[]string{"5:1: events[0].logger: goes with log",
				"8:1: events[1].read: goes with resource"}},
		{"words",
			entry("log = \"warn\"\nlevel = \"drop\"\nstream = \"a b\"\nevery = 1\nlogger = \"[\""),
			[]string{
				`4:1: events[0].log: "warn" is not one of "debug"`,
				`5:1: events[0].level: "drop" is not one of "keep"`,
				`6:1: events[0].stream: "a b" is not a stream's name`,
				"7:1: unknown key events[0].every: there are resource",
				`8:1: events[0].logger: "[" is not a glob`,
			}},
		{"resource", entry("resource = \"\""), []string{"4:1: events[0].resource: must be a URI"}},
		{"glob", entry("resource = \"a:*[\""),
			[]string{`4:1: events[0].resource: "a:*[" is not a glob`}},
		{"place of a pattern", entry("resource = \"a:{b,c}/{id}\""),
			[]string{"4:1: events[0].resource: has the place {id} of a pattern: write *"}},
		{"filter",
			entry(
				"log = \"info\"\nfilter = [{ match = \"(\", outcome = \"stop\" }, { match = \"b\" }]"),
			[]string{
				`events[0].filter[0].match: "(" is not a regular expression`,
				`events[0].filter[0].outcome: "stop" is not one of "keep", "surface", "inject", "drop"`,
				"events[0].filter[1].outcome: is missing: a rule is",
			}},
		{"two filters",
			entry("log = \"info\"\nfilter = [{ match = \"a\", outcome = \"drop\" }]\n[[events]]\n" +
				"log = \"debug\"\nstream = \"F\"\nfilter = [{ match = \"b\", outcome = \"drop\" }]"),
			[]string{"9:1: events[1].filter: the stream f has the filter of events[0]"}},
		{"too many", head + strings.Repeat("[[events]]\nlog = \"info\"\n", 21),
			[]string{"3:3: events: has 21 entries: at most 20"}},
	})
}

func TestProviderSessionsFaults(t *testing.T) {
	checkProviderFaults(t, []faultTest{
		{
			"sessions",
			"kind = \"connect\"\nsessions = \"some\"",
			[]string{`2:1: sessions: "some" is not one of "each", "all"`},
		},
		{
			"sessions of another type",
			"kind = \"connect\"\nsessions = 1",
			[]string{`2:1: sessions: must be "each", "all", or a filter such as`},
		},
		{
			"filter",
			"kind = \"connect\"\nsessions = { cwd = \"[\", tag = 1 }",
			[]string{
				`2:14: sessions.cwd: "[" is not a glob`,
				"2:25: unknown key sessions.tag: there are label, cwd, host",
			},
		},
		{
			"filter that matches nothing",
			"kind = \"connect\"\nsessions = { cwd = \"~/work/**\" }",
			[]string{`2:14: sessions.cwd: "~/work/**" matches no session's directory: begin with / or *`},
		},
		{"filter without a condition", "kind = \"connect\"\nsessions = {}",
			[]string{"2:1: sessions: must be"}},
	})
}

func TestProviderFaults(t *testing.T) {
	checkProviderFaults(t, []faultTest{
		{
			"prefix of a long name",
			"kind = \"http\"\nprefix = \"p_\"\n[tools." + strings.Repeat("x", 63) +
				"]\ndescription = \"d\"\nurl = \"http://h\"",
			[]string{`2:1: prefix: makes "p_xxx`},
		},
		{
			"rules",
			"kind = \"connect\"\nallow = [\"[\"]\ndeny = [\"\"]\nprefix = \"a b\"\nconcurrency = -1\ntimeout = \"2h\"",
			[]string{
				`2:10: allow[0]: "[" is not a glob of tools' names`,
				`3:9: deny[0]: "" is not a glob`,
				`4:1: prefix: "a b" is not the beginning`,
				`5:1: concurrency: -1 is not from 0 to 1000`,
				`6:1: timeout: 2h0m0s is not from 0s to 1h0m0s`,
			},
		},
		{
			"permit",
			"kind = \"tools\"\ndir = \"d\"\npermit = { tools = [\"\"], outside = [\"a\"] }",
			[]string{"permit.tools[0]: must not be empty",
				`permit.outside[0]: "a" is not a glob of absolute paths`},
		},
		{
			"environment",
			"kind = \"command\"\nenv = { A = 1, \"B C\" = \"x\", TAP_PROVIDER_TOKEN = \"x\" }\ncommand = [\"x\"]",
			[]string{
				"2:9: env.A: must be a string, found a whole number",
				`2:16: env."B C": is not the name of an environment variable`,
				"2:29: env.TAP_PROVIDER_TOKEN: is set by the gateway",
			},
		},
		{
			"grants",
			"kind = \"connect\"\ngrants = [\"gates\", \"all\"]",
			[]string{`2:20: grants[1]: "all" is not one of "transforms", "gates", "context", "questions"`},
		},
		{"unknown key", "kind = \"connect\"\nuri = 1",
			[]string{"2:1: unknown key uri: there are kind, command,"}},
		{"enabled", "kind = \"connect\"\nenabled = 1",
			[]string{"2:1: enabled: must be true or false"}},
		{"cwd", "kind = \"command\"\ncwd = \"\"\ncommand = [\"x\"]",
			[]string{"2:1: cwd: must be a directory"}},
	})
}

func TestProviderNameFault(t *testing.T) {
	_, faults := ParseProvider("-f.toml", []byte(`kind = "connect"`))
	if len(faults) != 1 || !strings.Contains(faults[0].Message, `"-f" is the provider's`) {
		t.Errorf("found %v, want one fault about the name -f", faults)
	}
}

// No file takes the place of the provider that keeps goals going, and only tap.toml that of the
// tap_* tools, if it may have tools.
func TestProviderOfTheGatewaysOwnName(t *testing.T) {
	const source = "kind = \"source\"\nprompt = \"x\"\nat = 2030-01-01T00:00:00Z"
	for _, tt := range []struct{ file, text, want string }{
		{"goals.toml", source,
			"the name goals is that of the gateway's own provider; choose another"},
		{"goals-.toml", source, "the name goals is that of the gateway's own"},
		{"x.toml", "kind = \"connect\"\nname = \"Goals\"",
			"the name goals is that of the gateway's own"},
		{"tap.toml", source, "the name tap is that of the gateway's own provider; choose another"},
		{"Tap.toml", source, "the name tap is that of the gateway's own provider; choose another"},
		{"x.toml", "kind = \"connect\"\nname = \"tap\"", "only a file tap.toml takes its place"},
		{"TAP.toml", `kind = "connect"`, "only a file tap.toml takes its place"},
		{"tap.toml", `kind = "connect"`, ""},
	} {
		_, faults := ParseProvider(tt.file, []byte(tt.text))
		if tt.want == "" && len(faults) == 0 {
			continue
		}
		if len(faults) != 1 || !strings.Contains(faults[0].Message, tt.want) {
			t.Errorf("%s: found %v, want one fault %q", tt.file, faults, tt.want)
		}
	}
}

func TestProviderFilter(t *testing.T) {
	p, faults := ParseProvider("f.toml",
		[]byte(
			"kind = \"tools\"\ndir = \"d\"\nenabled = false\n[sessions]\nlabel = \"review\"\ncwd = \"/work/*\""))
	if len(faults) > 0 {
		t.Fatalf("faults: %v, want none", faults)
	}
	if want := (Sessions{Mode: SessionsEach, Label: "review",
		CWD: "/work/*"}); p.Sessions != want || p.Enabled {
		t.Errorf("got %+v, want %+v, disabled", p, want)
	}
}
