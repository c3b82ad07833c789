// Package mcpclients reads and writes the config files in which MCP clients keep their servers. It
// edits a file's text and keeps everything but the gateway's own entry, byte for byte. It never
// touches a file that it can't parse.
package mcpclients

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// Client is an agent or editor that speaks MCP. [Find] returns one by its name.
type Client struct {
	Name      string
	format    format
	container string // the key that has the servers
	user      func(home string) []string
	project   []string
	entry     func(Server) entry
	// how the file names a variable's value, with NAME in place of the name; "": it can't
	variable string
}

// Server is how a client reaches the gateway: Command with Env, or else URL with the token in the
// variable TokenEnv of the client's environment.
type Server struct {
	Command  []string
	Env      map[string]string
	URL      string
	TokenEnv string
}

// format edits the text of a client's file. Nil stands for no file. A text has no byte order mark.
// The errors are of type configs.Fault, without a file.
type format interface {
	// put adds the entry, or updates it. It returns the text unchanged if the entry is up to date.
	put(text []byte, container string, e entry) ([]byte, error)
	// remove removes the entry, and restores the text from before put. Without an entry it returns
	// the text unchanged.
	remove(text []byte, container string) ([]byte, error)
	// values parses a text.
	values(text []byte) (map[string]any, error)
}

// clients are sorted by how many people use them, the most common first.
var clients = []Client{
	{
		Name: "copilot", container: "mcpServers", format: jsonFormat{},
		user: func(home string) []string {
			return []string{filepath.Join(envOr("COPILOT_HOME", home, ".copilot"),
				"mcp-config.json")}
		},
		project:  []string{".mcp.json"},
		entry:    func(s Server) entry { return s.typed("local", member{"tools", []string{"*"}}) },
		variable: "${NAME}",
	},
	{
		Name: "claude", container: "mcpServers", format: jsonFormat{},
		user: func(home string) []string {
			return []string{filepath.Join(envOr("CLAUDE_CONFIG_DIR", home), ".claude.json")}
		},
		project:  []string{".mcp.json"},
		entry:    func(s Server) entry { return s.typed("stdio") },
		variable: "${NAME}",
	},
	{
		Name: "vscode", container: "servers", format: jsonFormat{},
		user: func(home string) []string {
			dir := envOr("XDG_CONFIG_HOME", home, ".config")
			if runtime.GOOS == "darwin" {
				dir = filepath.Join(home, "Library", "Application Support")
			}
			return []string{filepath.Join(dir, "Code", "User", "mcp.json")}
		},
		project:  []string{".vscode/mcp.json"},
		entry:    func(s Server) entry { return s.typed("stdio") },
		variable: "${env:NAME}",
	},
	{
		Name: "cursor", container: "mcpServers", format: jsonFormat{},
		user: func(home string) []string {
			return []string{filepath.Join(home, ".cursor", "mcp.json")}
		},
		project:  []string{".cursor/mcp.json"},
		entry:    func(s Server) entry { return s.plain() },
		variable: "${env:NAME}",
	},
	{
		Name: "gemini", container: "mcpServers", format: jsonFormat{},
		user: func(home string) []string {
			return []string{filepath.Join(envOr("GEMINI_CLI_HOME", home), ".gemini",
				"settings.json")}
		},
		project: []string{".gemini/settings.json"},
		entry: func(s Server) entry {
			if s.URL != "" {
				return s.typed("")
			}
			return s.plain()
		},
		variable: "$NAME",
	},
	{
		Name: "codex", container: "mcp_servers", format: tomlFormat{},
		user: func(home string) []string {
			return []string{filepath.Join(envOr("CODEX_HOME", home, ".codex"), "config.toml")}
		},
		project:  []string{".codex/config.toml"},
		entry:    Server.codex,
		variable: "NAME",
	},
	{
		Name: "opencode", container: "mcp", format: jsonFormat{},
		user: func(home string) []string {
			dir := filepath.Join(envOr("XDG_CONFIG_HOME", home, ".config"), "opencode")
			return []string{filepath.Join(dir, "opencode.json"),
				filepath.Join(dir, "opencode.jsonc")}
		},
		project:  []string{"opencode.json", "opencode.jsonc"},
		entry:    Server.opencode,
		variable: "{env:NAME}",
	},
	{
		Name: "zed", container: "context_servers", format: jsonFormat{},
		user: func(home string) []string {
			dir := filepath.Join(home, ".config")
			if runtime.GOOS != "darwin" {
				dir = envOr("XDG_CONFIG_HOME", dir)
			}
			return []string{filepath.Join(dir, "zed", "settings.json")}
		},
		project: []string{".zed/settings.json"},
		entry:   func(s Server) entry { return s.plain() },
	},
}

// Names returns the names of all clients.
func Names() (names []string) {
	for _, c := range clients {
		names = append(names, c.Name)
	}
	return names
}

// Find returns the client of a name; ok is false if there is no such client.
func Find(name string) (c Client, ok bool) {
	i := slices.IndexFunc(clients, func(c Client) bool { return c.Name == name })
	if i < 0 {
		return Client{}, false
	}
	return clients[i], true
}

// HasVariables reports whether the client's file can take a header's value from a variable. If not,
// an entry with a URL would need the token itself.
func (c Client) HasVariables() bool { return c.variable != "" }

// envOr returns a variable's value, or else the path of the other elements.
func envOr(name string, path ...string) string {
	if dir := os.Getenv(name); dir != "" {
		if dir, err := filepath.Abs(dir); err == nil {
			return dir
		}
	}
	return filepath.Join(path...)
}

// files returns where the client looks for its servers: in a project's directory, or for the user
// if that is "".
func (c Client) files(project string) ([]string, error) {
	if project != "" {
		var files []string
		for _, name := range c.project {
			files = append(files, filepath.Join(project, filepath.FromSlash(name)))
		}
		return files, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, fmt.Errorf("finding %s's config file: %w", c.Name, err)
	}
	return c.user(home), nil
}

// entryOf returns the entry of a server in the user's or in a project's file. A project's .mcp.json
// has one form for all clients that read it.
func (c Client) entryOf(s Server, project string) entry {
	s.TokenEnv = strings.ReplaceAll(c.variable, "NAME", s.TokenEnv)
	if project != "" && c.project[0] == ".mcp.json" {
		return s.typed("stdio")
	}
	return c.entry(s)
}

func (s Server) variables() members {
	var list members
	for name, value := range s.Env {
		list = append(list, member{name, value})
	}
	slices.SortFunc(list, func(a, b member) int { return strings.Compare(a.key, b.key) })
	return list
}

const authorization = "Authorization"

func (s Server) headers() member {
	return member{"headers", members{{authorization, "Bearer " + s.TokenEnv}}}
}

// plain is command, args and env, or url and headers.
func (s Server) plain() entry {
	if s.URL != "" {
		return entry{needed: members{{"url", s.URL}, s.headers()}}
	}
	e := entry{needed: members{{"command", s.Command[0]}, {"args", s.Command[1:]}}}
	if len(s.Env) > 0 {
		e.needed = append(e.needed, member{"env", s.variables()})
	}
	return e
}

// typed is plain with a type, which is local for a command, or http.
func (s Server) typed(local string, defaults ...member) entry {
	e := s.plain()
	e.defaults = defaults
	if s.URL != "" {
		local = "http"
	}
	e.needed = slices.Insert(e.needed, 0, member{"type", local})
	return e
}

func (s Server) codex() entry {
	if s.URL != "" {
		return entry{needed: members{{"url", s.URL}, {"bearer_token_env_var", s.TokenEnv}}}
	}
	return s.plain()
}

func (s Server) opencode() entry {
	e := entry{defaults: members{{"enabled", true}}}
	if s.URL != "" {
		e.needed = members{{"type", "remote"}, {"url", s.URL}, s.headers()}
		return e
	}
	e.needed = members{{"type", "local"}, {"command", s.Command}}
	if len(s.Env) > 0 {
		e.needed = append(e.needed, member{"environment", s.variables()})
	}
	return e
}
