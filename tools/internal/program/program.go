// Package program finds programs for tools that only read. It never returns a program
// of the workspace: a workspace may come from anywhere, and a person who lets a model
// read it has not agreed to run its programs.
package program

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"tapgw/internal/git"
	"tapgw/tools/internal/shell"
)

// Dir is the working directory for programs that get their files as arguments. It is
// not the workspace, because a version manager's shim chooses the program to run by
// files in the working directory.
const Dir = "/"

// Find finds a program on PATH, outside of the workspaces and of the repositories that
// they lie in. It returns an absolute path. The error wraps exec.ErrNotFound, or names
// the program that only a workspace has.
func Find(name string, workspaces ...string) (string, error) {
	roots := withRepositories(workspaces...)
	refused := ""
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		path := filepath.Join(dir, name)
		if _, err := exec.LookPath(path); err != nil {
			continue
		}
		if !isWithin(path, roots) {
			return path, nil
		}
		refused = path
	}
	if refused != "" {
		return "", fmt.Errorf("%s is not run: the workspace brings it; install one outside of it",
			refused)
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

// Environ is the environment for a command: [shell.Environ] without the virtual
// environment of a workspace, and with [Path] as PATH.
func Environ(workspace string, first ...string) []string {
	roots := withRepositories(workspace)
	env := slices.DeleteFunc(shell.Environ(), func(pair string) bool {
		name, value, _ := strings.Cut(pair, "=")
		return name == "PATH" || (name == "VIRTUAL_ENV" || name == "CONDA_PREFIX") &&
			isWithin(value, roots)
	})
	return append(env, "PATH="+Path(first, workspace))
}

// Path is PATH without relative directories and the workspaces' directories, and with the
// directories of first before the others.
func Path(first []string, workspaces ...string) string {
	roots := withRepositories(workspaces...)
	dirs := slices.Clone(first)
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(dir) && !isWithin(dir, roots) {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}

// Go finds the go command and returns its environment, which neither fetches other
// versions nor runs a packages driver. If the command on PATH is a version manager's
// shim, which would choose a version by the workspace's files, Go returns the command
// that the shim runs in [Dir].
func Go(ctx context.Context, workspace string) (path string, env []string, err error) {
	if path, err = Find("go", workspace); err != nil {
		return "", nil, err
	}
	if filepath.Base(filepath.Dir(path)) == "shims" {
		cmd := exec.CommandContext(ctx, path, "env", "GOROOT")
		cmd.Dir, cmd.Env = Dir, append(Environ(workspace), "GOTOOLCHAIN=local")
		out, err := cmd.Output()
		if err != nil {
			return "", nil, fmt.Errorf("asking %s for its GOROOT: %w", path, err)
		}
		path = filepath.Join(strings.TrimSpace(string(out)), "bin", "go")
		if !filepath.IsAbs(path) || isWithin(path, withRepositories(workspace)) {
			return "", nil, errors.New("go is not run: the workspace brings it")
		}
	}
	return path, append(Environ(workspace, filepath.Dir(path)), "GOTOOLCHAIN=local",
		"GOPACKAGESDRIVER=off"), nil
}

// withRepositories returns the workspaces and the working trees that they lie in.
func withRepositories(workspaces ...string) []string {
	roots := slices.Clone(workspaces)
	for _, workspace := range workspaces {
		if top := git.Top(workspace); top != "" && !slices.Contains(roots, top) {
			roots = append(roots, top)
		}
	}
	for _, r := range roots {
		if resolved, err := filepath.EvalSymlinks(r); err == nil &&
			!slices.Contains(roots, resolved) {
			roots = append(roots, resolved)
		}
	}
	return roots
}

// isWithin reports whether a path lies in one of the directories, by itself or through
// symbolic links.
func isWithin(path string, roots []string) bool {
	paths := []string{path}
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		paths = append(paths, resolved)
	}
	return slices.ContainsFunc(paths, func(p string) bool {
		return slices.ContainsFunc(roots, func(root string) bool {
			rel, err := filepath.Rel(root, p)
			return err == nil && filepath.IsLocal(rel)
		})
	})
}
