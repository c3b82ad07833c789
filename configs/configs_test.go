package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/adrg/xdg"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The file in the repository is found by whoever runs tapgw in it, so it must
// change nothing, and it documents every key with its default.
// A fault names its file in one line, whatever the file is called.
func TestFaultIsOneLine(t *testing.T) {
	f := Fault{File: "/src/a\n/etc/x:1:1: fine\x1b[2K/tapgw.toml", Line: 2, Column: 3, Message: "no"}
	if got, want := f.Error(), `/src/a\n/etc/x:1:1: fine\x1b[2K/tapgw.toml:2:3: no`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestSampleEqualsDefaults(t *testing.T) {
	got, err := Files{User: "tapgw.toml"}.Load()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("the sample is not the default (-default +sample):\n%s", diff)
	}
	var keys map[string]any
	if _, err := toml.DecodeFile("tapgw.toml", &keys); err != nil {
		t.Fatal(err)
	}
	if n, want := leaves(keys), fields(reflect.TypeFor[Config]()); n != want {
		t.Errorf("the sample sets %d keys, there are %d: document every key there", n, want)
	}
}

func fields(t reflect.Type) (n int) {
	for f := range t.Fields() {
		switch f.Type.Kind() {
		case reflect.Struct:
			n += fields(f.Type)
		case reflect.Map: // names are the user's own: the sample shows them as comments
		case reflect.Slice:
			if f.Type.Elem().Kind() != reflect.Struct { // so it does with [[hooks]]
				n++
			}
		default:
			n++
		}
	}
	return n
}

func leaves(table map[string]any) (n int) {
	for _, v := range table {
		if sub, ok := v.(map[string]any); ok {
			n += leaves(sub)
		} else {
			n++
		}
	}
	return n
}

func TestParseTakesEveryKey(t *testing.T) {
	got, faults := Parse("x.toml", []byte(`
listen = "0.0.0.0:1"
insecure = true
tls_cert = "c.pem"
tls_key = "k.pem"
hosts = ["gateway.example", "10.0.0.1"]
log_level = "debug"
max_connections = 7
inject_quiet = "1h"
api.auth = "token"
copilot.cli = "./copilot"
copilot.provider_url = "http://127.0.0.1:1/v1"
copilot.provider_key_env = "MY_KEY"
copilot.models = ["a", "b/c"]
copilot.max_rounds = 3
copilot.max_turn_time = "90s"
copilot.ask_user = false
copilot.answer_timeout = "1m"
[copilot.permissions]
allow_commands = ["git log", "make *-short"]
deny_commands = ["rm"]
allow_read_paths = ["/usr/include/**"]
allow_write_paths = ["src/**"]
deny_paths = ["**/.env"]
allow_urls = ["*.docs.example", "https://api.example:8443/v1"]
deny_urls = ["evil.docs.example"]
shell = "ask"
write = "allow"
read = "allow"
url = "allow"
mcp = "allow"
custom-tool = "deny"
memory = "allow"
hook = "allow"
`))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	profile := DefaultProfile()
	profile.Provider.URL, profile.Provider.KeyEnv, profile.Provider.Models = "http://127.0.0.1:1/v1", "MY_KEY", []string{
		"a",
		"b/c",
	}
	want := Config{
		Listen: "0.0.0.0:1", Insecure: true, TLSCert: "c.pem", TLSKey: "k.pem",
		Hosts: []string{
			"gateway.example",
			"10.0.0.1",
		}, LogLevel: "debug", MaxConnections: 7, InjectQuiet: time.Hour, API: API{Auth: "token"},
		Copilot: Copilot{
			CLI: "./copilot", ProviderURL: "http://127.0.0.1:1/v1", ProviderKeyEnv: "MY_KEY",
			Models: []string{"a", "b/c"}, MaxRounds: 3, Profile: profile,
			MaxTurnTime: 90 * time.Second, AnswerTimeout: time.Minute,
			Permissions: Permissions{
				Shell: "ask", Write: "allow", Read: "allow", URL: "allow", MCP: "allow", CustomTool: "deny", Memory: "allow", Hook: "allow",
				AllowCommands: []string{"git log", "make *-short"}, DenyCommands: []string{"rm"},
				AllowReadPaths: []string{
					"/usr/include/**",
				}, AllowWritePaths: []string{"src/**"}, DenyPaths: []string{"**/.env"},
				AllowURLs: []string{
					"*.docs.example",
					"https://api.example:8443/v1",
				}, DenyURLs: []string{"evil.docs.example"},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The default of each kind is the strictest one that leaves a session of use, and only the empty kinds get theirs.
func TestPermissionsWithDefaults(t *testing.T) {
	want := Permissions{
		Shell: Deny, Write: Deny, Read: CWD, URL: Deny, MCP: Deny, CustomTool: Allow, Memory: Deny, Hook: Deny,
	}
	if diff := cmp.Diff(want, Permissions{}.WithDefaults()); diff != "" {
		t.Errorf("the defaults, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(want, Default().Copilot.Permissions); diff != "" {
		t.Errorf("the permissions of a config without a file, -want +got:\n%s", diff)
	}
	want.Shell, want.CustomTool, want.DenyPaths = Ask, Deny, []string{"**"}
	if diff := cmp.Diff(want, Permissions{Shell: Ask, CustomTool: Deny, DenyPaths: []string{"**"}}.WithDefaults()); diff != "" {
		t.Errorf("set kinds, -want +got:\n%s", diff)
	}
}

// Each fault is told as line:column: message, in order.
func TestFaults(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string // parts of the faults, in order
	}{
		{
			"unknown key",
			"listen = \"127.0.0.1:1\"\nlissten = 1\n",
			[]string{"2:1: unknown key lissten: there are listen, insecure,"},
		},
		{"unknown key in a table", "[api]\n  user = 1", []string{"2:3: unknown key api.user: there are auth"}},
		{"unknown table", "[copilott]\ncli = 1", []string{"1:2: unknown key copilott"}},
		{"permission patterns", `[copilot.permissions]
shell = "maybe"
allow_commands = ["", "a; b", "rm"]
allow_read_paths = ["src/[", "../x/**"]
allow_urls = ["ftp://a", "a b", "https://u@a", "a.*.b", "a?x"]
copilot.x = 1`, []string{
			`2:1: copilot.permissions.shell: "maybe" is not one of "allow", "deny", "ask"`,
			`allow_commands[0]: "" is not the words`, `allow_commands[1]: "a; b" is not the words`,
			`allow_read_paths[0]: "src/[" is not a glob`, `allow_read_paths[1]: "../x/**": .. leads out`,
			`allow_urls[0]: "ftp://a": the scheme`, `allow_urls[1]: "a b" is not`, `allow_urls[2]: must hold neither`, `allow_urls[3]: "a.*.b" is not`, `allow_urls[4]: must hold neither`,
			"6:1: unknown key copilot.permissions.copilot",
		}},
		{
			"times of a turn",
			"copilot.max_turn_time = \"0s\"\ncopilot.answer_timeout = 5\ncopilot.ask_user = \"yes\"",
			[]string{
				"1:9: copilot.max_turn_time: 0s is not from 1s to 168h0m0s", "2:9: copilot.answer_timeout: must be a time", "3:9: copilot.ask_user: must be true or false",
			},
		},
		{"unknown quoted key", "\"é b\".c = 1", []string{`1:1: unknown key "é b"`}},
		{"key in the wrong case", "Listen = \"127.0.0.1:1\"", []string{"1:1: unknown key Listen"}},
		{"column in letters", "copilot = { \"cli\" = \"é\", x = 1 }", []string{"1:26: unknown key copilot.x"}},
		{"wrong types", `
listen = 9400
insecure = "yes"
hosts = "a"
log_level = ["info"]
api = 1
[copilot]
models = [1, "a", [ ] ]
max_rounds = 1.5
permissions = [{}]
`, []string{
			"2:1: listen: must be a string, found a whole number",
			"3:1: insecure: must be true or false, found a string",
			"4:1: hosts: must be an array of strings, found a string",
			"5:1: log_level: must be a string, found an array",
			"6:1: api: must be a table, found a whole number",
			"8:11: copilot.models[0]: must be a string, found a whole number",
			"8:19: copilot.models[2]: must be a string, found an array",
			"9:1: copilot.max_rounds: must be a whole number, found a number",
			"10:1: copilot.permissions: must be a table, found an array",
		}},
		{"date", "listen = 2020-01-01", []string{"found a date or time"}},
		{"array of tables", "[[api]]\nauth = 'token'", []string{"1:3: api: must be a table, found an array of tables"}},
		{
			"listen without port",
			`listen = "127.0.0.1"`,
			[]string{`1:1: listen: "127.0.0.1" is not host:port, such as "127.0.0.1:9400"`},
		},
		{"port too large", `listen = "127.0.0.1:65536"`, []string{"the port is not a number from 0 to 65535"}},
		{"port with a sign", `listen = "127.0.0.1:+1"`, []string{"the port is not a number"}},
		{"no such host name", `listen = "a b:1"`, []string{`"a b" is neither an IP address nor a host name`}},
		{
			"listen to all",
			`listen = ":9400"`,
			[]string{"can be reached from other machines: set tls_cert and tls_key, or insecure = true"},
		},
		{"listen beyond loopback", `listen = "192.168.1.1:9400"`, []string{"can be reached from other machines"}},
		{"looks like loopback", `listen = "127.attacker.example:9400"`, []string{"can be reached from other machines"}},
		{
			"API without auth beyond loopback",
			"listen = \"0.0.0.0:1\"\ninsecure = true\napi.auth = \"none\"",
			[]string{
				`1:1: listen: "0.0.0.0:1" can be reached from other machines: api.auth = "none" is for loopback only`,
			},
		},
		{"certificate without key", `tls_cert = "a.pem"`, []string{"1:1: tls_cert: needs tls_key beside it"}},
		{"key without certificate", `tls_key = "a.pem"`, []string{"1:1: tls_key: needs tls_cert beside it"}},
		{"host with scheme", `hosts = ["a", "http://b"]`, []string{`1:15: hosts[1]: "http://b" is not a host name`}},
		{"host twice", `hosts = ["a", "a"]`, []string{`hosts[1]: "a" stands there twice`}},
		{"log level", `log_level = "loud"`, []string{`"loud" is not one of "debug", "info", "warn", "error"`}},
		{"auth", `api.auth = "no"`, []string{`1:5: api.auth: "no" is not one of "token", "none"`}},
		{
			"provider URL",
			`copilot.provider_url = "models.example/v1"`,
			[]string{"copilot.provider_url: is not an http or https URL"},
		},
		{
			"provider URL with a password",
			`copilot.provider_url = "http://u:secret@h/"`,
			[]string{"must not hold a user name or password"},
		},
		{"provider URL with a query", `copilot.provider_url = "http://h/?key=1"`, []string{"nothing behind a ?"}},
		{
			"key in place of its name",
			`copilot.provider_key_env = "sk-secret"`,
			[]string{"is not the name of an environment variable"},
		},
		{"model", `copilot.models = ["a b"]`, []string{`"a b" is not a model's id`}},
		{"rounds", `copilot.max_rounds = 0`, []string{"copilot.max_rounds: 0 is not from 1 to 10000"}},
		{
			"permission",
			"[copilot.permissions]\nshell = \"cwd\"\ncustom-tool = \"cwd\"",
			[]string{
				`2:1: copilot.permissions.shell: "cwd" is not one of "allow", "deny", "ask"`,
				`3:1: copilot.permissions.custom-tool: "cwd"`,
			},
		},
		{"not TOML", "listen = \n", []string{"1:10: is not TOML: expected value but found"}},
		{
			"key twice",
			"listen = \"127.0.0.1:1\"\nlisten = \"127.0.0.1:2\"",
			[]string{"2:1: is not TOML: key 'listen' has already been defined"},
		},
		{
			"table not closed",
			"\n[api",
			[]string{"2:4: is not TOML: expected '.' or ']' to end table name, but got the end of the file instead"},
		},
		{"not UTF-8", "# \xff\n", []string{"1:3: is not UTF-8 text"}},
		{"nested too deep", "hosts = " + strings.Repeat("[", 1000), []string{"nested more than 64 deep"}},
		{"too large", "#" + strings.Repeat("x", maxFile), []string{"is larger than"}},
		{"after a byte order mark", "\ufeffx = 1", []string{"1:1: unknown key x"}},
		{"with carriage returns", "insecure = false\r\nx = 1\r\n", []string{"2:1: unknown key x"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, faults := Parse("f.toml", []byte(tt.text))
			match(t, faults, tt.want)
			if diff := cmp.Diff(Config{}, c); diff != "" {
				t.Errorf("a file with faults gave a configuration:\n%s", diff)
			}
			if strings.Contains(faults.Error(), "secret") {
				t.Errorf("the fault repeats a secret: %v", faults)
			}
		})
	}
}

func match(t *testing.T, faults Faults, want []string) {
	t.Helper()
	ok := len(faults) == len(want)
	for i := range min(len(faults), len(want)) {
		ok = ok && strings.HasPrefix(faults[i].Error(), "f.toml:") &&
			strings.Contains(strings.TrimPrefix(faults[i].Error(), "f.toml:"), want[i])
	}
	if !ok {
		t.Errorf("found:\n%s\nwant:\n%s", lines(faults), strings.Join(want, "\n"))
	}
}

func lines(faults Faults) string {
	var b strings.Builder
	for _, f := range faults {
		fmt.Fprintln(&b, f.Error())
	}
	return b.String()
}

func TestProviderFaults(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
	}{
		{"empty", "", []string{"1:1: kind: is missing"}},
		{"kind", `kind = "cmd"`, []string{`1:1: kind: "cmd" is not one of "command", "connect", "tools", "http"`}},
		{
			"kind of another version",
			"kind = \"mcp\"\ncommand = [\"x\"]",
			[]string{
				`1:1: kind: this version runs no MCP servers: "mcp" is not one of "command", "connect", "tools", "http"`,
			},
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
			[]string{`2:1: command: belongs to a provider of kind "command"; this one is of kind "connect"`},
		},
		{
			"http tool of a command",
			"kind = \"command\"\ncommand = [\"x\"]\n[tools.a]\ndescription = \"d\"\nurl = \"http://h\"",
			[]string{`3:2: tools: belongs to a provider of kind "http"`},
		},
		{"tools without a directory", `kind = "tools"`, []string{`1:1: kind: "tools" needs dir = "directory"`}},
		{"http without tools", `kind = "http"`, []string{`1:1: kind: "http" needs a table [tools.NAME]`}},
		{
			"prefix of a long name",
			"kind = \"http\"\nprefix = \"p_\"\n[tools." + strings.Repeat("x",
				63) + "]\ndescription = \"d\"\nurl = \"http://h\"",
			[]string{`2:1: prefix: makes "p_xxx`},
		},
		{
			"rules",
			"kind = \"connect\"\nallow = [\"[\"]\ndeny = [\"\"]\nprefix = \"a b\"\nconcurrency = -1\ntimeout = \"2h\"",
			[]string{
				`2:10: allow[0]: "[" is not a glob of tools' names`, `3:9: deny[0]: "" is not a glob`, `4:1: prefix: "a b" is not the beginning`,
				`5:1: concurrency: -1 is not from 0 to 1000`, `6:1: timeout: 2h0m0s is not from 0s to 1h0m0s`,
			},
		},
		{
			"permit",
			"kind = \"tools\"\ndir = \"d\"\npermit = { tools = [\"\"], outside = [\"a\"] }",
			[]string{"permit.tools[0]: must not be empty", `permit.outside[0]: "a" is not a glob of absolute paths`},
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
		{"filter without a condition", "kind = \"connect\"\nsessions = {}", []string{"2:1: sessions: must be"}},
		{
			"grants",
			"kind = \"connect\"\ngrants = [\"gates\", \"all\"]",
			[]string{`2:20: grants[1]: "all" is not one of "transforms", "gates", "context"`},
		},
		{"unknown key", "kind = \"connect\"\nurl = 1", []string{"2:1: unknown key url: there are kind, command,"}},
		{"enabled", "kind = \"connect\"\nenabled = 1", []string{"2:1: enabled: must be true or false"}},
		{"cwd", "kind = \"command\"\ncwd = \"\"\ncommand = [\"x\"]", []string{"2:1: cwd: must be a directory"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, faults := ParseProvider("f.toml", []byte(tt.text))
			match(t, faults, tt.want)
		})
	}
	t.Run("file name", func(t *testing.T) {
		_, faults := ParseProvider("-f.toml", []byte(`kind = "connect"`))
		if len(faults) != 1 || !strings.Contains(faults[0].Message, `"-f" is the provider's`) {
			t.Errorf("found %v", faults)
		}
	})
}

func TestProviderFilter(t *testing.T) {
	p, faults := ParseProvider("f.toml",
		[]byte("kind = \"tools\"\ndir = \"d\"\nenabled = false\n[sessions]\nlabel = \"review\"\ncwd = \"/work/*\""))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	if want := (Sessions{Mode: SessionsEach, Label: "review", CWD: "/work/*"}); p.Sessions != want || p.Enabled {
		t.Errorf("got %+v", p)
	}
}

func TestLoadTakesPathsFromItsDirectory(t *testing.T) {
	dir := t.TempDir()
	file := write(t,
		filepath.Join(dir, "tapgw.toml"), "tls_cert = \"c.pem\"\ntls_key = \"/k.pem\"\ncopilot.cli = \"bin/copilot\"\n")
	c, err := Files{User: file}.Load()
	if err != nil {
		t.Fatal(err)
	}
	if c.TLSCert != filepath.Join(dir, "c.pem") || c.TLSKey != "/k.pem" ||
		c.Copilot.CLI != filepath.Join(dir, "bin/copilot") {
		t.Errorf("got %+v", c)
	}
	write(t, file, "copilot.cli = \"copilot\"\n")
	if c, err = (Files{User: file}).Load(); err != nil || c.Copilot.CLI != "copilot" {
		t.Errorf("got %+v, %v; a bare name is looked up on PATH", c, err)
	}
}

func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := (Files{User: dir}).Load(); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("directory: %v", err)
	}
	if _, err := (Files{User: filepath.Join(dir, "none")}).Load(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	file := write(t, filepath.Join(dir, "x.toml"), "a = 1\nb = 2\n")
	_, err := Files{User: file}.Load()
	faults, ok := errors.AsType[Faults](err)
	if !ok || len(faults) != 2 || !strings.Contains(err.Error(), "1:1: unknown key a") ||
		!strings.Contains(err.Error(), "(and 1 more") {
		t.Errorf("faults: %v", err)
	}
}

// A pipe or a directory that has the name of a file is a fault, and nothing waits
// for what comes out of it.
func TestNoFile(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "tapgw.toml"), "")
	write(t, filepath.Join(dir, "providers", "dir.toml", "x"), "")
	if err := syscall.Mkfifo(filepath.Join(dir, "providers", "pipe.toml"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Find(dir, "tapgw.toml")
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, p := range f.Providers() {
		got += p.Faults.Error() + "\n"
	}
	for _, want := range []string{"dir.toml is a directory", "pipe.toml is no file but a device, a pipe or a socket"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s, want %q", got, want)
		}
	}
}

func TestLoadProviders(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "b.toml"), `kind = "connect"`)
	write(t, filepath.Join(dir, "a.toml"), `kind = "connect"`)
	write(t, filepath.Join(dir, "bad.toml"), "kind = 1\nx = 2")
	write(t, filepath.Join(dir, "hello.toml.sample"), "no TOML")
	write(t, filepath.Join(dir, ".hidden.toml"), "no TOML")
	if err := os.Symlink(filepath.Join(dir, "nowhere"), filepath.Join(dir, "gone.toml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "dir.toml"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := Files{dir: dir, isNamed: true}
	if got, want := told(f.Providers()), "a: connect; b: connect; bad: 2 faults; dir: 1 faults; "; got != want {
		t.Errorf("found %s, want %s", got, want)
	}
}

// told is what was found, in one line.
func told(files []ProviderFile) string {
	var b strings.Builder
	for _, f := range files {
		switch {
		case f.LeftOut:
			fmt.Fprintf(&b, "%s: barred; ", f.Name)
		case len(f.Faults) > 0:
			fmt.Fprintf(&b, "%s: %d faults; ", f.Name, len(f.Faults))
		default:
			fmt.Fprintf(&b, "%s: %s; ", f.Name, f.Provider.Kind)
		}
	}
	return b.String()
}

// A project's files count where the user trusts the project, .tapgw before configs,
// and hide none of the user's own. What they may not say is a fault.
func TestProjectFiles(t *testing.T) {
	dir, user := real(t), t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", user)
	t.Setenv(EnvConfig, "")
	xdg.Reload()
	t.Cleanup(xdg.Reload)
	write(t, filepath.Join(dir, ".tapgw/providers/a.toml"), `kind = "connect"`)
	write(t, filepath.Join(dir, ".tapgw/providers/d.toml"), `kind = "connect"`)
	write(t, filepath.Join(dir, "configs/providers/a.toml"), `kind = "connect"`)
	write(t, filepath.Join(dir, "configs/providers/d.toml"), `kind = "tools"`)
	write(t, filepath.Join(dir, "configs/providers/b.toml"), "kind = \"connect\"\ngrants = [\"gates\"]")
	write(t, filepath.Join(user, "tapgw/providers/a.toml"), "kind = \"tools\"\ndir = \"d\"")
	write(t, filepath.Join(user, "tapgw/providers/c.toml"), "kind = \"connect\"\ngrants = [\"gates\"]")
	write(
		t,
		filepath.Join(user, "tapgw/tapgw.toml"),
		"listen = \"127.0.0.1:1\"\nlog_level = \"debug\"\ncopilot.max_rounds = 7",
	)
	write(t, filepath.Join(dir, "configs/tapgw.toml"), "listen = \"127.0.0.1:9400\"\ncopilot.max_rounds = 8")
	sub := filepath.Join(dir, "sub", "deep")
	if err := os.MkdirAll(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	found := func(dir string) Files {
		f, err := Find(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	rounds := func(at string, want int) {
		t.Helper()
		f := found("/")
		if c, _, err := f.LoadAt(at); err != nil || c.Copilot.MaxRounds != want || c.LogLevel != "debug" ||
			c.Listen != "127.0.0.1:1" {
			t.Errorf("for a session in %s: %+v, %v", at, c.Copilot.MaxRounds, err)
		}
		if c, err := f.Load(); err != nil || c.Copilot.MaxRounds != 7 {
			t.Errorf("the gateway itself: %d rounds, %v", c.Copilot.MaxRounds, err)
		}
	}
	f := found(dir)
	if got, want := told(f.Providers()), "a: tools; a: barred; a: barred; b: barred; c: connect; d: barred; d: barred; "; got != want {
		t.Errorf("untrusted: %s, want %s", got, want)
	}
	if got, want := told(found("/").Providers()), "a: tools; c: connect; "; got != want {
		t.Errorf("untrusted, from elsewhere: %s, want %s", got, want)
	}
	rounds(dir, 7)
	if _, _, err := Trust(dir); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{dir, "/", sub} {
		if got, want := told(found(from).Providers()), "a: tools; a: barred; a: barred; b: 1 faults; c: connect; d: connect; "; got != want {
			t.Errorf("trusted, seen from %s: %s, want %s", from, got, want)
		}
	}
	for _, p := range found("/").Providers() {
		if p.Name == "d" &&
			(p.Provider.Project != dir || !p.Provider.Sessions.Match("", sub, "") || p.Provider.Sessions.Match("", filepath.Dir(dir), "") || p.Provider.Sessions.Match("", dir+"2", "")) {
			t.Errorf("d is for other sessions: %+v", p.Provider)
		}
	}
	rounds(dir, 8)
	rounds(sub, 8)
	rounds(filepath.Dir(dir), 7)
	write(t, filepath.Join(dir, ".tapgw/tapgw.toml"), `listen = "127.0.0.1:2"
insecure = true
tls_cert = "x"
tls_key = "x"
hosts = ["h"]
api.auth = "none"
log_level = "debug"
inject_quiet = "1s"
copilot.cli = "x"
copilot.provider_url = "http://h/"
copilot.provider_key_env = "X"
copilot.permissions.shell = "allow"
`)
	rounds(dir, 7) // it came after the user trusted the others
	if _, _, err := Trust(dir); err != nil {
		t.Fatal(err)
	}
	_, _, err := found("/").LoadAt(dir)
	faults, _ := errors.AsType[Faults](err)
	if len(faults) != 11 || faults[0].Line != 1 ||
		!strings.Contains(faults[10].Message,
			"copilot.provider_key_env: a project's file can't set it: write it into "+user) {
		t.Errorf("faults:\n%s", lines(faults))
	}
}

// withProject is what counts for a session in a project whose file says something.
func withProject(user, project string) (Config, error) {
	c, found, err := Files{User: user}.load()
	if err != nil {
		return c, err
	}
	data, err := readFile(project)
	if err != nil {
		return c, err
	}
	if faults := c.parse(project, data, true, &found); len(faults) > 0 {
		return c, faults
	}
	return c, nil
}

// real is a temporary directory by its real path.
func real(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestFind(t *testing.T) {
	dir, user := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", user)
	t.Setenv(EnvConfig, "")
	xdg.Reload()
	t.Cleanup(xdg.Reload)
	expect := func(named, want string) {
		t.Helper()
		f, err := Find(dir, named)
		if got := f.Project + f.User; err != nil || got != want {
			t.Errorf("Find(%q) = %q, %v; want %q", named, got, err, want)
		}
	}
	expect("", "")
	byUser := write(t, filepath.Join(user, "tapgw", "tapgw.toml"), "")
	expect("", byUser)
	// A project's files may have the names of our directories.
	other := write(t, filepath.Join(dir, "configs"), "")
	expect("", byUser)
	if f, _ := Find(dir, ""); len(f.Providers()) > 0 {
		t.Errorf("provider files: %+v", f.Providers())
	}
	if err := os.Remove(other); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "configs", "tapgw.toml"), "# nothing")
	expect("", byUser)
	here := write(t, filepath.Join(dir, "configs", "tapgw.toml"), "copilot.max_rounds = 3")
	expect("", here+byUser)
	byEnv := write(t, filepath.Join(dir, "env.toml"), "")
	t.Setenv(EnvConfig, byEnv)
	expect("", byEnv)
	byFlag := write(t, filepath.Join(dir, "flag.toml"), "")
	expect("flag.toml", byFlag)
	f, err := Find(dir, "none.toml")
	if err == nil || !strings.Contains(err.Error(), "--config: ") {
		t.Errorf("missing file of the flag: %v", err)
	}
	if at := f.Where("", "gone").File; at != filepath.Join(dir, "none.toml") {
		t.Errorf("its fault is placed in %s", at)
	}
	t.Setenv(EnvConfig, filepath.Join(dir, "none.toml"))
	if _, err := Find(dir, ""); err == nil || !strings.Contains(err.Error(), "TAPGW_CONFIG: ") {
		t.Errorf("missing file of the variable: %v", err)
	}
}

// What people copy into a shell names the directory, whatever that is called.
func TestTrustCommand(t *testing.T) {
	for dir, want := range map[string]string{
		"/home/me/src": "tapgw trust /home/me/src",
		"/a b":         "tapgw trust '/a b'",
		"/it's":        `tapgw trust '/it'\''s'`,
		"/$(rm x)":     "tapgw trust '/$(rm x)'",
		"/a\nb\x1b[2J": `tapgw trust $'/a\x0ab\x1b[2J'`,
		"/\u202etxt'":  `tapgw trust $'/\xe2\x80\xaetxt\x27'`,
		"/\xff":        `tapgw trust $'/\xff'`,
	} {
		if got := TrustCommand(dir); got != want {
			t.Errorf("TrustCommand(%q) = %s, want %s", dir, got, want)
		}
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct {
		file, text, want string
	}{
		{"tapgw.toml", `kind = "mcp"`, "unknown key kind: there are listen"},
		{"x.toml", `kind = "connect"`, ""},
		{"y.toml", `insecure = true`, ""},
		{"providers/z.toml", `insecure = true`, "kind: is missing"},
		{"w.toml", `kind = `, "is not TOML"},
	} {
		faults, err := Check(write(t, filepath.Join(dir, tt.file), tt.text))
		if err != nil || tt.want == "" && len(faults) > 0 ||
			tt.want != "" && !strings.Contains(lines(faults), tt.want) {
			t.Errorf("%s: %v, %v; want %q", tt.file, faults, err, tt.want)
		}
	}
}

func TestPaths(t *testing.T) {
	t.Setenv("COPILOT_HOME", "/h")
	if got := StateDir(); got != "/h/extensions/tap" {
		t.Errorf("with COPILOT_HOME: %s", got)
	}
	t.Setenv("COPILOT_HOME", "")
	t.Setenv("HOME", "/u")
	xdg.Reload()
	t.Cleanup(xdg.Reload)
	if got := Home(); got != "/u/.copilot" {
		t.Errorf("without: %s", got)
	}
}

func write(t *testing.T, file, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// No input panics or hangs, faults stand inside the file, and every key that the
// TOML library finds has a place.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"tapgw.toml", "providers/hello.toml.sample", "providers/weather.toml.sample"} {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(data))
	}
	for _, s := range []string{
		"", "a.b.\"c d\".'e' = [1, {f = \"\"\"x\"\"\"\"\"}, '''y''']\n[[g]]\n[g.h]\ni = 1979-05-27 07:32:00 # c\n",
		"listen = \"\\\"#\\\\\"\nx = 1", "kind = \"command\"\ncommand = [ # c\n \"a\",\n]\n", "[\"\\u00e9\"]\n",
		"[[hooks]]\non = \"error\"\n[[hooks]]\nhooks.on = 1\n[hooks.x]\ny = 1\n[[hooks.x.z]]\na = 1\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		_, faults := Parse("f.toml", []byte(text))
		_, more := ParseProvider("f.toml", []byte(text))
		height := strings.Count(text, "\n") + 1
		for _, fault := range append(faults, more...) {
			if fault.Line < 1 || fault.Line > height || fault.Column < 1 || strings.Contains(fault.Message, "\n") {
				t.Errorf("fault %q in a text of %d lines", fault.Error(), height)
			}
		}
		doc, root := open("f.toml", []byte(text))
		if root == nil {
			return
		}
		md, err := toml.Decode(doc.text, &map[string]any{})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range md.Keys() {
			if _, ok := doc.keys[key.String()]; !ok && !inArray(root.values, key) {
				t.Errorf("no place for key %s in %q", key, text)
			}
		}
	})
}

// inArray reports whether a key lies in an element of an array: the library
// leaves the element out of its path.
func inArray(values map[string]any, key toml.Key) bool {
	for _, part := range key[:len(key)-1] {
		sub, ok := values[part].(map[string]any)
		if !ok {
			return true
		}
		values = sub
	}
	return false
}
