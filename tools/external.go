package tools

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"tapgw/internal/visible"
	"tapgw/internal/watch"
	"tapgw/tools/internal/dropin"
)

// External finds drop-in tools in directories: Python modules with SCHEMA and
// execute, and executables with a manifest NAME.tool.toml or NAME.tool.json. They run
// with the rights of the user, so the caller decides which directories it trusts.
// The zero value is ready for use.
type External struct {
	// Python is the interpreter of modules; "": python3 on PATH.
	Python string
	// Allow returns the names of environment variables that drop-ins get besides those that every
	// child process gets; a trailing * matches any ending. After a change, the next load gives each
	// drop-in a new process. nil adds no variable.
	Allow func() []string
	// Beside returns the tools that drop-ins are added to. A drop-in may have the name of one of
	// them, or of a tool of the language server, only if Replace returns that name.
	Beside  func() []*Tool  // may be nil
	Replace func() []string // may be nil
	// Check returns why the tools of a directory may not run now. It is called before
	// a directory is loaded and before each call. nil: all tools may run.
	Check func(dir string) error
	// Log gets the lines that drop-ins print, from several goroutines. nil: they are
	// dropped.
	Log func(file, line string)

	mu     sync.Mutex           // held during a load; guards loaded
	loaded map[string]*dropFile // by path
}

// Fault describes why a drop-in file, or a whole directory of them, has no usable tool.
type Fault struct {
	File   string // absolute path of the file or the directory
	Line   int    // 0: unknown
	Reason string
}

// String returns the fault in one line: the file, the line if there is one, and the reason.
func (f Fault) String() string {
	if f.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", visible.Line(f.File), f.Line, f.Reason)
	}
	return fmt.Sprintf("%s: %s", visible.Line(f.File), f.Reason)
}

// dropFile is the result of loading one file.
type dropFile struct {
	digest string         // of its content and of all files that it may use
	tool   *Tool          // nil: the file is no tool
	line   int            // where the file describes the tool
	fault  *dropin.Fault  // why the tool can't be used; nil: it can
	module *dropin.Module // of a Python tool
}

// reserved are the names of the language server's own tools and of tools that it
// treats as its own. A drop-in with such a name would replace a tool that the server
// and the user's policies rely on.
var reserved = []string{
	"insert_edit_into_file", "replace_string_in_file", "multi_replace_string", "create_file",
	"create_directory",
	"apply_patch", "read_file", "list_dir", "file_search", "grep_search", "find_test_files",
	"run_in_terminal", "run_tests", "fetch_web_page", "get_errors",
	"validate_cves", "run_subagent", "manage_todo_list", "semantic_search",
}

// toolchains are the environment variables that find and set up interpreters.
var toolchains = []string{
	"VIRTUAL_ENV", "PYTHON*", "PYENV_*", "CONDA_*", "NODE_PATH", "NVM_*", "JAVA_HOME", "GOPATH",
	"GOROOT",
	"SSH_AUTH_SOCK",
}

// Load finds the tools of directories, of which some may not exist. It returns the
// tools sorted by name and the faults sorted by file; a faulty file does not affect
// the others. If two files have tools of one name, the one in the earlier directory
// wins, then the one with the earlier file name. A file that has not changed since
// the last Load keeps its tool, the same pointer, and its running processes.
func (x *External) Load(ctx context.Context, dirs ...string) ([]*Tool, []Fault) {
	x.mu.Lock()
	defer x.mu.Unlock()
	found := map[string]*dropFile{}
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
		files := sortedFiles(watch.Scan([]string{dir}, mayBeDropIn))
		faults = append(faults, x.loadModules(ctx, dir, files, found)...)
		x.loadManifests(files, found)
		for _, f := range files {
			if found[f.path] != nil {
				order = append(order, f.path)
			}
		}
	}
	x.replaceLoaded(found)

	byName := map[string]*Tool{}
	for _, path := range order {
		d := found[path]
		fault := d.fault
		if fault == nil && d.tool != nil {
			fault = cmp.Or(x.faultOfName(d), d.faultBeside(byName))
		}
		if fault != nil {
			faults = append(faults, Fault{path, fault.Line, fault.Reason})
		} else if d.tool != nil {
			byName[d.tool.Name] = d.tool
		}
	}
	tools := slices.SortedFunc(maps.Values(byName), func(a, b *Tool) int {
		return cmp.Compare(a.Name, b.Name)
	})
	slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Compare(a.File, b.File) })
	return tools, faults
}

func (x *External) check(dir string) error {
	if x.Check == nil {
		return nil
	}
	return x.Check(dir)
}

// Watch loads the tools of directories and calls changed with all of them, at once
// and again whenever a file has changed, until ctx ends. An unchanged tool is the same
// pointer as before. A file that has become faulty loses its tool.
func (x *External) Watch(ctx context.Context, dirs []string, changed func([]*Tool, []Fault)) {
	watch.Dirs(ctx, dirs, mayBeDropIn, func(watch.Snapshot) {
		if tools, faults := x.Load(ctx, dirs...); ctx.Err() == nil {
			changed(tools, faults)
		}
	})
}

// Close ends the processes that wait for calls. Tools still work afterwards, with a
// new process for each call.
func (x *External) Close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.replaceLoaded(nil)
}

// replaceLoaded makes found the loaded files and closes the modules of others.
// x.mu is held.
func (x *External) replaceLoaded(found map[string]*dropFile) {
	for path, d := range x.loaded {
		if d.module != nil && found[path] != d {
			d.module.Close()
		}
	}
	x.loaded = found
}

// faultOfName returns why the tool may not have its name, nil if it may.
func (x *External) faultOfName(d *dropFile) *dropin.Fault {
	name := d.tool.Name
	owner := "a tool of the language server"
	switch {
	case x.Beside != nil && slices.ContainsFunc(x.Beside(), func(t *Tool) bool {
		return t.Name == name
	}):
		owner = "a built-in tool"
	case !slices.Contains(reserved, name):
		return nil
	}
	if x.Replace == nil {
		return &dropin.Fault{
			Line:   d.line,
			Reason: fmt.Sprintf("the name %q belongs to %s: choose another", name, owner),
		}
	}
	if slices.Contains(x.Replace(), name) {
		return nil
	}
	return &dropin.Fault{Line: d.line,
		Reason: fmt.Sprintf("the name %q belongs to %s: choose another, or let this "+
			"file take its place by tools.replace = [%[1]q] in lsclient.toml", name, owner)}
}

// faultBeside returns the reason why the tool can't be used beside the tools of byName, or nil if
// it can.
func (d *dropFile) faultBeside(byName map[string]*Tool) *dropin.Fault {
	t := d.tool
	if err := t.Check(); err != nil {
		return &dropin.Fault{Line: d.line, Reason: err.Error()}
	}
	if other := byName[t.Name]; other != nil {
		return &dropin.Fault{Line: d.line,
			Reason: fmt.Sprintf("%s has the name %q already: choose another", other.Source, t.Name)}
	}
	return nil
}
