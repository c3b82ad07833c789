// Package program finds programs for tools that only read: never one that the
// workspace brings. A workspace may come from anywhere, and a person who lets a
// model read it has not agreed to run it.
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

// Dir is where such programs run that are told by arguments what to look at: a
// version manager's shim takes what to run from files in the working directory.
const Dir = "/"

// Find finds a program on PATH, in directories outside of workspaces and outside of
// the repositories that they lie in. The path is absolute.
func Find(name string, workspaces ...string) (string, error) {
	roots := around(workspaces...)
	brought := ""
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		path := filepath.Join(dir, name)
		if _, err := exec.LookPath(path); err != nil {
			continue
		}
		if !within(path, roots) {
			return path, nil
		}
		brought = path
	}
	if brought != "" {
		return "", fmt.Errorf("%s is not run: the workspace brings it; install one outside of it", brought)
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

// Environ is the user's environment for a command, as [shell.Environ] has it, without
// what a workspace brings; PATH is [Path].
func Environ(workspace string, first ...string) []string {
	roots := around(workspace)
	env := slices.DeleteFunc(shell.Environ(), func(pair string) bool {
		name, value, _ := strings.Cut(pair, "=")
		return name == "PATH" || (name == "VIRTUAL_ENV" || name == "CONDA_PREFIX") && within(value, roots)
	})
	return append(env, "PATH="+Path(first, workspace))
}

// Path is PATH without the directories that workspaces bring, with first before the
// others.
func Path(first []string, workspaces ...string) string {
	roots := around(workspaces...)
	dirs := slices.Clone(first)
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(dir) && !within(dir, roots) {
			dirs = append(dirs, dir)
		}
	}
	return strings.Join(dirs, string(filepath.ListSeparator))
}

// Go finds the go command and returns the environment to run it in. Where a shim
// stands for it that would take the version from the working directory's files, it
// is the one that the shim stands for elsewhere.
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
		if !filepath.IsAbs(path) || within(path, around(workspace)) {
			return "", nil, errors.New("go is not run: the workspace brings it")
		}
	}
	// No other version is fetched or looked for, and no packages driver.
	return path, append(Environ(workspace, filepath.Dir(path)), "GOTOOLCHAIN=local", "GOPACKAGESDRIVER=off"), nil
}

// around are the workspaces and the working trees that they lie in.
func around(workspaces ...string) []string {
	roots := slices.Clone(workspaces)
	for _, workspace := range workspaces {
		if c, ok := git.Of(workspace); ok && !slices.Contains(roots, c.Root) {
			roots = append(roots, c.Root)
		}
	}
	for _, r := range roots {
		if real, err := filepath.EvalSymlinks(r); err == nil && !slices.Contains(roots, real) {
			roots = append(roots, real)
		}
	}
	return roots
}

// within reports whether a path, or what it leads to, lies in one of the
// directories.
func within(path string, roots []string) bool {
	paths := []string{path}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		paths = append(paths, real)
	}
	return slices.ContainsFunc(paths, func(p string) bool {
		return slices.ContainsFunc(roots, func(root string) bool {
			rel, err := filepath.Rel(root, p)
			return err == nil && filepath.IsLocal(rel)
		})
	})
}
