package configs

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// Permissions is the table [copilot.permissions]: what a Copilot session may do. Each kind is set to [Allow],
// [Deny] or [Ask]; Read may also be [CWD]. A pattern that denies wins over one that allows, and both win over the
// kind. An empty kind means its default; see [Permissions.WithDefaults].
type Permissions struct {
	Shell, Write, Read, URL, MCP, CustomTool, Memory, Hook string

	AllowCommands, DenyCommands     []string // words that a command begins with; see package shellrule
	AllowReadPaths, AllowWritePaths []string // globs
	DenyPaths                       []string // globs, for reads and writes
	AllowURLs, DenyURLs             []string // [SCHEME://]HOST[:PORT][/PATH]
}

// Values of a permission, of the kinds of [Permissions]. [CWD] is for reads only. [Ask] shows a person the question and
// waits for the answer up to [Copilot].AnswerTimeout.
const (
	Allow = "allow"
	Deny  = "deny"
	Ask   = "ask" // ask a person, who has answer_timeout to answer
	CWD   = "cwd" // allow reads inside the session's working directory, deny others
)

// WithDefaults returns p with the default of each kind that p leaves empty: the session may read inside its working
// directory and call the tools of its providers, whose own gates decide. Everything else is denied. This is the only
// place that holds these defaults.
func (p Permissions) WithDefaults() Permissions {
	p.Shell = cmp.Or(p.Shell, Deny)
	p.Write = cmp.Or(p.Write, Deny)
	p.Read = cmp.Or(p.Read, CWD)
	p.URL = cmp.Or(p.URL, Deny)
	p.MCP = cmp.Or(p.MCP, Deny)
	p.CustomTool = cmp.Or(p.CustomTool, Allow)
	p.Memory = cmp.Or(p.Memory, Deny)
	p.Hook = cmp.Or(p.Hook, Deny)
	return p
}

func (p *Permissions) read(t *table) {
	either := oneOf(Allow, Deny, Ask)
	for _, k := range []struct {
		key  string
		into *string
	}{
		{"shell", &p.Shell}, {"write", &p.Write}, {"url", &p.URL}, {"mcp", &p.MCP}, {"custom-tool", &p.CustomTool},
		{"memory", &p.Memory}, {"hook", &p.Hook},
	} {
		t.str(k.key, k.into, either)
	}
	t.str("read", &p.Read, oneOf(CWD, Allow, Deny, Ask))
	t.strs("allow_commands", &p.AllowCommands, isCommandPattern)
	t.strs("deny_commands", &p.DenyCommands, isDeniedCommand)
	t.strs("allow_read_paths", &p.AllowReadPaths, isMatchingPath)
	t.strs("allow_write_paths", &p.AllowWritePaths, isMatchingPath)
	t.strs("deny_paths", &p.DenyPaths, isMatchingPath)
	t.strs("allow_urls", &p.AllowURLs, isMatchingURL)
	t.strs("deny_urls", &p.DenyURLs, isMatchingURL)
	t.rejectUnknown()
}

func isCommandPattern(s string) error {
	if err := foreignNotation(s, forCommands); err != nil {
		return err
	}
	if strings.TrimSpace(s) == "" || strings.ContainsAny(s, "\n\r\x00;&|<>`$\"'\\") {
		return fmt.Errorf(`%q is not the words that one command begins with, such as "git log" or "go test *"`, s)
	}
	return nil
}

func isPathPattern(s string) error {
	if s == "" || strings.ContainsAny(s, "\n\r\x00") || !doublestar.ValidatePattern(s) {
		return fmt.Errorf(`%q is not a glob of paths, such as "src/**" or "~/notes/*.md"`, s)
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == ".." {
			return fmt.Errorf("%q: .. leads out of what the rest says: write the path that is meant", s)
		}
	}
	return nil
}
