// Package code answers questions about the source of a workspace: by language
// servers where they are installed, and else, or when they fail, by compilers and
// by searching for words. It says which of them an answer comes from.
package code

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"tapgw/tools/internal/check"
	"tapgw/tools/internal/lsp"
	"tapgw/tools/internal/search"
)

// Workspace is what is asked about.
type Workspace struct {
	Tree    search.Tree
	Files   []string // of the tree, with slashes
	Servers *lsp.Pool
}

// Answer is lines for the model, and what they come from.
type Answer struct {
	Lines []string
	Notes []string // by whom, and what could not be asked
}

func (a *Answer) note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(a.Notes, n) {
		a.Notes = append(a.Notes, n)
	}
}

// ask puts a question to the server of each language that has a file among paths
// and a server here, to all at once: the first may be the slowest. It returns what
// they answered, and which of them did.
func ask[T any](w Workspace, paths []string, a *Answer, question func(lang *lsp.Language) ([]T, error)) (all []T,
	answered []*lsp.Language) {
	type reply struct {
		lang  *lsp.Language
		items []T
		err   error
	}
	var replies []*reply
	for _, lang := range lsp.Languages {
		if slices.ContainsFunc(paths, lang.Has) && lang.Installed(w.Tree.Dir) {
			replies = append(replies, &reply{lang: lang})
		}
	}
	var running sync.WaitGroup
	for _, r := range replies {
		running.Go(func() { r.items, r.err = question(r.lang) })
	}
	running.Wait()
	for _, r := range replies {
		if r.err != nil {
			why, _, _ := strings.Cut(r.err.Error(), "\n")
			a.note("%s could not be asked: %s", r.lang.Server, why)
			continue
		}
		a.note("by %s", r.lang.Server)
		all, answered = append(all, r.items...), append(answered, r.lang)
	}
	return all, answered
}

// Problems tells errors and warnings in files, given as absolute paths.
func (w Workspace) Problems(ctx context.Context, paths []string) (a Answer, err error) {
	of := map[*lsp.Language][]string{} // nil: of no language that is known
	for _, path := range paths {
		lang := lsp.Of(path)
		of[lang] = append(of[lang], path)
	}
	problems, answered := ask(w, paths, &a, func(lang *lsp.Language) ([]lsp.Problem, error) {
		return w.Servers.Problems(ctx, w.Tree.Dir, lang, w.Files, of[lang])
	})
	for _, p := range problems {
		if p.Severity == "error" || p.Severity == "warning" {
			message := strings.ReplaceAll(p.Message, "\n", "\n    ")
			a.Lines = append(a.Lines,
				fmt.Sprintf("%s:%d:%d: %s: %s (%s)", w.name(p.Path), p.Line, p.Col, p.Severity, message, p.Source))
		}
	}
	byEnding := map[string][]string{}
	for lang, paths := range of {
		if lang != nil && slices.Contains(answered, lang) {
			continue
		}
		for _, path := range paths {
			ending := filepath.Ext(path)
			byEnding[ending] = append(byEnding[ending], path)
		}
	}
	for _, paths := range sortedValues(byEnding) {
		problems, by, err := check.Files(ctx, w.Tree.Dir, paths)
		if ctx.Err() != nil {
			return a, ctx.Err()
		}
		if err != nil {
			a.note("%s not checked: %v", w.some(paths), err)
			continue
		}
		a.note("by %s", by)
		for _, p := range problems {
			a.Lines = append(a.Lines,
				fmt.Sprintf("%s:%d:%d: error: %s", w.name(p.Path), p.Line, max(p.Col, 1), p.Message))
		}
	}
	return a, ctx.Err()
}

// Checkable reports whether something may be said about a file.
func Checkable(path string) bool { return lsp.Of(path) != nil }

// Usages tells where a symbol is used: in the code that a server finds, or
// wherever its name stands as a word. in are files that are about it, as absolute
// paths; none: it is looked for.
func (w Workspace) Usages(ctx context.Context, symbol string, in []string) (a Answer, err error) {
	name := last(symbol)
	langs := in
	if len(in) == 0 {
		langs = w.Files
	}
	places, answered := ask(w, langs, &a, func(lang *lsp.Language) (places []lsp.Place, err error) {
		from, err := w.declarations(ctx, lang, symbol, in)
		for _, place := range from {
			if err != nil {
				break
			}
			var more []lsp.Place
			more, err = w.Servers.Usages(ctx, w.Tree.Dir, lang, w.Files, place, name)
			places = append(places, more...)
		}
		return places, err
	})
	a.Lines = w.quote(places)
	if len(a.Lines) > 0 {
		slices.Sort(a.Lines)
		a.Lines = slices.Compact(a.Lines)
		sortByLine(a.Lines)
		return a, nil
	}
	if len(answered) > 0 {
		a.Notes = nil
		a.note("no language server knows it")
	}
	a.Lines, err = w.words(ctx, `(?-i:\b`+regexp.QuoteMeta(name)+`\b)`)
	a.note("by searching for the word %s", name)
	return a, err
}

// declarations are the places to follow a symbol from: of the files that are about
// it, or where it is declared.
func (w Workspace) declarations(ctx context.Context, lang *lsp.Language, symbol string, in []string) (from []lsp.Place,
	err error) {
	for _, path := range in {
		if lang.Has(path) {
			from = append(from, lsp.Place{Path: path, Line: 1})
		}
	}
	if len(in) > 0 {
		return from, nil
	}
	found, err := w.Servers.Symbols(ctx, w.Tree.Dir, lang, w.Files, last(symbol))
	for _, s := range found {
		if is(s, symbol) && len(from) < maxDeclarations {
			from = append(from, s.Place)
		}
	}
	return from, err
}

// maxDeclarations is how many symbols of one name are followed.
const maxDeclarations = 8

// declares are the words that declarations begin with, in many languages.
const declares = `\b(?:func|type|var|const|let|def|class|function|interface|enum|struct|union|trait|impl|fn|mod|module|namespace|record|object|macro)\b`

// Symbols tells where symbols are declared whose names contain a text.
func (w Workspace) Symbols(ctx context.Context, symbol string) (a Answer, err error) {
	name := last(symbol)
	found, _ := ask(w, w.Files, &a, func(lang *lsp.Language) ([]lsp.Symbol, error) {
		return w.Servers.Symbols(ctx, w.Tree.Dir, lang, w.Files, name)
	})
	var same, similar []string // servers guess further than that
	for _, s := range found {
		line := fmt.Sprintf("%s:%d: %s %s", w.name(s.Path), s.Line, s.Kind, full(s))
		switch {
		case is(s, symbol):
			same = append(same, line)
		case strings.Contains(strings.ToLower(s.Name), strings.ToLower(name)):
			similar = append(similar, line)
		}
	}
	if a.Lines = append(same, similar...); len(a.Lines) > 0 {
		return a, nil
	}
	a.Notes = slices.DeleteFunc(a.Notes, func(n string) bool { return strings.HasPrefix(n, "by ") })
	quoted := regexp.QuoteMeta(name)
	a.Lines, err = w.words(ctx, `(?i:`+declares+`.*\b\w*`+quoted+`\w*\b)`)
	a.note("by searching for declarations")
	if err == nil && len(a.Lines) == 0 {
		a.Lines, err = w.words(ctx, `(?-i:\b`+quoted+`\b)`)
		a.note("by searching for the word %s", name)
	}
	return a, err
}

// is reports whether a symbol is the one that is asked for, by its name or by a
// qualified one.
func is(s lsp.Symbol, asked string) bool {
	return s.Name == asked || full(s) == asked || strings.HasSuffix(full(s), "."+asked)
}

// full is a symbol's name with what it belongs to.
func full(s lsp.Symbol) string {
	if s.Container != "" && !strings.Contains(s.Name, ".") {
		return s.Container + "." + s.Name
	}
	return s.Name
}

// last is the last part of a qualified name.
func last(symbol string) string {
	symbol = strings.TrimSuffix(symbol, "()")
	return symbol[strings.LastIndexAny(symbol, ".:#/")+1:]
}

// words finds lines by a regular expression.
func (w Workspace) words(ctx context.Context, expr string) ([]string, error) {
	found, err := w.Tree.Grep(ctx, search.Query{Text: expr, Regexp: true})
	var lines []string
	for _, m := range found.Matches {
		lines = append(lines, fmt.Sprintf("%s:%d: %s", m.Path, m.Line, strings.TrimSpace(m.Text)))
	}
	return lines, err
}

// quote makes lines of places in the workspace, with the text that is there.
func (w Workspace) quote(places []lsp.Place) (lines []string) {
	texts := map[string][][]byte{}
	for _, p := range places {
		name := w.name(p.Path)
		if filepath.IsAbs(name) {
			continue // a library's
		}
		if texts[name] == nil {
			data, _ := fs.ReadFile(w.Tree.FS, name)
			texts[name] = bytes.Split(data, []byte("\n"))
		}
		var text string
		if all := texts[name]; p.Line <= len(all) {
			text = strings.TrimSpace(strings.ToValidUTF8(string(all[p.Line-1][:min(len(all[p.Line-1]), 300)]), ""))
		}
		lines = append(lines, fmt.Sprintf("%s:%d: %s", name, p.Line, text))
	}
	return lines
}

// name is a path as it is told: relative below the workspace.
func (w Workspace) name(path string) string {
	if rel, err := filepath.Rel(w.Tree.Dir, path); err == nil && filepath.IsLocal(rel) {
		return filepath.ToSlash(rel)
	}
	return path
}

// some names some of many files.
func (w Workspace) some(paths []string) string {
	const most = 3
	var names []string
	for _, p := range paths[:min(len(paths), most)] {
		names = append(names, w.name(p))
	}
	if n := len(paths) - most; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), n)
	}
	return strings.Join(names, ", ")
}
