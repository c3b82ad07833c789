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
	"tapgw/tools/internal/dropin"
)

// mayBeDropIn reports whether a file may be a tool or a part of one.
func mayBeDropIn(info fs.FileInfo) bool {
	name := info.Name()
	if !info.Mode().IsRegular() || strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") {
		return false
	}
	_, manifest := dropin.ManifestName(name)
	return manifest || filepath.Ext(name) == ".py" || info.Mode()&0o111 != 0
}

// file is one of a directory, with a digest of its content.
type file struct {
	path, base, sum string
}

func listing(s watch.Snapshot) []file {
	var files []file
	for path, sum := range s {
		files = append(files, file{path, filepath.Base(path), hex.EncodeToString(sum[:])})
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	return files
}

// digest stands for the content of files, and for which they are.
func digest(files []file) string {
	h := sha256.New()
	for _, f := range files {
		fmt.Fprintln(h, f.sum, f.path)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// source is a Python file: a tool or a part of others.
type source struct {
	file
	text     []byte
	mentions map[string]bool // the words in it
}

var word = lazyregexp.New(`\w+`)

func readSource(f file) source {
	s := source{file: f, mentions: map[string]bool{}}
	s.text, _ = os.ReadFile(f.path) // what can't be read imports nothing and is no tool
	for _, w := range word.FindAll(s.text, -1) {
		s.mentions[string(w)] = true
	}
	return s
}

// closure is the digest of a source and of all that it may import from its
// directory: what it mentions by name, and what that mentions.
func (s source) closure(all []source) string {
	parts := []source{s}
	for i := 0; i < len(parts); i++ {
		for _, other := range all {
			known := slices.ContainsFunc(parts, func(p source) bool { return p.path == other.path })
			if !known && parts[i].mentions[strings.TrimSuffix(other.base, ".py")] {
				parts = append(parts, other)
			}
		}
	}
	files := make([]file, len(parts))
	for i, p := range parts {
		files[i] = p.file
	}
	return digest(files)
}

// modules adds a directory's Python modules to now.
func (x *External) modules(ctx context.Context, dir string, files []file, now map[string]*drop) []Fault {
	var sources []source
	for _, f := range files {
		if filepath.Ext(f.base) == ".py" {
			sources = append(sources, readSource(f))
		}
	}
	var unknown, names []string
	keys := map[string]string{}
	for _, s := range sources {
		if strings.HasPrefix(s.base, "_") || !dropin.MayBeTool(s.text) {
			continue
		}
		key := s.closure(sources)
		if d := x.known[s.path]; d != nil && d.key == key {
			now[s.path] = d
			continue
		}
		keys[s.path] = key
		unknown, names = append(unknown, s.path), append(names, s.base)
	}
	if len(unknown) == 0 {
		return nil
	}
	python := dropin.Python{Path: x.Python, Env: x.environ(), Log: x.Log}
	interpreter, err := python.Interpreter()
	var probed []dropin.Probed
	if err == nil {
		probed, interpreter, err = python.Probe(ctx, interpreter, unknown)
	}
	if err != nil {
		return []Fault{{File: dir,
			Reason: fmt.Sprintf("its Python tools (%s) cannot be used: %v", strings.Join(names, ", "), err)}}
	}
	for i, p := range probed {
		path := unknown[i]
		d := &drop{key: keys[path], fault: p.Fault}
		if p.Spec != nil {
			d.module = python.Module(interpreter, path)
			d.describe(path, p.Spec, x.checked(path, d.module.Call))
		}
		now[path] = d
	}
	return nil
}

// manifests adds a directory's executables that have a manifest to now.
func (x *External) manifests(files []file, now map[string]*drop) {
	for _, f := range files {
		name, ok := dropin.ManifestName(f.base)
		if !ok {
			continue
		}
		var parts []file // what the manifest may find
		for _, other := range files {
			if strings.HasPrefix(other.base, name) {
				parts = append(parts, other)
			}
		}
		key := digest(parts)
		if d := x.known[f.path]; d != nil && d.key == key {
			now[f.path] = d
			continue
		}
		m, fault := dropin.ReadManifest(f.path)
		d := &drop{key: key, fault: fault}
		if fault == nil {
			run := dropin.Executable{Manifest: m, Env: x.environ(), Log: x.Log}
			d.describe(f.path, &m.Spec, x.checked(f.path, run.Call))
			d.tool.Timeout = m.Timeout
		}
		now[f.path] = d
	}
}

func (x *External) environ() []string {
	// Python takes what it compiled before from there, not from a directory beside the
	// tools, which nobody looks at who decides whether they are trusted.
	return proc.Environ(map[string]string{"PYTHONPYCACHEPREFIX": filepath.Join(xdg.CacheHome, "tapgw", "pycache")},
		slices.Concat(toolchains, x.Allow)...)
}

// toolCall calls a tool.
type toolCall = func(context.Context, dropin.Call) (dropin.Answer, error)

// checked is a call before which it is looked whether the tool may be run.
func (x *External) checked(path string, call toolCall) toolCall {
	return func(ctx context.Context, c dropin.Call) (dropin.Answer, error) {
		if err := x.check(filepath.Dir(path)); err != nil {
			return dropin.Answer{}, err
		}
		return call(ctx, c)
	}
}

// describe makes the tool of a file that says what it is.
func (d *drop) describe(path string, spec *dropin.Spec, call toolCall) {
	d.line = spec.Line
	kind := Read
	if spec.Kind != "" {
		kinds := []string{Read.String(), Edit.String(), Terminal.String(), Web.String()}
		i := slices.Index(kinds, spec.Kind)
		if i < 0 {
			d.fault = &dropin.Fault{Line: spec.Line,
				Reason: fmt.Sprintf("kind %q is none of %s", spec.Kind, strings.Join(kinds, ", "))}
		}
		kind = Kind(max(i, 0))
	}
	d.tool = &Tool{
		Name: spec.Name, Description: spec.Description, Parameters: spec.Parameters, Kind: kind, Source: path,
	}
	d.tool.Run = func(ctx context.Context, env *Env, args json.RawMessage) (Result, error) {
		a, err := call(ctx, dropin.Call{Root: env.Root, Input: args, Sync: env.Sync, Open: env.Open})
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
