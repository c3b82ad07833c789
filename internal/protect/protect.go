// Package protect lists the places in a project whose files make programs run: git's hooks and
// filters, editors' tasks, our own provider files and tools. A program that writes there decides
// which commands run the next time that a person works on the project. So a person must allow such
// a write, whatever a policy says.
//
// The tools of lsclient and the permissions of Copilot sessions share this list.
package protect

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// place is a protected file, or a directory with all that it contains, at any depth. A name of
// several parts is a path. A part that ends in * matches names with this beginning, and one that
// begins with * matches names with this end. The field what has the reason.
type place struct{ name, what string }

// The list holds the files that programs read by themselves in a project, in the directory where
// they start or above, or in a home directory, and run code from. It follows the documents of
// their makers:
//   - Version control: git's manual (githooks, git-config, gitmodules), Mercurial's hgrc, Jujutsu's
//     settings; and the configuration pages of husky, pre-commit, prek, lefthook, hk, overcommit,
//     simple-git-hooks, lint-staged, CaptainHook and GrumPHP.
//   - Agents: the pages on MCP servers, hooks, plugins and settings of each, such as Roo Code
//     (.roo), Kilo Code, Cline, Amazon Q, Kiro, Junie, Continue, Windsurf (.windsurf, .codeium),
//     Auggie (.augment), Crush, Goose, Qwen Code, Droid (.factory), Amp, Warp, Tabnine, Qoder,
//     Vibe, Rovo Dev, OpenHands, Pi and Aider. Several keep their servers in an mcp.json somewhere,
//     also VS Code and JetBrains Air, so that name counts in every directory. For Trae, iFlow and
//     CodeBuddy the list follows pages of others about them.
//   - Editors: Vim's and Emacs' manuals, Eclipse's help (External Tools), Zed (worktree trust),
//     YouCompleteMe, the Build Server Protocol, the dev container specification, Gitpod's and
//     Firebase Studio's pages.
//   - Interpreters, shells and debuggers: the pages on startup files in the manuals of gdb, LLDB,
//     R, GHCi, irb, pry, byebug, Perl (debugger), Julia, IEx, OCaml, Guile, Python (site, pdb),
//     IPython, Octave, SQLite, psql, DuckDB, mongosh, rizin, PHP, bash, zsh, elvish, tmux, direnv,
//     devbox, devenv, mise, asdf and zsh-autoenv; Xsession(5), pam_env(8), environment.d(5),
//     file-hierarchy(7), lesspipe(1) and ssh_config(5). For Lisp the list follows a page of others,
//     and no document was found for Ruby's rdbg.
//   - Build tools and helpers: npm, yarn, pnpm (config dependencies), pip, uv, cargo, rustup
//     (overrides), Bazel and Bazelisk, Buck, Maven, Gradle, sbt, bun, MSBuild (response files),
//     NuGet, latexmk and Ansible; docker, kubectl and the AWS CLI on helpers.
//
// Agents' rules in Markdown, data that a program keeps for itself, and files that a project's daily
// work edits, such as Makefile, package.json and conftest.py, are free, though programs read or run
// some of them too. So are files whose commands run only when a person asks for one by name or
// chooses it: CMake's presets and deno.json.
var places = []place{
	{".git", "git runs what its configuration and hooks name"},
	{".gitmodules", "git fetches what it names"},
	{".githooks", "git runs its hooks"},
	{".husky", "git runs its hooks"},
	{".pre-commit-config.yaml", "git's hooks run what it names"},
	{"lefthook.*", "git's hooks run what it names"},
	{"lefthook-local.*", "git's hooks run what it names"},
	{".lefthook*", "git's hooks run what it names"},
	{".gitconfig", "git runs what it names"},
	{".config/git", "git runs what its configuration and hooks name"},
	{".npmrc", "npm runs what it names"},
	{".yarnrc*", "yarn runs what it names"},
	{".yarn", "yarn runs it"},
	{".pnpmfile*", "pnpm runs it"},
	{"pnpm-workspace.yaml", "pnpm loads the hooks that it names"},
	{".cargo/config*", "cargo and editors run what it names"},
	{".bashrc", "shells run it"},
	{".bash_*", "shells run it"},
	{".profile", "shells run it"},
	{".zshrc", "shells run it"},
	{".zshenv", "shells run it"},
	{".zprofile", "shells run it"},
	{".zlog*", "shells run it"},
	{".ssh", "ssh runs what its files name, and lets in whom they name"},
	{".github/hooks", "Copilot runs its hooks"},
	{".github/extensions", "Copilot runs its extensions"},
	{".github/copilot", "Copilot starts what its settings name"},
	{".github/agents", "Copilot starts the MCP servers that its agents name"},
	{".github/lsp.json", "Copilot starts the language servers that it names"},
	{".github/mcp.json", "Copilot starts what it names"},
	{".copilot", "Copilot starts what its settings name"},
	{".mcp.json", "agents start what it names"},
	{".claude", "agents run what its settings name"},
	{".claude.json", "agents start what it names"},
	{".cursor", "editors run what its settings name"},
	{".gemini", "agents run what its settings name"},
	{".codex", "agents run what its settings name"},
	{".tapgw", "tapgw and lsclient start what its files name"},
	{"configs/tapgw.toml", "tapgw goes by it"},
	{"configs/lsclient.toml", "lsclient goes by it"},
	{"configs/providers", "tapgw starts what its files name"},
	{"configs/tools", "tapgw and lsclient run its tools"},
	{"tap.config.json", "tapgw and tap start what it names"},
	{"*.tool.toml", "tapgw and lsclient run the tools that such files name"},
	{"*.tool.json", "tapgw and lsclient run the tools that such files name"},
	{".vscode/tasks.json", "editors run its tasks"},
	{".vscode/launch.json", "editors run what it names"},
	{".vscode/settings.json", "editors run what it names"},
	{".vscode/mcp.json", "editors start what it names"},
	{".vscode/c_cpp_properties.json", "editors run the compiler that it names"},
	{".vscode/extensions.json", "editors install what it names"},
	{"*.code-workspace", "editors run its tasks"},
	{".idea", "editors run its tasks"},
	{".vs", "editors run its tasks"},
	{".zed", "editors run its tasks"},
	{".fleet", "editors run its tasks"},
	{".helix", "editors start what its settings name"},
	{".windsurf", "editors run what its settings name"},
	{".codeium", "editors start what its settings name"},
	{".trae", "editors start what its settings name"},
	{".junie", "agents start what its settings name"},
	{".roo", "agents start what its settings name"},
	{".kilocode", "agents start what its settings name"},
	{".kilo", "agents start what its settings name"},
	{"kilo.json*", "agents start what it names"},
	{".cline", "agents run its hooks and start what its settings name"},
	{".clinerules/hooks", "agents run its hooks"},
	{".amazonq", "agents start what its settings name"},
	{".continue", "agents start what its settings name"},
	{".augment", "agents run what its settings name"},
	{".qwen", "agents run what its settings name"},
	{".crush.json", "agents start what it names"},
	{"crush.json", "agents start what it names"},
	{"crushrc", "agents run it"},
	{".crushrc", "agents run it"},
	{".config/goose", "agents start what its settings name"},
	{".agents/plugins", "agents run their hooks"},
	{".factory", "agents run what its settings name"},
	{".aider.conf.yml", "agents run the commands that it names"},
	{".amp", "agents run what its settings name"},
	{".config/amp", "agents run what its settings name"},
	{".warp", "agents start what its settings name"},
	{"mcp.json", "agents start what it names"},
	{".kiro", "editors run what its settings name"},
	{".opencode", "agents run what its settings name"},
	{".config/opencode", "agents run what its settings name"},
	{"opencode.json*", "agents start what it names"},
	{".devcontainer", "editors run what it names"},
	{".devcontainer.json", "editors run what it names"},
	{".exrc", "editors run its commands"},
	{".nvimrc", "editors run its commands"},
	{".vimrc", "editors run its commands"},
	{".nvim.lua", "editors run it"},
	{".dir-locals*", "editors run its code"},
	{".envrc", "shells run it"},
	{".mise*", "shells run what it names"},
	{"mise.*", "shells run what it names"},
	{".tool-versions", "version managers run what it names"},
	{".config/mise*", "shells run what it names"},
	{".direnvrc", "shells run it"},
	{"devenv.*", "shells run what it names"},
	{"devbox.json", "shells run the hooks that it names"},
	{".config/direnv", "shells run it"},
	{".asdfrc", "version managers run what it names"},
	{".default-*", "version managers install what it names"},
	{".gdbinit", "gdb runs it"},
	{".gdbearlyinit", "gdb runs it"},
	{"*-gdb.gdb", "gdb runs it"},
	{"*-gdb.py", "gdb runs it"},
	{"*-gdb.scm", "gdb runs it"},
	{".lldbinit*", "LLDB runs it"},
	{".rprofile", "R runs it"},
	{"rprofile.site", "R runs it"},
	{".renviron", "R goes by it, and it may name a profile"},
	{".rdata", "R loads its objects, with their code"},
	{".irbrc", "irb runs it"},
	{".pryrc", "pry runs it"},
	{".rdbgrc*", "Ruby's debugger runs it"},
	{".byebugrc", "Ruby's debugger runs it"},
	{".bundle/config", "bundler goes by it, and it may name programs"},
	{".ghci", "GHCi runs it"},
	{".iex.exs", "iex runs it"},
	{".erlang", "erl runs it"},
	{".ocamlinit", "ocaml runs it"},
	{".pdbrc*", "pdb runs it"},
	{".perldb", "Perl's debugger runs it"},
	{".pythonrc*", "Python runs it"},
	{"sitecustomize.py", "Python runs it whenever it starts"},
	{"usercustomize.py", "Python runs it whenever it starts"},
	{"site-packages/*.pth", "Python runs its lines whenever it starts"},
	{"pip.conf", "pip installs from where it names"},
	{"pip.ini", "pip installs from where it names"},
	{".octaverc", "octave runs it"},
	{".julia/config", "julia runs it"},
	{".sqliterc", "sqlite3 runs it"},
	{".psqlrc*", "psql runs it"},
	{".my.cnf", "mysql goes by it, and it may name a pager and an editor"},
	{".inputrc", "shells run the macros of it"},
	{".screenrc", "screen runs it"},
	{".tmux.conf", "tmux runs it"},
	{".config/tmux", "tmux runs it"},
	{".gvimrc", "editors run its commands"},
	{"_vimrc", "editors run its commands"},
	{".vim", "editors run it"},
	{".lvimrc", "editors run its commands"},
	{".config/nvim", "editors run it"},
	{".emacs", "editors run it"},
	{".emacs.d", "editors run it"},
	{".config/fish", "shells run it"},
	{".kshrc", "shells run it"},
	{".mkshrc", "shells run it"},
	{".cshrc", "shells run it"},
	{".tcshrc", "shells run it"},
	{".login", "shells run it"},
	{".logout", "shells run it"},
	{".xprofile", "sessions of the desktop run it"},
	{".xsession*", "sessions of the desktop run it"},
	{".xinitrc", "sessions of the desktop run it"},
	{".pam_environment", "logins set what it names"},
	{".config/autostart", "sessions of the desktop start what it names"},
	{".config/systemd", "systemd starts what it names"},
	{".config/environment.d", "sessions set what it names"},
	{"library/launchagents", "launchd starts what it names"},
	{"profile.ps1", "PowerShell runs it"},
	{"microsoft.powershell_profile.ps1", "PowerShell runs it"},
	{"microsoft.vscode_profile.ps1", "PowerShell runs it"},
	{".bazelrc", "bazel goes by it, and it may name programs"},
	{".bazeliskrc", "bazelisk runs what it names"},
	{".buckconfig*", "buck runs what it names"},
	{".mvn", "Maven loads its extensions and runs what it names"},
	{"init.gradle*", "gradle runs it"},
	{".gradle/init.d", "gradle runs it"},
	{".sbtopts", "sbt goes by it"},
	{".jvmopts", "sbt goes by it"},
	{".condarc", "conda installs from where it names"},
	{".overcommit.yml", "git's hooks run what it names"},
	{".git-hooks", "git's hooks run it"},
	{".simple-git-hooks*", "git's hooks run what it names"},
	{"simple-git-hooks.*", "git's hooks run what it names"},
	{"bunfig.toml", "bun runs what it preloads"},
	{".hg", "Mercurial runs what its configuration and hooks name"},
	{".hgrc", "Mercurial runs what it names"},
	{".config/hg", "Mercurial runs what its files name"},
	{".jj", "Jujutsu runs what its configuration names"},
	{".jjconfig.toml", "Jujutsu runs what it names"},
	{".config/jj", "Jujutsu runs what its files name"},
	{".huskyrc*", "git's hooks run it"},
	{".config/husky", "git's hooks run it"},
	{".lintstagedrc*", "git's hooks run what it names"},
	{"lint-staged.config.*", "git's hooks run what it names"},
	{".pre-commit-config.yml", "git's hooks run what it names"},
	{"prek.toml", "git's hooks run what it names"},
	{"hk.pkl", "git's hooks run what it names"},
	{"hk.local.pkl", "git's hooks run what it names"},
	{"captainhook.json", "git's hooks run what it names"},
	{"grumphp.*", "git's hooks run what it names"},
	{".tabnine", "agents start what its settings name"},
	{".iflow", "agents run what its settings name"},
	{".codebuddy", "agents run what its settings name"},
	{".qoder", "agents run what its settings name"},
	{".vibe", "agents start what its settings name"},
	{".rovodev", "agents run what its settings name"},
	{".openhands", "agents run its scripts"},
	{".pi", "agents run its extensions"},
	{"*.sublime-project", "editors start what its settings name"},
	{".ycm_extra_conf.py", "editors run it"},
	{".run", "editors run what its files name"},
	{".bsp", "editors start what its files name"},
	{".externaltoolbuilders", "editors run what its files name"},
	{".project", "editors run the builders that it names"},
	{".gitpod.yml", "editors run what it names"},
	{".idx", "editors run what its files name"},
	{".config/emacs", "editors run it"},
	{".config/helix", "editors start what its files name"},
	{".config/zed", "editors run what its files name"},
	{".config/gdb", "gdb runs it"},
	{".config/go", "go goes by it, and it may name programs"},
	{".config/nushell", "shells run it"},
	{".config/elvish", "shells run it"},
	{".elvish", "shells run it"},
	{".config/xonsh", "shells run it"},
	{".xonshrc", "shells run it"},
	{".autoenv*", "shells run it"},
	{".rvmrc", "shells run it"},
	{".local/bin", "shells find programs in it"},
	{".lessfilter", "less runs it"},
	{".procmailrc", "mail servers run what it names"},
	{".forward", "mail servers run what it names"},
	{".docker/config.json", "docker runs the helpers that it names"},
	{".docker/cli-plugins", "docker runs them"},
	{".kube/config", "kubectl runs the helpers that it names"},
	{".kube/kuberc", "kubectl goes by it, and it says which helpers may run"},
	{".aws/config", "programs run the helpers that it names"},
	{".aws/credentials", "programs run the helpers that it names"},
	{".aws/cli/alias", "aws runs the commands that it names"},
	{".aws/amazonq", "agents start what its settings name"},
	{".gnupg", "gpg goes by it, and it may name programs"},
	{"ansible.cfg", "ansible loads the plugins that it names"},
	{".ansible.cfg", "ansible loads the plugins that it names"},
	{".ipython", "IPython runs it"},
	{"ipython_config.py", "IPython runs it"},
	{".jupyter", "Jupyter runs it"},
	{"jupyter_notebook_config.*", "Jupyter runs it"},
	{"jupyter_server_config.*", "Jupyter runs it"},
	{"dist-packages/*.pth", "Python runs its lines whenever it starts"},
	{"pyvenv.cfg", "Python goes by it, and it names where its modules are"},
	{"uv.toml", "uv installs from where it names"},
	{"rust-toolchain*", "cargo runs the toolchain that it names"},
	{".pnp.*", "node runs it"},
	{".bunfig.toml", "bun runs what it preloads"},
	{"php.ini", "PHP goes by it, and it may name a file to run"},
	{".user.ini", "PHP goes by it, and it may name a file to run"},
	{"nuget.config", "NuGet installs from where it names"},
	{"directory.build.rsp", "MSBuild goes by it, and it may name what to run"},
	{".config/dotnet-tools.json", "dotnet installs and runs what it names"},
	{".bazelversion", "bazelisk runs what it names"},
	{"tools/bazel", "bazel runs it"},
	{"tools/bazel.*", "bazel runs it"},
	{"gradle-wrapper.properties", "gradlew runs what it names"},
	{".gradle/gradle.properties", "gradle goes by it, and it may name programs"},
	{".mavenrc", "Maven runs it"},
	{".sbtrc", "sbt runs it"},
	{".mongorc.js", "mongo runs it"},
	{".mongoshrc.js", "mongosh runs it"},
	{".duckdbrc", "duckdb runs it"},
	{".radare2rc", "radare2 runs it"},
	{".rizinrc", "rizin runs it"},
	{".config/rizin", "rizin runs it"},
	{".sbclrc", "Lisp runs it"},
	{".eclrc", "Lisp runs it"},
	{".clisprc*", "Lisp runs it"},
	{".guile", "Guile runs it"},
	{".latexmkrc", "latexmk runs it"},
	{"latexmkrc", "latexmk runs it"},
}

// Why returns the reason why an absolute path is protected, such as "it lies in .git: git runs …",
// or "" if it is not protected. The target of its symbolic links counts too, whether it exists or
// not. dirs are further directories to protect, such as directories of tools.
func Why(path string, dirs ...string) string {
	candidates := []string{filepath.Clean(path)}
	// The meaning of .. depends on the links before it, and programs differ.
	for _, p := range []string{path, filepath.Clean(path)} {
		target, err := Resolve(p)
		if err != nil {
			return "it can't be told where it leads: " + err.Error()
		}
		candidates = append(candidates, target)
	}
	for _, candidate := range candidates {
		if why := whyByName(candidate); why != "" {
			return why
		}
		if why := whyInRepository(candidate); why != "" {
			return why
		}
		for _, dir := range dirs {
			if Within(candidate, dir) {
				return "it lies in " + dir + ": what lies there is run"
			}
		}
	}
	return ""
}

// whyByName returns why a clean path is protected by its name, "" if it is not.
func whyByName(path string) string {
	parts := strings.Split(normalize(filepath.ToSlash(path)), "/")
	for _, p := range places {
		want := strings.Split(p.name, "/")
		for i := 0; i+len(want) <= len(parts); i++ {
			if matches(parts[i:i+len(want)], want) {
				return "it is or lies in " + p.name + ": " + p.what
			}
		}
	}
	return ""
}

// whyInRepository returns why a clean path is protected by the files beside it, "" if it
// is not. For git, a directory of any name is a repository if it has a HEAD and some
// other files; so a new file named HEAD can make one.
func whyInRepository(path string) string {
	if strings.EqualFold(filepath.Base(path), "HEAD") {
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			return "git takes a directory with a HEAD for a repository, and runs what its " +
				"configuration names"
		}
	}
	for dir := filepath.Dir(path); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		has := func(name string) bool {
			_, err := os.Stat(filepath.Join(dir, name))
			return err == nil
		}
		if has("HEAD") && (has("objects") || has("commondir")) {
			return "it lies in " + dir +
				", a repository of git: git runs what its configuration and hooks name"
		}
		if has(".git") {
			return "" // the working tree of a repository
		}
	}
	return ""
}

func matches(parts, want []string) bool {
	for i, w := range want {
		switch end, isEnd := strings.CutPrefix(w, "*"); {
		case isEnd:
			if !strings.HasSuffix(parts[i], end) {
				return false
			}
		case strings.HasSuffix(w, "*"):
			if !strings.HasPrefix(parts[i], strings.TrimSuffix(w, "*")) {
				return false
			}
		case parts[i] != w:
			return false
		}
	}
	return true
}

// normalize returns a path in the form that file systems compare if they ignore case and
// some characters.
func normalize(path string) string {
	path = strings.Map(func(r rune) rune {
		switch {
		case r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f,
			r == 0xfeff:
			return -1 // HFS+ ignores them
		}
		return r
	}, strings.ReplaceAll(strings.ToLower(path), "ſ", "s"))
	parts := strings.Split(path, "/")
	for i, part := range parts {
		part, _, _ = strings.Cut(part, ":") // NTFS: a stream of the file
		if part = strings.TrimRight(part, ". "); part == "git~1" {
			part = ".git"
		}
		if strings.Trim(parts[i], ". ") != "" {
			parts[i] = part
		}
	}
	return strings.Join(parts, "/")
}

// Within reports whether a path is the directory dir or lies in it. It follows the
// symbolic links of dir, but not of path, and ignores case.
func Within(path, dir string) bool {
	dirs := []string{filepath.Clean(dir)}
	if target, err := Resolve(dir); err == nil {
		dirs = append(dirs, target)
	}
	for _, dir := range dirs {
		if rel, err := filepath.Rel(normalize(dir), normalize(path)); err == nil &&
			filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}

// HoldsFile reports whether some directories hold a second name (a hard link) of an open file, at
// any depth. A directory that can't be read may hold any file that has several names.
func HoldsFile(file fs.FileInfo, dirs ...string) (holds bool) {
	if st, ok := file.Sys().(*syscall.Stat_t); ok && st.Nlink < 2 {
		return false
	}
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				holds = true
				return fs.SkipAll
			}
			if info, err := d.Info(); err == nil && os.SameFile(file, info) {
				holds = true
				return fs.SkipAll
			}
			return nil
		})
	}
	return holds
}

// maxLinks is how many symbolic links Resolve follows, as in Linux.
const maxLinks = 40

// Resolve follows every symbolic link of an absolute path, also to a target that does not exist. It
// keeps the missing part of a path. It returns the system's error, or ELOOP after 40 links.
func Resolve(path string) (string, error) {
	sep := string(filepath.Separator)
	at := filepath.VolumeName(path) + sep
	rest := strings.Split(strings.TrimPrefix(path, at), sep)
	for links := 0; len(rest) > 0; {
		next := filepath.Join(at, rest[0]) // this also handles "" and ..
		rest = rest[1:]
		info, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) {
			return filepath.Join(next, filepath.Join(rest...)), nil
		}
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", &fs.PathError{Op: "open", Path: path, Err: syscall.ELOOP}
		}
		target, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		if filepath.IsAbs(target) {
			at = filepath.VolumeName(target) + sep
			target = target[len(at):]
		}
		rest = append(strings.Split(target, sep), rest...)
	}
	return at, nil
}

// Target returns the target of a path without telling which files exist. The parts of an absolute
// path that can't be resolved, such as a name below a file, stay as they are.
func Target(path string) string {
	for rest := ""; ; path = filepath.Dir(path) {
		target, err := Resolve(path)
		if err == nil || path == filepath.Dir(path) {
			return filepath.Join(target, rest)
		}
		rest = filepath.Join(filepath.Base(path), rest)
	}
}
