package mcpclients

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"tapgw/configs"
)

var (
	stdio  = Server{Command: []string{"/opt/tap/tapgw", "mcp"}}
	pinned = Server{Command: []string{"/usr/bin/tapgw", "mcp", "--session", "a b"},
		Env: map[string]string{"COPILOT_HOME": "/tmp/ü\"\\"}}
	remote = Server{URL: "http://127.0.0.1:9400/mcp", TokenEnv: "TAP_MCP_TOKEN"}
)

// checkText installs into a text and uninstalls again, for each client of a format. Whatever the
// text is, it must be refused or come back byte for byte, and nothing but the entry may differ
// while it is there.
func checkText(t *testing.T, text []byte, wants func(Client) bool) {
	t.Helper()
	for _, c := range clients {
		if !wants(c) {
			continue
		}
		if entry, _, _ := c.split(text); entry != nil {
			continue
		}
		with, err := c.format.put(text, c.container, c.entryOf(stdio, ""))
		if err != nil {
			checkFault(t, err)
			continue
		}
		same, err := c.format.put(with, c.container, c.entryOf(stdio, ""))
		if err != nil || !bytes.Equal(same, with) {
			t.Fatalf("%s: a second installation into %q\n got %q, %v\nwant %q", c.Name, text, same,
				err, with)
		}
		for _, s := range []Server{pinned, remote, stdio} { // updates in place
			if s.URL != "" && !c.HasVariables() {
				continue
			}
			if err := new(Change).compare(c, text, with); err != nil {
				t.Fatalf("%s: installed into %q: %v\n%q", c.Name, text, err, with)
			}
			got, err := c.format.remove(with, c.container)
			if err != nil || !bytes.Equal(got, text) || (got == nil) != (text == nil) {
				t.Fatalf("%s: after install and uninstall: %v\n got %q\nwant %q\nfrom %q", c.Name,
					err, got, text, with)
			}
			if with, err = c.format.put(with, c.container, c.entryOf(s, "")); err != nil {
				t.Fatalf("%s: updating the entry in %q: %v", c.Name, with, err)
			}
			want := fmt.Sprint(any(c.entryOf(s, "").all().values()))
			if got := fmt.Sprint(entryIn(t, c, with)); got != want {
				t.Fatalf("%s: the entry is %s, want %s", c.Name, got, want)
			}
		}
	}
}

func entryIn(t *testing.T, c Client, text []byte) any {
	t.Helper()
	entry, _, err := c.split(text)
	if err != nil {
		t.Fatalf("%s: %q: %v, want no error", c.Name, text, err)
	}
	return entry
}

func checkFault(t *testing.T, err error) {
	t.Helper()
	if f, ok := errors.AsType[configs.Fault](err); !ok || f.Line < 1 || f.Column < 1 ||
		f.Message == "" {
		t.Fatalf("the error is %#v, want a configs.Fault with line and column", err)
	}
}

func isTOML(c Client) bool { return c.format == format(tomlFormat{}) }
func isJSON(c Client) bool { return !isTOML(c) }

func FuzzJSON(f *testing.F) {
	for _, text := range []string{
		`{}`, "{}\n", "{ }", "{\n}\n", `{"mcpServers":{}}`, "{\n\t\"mcpServers\": {\n\t}\n}",
		`{"a":1}`,
		`{"mcpServers":{"a":{"command":"x"}},"mcp":{"a":{}},"servers":{"a":{}},"context_servers":{"a":{}}}`,
		"{\r\n  \"a\": 1, // c\r\n}\r\n", "// top\n{\"a\": [1, 2,], /* b */}\n// end",
		"{\n  \"mcpServers\": {\n    \"a\": {\"x\": 1} // last\n  },\n  \"z\": \"{\"\n}",
		"{\"mcpServers\": { /* none */ }}",
		"{\n \"mcp\": {\n  // none\n },\n}", "{\"a\" /*1*/ : /*2*/ 1 /*3*/ , /*4*/ }", "", "[]",
		"{", `{"mcp":1}`,
		`{"mcp":{},"mcp":{}}`, "{\"\u2028\": 1} //", "{\"a\":1}\r", "{//\n}",
		"{\"a\":1//\n\r\n,//x\n}",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { checkText(t, text, isJSON) })
}

func FuzzTOML(f *testing.F) {
	for _, text := range []string{
		"", "\n", "model = \"x\"", "model = \"x\"\n", "a = 1\r\n", "a = 1\r\nb = 2", "# c",
		"[mcp_servers]\n",
		"[mcp_servers.a]\ncommand = \"x\"\n\n[mcp_servers.a.env]\nB = \"1\"\n",
		"mcp_servers = {}\n", "mcp_servers.a.b = 1\n",
		"s = '''\n[mcp_servers.tapgw]\n'''\n", "a = [\n[1],\n]\n", "[[mcp_servers]]\n",
		"[x]\n[[y]]\nz = 1\n[[y]]", "a = ", "mcp_servers = 1", "[mcp_servers]\ntapgw = {}\n",
		"\r\n", "a = 1 \n \n", "d = 1979-05-27 # x\n", "a=nan\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { checkText(t, text, isTOML) })
}
