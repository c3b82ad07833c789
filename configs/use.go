package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"tapgw/internal/shellrule"
)

// Entries of a file that can be read and can't work, because a program can't run or a rule never
// holds. Programs come and go while a file says the same, so reading the file does not find them.

// faultsIn returns the faults that find adds to a file.
func faultsIn(file string, data []byte, find func(root *table)) Faults {
	doc, root := open(file, data)
	if root != nil {
		find(root)
	}
	return doc.sorted()
}

// checkUse returns the faults of a tapgw.toml without others: hooks whose program can't run, and
// permission rules that never hold. The gateway takes such a file; only tapgw config check shows
// the faults of rules.
func checkUse(file string, data []byte, c Config) Faults {
	return faultsIn(file, data, func(root *table) {
		p := c.Copilot.Permissions
		checkRules(root, "allow_commands", p.AllowCommands, func(s string) error {
			line := strings.ReplaceAll(s, "*", "x")
			if !shellrule.Allows([]shellrule.Rule{shellrule.Begins(s)}, line) {
				return errors.New("never holds: " +
					"a rule can't allow any command behind a program that runs others; name it")
			}
			for _, deny := range p.DenyCommands {
				// With a star the rule allows many lines: only the same words deny them all.
				if deny == s || !strings.Contains(s, "*") &&
					shellrule.Denies([]string{deny}, line) {
					return fmt.Errorf("never holds: deny_commands has %q, which counts first", deny)
				}
			}
			return nil
		})
		checkDenied(root, "allow_read_paths", p.AllowReadPaths, "deny_paths", p.DenyPaths)
		checkDenied(root, "allow_write_paths", p.AllowWritePaths, "deny_paths", p.DenyPaths)
		checkDenied(root, "allow_urls", p.AllowURLs, "deny_urls", p.DenyURLs)
		checkHookPrograms(root, c)
	})
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
	if !root.table("copilot").table("permissions").has(key) {
		return
	}
	for i, rule := range rules {
		if err := check(rule); err != nil {
			root.fault(fmt.Sprintf("copilot.permissions.%s.[%d]", key, i), "%q: %w", rule, err)
		}
	}
}

// checkHookPrograms reports [[hooks]] whose program is named by its path and can't run: such a hook
// can't be asked, and denies.
func checkHookPrograms(root *table, c Config) {
	for i, h := range c.Hooks {
		if len(h.Command) == 0 || !filepath.IsAbs(h.Command[0]) {
			continue
		}
		if _, err := runnable(h.Command[0]); err != nil {
			root.fault(fmt.Sprintf("hooks.[%d].command", i), "%w", err)
		}
	}
}

// checkProviderUse returns the faults of a provider file without others: a program that exists but
// can't run, and globs in allow that deny repeats.
func checkProviderUse(file string, data []byte, p Provider) Faults {
	return faultsIn(file, data, func(root *table) {
		for i, glob := range p.Rules.Allow {
			if slices.Contains(p.Rules.Deny, glob) || slices.Contains(p.Rules.Deny, "*") {
				root.fault(fmt.Sprintf("allow.[%d]", i), "%q: never holds: deny covers it", glob)
			}
		}
		if len(p.Command) > 0 && filepath.IsAbs(p.Command[0]) {
			if exists, err := runnable(p.Command[0]); err != nil && exists {
				root.fault("command", "%w", err)
			}
		}
	})
}

// runnable returns an error with advice if a file can't be run.
func runnable(path string) (exists bool, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("there is no file %s", path)
	case err != nil:
		return false, err
	case info.IsDir():
		return true, fmt.Errorf("%s is a directory; name the program", path)
	case runtime.GOOS != "windows" && info.Mode()&0o111 == 0:
		return true, fmt.Errorf("%s has no run bit: chmod +x %s", path, path)
	}
	return true, nil
}

// HookPrograms returns the faults of programs of [[hooks]] in the files that count: programs that
// are missing or can't be run. It leaves out files with other faults, which [Files.Load] reports.
func (f Files) HookPrograms() Faults { return f.faultsOf(checkHookPrograms) }

// DeadRules returns faults for rules of the files that can never apply: patterns of
// [copilot.permissions] that match no action, or allow only actions that the same file denies.
func (f Files) DeadRules() Faults { return f.faultsOf(checkDeadRules) }

// faultsOf returns the faults that find adds to each file that counts and has no other fault: the
// project's file and the user's file.
func (f Files) faultsOf(find func(root *table, c Config)) (faults Faults) {
	for _, file := range []string{f.Project, f.User} {
		if file == "" || file == f.Project && !f.Trusted {
			continue
		}
		if data, err := readFile(file); err == nil {
			c := Default()
			if found := c.parse(file, data, file == f.Project, &[]layer{}); len(found) == 0 {
				faults = append(faults, faultsIn(file, data, func(root *table) {
					find(root, c)
				})...)
			}
		}
	}
	return faults
}

func checkDeadRules(root *table, c Config) {
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
			key := fmt.Sprintf("copilot.permissions.%s.[%d]", allow.key, i)
			switch {
			case allow.isDenied(pattern):
				root.fault(key, "%q allows nothing: %s denies all of it, and a denial wins",
					pattern, allow.deny)
			case allow.key == "allow_commands" && shellrule.Begins(pattern).IsVoid():
				root.fault(key, "%q allows nothing: with a * it must be plain words of one command",
					pattern)
			}
		}
	}
}
