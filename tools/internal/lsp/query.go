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

// Questions to a language server: problems, usages and symbols.

// quietTime is how long a server must not have reported anything about the files
// before its reports count as complete.
const quietTime = 500 * time.Millisecond

// Problems asks for the problems of some files, given as absolute paths in the language. root is
// the workspace and files are all of its files, relative to it. It returns an error if the server
// can't be started or asked, if a file can't be read, or when ctx ends.
func (p *Pool) Problems(
	ctx context.Context, root string, lang *Language, files, paths []string,
) (problems []Problem, err error) {
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

// diagnose returns the problems of open files. It asks the server about each file. If the server
// only reports by itself, it waits until the server has reported each file since before, and then
// for a quietTime without a report.
func (s *server) diagnose(
	ctx context.Context, paths []string, before map[string]report,
) (map[string][]diagnostic, error) {
	if s.lang.diagnose != nil {
		found, err := eachPath(paths, func(path string) ([]diagnostic, error) {
			return s.lang.diagnose(ctx, s, path)
		})
		if _, refused := errors.AsType[*jsonrpc.Error](err); !refused {
			return found, err
		}
	}
	quiet := time.NewTimer(quietTime)
	defer quiet.Stop()
	for {
		now, canAsk, news := s.state(paths)
		if canAsk {
			return eachPath(paths, func(path string) ([]diagnostic, error) {
				var full struct{ Items []diagnostic }
				params := object{"textDocument": object{"uri": uriOf(path)}}
				err := s.conn.Call(ctx, "textDocument/diagnostic", params, &full)
				return full.Items, err
			})
		}
		done := quiet.C
		found := map[string][]diagnostic{}
		for path, r := range now {
			found[path] = r.items
			if r.count == before[path].count {
				done = nil // the server has not reported this file yet
			}
		}
		select {
		case <-news:
			quiet.Reset(quietTime)
		case <-done:
			return found, nil
		case <-s.conn.Done():
			return nil, s.conn.Err()
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for its diagnostics: %w", ctx.Err())
		}
	}
}

// eachPath calls ask for one file after another.
func eachPath(
	paths []string, ask func(path string) ([]diagnostic, error),
) (map[string][]diagnostic, error) {
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

// Usages asks for the declaration of a symbol and all references to it. The symbol is
// the first word name in the file of from, at its line or below. No such word means
// no places. root and files are as in [Pool.Problems].
func (p *Pool) Usages(
	ctx context.Context, root string, lang *Language, files []string, from Place, name string,
) (places []Place, err error) {
	err = p.ask(ctx, root, lang, files, func(ctx context.Context, s *server) error {
		path := from.Path
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		at, ok := findWord(string(text), name, from.Line)
		if !ok {
			return nil
		}
		if err := s.open(path, string(text)); err != nil {
			return err
		}
		defer s.close(path)
		var locations []location
		err = s.conn.Call(ctx, "textDocument/references", object{
			"textDocument": object{"uri": uriOf(path)}, "position": at,
			"context": object{"includeDeclaration": true},
		}, &locations)
		for _, l := range locations {
			if path := pathOf(l.URI); path != "" {
				places = append(places,
					Place{path, l.Range.Start.Line + 1, l.Range.Start.Character + 1})
			}
		}
		return err
	})
	return places, err
}

// Symbols asks for the symbols of the workspace whose names match a query, as the server
// understands it. Symbols outside the workspace and in node_modules are left out. root, files and
// errors are as in [Pool.Problems].
func (p *Pool) Symbols(
	ctx context.Context, root string, lang *Language, files []string, query string,
) (symbols []Symbol, err error) {
	err = p.ask(ctx, root, lang, files, func(ctx context.Context, s *server) error {
		s.openAnchor(files)
		var found []struct {
			Name          string   `json:"name"`
			Kind          int      `json:"kind"`
			ContainerName string   `json:"containerName"`
			Location      location `json:"location"`
		}
		err := s.conn.Call(ctx, "workspace/symbol", object{"query": query}, &found)
		for _, f := range found {
			path := pathOf(f.Location.URI)
			if !s.contains(path) || strings.Contains(path, "/node_modules/") {
				continue
			}
			start := f.Location.Range.Start
			at := Place{path, start.Line + 1, start.Character + 1}
			symbols = append(symbols, Symbol{at, f.Name, kindOf(f.Kind), f.ContainerName})
		}
		return err
	})
	return symbols, err
}
