package configs

import (
	"path/filepath"

	"github.com/BurntSushi/toml"
)

// Check reads a file of any kind and returns its faults. A provider file is one
// in a directory named providers, or one that says what kind it is; lsclient's
// is known by its name.
func Check(file string) (Faults, error) {
	data, err := readFile(file)
	if err != nil {
		return nil, err
	}
	if isProvider(file, data) {
		p, faults := ParseProvider(file, data)
		if len(faults) == 0 {
			faults = providerProgram(file, data, p)
		}
		return faults, nil
	}
	if filepath.Base(file) == lsFile {
		_, faults := ParseLSClient(file, data)
		return faults, nil
	}
	c, faults := Parse(file, data)
	if len(faults) == 0 {
		faults = hookPrograms(file, data, c.Hooks)
	}
	return faults, nil
}

func isProvider(file string, data []byte) bool {
	if abs, err := filepath.Abs(file); err == nil {
		file = abs
	}
	if filepath.Base(filepath.Dir(file)) == providerDirName {
		return true
	}
	if filepath.Base(file) == configFile || filepath.Base(file) == lsFile || nesting(string(data)) > maxNesting {
		return false
	}
	var top map[string]any
	if _, err := toml.Decode(string(data), &top); err != nil {
		return false
	}
	_, ok := top["kind"]
	return ok
}
