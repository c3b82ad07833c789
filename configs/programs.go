package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/BurntSushi/toml"
)

// hookPrograms are the faults of [[hooks]] whose program is named by its path and
// can't be run: such a hook can't be asked, and denies. Reading the file does not
// find them, since a program may come and go while its file says the same.
func hookPrograms(file string, data []byte, hooks []Hook) Faults {
	doc, root := open(file, data)
	if root == nil {
		return doc.faults
	}
	for i, h := range hooks {
		if len(h.Command) == 0 || !filepath.IsAbs(h.Command[0]) {
			continue
		}
		if _, err := runnable(h.Command[0]); err != nil {
			path := toml.Key{"hooks", element(i), "command"}
			root.faultAt(path, pathText(path), err)
		}
	}
	return doc.sorted()
}

// providerProgram is the fault of a provider file whose program is there and can't be
// run.
func providerProgram(file string, data []byte, p Provider) Faults {
	doc, root := open(file, data)
	if root == nil || len(p.Command) == 0 || !filepath.IsAbs(p.Command[0]) {
		return doc.faults
	}
	if exists, err := runnable(p.Command[0]); err != nil && exists {
		root.fault("command", "%w", err)
	}
	return doc.faults
}

// runnable says why a file can't be run, and what to do.
func runnable(path string) (exists bool, err error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, fmt.Errorf("there is no file %s", path)
	case err != nil:
		return false, err
	case info.IsDir():
		return true, fmt.Errorf("%s is a directory; name the program", path)
	case runtime.GOOS != "windows" && info.Mode()&0o111 == 0:
		return true, fmt.Errorf("%s has no run bit: chmod +x %s", path, path)
	}
	return true, nil
}

// HookPrograms are the faults of the programs of [[hooks]], of the files that count: programs that are missing or can't
// be run. Files with other faults are left out; [Files.Load] reports those.
func (f Files) HookPrograms() Faults {
	return f.faultsOf(func(file string, data []byte, c Config) Faults { return hookPrograms(file, data, c.Hooks) })
}

// faultsOf returns what find says of each file that counts and has no fault: the project's and the user's.
func (f Files) faultsOf(find func(file string, data []byte, c Config) Faults) (faults Faults) {
	for _, file := range []string{f.Project, f.User} {
		if file == "" || file == f.Project && !f.Trusted {
			continue
		}
		if data, err := readFile(file); err == nil {
			c := Default()
			if found := c.parse(file, data, file == f.Project, &[]layer{}); len(found) == 0 {
				faults = append(faults, find(file, data, c)...)
			}
		}
	}
	return faults
}
