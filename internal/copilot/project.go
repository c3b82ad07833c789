package copilot

import (
	"os"
	"path/filepath"
	"slices"

	sdk "github.com/github/copilot-sdk/go"

	"tapgw/internal/git"
)

// The runtime reads files of the session's directory and of the repository around it, and starts
// programs that they name. Here is decided which of them count. docs/copilot.md has the list.

// lspTool is the runtime's tool that starts the language servers of .github/lsp.json in the
// session's directory.
const lspTool = "lsp"

// limitProject keeps a repository's files from making the runtime start programs. The runtime gets
// language servers, MCP servers, agents and skills only of a project that the user trusts. faults
// name the parts that are left out.
func (o *Options) limitProject(c *sdk.SessionConfig, home string) (faults []string) {
	c.EnableFileHooks = new(false) // the gateway asks the hooks of a trusted project itself
	isTrusted := o.trusts(c.WorkingDirectory)
	if !isTrusted || !namesServers(c.WorkingDirectory, home) {
		c.ExcludedTools = append(slices.Clip(c.ExcludedTools), lspTool)
	}
	if c.EnableConfigDiscovery != nil && !isTrusted {
		c.EnableConfigDiscovery = nil
		c.SkillDirectories = append(slices.Clip(c.SkillDirectories), userSkills(home)...)
		faults = append(faults,
			"config_discovery counts only in a project that you trust, in its own directory: "+
				"the session has your own skills, and no MCP servers, agents and skills "+
				"of files here")
	}
	return faults
}

// trusts reports whether the user trusts all files that the runtime reads of the repository around
// a session's directory. Users trust the files of one directory. So the result is false below that
// directory, and if the directory is only a part of a repository.
func (o *Options) trusts(cwd string) bool {
	if o.Trusts == nil || !o.Trusts(cwd) {
		return false
	}
	if c, ok := git.Of(cwd); ok && c.Root == filepath.Clean(cwd) {
		return true
	}
	return git.Top(filepath.Dir(filepath.Clean(cwd))) == ""
}

// namesServers reports whether a file of the project or of the user may name language servers.
func namesServers(cwd, home string) bool {
	for _, file := range []string{
		filepath.Join(cwd, ".github", "lsp.json"), filepath.Join(home, "lsp-config.json"),
	} {
		if _, err := os.Lstat(file); err == nil {
			return true
		}
	}
	return false
}

// userSkills returns the directories of the user's own skills.
func userSkills(home string) (dirs []string) {
	dirs = append(dirs, filepath.Join(home, "skills"))
	if user, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, filepath.Join(user, ".agents", "skills"))
	}
	return dirs
}
