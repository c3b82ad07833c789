package configs

import (
	"bytes"
	"path/filepath"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// Changed returns the keys that two configurations give another value, dotted:
// "copilot.permissions.shell". Of tables whose keys are names it knows only those
// that make no difference until the next start.
func Changed[C any, P interface {
	*C
	read(*table)
}](a, b C) (keys []string) {
	var compare func(prefix string, a, b *jsonschema.Schema)
	compare = func(prefix string, a, b *jsonschema.Schema) {
		if !bytes.Equal(a.Default, b.Default) {
			keys = append(keys, prefix)
		}
		if prefix != "" {
			prefix += "."
		}
		for _, name := range a.PropertyOrder {
			compare(prefix+name, a.Properties[name], b.Properties[name])
		}
	}
	compare("", shapeOf(P(&a).read), shapeOf(P(&b).read))
	return keys
}

// Where is the place of a key of tapgw.toml, as a fault of this message: in the
// file that says it last. A key that no file says has the beginning of the one
// that could.
func (f Files) Where(key, message string) Fault {
	return where(key, message, filepath.Join(UserDir(), configFile), f.User)
}

// Where is the place of a key of lsclient.toml, as [Files.Where] is.
func (f LSFiles) Where(key, message string) Fault {
	return where(key, message, filepath.Join(UserDir(), lsFile), f.User, f.Project)
}

func where(key, message, place string, files ...string) Fault {
	files = slices.DeleteFunc(files, func(file string) bool { return file == "" })
	if len(files) > 0 {
		place = files[0]
	}
	found := Fault{File: place, Line: 1, Column: 1, Message: message}
	for _, file := range files {
		data, err := readFile(file)
		if err != nil {
			continue
		}
		doc, root := open(file, data)
		if root == nil {
			continue
		}
		if offset, ok := doc.keys[key]; ok {
			doc.at(offset, message)
			found = doc.faults[0]
		}
	}
	return found
}

// ConfigDirs are the directories in which a tapgw.toml counts, and that of what the
// user trusts, which decides on one, whether they exist or not.
func (f Files) ConfigDirs() (dirs []string) {
	if f.isNamed {
		return []string{filepath.Dir(f.dir)}
	}
	dirs = []string{filepath.Dir(f.dir), trustDir()}
	projects, _ := TrustedProjects() // [Files.Notes] has the error
	for _, p := range projects {
		for _, name := range projectDirs {
			dirs = append(dirs, filepath.Join(p.Dir, name))
		}
	}
	return dirs
}

// IsConfigFile reports whether a file in [Files.ConfigDirs] of this name is one of
// those that [Files.Load] depends on, or could be.
func (f Files) IsConfigFile(name string) bool {
	if f.isNamed {
		return name == filepath.Base(f.User)
	}
	return name == configFile || isTrustRecord(name)
}

// ConfigDirs are the directories in which an lsclient.toml, a directory of tools or
// the list of trusted directories counts for a workspace.
func (f LSFiles) ConfigDirs(workspace string) (dirs []string) {
	if f.isNamed {
		return []string{filepath.Dir(f.User)}
	}
	for _, name := range projectDirs {
		dirs = append(dirs, filepath.Join(workspace, name))
		if f.project != "" && f.project != workspace {
			dirs = append(dirs, filepath.Join(f.project, name))
		}
	}
	return append(dirs, UserDir(), trustDir())
}

// IsConfigFile is as [Files.IsConfigFile].
func (f LSFiles) IsConfigFile(name string) bool {
	if f.isNamed {
		return name == filepath.Base(f.User)
	}
	return name == lsFile || isTrustRecord(name)
}
