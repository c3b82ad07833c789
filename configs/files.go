package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Files are the files that make up the gateway's configuration.
type Files struct {
	// Workdir is the project's directory, from which the paths in provider files
	// are seen.
	Workdir string
	// User is the user's own tapgw.toml, or the one that was named; "" for none.
	User string
	// Project is the project's own tapgw.toml, whose keys come over the user's
	// where the user trusts the directory; "" for none.
	Project string
	// Trusted says that the user trusted the project's directory when the files
	// were found.
	Trusted bool

	dirs []providerDir
}

// providerDir is a directory of provider files.
type providerDir struct {
	path    string
	project bool // nothing of it starts without trust
}

// configFile is the name of the gateway's config file, and providerDirName that
// of the directory of provider files beside it.
const (
	configFile      = "tapgw.toml"
	providerDirName = "providers"
)

// Find finds the gateway's files for a working directory: named (of a flag),
// else what TAPGW_CONFIG names, which stands alone and is trusted with the
// provider files beside it; else the user's own and over them those in .tapgw and
// configs of the directory. A file that is named must exist.
func Find(workdir, named string) (Files, error) {
	if abs, err := filepath.Abs(workdir); err == nil {
		workdir = abs
	}
	f := Files{Workdir: workdir}
	where := "--config"
	if named == "" {
		named, where = os.Getenv(EnvConfig), EnvConfig
	}
	if named != "" {
		if !filepath.IsAbs(named) {
			named = filepath.Join(workdir, named)
		}
		f.User = named
		switch _, err := os.Stat(named); { //nolint:gosec // the user names the file
		case errors.Is(err, fs.ErrNotExist):
			return f, fmt.Errorf("%s: %s does not exist", where, named)
		case err != nil:
			return f, fmt.Errorf("%s: %w", where, err)
		}
		f.dirs = []providerDir{{path: filepath.Join(filepath.Dir(named), providerDirName)}}
		return f, nil
	}
	first := func(dirs ...string) string {
		for _, dir := range dirs {
			// One that is there and can't be read says so when it is to be read.
			if file := filepath.Join(dir, configFile); !missing(file) {
				return file
			}
		}
		return ""
	}
	var own []string
	for _, name := range projectDirs {
		dir := filepath.Join(workdir, name)
		own = append(own, dir)
		f.dirs = append(f.dirs, providerDir{filepath.Join(dir, providerDirName), true})
	}
	f.dirs = append(f.dirs, providerDir{path: filepath.Join(UserDir(), providerDirName)})
	f.Project, f.User = first(own...), first(UserDir())
	var err error
	f.Trusted, err = Trusted(workdir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return f, err
}

// missing reports whether nothing is there. A project may have a file of the name
// of our directory.
func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// Load reads tapgw.toml: the project's keys, where it is trusted, over the
// user's. Paths in a file are taken from its directory. The error is [Faults]
// where the files could be read.
func (f Files) Load() (Config, error) {
	c := Default()
	var found []layer
	for _, file := range []string{f.User, f.Project} {
		project := file == f.Project
		if file == "" || project && !f.Trusted {
			continue
		}
		data, err := readFile(file)
		if err != nil {
			return Config{}, err
		}
		if faults := c.parse(file, data, project, &found); len(faults) > 0 {
			return Config{}, faults
		}
		if project {
			continue // it names no files
		}
		dir := filepath.Dir(file)
		c.TLSCert, c.TLSKey = beside(dir, c.TLSCert), beside(dir, c.TLSKey)
		if strings.ContainsAny(c.Copilot.CLI, `/\`) {
			c.Copilot.CLI = beside(dir, c.Copilot.CLI)
		}
	}
	return c, nil
}

// ProviderFile is a file that names a provider, and what it says or why it says
// nothing.
type ProviderFile struct {
	Name     string
	File     string
	Provider Provider // the zero value where there are faults
	Faults   Faults
	// Barred says that the file is a project's that the user has not trusted, and
	// was not read.
	Barred bool
}

// ProviderDirs are the directories of the provider files, whether they exist or
// not, and that of the list of trusted directories where it decides on them.
func (f Files) ProviderDirs() []string {
	dirs := make([]string, 0, len(f.dirs)+1)
	for _, d := range f.dirs {
		dirs = append(dirs, d.path)
	}
	if len(dirs) > 1 {
		dirs = append(dirs, UserDir())
	}
	return dirs
}

// IsProviderFile reports whether the name of a file in [Files.ProviderDirs] is one
// of those that [Files.Providers] depends on.
func IsProviderFile(name string) bool {
	return strings.HasSuffix(name, providerSuffix) && !strings.HasPrefix(name, ".") || name == trustFile
}

// Providers reads the provider files, by name. Of two files with one name that
// of the project counts, and of its .tapgw first; the user's own comes last. One
// that a project must not have does not hide another.
func (f Files) Providers() []ProviderFile {
	trusted := false
	if len(f.dirs) > 1 {
		trusted, _ = Trusted(f.Workdir) // as it is now; an error is no trust
	}
	var found []ProviderFile
	seen := map[string]bool{}
	for _, dir := range f.dirs {
		entries, err := os.ReadDir(dir.path)
		if err != nil && !missing(dir.path) {
			file := ProviderFile{File: dir.path, Faults: Faults{{dir.path, 1, 1, "cannot be read: " + err.Error()}}}
			file.Barred = dir.project && !trusted
			found = append(found, file)
		}
		for _, e := range entries {
			if !strings.HasSuffix(e.Name(), providerSuffix) || strings.HasPrefix(e.Name(), ".") {
				continue
			}
			file := ProviderFile{Name: strings.TrimSuffix(e.Name(), providerSuffix), File: filepath.Join(dir.path, e.Name())}
			if seen[file.Name] {
				continue
			}
			if dir.project && !trusted {
				file.Barred = true
				file.Faults = Faults{f.LeftOut(file.File)}
			} else if !file.read(dir.project) {
				continue
			} else {
				seen[file.Name] = true
			}
			found = append(found, file)
		}
	}
	slices.SortStableFunc(found, func(a, b ProviderFile) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// LeftOut is what is to be known of a project's file that waits for the user's trust.
func (f Files) LeftOut(file string) Fault {
	return Fault{file, 1, 1, fmt.Sprintf("a project's file, left out: run %s if you trust all that lies there", TrustCommand(f.Workdir))}
}

// read reads the file; false when it is gone.
func (p *ProviderFile) read(project bool) bool {
	data, err := readFile(p.File)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false
	case err != nil:
		p.Faults = Faults{{p.File, 1, 1, err.Error()}}
	default:
		p.Provider, p.Faults = parseProvider(p.File, data, project)
	}
	return true
}

// CheckAll checks all files that would apply, trusted or not: first the
// tapgw.toml, then the provider files. files are those that were looked at.
func (f Files) CheckAll() (files []string, faults Faults, err error) {
	for _, file := range []string{f.Project, f.User} {
		if file == "" {
			continue
		}
		data, err := readFile(file)
		if err != nil {
			return nil, nil, err
		}
		c := Default()
		found := c.parse(file, data, file == f.Project, &[]layer{})
		if len(found) == 0 {
			found = hookPrograms(file, data, c.Hooks)
		}
		files, faults = append(files, file), append(faults, found...)
	}
	for _, dir := range f.dirs {
		entries, _ := os.ReadDir(dir.path)
		for _, e := range entries {
			p := ProviderFile{File: filepath.Join(dir.path, e.Name())}
			if IsProviderFile(e.Name()) && e.Name() != trustFile && p.read(dir.project) {
				found := p.Faults
				if data, err := readFile(p.File); err == nil && len(found) == 0 {
					found = providerProgram(p.File, data, p.Provider)
				}
				files, faults = append(files, p.File), append(faults, found...)
			}
		}
	}
	return files, faults, nil
}
