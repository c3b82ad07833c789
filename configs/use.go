package configs

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"tapgw/internal/shellrule"
)

// checkUse returns the faults of a tapgw.toml that can be read but has entries that can't
// work: hooks whose program can't run, and permission rules that never hold. The gateway
// takes such a file; only tapgw config check shows the faults of rules.
func checkUse(file string, data []byte, c Config) Faults {
	doc, root := open(file, data)
	if root == nil {
		return doc.faults
	}
	p := c.Copilot.Permissions
	checkRules(root, "allow_commands", p.AllowCommands, func(s string) error {
		line := strings.ReplaceAll(s, "*", "x")
		if !shellrule.Allows([]shellrule.Rule{shellrule.Begins(s)}, line) {
			return errors.New("never holds: a rule can't allow any command behind a program that runs others; name it")
		}
		for _, deny := range p.DenyCommands {
			// With a star the rule allows many lines: only the same words deny them all.
			if deny == s || !strings.Contains(s, "*") && shellrule.Denies([]string{deny}, line) {
				return fmt.Errorf("never holds: deny_commands has %q, which counts first", deny)
			}
		}
		return nil
	})
	checkDenied(root, "allow_read_paths", p.AllowReadPaths, "deny_paths", p.DenyPaths)
	checkDenied(root, "allow_write_paths", p.AllowWritePaths, "deny_paths", p.DenyPaths)
	checkDenied(root, "allow_urls", p.AllowURLs, "deny_urls", p.DenyURLs)
	return append(doc.sorted(), hookPrograms(file, data, c.Hooks)...)
}

// checkDenied reports the rules that denyKey repeats.
func checkDenied(root *table, key string, rules []string, denyKey string, denials []string) {
	checkRules(root, key, rules, func(rule string) error {
		if slices.Contains(denials, rule) {
			return fmt.Errorf("never holds: %s has it, too, and counts first", denyKey)
		}
		return nil
	})
}

// checkRules reports the rules of a key of [copilot.permissions] for which check has an
// error. A rule that the file itself does not have is another file's.
func checkRules(root *table, key string, rules []string, check func(string) error) {
	permissions := root.table("copilot").table("permissions")
	if permissions == nil || !permissions.has(key) {
		return
	}
	for i, rule := range rules {
		if err := check(rule); err != nil {
			path := toml.Key{"copilot", "permissions", key, element(i)}
			root.faultAt(path, fmt.Sprintf("%s: %q", pathText(path), rule), err)
		}
	}
}

// checkProviderUse returns the faults of a provider file that can be read but has entries
// that can't work: a program that can't run, and globs in allow that deny repeats.
func checkProviderUse(file string, data []byte, p Provider) Faults {
	doc, root := open(file, data)
	if root == nil {
		return doc.faults
	}
	for i, glob := range p.Rules.Allow {
		if slices.Contains(p.Rules.Deny, glob) || slices.Contains(p.Rules.Deny, "*") {
			path := toml.Key{"allow", element(i)}
			root.faultAt(path, fmt.Sprintf("%s: %q", pathText(path), glob), errors.New("never holds: deny covers it"))
		}
	}
	return slices.Concat(doc.sorted(), providerProgram(file, data, p))
}
