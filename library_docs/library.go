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

// maxLibraryBytes bounds what one library's files hold together.
const maxLibraryBytes = 4 << 20

// aliasesFile is the name of the file beside the documentation that lists other
// names of the library.
const aliasesFile = "aliases"

// Library is the documentation of one library.
type Library struct {
	ID          string // the directory's name: lower case
	Title       string
	Description string
	Aliases     []string // other names, as [Catalog.Resolve] compares them
	Sections    []Section
}

// Catalog is a list of libraries with unique IDs. Of two with the same alias the
// first is meant.
type Catalog []Library

//go:embed playwright selenium cucumber gherkin java
var embedded embed.FS

// Bundled returns the embedded libraries. The caller leaves them unchanged.
var Bundled = sync.OnceValue(func() Catalog {
	c, err := load(embedded)
	if err != nil {
		panic("library_docs: what is embedded is broken: " + err.Error())
	}
	return c
})

// Load returns the libraries in the directory dir, and after them the bundled
// ones whose ID is not among those. The error joins one for each library in dir
// that can't be read; the rest is returned with it. An empty dir, or one that
// does not exist, adds nothing.
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

// load reads each directory in fsys as a library; those whose names begin with
// a dot or an underscore are none. Its catalog is nil when fsys itself can't be
// read.
func load(fsys fs.FS) (Catalog, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, err
	}
	c := Catalog{}
	var faults []error
	for _, e := range entries {
		info, err := fs.Stat(fsys, e.Name()) // a link to a directory is one
		if err != nil || !info.IsDir() || strings.HasPrefix(e.Name(), ".") || strings.HasPrefix(e.Name(), "_") {
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
		return Library{},
			errors.New("not an ID: name the directory in lower-case letters, digits, dot, dash and underscore")
	}
	files, err := fs.Glob(fsys, id+"/*.md")
	if err != nil {
		return Library{}, err
	}
	lib := Library{ID: id, Title: id}
	titled := false
	room := int64(maxLibraryBytes)
	for _, name := range files {
		text, err := readText(fsys, name, &room)
		if err != nil {
			return Library{}, err
		}
		p := parsePage(strings.TrimSuffix(path.Base(name), ".md"), text)
		lib.Sections = append(lib.Sections, p.sections...)
		if !titled && p.title != "" {
			lib.Title, lib.Description, titled = p.title, p.description, true
		}
	}
	if len(lib.Sections) == 0 {
		return Library{}, errors.New("no documentation: put *.md files with text into the directory")
	}
	text, err := readText(fsys, path.Join(id, aliasesFile), &room)
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

// readText reads a regular file of at most room bytes and takes them off it.
func readText(fsys fs.FS, name string, room *int64) (string, error) {
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
	b, err := io.ReadAll(io.LimitReader(f, *room+1))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", name, err)
	}
	if *room -= int64(len(b)); *room < 0 {
		return "", fmt.Errorf("%s: more than %d MiB in one library: split it into several", name, maxLibraryBytes>>20)
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

// Resolve finds libraries by ID or alias, the likeliest first; none: nobody
// goes by that name. Case, a leading "@", slashes at the ends and a version
// after "@" don't count. Of "org/name" and the Maven coordinates "group:name"
// the name alone will do, unless name begins with a slash: that is an ID of
// Context7 and means one library of one owner.
func (c Catalog) Resolve(name string) []Library {
	whole := normalize(name)
	if found := c.named(whole); len(found) > 0 || strings.HasPrefix(strings.TrimSpace(name), "/") {
		return found
	}
	if parts := strings.Split(whole, ":"); len(parts) > 1 {
		return c.named(parts[1])
	}
	return c.named(path.Base(whole))
}

func (c Catalog) named(name string) []Library {
	if name == "" {
		return nil
	}
	var found []Library
	for _, lib := range c {
		switch {
		case lib.ID == name:
			found = slices.Insert(found, 0, lib) // before those with such an alias
		case slices.Contains(lib.Aliases, name):
			found = append(found, lib)
		}
	}
	return found
}

// normalize brings a name into the form in which names are compared.
func normalize(name string) string {
	name = strings.TrimPrefix(strings.ToLower(strings.TrimSpace(name)), "@")
	name, _, _ = strings.Cut(name, "@") // a version
	return strings.Trim(strings.TrimSpace(name), "/")
}
