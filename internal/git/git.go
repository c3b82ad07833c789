// Package git reads the root, the branch and the remote repository of a working tree from git's
// files, without running git.
package git

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Context describes the working tree that a directory belongs to, by git's files at the moment of
// [Of]. A field is "" if the files have no value for it, or an unprintable one.
type Context struct {
	Root       string // the directory of the working tree
	Branch     string // "" if a commit is checked out
	Repository string // owner/name of the remote origin, "" without one
	Host       string // of the remote origin, such as github.com
}

// Of finds the working tree that contains a directory, the innermost one; linked worktrees count.
// It returns false if no directory above has readable git files, or the innermost has a .git that
// leads to another tree's files. It runs no program and reads only files up to 1 MiB.
func Of(dir string) (Context, bool) {
	for ; ; dir = filepath.Dir(dir) {
		if c, ok := readTree(dir); ok {
			return c, true
		}
		if dir == filepath.Dir(dir) {
			return Context{}, false
		}
	}
}

// Label names a directory for people: the working tree's directory and branch, as in "app@main", or
// the directory's own name outside a working tree.
func Label(dir string) string {
	c, ok := Of(dir)
	switch {
	case !ok:
		return filepath.Base(dir)
	case c.Branch == "":
		return filepath.Base(c.Root)
	}
	return filepath.Base(c.Root) + "@" + c.Branch
}

func readTree(root string) (Context, bool) {
	r, err := at(root)
	if err != nil || r.Dir == "" {
		return Context{}, false
	}
	head, err := ReadSmall(filepath.Join(r.Dir, "HEAD"))
	if err != nil {
		return Context{}, false
	}
	c := Context{Root: root}
	if branch, is := strings.CutPrefix(strings.TrimSpace(head), "ref: refs/heads/"); is &&
		isPrintable(branch) {
		c.Branch = branch
	}
	if config, err := ReadSmall(filepath.Join(r.Common, "config")); err == nil {
		c.Host, c.Repository = parseRemote(originURL(config))
	}
	return c, true
}

// resolvePath resolves a path that a file in dir contains.
func resolvePath(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

// originURL returns the URL of the remote origin in git's config.
func originURL(config string) string {
	in := false
	for lines := bufio.NewScanner(strings.NewReader(config)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "[") {
			in = strings.EqualFold(line, `[remote "origin"]`)
			continue
		}
		if key, value, ok := strings.Cut(line, "="); in && ok && strings.TrimSpace(key) == "url" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// parseRemote splits the URL of a repository: https://host/owner/name.git,
// ssh://git@host/owner/name or git@host:owner/name.git. Both results are "" for a local path.
func parseRemote(s string) (host, repository string) {
	if !strings.Contains(s, "://") {
		at, path, ok := strings.Cut(s, ":")
		if !ok || strings.ContainsAny(at, `/\`) || len(at) == 1 { // a path, maybe of Windows
			return "", ""
		}
		s = "ssh://" + at + "/" + path
	}
	u, err := url.Parse(s)
	if err != nil || u.Hostname() == "" {
		return "", ""
	}
	repository = strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git")
	if !strings.Contains(repository, "/") || !isPrintable(repository) {
		return "", ""
	}
	return u.Hostname(), repository
}

func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// maxFileSize bounds the files of git that are read, in bytes.
const maxFileSize = 1 << 20

// ReadSmall reads a file of git. The error wraps os.ErrInvalid for a symbolic link, for anything
// else that is no regular file, and for more than 1 MiB: git does not write such files, but the
// author of an archive may.
func ReadSmall(path string) (string, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return "", fmt.Errorf("reading %s, a symbolic link: %w", path, os.ErrInvalid)
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFileSize {
		return "", fmt.Errorf("reading %s, which is no regular file of at most 1 MiB: %w", path,
			os.ErrInvalid)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFileSize))
	return string(data), err
}
