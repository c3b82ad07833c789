package configs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tapgw/internal/lazyregexp"
	"tapgw/internal/proc"
)

// trustFile holds the directories that the user trusts, one a line.
const trustFile = "trusted"

// trustWait is how long another process may hold that file.
const trustWait = 10 * time.Second

// Trusted reports whether the user trusts a directory, or one above it: only
// then do a project's own config and tool directories start anything.
func Trusted(dir string) (bool, error) {
	dir, err := realDir(dir)
	if err != nil {
		return false, err
	}
	dirs, err := TrustedDirs()
	if err != nil {
		return false, err
	}
	for {
		if slices.Contains(dirs, dir) {
			return true, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return false, nil
		}
		dir = up
	}
}

// TrustedDirs lists the directories that the user trusts.
func TrustedDirs() ([]string, error) {
	data, err := os.ReadFile(filepath.Join(UserDir(), trustFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading the trusted directories: %w", err)
	}
	var dirs []string
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		if line := strings.TrimSpace(lines.Text()); filepath.IsAbs(line) {
			dirs = append(dirs, line)
		}
	}
	return dirs, nil
}

// Trust adds a directory to those that the user trusts, and returns its real
// path. The root is refused: everything lies below it.
func Trust(dir string) (string, error) {
	dir, err := realDir(dir)
	if err != nil {
		return "", err
	}
	if filepath.Dir(dir) == dir {
		return "", fmt.Errorf("%s holds everything there is: name a project's directory", dir)
	}
	return dir, changeTrust(func(dirs []string) []string {
		if slices.Contains(dirs, dir) {
			return dirs
		}
		return append(dirs, dir)
	})
}

// Untrust takes a directory back, and reports whether it was trusted by itself.
// It may be gone from the disk.
func Untrust(dir string) (was bool, err error) {
	names := []string{filepath.Clean(dir)}
	if path, err := realDir(dir); err == nil {
		names = append(names, path)
	}
	return was, changeTrust(func(dirs []string) []string {
		return slices.DeleteFunc(dirs, func(d string) bool {
			named := slices.Contains(names, d)
			was = was || named
			return named
		})
	})
}

var plainPath = lazyregexp.New(`^[A-Za-z0-9/._+@%,:=-]+$`)

// TrustCommand is what a shell is told to trust a directory.
func TrustCommand(dir string) string {
	if !plainPath.MatchString(dir) {
		dir = "'" + strings.ReplaceAll(dir, "'", `'\''`) + "'"
	}
	return "tapgw trust " + dir
}

func changeTrust(change func([]string) []string) error {
	if err := os.MkdirAll(UserDir(), 0o700); err != nil {
		return fmt.Errorf("making the user's config directory: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), trustWait)
	defer cancel()
	lock, err := proc.WaitLock(ctx, filepath.Join(UserDir(), trustFile+".lock"))
	if err != nil {
		return err
	}
	defer lock.Unlock()
	dirs, err := TrustedDirs()
	if err != nil {
		return err
	}
	slices.Sort(dirs)
	dirs = change(dirs)
	slices.Sort(dirs)
	text := strings.Join(dirs, "\n")
	if text != "" {
		text += "\n"
	}
	return proc.WritePrivate(filepath.Join(UserDir(), trustFile), []byte(text))
}

// realDir is a directory's path without links, so that no other name of it has
// another trust.
func realDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("finding %s: %w", dir, err)
	}
	path, err := filepath.EvalSymlinks(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no directory %s", abs)
	}
	if err != nil {
		return "", fmt.Errorf("finding the directory: %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("finding the directory: %w", err)
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is not a directory", dir)
	}
	return path, nil
}
