package mcpclients

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tapgw/configs"
)

// head is the first line of each provider file.
const head = "# tapctl mcp import wrote this file. `tapgw config schema provider` describes all keys.\n"

// TestImport reads files as the clients write them. The wanted texts are the provider files, by
// name, or the reasons.
func TestImport(t *testing.T) {
	for _, tc := range []struct {
		file, text string
		want       map[string]string
	}{
		{"mcp-config.json", `{"mcpServers": {
			"git": {"type": "local", "command": "npx", "args": ["-y", "git-mcp"], "env": {"GH_TOKEN": "${GH_TOKEN}", "LOG": "debug"},
				"tools": ["a", "b*"], "timeout": 90000},
			"ev": {"type": "http", "url": "https://ev.example/mcp", "headers": {"Authorization": "Bearer ${EV}"}, "tools": ["*"]},
			"tapgw": {"type": "local", "command": "/x/tapgw", "args": ["mcp"]}
		}}`, map[string]string{
			"git": "kind = \"mcp\"\ncommand = [\"npx\", \"-y\", \"git-mcp\"]\nallow = [\"a\", \"b\\\\*\"]\ntimeout = \"1m30s\"\n\n" +
				"[env]\nGH_TOKEN = \"${GH_TOKEN}\"\nLOG = \"debug\"\n",
			"ev": "kind = \"mcp\"\nurl = \"https://ev.example/mcp\"\n\n[headers]\nAuthorization = \"Bearer ${EV}\"\n",
		}},
		{".vscode/mcp.json", `{"servers": { // team
			"a b": {"type": "http", "url": "http://h/mcp", "headers": {"Authorization": "Bearer ${input:my-tok}"}},
			"rel": {"type": "stdio", "command": "./s", "args": ["${workspaceFolder}/x"], "env": {"A": "${env:B}"}, "cwd": "sub"},
			"old": {"type": "sse", "url": "http://h/sse"},
		}, "inputs": []}`, map[string]string{
			"a-b": "kind = \"mcp\"\nurl = \"http://h/mcp\"\n\n[headers]\nAuthorization = \"Bearer ${MY_TOK}\"\n",
			"rel": "kind = \"mcp\"\ncommand = [\"./s\", \"PROJECT/x\"]\ncwd = \"PROJECT/sub\"\n\n[env]\nA = \"${B}\"\n",
			"old": "skipped: it speaks sse, which tapgw does not; it may have a URL of streamable HTTP",
		}},
		{".gemini/settings.json", `{"mcp": {"allowed": []}, "mcpServers": {
			"g": {"httpUrl": "https://g.example/mcp", "headers": {"X-Key": "$KEY"}, "includeTools": ["t(x)"], "excludeTools": ["u"]},
			"h": {"command": "c", "env": {"P": "pa$$WORD", "Q": "$QQ"}}
		}}`, map[string]string{
			"g": "kind = \"mcp\"\nurl = \"https://g.example/mcp\"\nallow = [\"t\"]\ndeny = [\"u\"]\n\n[headers]\nX-Key = \"${KEY}\"\n",
			"h": "kind = \"mcp\"\ncommand = [\"c\"]\n\n[env]\nP = \"${P}\"\nQ = \"${QQ}\"\n",
		}},
		{"opencode.json", `{"mcp": {
			"o": {"type": "local", "command": ["bun", "x"], "environment": {"K": "{env:K2}"}, "enabled": false, "timeout": 5},
			"r": {"type": "remote", "url": "https://r.example/", "headers": {"Authorization": "Basic {env:R}"}, "enabled": true}
		}}`, map[string]string{
			"o": "kind = \"mcp\"\ncommand = [\"bun\", \"x\"]\nenabled = false\n\n[env]\nK = \"${K2}\"\n",
			"r": "kind = \"mcp\"\nurl = \"https://r.example/\"\n\n[headers]\nAuthorization = \"Basic ${R}\"\n",
		}},
		{"config.toml", `[mcp_servers.c]
			url = "https://c.example/mcp"
			bearer_token_env_var = "C_TOKEN"
			http_headers = { Accept = "text/html" }
			env_http_headers = { X-Org = "ORG" }
			tool_timeout_sec = 2.5
			enabled_tools = ["one"]
			[mcp_servers.d]
			command = "d"
			env_vars = ["HOME"]
			`, map[string]string{
			"c": "kind = \"mcp\"\nurl = \"https://c.example/mcp\"\nallow = [\"one\"]\ntimeout = \"2.5s\"\n\n[headers]\n" +
				"Accept = \"text/html\"\nAuthorization = \"Bearer ${C_TOKEN}\"\nX-Org = \"${ORG}\"\n",
			"d": "kind = \"mcp\"\ncommand = [\"d\"]\n\n[env]\nHOME = \"${HOME}\"\n",
		}},
		{"settings.json", `{"context_servers": {
			"z": {"source": "custom", "command": {"path": "zz", "args": ["a"], "env": {"N": 1}}},
			"e": {"settings": {}}, "w": 1
		}}`, map[string]string{
			"z": "kind = \"mcp\"\ncommand = [\"zz\", \"a\"]\n\n[env]\nN = \"1\"\n",
			"e": "skipped: it has neither a command nor a URL", "w": "skipped: it is no object",
		}},
	} {
		path := filepath.Join(t.TempDir(), tc.file)
		write(t, path, tc.text)
		servers, err := ReadServers(path)
		if err != nil {
			t.Errorf("%s: %v, want no error", tc.file, err)
			continue
		}
		project := projectOf(path)
		got := map[string]string{}
		for i, p := range Providers(servers) {
			if p == nil {
				got[servers[i].Name] = "skipped: " + servers[i].Reason
				continue
			}
			checkProvider(t, p)
			text := strings.TrimPrefix(string(p.Text), head)
			got[p.Name] = strings.ReplaceAll(text, project, "PROJECT")
		}
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tc.file, d)
		}
	}
}

func checkProvider(t *testing.T, p *ProviderFile) {
	t.Helper()
	if _, faults := configs.ParseProvider(p.Name+".toml", p.Text); len(faults) > 0 {
		t.Errorf("the provider file of %s: %v, want no fault\n%s", p.Name, faults, p.Text)
	}
}

// TestImportMovesSecrets wants no secret in a provider file, and to be told where each was.
func TestImportMovesSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mcp.json")
	write(t, path, `{"mcpServers": {
		"a": {"command": "x", "env": {"API_KEY": "sk-1", "MODE": "fast", "DIR": "/", "URL": "https://h.example/x", "odd": "Zq9"}},
		"A": {"command": "x", "env": {"API_KEY": "sk-2", "PORT": "8080"}},
		"b": {"command": "x", "env": {"API_KEY": "sk-1", "HOOK": "https://h.example/services/T0/B0/sk3sk3sk3sk3sk3sk3"}},
		"h": {"url": "https://h.example", "headers": {"Authorization": "Bearer sk-4", "X-Api-Key": "sk-5", "Accept": "a/b"}}
	}}`)
	servers, err := ReadServers(path)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, p := range Providers(servers) {
		checkProvider(t, p)
		if text := string(p.Text); strings.Contains(text, "sk") || strings.Contains(text, "Zq9") {
			t.Errorf("the file of %s has a secret, want variables only:\n%s", p.Name, text)
		}
		for _, name := range slices.Sorted(maps.Keys(p.Moved)) {
			got[p.Name] = append(got[p.Name], name+" from "+p.Moved[name])
		}
	}
	want := map[string][]string{
		"A":   {`API_KEY from env API_KEY of "A"`},
		"a-2": {`A_2_API_KEY from env API_KEY of "a"`, `odd from env odd of "a"`},
		"b":   {`B_API_KEY from env API_KEY of "b"`, `HOOK from env HOOK of "b"`},
		"h": {`H_TOKEN from header Authorization of "h"`,
			`H_X_API_KEY from header X-Api-Key of "h"`},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestImportTakesPlainWords wants words that only look like flags of secrets to be imported, and
// variables that the program itself replaces from its own environment.
func TestImportTakesPlainWords(t *testing.T) {
	for _, entry := range []string{
		`{"command": "npx", "args": ["-y", "@azure-devops/mcp", "contoso", "--authentication", "azcli", "--tenant", "c.example"]}`,
		`{"command": "npx", "args": ["-y", "mcp-remote", "https://mcp.example.com/mcp", "--auth-timeout", "60"]}`,
		`{"command": "npx", "args": ["-y", "mcp-remote", "https://mcp.example.com/mcp", "--header", "Authorization:${AUTH_HEADER}"],
			"env": {"AUTH_HEADER": "Bearer abcdef123456"}}`,
		`{"command": "x", "args": ["--token-limit", "4096", "--max-tokens=100", "--auth", "none", "-p", "8080"]}`,
		`{"command": "x", "args": ["--key", "` + "import_test.go" +
			`", "--token-file=/run/token"]}`,
		`{"command": "docker", "args": ["run", "-i", "--rm", "-u", "1000:1000", "ghcr.io/o/i:1.2.3"]}`,
		`{"command": "uvx", "args": ["mcp-server-git", "--repository", "/home/me/Some-Project_2/src"]}`,
		`{"command": "x", "env": {"AUTH_MODE": "azcli", "MAX_TOKENS": "4096"}}`,
	} {
		list, err := parseServers("mcp.json", []byte(`{"mcpServers": {"s": `+entry+`}}`))
		if err != nil || len(list) != 1 || list[0].Reason != "" {
			t.Errorf("%s: %+v, %v, want it without a reason", entry, list, err)
			continue
		}
		p := Providers(list)[0]
		checkProvider(t, p)
		if strings.Contains(string(p.Text), "abcdef123456") {
			t.Errorf("the file has the secret:\n%s", p.Text)
		}
	}
}

// TestImportSkipsSecrets wants a server to be left out whose secret no variable can replace.
func TestImportSkipsSecrets(t *testing.T) {
	for _, tc := range []struct{ entry, want string }{
		{`{"command": "x", "args": ["--api-key", "abc"]}`, "word 3 of its command may be a secret"},
		{`{"command": "x", "args": ["--token=abc"]}`, "word 2 of its command may be a secret"},
		{`{"command": "docker", "args": ["run", "-e", "GH_TOKEN=abc"]}`,
			"word 4 of its command may be a secret"},
		{`{"command": "x", "args": ["ghp_16C7e42F292c6912E7"]}`,
			"word 2 of its command may be a secret"},
		{`{"command": "npx", "args": ["mcp-remote", "http://h", "--header", "X-A: b"]}`,
			"word 5 of its command may be a secret"},
		{`{"command": "x", "args": ["postgresql://u:pw@db.example/app"]}`,
			"word 2 of its command may be a secret"},
		{`{"command": "x", "args": ["redis://:pw@cache:6379"]}`,
			"word 2 of its command may be a secret"},
		{`{"command": "x", "args": ["--dsn=mysql://root:pw@db/x"]}`,
			"word 2 of its command may be a secret"},
		{`{"command": "x", "args": ["https://9fceb02d0ae598e95dc9@h.example/1"]}`,
			"word 2 of its command may be a secret"},
		{`{"command": "x", "args": ["eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"]}`,
			"word 2 of its command may be a secret"},
		{`{"command": "x", "args": ["sk-live-abcdef123456"]}`,
			"word 2 of its command may be a secret"},
		{`{"command": "npx", "args": ["mcp-remote", "https://mcp.zapier.com/api/mcp/s/aB3dE5fG7hJ9kL1m/mcp"]}`,
			"word 3 of its command may be a secret"},
		{`{"command": "npx", "args": ["mcp-remote", "https://h.example/550e8400-e29b-41d4-a716-446655440000/sse"]}`,
			"word 3 of its command may be a secret"},
		{`{"command": "npx", "args": ["mcp-remote", "https://h.example/mcp?apiKey=abc"]}`,
			"word 3 of its command may be a secret"},
		{`{"command": "x", "args": ["--config", "{\"apiKey\":\"abc\"}"]}`,
			"word 3 of its command may be a secret"},
		{`{"command": "x", "args": ["-u", "me:pa55"]}`, "word 3 of its command may be a secret"},
		{`{"command": "x", "args": ["--connection", "Server=db;User Id=sa;Password=x1;"]}`,
			"word 3 of its command may be a secret"},
		{`{"command": "x", "args": ["--key", "abcdef"]}`, "word 3 of its command may be a secret"},
		{`{"command": "x", "args": ["--header", "Authorization: abc"], "env": {"A": "b"}}`,
			"word 3 of its command may be a secret"},
		{`{"command": "x", "args": ["${input:key}"], "env": {"KEY": "${input:key}"}}`,
			"word 2 of its command has a variable"},
		{`{"command": "x", "args": ["${KEY}"]}`, "word 2 of its command has a variable"},
		{`{"url": "https://h.example/mcp?key=abc"}`, "its URL may have a secret"},
		{`{"url": "https://u:p@h.example/mcp"}`, "its URL may have a secret"},
		{`{"url": "https://h.example/550e8400-e29b-41d4-a716-446655440000/mcp"}`,
			"its URL may have a secret"},
		{`{"url": "https://h.example/${A}"}`, "its URL has a variable"},
		{`{"url": "https://h.example", "headers": {"A": "${X}-0123456789"}}`,
			"its header A has a variable and text"},
		{`{"url": "https://h.example", "command": "x"}`, "it has both"},
	} {
		list, err := parseServers("mcp.json", []byte(`{"mcpServers": {"s": `+tc.entry+`}}`))
		if err != nil || len(list) != 1 || !strings.HasPrefix(list[0].Reason, tc.want) {
			t.Errorf("%s: %+v, %v, want one with the reason %q", tc.entry, list, err, tc.want)
		}
	}
	for _, entry := range []string{
		`{"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem@2026.7.4", "/srv/data-2024/UPPER9case"]}`,
		`{"command": "docker", "args": ["run", "-e", "GH_TOKEN", "-v", "/a:/b", "ghcr.io/github/github-mcp-server"]}`,
		`{"command": "uvx", "args": ["--from", "mcp-server-postgres-v2-readonly", "--port", "8080"]}`,
		`{"command": "x", "args": ["postgresql://u@db.example/app", "--dsn=mysql://app_user@db/x"]}`,
		`{"url": "https://api.githubcopilot.com/mcp/x/pull_requests/readonly?toolset=issues"}`,
	} {
		list, err := parseServers("mcp.json", []byte(`{"mcpServers": {"s": `+entry+`}}`))
		if err != nil || len(list) != 1 || list[0].Reason != "" {
			t.Errorf("%s: %+v, %v, want a provider", entry, list, err)
		}
	}
}

func TestImportFaults(t *testing.T) {
	for _, tc := range []struct{ file, text, want string }{
		{"a.json", "{\n x", "2:2: is not JSON: "},
		{"a.json", "{}", "1:1: has no MCP servers: "},
		{"a.toml", "a = 1", "1:1: has no MCP servers: "},
		{"a.toml", "a =", "1:3: is not TOML: "},
		{"a.json", "\xff", "1:1: is not UTF-8 text"},
	} {
		path := filepath.Join(t.TempDir(), tc.file)
		write(t, path, tc.text)
		if _, err := ReadServers(path); err == nil ||
			!strings.HasPrefix(err.Error(), path+":"+tc.want) {
			t.Errorf("%q: %v, want %s:%s", tc.text, err, path, tc.want)
		}
	}
	if _, err := ReadServers(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a file that does not exist: no error, want one")
	}
}

// TestNoSecretIsEverCopied imports random variables and headers.
func TestNoSecretIsEverCopied(t *testing.T) {
	t.Chdir(os.TempDir())
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.StringMatching(`[A-Za-z0-9_+/-]{1,4}[A-Z][0-9a-z]{16,30}[0-9]`).Draw(t,
			"secret")
		name := rapid.StringMatching(`[A-Za-z_][A-Za-z0-9_-]{0,12}`).Draw(t, "name")
		server := rapid.String().Draw(t, "server")
		list := []Imported{
			{Name: server, Command: []string{"x"}, Env: map[string]string{name: secret}},
			{
				Name:    server,
				URL:     "http://h",
				Headers: map[string]string{name: "Bearer " + secret},
				Timeout: time.Hour * 9,
			},
		}
		seen := map[string]bool{}
		for _, p := range Providers(list) {
			if strings.Contains(string(p.Text), secret) {
				t.Errorf("the file has the secret %s, want a variable:\n%s", secret, p.Text)
			}
			if seen[strings.ToLower(p.Name)] {
				t.Errorf("two providers have the name %s, want names that differ", p.Name)
			}
			seen[strings.ToLower(p.Name)] = true
			// The client's file may have a variable whose name is none.
			if _, faults := configs.ParseProvider(p.Name+".toml", p.Text); len(faults) > 0 &&
				!strings.Contains(faults[0].Message, "environment variable") {
				t.Errorf("the provider file of %q: %v, want no fault\n%s", server, faults, p.Text)
			}
		}
	})
}

func FuzzImport(f *testing.F) {
	f.Add("a.json",
		[]byte(
			`{"mcpServers":{"a":{"command":"x","env":{"A":"b"},"tools":["*"]},"b":{"url":"http://h"}}}`))
	f.Add("a.json", []byte(`{"mcp":{"servers":{"a":{"command":{"path":1}}}}}`))
	f.Add("a.toml", []byte("[mcp_servers.a]\nenv_vars=['A']\nenv={}\n"))
	f.Fuzz(func(t *testing.T, file string, text []byte) {
		list, err := parseServers(file, text)
		if err != nil {
			checkFault(t, err)
			return
		}
		for _, p := range Providers(list) {
			if p == nil {
				continue
			}
			if _, err := (tomlFormat{}).values(p.Text); err != nil {
				t.Errorf("the provider file is no TOML: %v\n%q", err, p.Text)
			}
		}
	})
}
