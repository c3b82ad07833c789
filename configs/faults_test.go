package configs

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// faultCase is the text of a tapgw.toml, and parts of its faults in their order.
type faultCase struct {
	name, text string
	want       []string
}

func testFaults(t *testing.T, tests []faultCase) {
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, faults := Parse("f.toml", []byte(tt.text))
			matchFaults(t, faults, tt.want)
			if diff := cmp.Diff(Config{}, c); diff != "" {
				t.Errorf("a file with faults gave a configuration, -want +got:\n%s", diff)
			}
			if strings.Contains(faults.Error(), "secret") {
				t.Errorf("got %v, want a fault that does not repeat the secret", faults)
			}
		})
	}
}

func TestFaultsOfKeysAndTypes(t *testing.T) {
	testFaults(t, []faultCase{
		{
			"unknown key",
			"listen = \"127.0.0.1:1\"\nlissten = 1\n",
			[]string{"2:1: unknown key lissten: there are listen, insecure,"},
		},
		{"unknown key in a table", "[api]\n  user = 1",
			[]string{"2:3: unknown key api.user: there are auth"}},
		{"unknown table", "[copilott]\ncli = 1", []string{"1:2: unknown key copilott"}},
		{"permission patterns", `[copilot.permissions]
shell = "maybe"
allow_commands = ["", "a; b", "rm"]
allow_read_paths = ["src/[", "../x/**"]
allow_urls = ["ftp://a", "a b", "https://u@a", "a.*.b", "a?x"]
copilot.x = 1`, []string{
			`2:1: copilot.permissions.shell: "maybe" is not one of "allow", "deny", "ask"`,
			`allow_commands[0]: "" is not the words`, `allow_commands[1]: "a; b" is not the words`,
			`allow_read_paths[0]: "src/[" is not a glob`,
			`allow_read_paths[1]: "../x/**": .. leads out`,
			`allow_urls[0]: "ftp://a": the scheme`, `allow_urls[1]: "a b" is not`,
			`allow_urls[2]: must hold neither`,
			`allow_urls[3]: "a.*.b" is not`, `allow_urls[4]: must hold neither`,
			"6:1: unknown key copilot.permissions.copilot",
		}},
		{
			"times of a turn",
			"copilot.max_turn_time = \"0s\"\ncopilot.answer_timeout = 5\ncopilot.ask_user = \"yes\"",
			[]string{
				"1:9: copilot.max_turn_time: 0s is not from 1s to 168h0m0s",
				"2:9: copilot.answer_timeout: must be a time",
				"3:9: copilot.ask_user: must be true or false",
			},
		},
		{"unknown quoted key", "\"é b\".c = 1", []string{`1:1: unknown key "é b"`}},
		{"key in the wrong case", "Listen = \"127.0.0.1:1\"", []string{"1:1: unknown key Listen"}},
		{"column in letters", "copilot = { \"cli\" = \"é\", x = 1 }",
			[]string{"1:26: unknown key copilot.x"}},
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
		{"array of tables", "[[api]]\nauth = 'token'",
			[]string{"1:3: api: must be a table, found an array of tables"}},
	})
}

func TestFaultsOfValues(t *testing.T) {
	testFaults(t, []faultCase{
		{
			"listen without port",
			`listen = "127.0.0.1"`,
			[]string{`1:1: listen: "127.0.0.1" is not host:port, such as "127.0.0.1:9400"`},
		},
		{"port too large", `listen = "127.0.0.1:65536"`,
			[]string{"the port is not a number from 0 to 65535"}},
		{"port with a sign", `listen = "127.0.0.1:+1"`, []string{"the port is not a number"}},
		{"no such host name", `listen = "a b:1"`,
			[]string{`"a b" is neither an IP address nor a host name`}},
		{
			"listen to all",
			`listen = ":9400"`,
			[]string{"can be reached from other machines: set tls_cert and tls_key, or insecure = true"},
		},
		{"listen beyond loopback", `listen = "192.168.1.1:9400"`,
			[]string{"can be reached from other machines"}},
		{
			"webhooks beyond loopback", "[webhooks]\nlisten = \"0.0.0.0:9401\"",
			[]string{`2:1: webhooks.listen: "0.0.0.0:9401" can be reached from other machines`},
		},
		{
			"webhooks at the gateway's port",
			"insecure = true\n[webhooks]\nlisten = \"0.0.0.0:9400\"",
			[]string{`3:1: webhooks.listen: "0.0.0.0:9400" has the port of listen`},
		},
		{
			"terminals half open", "[terminals]\nwithout_gateway = \"ask\"",
			[]string{`2:1: terminals.without_gateway: "ask"`},
		},
		{"webhooks nowhere", "[webhooks]\nlisten = \"9401\"",
			[]string{`webhooks.listen: "9401" is not host:port`}},
		{"looks like loopback", `listen = "127.attacker.example:9400"`,
			[]string{"can be reached from other machines"}},
		{
			"API without auth beyond loopback",
			"listen = \"0.0.0.0:1\"\ninsecure = true\napi.auth = \"none\"",
			[]string{
				`1:1: listen: "0.0.0.0:1" can be reached from other machines: api.auth = "none" is for loopback only`,
			},
		},
		{"certificate without key", `tls_cert = "a.pem"`,
			[]string{"1:1: tls_cert: needs tls_key beside it"}},
		{"key without certificate", `tls_key = "a.pem"`,
			[]string{"1:1: tls_key: needs tls_cert beside it"}},
		{"host with scheme", `hosts = ["a", "http://b"]`,
			[]string{`1:15: hosts[1]: "http://b" is not a host name`}},
		{"host twice", `hosts = ["a", "a"]`, []string{`hosts[1]: "a" stands there twice`}},
		{"log level", `log_level = "loud"`,
			[]string{`"loud" is not one of "debug", "info", "warn", "error"`}},
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
		{"provider URL with a query", `copilot.provider_url = "http://h/?key=1"`,
			[]string{"nothing behind a ?"}},
		{
			"key in place of its name",
			`copilot.provider_key_env = "sk-secret"`,
			[]string{"is not the name of an environment variable"},
		},
		{"model", `copilot.models = ["a b"]`, []string{`"a b" is not a model's id`}},
		{"rounds", `copilot.max_rounds = 0`,
			[]string{"copilot.max_rounds: 0 is not from 1 to 10000"}},
		{
			"permission",
			"[copilot.permissions]\nshell = \"cwd\"\ncustom-tool = \"cwd\"",
			[]string{
				`2:1: copilot.permissions.shell: "cwd" is not one of "allow", "deny", "ask"`,
				`3:1: copilot.permissions.custom-tool: "cwd"`,
			},
		},
	})
}

func TestFaultsOfText(t *testing.T) {
	testFaults(t, []faultCase{
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
		{"nested too deep", "hosts = " + strings.Repeat("[", 1000),
			[]string{"nested more than 64 deep"}},
		{"too large", "#" + strings.Repeat("x", maxFile), []string{"is larger than"}},
		{"after a byte order mark", "\ufeffx = 1", []string{"1:1: unknown key x"}},
		{"with carriage returns", "insecure = false\r\nx = 1\r\n", []string{"2:1: unknown key x"}},
	})
}

// matchFaults compares faults with parts of the texts that they must have.
func matchFaults(t *testing.T, faults Faults, want []string) {
	t.Helper()
	ok := len(faults) == len(want)
	for i := range min(len(faults), len(want)) {
		ok = ok && strings.HasPrefix(faults[i].Error(), "f.toml:") &&
			strings.Contains(strings.TrimPrefix(faults[i].Error(), "f.toml:"), want[i])
	}
	if !ok {
		t.Errorf("got\n%s\nwant\n%s", lines(faults), strings.Join(want, "\n"))
	}
}

func lines(faults Faults) string {
	var b strings.Builder
	for _, f := range faults {
		fmt.Fprintln(&b, f.Error())
	}
	return b.String()
}
