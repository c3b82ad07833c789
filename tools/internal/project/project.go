// Package project tells from a project's files what it is made of and with which
// commands it is built, tested and run. It reads, and runs nothing.
package project

import (
	"io"
	"io/fs"
	"path"
	"slices"
)

// Project is one project of a directory.
type Project struct {
	Kind     string // go, node, ...; see [Kinds]
	Dir      string // "." or a directory in it
	Name     string // as it calls itself; "" if it doesn't
	Details  []string
	Commands []Command
}

// Command is how something is done, in the project's directory.
type Command struct{ What, Line string }

// Kinds lists the kinds that are known.
func Kinds() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// Start says how a project of a kind is begun, "" if it isn't known.
func Start(name string) string {
	for _, k := range kinds {
		if k.name == name {
			return k.start
		}
	}
	return ""
}

// Detect finds the projects in a directory and right below it; of these not those
// that git ignores usually.
func Detect(fsys fs.FS) ([]Project, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, err
	}
	found := detectIn(fsys, ".", entries)
	for _, e := range entries {
		if name := e.Name(); e.IsDir() && name[0] != '.' &&
			!slices.Contains([]string{"node_modules", "vendor", "target", "build", "dist", "testdata", "venv"}, name) {
			if below, err := fs.ReadDir(fsys, name); err == nil {
				found = append(found, detectIn(fsys, name, below)...)
			}
		}
	}
	return found, nil
}

func detectIn(fsys fs.FS, dir string, entries []fs.DirEntry) (found []Project) {
	d := directory{fsys: fsys, dir: dir}
	for _, e := range entries {
		d.names = append(d.names, e.Name())
	}
	for _, k := range kinds {
		if marker := d.first(k.markers...); marker != "" {
			p := k.detect(d, marker)
			p.Kind, p.Dir = k.name, dir
			found = append(found, p)
		}
	}
	return found
}

// directory is what is in one directory.
type directory struct {
	fsys  fs.FS
	dir   string
	names []string
}

// first returns the first entry that fits one of the patterns, in their order.
func (d directory) first(patterns ...string) string {
	for _, p := range patterns {
		for _, name := range d.names {
			if ok, _ := path.Match(p, name); ok {
				return name
			}
		}
	}
	return ""
}

func (d directory) has(names ...string) bool { return d.first(names...) != "" }

// maxConfig is the size of the largest file that is looked into.
const maxConfig = 1 << 20

// read returns the text of a file, "" if that cannot be read.
func (d directory) read(name string) string {
	f, err := d.fsys.Open(path.Join(d.dir, name))
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	data, err := io.ReadAll(io.LimitReader(f, maxConfig))
	if err != nil {
		return ""
	}
	return string(data)
}

// add adds a command unless it is empty.
func (p *Project) add(what, line string) {
	if line != "" {
		p.Commands = append(p.Commands, Command{what, line})
	}
}
