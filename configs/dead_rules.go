package configs

import (
	"fmt"
	"slices"

	"github.com/BurntSushi/toml"

	"tapgw/internal/shellrule"
)

// DeadRules are the rules of the files that count which can never hold: patterns of [copilot.permissions] that allow
// nothing, or nothing that the same file does not deny.
func (f Files) DeadRules() Faults { return f.faultsOf(deadRules) }

func deadRules(file string, data []byte, c Config) Faults {
	doc, root := open(file, data)
	if root == nil {
		return doc.faults
	}
	p := c.Copilot.Permissions
	denies := func(list []string) func(string) bool {
		return func(pattern string) bool { return slices.Contains(list, pattern) }
	}
	for _, allow := range []struct {
		key, deny string
		patterns  []string
		isDenied  func(pattern string) bool
	}{
		{"allow_commands", "deny_commands", p.AllowCommands,
			func(pattern string) bool { return shellrule.Denies(p.DenyCommands, pattern) }},
		{"allow_read_paths", "deny_paths", p.AllowReadPaths, denies(p.DenyPaths)},
		{"allow_write_paths", "deny_paths", p.AllowWritePaths, denies(p.DenyPaths)},
		{"allow_urls", "deny_urls", p.AllowURLs, denies(p.DenyURLs)},
	} {
		for i, pattern := range allow.patterns {
			path := toml.Key{"copilot", "permissions", allow.key, element(i)}
			switch {
			case allow.isDenied(pattern):
				root.faultAt(path, pathText(path),
					fmt.Errorf("%q allows nothing: %s denies all of it, and a denial wins", pattern, allow.deny))
			case allow.key == "allow_commands" && shellrule.Begins(pattern).IsVoid():
				root.faultAt(path, pathText(path),
					fmt.Errorf("%q allows nothing: with a * it must be plain words of one command", pattern))
			}
		}
	}
	return doc.sorted()
}
