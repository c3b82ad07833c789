package protect

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhy(t *testing.T) {
	root := t.TempDir()
	for _, err := range []error{
		os.MkdirAll(filepath.Join(root, ".git", "hooks"), 0o755),
		os.MkdirAll(filepath.Join(root, "mine"), 0o755),
		os.Symlink(".git", filepath.Join(root, "link")),
		os.Symlink(filepath.Join(root, ".git/hooks/new"), filepath.Join(root, "dangling")),
		os.Symlink("mine", filepath.Join(root, "alias")),
		os.Symlink("loop", filepath.Join(root, "loop")),
		os.Symlink(".git/hooks", filepath.Join(root, "deep")),
		os.MkdirAll(filepath.Join(root, "bare", "objects"), 0o755),
		os.WriteFile(filepath.Join(root, "bare", "HEAD"), nil, 0o600),
		os.MkdirAll(filepath.Join(root, "tree"), 0o755),
		os.WriteFile(filepath.Join(root, "tree", "HEAD"), nil, 0o600),
		os.MkdirAll(filepath.Join(root, "bare", "main"), 0o755),
		os.WriteFile(filepath.Join(root, "bare", "main", ".git"), nil, 0o600),
		os.WriteFile(filepath.Join(root, "tree", "commondir"), nil, 0o600),
		os.MkdirAll(filepath.Join(root, "head"), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]bool{
		".git": true, ".git/config": true, ".GIT/config": true, ".Git": true,
		"sub/.git/hooks/x":  true,
		".git./config":      true,
		".g\u200cit/config": true, "git~1/config": true, "link/config": true, "dangling": true,
		"x/../.git/config": true, "deep/../config": true,
		".git\u202e": true, ".git::$INDEX_ALLOCATION/x": true,
		".tapgw/tapgw.toml": true, ".tapgw": true, ".TAPGW/tools/x.py": true,
		"configs/tapgw.toml":       true,
		"configs/providers/a.toml": true,
		"configs/tools/a.py":       true, "CONFIGS/Tools/a.py": true, ".github/hooks/a.json": true,
		"sub/.github/Hooks/a.json": true,
		".vscode/tasks.json":       true, ".VSCode/Settings.json": true,
		".idea/runConfigurations/x.xml": true,
		"x.code-workspace":              true,
		"bare/config":                   true, "bare/hooks/x": true, "tree/config.worktree": true,
		"sub/HEAD": true, "bare/main/x.go": false, "bare/main/.git": true, "head/x": false,
		"tree.go": false, ".git:$I30:$INDEX_ALLOCATION/config": true, ".vſcode/taſks.json": true,
		".github/lsp.json": true, "sub/.github/LSP.json": true, ".github/agents/a.md": true,
		".github/extensions/x/extension.mjs": true, ".npmrc": true,
		".yarn/releases/yarn.cjs": true, ".pre-commit-config.yaml": true, "lefthook.yml": true,
		".cargo/config.toml": true, ".zshrc": true,
		".ssh/authorized_keys": true, "mise.local.toml": true, ".helix/languages.toml": true,
		"package.json":   false,
		".gitattributes": false,
		".envrc":         true, ".mise.local.toml": true, "a.tool.toml": true, "mine/x": true,
		"alias/x": true, "loop": true, "Mine/x": true,
		".gitignore": false, ".github/workflows/ci.yml": false, "configs/app.toml": false,
		"git/config":            false,
		"README.md":             false,
		".vscode/snippets.json": false, "configs": false, "minelike/x": false,
		"x.git/config": false, "..": false,
		"a/…/b":         false,
		".roo/mcp.json": true, ".amazonq/mcp.json": true, ".junie/mcp/mcp.json": true,
		".Continue/mcpServers/a.yaml": true,
		".cline/mcp.json":             true, ".windsurf/mcp.json": true,
		".kiro/settings/mcp.json": true,
		".cursor/mcp.json":        true,
		".gemini/settings.json":   true, ".codex/config.toml": true, ".opencode/plugin/a.ts": true,
		"opencode.jsonc":     true,
		".zed/settings.json": true, ".trae/mcp.json": true, ".augment/settings.json": true,
		".qwen/settings.json": true,
		".crush.json":         true, "crush.json": true, ".kilocode/mcp.json": true,
		".config/goose/config.yaml": true,
		"sub/.gdbinit":              true, ".GDBINIT": true, ".gdbinit. ": true,
		"prog-gdb.py": true, ".lldbinit": true, ".Rprofile": true, ".irbrc": true, ".pryrc": true,
		".ghci": true, ".iex.exs": true,
		"sitecustomize.py":     true,
		"lib/usercustomize.py": true, "venv/lib/site-packages/x.pth": true, "model.pth": false,
		"pip.conf": true, ".sqliterc": true, ".psqlrc": true,
		".octaverc": true, ".bazelrc": true, ".mvn/jvm.config": true, ".mvn/extensions.xml": true,
		"init.gradle.kts":                  true,
		"Microsoft.PowerShell_profile.ps1": true, ".yarnrc.yml": true, ".pnpmfile.cjs": true,
		".exrc": true, ".devcontainer/devcontainer.json": true, ".husky/pre-commit": true,
		".tool-versions": true,
		"mise.toml":      true,
		"conftest.py":    false, "tests/conftest.py": false, "Makefile": false,
		"build.gradle": false,
		"pom.xml":      false,
		"Cargo.toml":   false, "pyproject.toml": false, "flake.nix": false, "setup.py": false,
		"Rprofile.md": false,
		"gdbinit":     false, "script.ps1": false, "BUILD.bazel": false, "pipeline.conf": false,
		"crush.go": false, "Gemfile": false, "data.sqlite": false, "tox.ini": false,
		"Dockerfile": false,
		".hg/hgrc":   true, ".jj/repo/config.toml": true, ".lintstagedrc.json": true,
		"lint-staged.config.mjs": true, ".openhands/setup.sh": true, ".pi/extensions/a.ts": true,
		".iflow/settings.json": true, ".tabnine/agent/settings.json": true, ".bsp/scala.json": true,
		"a.sublime-project":              true,
		".externalToolBuilders/a.launch": true, ".run/a.run.xml": true, ".config/gdb/gdbinit": true,
		".rvmrc":           true,
		"sub/.autoenv.zsh": true, ".local/bin/git": true, ".kube/config": true,
		".docker/config.json": true, ".aws/config": true, "ansible.cfg": true,
		".ipython/profile_default/startup/a.py": true,
		"jupyter_server_config.py":              true, "lib/python3/dist-packages/a.pth": true,
		".venv/pyvenv.cfg": true, "rust-toolchain.toml": true, ".pnp.cjs": true, ".user.ini": true,
		"NuGet.Config":        true,
		"Directory.Build.rsp": true, "tools/bazel": true,
		"gradle/wrapper/gradle-wrapper.properties": true,
		".latexmkrc": true, "tools/bazelify/a.go": false, "bin/git": false, "uv.lock": false,
		"a.ini": false, "runs/a.xml": false, "Directory.Build.props": false,
		".kilo/kilo.jsonc": true, "kilo.json": true, ".claude.json": true,
		".agents/plugins/a/hooks/hooks.json": true,
		".air/mcp.json":                      true, ".aws/amazonq/default.json": true,
		".amazonq/default.json": true, ".crushrc": true,
		".config/amp/settings.json": true, ".config/opencode/plugins/a.ts": true,
		".config/husky/init.sh": true,
		"simple-git-hooks.cjs":  true, "grumphp.yaml.dist": true, ".config/jj/config.toml": true,
		".project":       true,
		".jjconfig.toml": true, ".config/hg/hgrc": true, ".docker/cli-plugins/docker-x": true,
		".kube/kuberc":   true,
		".aws/cli/alias": true, ".aws/credentials": true, "tools/bazel.ps1": true,
		".config/rizin/rizinrc": true,
		".docker/nginx.conf":    false, ".kube/deployment.yaml": false,
		".aws/task-definition.json": false, ".aiassistant/rules/a.md": false, ".goosehints": false,
		".agents/skills/a/SKILL.md": false,
		".crush/crush.db":           false, ".crush/crush.json": true, ".pip/pip.conf": true,
		".config/uv/uv.toml": true,
		"msbuild.rsp":        false, ".pypirc": false, ".in.zsh": false, "project": false,
		"hk.local.pkl": true, "jupyter_notes.md": false, "rust.toml": false,
		".perldb": true, "pnpm-workspace.yaml": true, "devenv.nix": true, "devenv.local.nix": true,
		"devbox.json": true,
		".juliarc.jl": false, ".julia/config/startup.jl": true, "CMakePresets.json": false,
		"deno.json": false, "CMakeUserPresets.json": false, "pnpm-lock.yaml": false,
		"devenv": false,
	} {
		if got := Why(root+"/"+path, filepath.Join(root, "mine")); (got != "") != want {
			t.Errorf("%q: %q, want protected: %v", path, got, want)
		}
	}
	if got := Why(root + "/.git/config"); !strings.Contains(got,
		".git: git runs what its configuration and hooks name") {
		t.Errorf("got %q, want %q in it", got,
			".git: git runs what its configuration and hooks name")
	}
}

// A path is protected, however it is written, if its target is.
func FuzzWhy(f *testing.F) {
	for _, s := range []string{"a/../.git", "x//.GIT/.", "./.git", "l/x", "l/../.git", "\x00", "..",
		".git\u200d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, path string) {
		root, err := filepath.EvalSymlinks(t.TempDir())
		if err = errors.Join(err, os.Mkdir(filepath.Join(root, ".git"), 0o755),
			os.Symlink(".git", filepath.Join(root, "l"))); err != nil {
			t.Fatal(err)
		}
		why := Why(root + "/" + path)
		target, err := filepath.EvalSymlinks(root + "/" + path)
		if err == nil && Within(target, filepath.Join(root, ".git")) && why == "" {
			t.Errorf("%q leads to %s and is not protected", path, target)
		}
	})
}
