package copilot

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"

	"tapgw/internal/proc"
)

// Where a runtime was found.
const (
	SourceConfig  = "config"           // [copilot] cli
	SourceEnv     = "COPILOT_CLI_PATH" // the variable
	SourceProject = "project"          // what `make runtime` installed
	SourcePath    = "PATH"             // a full Copilot CLI
)

// Found is a Copilot CLI runtime on this machine.
type Found struct {
	Path   string
	Source string
}

// Find looks for the runtime: cli if it is set, then COPILOT_CLI_PATH, what
// `make runtime` installed beside the program, and copilot on PATH. A place
// that is named and holds no program is an error, not a reason to look on.
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
	// Not in the working directory: a gateway that is started in somebody
	// else's checkout must not run what lies there.
	if exe, err := f.executable(); err == nil {
		if target, err := filepath.EvalSymlinks(exe); err == nil {
			exe = target
		}
		dir := filepath.Dir(exe)
		for _, root := range []string{dir, filepath.Dir(dir)} {
			if path := Installed(root); path != "" {
				return Found{path, SourceProject}, nil
			}
		}
	}
	if path, err := f.lookPath("copilot"); err == nil {
		if path, err = filepath.Abs(path); err == nil {
			return Found{path, SourcePath}, nil
		}
	}
	return Found{}, errors.New(
		"no Copilot CLI runtime found: run `make runtime`, or install @github/copilot with npm, or set COPILOT_CLI_PATH or cli in [copilot] of tapgw.toml",
	)
}

// Installed returns the runtime that `make runtime` put below a directory, ""
// when there is none for this machine.
func Installed(root string) string {
	arch := map[string]string{"amd64": "x64"}[runtime.GOARCH]
	if arch == "" {
		arch = runtime.GOARCH
	}
	system := map[string]string{"windows": "win32"}[runtime.GOOS]
	if system == "" {
		system = runtime.GOOS
	}
	found, err := filepath.Glob(
		filepath.Join(
			root, ".runtime", "node_modules", "@github", "copilot-sdk-"+system+"*-"+arch, "prebuilds", "*",
			"copilot-runtime*",
		),
	)
	if err != nil {
		return ""
	}
	found = slices.DeleteFunc(found, func(path string) bool {
		name := filepath.Base(path)
		return name != "copilot-runtime" && name != "copilot-runtime.exe"
	})
	if len(found) == 0 {
		return ""
	}
	return found[0]
}
