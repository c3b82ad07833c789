package configs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/adrg/xdg"
)

// Environment variables that say where things are.
const (
	EnvHome   = "COPILOT_HOME"
	EnvConfig = "TAPGW_CONFIG"
)

// Home is the directory of the Copilot runtime's files: COPILOT_HOME, else
// ~/.copilot.
func Home() string {
	if home := os.Getenv(EnvHome); home != "" {
		if abs, err := filepath.Abs(home); err == nil {
			return abs
		}
		return home
	}
	return filepath.Join(xdg.Home, ".copilot")
}

// StateDir is where a gateway keeps its token files and gateway.json.
func StateDir() string { return filepath.Join(Home(), "extensions", "tap") }

// ProvidersDir is where providers keep their files, a directory for each name.
func ProvidersDir() string { return filepath.Join(Home(), "providers") }

// Where a config file is looked for when nothing names one.
const (
	workdirFile = "configs/tapgw.toml"
	userFile    = "tapgw/tapgw.toml"
)

// Find returns the config file to read, "" for none: named (of a flag), else
// what TAPGW_CONFIG names, else configs/tapgw.toml in dir, else the one in the
// user's config directory. One that is named must exist.
func Find(dir, named string) (string, error) {
	where := "--config"
	if named == "" {
		named, where = os.Getenv(EnvConfig), EnvConfig
	}
	if named != "" {
		if !filepath.IsAbs(named) {
			named = filepath.Join(dir, named)
		}
		switch _, err := os.Stat(named); { //nolint:gosec // the user names the file
		case errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("%s: %s does not exist", where, named)
		case err != nil:
			return "", fmt.Errorf("%s: %w", where, err)
		}
		return named, nil
	}
	for _, path := range []string{filepath.Join(dir, filepath.FromSlash(workdirFile)), filepath.Join(xdg.ConfigHome, filepath.FromSlash(userFile))} {
		switch _, err := os.Stat(path); {
		case err == nil:
			return path, nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("looking for a config file: %w", err)
		}
	}
	return "", nil
}
