// Package filelist finds the files of a directory by a part of their names, for people who name a
// file in a prompt. It finds the files that git tracks or does not ignore, else all. It starts no
// program of the directory, follows no link out of it, leaves out the places of internal/protect,
// and ends after two seconds or 50,000 files.
package filelist

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"tapgw/internal/gitread"
	"tapgw/internal/protect"
)

// Limits of a search.
const (
	timeout  = 2 * time.Second
	maxFiles = 50_000
	maxDepth = 20
	maxPath  = 4096 // bytes
)

// Found are the best matches of a search, the best first.
type Found struct {
	Files []string // relative paths with slashes
	More  bool     // the list is cut, or the search met a limit
}

// Find returns at most most files below a directory whose path has the letters of query, in this
// order and in either case. Files with query in their name come first. An empty query matches all.
// Find returns an error if it can't read the directory.
func Find(ctx context.Context, dir, query string, most int) (Found, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Found{}, err
	}
	defer func() { _ = root.Close() }()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var files []string
	var isWhole, isTree bool
	if files, isWhole, isTree = tracked(ctx, dir); !isTree {
		files, isWhole = walk(ctx, root)
	}
	found := Found{Files: []string{}, More: !isWhole}
	for _, m := range matching(files, strings.ToLower(query)) {
		if !isOffered(root, dir, m.path) {
			continue
		}
		if len(found.Files) == most {
			found.More = true
			break
		}
		found.Files = append(found.Files, m.path)
	}
	return found, nil
}

// isOffered reports whether a path is a file below the root that may be written without asking a
// person.
func isOffered(root *os.Root, dir, name string) bool {
	info, err := root.Stat(filepath.FromSlash(name)) // a link out of the root is an error
	return err == nil && info.Mode().IsRegular() &&
		protect.Why(filepath.Join(dir, filepath.FromSlash(name))) == ""
}

// tracked asks git for the files below a directory. isTree is false if git can't say.
func tracked(ctx context.Context, dir string) (files []string, isWhole, isTree bool) {
	program, err := exec.LookPath("git")
	if err != nil || protect.Within(program, dir) {
		return nil, false, false
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := gitread.Git{Program: program}.Open(ctx, dir)
	if err != nil {
		return nil, false, false
	}
	defer r.Close()
	cmd := r.Command(ctx, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		return nil, false, false
	}
	names := bufio.NewScanner(out)
	names.Buffer(nil, maxPath+1)
	names.Split(gitread.SplitNUL)
	for len(files) < maxFiles && names.Scan() {
		files = addNamed(files, names.Text())
	}
	isFull := len(files) == maxFiles || names.Err() != nil
	if isFull {
		cancel()
	}
	err = cmd.Wait()
	switch {
	case err == nil:
		return files, true, true
	case isFull, ctx.Err() != nil && len(files) > 0:
		return files, false, true
	}
	return nil, false, false
}

// addNamed adds a path that can be written into a prompt, where a person sees all of it.
func addNamed(files []string, name string) []string {
	if name == "" || len(name) > maxPath || !utf8.ValidString(name) ||
		strings.ContainsFunc(name, isHidden) {
		return files
	}
	return append(files, name)
}

// isHidden reports whether a character could make a path look like another one, or hide text for
// the model from people.
func isHidden(r rune) bool {
	return !unicode.IsGraphic(r) ||
		unicode.In(r, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point)
}

// walk lists the files below a root without git, the nearest first.
func walk(ctx context.Context, root *os.Root) (files []string, isWhole bool) {
	type place struct {
		name  string
		depth int
	}
	isWhole = true
	seen := 0
	for queue := []place{{".", 0}}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		// Without a wait, as it may have become a pipe.
		d, err := root.OpenFile(at.name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			continue // not readable, or gone
		}
		for {
			entries, err := d.ReadDir(256)
			for _, e := range entries {
				name := path.Join(filepath.ToSlash(at.name), e.Name())
				switch {
				case !e.IsDir():
					files = addNamed(files, name)
				case e.Name() == ".git" || e.Name() == "node_modules":
				case at.depth == maxDepth:
					isWhole = false
				default:
					queue = append(queue, place{filepath.FromSlash(name), at.depth + 1})
				}
			}
			if seen += len(entries); seen >= maxFiles || ctx.Err() != nil {
				_ = d.Close()
				return files, false
			}
			if err != nil {
				isWhole = isWhole && errors.Is(err, io.EOF)
				break
			}
		}
		_ = d.Close()
	}
	return files, isWhole
}

// match is a file, and how well it matches: 0 is best.
type match struct {
	path string
	rank int
}

// matching returns the files that match a query in lower case, the best first.
func matching(files []string, query string) []match {
	var list []match
	for _, name := range files {
		if rank := rankOf(strings.ToLower(name), query); rank >= 0 {
			list = append(list, match{name, rank})
		}
	}
	slices.SortFunc(list, func(a, b match) int {
		return cmp.Or(a.rank-b.rank, strings.Count(a.path, "/")-strings.Count(b.path, "/"),
			len(a.path)-len(b.path), strings.Compare(a.path, b.path))
	})
	return slices.Compact(list) // git names a file in conflict several times
}

// rankOf is how well a path matches, both in lower case; -1 if it does not.
func rankOf(name, query string) int {
	base := path.Base(name)
	switch {
	case query == "" || base == query:
		return 0
	case strings.HasPrefix(base, query):
		return 1
	case strings.Contains(base, query):
		return 2
	case strings.Contains(name, query):
		return 3
	}
	for _, r := range query {
		i := strings.IndexRune(name, r)
		if i < 0 {
			return -1
		}
		name = name[i+utf8.RuneLen(r):]
	}
	return 4
}
