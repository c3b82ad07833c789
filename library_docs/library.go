package library_docs //nolint:revive,staticcheck // see doc.go

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"tapgw/internal/lazyregexp"
)

// maxLibraryBytes is the size of all files of one library together.
const maxLibraryBytes = 4 << 20

// aliasesFile is the name of the file with the other names of a library.
const aliasesFile = "aliases"

// Library is the documentation of one library.
type Library struct {
	ID          string // the directory's name: lower case
	Title       string
	Description string
	Aliases     []string // other names, as [Catalog.Resolve] compares them
	Sections    []Section
}

// Catalog is a list of libraries with unique IDs. An alias of several libraries means the
// first.
type Catalog []Library

//go:embed playwright selenium cucumber gherkin java mermaid
var embedded embed.FS

// Bundled returns the embedded libraries, which it reads once. The caller leaves them
// unchanged.
var Bundled = sync.OnceValue(func() Catalog {
	c, err := load(embedded)
	if err != nil {
		panic("library_docs: what is embedded is broken: " + err.Error())
	}
	return c
})

// Load returns the libraries in the directory dir, and then the bundled ones with other
// IDs. If some libraries in dir can't be read, it returns the others with an error that
// joins one for each. dir may be "" or missing.
func Load(dir string) (Catalog, error) {
	if dir == "" {
		return Bundled(), nil
	}
	c, err := load(os.DirFS(dir))
	if errors.Is(err, fs.ErrNotExist) && c == nil {
		err = nil
	} else if err != nil {
		err = fmt.Errorf("library docs in %s: %w", dir, err)
	}
	for _, lib := range Bundled() {
		if c.byID(lib.ID) < 0 {
			c = append(c, lib)
		}
	}
	return c, err
}

// load reads each directory in fsys as a library, except those whose names begin with a
// dot or an underscore. The catalog is nil if fsys itself can't be read.
func load(fsys fs.FS) (Catalog, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, err
	}
	c := Catalog{}
	var faults []error
	for _, e := range entries {
		info, err := fs.Stat(fsys, e.Name()) // follows links to directories
		if err != nil || !info.IsDir() || strings.HasPrefix(e.Name(), ".") ||
			strings.HasPrefix(e.Name(), "_") {
			continue
		}
		lib, err := loadLibrary(fsys, e.Name())
		if err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", e.Name(), err))
			continue
		}
		c = append(c, lib)
	}
	return c, errors.Join(faults...)
}

var validID = lazyregexp.New(`^[a-z0-9][a-z0-9._-]*$`)

func loadLibrary(fsys fs.FS, id string) (Library, error) {
	if !validID.MatchString(id) {
		return Library{}, errors.New("not an ID: " +
			"name the directory in lower-case letters, digits, dot, dash and underscore")
	}
	files, err := fs.Glob(fsys, id+"/*.md")
	if err != nil {
		return Library{}, err
	}
	lib := Library{ID: id, Title: id}
	hasTitle := false
	left := int64(maxLibraryBytes)
	for _, name := range files {
		text, err := readText(fsys, name, &left)
		if err != nil {
			return Library{}, err
		}
		p := parsePage(strings.TrimSuffix(path.Base(name), ".md"), text)
		lib.Sections = append(lib.Sections, p.sections...)
		if !hasTitle && p.title != "" {
			lib.Title, lib.Description, hasTitle = p.title, p.description, true
		}
	}
	if len(lib.Sections) == 0 {
		return Library{},
			errors.New("no documentation: put *.md files with text into the directory")
	}
	text, err := readText(fsys, path.Join(id, aliasesFile), &left)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Library{}, err
	}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		if alias := normalize(line); alias != "" {
			lib.Aliases = append(lib.Aliases, alias)
		}
	}
	return lib, nil
}

// readText reads a regular file of at most left bytes, and subtracts its size from left.
func readText(fsys fs.FS, name string, left *int64) (string, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() { // opening a pipe would wait for a writer
		return "", fmt.Errorf("%s: not a regular file", name)
	}
	f, err := fsys.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, *left+1))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", name, err)
	}
	if *left -= int64(len(b)); *left < 0 {
		return "", fmt.Errorf("%s: more than %d MiB in one library: split it into several", name,
			maxLibraryBytes>>20)
	}
	if !utf8.Valid(b) {
		return "", fmt.Errorf("%s: not UTF-8 text", name)
	}
	return string(b), nil
}

func (c Catalog) byID(id string) int {
	return slices.IndexFunc(c, func(l Library) bool { return l.ID == id })
}

// IDs returns the libraries' IDs in the catalog's order.
func (c Catalog) IDs() []string {
	ids := make([]string, len(c))
	for i, lib := range c {
		ids[i] = lib.ID
	}
	return ids
}

// Resolve finds libraries by ID or alias, the likeliest first. It ignores case, a leading
// "@", slashes at the ends and a version after "@". Of "org/name" and of the Maven
// coordinates "group:name" the name alone is enough. A name that begins with a slash is
// an ID of Context7 and matches only as a whole.
func (c Catalog) Resolve(name string) []Library {
	whole := normalize(name)
	if found := c.withName(whole); len(found) > 0 ||
		strings.HasPrefix(strings.TrimSpace(name), "/") {
		return found
	}
	if parts := strings.Split(whole, ":"); len(parts) > 1 {
		return c.withName(parts[1])
	}
	return c.withName(path.Base(whole))
}

// withName returns the libraries with an ID or alias, first the one with the ID.
func (c Catalog) withName(name string) []Library {
	if name == "" {
		return nil
	}
	var found []Library
	for _, lib := range c {
		switch {
		case lib.ID == name:
			found = slices.Insert(found, 0, lib) // before libraries with such an alias
		case slices.Contains(lib.Aliases, name):
			found = append(found, lib)
		}
	}
	return found
}

// normalize returns a name in the form that comparisons need.
func normalize(name string) string {
	name = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(name)), "@")
	name, _, _ = strings.Cut(name, "@") // a version
	return strings.Trim(strings.TrimSpace(name), "/")
}
