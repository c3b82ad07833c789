// Package gitstate asks git what has changed in a directory. git is kept from
// running anything that a repository's configuration names, as far as it lets us:
// a repository may come from anywhere.
package gitstate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"tapgw/internal/proc"
)

// State is what has changed, by path from the directory that was asked about.
type State struct {
	Staged, Unstaged, Untracked, Conflicts []string
}

// Of reads the state of what lies in a directory of a repository.
func Of(ctx context.Context, dir string) (State, error) {
	prefix, err := run(ctx, dir, "rev-parse", "--show-prefix")
	if err != nil {
		return State{}, err
	}
	out, err := run(ctx, dir, "status", "--porcelain=v1", "-z", "--untracked-files=all", "--", ".")
	if err != nil {
		return State{}, err
	}
	return parse(string(out), strings.TrimSuffix(string(prefix), "\n")), nil
}

// Diff is the changes as a patch, of what is staged or of what is not. name is how
// the directory is called in it: "." leaves it out.
func Diff(ctx context.Context, dir, name string, staged bool) (string, error) {
	below := ""
	if name != "." {
		below = name + "/"
	}
	args := []string{"diff", "--no-ext-diff", "--no-textconv", "--no-color", "--relative", "--src-prefix=a/" + below, "--dst-prefix=b/" + below}
	if staged {
		args = append(args, "--cached")
	}
	out, err := run(ctx, dir, append(args, "--", ".")...)
	return string(out), err
}

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

func run(ctx context.Context, dir string, args ...string) ([]byte, error) {
	args = append([]string{"--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false"}, args...)
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = proc.Environ(map[string]string{"GIT_TERMINAL_PROMPT": "0", "GIT_PAGER": "cat", "LC_ALL": "C"})
	cmd.WaitDelay = time.Second
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	switch {
	case err == nil:
		return out.Bytes(), nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, exec.ErrNotFound):
		return nil, errors.New("git is not installed")
	case stderr.Len() > 0:
		line, _, _ := strings.Cut(stderr.String(), "\n")
		return nil, errors.New("git says: " + line)
	}
	return nil, fmt.Errorf("running git: %w", err)
}
