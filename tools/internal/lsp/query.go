package lsp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"tapgw/internal/jsonrpc"
)

// settled is for how long a server must have said nothing new about files for what
// it said to be all.
const settled = 500 * time.Millisecond

// Problems asks what is wrong in files, given as absolute paths in the language.
// files are all of the workspace, relative to it.
func (p *Pool) Problems(ctx context.Context, root string, lang *Language, files, paths []string) (problems []Problem,
	err error) {
	err = p.ask(ctx, root, lang, files, func(ctx context.Context, s *server) error {
		problems, err = s.problems(ctx, paths)
		return err
	})
	return problems, err
}

func (s *server) problems(ctx context.Context, paths []string) ([]Problem, error) {
	before, _, _ := s.state(paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := s.open(path, string(text)); err != nil {
			return nil, err
		}
		defer s.close(path)
	}
	found, err := s.diagnose(ctx, paths, before)
	var problems []Problem
	for _, path := range paths {
		for _, d := range found[path] {
			problems = append(problems, d.problem(path))
		}
	}
	return problems, err
}

// diagnose asks what is wrong in open files, each by itself, or waits for the
// server to say so by itself: about each of them, as it had not before they were
// opened, and then no more for a while.
func (s *server) diagnose(ctx context.Context, paths []string, before map[string]report) (map[string][]diagnostic,
	error) {
	if s.lang.diagnose != nil {
		found, err := s.each(paths, func(path string) ([]diagnostic, error) { return s.lang.diagnose(ctx, s, path) })
		if _, refused := errors.AsType[*jsonrpc.Error](err); !refused {
			return found, err
		}
	}
	quiet := time.NewTimer(settled)
	defer quiet.Stop()
	for {
		now, pull, news := s.state(paths)
		if pull {
			return s.each(paths, func(path string) ([]diagnostic, error) {
				var full struct{ Items []diagnostic }
				err := s.conn.Call(ctx, "textDocument/diagnostic", object{"textDocument": object{"uri": uriOf(path)}},
					&full)
				return full.Items, err
			})
		}
		done := quiet.C
		found := map[string][]diagnostic{}
		for path, r := range now {
			found[path] = r.items
			if r.count == before[path].count {
				done = nil // it has not spoken of this one yet
			}
		}
		select {
		case <-news:
			quiet.Reset(settled)
		case <-done:
			return found, nil
		case <-s.conn.Done():
			return nil, s.conn.Err()
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for its diagnostics: %w", ctx.Err())
		}
	}
}

// each asks about one file after another.
func (s *server) each(paths []string, ask func(path string) ([]diagnostic, error)) (map[string][]diagnostic, error) {
	found := map[string][]diagnostic{}
	for _, path := range paths {
		items, err := ask(path)
		if err != nil {
			return nil, err
		}
		found[path] = items
	}
	return found, nil
}

// Usages asks where the symbol is used that stands under a name in a file, at a
// line or below it: its declaration and all references to it. files are all of the
// workspace.
func (p *Pool) Usages(ctx context.Context, root string, lang *Language, files []string, from Place,
	name string) (places []Place, err error) {
	err = p.ask(ctx, root, lang, files, func(ctx context.Context, s *server) error {
		path := from.Path
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		at, ok := find(string(text), name, from.Line)
		if !ok {
			return nil
		}
		if err := s.open(path, string(text)); err != nil {
			return err
		}
		defer s.close(path)
		var locations []location
		err = s.conn.Call(ctx, "textDocument/references", object{
			"textDocument": object{"uri": uriOf(path)}, "position": at, "context": object{"includeDeclaration": true},
		}, &locations)
		for _, l := range locations {
			if path := pathOf(l.URI); path != "" {
				places = append(places, Place{path, l.Range.Start.Line + 1, l.Range.Start.Character + 1})
			}
		}
		return err
	})
	return places, err
}

// Symbols asks for the symbols of the workspace whose names match a query.
func (p *Pool) Symbols(ctx context.Context, root string, lang *Language, files []string,
	query string) (symbols []Symbol, err error) {
	err = p.ask(ctx, root, lang, files, func(ctx context.Context, s *server) error {
		s.hold(files)
		var found []struct {
			Name          string   `json:"name"`
			Kind          int      `json:"kind"`
			ContainerName string   `json:"containerName"`
			Location      location `json:"location"`
		}
		err := s.conn.Call(ctx, "workspace/symbol", object{"query": query}, &found)
		for _, f := range found {
			path := pathOf(f.Location.URI)
			if !s.below(path) || strings.Contains(path, "/node_modules/") {
				continue
			}
			at := f.Location.Range.Start
			symbols = append(symbols,
				Symbol{Place{path, at.Line + 1, at.Character + 1}, f.Name, kindOf(f.Kind), f.ContainerName})
		}
		return err
	})
	return symbols, err
}
