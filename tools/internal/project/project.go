// Package project finds out from a project's files its kind and the commands that build, test and
// run it. It only reads files and runs no program.
package project

import (
	"io"
	"io/fs"
	"path"
	"slices"
)

// Project is one project in a directory, with the content of its project files and the commands
// that work on it. A directory may have several, of different kinds.
type Project struct {
	Kind     string   // go, node, ...; see [Kinds]
	Dir      string   // "." or a directory in it
	Name     string   // from its files; "" if they have no name
	Details  []string // such as "Go 1.26"
	Commands []Command
}

// Command is a command line for a purpose, such as a test, in the project's directory. What names
// the purpose, and Line is for a shell.
type Command struct{ What, Line string }

// Kinds lists the names of all kinds, in the order in which [Detect] looks for them in a directory.
func Kinds() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// Start returns the command line that begins a new project of a kind, "" for an unknown kind. The
// caller shows it; this package never runs it.
func Start(name string) string {
	for _, k := range kinds {
		if k.name == name {
			return k.start
		}
	}
	return ""
}

// Detect finds the projects in a directory and in its direct subdirectories, except hidden ones and
// subdirectories that usually hold copies or build results. Projects of the directory itself come
// first. It returns an error if it can't read the directory; subdirectories that can't be read are
// skipped.
func Detect(fsys fs.FS) ([]Project, error) {
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, err
	}
	found := detectIn(fsys, ".", entries)
	for _, e := range entries {
		if name := e.Name(); e.IsDir() && name[0] != '.' && !slices.Contains(skippedDirs, name) {
			if below, err := fs.ReadDir(fsys, name); err == nil {
				found = append(found, detectIn(fsys, name, below)...)
			}
		}
	}
	return found, nil
}

// skippedDirs are subdirectories without projects of their own.
var skippedDirs = []string{"node_modules", "vendor", "target", "build", "dist", "testdata", "venv"}

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

// directory lists one directory and reads its files.
type directory struct {
	fsys  fs.FS
	dir   string
	names []string
}

// first returns the first entry that matches one of the patterns, in their order.
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

// maxConfig is how many bytes of a file are read.
const maxConfig = 1 << 20

// read returns the text of a file, "" if it can't be read.
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
