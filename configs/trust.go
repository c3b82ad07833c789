package configs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tapgw/internal/lazyregexp"
	"tapgw/internal/proc"
)

// trustDirName is the directory with the records of the user's trust, beside the user's own config
// files. It has a file for each project, readable by the user alone.
const trustDirName = "trust"

// trustWait is how long another process may hold that directory.
const trustWait = 10 * time.Second

func trustDir() string { return filepath.Join(UserDir(), trustDirName) }

// TrustedProject is a directory that the user trusts, with the content of its files at that time,
// from the user's record. Files with any other content do not count.
type TrustedProject struct {
	Dir   string    `json:"dir"` // absolute, without symbolic links
	At    time.Time `json:"at"`
	Files content   `json:"files"` // by path from Dir
}

// Change is a file whose content differs from the content that the user trusted, with both contents
// for a person to compare.
type Change struct {
	Path     string // from the project's directory, with slashes
	What     string // "new", "changed" or "gone"
	Old, New []byte // nil if the file does not exist, or was too large to keep
}

// Trust records the present content of a project's files. It returns the directory's real path and
// the differences from the content that the user trusted before. It refuses the root directory,
// which would be the project of all files.
func Trust(dir string) (real string, changes []Change, err error) {
	if real, err = realDir(dir); err != nil {
		return "", nil, err
	}
	if filepath.Dir(real) == real {
		return "", nil, fmt.Errorf("%s holds everything there is: name a project's directory", real)
	}
	now, err := readContent(real)
	if err != nil {
		return "", nil, err
	}
	err = changeTrust(func() error {
		before, _, err := loadTrust(real)
		if err != nil {
			return err
		}
		changes = before.Files.changes(now)
		data, err := json.Marshal(
			TrustedProject{Dir: real, At: time.Now().UTC(),
				Files: now}.spelled(strconv.QuoteToASCII),
		)
		if err != nil {
			return fmt.Errorf("recording what is trusted: %w", err)
		}
		return proc.WritePrivate(trustRecord(real), data)
	})
	return real, changes, err
}

// Untrust ends the trust in a directory, which need not exist any more, and reports whether the
// user trusted it. A directory above or below keeps its own.
func Untrust(dir string) (wasTrusted bool, err error) {
	names := []string{filepath.Clean(dir)}
	if path, err := realDir(dir); err == nil && path != names[0] {
		names = append(names, path)
	}
	return wasTrusted, changeTrust(func() error {
		for _, name := range names {
			switch err := os.Remove(trustRecord(name)); {
			case err == nil:
				wasTrusted = true
			case !errors.Is(err, fs.ErrNotExist):
				return fmt.Errorf("taking trust back: %w", err)
			}
		}
		return nil
	})
}

// Trusted reports whether the user trusts a directory or a directory above it, and all files of
// that project still have the trusted content. One changed file makes it false.
func Trusted(dir string) (bool, error) {
	_, ok, err := TrustedRoot(dir)
	return ok, err
}

// TrustedRoot reports the same as [Trusted], and also returns the directory that the user trusts,
// without symbolic links. It returns the directory even if one of the project's files has changed,
// and "" if the user trusts no project there.
func TrustedRoot(dir string) (root string, ok bool, err error) {
	p, ok, err := trustedAbove(dir)
	if err != nil || !ok {
		return "", false, err
	}
	now, err := readContent(p.Dir)
	return p.Dir, err == nil && len(p.Files.changes(now)) == 0, err
}

// TrustedProjects returns the projects that the user trusts, sorted by directory. An empty list is
// no error; a record that can't be read is.
func TrustedProjects() (all []TrustedProject, err error) {
	entries, err := os.ReadDir(trustDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("reading what is trusted: %w", err)
	}
	for _, e := range entries {
		if !isTrustRecord(e.Name()) {
			continue
		}
		p, ok, err := readTrust(filepath.Join(trustDir(), e.Name()))
		if err != nil {
			return nil, err
		}
		if ok {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b TrustedProject) int { return strings.Compare(a.Dir, b.Dir) })
	return all, nil
}

// Changes returns the differences of the project's files from the content that the user trusted,
// and no differences if the files are unchanged. It returns an error if it can't read the files.
func (p TrustedProject) Changes() ([]Change, error) {
	now, err := readContent(p.Dir)
	return p.Files.changes(now), err
}

// trustedAbove finds the trusted project that a directory is in, the nearest.
func trustedAbove(dir string) (TrustedProject, bool, error) {
	dir, err := realDir(dir)
	if err != nil {
		return TrustedProject{}, false, err
	}
	return nearestTrusted(dir)
}

// nearestTrusted finds the trusted project that an absolute path is in by its name.
func nearestTrusted(dir string) (TrustedProject, bool, error) {
	for {
		p, ok, err := loadTrust(dir)
		if ok || err != nil {
			return p, ok, err
		}
		up := filepath.Dir(dir)
		if up == dir {
			return TrustedProject{}, false, nil
		}
		dir = up
	}
}

// Unchanged returns an error with advice when a file or directory of a project may not run, because
// it, or a file that it names, does not have the content that the user trusted.
func Unchanged(project, path string) error {
	p, ok, err := loadTrust(project)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%s is not trusted: run %s if you trust all files there", project,
			TrustCommand(project))
	}
	now, err := readContent(p.Dir)
	if err != nil {
		return err
	}
	if changed := p.Files.firstDifference(now, p.rel(path)); changed != "" {
		return p.changedError(changed)
	}
	return nil
}

// rel is a path from the project's directory, with slashes.
func (p TrustedProject) rel(path string) string {
	if rel, err := filepath.Rel(p.Dir, path); err == nil && filepath.IsLocal(rel) {
		return filepath.ToSlash(rel)
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	rel, err := filepath.Rel(p.Dir, path)
	if err != nil {
		return path
	}
	return filepath.ToSlash(rel)
}

// changedError says that a file does not have the content that the user trusted.
func (p TrustedProject) changedError(rel string) error {
	return fmt.Errorf("%s has changed since you trusted it: run %s, which shows how", rel,
		TrustCommand(p.Dir))
}

// trustRecord is where it is recorded that a directory is trusted.
func trustRecord(dir string) string {
	return filepath.Join(trustDir(), sum([]byte(dir))+trustSuffix)
}

const trustSuffix = ".json"

// isTrustRecord reports whether a file's name has the form of [trustRecord].
func isTrustRecord(name string) bool {
	id, ok := strings.CutSuffix(name, trustSuffix)
	return ok && len(id) == len(sum(nil))
}

func loadTrust(dir string) (TrustedProject, bool, error) { return readTrust(trustRecord(dir)) }

// readTrust reads a record. It returns false if there is no record, or if the record is about
// another directory than its name says.
func readTrust(file string) (p TrustedProject, ok bool, err error) {
	data, err := os.ReadFile(file) //nolint:gosec // of our own directory
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return p, false, nil
	case err != nil:
		return p, false, fmt.Errorf("reading what is trusted: %w", err)
	}
	if err := json.Unmarshal(data, &p); err != nil {
		return TrustedProject{}, false, fmt.Errorf(
			"reading what is trusted: %s: %w; remove it, and trust its project again", file, err,
		)
	}
	p = p.spelled(func(s string) string {
		plain, _ := strconv.Unquote(s) // "" is not the path of a file
		return plain
	})
	return p, filepath.IsAbs(p.Dir) && trustRecord(p.Dir) == file, nil
}

// spelled is the project with all its paths spelled in another way: names need not be
// UTF-8, and JSON is.
func (p TrustedProject) spelled(spell func(string) string) TrustedProject {
	files := make(content, len(p.Files))
	for path, t := range p.Files {
		names := make([]string, len(t.Names))
		for i, name := range t.Names {
			names[i] = spell(name)
		}
		t.Names = names
		files[spell(path)] = t
	}
	return TrustedProject{Dir: spell(p.Dir), At: p.At, Files: files}
}

var plainPath = lazyregexp.New(`^[A-Za-z0-9/._+@%,:=-]+$`)

// TrustCommand returns the shell command that trusts a directory, for people to copy, quoted so
// that a terminal shows each character of the name.
func TrustCommand(dir string) string {
	switch {
	case plainPath.MatchString(dir):
	case !utf8.ValidString(dir) || strings.ContainsFunc(dir, func(r rune) bool {
		return !unicode.IsPrint(r)
	}):
		// Such a name must not be shown unchanged, because it would reach the terminal.
		var b strings.Builder
		for _, c := range []byte(dir) {
			if c < ' ' || c >= 0x7f || c == '\'' || c == '\\' {
				fmt.Fprintf(&b, `\x%02x`, c)
				continue
			}
			b.WriteByte(c)
		}
		dir = "$'" + b.String() + "'"
	default:
		dir = "'" + strings.ReplaceAll(dir, "'", `'\''`) + "'"
	}
	return "tapgw trust " + dir
}

// changeTrust runs change while it holds the lock of the trust records, so that no other process
// changes them at the same time.
func changeTrust(change func() error) error {
	if err := os.MkdirAll(trustDir(), 0o700); err != nil {
		return fmt.Errorf("making the directory of what is trusted: %w", err)
	}
	if err := proc.PrivateDir(trustDir()); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), trustWait)
	defer cancel()
	lock, err := proc.WaitLock(ctx, filepath.Join(trustDir(), "lock"))
	if err != nil {
		return err
	}
	defer lock.Unlock()
	return change()
}

// realDir returns a directory's path without links, so that all names of a directory have the same
// trust.
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
