package copilot

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"tapgw/internal/proc"
)

// The search for the runtime's program.

// Values of [Found.Source]: where a runtime was found.
const (
	SourceConfig  = "config"           // [copilot] cli
	SourceEnv     = "COPILOT_CLI_PATH" // the variable
	SourceProject = "project"          // installed by `make runtime`
	SourcePath    = "PATH"             // a full Copilot CLI
)

// Found is a Copilot CLI runtime on this machine: the absolute path of its program and the place
// that named it.
type Found struct {
	Path   string
	Source string
}

// Find looks for the runtime's program: cli if it is set, then COPILOT_CLI_PATH, then the runtime
// that make runtime installed beside this program, then copilot on PATH. If cli or the variable
// names no program, that is an error and the search ends.
func Find(cli string) (Found, error) {
	return finder{getenv: os.Getenv, executable: os.Executable, lookPath: exec.LookPath}.find(cli)
}

type finder struct {
	getenv     func(string) string
	executable func() (string, error)
	lookPath   func(string) (string, error)
}

func (f finder) find(cli string) (Found, error) {
	if cli != "" {
		path, err := proc.Find(cli, f.lookPath)
		if err != nil {
			return Found{}, fmt.Errorf("cli in [copilot] of tapgw.toml: %w", err)
		}
		return Found{path, SourceConfig}, nil
	}
	if env := f.getenv("COPILOT_CLI_PATH"); env != "" {
		path, err := proc.Find(env, f.lookPath)
		if err != nil {
			return Found{}, fmt.Errorf("COPILOT_CLI_PATH: %w", err)
		}
		return Found{path, SourceEnv}, nil
	}
	if path := proc.Beside(f.executable, Installed); path != "" {
		return Found{path, SourceProject}, nil
	}
	if path, err := f.lookPath("copilot"); err == nil {
		if path, err = filepath.Abs(path); err == nil {
			return Found{path, SourcePath}, nil
		}
	}
	return Found{}, errors.New("no Copilot CLI runtime found: run `make runtime`, " +
		"or install @github/copilot with npm, or set COPILOT_CLI_PATH or cli in [copilot] " +
		"of tapgw.toml")
}

// Installed returns the path of the runtime that make runtime installed below a directory, or "" if
// that runtime is missing or not for this machine's system and architecture.
func Installed(root string) string {
	arch := runtime.GOARCH
	if arch == "amd64" {
		arch = "x64"
	}
	found, err := filepath.Glob(filepath.Join(root, ".runtime", "node_modules", "@github",
		"copilot-sdk-"+runtime.GOOS+"*-"+arch, "prebuilds", "*", "copilot-runtime"))
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[0]
}
