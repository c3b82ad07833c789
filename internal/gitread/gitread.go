// Package gitread runs git to read a repository that may come from anywhere, such as an archive
// with a .git in it.
//
// git never reads the repository's own configuration. It gets a private directory instead, with the
// few settings in it that say how files are compared, and is told where the working tree, the index
// and the objects are. So nothing in the repository can name a program, another working tree,
// another file or another repository. Anything else that leads out of the repository (links,
// borrowed objects, a .git of another tree) is an error.
package gitread

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"tapgw/internal/git"
	"tapgw/internal/proc"
)

// Limits of a run of git.
const (
	timeout   = 30 * time.Second
	maxOutput = 32 << 20 // bytes
)

// Repository is a repository that git may read. The caller of [Git.Open] must close it.
type Repository struct {
	Root string // of the working tree, without symbolic links
	// of the directory that was opened, below Root: "" or a path that ends with a slash
	Prefix string

	git     Git
	dir     string
	private string // the directory that git takes for the repository's
	env     map[string]string
}

// Git is the program to run.
type Git struct {
	Program string // an absolute path, outside of the workspace
	Path    string // git's variable PATH; "": as inherited
}

// Open opens the repository of the innermost working tree that contains a directory. The error
// wraps git.ErrNoRepository, or names the part of the repository that leads out of it.
func (g Git) Open(ctx context.Context, dir string) (*Repository, error) {
	found, err := git.Find(dir)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	r := &Repository{Root: found.Root, git: g, dir: dir}
	if rel, err := filepath.Rel(found.Root, dir); err != nil {
		return nil, err
	} else if rel != "." {
		r.Prefix = filepath.ToSlash(rel) + "/"
	}
	if err := r.checkOwners(ctx, found); err != nil {
		return nil, err
	}
	if err := checkFiles(ctx, found); err != nil {
		return nil, err
	}
	if r.private, err = os.MkdirTemp("", "tapgw-git-"); err != nil {
		return nil, err
	}
	if err := r.fill(ctx, found); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close removes the private directory.
func (r *Repository) Close() { _ = os.RemoveAll(r.private) }

// fill writes the private directory.
func (r *Repository) fill(ctx context.Context, found git.Repository) error {
	config, err := r.config(ctx, found)
	if err != nil {
		return err
	}
	files := map[string]string{"config": config}
	head, err := git.ReadSmall(filepath.Join(found.Dir, "HEAD"))
	if err != nil {
		return err
	}
	files["HEAD"] = head
	for _, name := range []string{"info/exclude", "info/attributes"} {
		text, err := git.ReadSmall(filepath.Join(found.Common, name))
		if err == nil {
			files[name] = text
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Mkdir(filepath.Join(r.private, "info"), 0o700); err != nil {
		return err
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(r.private, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	links := map[string]string{}
	for _, name := range []string{"refs", "packed-refs", "reftable", "shallow"} {
		links[name] = filepath.Join(found.Common, name)
	}
	shared, _ := filepath.Glob(filepath.Join(found.Dir, "sharedindex.*")) // parts of a split index
	for _, path := range shared {
		links[filepath.Base(path)] = path
	}
	for name, target := range links {
		if _, err := os.Lstat(target); err != nil {
			continue
		}
		if err := os.Symlink(target, filepath.Join(r.private, name)); err != nil {
			return err
		}
	}
	r.env = map[string]string{
		"GIT_DIR": r.private, "GIT_WORK_TREE": r.Root, "GIT_INDEX_FILE": filepath.Join(found.Dir,
			"index"),
		"GIT_OBJECT_DIRECTORY": filepath.Join(found.Common, "objects"),
	}
	return nil
}

// dataSettings are the settings of a repository that count, each with one word as its value: they
// say how files and objects are compared. All others are left out.
var dataSettings = map[string]bool{
	"core.filemode": true, "core.ignorecase": true, "core.symlinks": true,
	"core.precomposeunicode": true, "core.autocrlf": true, "core.eol": true,
	"core.trustctime": true, "core.checkstat": true, "core.sparsecheckout": true,
	"core.sparsecheckoutcone": true, "index.sparse": true, "extensions.objectformat": true,
	"extensions.refstorage": true,
}

// config returns the private configuration. The repository's own is read as a text that includes
// nothing.
func (r *Repository) config(ctx context.Context, found git.Repository) (string, error) {
	text, err := git.ReadSmall(filepath.Join(found.Common, "config"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	cmd := r.git.command(ctx, string(filepath.Separator), nil, "config", "--no-includes", "--file",
		"-", "--list", "-z")
	cmd.Stdin = strings.NewReader(text)
	out, err := output(ctx, cmd)
	if err != nil {
		return "", fmt.Errorf("reading the repository's configuration: %w", err)
	}
	worktree := ""
	config := "[core]\nrepositoryformatversion = 1\nbare = false\n"
	for setting := range strings.SplitSeq(string(out), "\x00") {
		key, value, isSet := strings.Cut(setting, "\n") // a key alone means true
		if key == "core.worktree" {
			worktree = value
		}
		section, name, _ := strings.Cut(key, ".")
		if !isSet {
			value = "true"
		}
		if dataSettings[key] && isWord(value) {
			config += "[" + section + "]\n" + name + " = " + value + "\n"
		}
		if key == "extensions.refstorage" && value != "files" && found.Dir != found.Common {
			return "",
				fmt.Errorf(
					"the repository of this worktree keeps its refs as %q, which is not read: "+
						"ask in the main working tree", value)
		}
	}
	if found.IsSubmodule {
		if !filepath.IsAbs(worktree) {
			worktree = filepath.Join(found.Dir, worktree)
		}
		if named, err := filepath.EvalSymlinks(worktree); err != nil || named != found.Root {
			return "",
				fmt.Errorf("%s is not followed: it leads to %s, which is of another working tree",
					filepath.Join(found.Root, ".git"), found.Dir)
		}
	}
	return config, nil
}

// isWord reports whether a value is one plain word.
func isWord(s string) bool {
	return s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// checkFiles refuses a repository with links, pipes or borrowed objects among the files that git
// reads.
func checkFiles(ctx context.Context, found git.Repository) error {
	borrowed, err := git.ReadSmall(filepath.Join(found.Common, "objects", "info", "alternates"))
	if err == nil && strings.TrimSpace(borrowed) != "" {
		return fmt.Errorf(
			"%s borrows objects from other repositories (objects/info/alternates), which "+
				"are not read: "+
				"git repack -a -d copies them, then remove that file", found.Common)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	places := []string{filepath.Join(found.Dir, "index")}
	for _, name := range []string{"objects", "refs", "packed-refs", "reftable", "shallow", "info"} {
		places = append(places, filepath.Join(found.Common, name))
	}
	shared, _ := filepath.Glob(filepath.Join(found.Dir, "sharedindex.*"))
	for _, place := range append(places, shared...) {
		err := filepath.WalkDir(place, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil // git is at work
			case err != nil:
				return err
			case !entry.IsDir() && !entry.Type().IsRegular():
				return fmt.Errorf("%s is not read: it is a symbolic link or no file", path)
			}
			return ctx.Err()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// checkOwners refuses a repository of another user, unless the user's own configuration lists it in
// safe.directory.
func (r *Repository) checkOwners(ctx context.Context, found git.Repository) error {
	for _, path := range []string{found.Root, filepath.Join(found.Root, ".git"), found.Dir,
		found.Common} {
		owner, err := ownerOf(path)
		if err != nil {
			return err
		}
		if owner == currentUser() {
			continue
		}
		cmd := r.git.command(ctx, string(filepath.Separator),
			map[string]string{"GIT_DIR": os.DevNull}, "config", "-z", "--get-all", "safe.directory")
		out, _ := output(ctx, cmd) // fails if there is no such setting
		isSafe := false
		for safe := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			isSafe = safe != "" && (isSafe || safe == "*" || filepath.Clean(safe) == found.Root)
		}
		if isSafe {
			return nil
		}
		return fmt.Errorf(
			"%s is another user's: git config --global --add safe.directory %s trusts it", path,
			found.Root)
	}
	return nil
}

// currentUser is os.Geteuid, except in tests.
var currentUser = os.Geteuid

// ownerOf returns the user that a file or directory belongs to, of a symbolic link itself.
func ownerOf(path string) (int, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(stat.Uid), nil
	}
	return -1, nil
}

// CheckIndex refuses an index with a path that is outside the working tree or in .git, which only a
// program other than git writes. It reports whether a submodule's .git leads out of the repository,
// so that git must not look into the submodule.
func (r *Repository) CheckIndex(ctx context.Context) (strayModule bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := r.commandAt(ctx, r.Root, "ls-files", "--stage", "-z")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	var stderr proc.Head
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("running git: %w", err)
	}
	var fault error
	entries := bufio.NewScanner(out)
	entries.Buffer(nil, 1<<20)
	entries.Split(SplitNUL)
	for fault == nil && entries.Scan() {
		about, path, ok := strings.Cut(entries.Text(), "\t")
		if !ok || !isInside(path) {
			fault = fmt.Errorf("its index names %q, which is not a file of the working tree", path)
			continue
		}
		if strings.HasPrefix(about, "160000 ") && !strayModule {
			strayModule = r.isStray(path)
		}
	}
	if fault = errors.Join(fault, entries.Err()); fault != nil {
		cancel()
	}
	err = cmd.Wait()
	if fault != nil {
		return false, fault
	}
	return strayModule, said(ctx, err, stderr.String())
}

// isInside reports whether a path of the index belongs to a file in the working tree.
func isInside(path string) bool {
	return fs.ValidPath(path) &&
		!slices.ContainsFunc(strings.Split(path, "/"), func(part string) bool {
			return strings.EqualFold(part, ".git")
		})
}

// isStray reports whether a submodule has a repository that git must not read.
func (r *Repository) isStray(path string) bool {
	at := filepath.Join(r.Root, filepath.FromSlash(path))
	if _, err := os.Lstat(filepath.Join(at, ".git")); errors.Is(err, fs.ErrNotExist) {
		return false
	}
	found, err := git.Find(at)
	return err != nil || found.Root != at
}

// Output runs git in the directory that was opened, and returns its output. The error has git's own
// first line.
func (r *Repository) Output(ctx context.Context, args ...string) ([]byte, error) {
	return output(ctx, r.Command(ctx, args...))
}

// Command is git with arguments, in the directory that was opened.
func (r *Repository) Command(ctx context.Context, args ...string) *exec.Cmd {
	return r.commandAt(ctx, r.dir, args...)
}

func (r *Repository) commandAt(ctx context.Context, dir string, args ...string) *exec.Cmd {
	return r.git.command(ctx, dir, r.env, args...)
}

// safeSettings keep git from running programs, also programs that the user's own configuration
// names for other purposes.
var safeSettings = []string{
	"core.fsmonitor=false", "core.hooksPath=/dev/null", "core.pager=cat",
	"safe.bareRepository=explicit",
	"diff.external=", "diff.autoRefreshIndex=false", "status.submoduleSummary=false",
	"diff.submodule=short", "core.quotePath=false", "core.untrackedCache=false",
}

// command returns a command of git with arguments. It does not run in dir, because a version
// manager's shim would choose git by the files there. It leaves out this process's variables for
// git.
func (g Git) command(
	ctx context.Context, dir string, env map[string]string, args ...string,
) *exec.Cmd {
	all := []string{"-C", dir, "--no-pager", "--no-optional-locks"}
	for _, setting := range safeSettings {
		all = append(all, "-c", setting)
	}
	vars := map[string]string{
		"GIT_TERMINAL_PROMPT": "0", "GIT_PAGER": "cat", "LC_ALL": "C",
		// Missing objects are not fetched: a fetch runs programs that a URL names.
		"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none",
	}
	maps.Copy(vars, env)
	if g.Path != "" {
		vars["PATH"] = g.Path
	}
	cmd := exec.CommandContext(ctx, g.Program, append(all, args...)...)
	cmd.Dir = string(filepath.Separator)
	cmd.Env = proc.Environ(vars)
	cmd.WaitDelay = time.Second
	return cmd
}

// output runs a command and returns its output, at most maxOutput.
func output(ctx context.Context, cmd *exec.Cmd) ([]byte, error) {
	var stderr proc.Head
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("running git: %w", err)
	}
	late := time.AfterFunc(timeout, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	data, err := io.ReadAll(io.LimitReader(out, maxOutput+1))
	if len(data) > maxOutput {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("git printed more than %d MiB: name a directory further down",
			maxOutput>>20)
	}
	err = errors.Join(err, cmd.Wait())
	if !late.Stop() {
		return nil, fmt.Errorf("git did not end within %v", timeout)
	}
	return data, said(ctx, err, stderr.String())
}

// said is the error of a command that ended with err.
func said(ctx context.Context, err error, stderr string) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case stderr != "":
		line, _, _ := strings.Cut(stderr, "\n")
		return errors.New("git says: " + line)
	}
	return fmt.Errorf("running git: %w", err)
}

// SplitNUL splits the output of git with -z, for a bufio.Scanner.
func SplitNUL(data []byte, atEOF bool) (advance int, token []byte, err error) {
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return i + 1, data[:i], nil
	}
	if atEOF {
		return len(data), nil, nil
	}
	return 0, nil, nil
}
