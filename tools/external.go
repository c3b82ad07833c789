package tools

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"tapgw/internal/visible"
	"tapgw/internal/watch"
	"tapgw/tools/internal/dropin"
)

// External finds tools in directories at run time, without a compiler: Python
// modules with SCHEMA and execute, and executables with a manifest NAME.tool.toml
// or NAME.tool.json. They run with the rights of the user: which directories are
// trusted is the caller's decision. The zero value is ready for use.
type External struct {
	// Python is the interpreter of modules; "": python3 on PATH.
	Python string
	// Allow names variables of our environment that drop-ins get besides those
	// that every child gets; a trailing * stands for any ending.
	Allow []string
	// Check says why the tools of a directory may not be run now; it is asked when they
	// are looked for and before each call. nil: they may.
	Check func(dir string) error
	// Log gets what drop-ins print, line by line, from several goroutines. nil:
	// nobody is interested.
	Log func(file, line string)

	mu    sync.Mutex // one load at a time; guards known
	known map[string]*drop
}

// Fault says why a file is no tool, or not one that can be used.
type Fault struct {
	File   string // or the directory, where it is about all of them
	Line   int    // 0: unknown
	Reason string
}

func (f Fault) String() string {
	if f.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", visible.Line(f.File), f.Line, f.Reason)
	}
	return fmt.Sprintf("%s: %s", visible.Line(f.File), f.Reason)
}

// drop is a file that was looked at.
type drop struct {
	key    string         // the content of all that it stands for
	tool   *Tool          // nil: it is none
	line   int            // where the tool is described
	fault  *dropin.Fault  // nil: there is none
	module *dropin.Module // of a Python tool
}

// reserved are the names of the language server's tools and of those that it
// treats as its own. A drop-in of that name would replace what the server and the
// user's policies rely on.
var reserved = []string{
	"insert_edit_into_file", "replace_string_in_file", "multi_replace_string", "create_file", "create_directory",
	"apply_patch", "read_file", "list_dir", "file_search", "grep_search", "find_test_files", "run_in_terminal",
	"run_tests", "fetch_web_page", "get_errors",
	"validate_cves", "run_subagent", "manage_todo_list", "semantic_search",
}

// toolchains are variables that interpreters are found and set up by.
var toolchains = []string{
	"VIRTUAL_ENV", "PYTHON*", "PYENV_*", "CONDA_*", "NODE_PATH", "NVM_*", "JAVA_HOME", "GOPATH", "GOROOT",
	"SSH_AUTH_SOCK",
}

// Load finds the tools of directories; a directory that doesn't exist has none.
// Tools come sorted by name, faults by file. A file that is no good costs nobody
// else anything. Of two files with one name, that of the earlier directory is the
// tool, then that of the earlier file name. A file that has not changed since the
// last Load is not looked at again: its tool is the same one, with the processes
// that it has.
func (x *External) Load(ctx context.Context, dirs ...string) ([]*Tool, []Fault) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := map[string]*drop{}
	var order []string
	var faults []Fault
	seen := map[string]bool{}
	for _, dir := range dirs {
		dir, err := filepath.Abs(dir)
		if err != nil || seen[dir] {
			continue
		}
		seen[dir] = true
		if err := x.check(dir); err != nil {
			if info, serr := os.Stat(dir); serr == nil && info.IsDir() {
				faults = append(faults, Fault{File: dir, Reason: err.Error()})
			}
			continue
		}
		files := listing(watch.Scan([]string{dir}, mayBeDropIn))
		faults = append(faults, x.modules(ctx, dir, files, now)...)
		x.manifests(files, now)
		for _, f := range files {
			if now[f.path] != nil {
				order = append(order, f.path)
			}
		}
	}
	x.retire(now)

	byName := map[string]*Tool{}
	for _, path := range order {
		d := now[path]
		fault := d.fault
		if fault == nil && d.tool != nil {
			fault = d.unfit(byName)
		}
		if fault != nil {
			faults = append(faults, Fault{path, fault.Line, fault.Reason})
		} else if d.tool != nil {
			byName[d.tool.Name] = d.tool
		}
	}
	tools := make([]*Tool, 0, len(byName))
	for _, t := range byName {
		tools = append(tools, t)
	}
	slices.SortFunc(tools, func(a, b *Tool) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Compare(a.File, b.File) })
	return tools, faults
}

func (x *External) check(dir string) error {
	if x.Check == nil {
		return nil
	}
	return x.Check(dir)
}

// Watch loads the tools of directories and tells of them, at once and again
// whenever something in them has changed, until ctx ends. All are told each time;
// one that is the same pointer as before is the same tool. A file that is broken
// now has no tool, not even the one that it had before.
func (x *External) Watch(ctx context.Context, dirs []string, changed func([]*Tool, []Fault)) {
	watch.Dirs(ctx, dirs, mayBeDropIn, func(watch.Snapshot) {
		if tools, faults := x.Load(ctx, dirs...); ctx.Err() == nil {
			changed(tools, faults)
		}
	})
}

// Close ends the processes that wait for calls. Tools still work, with a process
// for each call.
func (x *External) Close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.retire(nil)
}

// retire closes what is not among the drops of now, which are those known from
// here on.
func (x *External) retire(now map[string]*drop) {
	for path, d := range x.known {
		if d.module != nil && now[path] != d {
			d.module.Close()
		}
	}
	x.known = now
}

// unfit says why a tool cannot be one beside those of byName.
func (d *drop) unfit(byName map[string]*Tool) *dropin.Fault {
	t := d.tool
	if err := t.Check(); err != nil {
		return &dropin.Fault{Line: d.line, Reason: err.Error()}
	}
	if slices.Contains(reserved, t.Name) {
		return &dropin.Fault{Line: d.line,
			Reason: fmt.Sprintf("the name %q belongs to a tool of the language server: choose another", t.Name)}
	}
	if other := byName[t.Name]; other != nil {
		return &dropin.Fault{Line: d.line,
			Reason: fmt.Sprintf("%s has the name %q already: choose another", other.Source, t.Name)}
	}
	return nil
}
