package proc

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Find returns the absolute path of a program: a path, or a name that lookPath finds. The error
// says why it can't be run: not found, a directory, or not executable. A script that node runs need
// not be executable.
func Find(name string, lookPath func(string) (string, error)) (string, error) {
	path := name
	if !strings.ContainsRune(name, filepath.Separator) {
		found, err := lookPath(name)
		if err != nil {
			return "", fmt.Errorf("%s: not found on PATH", name)
		}
		path = found
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("%s: no such file", path)
	case err != nil:
		return "", err
	case info.IsDir():
		return "", fmt.Errorf("%s: is a directory; name the program", path)
	case info.Mode()&0o111 == 0 && !IsScript(path):
		return "", fmt.Errorf("%s: may not be run (chmod +x)", path)
	}
	return path, nil
}

// Beside returns what find finds in the directory of this program, or else in the one above; "" if
// in neither. It does not look into the working directory: a program that is started in the
// checkout of a stranger must not run what lies there.
func Beside(executable func() (string, error), find func(root string) string) string {
	exe, err := executable()
	if err != nil {
		return ""
	}
	if target, err := filepath.EvalSymlinks(exe); err == nil {
		exe = target
	}
	dir := filepath.Dir(exe)
	return cmp.Or(find(dir), find(filepath.Dir(dir)))
}

// IsScript reports whether node must run a program: its name ends in .js. [Find] accepts such a
// file without execute permission.
func IsScript(path string) bool { return strings.HasSuffix(path, ".js") }
