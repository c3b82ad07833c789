package configs

import (
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// A fault names its file in one line, whatever the file is called.
func TestFaultIsOneLine(t *testing.T) {
	f := Fault{File: "/src/a\n/etc/x:1:1: fine\x1b[2K/tapgw.toml", Line: 2, Column: 3,
		Message: "no"}
	if got, want := f.Error(), `/src/a\n/etc/x:1:1: fine\x1b[2K/tapgw.toml:2:3: no`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A person who runs tapgw in the repository uses the sample there, so it must change no
// default.
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
	if n, want := countLeaves(keys), fields(reflect.TypeFor[Config]()); n != want {
		t.Errorf("the sample sets %d keys, there are %d: document every key there, want %d", n,
			want, want)
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

func countLeaves(table map[string]any) (n int) {
	for _, v := range table {
		if sub, ok := v.(map[string]any); ok {
			n += countLeaves(sub)
		} else {
			n++
		}
	}
	return n
}

func TestParseTakesEveryKey(t *testing.T) {
	dir, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	got, faults := Parse("x.toml", []byte(`
listen = "0.0.0.0:1"
insecure = true
tls_cert = "c.pem"
tls_key = "k.pem"
hosts = ["gateway.example", "10.0.0.1"]
log_level = "debug"
max_connections = 7
mcp_tool_threshold = 8
copilot_tool_threshold = 9
inject_quiet = "1h"
api.auth = "token"
records.enabled = false
records.max_age = "2h"
records.max_bytes = 2097152
tap.tools = false
terminals.without_gateway = "deny"
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
		t.Fatalf("faults: %v, want none", faults)
	}
	profile := DefaultProfile()
	profile.Provider.URL, profile.Provider.KeyEnv = "http://127.0.0.1:1/v1", "MY_KEY"
	profile.Provider.Models = []string{"a", "b/c"}
	want := Config{
		Listen: "0.0.0.0:1", Insecure: true, TLSCert: filepath.Join(dir, "c.pem"),
		TLSKey: filepath.Join(dir, "k.pem"),
		Hosts: []string{
			"gateway.example",
			"10.0.0.1",
		}, LogLevel: "debug", MaxConnections: 7, MCPToolThreshold: 8,
		CopilotToolThreshold: 9,
		InjectQuiet:          time.Hour, API: API{Auth: "token"},
		Records: Records{MaxAge: 2 * time.Hour, MaxBytes: 2 << 20},
		Cluster: Cluster{Keep: ClusterKeep{MaxAge: 24 * time.Hour, MaxEvents: 1000,
			MaxBytes: 64 << 20}},
		Terminals: Terminals{WithoutGateway: "deny"},
		Copilot: Copilot{
			CLI: filepath.Join(dir, "copilot"), ProviderURL: "http://127.0.0.1:1/v1",
			ProviderKeyEnv: "MY_KEY", Models: []string{"a", "b/c"}, MaxRounds: 3, Profile: profile,
			MaxTurnTime: 90 * time.Second, AnswerTimeout: time.Minute,
			Permissions: Permissions{
				Shell: "ask", Write: "allow", Read: "allow", URL: "allow", MCP: "allow",
				CustomTool: "deny", Memory: "allow", Hook: "allow",
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

// The default of each kind is the strictest one that leaves a session of use, and only the empty
// kinds get theirs.
func TestPermissionsWithDefaults(t *testing.T) {
	want := Permissions{
		Shell: Deny, Write: Deny, Read: CWD, URL: Deny, MCP: Deny, CustomTool: Allow, Memory: Deny,
		Hook: Deny,
	}
	if diff := cmp.Diff(want, Permissions{}.WithDefaults()); diff != "" {
		t.Errorf("the defaults, -want +got:\n%s", diff)
	}
	if diff := cmp.Diff(want, Default().Copilot.Permissions); diff != "" {
		t.Errorf("the permissions of a config without a file, -want +got:\n%s", diff)
	}
	want.Shell, want.CustomTool, want.DenyPaths = Ask, Deny, []string{"**"}
	got := Permissions{Shell: Ask, CustomTool: Deny, DenyPaths: []string{"**"}}.WithDefaults()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("set kinds, -want +got:\n%s", diff)
	}
}
