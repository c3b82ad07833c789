package mcpclients

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/renameio/v2"
	"github.com/tailscale/hujson"

	"tapgw/configs"
	"tapgw/internal/diff"
	"tapgw/internal/lazyregexp"
	"tapgw/internal/ownfile"
)

// Changes of a client's file, which keep all of it but the gateway's entry.

// maxFile is the size in bytes of the largest file that is read. Claude Code's file has much beside
// servers.
const maxFile = 32 << 20

// Kinds of a [Change].
const (
	None    = "none" // the file says the same already
	Added   = "added"
	Updated = "updated"
	Removed = "removed"
)

// Change is a change of the gateway's entry in a client's file. Only Write writes the file.
type Change struct {
	File string // as the client names it
	Kind string

	target   string   // File without symbolic links
	below    string   // the project, or the user's home
	was, now []byte   // nil: no file
	shown    []string // the strings of the entry
}

// bom is the byte order mark of UTF-8.
var bom = []byte("\ufeff")

// Install returns the change that makes the client use the gateway: in a project's directory, or
// for the user if that is "". An entry that tapgw did not write is an error, as is a file that
// can't be parsed; it names file and line.
func (c Client) Install(s Server, project string) (*Change, error) {
	e := c.entryOf(s, project)
	return c.change(project, func(text []byte) ([]byte, error) {
		return c.format.put(text, c.container, e)
	})
}

// Uninstall returns the change that removes the gateway's entry from the client's file. The file
// then has the bytes from before [Client.Install]. If there was no file, it is removed, with the
// directories that become empty.
func (c Client) Uninstall(project string) (*Change, error) {
	return c.change(project, func(text []byte) ([]byte, error) {
		if text == nil {
			return nil, nil
		}
		return c.format.remove(text, c.container)
	})
}

// split returns the entry of the gateway's name in a text, which may be nil, and all the rest as a
// text that can be compared. A missing text counts as an empty one, and an empty container as no
// container.
func (c Client) split(text []byte) (entry any, rest string, err error) {
	all := map[string]any{}
	if text != nil {
		if all, err = c.format.values(text); err != nil {
			return nil, "", err
		}
	}
	if servers, ok := all[c.container].(map[string]any); ok {
		entry = servers[entryName]
		if delete(servers, entryName); len(servers) == 0 {
			delete(all, c.container)
		}
	}
	return entry, fmt.Sprintf("%#v", all), nil
}

// change reads the client's file and edits its text.
func (c Client) change(project string, edit func(text []byte) ([]byte, error)) (*Change, error) {
	ch, err := c.choose(project)
	if err != nil {
		return nil, err
	}
	text, hasMark := bytes.CutPrefix(ch.was, bom)
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("%s: is not UTF-8 text, and is not changed", ch.File)
	}
	now, err := edit(text)
	if err == nil && !isSame(now, text) {
		err = ch.compare(c, text, now)
	}
	if err != nil {
		if f, ok := errors.AsType[configs.Fault](err); ok {
			f.File = ch.File
			return nil, f
		}
		return nil, fmt.Errorf("%s: %w", ch.File, err)
	}
	if ch.now = now; hasMark {
		ch.now = append(bytes.Clone(bom), now...)
	}
	return ch, nil
}

// compare finds the change that an edit has made, and makes sure that the edit changed only the
// entry.
func (ch *Change) compare(c Client, was, now []byte) error {
	before, rest, err := c.split(was)
	if err != nil {
		return err
	}
	after, restNow, err := c.split(now)
	if err != nil || rest != restNow {
		return errors.New(
			"can't be edited without changing more than the gateway's entry, and is left as it is")
	}
	switch {
	case before == nil:
		ch.Kind = Added
	case after == nil:
		ch.Kind = Removed
	default:
		ch.Kind = Updated
	}
	ch.shown = slices.Concat(stringsIn(before), stringsIn(after))
	return nil
}

// choose reads the first of the client's files that has the entry, or else the first existing one.
func (c Client) choose(project string) (*Change, error) {
	files, err := c.files(project)
	if err != nil {
		return nil, err
	}
	var chosen *Change
	for _, file := range files {
		ch, err := read(file, project)
		if err != nil {
			return nil, err
		}
		if chosen == nil || chosen.was == nil && ch.was != nil {
			chosen = ch
		}
		if len(files) == 1 {
			return ch, nil
		}
		if entry, _, err := c.split(bytes.TrimPrefix(ch.was, bom)); err == nil && entry != nil {
			return ch, nil
		}
	}
	return chosen, nil
}

// read reads a client's file. Symbolic links are followed, in a project only to files of the
// project.
func read(file, project string) (*Change, error) {
	ch := &Change{File: file, Kind: None, below: project}
	var err error
	if project == "" {
		ch.below, err = os.UserHomeDir()
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	if ch.target, err = follow(file); err == nil && project != "" {
		err = checkInside(ch.target, project)
	}
	if err == nil {
		ch.was, err = readFile(ch.target)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", file, err)
	}
	return ch, nil
}

func readFile(path string) ([]byte, error) {
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a file")
	}
	f, err := os.Open(path) //nolint:gosec // the client's own file
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("it has more than %d bytes", maxFile)
	}
	return data, err
}

// follow returns where a file is that may be a symbolic link, or where it would be.
func follow(file string) (string, error) {
	const maxLinks = 40
	for range maxLinks {
		target, err := os.Readlink(file)
		if err != nil {
			return file, nil //nolint:nilerr // no link; reading it tells the rest
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(file), target)
		}
		file = target
	}
	return "", errors.New("too many symbolic links")
}

// checkInside returns an error if a file, or the directory in which it will be made, is not in a
// project.
func checkInside(file, project string) error {
	root, err := filepath.EvalSymlinks(project)
	if err != nil {
		return err
	}
	for dir := filepath.Dir(file); ; dir = filepath.Dir(dir) {
		real, err := filepath.EvalSymlinks(dir)
		if errors.Is(err, fs.ErrNotExist) && filepath.Dir(dir) != dir {
			continue
		}
		if err != nil {
			return err
		}
		if rel, err := filepath.Rel(root, real); err != nil || !filepath.IsLocal(rel) {
			return errors.New("a symbolic link leads out of the project")
		}
		return nil
	}
}

// Write makes the change, all of it at once. A file that was changed since it was read is an error.
// The file keeps its mode; a new one is for the user alone.
func (ch *Change) Write() error {
	if ch.Kind == None {
		return nil
	}
	if err := ch.write(); err != nil {
		return fmt.Errorf("writing %s: %w", ch.File, err)
	}
	return nil
}

func (ch *Change) write() error {
	if ch.was == nil {
		if err := os.MkdirAll(filepath.Dir(ch.target), 0o700); err != nil {
			return err
		}
	} else if f, err := os.OpenFile(ch.target, os.O_WRONLY, 0); err != nil {
		// A rename would not ask for the right.
		return err
	} else if err := f.Close(); err != nil {
		return err
	}
	pending, err := renameio.NewPendingFile(ch.target, renameio.WithPermissions(0o600),
		renameio.IgnoreUmask(), renameio.WithExistingPermissions())
	if err != nil {
		return err
	}
	defer func() { _ = pending.Cleanup() }()
	if _, err := pending.Write(ch.now); err != nil {
		return err
	}
	// The client may have written the file meanwhile.
	now, err := readFile(ch.target)
	if err != nil {
		return err
	}
	if isSame(now, ch.now) {
		return nil // another tapgw was faster
	}
	if !isSame(now, ch.was) {
		return errors.New("it was changed meanwhile: run the command again")
	}
	if ch.now == nil {
		if err := os.Remove(ch.target); err != nil {
			return err
		}
		_ = pending.Cleanup() // the file is in the directory
		ownfile.RemoveEmpty(filepath.Dir(ch.target), ch.below)
		return nil
	}
	return pending.CloseAtomicallyReplace()
}

// isSame reports whether two files are equal. Nil is no file.
func isSame(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// faultAt is a mistake at an offset in a text.
func faultAt(text []byte, at int, format string, args ...any) error {
	line := bytes.LastIndexByte(text[:at], '\n') + 1
	return configs.Fault{
		Line:    1 + bytes.Count(text[:at], []byte("\n")),
		Column:  1 + utf8.RuneCount(text[line:at]),
		Message: fmt.Sprintf(format, args...),
	}
}

// quoted matches a string, and the colon that makes it a key.
var quoted = lazyregexp.New(`"(?:[^"\\\n]|\\.)*"(\s*[:=])?|'[^'\n]*'`)

// Diff returns the change as a person may see it: strings of other entries, which may be secrets,
// are left out.
func (ch *Change) Diff() diff.Diff {
	text := func(data []byte) *string {
		if data == nil {
			return nil
		}
		s := string(data)
		return &s
	}
	d := diff.New(strings.TrimPrefix(ch.File, "/"), text(ch.was), text(ch.now))
	for n := range d.Hunks {
		for i, l := range d.Hunks[n].Lines {
			d.Hunks[n].Lines[i].Text = quoted.ReplaceAllStringFunc(l.Text, ch.mask)
		}
	}
	return d
}

// mask hides a quoted string unless it is a key or the entry has it.
func (ch *Change) mask(s string) string {
	isKey := s[len(s)-1] == ':' || s[len(s)-1] == '='
	if text := hujson.Literal(s).String(); isKey || slices.Contains(ch.shown, text) {
		return s
	}
	return s[:1] + "…" + s[:1]
}

// stringsIn returns all strings of a value.
func stringsIn(v any) (all []string) {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		for _, v := range v {
			all = append(all, stringsIn(v)...)
		}
	case map[string]any:
		for _, v := range v {
			all = append(all, stringsIn(v)...)
		}
	}
	return all
}
