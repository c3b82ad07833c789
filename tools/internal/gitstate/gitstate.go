// Package gitstate asks git what has changed in a directory. It keeps git from running
// programs that the repository's configuration or files name, because a repository
// may come from anywhere.
package gitstate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"tapgw/internal/proc"
	"tapgw/tools/internal/program"
)

// State lists the changed files by their path from the directory. A path may have a
// note, such as "a.txt (added)" or "old -> new".
type State struct {
	Staged, Unstaged, Untracked, Conflicts []string
}

// Of reads the state of a directory in a repository. No program of the workspace is run
// for it. The error says that git is missing, or has git's own text.
func Of(ctx context.Context, workspace, dir string) (State, error) {
	prefix, err := run(ctx, workspace, dir, "rev-parse", "--show-prefix")
	if err != nil {
		return State{}, err
	}
	args := []string{"status", "--porcelain=v1", "-z", "--untracked-files=all", skipSubmodules, "--", "."}
	out, err := run(ctx, workspace, dir, args...)
	if err != nil {
		return State{}, err
	}
	return parse(string(out), strings.TrimSuffix(string(prefix), "\n")), nil
}

// Diff returns the staged changes, or else the others, as a patch. Its paths begin with
// name, the directory's name for the reader, unless that is ".".
func Diff(ctx context.Context, workspace, dir, name string, staged bool) (string, error) {
	below := ""
	if name != "." {
		below = name + "/"
	}
	args := []string{"diff", "--no-ext-diff", "--no-textconv", "--no-color", skipSubmodules, "--relative",
		"--src-prefix=a/" + below, "--dst-prefix=b/" + below}
	if staged {
		args = append(args, "--cached")
	}
	out, err := run(ctx, workspace, dir, append(args, "--", ".")...)
	return string(out), err
}

// skipSubmodules keeps git out of submodules, which have configurations of their own.
// git only reports that a submodule is at another commit.
const skipSubmodules = "--ignore-submodules=dirty"

// notes describe what happened to a file that was not only changed.
var notes = map[byte]string{'A': " (added)", 'D': " (deleted)", 'T': " (type changed)"}

// parse reads git's status: "XY path NUL", with a second path for renames and copies.
// The paths begin at the repository's root; prefix is cut from them.
func parse(out, prefix string) (s State) {
	fields := strings.Split(out, "\x00")
	for len(fields) > 0 {
		entry := fields[0]
		fields = fields[1:]
		if len(entry) < 4 {
			continue
		}
		x, y := entry[0], entry[1]
		name := strings.TrimPrefix(entry[3:], prefix)
		from := ""
		if strings.ContainsRune("RC", rune(x)) || strings.ContainsRune("RC", rune(y)) {
			from, fields = strings.TrimPrefix(fields[0], prefix), fields[1:]
		}
		described := func(code byte) string {
			switch code {
			case 'R':
				return from + " -> " + name + " (renamed)"
			case 'C':
				return from + " -> " + name + " (copied)"
			}
			return name + notes[code]
		}
		switch {
		case x == '?':
			s.Untracked = append(s.Untracked, name)
			continue
		case x == 'U' || y == 'U' || x == y && (x == 'A' || x == 'D'):
			s.Conflicts = append(s.Conflicts, name)
			continue
		}
		if x != ' ' {
			s.Staged = append(s.Staged, described(x))
		}
		if y != ' ' {
			s.Unstaged = append(s.Unstaged, described(y))
		}
	}
	return s
}

// safeSettings keep git from running programs that a repository names.
var safeSettings = []string{
	"core.fsmonitor=false", "core.hooksPath=/dev/null", "core.pager=cat", "safe.bareRepository=explicit",
	"diff.external=", "status.submoduleSummary=false", "diff.submodule=short", "core.quotePath=false",
}

// run asks git about a directory.
func run(ctx context.Context, workspace, dir string, args ...string) ([]byte, error) {
	options, err := filterOptions(ctx, workspace, dir)
	if err != nil {
		return nil, err
	}
	return ask(ctx, workspace, dir, options, args...)
}

// filterOptions are the options that switch off the filters and hooks of the
// repository's own configuration, one by one: git has no option for all of them.
func filterOptions(ctx context.Context, workspace, dir string) (options []string, err error) {
	out, err := ask(ctx, workspace, dir, nil, "config", "--list", "--show-scope", "-z")
	if err != nil {
		return nil, err
	}
	// SCOPE NUL KEY LF VALUE NUL, again and again.
	fields := strings.Split(string(out), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		scope := fields[i]
		if scope == "system" || scope == "global" || scope == "command" {
			continue // the user's own setting
		}
		key, _, _ := strings.Cut(fields[i+1], "\n")
		section, rest, _ := strings.Cut(key, ".")
		name := rest[strings.LastIndexByte(rest, '.')+1:]
		if section != "filter" && section != "hook" {
			continue
		}
		value := ""
		switch name {
		case "required", "enabled", "parallel":
			value = "false"
		}
		if strings.ContainsAny(key, "=\n") { // no option can set such a key
			return nil, fmt.Errorf("the repository's configuration has the key %q, which can't be switched off: "+
				"remove it", key)
		}
		options = append(options, "-c", key+"="+value)
	}
	return options, nil
}

// ask runs a git that lies outside of the directory and the workspace. It does not run
// in the directory, because a version manager's shim would choose git by its files.
func ask(ctx context.Context, workspace, dir string, options []string, args ...string) ([]byte, error) {
	path, err := program.Find("git", workspace, dir)
	if errors.Is(err, exec.ErrNotFound) {
		return nil, errors.New("git is not installed")
	} else if err != nil {
		return nil, err
	}
	all := []string{"-C", dir, "--no-pager", "--no-optional-locks"}
	for _, setting := range safeSettings {
		all = append(all, "-c", setting)
	}
	cmd := exec.CommandContext(ctx, path, slices.Concat(all, options, args)...)
	cmd.Dir = program.Dir
	cmd.Env = proc.Environ(map[string]string{
		"GIT_TERMINAL_PROMPT": "0", "GIT_PAGER": "cat", "LC_ALL": "C",
		// Missing objects are not fetched: a fetch runs programs that a URL names.
		"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none",
		"PATH": program.Path(nil, workspace, dir),
	})
	cmd.WaitDelay = time.Second
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err = cmd.Run()
	switch {
	case err == nil:
		return out.Bytes(), nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case stderr.Len() > 0:
		line, _, _ := strings.Cut(stderr.String(), "\n")
		return nil, errors.New("git says: " + line)
	}
	return nil, fmt.Errorf("running git: %w", err)
}
