package mcpclients

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tapgw/configs"
)

// home makes an empty home directory, without variables that lead elsewhere.
func home(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	for _, name := range []string{
		"COPILOT_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_HOME", "XDG_CONFIG_HOME",
	} {
		t.Setenv(name, "")
	}
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	// Its mode must stay.
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil { //nolint:gosec
		t.Fatal(err)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func install(t *testing.T, name string, s Server, project string) *Change {
	t.Helper()
	c, ok := Find(name)
	if !ok {
		t.Fatalf("there is no client %s, want one", name)
	}
	ch, err := c.Install(s, project)
	if err == nil {
		err = ch.Write()
	}
	if err != nil {
		t.Fatalf("installing into %s: %v", name, err)
	}
	return ch
}

func uninstall(t *testing.T, name, project string) *Change {
	t.Helper()
	c, _ := Find(name)
	ch, err := c.Uninstall(project)
	if err == nil {
		err = ch.Write()
	}
	if err != nil {
		t.Fatalf("uninstalling from %s: %v", name, err)
	}
	return ch
}

// installCases are files as the clients write them, and what they are with the gateway.
var installCases = []struct {
	client, file string // below the home directory
	server       Server
	was, want    string
}{
	{"copilot", ".copilot/mcp-config.json", stdio,
		"{\n  \"mcpServers\": {\n    \"ev\": {\n      \"type\": \"http\",\n      \"url\": \"https://x\"\n    }\n  }\n}",
		"{\n  \"mcpServers\": {\n    \"ev\": {\n      \"type\": \"http\",\n      \"url\": \"https://x\"\n    },\n" +
			"    \"tapgw\": {\n      \"type\": \"local\",\n      \"command\": \"/opt/tap/tapgw\",\n" +
			"      \"args\": [\"mcp\"],\n      \"tools\": [\"*\"]\n    }\n  }\n}"},
	{"copilot", ".copilot/mcp-config.json", remote,
		"{\n  \"mcpServers\": {}\n}\n",
		"{\n  \"mcpServers\": {\"tapgw\": { \"type\": \"http\", \"url\": \"http://127.0.0.1:9400/mcp\", " +
			"\"headers\": { \"Authorization\": \"Bearer ${TAP_MCP_TOKEN}\" }, \"tools\": [\"*\"] }}\n}\n"},
	{"claude", ".claude.json", pinned,
		"{\n  \"numStartups\": 3,\n  \"projects\": {\n    \"/x\": {\n      \"mcpServers\": {}\n    }\n  }\n}",
		"{\n  \"numStartups\": 3,\n  \"projects\": {\n    \"/x\": {\n      \"mcpServers\": {}\n    }\n  },\n" +
			"  \"mcpServers\": {\n    \"tapgw\": {\n      \"type\": \"stdio\",\n      \"command\": \"/usr/bin/tapgw\",\n" +
			"      \"args\": [\"mcp\", \"--session\", \"a b\"],\n      \"env\": {\n" +
			"        \"COPILOT_HOME\": \"/tmp/ü\\\"\\\\\"\n      }\n    }\n  }\n}"},
	{"vscode", ".config/Code/User/mcp.json", stdio,
		"{\r\n\t\"servers\": {\r\n\t\t\"a\": {\"command\": \"x\"}, // mine\r\n\t},\r\n\t\"inputs\": []\r\n}\r\n",
		"{\r\n\t\"servers\": {\r\n\t\t\"a\": {\"command\": \"x\"}, // mine\r\n\t\t\"tapgw\": {\r\n\t\t\t\"type\": \"stdio\",\r\n" +
			"\t\t\t\"command\": \"/opt/tap/tapgw\",\r\n\t\t\t\"args\": [\"mcp\"]\r\n\t\t},\r\n\t},\r\n\t\"inputs\": []\r\n}\r\n"},
	{"vscode", ".config/Code/User/mcp.json", remote,
		"{\"servers\":{\"a\":{}}}",
		"{\"servers\":{\"a\":{}, \"tapgw\": { \"type\": \"http\", \"url\": \"http://127.0.0.1:9400/mcp\", " +
			"\"headers\": { \"Authorization\": \"Bearer ${env:TAP_MCP_TOKEN}\" } }}}"},
	{"cursor", ".cursor/mcp.json", stdio,
		"\ufeff{}",
		"\ufeff{\"mcpServers\": { \"tapgw\": { \"command\": \"/opt/tap/tapgw\", \"args\": [\"mcp\"] } }}"},
	{"gemini", ".gemini/settings.json", remote,
		"{\n  // theme\n  \"ui\": {\"theme\": \"x\"} // end\n}\n",
		"{\n  // theme\n  \"ui\": {\"theme\": \"x\"}, // end\n  \"mcpServers\": {\n    \"tapgw\": {\n" +
			"      \"type\": \"http\",\n      \"url\": \"http://127.0.0.1:9400/mcp\",\n      \"headers\": {\n" +
			"        \"Authorization\": \"Bearer $TAP_MCP_TOKEN\"\n      }\n    }\n  }\n}\n"},
	{"codex", ".codex/config.toml", stdio,
		"model = \"o\" # mine\n[mcp_servers.a]\ncommand = 'x'",
		"model = \"o\" # mine\n[mcp_servers.a]\ncommand = 'x'\n\n" +
			"[mcp_servers.tapgw]\ncommand = \"/opt/tap/tapgw\"\nargs = [\"mcp\"]"},
	{"codex", ".codex/config.toml", pinned,
		"[tui]\r\nx = \"\"\"\r\n[mcp_servers.tapgw]\r\n\"\"\"\r\n",
		"[tui]\r\nx = \"\"\"\r\n[mcp_servers.tapgw]\r\n\"\"\"\r\n\r\n[mcp_servers.tapgw]\r\ncommand = \"/usr/bin/tapgw\"\r\n" +
			"args = [\"mcp\", \"--session\", \"a b\"]\r\nenv = { COPILOT_HOME = \"/tmp/ü\\\"\\\\\" }\r\n"},
	{"opencode", ".config/opencode/opencode.jsonc", pinned,
		"{\n    \"mcp\": {\n        // none yet\n    },\n}",
		"{\n    \"mcp\": {\n        // none yet\n        \"tapgw\": {\n            \"type\": \"local\",\n" +
			"            \"command\": [\"/usr/bin/tapgw\", \"mcp\", \"--session\", \"a b\"],\n            \"environment\": {\n" +
			"                \"COPILOT_HOME\": \"/tmp/ü\\\"\\\\\"\n            },\n            \"enabled\": true\n        }\n    },\n}"},
	{"zed", ".config/zed/settings.json", stdio,
		"// Zed settings\n{\n  \"vim_mode\": true,\n}\n",
		"// Zed settings\n{\n  \"vim_mode\": true,\n  \"context_servers\": {\n    \"tapgw\": {\n" +
			"      \"command\": \"/opt/tap/tapgw\",\n      \"args\": [\"mcp\"]\n    }\n  },\n}\n"},
}

func TestInstallAndUninstall(t *testing.T) {
	for _, tc := range installCases {
		if filepath.Base(tc.file) == "mcp.json" && os.PathSeparator == '/' &&
			tc.client == "vscode" {
			if _, err := os.Stat("/System/Library"); err == nil {
				tc.file = "Library/Application Support/Code/User/mcp.json"
			}
		}
		path := filepath.Join(home(t), tc.file)
		write(t, path, tc.was)
		if ch := install(t, tc.client, tc.server, ""); ch.Kind != Added || ch.File != path {
			t.Errorf("%s: %s in %s, want %s in %s", tc.client, ch.Kind, ch.File, Added, path)
		}
		if got := content(t, path); got != tc.want {
			t.Errorf("%s: installed\n got %q\nwant %q", tc.client, got, tc.want)
		}
		if ch := install(t, tc.client, tc.server, ""); ch.Kind != None {
			t.Errorf("%s: a second installation is %s, want %s", tc.client, ch.Kind, None)
		}
		if ch := uninstall(t, tc.client, ""); ch.Kind != Removed {
			t.Errorf("%s: uninstalled: %s, want %s", tc.client, ch.Kind, Removed)
		}
		if got := content(t, path); got != tc.was {
			t.Errorf("%s: uninstalled\n got %q\nwant %q", tc.client, got, tc.was)
		}
		if ch := uninstall(t, tc.client, ""); ch.Kind != None {
			t.Errorf("%s: uninstalled again: %s, want %s", tc.client, ch.Kind, None)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: the file has mode %v, %v, want 0640", tc.client, info.Mode(), err)
		}
	}
}

// TestNewFile wants the file to be gone after an installation that made it, for each client, user
// and project.
func TestNewFile(t *testing.T) {
	for _, name := range Names() {
		for _, project := range []string{"", t.TempDir()} {
			home(t)
			ch := install(t, name, stdio, project)
			info, err := os.Stat(ch.File)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: the new file: %v, %v, want mode 0600", name, info, err)
			}
			install(t, name, pinned, project)
			uninstall(t, name, project)
			if _, err := os.Lstat(ch.File); !os.IsNotExist(err) {
				t.Errorf("%s: after uninstall: %v, want no file", name, err)
			}
		}
	}
}

// TestUpdate wants what the user has added to our entry to stay.
func TestUpdate(t *testing.T) {
	for _, tc := range []struct{ client, file, was, want, gone string }{
		{"gemini", ".gemini/settings.json",
			"{\"mcpServers\": {\n  \"tapgw\": {\"command\": \"/old/tapgw\", \"args\": [\"mcp\"], \"trust\": true, " +
				"\"env\": {\"A\": \"b\", \"COPILOT_HOME\": \"/x\"}},\n  \"z\": {}\n}}",
			"{\"mcpServers\": {\n  \"tapgw\": { \"command\": \"/opt/tap/tapgw\", \"args\": [\"mcp\"], " +
				"\"env\": { \"A\": \"b\" }, \"trust\": true },\n  \"z\": {}\n}}",
			"{\"mcpServers\": {\n  \"z\": {}\n}}"},
		{"codex", ".codex/config.toml",
			"# top\n\n[mcp_servers.tapgw] # ours\nurl = \"http://x/mcp\"\ntool_timeout_sec = 9 # slow\n" +
				"bearer_token_env_var = \"T\"\n\n[mcp_servers.tapgw.tools.x]\na = 1\n\n[b]\n",
			"# top\n\n[mcp_servers.tapgw]\ncommand = \"/opt/tap/tapgw\"\nargs = [\"mcp\"]\ntool_timeout_sec = 9" +
				"\n\n[mcp_servers.tapgw.tools.x]\na = 1\n\n[b]\n",
			"# top\n\n[b]\n"},
		{"codex", ".codex/config.toml",
			"[mcp_servers.tapgw]\ncommand = \"tapgw\"\nargs = [\"mcp\"]\n\n[mcp_servers.tapgw.env]\nCOPILOT_HOME = \"/x\"\nA = \"b\"\n",
			"[mcp_servers.tapgw]\ncommand = \"/opt/tap/tapgw\"\nargs = [\"mcp\"]\nenv = { A = \"b\" }\n", ""},
	} {
		path := filepath.Join(home(t), tc.file)
		write(t, path, tc.was)
		if ch := install(t, tc.client, stdio, ""); ch.Kind != Updated {
			t.Errorf("%s: %s, want %s", tc.client, ch.Kind, Updated)
		}
		if got := content(t, path); got != tc.want {
			t.Errorf("%s: updated\n got %q\nwant %q", tc.client, got, tc.want)
		}
		if ch := install(t, tc.client, stdio, ""); ch.Kind != None {
			t.Errorf("%s: updated again: %s, want %s", tc.client, ch.Kind, None)
		}
		uninstall(t, tc.client, "")
		if got, _ := os.ReadFile(path); string(got) != tc.gone {
			t.Errorf("%s: uninstalled\n got %q\nwant %q", tc.client, got, tc.gone)
		}
	}
}

// TestRefused wants a file that can't be edited to stay as it is, and an error with the file and
// the place.
func TestRefused(t *testing.T) {
	for _, tc := range []struct{ client, text, want string }{
		{"cursor", "{\n  \"mcpServers\": {,}\n}",
			"2:18: is not JSON: invalid character ',' at start of value"},
		{"cursor", "{\"a\": \"sk-123\x1b\"}", "1:7: is not JSON: invalid string, number or word"},
		{"cursor", "", "1:1: is empty: write {} into it, or remove it"},
		{"cursor", "[]", "1:1: must be an object: { … }"},
		{"cursor", "{\"mcpServers\": []}", "1:16: mcpServers must be an object: { … }"},
		{"cursor", "{\"mcpServers\": {},\n\"mcpServers\": {}}",
			"2:1: has \"mcpServers\" twice: remove one of them"},
		{"cursor", "{\"mcpServers\": {\"tapgw\": {}, \"tapgw\": {}}}",
			"1:30: has \"tapgw\" twice: remove one of them"},
		{"cursor", "{\"mcpServers\": {\n \"tapgw\": {\"command\": \"npx\"}}}",
			"2:2: the entry tapgw is not the gateway's, it runs \"npx\": rename or remove it"},
		{"cursor", "{\"mcpServers\": {\"tapgw\": 1}}",
			"1:26: the entry tapgw must be an object: { … }"},
		{"cursor", "{\"a\": " + strings.Repeat("[", maxNesting) + "}",
			"1:100006: is nested more than 100000 deep"},
		{"codex", "a = 1\nb = = 2\n", "2:5: is not TOML"},
		{"codex", "mcp_servers = { a = { command = \"x\" } }\n",
			"1:1: mcp_servers is an inline table: write its entries as tables with headers, [mcp_servers.NAME]"},
		{"codex", "a = 1\nmcp_servers = 1\n",
			"2:1: mcp_servers must be a table: [mcp_servers.NAME]"},
		{"codex", "[mcp_servers]\ntapgw = { command = \"tapgw\", args = [\"mcp\"] }\n",
			"2:1: write the entry tapgw as a table with a header, or remove it: [mcp_servers.tapgw]"},
		{"codex", "[mcp_servers.tapgw]\ncommand = \"npx\"\n",
			"1:1: the entry tapgw is not the gateway's, it runs \"npx\": rename or remove it"},
	} {
		dir := home(t)
		path := filepath.Join(
			dir,
			map[string]string{"cursor": ".cursor/mcp.json",
				"codex": ".codex/config.toml"}[tc.client],
		)
		write(t, path, tc.text)
		c, _ := Find(tc.client)
		_, err := c.Install(stdio, "")
		if _, ok := errors.AsType[configs.Fault](err); !ok ||
			!strings.HasPrefix(err.Error(), path+":"+tc.want) ||
			strings.Contains(err.Error(), "sk-") {
			t.Errorf("%q:\n got %v\nwant %s:%s", tc.text, err, path, tc.want)
		}
		if got := content(t, path); got != tc.text {
			t.Errorf("the file is now %q, want %q", got, tc.text)
		}
	}
}

func TestLinks(t *testing.T) {
	dir := home(t)
	target := filepath.Join(dir, "dotfiles", "cursor.json")
	write(t, target, "{}\n")
	link := filepath.Join(dir, ".cursor", "mcp.json")
	if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../dotfiles/cursor.json", link); err != nil {
		t.Fatal(err)
	}
	install(t, "cursor", stdio, "")
	if got := content(t, target); !strings.Contains(got, "tapgw") {
		t.Errorf("the link's target is %q, want the entry in it", got)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is %v, %v, want a link still", info, err)
	}

	// A project's files must not lead out of it.
	project := filepath.Join(dir, "project")
	if err := os.MkdirAll(project, 0o700); err != nil {
		t.Fatal(err)
	}
	c, _ := Find("cursor")
	for _, link := range []struct{ name, target string }{
		{".cursor", filepath.Join(dir, "dotfiles")},
		{".cursor/mcp.json", filepath.Join(dir, "new.json")},
	} {
		path := filepath.Join(project, link.name)
		if err := os.RemoveAll(filepath.Join(project, ".cursor")); err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(link.target, path); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Install(stdio, project); err == nil ||
			!strings.Contains(err.Error(), "leads out of the project") {
			t.Errorf("%s is a link: %v, want that it leads out of the project", link.name, err)
		}
	}
}

func TestWriteRefuses(t *testing.T) {
	path := filepath.Join(home(t), ".cursor", "mcp.json")
	write(t, path, "{}")
	c, _ := Find("cursor")
	ch, err := c.Install(stdio, "")
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, "{\"mcpServers\": {}}")
	if err := ch.Write(); err == nil || !strings.Contains(err.Error(), "changed meanwhile") {
		t.Errorf("writing over another program's change: %v, want that it was changed meanwhile",
			err)
	}
	if got := content(t, path); got != "{\"mcpServers\": {}}" {
		t.Errorf("the file is %q, want the other program's", got)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("beside the file are %v, %v, want nothing", entries, err)
	}
}

// TestDiffHidesSecrets wants the diff to have the entry, and none of the strings around it.
func TestDiffHidesSecrets(t *testing.T) {
	path := filepath.Join(home(t), ".cursor", "mcp.json")
	for _, text := range []string{
		"{\n  \"mcpServers\": {\n    \"a\": {\n      \"env\": {\"KEY\": \"sk-123\"},\n      \"args\": [\"sk-\\\"456\"]\n    }\n  }\n}",
		`{"mcpServers":{"a":{"env":{"KEY":"sk-123"}}}}`,
	} {
		write(t, path, text)
		c, _ := Find("cursor")
		ch, err := c.Install(stdio, "")
		if err != nil {
			t.Fatal(err)
		}
		d := ch.Diff()
		got := d.String()
		if strings.Contains(got, "sk-") || !strings.Contains(got, `"command": "/opt/tap/tapgw"`) {
			t.Errorf("the diff is\n%s\nwant the command in it, and no sk-", got)
		}
	}
}

func TestFindsTheFileWithTheEntry(t *testing.T) {
	dir := filepath.Join(home(t), ".config", "opencode")
	write(t, filepath.Join(dir, "opencode.jsonc"), "{}")
	if ch := install(t, "opencode", stdio, ""); filepath.Base(ch.File) != "opencode.jsonc" {
		t.Errorf("installed in %s, want opencode.jsonc, the file that is there", ch.File)
	}
	write(t, filepath.Join(dir, "opencode.json"), "{}")
	if ch := install(t, "opencode", pinned, ""); filepath.Base(ch.File) != "opencode.jsonc" ||
		ch.Kind != Updated {
		t.Errorf("%s in %s, want %s in opencode.jsonc, which has the entry", ch.Kind, ch.File,
			Updated)
	}
	if ch := uninstall(t, "opencode", ""); filepath.Base(ch.File) != "opencode.jsonc" ||
		ch.Kind != Removed {
		t.Errorf("%s in %s, want %s in opencode.jsonc", ch.Kind, ch.File, Removed)
	}
}

func TestClientsHomes(t *testing.T) {
	dir := home(t)
	for name, variable := range map[string]string{
		"copilot": "COPILOT_HOME", "claude": "CLAUDE_CONFIG_DIR", "codex": "CODEX_HOME",
		"gemini": "GEMINI_CLI_HOME", "opencode": "XDG_CONFIG_HOME",
	} {
		elsewhere := t.TempDir()
		t.Setenv(variable, elsewhere)
		if ch := install(t, name, stdio, ""); !strings.HasPrefix(ch.File, elsewhere) {
			t.Errorf("%s with %s: wrote %s, want it below %s", name, variable, ch.File, elsewhere)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the home directory has %v, %v, want nothing", entries, err)
	}
}
