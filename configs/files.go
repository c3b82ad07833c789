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

	"tapgw/internal/tapconfig"
)

// Files are the files that make up the gateway's configuration. [Find] finds them once. The methods
// read them, and the user's trust, again at each call. Any goroutine may call the methods.
type Files struct {
	// Workdir is the gateway's working directory, absolute. The paths in the user's
	// provider files are relative to it.
	Workdir string
	// User is the user's own tapgw.toml, or the file that a flag or variable names; "" if there is
	// no such file.
	User string
	// Project is the tapgw.toml of the project that the working directory is in; "" if there is no
	// such file. A file that only repeats the settings of User does not count.
	Project string
	// Trusted is true when the user trusts Project with the content that Find saw. Then it
	// counts for sessions in the project.
	Trusted bool

	dir     string // of the user's provider files
	isNamed bool   // a flag or variable names User, which counts alone
}

// configFile is the name of the gateway's config file, and providerDirName the name of the
// directory of provider files beside it.
const (
	configFile      = "tapgw.toml"
	providerDirName = "providers"
)

// Find finds the gateway's files for a working directory. If named (of a flag) or
// TAPGW_CONFIG names a tapgw.toml, that file and the provider files beside it count alone,
// and it must exist. Else the user's own files count, and for sessions in a trusted project
// also the project's.
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
		f.User, f.isNamed, f.dir = named, true, filepath.Join(filepath.Dir(named), providerDirName)
		switch _, err := os.Stat(named); { //nolint:gosec // the user names the file
		case errors.Is(err, fs.ErrNotExist):
			return f, fmt.Errorf("%s: %s does not exist", where, named)
		case err != nil:
			return f, fmt.Errorf("%s: %w", where, err)
		}
		return f, nil
	}
	f.dir, f.User = filepath.Join(UserDir(), providerDirName), userFile(configFile)
	p, trusted, err := trustedAbove(workdir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return f, nil
	case err != nil:
		return f, err
	case trusted:
		workdir = p.Dir
	}
	if f.Project = projectFile(workdir, configFile, f.changes); f.Project != "" && trusted {
		f.Trusted = Unchanged(p.Dir, f.Project) == nil
	}
	return f, nil
}

// projectFile returns the first file of a name in a project's config directories that changes
// accepts; "" if there is no such file.
func projectFile(project, name string, changes func(file string, data []byte) bool) string {
	for _, dir := range projectDirs {
		file := filepath.Join(project, dir, name)
		if missing(file) {
			continue
		}
		// A file without a changed setting, such as the sample, needs no trust.
		if data, err := readFile(file); err != nil || changes(file, data) {
			return file
		}
	}
	return ""
}

// changesTapgw reports whether a tapgw.toml changes a default or has a fault.
func changesTapgw(file string, data []byte) bool {
	c, faults := Parse(file, data)
	return len(faults) > 0 || !isEqual(c, Default())
}

// changes reports whether a project's tapgw.toml would change a setting, or has a fault. A default
// changes a setting where the user's file has another value.
func (f Files) changes(file string, data []byte) bool {
	if changesTapgw(file, data) {
		return true
	}
	c, found, err := f.load()
	with := c
	return err == nil && (len(with.parseProject(file, data, &found)) > 0 || !isEqual(with, c))
}

// parseProject is parse for a project's file. A file with defaults only, such as the sample, may
// have keys that only the user can set; they are ignored.
func (c *Config) parseProject(file string, data []byte, found *[]layer) Faults {
	before := *c
	faults := c.parse(file, data, changesTapgw(file, data), found)
	copyUserKeys(c, before)
	return faults
}

// isEqual reports whether two configurations are equal; an empty list equals nil.
func isEqual(a, b any) bool {
	text := func(v any) string { return strings.ReplaceAll(fmt.Sprintf("%#v", v), "(nil)", "{}") }
	return text(a) == text(b)
}

// missing reports whether a path does not exist. A project may have a file where a
// directory of ours would be.
func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// userFile returns the path of a file in the user's config directory, "" if it is missing. One that
// can't be read fails when it is loaded, which says why.
func userFile(name string) string {
	if file := filepath.Join(UserDir(), name); !missing(file) {
		return file
	}
	return ""
}

// isGone reports whether a path does not exist. A link without a target exists but can't be read:
// the target may come back, and the gate stays closed until then.
func isGone(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// Load reads the user's tapgw.toml: the gateway's own configuration. Paths in it become
// absolute, relative to the file's directory. The error is a [Faults] if the file could be
// read. Without a file, it returns [Default].
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
	return c, found, nil
}

// LoadAt returns the configuration for sessions in a directory: the result of Load, with the keys
// of the nearest trusted project's tapgw.toml over it. project is that file; "" if there is no such
// file. A file that has changed since the user trusted it does not count, except for its stricter
// permissions: see [Permissions.TightenAt].
func (f Files) LoadAt(dir string) (c Config, project string, err error) {
	c, found, err := f.load()
	if err != nil || f.isNamed {
		return c, "", err
	}
	p, trusted, err := trustedAbove(dir)
	if err == nil && trusted {
		project = projectFile(p.Dir, configFile, f.changes)
	}
	if project != "" {
		data, err := p.readVerified(project)
		if err != nil {
			project = "" // [Files.Notes] has the error
		} else if faults := c.parseProject(project, data, &found); len(faults) > 0 {
			return Config{}, project, faults
		}
	}
	return c, project, nil
}

// TrustsAt reports whether a directory is itself a project that the user trusts, and all its files
// that count are as the user trusted them. With a named config no project counts.
func (f Files) TrustsAt(dir string) bool {
	if f.isNamed {
		return false
	}
	real, err := realDir(dir)
	if err != nil {
		return false
	}
	root, ok, err := TrustedRoot(real)
	return err == nil && ok && root == real
}

// readVerified returns the content of a project's file if it and the files that it names
// have the content that the user trusted.
func (p TrustedProject) readVerified(file string) ([]byte, error) {
	now, err := readContent(p.Dir)
	if err != nil {
		return nil, err
	}
	rel := p.rel(file)
	if changed := p.Files.firstDifference(now, rel); changed != "" {
		return nil, p.changedError(changed)
	}
	if t := now[rel]; t.Text != nil || t.Sum == "" {
		return t.Text, nil
	}
	return readFile(file)
}

// readTrusted reads a file of a trusted project, as readVerified does.
func readTrusted(project, file string) ([]byte, error) {
	p, trusted, err := loadTrust(project)
	if err != nil {
		return nil, err
	}
	if !trusted {
		return nil, fmt.Errorf("%s is not trusted", project)
	}
	return p.readVerified(file)
}

// Notes returns a fault for each tapgw.toml of a project that does not count, because the
// user has not trusted it or because it has changed since.
func (f Files) Notes() (notes Faults) {
	if f.isNamed {
		return nil
	}
	if f.Project != "" && !f.Trusted {
		if p, trusted, err := trustedAbove(filepath.Dir(f.Project)); err != nil || !trusted {
			notes = append(notes, f.leftOutFault(f.Project))
		} else if err := Unchanged(p.Dir, f.Project); err != nil {
			notes = append(notes,
				Fault{f.Project, 1, 1, "left out: " + err.Error() + f.stricter(f.Project)})
		}
	}
	projects, err := TrustedProjects()
	if err != nil {
		return append(notes, Fault{trustDir(), 1, 1, err.Error()})
	}
	for _, p := range projects {
		file := projectFile(p.Dir, configFile, f.changes)
		if file == "" || file == f.Project {
			continue
		}
		if err := Unchanged(p.Dir, file); err != nil {
			notes = append(notes, Fault{file, 1, 1, "left out: " + err.Error() + f.stricter(file)})
		}
	}
	return notes
}

// ProviderFile is a provider file: the provider that it defines, or its faults. If the records of
// trust can't be read, a ProviderFile without a name reports that fault.
//
// An emitter of a project's tap.config.json is a ProviderFile too. Its File is tap.config.json, and
// its Name is the emitter's name; a fault of the whole file has the file's name.
type ProviderFile struct {
	Name     string
	File     string
	Provider *Provider // fixed, never nil; only its name, kind and file when there are faults
	Faults   Faults
	// LeftOut is true for a project's file that was not read: the user has not trusted it,
	// or it has changed since, or its name belongs to another file.
	LeftOut bool
}

// ProviderDirs returns the directories whose changes may change [Files.Providers], whether they
// exist or not: the directories of provider files and of tap.config.json, and the directory of the
// user's trust.
func (f Files) ProviderDirs() []string {
	if f.isNamed {
		return []string{f.dir}
	}
	dirs := []string{f.dir, trustDir()}
	projects, _ := TrustedProjects() // [Files.Providers] has the error
	for _, p := range projects {
		for _, name := range projectDirs {
			dirs = append(dirs, filepath.Join(p.Dir, name, providerDirName))
		}
		for _, rel := range tapconfig.Files {
			dirs = append(dirs, filepath.Dir(filepath.Join(p.Dir, filepath.FromSlash(rel))))
		}
	}
	return dirs
}

// UserProvider returns the path of the user's provider file of a name, whether it exists or not:
// below the directory of User, or else of [UserDir]. The error says which names providers may have.
func (f Files) UserProvider(name string) (string, error) {
	if !providerName.MatchString(name) {
		return "", fmt.Errorf("%q is not a provider's name: %s", name, nameRule)
	}
	return filepath.Join(f.dir, name+providerSuffix), nil
}

// IsProviderFile reports whether [Files.Providers] depends on a file of this name, without its
// directory, in [Files.ProviderDirs]: a NAME.toml that is not hidden, tap.config.json, or a record
// of trust.
func IsProviderFile(name string) bool {
	return name == tapconfig.FileName || strings.HasSuffix(name, providerSuffix) &&
		!strings.HasPrefix(name, ".") ||
		isTrustRecord(name)
}

// Providers reads the provider files and sorts them by name: the user's files, and for the sessions
// there the files of the projects that the user trusts. If names are equal, the user's file counts
// before a project's, .tapgw before configs, and any file before an emitter of tap.config.json.
// Files of the working directory's project are in the result even without trust, as left out.
func (f Files) Providers() []ProviderFile {
	found := readProviders(f.dir, nil)
	if f.isNamed {
		return found
	}
	taken := map[string]string{}
	for _, p := range found {
		taken[p.Name] = p.File
	}
	projects, err := TrustedProjects()
	if err != nil {
		found = append(found, ProviderFile{
			File: trustDir(), Provider: &Provider{},
			Faults: Faults{{trustDir(), 1, 1, err.Error()}},
		})
	}
	for _, p := range projects {
		found = append(found, p.providers(taken)...)
	}
	if _, trusted, err := trustedAbove(f.Workdir); err == nil && !trusted {
		for _, name := range projectDirs {
			leftOut := readProviders(filepath.Join(f.Workdir, name, providerDirName),
				func(file *ProviderFile) bool {
					file.LeftOut, file.Faults = true, Faults{f.leftOutFault(file.File)}
					return true
				})
			found = append(found, leftOut...)
		}
		if file := tapFile(f.Workdir); file != "" {
			leftOut := f.leftOutFault(file)
			text, err := readFile(file)
			if err != nil {
				leftOut.Message = "a project's file, left out: " + err.Error()
			}
			found = append(found, leftOutTap(f.Workdir, file, text, leftOut))
		}
	}
	slices.SortStableFunc(found, func(a, b ProviderFile) int {
		return strings.Compare(a.Name, b.Name)
	})
	return found
}

// providers reads the provider files of a trusted project. taken has the files that have a
// name already; a project's file of such a name is left out.
func (p TrustedProject) providers(taken map[string]string) (found []ProviderFile) {
	now, err := readContent(p.Dir)
	seen := map[string]bool{}
	for _, name := range projectDirs {
		found = append(found, readProviders(filepath.Join(p.Dir, name, providerDirName),
			func(file *ProviderFile) bool {
				rel, reason := p.rel(file.File), ""
				switch changed := p.Files.firstDifference(now, rel); {
				case seen[file.Name] && file.Name != "":
					return false
				case err != nil:
					reason = err.Error()
				case changed != "" || file.Name == "":
					reason = p.changedError(cmp.Or(changed, rel)).Error()
				case taken[file.Name] != "":
					reason = fmt.Sprintf("%s has this name and counts; give the provider another",
						taken[file.Name])
				}
				if reason != "" {
					file.LeftOut, file.Faults = true,
						Faults{{file.File, 1, 1, "a project's file, left out: " + reason}}
					return true
				}
				seen[file.Name] = true
				file.parse(now[rel].Text, true)
				if now[rel].Text == nil && now[rel].Sum != "" {
					file.read(true)
				}
				if len(file.Faults) == 0 {
					if file.Provider.StartsItself() { // the token file is named after the provider
						taken[file.Name] = file.File
					}
					file.Provider.Project, file.Provider.Digest = p.Dir, p.Files.digest(rel)
					file.Provider.Sessions.Below = p.Dir
				}
				return true
			})...)
	}
	return append(found, p.emitters(now, err, func(name string) bool {
		return taken[name] != "" || slices.ContainsFunc(found, func(f ProviderFile) bool {
			return f.Name == name
		})
	})...)
}

// readProviders calls load for each provider file of a directory and returns the files for which it
// returns true. With a nil load, it reads each file.
func readProviders(dir string, load func(*ProviderFile) bool) (found []ProviderFile) {
	if load == nil {
		load = func(file *ProviderFile) bool { return file.read(false) }
	}
	entries, err := os.ReadDir(dir)
	if err != nil && !isGone(dir) {
		file := ProviderFile{
			File:     dir,
			Provider: &Provider{},
			Faults:   Faults{{dir, 1, 1, "cannot be read: " + err.Error()}},
		}
		found = append(found, file)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), providerSuffix) || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		file := ProviderFile{
			Name: strings.TrimSuffix(
				e.Name(),
				providerSuffix,
			), File: filepath.Join(dir, e.Name()), Provider: &Provider{},
		}
		if load(&file) {
			found = append(found, file)
		}
	}
	return found
}

// leftOutFault is the fault of a project's file that the user has not trusted.
func (f Files) leftOutFault(file string) Fault {
	command := TrustCommand(f.projectDir())
	return Fault{file, 1, 1,
		fmt.Sprintf("a project's file, left out: run %s if you trust all files there%s",
			command, f.stricter(file))}
}

// projectDir is the directory of Project, else the working directory.
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
	case err != nil && isGone(p.File):
		return false
	case err != nil:
		p.Faults = Faults{{p.File, 1, 1, err.Error()}}
	default:
		p.parse(data, project)
	}
	return true
}

func (p *ProviderFile) parse(data []byte, project bool) {
	says, faults := parseProvider(p.File, data, project)
	p.Provider, p.Faults = &says, faults
}

// CheckAll checks all files that would apply, trusted or not: first each tapgw.toml, then the
// provider files. It returns their names and all faults. It returns an error if it can't read a
// file.
func (f Files) CheckAll() (files []string, faults Faults, err error) {
	project := ""
	if !f.isNamed {
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
		isProject := file == project && changesTapgw(file, data)
		found := c.parse(file, data, isProject, &[]layer{})
		if len(found) == 0 {
			found = checkUse(file, data, c)
		}
		files, faults = append(files, file), append(faults, found...)
	}
	dirs := []string{f.dir}
	if !f.isNamed {
		for _, name := range projectDirs {
			dirs = append(dirs, filepath.Join(f.projectDir(), name, providerDirName))
		}
	}
	for i, dir := range dirs {
		for _, p := range readProviders(dir, func(file *ProviderFile) bool {
			return file.read(i > 0)
		}) {
			if p.Name != "" {
				found := p.Faults
				if data, err := readFile(p.File); err == nil && len(found) == 0 {
					found = checkProviderUse(p.File, data, *p.Provider)
				}
				files, faults = append(files, p.File), append(faults, found...)
			}
		}
	}
	if file := tapFile(f.projectDir()); file != "" && !f.isNamed {
		files = append(files, file)
		data, err := readFile(file)
		if err != nil {
			return nil, nil, err
		}
		for _, p := range readEmitters(f.projectDir(), file, data) {
			faults = append(faults, p.Faults...)
		}
	}
	return files, faults, nil
}
