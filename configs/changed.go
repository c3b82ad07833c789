package configs

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// Changed returns the keys whose values differ in two configurations, with dots, such as
// "copilot.permissions.shell". It returns no keys if the configurations are equal. A table whose
// keys are names counts as one key.
func Changed[C any](a, b C) (keys []string) {
	var compare func(prefix string, a, b reflect.Value)
	compare = func(prefix string, a, b reflect.Value) {
		for _, f := range fieldsOf(a.Type()) {
			switch a, b := f.in(a), f.in(b); {
			case a.Kind() == reflect.Struct:
				compare(prefix+f.key+".", a, b)
			case !isEqual(a.Interface(), b.Interface()):
				keys = append(keys, prefix+f.key)
			}
		}
	}
	compare("", reflect.ValueOf(a), reflect.ValueOf(b))
	return keys
}

// Where returns a fault with this message at the place of a key in the user's tapgw.toml. If
// the file does not have the key, the place is the beginning of the file.
func (f Files) Where(key, message string) Fault {
	return where(key, message, filepath.Join(UserDir(), configFile), f.User)
}

// Where returns a fault at the place of a key, as [Files.Where] does, in the lsclient.toml that
// counts: the project's if it has the key, else the user's.
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
		offset, ok := doc.keys[key]
		// instead of a table with the key
		if short, _, _ := strings.Cut(key, "."); !ok && root.isList(short) {
			offset, ok = doc.keys[short]
		}
		if ok {
			doc.at(offset, message)
			found = doc.faults[0]
		}
	}
	return found
}

// ConfigDirs returns the directories whose changes may change [Files.Load] and [Files.LoadAt],
// whether they exist or not: the directories of each tapgw.toml, and the directory of the user's
// trust.
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

// IsConfigFile reports whether [Files.Load] may depend on a file of this name, without its
// directory, in [Files.ConfigDirs]: a config file, or a record of the user's trust.
func (f Files) IsConfigFile(name string) bool {
	if f.isNamed {
		return name == filepath.Base(f.User)
	}
	return name == configFile || isTrustRecord(name)
}

// ConfigDirs returns the directories whose changes may change [LSFiles.Load] for a workspace: the
// directories of lsclient.toml files, the directories of tools, and the directory of the user's
// trust.
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

// IsConfigFile reports whether [LSFiles.Load] may depend on a file of this name, without its
// directory, in [LSFiles.ConfigDirs]. It is false for the files of tools.
func (f LSFiles) IsConfigFile(name string) bool {
	if f.isNamed {
		return name == filepath.Base(f.User)
	}
	return name == lsFile || isTrustRecord(name)
}
