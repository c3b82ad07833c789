package copilot

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	sdk "github.com/github/copilot-sdk/go"

	"tapgw/configs"
	"tapgw/internal/git"
	"tapgw/internal/instructions"
	"tapgw/internal/visible"
)

// envInstructions names further directories with instructions, as for the runtime itself.
const envInstructions = "COPILOT_CUSTOM_INSTRUCTIONS_DIRS"

// instruct reads the session's instructions now and adds them as text. It keeps the runtime from
// reading instruction files itself, because the runtime follows links to every file that the user
// may read, at any time. faults name the files that are left out.
func instruct(
	c *sdk.SessionConfig, i configs.Instructions, home string, secrets []string,
) (faults []string) {
	c.SkipCustomInstructions, c.EnableOnDemandInstructionDiscovery = new(true), new(false)
	parts := []string{i.Organization}
	add := func(whose string, files []instructions.File, left []instructions.LeftOut) {
		for _, f := range files {
			parts = append(parts, fmt.Sprintf("Instructions of %s, from %s:\n\n%s", whose,
				visible.Line(f.Path), f.Text))
		}
		for _, l := range left {
			faults = append(faults, fmt.Sprintf("instructions: %s: left out: %s",
				visible.Line(l.Path), l.Reason))
		}
	}
	if i.Enabled {
		own, _ := filepath.Glob(filepath.Join(home, "instructions", "*.md"))
		for _, file := range append([]string{filepath.Join(home, "copilot-instructions.md")},
			own...) {
			files, left := instructions.User(file)
			add("the user", files, left)
		}
		cwd := filepath.Clean(c.WorkingDirectory)
		root := repositoryOf(cwd)
		read := func(whose, root, dir string) {
			files, left := instructions.Project(root, dir, secrets...)
			add(whose, files, left)
			for _, rules := range instructions.RulesDirs {
				files, left := instructions.RuleFiles(root, rules, secrets...)
				add(whose+" for the files that their applyTo or paths names", files, left)
			}
		}
		for _, dir := range slices.Concat(i.Directories,
			strings.FieldsFunc(os.Getenv(envInstructions), isComma)) {
			read("the user", dir, dir)
		}
		read("the project", root, cwd)
		if i.OnDemand {
			for _, name := range instructions.Nested(root, cwd) {
				parts = append(parts, "Before you work on files in the directory of "+
					visible.Line(filepath.Join(root, name))+", read these instructions for them.")
			}
		}
	}
	c.OrganizationCustomInstructions = pointerUnless(strings.Join(slices.DeleteFunc(parts,
		func(p string) bool {
			return p == ""
		}), "\n\n"), "")
	return faults
}

// repositoryOf returns the root of the repository that a directory is in. It returns the directory
// itself without a repository, and in another user's repository, which must not instruct this
// user's sessions.
func repositoryOf(cwd string) string {
	cwd = filepath.Clean(cwd)
	c, ok := git.Of(cwd)
	if !ok || !isOwn(c.Root) || !isOwn(filepath.Join(c.Root, ".git")) {
		return cwd
	}
	return c.Root
}

func isComma(r rune) bool { return r == ',' }

func isOwn(path string) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}
