package configs

import (
	"reflect"
	"strings"
	"testing"
)

func TestParseMCP(t *testing.T) {
	want := map[string]MCPServer{
		"files": {Command: []string{"npx", "-y", "files"}, Env: map[string]string{"A": "b"},
			Dir: "{workspace}/x"},
		"web": {URL: "https://tools.example/mcp"},
	}
	const servers = `{"files":{"type":"stdio","command":"npx","args":["-y","files"],"env":{"A":"b"},"cwd":"{workspace}/x"},
		"web":{"url":"https://tools.example/mcp"}}`
	for _, text := range []string{
		servers, `{"mcpServers":` + servers + `}`, `{"servers":` + servers + `}`,
		strings.Replace(servers, `"command":"npx","args":["-y","files"]`,
			`"command":["npx","-y","files"]`, 1),
	} {
		got, err := ParseMCP([]byte(text))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v %v, want %+v", text, got, err, want)
		}
	}
	for text, says := range map[string]string{
		`[]`:                                   "is not a JSON object of MCP servers",
		`{"mcpServers":[]}`:                    "mcpServers is not an object of MCP servers",
		`{"a":{}}`:                             `server "a": needs either command or url`,
		`{"a":{"command":"x","url":"http:/"}}`: `server "a": needs either command or url`,
		`{"a":{"url":"ftp://x"}}`:              `server "a": url is not an http or https URL`,
		`{"a":{"command":1}}`:                  `server "a": command must be a program`,
		`{"a":{"command":""}}`:                 `server "a": command must be the name of a program`,
		`{"a":{"command":"x","envs":{}}}`:      `server "a": unknown field "envs"`,
		`{"a":{"command":"x","env":{"=":""}}}`: `server "a": env: "=" is not the name`,
		`{"a b":{"command":"x"}}`:              `server "a b": is not a server's name`,
		`{"a":{"command":"x\u0000"}}`:          `server "a": `,
	} {
		if _, err := ParseMCP([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}

func TestMCPServerInWorkspace(t *testing.T) {
	s := MCPServer{Command: []string{"x", "--root={workspace}"},
		Env: map[string]string{"R": "{workspace}"}, Dir: "{workspace}/sub"}
	got := s.In("/w")
	want := MCPServer{Command: []string{"x", "--root=/w"}, Env: map[string]string{"R": "/w"},
		Dir: "/w/sub"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if s.Command[1] != "--root={workspace}" || s.Env["R"] != "{workspace}" {
		t.Errorf("the original has changed: %+v", s)
	}
}

func FuzzParseMCP(f *testing.F) {
	f.Add([]byte(`{"mcpServers":{"a":{"command":"x","args":["y"],"env":{"A":"b"}}}}`))
	f.Add([]byte(`{"a":{"url":"http://x"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		servers, err := ParseMCP(data)
		if err != nil {
			return
		}
		for name, s := range servers {
			if err := s.validate(name); err != nil {
				t.Errorf("took %q: %v", name, err)
			}
		}
	})
}
