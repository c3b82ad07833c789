package configs

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Permissions is the table [copilot.permissions]: the actions that a Copilot session may take. Each
// kind is set to [Allow], [Deny] or [Ask]; Read may also be [CWD]. A pattern that denies wins over
// one that allows, and both win over the kind. An empty kind means its default; see
// [Permissions.WithDefaults].
type Permissions struct {
	Shell      string `toml:"shell" of:"allow,deny,ask" default:"deny"`
	Write      string `toml:"write" of:"allow,deny,ask" default:"deny"`
	URL        string `toml:"url" of:"allow,deny,ask" default:"deny"`
	MCP        string `toml:"mcp" of:"allow,deny,ask" default:"deny"`
	CustomTool string `toml:"custom-tool" of:"allow,deny,ask" default:"allow"`
	Memory     string `toml:"memory" of:"allow,deny,ask" default:"deny"`
	Hook       string `toml:"hook" of:"allow,deny,ask" default:"deny"`
	Read       string `toml:"read" of:"cwd,allow,deny,ask" default:"cwd"`

	// Words that a command begins with; see package shellrule.
	AllowCommands []string `toml:"allow_commands" is:"command"`
	DenyCommands  []string `toml:"deny_commands" is:"deniedCommand"`
	// Globs. DenyPaths holds for reads and writes.
	AllowReadPaths  []string `toml:"allow_read_paths" is:"path"`
	AllowWritePaths []string `toml:"allow_write_paths" is:"path"`
	DenyPaths       []string `toml:"deny_paths" is:"path"`
	// [SCHEME://]HOST[:PORT][/PATH]
	AllowURLs []string `toml:"allow_urls" is:"urlPattern"`
	DenyURLs  []string `toml:"deny_urls" is:"urlPattern"`
}

// Values of a permission, of the kinds of [Permissions]. [CWD] is for reads only. [Ask] shows a
// person the question and waits for the answer up to [Copilot].AnswerTimeout.
const (
	Allow = "allow"
	Deny  = "deny"
	Ask   = "ask" // ask a person, who has answer_timeout to answer
	CWD   = "cwd" // allow reads inside the session's working directory, deny others
)

// WithDefaults returns p with the default of each kind that p leaves empty: the session may read
// inside its working directory and call the tools of its providers, whose own gates decide.
// Everything else is denied.
func (p Permissions) WithDefaults() Permissions {
	setDefaults(reflect.ValueOf(&p).Elem())
	return p
}

func isCommandPattern(s string) error {
	if err := foreignNotation(s, forCommands); err != nil {
		return err
	}
	if strings.TrimSpace(s) == "" || strings.ContainsAny(s, "\n\r\x00;&|<>`$\"'\\") {
		return fmt.Errorf(
			`%q is not the words that one command begins with, such as "git log" or "go test *"`, s)
	}
	return nil
}

func isPathPattern(s string) error {
	if s == "" || strings.ContainsAny(s, "\n\r\x00") || !doublestar.ValidatePattern(s) {
		return fmt.Errorf(`%q is not a glob of paths, such as "src/**" or "~/notes/*.md"`, s)
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == ".." {
			return fmt.Errorf(
				"%q: .. leads out of what the rest says: write the path that is meant", s)
		}
	}
	return nil
}
