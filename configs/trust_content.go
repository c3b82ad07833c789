package configs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unicode"

	"github.com/BurntSushi/toml"

	"tapgw/internal/tapconfig"
)

// The content of a project's files is part of the user's trust: this file finds the files that
// count and compares them with the trusted ones.

// Bounds of a trusted project's content. They are far above the size of anything that a person
// writes by hand.
const (
	maxTrustedFiles = 2000
	maxTrustedSize  = 64 << 20  // of all files
	maxKeptFile     = 256 << 10 // of a file's text, to show later how it changed
	maxKept         = 8 << 20   // of all texts
)

// trustedContent is the content of a file at the time when the user trusted it.
type trustedContent struct {
	Sum   string   `json:"sum"` // of its content, and of whether it can be run
	Text  []byte   `json:"text,omitempty"`
	Names []string `json:"names,omitempty"` // files of the project that it names
}

// content has the files of a project that count, by path from its directory.
type content map[string]trustedContent

// lspFile names the language servers that the Copilot runtime starts.
const lspFile = ".github/lsp.json"

// singleFiles are files of a project, outside its config directories, that start a program or say
// which programs may start.
var singleFiles = append(
	[]string{lspFile, ".github/mcp.json", ".mcp.json", ".vscode/mcp.json"}, tapconfig.Files...,
)

// wholeDirs are directories of which every file is one.
var wholeDirs = []string{".github/hooks", ".github/agents", ".github/copilot", ".claude/agents"}

func (c content) paths() []string { return slices.Sorted(maps.Keys(c)) }

// changes are how now differs from c.
func (c content) changes(now content) (all []Change) {
	for _, p := range slices.Compact(slices.Sorted(slices.Values(append(c.paths(),
		now.paths()...)))) {
		old, was := c[p]
		is, there := now[p]
		switch {
		case !was:
			all = append(all, Change{p, "new", nil, is.Text})
		case !there:
			all = append(all, Change{p, "gone", old.Text, nil})
		case old.Sum != is.Sum:
			all = append(all, Change{p, "changed", old.Text, is.Text})
		}
	}
	return all
}

// firstDifference returns the first file that differs between c and now: the file at a path, a file
// that it names, or a file below it if it is a directory.
func (c content) firstDifference(now content, rel string) string {
	check := map[string]bool{}
	var add func(p string)
	add = func(p string) {
		if check[p] {
			return
		}
		check[p] = true
		for _, all := range []content{c, now} {
			for _, name := range all[p].Names {
				add(name)
			}
		}
	}
	add(rel)
	for _, all := range []content{c, now} {
		for p := range all {
			if strings.HasPrefix(p, rel+"/") {
				add(p)
			}
		}
	}
	for _, p := range slices.Sorted(maps.Keys(check)) {
		if c[p].Sum != now[p].Sum {
			return p
		}
	}
	return ""
}

// digest returns a digest of a file and the files that it names.
func (c content) digest(rel string) string {
	parts := []string{c[rel].Sum}
	for _, name := range c[rel].Names {
		parts = append(parts, name, c[name].Sum)
	}
	return sum([]byte(strings.Join(parts, "\n")))
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// reader reads the files of a project that count.
type reader struct {
	dir   string
	found content
	size  int64
	kept  int
}

// readContent reads the files of a project that count: its config files, the files in its
// directories of providers and tools, and the files that these name.
func readContent(dir string) (content, error) {
	r := &reader{dir: dir, found: content{}}
	for _, name := range projectDirs {
		for _, file := range []string{configFile, lsFile} {
			if err := r.file(path.Join(name, file)); err != nil {
				return nil, err
			}
		}
		if err := r.tree(path.Join(name, providerDirName), providerSuffix, false); err != nil {
			return nil, err
		}
		if err := r.tree(path.Join(name, toolDir), "", true); err != nil {
			return nil, err
		}
	}
	for _, file := range singleFiles {
		if err := r.file(file); err != nil {
			return nil, err
		}
	}
	for _, sub := range wholeDirs {
		if err := r.tree(sub, "", true); err != nil {
			return nil, err
		}
	}
	return r.found, nil
}

// tree reads the files of a directory whose names end in suffix; with deep, also those in
// directories below it. It skips Python's caches, because tools don't use them.
func (r *reader) tree(rel, suffix string, deep bool) error {
	entries, err := os.ReadDir(filepath.Join(r.dir, rel))
	if missing(filepath.Join(r.dir, rel)) {
		return nil
	}
	if err != nil {
		if errors.Is(err, syscall.ENOTDIR) {
			return r.file(rel)
		}
		return fmt.Errorf("reading what counts of %s: %w", r.dir, err)
	}
	for _, e := range entries {
		at := path.Join(rel, e.Name())
		info, err := os.Stat(filepath.Join(r.dir, at))
		switch {
		case err != nil || e.Name() == "__pycache__":
			continue
		case info.IsDir():
			if deep && e.Type()&fs.ModeSymlink == 0 { // a link may lead round
				if err := r.tree(at, suffix, true); err != nil {
					return err
				}
			}
		case strings.HasSuffix(e.Name(), suffix):
			if err := r.file(at); err != nil {
				return err
			}
		}
	}
	return nil
}

// file reads a file, and the files that it names.
func (r *reader) file(rel string) error {
	if _, known := r.found[rel]; known {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(r.dir, rel), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if missing(filepath.Join(r.dir, rel)) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading what counts of %s: %w", r.dir, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err // no part of it runs, and readers of configuration report the error
	}
	h := sha256.New()
	fmt.Fprintln(h, info.Mode().Perm()&0o111 != 0)
	var text []byte
	if info.Size() <= maxFile {
		if text, err = io.ReadAll(io.LimitReader(f, maxFile+1)); err == nil {
			h.Write(text)
			r.size += int64(len(text))
		}
	} else {
		var n int64
		n, err = io.Copy(h, io.LimitReader(f, maxTrustedSize+1-r.size))
		r.size += n
	}
	if err != nil {
		return fmt.Errorf("reading what counts of %s: %w", r.dir, err)
	}
	if len(r.found) >= maxTrustedFiles || r.size > maxTrustedSize {
		return fmt.Errorf(
			"%s has more than %d files or %d MB that count (%s among them): trust a "+
				"smaller directory",
			r.dir, maxTrustedFiles, maxTrustedSize>>20, rel)
	}
	t := trustedContent{Sum: hex.EncodeToString(h.Sum(nil))}
	// Emitters are read from the kept text alone: a file that is read once more may be something
	// else.
	isKept := len(text) <= maxKeptFile && r.kept+len(text) <= maxKept ||
		slices.Contains(tapconfig.Files, rel)
	if isKept && len(text) <= maxFile {
		t.Text = text
		r.kept += len(text)
	}
	r.found[rel] = t
	before := maps.Clone(r.found)
	for _, name := range r.names(rel, text) {
		if err := r.named(name); err != nil {
			return err
		}
		for p := range r.found {
			if _, was := before[p]; !was || p == name.rel || strings.HasPrefix(p, name.rel+"/") {
				if p != rel && !slices.Contains(t.Names, p) {
					t.Names = append(t.Names, p)
				}
			}
		}
	}
	slices.Sort(t.Names)
	r.found[rel] = t
	return nil
}

// name is a path of the project that a file names.
type name struct {
	rel string
	key string // the key that names it
}

// named reads the file that a name in a project's file stands for.
func (r *reader) named(n name) error {
	info, err := os.Stat(filepath.Join(r.dir, n.rel))
	switch {
	case err != nil:
		return nil
	case !info.IsDir():
		return r.file(n.rel)
	case slices.Contains([]string{"dir", "dirs", "tools", "skill_directories"}, n.key):
		return r.tree(n.rel, "", true)
	case slices.Contains([]string{"command", "args", "run"}, n.key): // "go run ./server"
		return r.tree(n.rel, "", false)
	}
	return nil // such as a directory to work in
}

// commands are the keys whose text runs as a command. Words of the text may be paths: words of a
// shell's line, or the value after an option's "=".
var commands = []string{"command", "args", "run", "env", "bash", "powershell"}

// words are the parts of a command that may be paths.
func words(s string) []string {
	return strings.FieldsFunc(s,
		func(r rune) bool {
			return unicode.IsSpace(r) || strings.ContainsRune("'\"`=;:,|&<>(){}$", r)
		})
}

// names returns the files and directories of the project that a config file, a manifest
// or a list of hooks names. Any text in it may be a path, and so may each word of a text
// that is run. A path may be relative to the file, to the project or to the directory
// that the file gives to run in.
func (r *reader) names(rel string, text []byte) (all []name) {
	var doc any
	switch path.Ext(rel) {
	case ".toml":
		var table map[string]any
		if _, err := toml.Decode(string(text), &table); err != nil {
			return nil
		}
		doc = table
	case ".json":
		if json.Unmarshal(text, &doc) != nil {
			return nil
		}
	default:
		return nil
	}
	from := []string{".", path.Dir(rel)}
	each(doc, "", false, func(key, s string, _ bool) {
		if at, ok := r.inside(".", s); ok && key == "cwd" && !slices.Contains(from, at) {
			from = append(from, at)
		}
	})
	seen := map[string]bool{}
	each(doc, "", false, func(key, s string, run bool) {
		texts := []string{s}
		if run {
			texts = append(texts, words(s)...)
		}
		for _, s := range texts {
			for _, from := range from {
				at, ok := r.inside(from, s)
				if ok && !seen[at] {
					seen[at] = true
					all = append(all, name{at, key})
				}
			}
		}
	})
	slices.SortFunc(all, func(a, b name) int { return strings.Compare(a.rel, b.rel) })
	return all
}

// each visits the texts in a document with their keys, and reports whether a text runs as a
// command.
func each(v any, key string, run bool, visit func(key, s string, run bool)) {
	switch v := v.(type) {
	case map[string]any:
		for k, v := range v {
			each(v, k, run || slices.Contains(commands, k), visit)
		}
	case []map[string]any:
		for _, v := range v {
			each(v, key, run, visit)
		}
	case []any:
		for _, v := range v {
			each(v, key, run, visit)
		}
	case string:
		visit(key, v, run)
	}
}

// inside returns the path, relative to the project's directory, of an existing file or directory.
// ok is false for the project's directory itself and for the directories of config files.
func (r *reader) inside(from, s string) (rel string, ok bool) {
	if s == "" || len(s) > 4096 || strings.ContainsAny(s, "\n\x00") {
		return "", false
	}
	at := filepath.FromSlash(s)
	if !filepath.IsAbs(at) {
		at = filepath.Join(r.dir, filepath.FromSlash(from), at)
	}
	rel, err := filepath.Rel(r.dir, at)
	if err == nil && !filepath.IsLocal(rel) { // by another name of the project's directory
		if at, err = filepath.EvalSymlinks(at); err == nil {
			rel, err = filepath.Rel(r.dir, at)
		}
	}
	if err != nil || !filepath.IsLocal(rel) || rel == "." || slices.Contains(projectDirs, rel) {
		return "", false
	}
	_, err = os.Stat(at)
	return filepath.ToSlash(rel), err == nil
}
