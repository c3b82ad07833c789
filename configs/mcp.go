package configs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// MCPServer is a table [mcp.NAME]: an MCP server that the language server runs, or to which it
// connects. Command or URL is set, not both.
type MCPServer struct {
	Command []string          `toml:"command" first:"must be the name of a program" is:"noNUL"`
	Env     map[string]string `toml:"env" names:"env"`
	Dir     string            `toml:"cwd" is:"noNUL"` // its working directory; "": the workspace
	URL     string            `toml:"url" is:"http"`  // instead of Command
}

func (s *MCPServer) check(t *table) {
	if t.isGood("command") && t.isGood("url") && (len(s.Command) == 0) == (s.URL == "") {
		t.faultHere("needs either command or url")
	}
}

// ParseMCP reads MCP servers, by name, from JSON as editors write it: an object of servers, or one
// that has them as mcpServers or servers. A server has command, which is a program or a list with
// its arguments, args, env and cwd; or url. The error names the server and the key.
func ParseMCP(data []byte) (map[string]MCPServer, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("is not a JSON object of MCP servers: %w", err)
	}
	for _, key := range []string{"mcpServers", "servers"} {
		if inner, ok := all[key]; ok && len(all) == 1 {
			all = nil
			if err := json.Unmarshal(inner, &all); err != nil {
				return nil, fmt.Errorf("%s is not an object of MCP servers: %w", key, err)
			}
		}
	}
	servers := map[string]MCPServer{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		s, err := parseMCPServer(all[name])
		if err == nil {
			err = s.validate(name)
		}
		if err != nil {
			return nil, fmt.Errorf("server %q: %w", name, err)
		}
		servers[name] = s
	}
	return servers, nil
}

func parseMCPServer(data []byte) (s MCPServer, err error) {
	var in struct {
		Command json.RawMessage   `json:"command"`
		Args    []string          `json:"args"`
		Env     map[string]string `json:"env"`
		Dir     string            `json:"cwd"`
		URL     string            `json:"url"`
		Type    string            `json:"type"` // stdio, http: it follows from the other keys
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&in); err != nil {
		return s, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	s = MCPServer{Env: in.Env, Dir: in.Dir, URL: in.URL}
	var program string
	switch {
	case in.Command == nil:
	case json.Unmarshal(in.Command, &program) == nil:
		s.Command = []string{program}
	case json.Unmarshal(in.Command, &s.Command) != nil:
		return s, errors.New("command must be a program, or a list of it and its arguments")
	}
	s.Command = append(s.Command, in.Args...)
	return s, nil
}

// validate returns the first mistake of a server.
func (s MCPServer) validate(name string) error {
	if err := isServerName(name); err != nil {
		return err
	}
	if (len(s.Command) == 0) == (s.URL == "") {
		return errors.New("needs either command or url")
	}
	if len(s.Command) > 0 && s.Command[0] == "" {
		return errors.New("command must be the name of a program")
	}
	if s.URL != "" {
		if err := isHTTP(s.URL); err != nil {
			return fmt.Errorf("url %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		if !envName.MatchString(name) {
			return fmt.Errorf("env: %q is not the name of an environment variable", name)
		}
	}
	for _, text := range slices.Concat(s.Command, slices.Collect(maps.Values(s.Env)),
		[]string{s.Dir}) {
		if err := noNUL(text); err != nil {
			return err
		}
	}
	return nil
}

// In returns the server with the workspace's path in place of each {workspace} in its command,
// variables and working directory.
func (s MCPServer) In(workspace string) MCPServer {
	expand := func(text string) string { return strings.ReplaceAll(text, "{workspace}", workspace) }
	s.Command = slices.Clone(s.Command)
	for i := range s.Command {
		s.Command[i] = expand(s.Command[i])
	}
	s.Env = maps.Clone(s.Env)
	for name, value := range s.Env {
		s.Env[name] = expand(value)
	}
	s.Dir = expand(s.Dir)
	return s
}
