package langserver

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// makeExecutable makes an executable file below dir and returns its path.
func makeExecutable(t *testing.T, dir, name string) string {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFindOrder(t *testing.T) {
	const project = ".runtime/node_modules/@github/copilot-language-server-linux-x64/copilot-language-server"
	dir := t.TempDir()
	env := map[string]string{EnvServer: makeExecutable(t, dir, "env/server")}
	onPath := makeExecutable(t, dir, "path/copilot-language-server")
	f := finder{
		getenv: func(name string) string { return env[name] },
		executable: func() (string, error) {
			return filepath.Join(dir, "app", "bin", "lsclient"), nil
		},
		lookPath: func(name string) (string, error) {
			if onPath == "" || name != program {
				return "", errors.New("not found")
			}
			return onPath, nil
		},
		home: filepath.Join(dir, "home"), system: "linux", arch: "amd64",
	}
	makeExecutable(t, dir, "app/bin/lsclient")
	installed := makeExecutable(t, dir, "app/"+project)
	makeExecutable(t, dir, "home/.vscode/extensions/github.copilot-1.9.0/dist/language-server.js")
	vscode := makeExecutable(t, dir,
		"home/.vscode/extensions/github.copilot-1.10.0/dist/language-server.js")
	makeExecutable(
		t,
		dir,
		"home/.local/share/JetBrains/GoLand2025.9/github-copilot-intellij/copilot-agent/native/linux-x64/copilot-language-server",
	)
	jetbrains := makeExecutable(
		t,
		dir,
		"home/.local/share/JetBrains/GoLand2025.10/github-copilot-intellij/copilot-agent/native/linux-x64/copilot-language-server",
	)
	script := makeExecutable(
		t,
		dir,
		"home/.local/share/JetBrains/GoLand2025.10/github-copilot-intellij/copilot-agent/dist/language-server.js",
	)
	nvim := makeExecutable(t, dir,
		"home/.local/share/nvim/lazy/copilot.lua/copilot/linux-x64/copilot-language-server")
	configured := makeExecutable(t, dir, "config/server")

	steps := []struct {
		source, path string
		drop         func() // removes a candidate, so that the next one wins
	}{
		{SourceConfig, configured, func() { configured = "" }},
		{SourceEnv, env[EnvServer], func() { delete(env, EnvServer) }},
		{SourceProject, installed, func() { _ = os.Remove(installed) }},
		{SourcePath, onPath, func() { onPath = "" }},
		{"JetBrains", jetbrains, func() {
			_ = os.RemoveAll(filepath.Join(dir,
				"home/.local/share/JetBrains/GoLand2025.10/github-copilot-intellij/copilot-agent/native"))
		}},
		{"JetBrains", strings.ReplaceAll(jetbrains, "2025.10", "2025.9"), func() {
			_ = os.RemoveAll(filepath.Join(dir, "home/.local/share/JetBrains/GoLand2025.9"))
		}},
		{"JetBrains", script, func() {
			_ = os.RemoveAll(filepath.Join(dir, "home/.local/share/JetBrains"))
		}},
		{"VS Code", vscode, func() { _ = os.RemoveAll(filepath.Join(dir, "home/.vscode")) }},
		{"Neovim", nvim, func() { _ = os.Remove(nvim) }},
	}
	for _, s := range steps {
		found, err := f.find(configured)
		if err != nil || found != (Found{s.path, s.source}) {
			t.Errorf("found %+v, %v; want %s of %s", found, err, s.path, s.source)
		}
		s.drop()
	}
	if _, err := f.find(""); err == nil || !strings.Contains(err.Error(), "make runtime") {
		t.Errorf(`found nothing: %v, want an error and "make runtime" in it`, err)
	}
}

// A place that configuration or environment names must have a program.
func TestFindNamed(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := finder{
		getenv: func(string) string {
			return ""
		}, executable: func() (string, error) { return "", os.ErrNotExist },
		lookPath: func(string) (string, error) {
			return makeExecutable(t, dir, "found/"+program), nil
		}, home: dir,
		system: "linux",
	}
	for name, want := range map[string]string{
		filepath.Join(dir, "none"): "no such file",
		dir:                        "is a directory",
		plain:                      "chmod +x",
	} {
		if _, err := f.find(name); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	f.getenv = func(string) string { return filepath.Join(dir, "none") }
	if _, err := f.find(""); err == nil || !strings.HasPrefix(err.Error(), EnvServer+": ") {
		t.Errorf("%v, want an error and %q at its start", err, EnvServer+": ")
	}
}

func TestFindOnMac(t *testing.T) {
	dir := t.TempDir()
	none := func(string) (string, error) { return "", os.ErrNotExist }
	exe := func() (string, error) { return "", os.ErrNotExist }
	mac := makeExecutable(
		t,
		dir,
		"Library/Application Support/JetBrains/GoLand2026.1/plugins/github-copilot-intellij/copilot-agent/native/darwin-arm64/copilot-language-server",
	)
	f := finder{getenv: func(string) string {
		return ""
	}, executable: exe, lookPath: none, home: dir, system: "darwin",
		arch: "arm64"}
	if found, err := f.find(""); err != nil || found.Path != mac {
		t.Errorf("macOS: %+v %v, want no error and Path %v", found, err, mac)
	}
}
