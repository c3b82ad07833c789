// Package gitstate asks git what has changed in a directory. git is kept from
// running anything that a repository names, in its configuration or by its files:
// a repository may come from anywhere.
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

// State is what has changed, by path from the directory that was asked about.
type State struct {
	Staged, Unstaged, Untracked, Conflicts []string
}

// Of reads the state of what lies in a directory of a repository. The workspace is that
// of whoever asks, which brings no programs for it either.
func Of(ctx context.Context, workspace, dir string) (State, error) {
	prefix, err := run(ctx, workspace, dir, "rev-parse", "--show-prefix")
	if err != nil {
		return State{}, err
	}
	out, err := run(ctx, workspace, dir, "status", "--porcelain=v1", "-z", "--untracked-files=all", onlyOurs, "--", ".")
	if err != nil {
		return State{}, err
	}
	return parse(string(out), strings.TrimSuffix(string(prefix), "\n")), nil
}

// Diff is the changes as a patch, of what is staged or of what is not. name is how
// the directory is called in it: "." leaves it out.
func Diff(ctx context.Context, workspace, dir, name string, staged bool) (string, error) {
	below := ""
	if name != "." {
		below = name + "/"
	}
	args := []string{"diff", "--no-ext-diff", "--no-textconv", "--no-color", onlyOurs, "--relative",
		"--src-prefix=a/" + below, "--dst-prefix=b/" + below}
	if staged {
		args = append(args, "--cached")
	}
	out, err := run(ctx, workspace, dir, append(args, "--", ".")...)
	return string(out), err
}

// onlyOurs keeps git out of submodules, whose configuration is their own: of one is
// told that it is at another commit, not what changed in it.
const onlyOurs = "--ignore-submodules=dirty"

// words say what happened to a file, where it is more than a change.
var words = map[byte]string{'A': " (added)", 'D': " (deleted)", 'T': " (type changed)"}

// parse reads git's status, "XY path NUL" with a second path for what was renamed
// or copied. The paths are the repository's: prefix is cut from them.
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
			return name + words[code]
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

// hardened are settings that keep git from running what a repository names.
var hardened = []string{
	"core.fsmonitor=false", "core.hooksPath=/dev/null", "core.pager=cat", "safe.bareRepository=explicit",
	"diff.external=", "status.submoduleSummary=false", "diff.submodule=short", "core.quotePath=false",
}

// run asks git about a directory.
func run(ctx context.Context, workspace, dir string, args ...string) ([]byte, error) {
	options, err := switchedOff(ctx, workspace, dir)
	if err != nil {
		return nil, err
	}
	return ask(ctx, workspace, dir, options, args...)
}

// switchedOff are the options that switch off what the repository's own
// configuration names for git to run: filters, and hooks of newer versions. No
// option does that for all of them.
func switchedOff(ctx context.Context, workspace, dir string) (options []string, err error) {
	out, err := ask(ctx, workspace, dir, nil, "config", "--list", "--show-scope", "-z")
	if err != nil {
		return nil, err
	}
	// SCOPE NUL KEY LF VALUE NUL, again and again.
	fields := strings.Split(string(out), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		scope := fields[i]
		if scope == "system" || scope == "global" || scope == "command" {
			continue // the user's
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
		if strings.ContainsAny(key, "=\n") { // such a name can't be given as an option
			return nil, fmt.Errorf("the repository's configuration has the key %q, which can't be switched off: "+
				"remove it", key)
		}
		options = append(options, "-c", key+"="+value)
	}
	return options, nil
}

// ask runs git as it is told. It runs outside of the directory, in case that a
// version manager's shim stands for git, and is found outside of it and of the workspace.
func ask(ctx context.Context, workspace, dir string, options []string, args ...string) ([]byte, error) {
	path, err := program.Find("git", workspace, dir)
	if errors.Is(err, exec.ErrNotFound) {
		return nil, errors.New("git is not installed")
	} else if err != nil {
		return nil, err
	}
	all := []string{"-C", dir, "--no-pager", "--no-optional-locks"}
	for _, setting := range hardened {
		all = append(all, "-c", setting)
	}
	cmd := exec.CommandContext(ctx, path, slices.Concat(all, options, args)...)
	cmd.Dir = program.Dir
	cmd.Env = proc.Environ(map[string]string{
		"GIT_TERMINAL_PROMPT": "0", "GIT_PAGER": "cat", "LC_ALL": "C",
		// Objects that are not here stay away: to fetch them runs what a URL names.
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
