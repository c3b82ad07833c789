package tools

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/adrg/xdg"

	"tapgw/internal/lazyregexp"
	"tapgw/internal/proc"
	"tapgw/internal/watch"
	"tapgw/library_docs"
	"tapgw/tools/internal/dropin"
)

// The files of drop-in tools, and the tools that are made of them.

// mayBeDropIn reports whether a file may be a tool or a part of one.
func mayBeDropIn(info fs.FileInfo) bool {
	name := info.Name()
	if !info.Mode().IsRegular() || strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") {
		return false
	}
	_, manifest := dropin.ManifestName(name)
	return manifest || filepath.Ext(name) == ".py" || info.Mode()&0o111 != 0
}

// file is a file of a directory; sum is the digest of its content.
type file struct {
	path, base, sum string
}

func sortedFiles(s watch.Snapshot) []file {
	var files []file
	for path, sum := range s {
		files = append(files, file{path, filepath.Base(path), hex.EncodeToString(sum[:])})
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	return files
}

// digest combines the paths and the content of files, and the environment of a drop-in.
func digest(files []file, env []string) string {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintln(h, f.sum, f.path)
	}
	fmt.Fprintf(h, "%q", env)
	return hex.EncodeToString(h.Sum(nil))
}

// pySource is a Python file: a tool, or a module that tools import.
type pySource struct {
	file
	text     []byte
	mentions map[string]bool // the words in it
}

var word = lazyregexp.New(`\w+`)

func readSource(f file) pySource {
	s := pySource{file: f, mentions: map[string]bool{}}
	s.text, _ = os.ReadFile(f.path) // an unreadable file has no imports and is no tool
	for _, w := range word.FindAll(s.text, -1) {
		s.mentions[string(w)] = true
	}
	return s
}

// withImports returns a source and all files that it may import from its directory: the files whose
// names occur in it, and in turn in them.
func (s pySource) withImports(all []pySource) []file {
	parts := []pySource{s}
	for i := 0; i < len(parts); i++ {
		for _, other := range all {
			isPart := slices.ContainsFunc(parts, func(p pySource) bool {
				return p.path == other.path
			})
			if !isPart && parts[i].mentions[strings.TrimSuffix(other.base, ".py")] {
				parts = append(parts, other)
			}
		}
	}
	files := make([]file, len(parts))
	for i, p := range parts {
		files[i] = p.file
	}
	return files
}

// loadModules adds a directory's Python modules to found. One probe imports all that
// are new or have changed.
func (x *External) loadModules(
	ctx context.Context, dir string, files []file, found map[string]*dropFile,
) []Fault {
	var sources []pySource
	for _, f := range files {
		if filepath.Ext(f.base) == ".py" {
			sources = append(sources, readSource(f))
		}
	}
	var changed, names []string
	digests := map[string]string{}
	env := x.environ()
	for _, s := range sources {
		if strings.HasPrefix(s.base, "_") || !dropin.MayBeTool(s.text) {
			continue
		}
		sum := digest(s.withImports(sources), env)
		if d := x.loaded[s.path]; d != nil && d.digest == sum {
			found[s.path] = d
			continue
		}
		digests[s.path] = sum
		changed, names = append(changed, s.path), append(names, s.base)
	}
	if len(changed) == 0 {
		return nil
	}
	python := dropin.Python{Path: x.Python, Env: env, Log: x.Log}
	interpreter, err := python.Interpreter()
	var probed []dropin.Probed
	if err == nil {
		probed, interpreter, err = python.Probe(ctx, interpreter, changed)
	}
	if err != nil {
		reason := fmt.Sprintf("its Python tools (%s) cannot be used: %v", strings.Join(names, ", "),
			err)
		return []Fault{{File: dir, Reason: reason}}
	}
	for i, p := range probed {
		path := changed[i]
		d := &dropFile{digest: digests[path], fault: p.Fault}
		if p.Spec != nil {
			d.module = python.Module(interpreter, path)
			d.setTool(path, p.Spec, x.withCheck(path, d.module.Call))
		}
		found[path] = d
	}
	return nil
}

// loadManifests adds a directory's executables that have a manifest to found.
func (x *External) loadManifests(files []file, found map[string]*dropFile) {
	env := x.environ()
	for _, f := range files {
		name, ok := dropin.ManifestName(f.base)
		if !ok {
			continue
		}
		var parts []file // files that the manifest may use
		for _, other := range files {
			if strings.HasPrefix(other.base, name) {
				parts = append(parts, other)
			}
		}
		sum := digest(parts, env)
		if d := x.loaded[f.path]; d != nil && d.digest == sum {
			found[f.path] = d
			continue
		}
		m, fault := dropin.ReadManifest(f.path)
		d := &dropFile{digest: sum, fault: fault}
		if fault == nil {
			run := dropin.Executable{Manifest: m, Env: env, Log: x.Log}
			d.setTool(f.path, &m.Spec, x.withCheck(f.path, run.Call))
			d.tool.Timeout = m.Timeout
		}
		found[f.path] = d
	}
}

func (x *External) environ() []string {
	names := toolchains
	if x.Allow != nil {
		names = slices.Concat(toolchains, x.Allow())
	}
	// Python would run compiled files from a directory beside the tools. A person who trusts the
	// tools does not look at that directory, so compiled files live in the user's cache.
	return proc.Environ(map[string]string{"PYTHONPYCACHEPREFIX": filepath.Join(xdg.CacheHome,
		"tapgw", "pycache")},
		names...)
}

// toolCall calls a tool.
type toolCall = func(context.Context, dropin.Call) (dropin.Answer, error)

// withCheck makes a call that first checks whether the tool may run.
func (x *External) withCheck(path string, call toolCall) toolCall {
	return func(ctx context.Context, c dropin.Call) (dropin.Answer, error) {
		if err := x.check(filepath.Dir(path)); err != nil {
			return dropin.Answer{}, err
		}
		return call(ctx, c)
	}
}

// setTool makes the tool that a file describes.
func (d *dropFile) setTool(path string, spec *dropin.Spec, call toolCall) {
	d.line = spec.Line
	kind := Kind(max(0, slices.Index(kindNames, spec.Kind)))
	if kind == Unknown && spec.Kind != "" {
		reason := fmt.Sprintf("kind %q is none of read, edit, terminal, web", spec.Kind)
		d.fault = &dropin.Fault{Line: spec.Line, Reason: reason}
	}
	d.tool = &Tool{
		Name: spec.Name, Description: spec.Description, Parameters: spec.Parameters, Kind: kind,
		Source: path,
	}
	d.tool.Run = func(ctx context.Context, env *Env, args json.RawMessage) (Result, error) {
		a, err := call(ctx, dropin.Call{
			Root: env.Root, Input: args, Sync: env.Sync, Open: env.Open,
			Libraries: env.dropinLibraries,
		})
		r := Result{Parts: a.Parts, Data: a.Data}
		for _, w := range a.Wrote {
			r.Written = append(r.Written, Written{Path: w.Path, Content: w.Content})
		}
		if err == nil && len(r.Parts) == 0 && r.Data == nil {
			r.Parts = []string{spec.Name + " is done; it has nothing to say."}
		}
		return r, err
	}
}

// dropinLibraries returns the documentation that tools of this environment have.
func (e *Env) dropinLibraries() (all []dropin.Library) {
	catalog, _ := library_docs.Load(e.LibraryDir()) // without libraries that can't be read
	for _, lib := range catalog {
		d := dropin.Library{
			ID: lib.ID, Title: lib.Title, Description: lib.Description,
			Aliases: append([]string{}, lib.Aliases...),
		}
		for _, s := range lib.Sections {
			d.Sections = append(d.Sections, s.Text)
		}
		all = append(all, d)
	}
	return all
}
