// Package protect knows the places in a project whose files make programs run:
// git's hooks and filters, editors' tasks, our own provider files and tools. Who
// writes there runs what they like the next time that somebody else works on the
// project, so such a write needs a person's yes, whatever a policy says.
//
// This is the one list of these places, for the tools of lsclient and for the
// permissions of Copilot sessions.
package protect

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// place is where files lie that make programs run: whatever lies in a directory or
// is a file of this name, anywhere. A name of several parts is a path; one that
// ends in * stands for names that begin so, one that begins with * for names that
// end so.
type place struct{ name, what string }

var places = []place{
	{".git", "git runs what its configuration and hooks name"},
	{".gitmodules", "git fetches what it names"},
	{".githooks", "git runs its hooks"},
	{".husky", "git runs its hooks"},
	{".pre-commit-config.yaml", "git's hooks run what it names"},
	{"lefthook.*", "git's hooks run what it names"},
	{"lefthook-local.*", "git's hooks run what it names"},
	{".lefthook*", "git's hooks run what it names"},
	{".gitconfig", "git runs what it names"},
	{".config/git", "git runs what its configuration and hooks name"},
	{".npmrc", "npm runs what it names"},
	{".yarnrc*", "yarn runs what it names"},
	{".yarn", "yarn runs it"},
	{".pnpmfile*", "pnpm runs it"},
	{".cargo/config*", "cargo and editors run what it names"},
	{".bashrc", "shells run it"},
	{".bash_*", "shells run it"},
	{".profile", "shells run it"},
	{".zshrc", "shells run it"},
	{".zshenv", "shells run it"},
	{".zprofile", "shells run it"},
	{".zlog*", "shells run it"},
	{".ssh", "ssh runs what its files name, and lets in whom they name"},
	{".github/hooks", "Copilot runs its hooks"},
	{".github/extensions", "Copilot runs its extensions"},
	{".github/copilot", "Copilot starts what its settings name"},
	{".github/mcp.json", "Copilot starts what it names"},
	{".copilot", "Copilot starts what its settings name"},
	{".mcp.json", "agents start what it names"},
	{".claude", "agents run what its settings name"},
	{".cursor", "editors run what its settings name"},
	{".gemini", "agents run what its settings name"},
	{".codex", "agents run what its settings name"},
	{".tapgw", "tapgw and lsclient start what its files name"},
	{"configs/tapgw.toml", "tapgw goes by it"},
	{"configs/lsclient.toml", "lsclient goes by it"},
	{"configs/providers", "tapgw starts what its files name"},
	{"configs/tools", "tapgw and lsclient run its tools"},
	{"*.tool.toml", "tapgw and lsclient run the tools that such files name"},
	{"*.tool.json", "tapgw and lsclient run the tools that such files name"},
	{".vscode/tasks.json", "editors run its tasks"},
	{".vscode/launch.json", "editors run what it names"},
	{".vscode/settings.json", "editors run what it names"},
	{".vscode/mcp.json", "editors start what it names"},
	{".vscode/c_cpp_properties.json", "editors run the compiler that it names"},
	{".vscode/extensions.json", "editors install what it names"},
	{"*.code-workspace", "editors run its tasks"},
	{".idea", "editors run its tasks"},
	{".vs", "editors run its tasks"},
	{".zed", "editors run its tasks"},
	{".fleet", "editors run its tasks"},
	{".helix", "editors start what its settings name"},
	{".windsurf", "editors run what its settings name"},
	{".kiro", "editors run what its settings name"},
	{".opencode", "agents run what its settings name"},
	{"opencode.json*", "agents start what it names"},
	{".devcontainer", "editors run what it names"},
	{".devcontainer.json", "editors run what it names"},
	{".exrc", "editors run its commands"},
	{".nvimrc", "editors run its commands"},
	{".vimrc", "editors run its commands"},
	{".nvim.lua", "editors run it"},
	{".dir-locals*", "editors run its code"},
	{".envrc", "shells run it"},
	{".mise*", "shells run what it names"},
	{"mise.*", "shells run what it names"},
	{".tool-versions", "version managers run what it names"},
}

// Why says why a path is protected: "it lies in .git: git runs what …". It is ""
// for one that is not. dirs are directories that are protected besides, such as
// those of tools. Path is absolute; what it leads to through symbolic links counts
// as it does itself, whether that exists or not.
func Why(path string, dirs ...string) string {
	ways := []string{filepath.Clean(path)}
	// What .. means depends on the links before it, and on who reads it.
	for _, p := range []string{path, filepath.Clean(path)} {
		target, err := Resolve(p)
		if err != nil {
			return "it can't be told where it leads: " + err.Error()
		}
		ways = append(ways, target)
	}
	for _, way := range ways {
		if why := named(way); why != "" {
			return why
		}
		if why := inRepository(way); why != "" {
			return why
		}
		for _, dir := range dirs {
			if Within(way, dir) {
				return "it lies in " + dir + ": what lies there is run"
			}
		}
	}
	return ""
}

// named says why a clean path is protected by its name.
func named(path string) string {
	parts := strings.Split(plain(filepath.ToSlash(path)), "/")
	for _, p := range places {
		want := strings.Split(p.name, "/")
		for i := 0; i+len(want) <= len(parts); i++ {
			if fits(parts[i:i+len(want)], want) {
				return "it is or lies in " + p.name + ": " + p.what
			}
		}
	}
	return ""
}

// inRepository says why a clean path is protected by what lies beside it: git takes
// each directory for a repository in which it finds a HEAD and the rest, by whatever
// name, such as that which a .git file names. A file named HEAD makes one of others.
func inRepository(path string) string {
	if strings.EqualFold(filepath.Base(path), "HEAD") {
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			return "git takes a directory with a HEAD for a repository, and runs what its configuration names"
		}
	}
	for dir := filepath.Dir(path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		has := func(name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
		if has("HEAD") && (has("objects") || has("commondir")) {
			return "it lies in " + dir + ", a repository of git: git runs what its configuration and hooks name"
		}
		if has(".git") {
			return "" // a tree of files, which may stand in its repository
		}
	}
	return ""
}

func fits(parts, want []string) bool {
	for i, w := range want {
		switch end, isEnd := strings.CutPrefix(w, "*"); {
		case isEnd:
			if !strings.HasSuffix(parts[i], end) {
				return false
			}
		case strings.HasSuffix(w, "*"):
			if !strings.HasPrefix(parts[i], strings.TrimSuffix(w, "*")) {
				return false
			}
		case parts[i] != w:
			return false
		}
	}
	return true
}

// plain is a path in the form that file systems compare which make no difference
// between capital and small letters, and of some characters none at all.
func plain(path string) string {
	path = strings.Map(func(r rune) rune {
		switch {
		case r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
			return -1 // HFS+ ignores them
		}
		return r
	}, strings.ReplaceAll(strings.ToLower(path), "ſ", "s"))
	parts := strings.Split(path, "/")
	for i, part := range parts {
		part, _, _ = strings.Cut(part, ":") // NTFS: a stream of the file
		if part = strings.TrimRight(part, ". "); part == "git~1" {
			part = ".git"
		}
		if strings.Trim(parts[i], ". ") != "" {
			parts[i] = part
		}
	}
	return strings.Join(parts, "/")
}

// Within reports whether a path is a directory or lies in it, through symbolic links
// and in the spelling of file systems that know no capitals.
func Within(path, dir string) bool {
	dirs := []string{filepath.Clean(dir)}
	if target, err := Resolve(dir); err == nil {
		dirs = append(dirs, target)
	}
	for _, dir := range dirs {
		if rel, err := filepath.Rel(plain(dir), plain(path)); err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}

// maxLinks is how many symbolic links a path may go through, as in Linux.
const maxLinks = 40

// Resolve follows every symbolic link of an absolute path, also one that leads to
// nothing. What doesn't exist stays as it is named.
func Resolve(path string) (string, error) {
	sep := string(filepath.Separator)
	at := filepath.VolumeName(path) + sep
	rest := strings.Split(strings.TrimPrefix(path, at), sep)
	for links := 0; len(rest) > 0; {
		next := filepath.Join(at, rest[0]) // "" and .. work out here
		rest = rest[1:]
		info, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) {
			return filepath.Join(next, filepath.Join(rest...)), nil
		}
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", &fs.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		if filepath.IsAbs(target) {
			at = filepath.VolumeName(target) + sep
			target = target[len(at):]
		}
		rest = append(strings.Split(target, sep), rest...)
	}
	return at, nil
}
