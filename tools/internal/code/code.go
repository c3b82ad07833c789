// Package code answers questions about the source code of a workspace. It asks the installed
// language servers. Where there is no server, or it fails, it runs compilers and searches for
// words. Each answer names its sources.
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

// Workspace is the directory of the questions, with its files and servers. Servers must not be nil.
// Its methods may be called from several goroutines.
type Workspace struct {
	Tree    search.Tree
	Files   []string // all files of the tree, with slashes
	Servers *lsp.Pool
	// Languages have servers; see [lsp.With].
	Languages []*lsp.Language
}

// Answer is an answer for the model. Lines begin with PATH:LINE, with the path relative to the
// workspace if it lies there. Lines is empty if there is no match. Notes name the servers and
// programs that were asked.
type Answer struct {
	Lines []string
	Notes []string // sources of the lines, such as "by gopls", and servers that failed
}

// note adds a note unless the answer has it already.
func (a *Answer) note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(a.Notes, n) {
		a.Notes = append(a.Notes, n)
	}
}

// ask calls question for each language that has a file among paths and an installed
// server, all at once. It returns the answers together and the languages that
// answered, and notes the errors of the others in a.
func ask[T any](
	w Workspace, paths []string, a *Answer, question func(lang *lsp.Language) ([]T, error),
) (all []T, answered []*lsp.Language) {
	type reply struct {
		lang  *lsp.Language
		items []T
		err   error
	}
	var replies []*reply
	for _, lang := range w.Languages {
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

// Problems lists the errors and warnings in files, given as absolute paths. It notes a server or
// compiler that fails, and returns only ctx's error.
func (w Workspace) Problems(ctx context.Context, paths []string) (a Answer, err error) {
	byLang := map[*lsp.Language][]string{} // nil: files of other languages
	for _, path := range paths {
		lang := lsp.Of(w.Languages, path)
		byLang[lang] = append(byLang[lang], path)
	}
	problems, answered := ask(w, paths, &a, func(lang *lsp.Language) ([]lsp.Problem, error) {
		return w.Servers.Problems(ctx, w.Tree.Dir, lang, w.Files, byLang[lang])
	})
	for _, p := range problems {
		if p.Severity == "error" || p.Severity == "warning" {
			message := strings.ReplaceAll(p.Message, "\n", "\n    ")
			a.Lines = append(a.Lines,
				fmt.Sprintf("%s:%d:%d: %s: %s (%s)", w.name(p.Path), p.Line, p.Col, p.Severity,
					message, p.Source))
		}
	}
	byEnding := map[string][]string{}
	for lang, paths := range byLang {
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
			a.note("%s not checked: %v", w.someNames(paths), err)
			continue
		}
		a.note("by %s", by)
		for _, p := range problems {
			a.Lines = append(a.Lines,
				fmt.Sprintf("%s:%d:%d: error: %s", w.name(p.Path), p.Line, max(p.Col, 1),
					p.Message))
		}
	}
	return a, ctx.Err()
}

// Checkable reports whether [Workspace.Problems] can ask a language server about a file of this
// name. The server need not be installed.
func (w Workspace) Checkable(path string) bool { return lsp.Of(w.Languages, path) != nil }

// Usages lists the lines that use a symbol: the lines that a language server finds, or else all
// lines with its name as a word. in are files that declare or use the symbol, as absolute paths;
// without them it is searched in the workspace.
func (w Workspace) Usages(ctx context.Context, symbol string, in []string) (a Answer, err error) {
	name := lastPart(symbol)
	paths := in
	if len(in) == 0 {
		paths = w.Files
	}
	places, answered := ask(w, paths, &a, func(lang *lsp.Language) (places []lsp.Place, err error) {
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
	a.Lines, err = w.grep(ctx, `(?-i:\b`+regexp.QuoteMeta(name)+`\b)`)
	a.note("by searching for the word %s", name)
	return a, err
}

// declarations are the places to ask for usages: the files of in, or else the
// declarations of the symbol.
func (w Workspace) declarations(
	ctx context.Context, lang *lsp.Language, symbol string, in []string,
) (from []lsp.Place, err error) {
	for _, path := range in {
		if lang.Has(path) {
			from = append(from, lsp.Place{Path: path, Line: 1})
		}
	}
	if len(in) > 0 {
		return from, nil
	}
	found, err := w.Servers.Symbols(ctx, w.Tree.Dir, lang, w.Files, lastPart(symbol))
	for _, s := range found {
		if isNamed(s, symbol) && len(from) < maxDeclarations {
			from = append(from, s.Place)
		}
	}
	return from, err
}

// maxDeclarations is how many symbols of one name are asked about.
const maxDeclarations = 8

// declares matches the words that begin declarations in many languages.
const declares = `\b(?:func|type|var|const|let|def|class|function|interface|enum|struct|union|trait|impl|fn|mod` +
	`|module|namespace|record|object|macro)\b`

// Symbols lists the declarations of symbols whose names contain a text: the symbols that language
// servers know, or else lines that look like declarations, or have the text as a word. It notes a
// server that fails, and returns an error only if the search fails.
func (w Workspace) Symbols(ctx context.Context, symbol string) (a Answer, err error) {
	name := lastPart(symbol)
	found, _ := ask(w, w.Files, &a, func(lang *lsp.Language) ([]lsp.Symbol, error) {
		return w.Servers.Symbols(ctx, w.Tree.Dir, lang, w.Files, name)
	})
	var same, similar []string // servers also return names that only resemble the query
	for _, s := range found {
		line := fmt.Sprintf("%s:%d: %s %s", w.name(s.Path), s.Line, s.Kind, fullName(s))
		switch {
		case isNamed(s, symbol):
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
	a.Lines, err = w.grep(ctx, `(?i:`+declares+`.*\b\w*`+quoted+`\w*\b)`)
	a.note("by searching for declarations")
	if err == nil && len(a.Lines) == 0 {
		a.Lines, err = w.grep(ctx, `(?-i:\b`+quoted+`\b)`)
		a.note("by searching for the word %s", name)
	}
	return a, err
}

// isNamed reports whether a symbol has a name, plain or qualified.
func isNamed(s lsp.Symbol, name string) bool {
	return s.Name == name || fullName(s) == name || strings.HasSuffix(fullName(s), "."+name)
}

// fullName is a symbol's name qualified with its container.
func fullName(s lsp.Symbol) string {
	if s.Container != "" && !strings.Contains(s.Name, ".") {
		return s.Container + "." + s.Name
	}
	return s.Name
}

// lastPart is the last part of a qualified name.
func lastPart(symbol string) string {
	symbol = strings.TrimSuffix(symbol, "()")
	return symbol[strings.LastIndexAny(symbol, ".:#/")+1:]
}

// grep finds lines by a regular expression.
func (w Workspace) grep(ctx context.Context, expr string) ([]string, error) {
	found, err := w.Tree.Grep(ctx, search.Query{Text: expr, Regexp: true})
	var lines []string
	for _, m := range found.Matches {
		lines = append(lines, fmt.Sprintf("%s:%d: %s", m.Path, m.Line, strings.TrimSpace(m.Text)))
	}
	return lines, err
}

// quote lists places in the workspace with the text of their lines.
func (w Workspace) quote(places []lsp.Place) (lines []string) {
	texts := map[string][][]byte{}
	for _, p := range places {
		name := w.name(p.Path)
		if filepath.IsAbs(name) {
			continue // in a library outside of the workspace
		}
		if texts[name] == nil {
			data, _ := fs.ReadFile(w.Tree.FS, name)
			texts[name] = bytes.Split(data, []byte("\n"))
		}
		var text string
		if all := texts[name]; p.Line <= len(all) {
			text = strings.TrimSpace(
				strings.ToValidUTF8(string(all[p.Line-1][:min(len(all[p.Line-1]), 300)]), ""))
		}
		lines = append(lines, fmt.Sprintf("%s:%d: %s", name, p.Line, text))
	}
	return lines
}

// name returns a path for the model, relative if it lies in the workspace.
func (w Workspace) name(path string) string {
	if rel, err := filepath.Rel(w.Tree.Dir, path); err == nil && filepath.IsLocal(rel) {
		return filepath.ToSlash(rel)
	}
	return path
}

// someNames lists the first names of many files and counts the others.
func (w Workspace) someNames(paths []string) string {
	const maxNames = 3
	var names []string
	for _, p := range paths[:min(len(paths), maxNames)] {
		names = append(names, w.name(p))
	}
	if n := len(paths) - maxNames; n > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names, ", "), n)
	}
	return strings.Join(names, ", ")
}
