package langserver

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"tapgw/internal/proc"
)

// EnvServer is the environment variable that names the language server's program, if the
// configuration does not name one. A value that is not a program is an error.
const EnvServer = "COPILOT_LANGUAGE_SERVER"

// Values of [Found.Source]. For an editor's server it is the editor's name: JetBrains, VS Code,
// Neovim, ….
const (
	SourceConfig  = "config"
	SourceEnv     = EnvServer
	SourceProject = "project" // the one that `make runtime` installed
	SourcePath    = "PATH"
)

// program is the language server's name.
const program = "copilot-language-server"

// Found is a language server on this machine: the absolute path of a program, or of a .js file for
// node, and the place where [Find] found it.
type Found struct {
	Path   string
	Source string
}

// Find looks for the language server: at command, at COPILOT_LANGUAGE_SERVER, at the one that `make
// runtime` installed beside this program, on PATH as copilot-language-server, and where editors
// install it, the newest version first. If command or COPILOT_LANGUAGE_SERVER is set and is not a
// program, that is an error.
func Find(command string) (Found, error) {
	home, _ := os.UserHomeDir()
	return finder{
		getenv: os.Getenv, executable: os.Executable, lookPath: exec.LookPath,
		home: home, system: runtime.GOOS, arch: runtime.GOARCH,
	}.find(command)
}

type finder struct {
	getenv     func(string) string
	executable func() (string, error)
	lookPath   func(string) (string, error)
	home       string
	system     string // as in GOOS
	arch       string // as in GOARCH
}

func (f finder) find(command string) (Found, error) {
	for _, named := range []Found{{command, SourceConfig}, {f.getenv(EnvServer), SourceEnv}} {
		if named.Path == "" {
			continue
		}
		path, err := proc.Find(named.Path, f.lookPath)
		if err != nil {
			what := EnvServer
			if named.Source == SourceConfig {
				what = "the configured language server"
			}
			return Found{}, fmt.Errorf("%s: %w", what, err)
		}
		return Found{path, named.Source}, nil
	}
	if path := proc.Beside(f.executable, f.installed); path != "" {
		return Found{path, SourceProject}, nil
	}
	if path, err := f.lookPath(program); err == nil {
		if path, err = filepath.Abs(path); err == nil {
			return Found{path, SourcePath}, nil
		}
	}
	for _, e := range f.editors() {
		if path := newest(e.globs); path != "" {
			return Found{path, e.name}, nil
		}
	}
	return Found{}, errors.New("no Copilot language server found: run `make runtime`, " +
		"or install @github/copilot-language-server with npm, or set " + EnvServer)
}

// installed returns the language server that `make runtime` has put below root, or "".
func (f finder) installed(root string) string {
	path := filepath.Join(root, ".runtime", "node_modules", "@github", program+"-"+f.platform(),
		program)
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return ""
	}
	return path
}

// platform returns npm's name for this machine, such as linux-x64.
func (f finder) platform() string {
	arch := f.arch
	if arch == "amd64" {
		arch = "x64"
	}
	return f.system + "-" + arch
}

type editor struct {
	name  string
	globs []string // the preferred ones first
}

// editors returns where editors install their language server: first the program for this machine,
// then the script for node.
func (f finder) editors() []editor {
	data := cmp.Or(f.getenv("XDG_DATA_HOME"), filepath.Join(f.home, ".local", "share"))
	jetbrains := []string{filepath.Join(data, "JetBrains", "*")}
	var xcode []string
	if f.system == "darwin" {
		support := filepath.Join(f.home, "Library", "Application Support")
		jetbrains = []string{filepath.Join(support, "JetBrains", "*", "plugins")}
		for _, apps := range []string{"/Applications", filepath.Join(f.home, "Applications")} {
			xcode = append(xcode, filepath.Join(apps, "GitHub Copilot for Xcode.app", "Contents",
				"Resources", program))
		}
	}
	// below joins each directory with each tail.
	below := func(dirs []string, tails ...string) (globs []string) {
		for _, dir := range dirs {
			for _, tail := range tails {
				globs = append(globs, filepath.Join(dir, tail))
			}
		}
		return globs
	}
	code := func(dir string) []string {
		return below([]string{filepath.Join(f.home, dir, "extensions", "github.copilot-*")},
			"copilot-language-server/native/"+f.platform()+"/"+program, "dist/"+program,
			"node_modules/@github/copilot-language-server-"+f.platform()+"/"+program,
			"dist/language-server.js",
			"node_modules/@github/copilot-language-server/dist/language-server.js")
	}
	nvim := []string{filepath.Join(data, "nvim"), filepath.Join(data, "nvim-data")}
	var plugins []string
	for _, dir := range append(nvim, filepath.Join(f.home, ".vim")) {
		plugins = append(plugins, below([]string{dir}, "lazy", "plugged", "site/pack/*/start",
			"pack/*/start")...)
	}
	return []editor{
		{"JetBrains",
			below(jetbrains, "github-copilot-intellij/copilot-agent/native/"+f.platform()+"/"+
				program,
				"github-copilot-intellij/copilot-agent/dist/language-server.js")},
		{"VS Code", code(".vscode")},
		{"VS Code Insiders", code(".vscode-insiders")},
		{"Cursor", code(".cursor")},
		{"Neovim", slices.Concat(
			below(nvim, "mason/bin/"+program),
			below(plugins, "copilot.lua/copilot/"+f.platform()+"/"+program,
				"copilot.lua/copilot/js/language-server.js",
				"copilot.vim/copilot-language-server/dist/language-server.js",
				"copilot.vim/dist/language-server.js"),
		)},
		{"Xcode", xcode},
	}
}

// newest returns the file with the highest version in its path, of the first pattern that matches
// any file.
func newest(globs []string) string {
	for _, glob := range globs {
		if !filepath.IsAbs(glob) { // the home directory is unknown
			continue
		}
		found, err := filepath.Glob(glob)
		if err != nil || len(found) == 0 {
			continue
		}
		return slices.MaxFunc(found, compareVersions)
	}
	return ""
}

// compareVersions compares texts with numbers in them by value: 2025.10 comes after 2025.9.
func compareVersions(a, b string) int {
	for a != "" && b != "" {
		x, restA := number(a)
		y, restB := number(b)
		switch {
		case x >= 0 && y >= 0:
			if c := cmp.Compare(x, y); c != 0 {
				return c
			}
		case a[0] != b[0]:
			return cmp.Compare(a[0], b[0])
		default:
			restA, restB = a[1:], b[1:]
		}
		a, b = restA, restB
	}
	return cmp.Compare(len(a), len(b))
}

// number returns the number at the beginning of s and the rest; -1 without a number.
func number(s string) (n int, rest string) {
	digits := len(s) - len(strings.TrimLeft(s, "0123456789"))
	n, err := strconv.Atoi(s[:digits])
	if err != nil {
		return -1, s
	}
	return n, s[digits:]
}
