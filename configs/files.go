package configs

import (
	"cmp"
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
	// Workdir is the gateway's directory, from which the paths in the user's provider
	// files are seen.
	Workdir string
	// User is the user's own tapgw.toml, or the one that was named; "" for none.
	User string
	// Project is the tapgw.toml of the project that the working directory is in, if
	// it says more than the defaults; "" for none. It counts for sessions there, if
	// Trusted.
	Project string
	// Trusted says that the user trusted Project as it was when the files were found.
	Trusted bool

	dir   string // of the user's provider files
	named bool   // User was, and stands alone
}

// configFile is the name of the gateway's config file, and providerDirName that
// of the directory of provider files beside it.
const (
	configFile      = "tapgw.toml"
	providerDirName = "providers"
)

// Find finds the gateway's files for a working directory: named (of a flag), else
// what TAPGW_CONFIG names, which stands alone and is trusted with the provider files
// beside it; else the user's own. To these come, for the sessions in them, the files
// of the projects that the user trusts, wherever the gateway runs. A file that is
// named must exist.
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
		f.User, f.named, f.dir = named, true, filepath.Join(filepath.Dir(named), providerDirName)
		switch _, err := os.Stat(named); { //nolint:gosec // the user names the file
		case errors.Is(err, fs.ErrNotExist):
			return f, fmt.Errorf("%s: %s does not exist", where, named)
		case err != nil:
			return f, fmt.Errorf("%s: %w", where, err)
		}
		return f, nil
	}
	f.dir = filepath.Join(UserDir(), providerDirName)
	// One that is there and can't be read says so when it is to be read.
	if file := filepath.Join(UserDir(), configFile); !missing(file) {
		f.User = file
	}
	p, trusted, err := trustedAbove(workdir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, nil
	case err != nil:
		return f, err
	case trusted:
		workdir = p.Dir
	}
	if f.Project = projectFile(workdir, configFile, saysTapgw); f.Project != "" && trusted {
		f.Trusted = Unchanged(p.Dir, f.Project) == nil
	}
	return f, nil
}

// projectFile is the first file of a name in a project's config directories that
// says something; "" for none.
func projectFile(project, name string, says func(file string, data []byte) bool) string {
	for _, dir := range projectDirs {
		file := filepath.Join(project, dir, name)
		if missing(file) {
			continue
		}
		// A sample, say, that has every key with its default asks for no trust.
		if data, err := readFile(file); err != nil || says(file, data) {
			return file
		}
	}
	return ""
}

// saysTapgw reports whether a tapgw.toml says more than the defaults.
func saysTapgw(file string, data []byte) bool {
	c, faults := Parse(file, data)
	return len(faults) > 0 || !alike(c, Default())
}

// alike reports whether two configurations are equal; an empty list is none.
func alike(a, b any) bool {
	written := func(v any) string { return strings.ReplaceAll(fmt.Sprintf("%#v", v), "(nil)", "{}") }
	return written(a) == written(b)
}

// missing reports whether nothing is there. A project may have a file of the name
// of our directory.
func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// Load reads the user's tapgw.toml, which the gateway goes by. Paths in it are taken
// from its directory. The error is [Faults] where the file could be read.
func (f Files) Load() (Config, error) {
	c, _, err := f.load()
	return c, err
}

func (f Files) load() (c Config, found []layer, err error) {
	c = Default()
	if f.User == "" {
		return c, nil, nil
	}
	data, err := readFile(f.User)
	if err != nil {
		return Config{}, nil, err
	}
	if faults := c.parse(f.User, data, false, &found); len(faults) > 0 {
		return Config{}, nil, faults
	}
	dir := filepath.Dir(f.User)
	c.TLSCert, c.TLSKey = beside(dir, c.TLSCert), beside(dir, c.TLSKey)
	if strings.ContainsAny(c.Copilot.CLI, `/\`) {
		c.Copilot.CLI = beside(dir, c.Copilot.CLI)
	}
	return c, found, nil
}

// LoadAt is what counts for a session in a directory: what Load says, and over it
// the keys of the trusted project's tapgw.toml that the directory is in, the
// nearest; project is that file, "" for none. One that has changed since it was
// trusted does not count.
func (f Files) LoadAt(dir string) (c Config, project string, err error) {
	c, found, err := f.load()
	if err != nil || f.named {
		return c, "", err
	}
	p, trusted, err := trustedAbove(dir)
	if err != nil || !trusted {
		return c, "", nil // a directory that is not there is in no project
	}
	project = projectFile(p.Dir, configFile, saysTapgw)
	if project == "" {
		return c, "", nil
	}
	data, err := p.verified(project)
	if err != nil {
		return c, "", nil // [Files.Notes] has it
	}
	if faults := c.parse(project, data, true, &found); len(faults) > 0 {
		return Config{}, project, faults
	}
	return c, project, nil
}

// verified reads a file of a project and returns what it holds if that, and what it
// names, is what the user trusted.
func (p TrustedProject) verified(file string) ([]byte, error) {
	now, err := read(p.Dir)
	if err != nil {
		return nil, err
	}
	rel := p.rel(file)
	if changed := p.Files.differs(now, rel); changed != "" {
		return nil, p.changed(changed)
	}
	if t := now[rel]; t.Text != nil || t.Sum == "" {
		return t.Text, nil
	}
	return readFile(file)
}

// trustedFile reads a file of a trusted project, as verified does.
func trustedFile(project, file string) ([]byte, error) {
	p, trusted, err := loadTrust(project)
	if err != nil {
		return nil, err
	}
	if !trusted {
		return nil, fmt.Errorf("%s is not trusted", project)
	}
	return p.verified(file)
}

// Notes are what is to be known of projects' tapgw.toml: that one waits for the
// user's trust, or has changed since.
func (f Files) Notes() (notes Faults) {
	if f.named {
		return nil
	}
	if f.Project != "" && !f.Trusted {
		if p, trusted, err := trustedAbove(filepath.Dir(f.Project)); err != nil || !trusted {
			notes = append(notes, f.LeftOut(f.Project))
		} else if err := Unchanged(p.Dir, f.Project); err != nil {
			notes = append(notes, Fault{f.Project, 1, 1, "left out: " + err.Error()})
		}
	}
	projects, err := TrustedProjects()
	if err != nil {
		return append(notes, Fault{trustDir(), 1, 1, err.Error()})
	}
	for _, p := range projects {
		file := projectFile(p.Dir, configFile, saysTapgw)
		if file == "" || file == f.Project {
			continue
		}
		if err := Unchanged(p.Dir, file); err != nil {
			notes = append(notes, Fault{file, 1, 1, "left out: " + err.Error()})
		}
	}
	return notes
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
// not, and that of what the user trusts where it decides on them.
func (f Files) ProviderDirs() []string {
	if f.named {
		return []string{f.dir}
	}
	dirs := []string{f.dir, trustDir()}
	projects, _ := TrustedProjects() // [Files.Providers] has the error
	for _, p := range projects {
		for _, name := range projectDirs {
			dirs = append(dirs, filepath.Join(p.Dir, name, providerDirName))
		}
	}
	return dirs
}

// IsProviderFile reports whether the name of a file in [Files.ProviderDirs] is one
// of those that [Files.Providers] depends on.
func IsProviderFile(name string) bool {
	return strings.HasSuffix(name, providerSuffix) && !strings.HasPrefix(name, ".") || isTrustRecord(name)
}

// Providers reads the provider files, by name: the user's, and those of the projects
// that the user trusts, which are for the sessions in them. A project's file hides
// none of the user's; of two in one project with one name that of .tapgw counts.
// Those of the working directory's project are told of even where it is not trusted.
func (f Files) Providers() []ProviderFile {
	found := readProviders(f.dir, nil)
	if f.named {
		return found
	}
	own := map[string]string{}
	for _, p := range found {
		own[p.Name] = p.File
	}
	projects, err := TrustedProjects()
	if err != nil {
		found = append(found, ProviderFile{File: trustDir(), Faults: Faults{{trustDir(), 1, 1, err.Error()}}})
	}
	for _, p := range projects {
		found = append(found, p.providers(own)...)
	}
	if _, trusted, err := trustedAbove(f.Workdir); err == nil && !trusted {
		for _, name := range projectDirs {
			barred := readProviders(filepath.Join(f.Workdir, name, providerDirName), func(file *ProviderFile) bool {
				file.Barred, file.Faults = true, Faults{f.LeftOut(file.File)}
				return true
			})
			found = append(found, barred...)
		}
	}
	slices.SortStableFunc(found, func(a, b ProviderFile) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// providers reads the provider files of a trusted project. own are the names that
// others have, by which theirs are left out.
func (p TrustedProject) providers(own map[string]string) (found []ProviderFile) {
	now, err := read(p.Dir)
	seen := map[string]bool{}
	for _, name := range projectDirs {
		found = append(found, readProviders(filepath.Join(p.Dir, name, providerDirName), func(file *ProviderFile) bool {
			rel, bar := p.rel(file.File), ""
			switch changed := p.Files.differs(now, rel); {
			case seen[file.Name] && file.Name != "":
				return false
			case err != nil:
				bar = err.Error()
			case changed != "" || file.Name == "":
				bar = p.changed(cmp.Or(changed, rel)).Error()
			case own[file.Name] != "":
				bar = fmt.Sprintf("%s has this name and counts; give the provider another", own[file.Name])
			}
			if bar != "" {
				file.Barred, file.Faults = true, Faults{{file.File, 1, 1, "a project's file, left out: " + bar}}
				return true
			}
			seen[file.Name] = true
			file.Provider, file.Faults = parseProvider(file.File, now[rel].Text, true)
			if now[rel].Text == nil && now[rel].Sum != "" {
				file.read(true)
			}
			if len(file.Faults) == 0 {
				if file.Provider.Kind == KindConnect { // its token lies in a file of its name
					own[file.Name] = file.File
				}
				file.Provider.Project, file.Provider.Digest, file.Provider.Sessions.Below = p.Dir, p.Files.digest(
					rel,
				), p.Dir
			}
			return true
		})...)
	}
	return found
}

// readProviders reads the provider files of a directory: each as take says, false
// for one to leave out without a word; nil reads it.
func readProviders(dir string, take func(*ProviderFile) bool) (found []ProviderFile) {
	if take == nil {
		take = func(file *ProviderFile) bool { return file.read(false) }
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !missing(dir) {
		file := ProviderFile{File: dir, Faults: Faults{{dir, 1, 1, "cannot be read: " + err.Error()}}}
		found = append(found, file)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), providerSuffix) || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		file := ProviderFile{Name: strings.TrimSuffix(e.Name(), providerSuffix), File: filepath.Join(dir, e.Name())}
		if take(&file) {
			found = append(found, file)
		}
	}
	return found
}

// LeftOut is what is to be known of a project's file that waits for the user's trust.
func (f Files) LeftOut(file string) Fault {
	return Fault{
		file,
		1,
		1,
		fmt.Sprintf("a project's file, left out: run %s if you trust all that lies there",
			TrustCommand(f.projectDir())),
	}
}

// projectDir is the directory of the project that Project is of.
func (f Files) projectDir() string {
	if f.Project != "" {
		return filepath.Dir(filepath.Dir(f.Project))
	}
	return f.Workdir
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
	project := ""
	if !f.named {
		project = projectFile(f.projectDir(), configFile, func(string, []byte) bool { return true })
	}
	for _, file := range []string{project, f.User} {
		if file == "" {
			continue
		}
		data, err := readFile(file)
		if err != nil {
			return nil, nil, err
		}
		c := Default()
		of := file == project && saysTapgw(file, data)
		found := c.parse(file, data, of, &[]layer{})
		if len(found) == 0 {
			found = hookPrograms(file, data, c.Hooks)
		}
		files, faults = append(files, file), append(faults, found...)
	}
	dirs := []string{f.dir}
	if !f.named {
		for _, name := range projectDirs {
			dirs = append(dirs, filepath.Join(f.projectDir(), name, providerDirName))
		}
	}
	for i, dir := range dirs {
		for _, p := range readProviders(dir, func(file *ProviderFile) bool { return file.read(i > 0) }) {
			if p.Name != "" {
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
