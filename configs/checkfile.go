package configs

import (
	"path/filepath"

	"github.com/BurntSushi/toml"
)

// Check reads a config file of any kind and returns its faults, including programs and rules that
// can't work. A file in a directory named providers, or with a key kind, is a provider file;
// lsclient.toml is known by its name. Check returns an error if it can't read the file.
func Check(file string) (Faults, error) {
	data, err := readFile(file)
	if err != nil {
		return nil, err
	}
	if isProvider(file, data) {
		p, faults := ParseProvider(file, data)
		if len(faults) == 0 {
			faults = checkProviderUse(file, data, p)
		}
		return faults, nil
	}
	if filepath.Base(file) == lsFile {
		_, faults := ParseLSClient(file, data)
		return faults, nil
	}
	c, faults := Parse(file, data)
	if len(faults) == 0 {
		faults = checkUse(file, data, c)
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
	if filepath.Base(file) == configFile || filepath.Base(file) == lsFile ||
		nesting(string(data)) > maxNesting {
		return false
	}
	var top map[string]any
	if _, err := toml.Decode(string(data), &top); err != nil {
		return false
	}
	_, ok := top["kind"]
	return ok
}
