// Package lsp asks language servers on PATH about a workspace: problems in files, uses
// of a symbol, and which symbols there are. One server runs for each language and
// workspace, from the first question until it is unused for five minutes. A server
// that ends or hangs costs one question a bounded time; then it is not asked for a
// while.
package lsp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"tapgw/tools/internal/program"
)

// Language is a programming language and its server, a program that the user has installed. The
// functions that are nil have defaults. [Languages] has the values in use.
type Language struct {
	Name     string
	Server   string // name of the program
	args     []string
	suffixes map[string]string // language id by the ending of files
	projects []string          // names of further files that the server reads
	options  func(server string) map[string]any
	// check returns why an installed server can't be used. nil: it can.
	check func(server string) error
	// environ returns the environment of the server. nil: [program.Environ].
	environ func(ctx context.Context, workspace string) ([]string, error)
	// diagnose asks for the problems of an open file in a way of the server's own. nil:
	// the protocol's way.
	diagnose func(ctx context.Context, s *server, path string) ([]diagnostic, error)
}

// Languages are the languages whose servers the tools know. A file belongs to at most one of them,
// by its ending.
var Languages = []*Language{
	{
		Name: "Go", Server: "gopls",
		suffixes: map[string]string{".go": "go"},
		projects: []string{"go.mod", "go.sum", "go.work"},
		options: func(string) map[string]any {
			return map[string]any{
				"pullDiagnostics": true, "symbolScope": "workspace", "symbolStyle": "Dynamic",
				// go would run git, and git the repository's programs
				"buildFlags": []string{"-buildvcs=false"},
			}
		},
		environ: func(ctx context.Context, workspace string) ([]string, error) {
			_, env, err := program.Go(ctx, workspace)
			if errors.Is(err, exec.ErrNotFound) { // gopls reports it when a question needs go
				return program.Environ(workspace), nil
			}
			return env, err
		},
	},
	{
		Name: "Python", Server: "pyright-langserver", args: []string{"--stdio"},
		suffixes: map[string]string{".py": "python", ".pyi": "python"},
		projects: []string{"pyproject.toml", "pyrightconfig.json"},
	},
	{
		Name: "TypeScript", Server: "typescript-language-server", args: []string{"--stdio"},
		suffixes: map[string]string{
			".ts": "typescript", ".mts": "typescript", ".cts": "typescript",
			".tsx": "typescriptreact",
			".js":  "javascript", ".mjs": "javascript", ".cjs": "javascript",
			".jsx": "javascriptreact",
		},
		projects: []string{"package.json", "tsconfig.json", "jsconfig.json"},
		options:  bundledTypeScript,
		check: func(server string) error {
			if findCompiler(server) == "" {
				return errors.New(
					"no compiler is installed beside it, and that of the workspace is not run: " +
						"npm install -g typescript")
			}
			return nil
		},
		diagnose: askTypeScript,
	},
}

// Has reports whether a file is in the language, by the ending of its name; case counts.
func (l *Language) Has(path string) bool { return l.suffixes[filepath.Ext(path)] != "" }

// reads reports whether the server must know that a file has changed.
func (l *Language) reads(path string) bool {
	return l.Has(path) || slices.Contains(l.projects, filepath.Base(path))
}

// Installed reports whether the server is on PATH and outside of the workspace: a program of the
// workspace is never run, because the user did not choose it. It does not start the server.
func (l *Language) Installed(workspace string) bool {
	_, err := l.find(workspace)
	return err == nil
}

// bundledTypeScript makes the server use the compiler that is installed beside it,
// because the user has not agreed to run one of the workspace. It also keeps the server from
// downloading types.
func bundledTypeScript(server string) map[string]any {
	return map[string]any{
		"tsserver":                          map[string]any{"path": findCompiler(server)},
		"disableAutomaticTypingAcquisition": true,
	}
}

// findCompiler finds the TypeScript compiler that is installed beside a server, or returns "".
func findCompiler(server string) string {
	resolved, err := filepath.EvalSymlinks(server)
	if err != nil {
		return ""
	}
	for dir := filepath.Dir(resolved); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if !strings.HasSuffix(dir, "node_modules") {
			continue
		}
		lib := filepath.Join(dir, "typescript", "lib", "tsserver.js")
		if _, err := os.Stat(lib); err == nil {
			return lib
		}
	}
	return ""
}

// askTypeScript asks the compiler behind the server, which answers when it is done.
// The server itself reports the problems of a file in parts, without a last one.
func askTypeScript(ctx context.Context, s *server, path string) ([]diagnostic, error) {
	type place struct{ Line, Offset int }
	var all []diagnostic
	for _, command := range []string{"syntacticDiagnosticsSync", "semanticDiagnosticsSync"} {
		var answer struct {
			Body []struct {
				Start, End place
				Text       string
				Category   string
				Code       int
			}
		}
		err := s.conn.Call(ctx, "workspace/executeCommand", object{
			"command":   "typescript.tsserverRequest",
			"arguments": []any{command, object{"file": path}},
		}, &answer)
		if err != nil {
			return nil, err
		}
		for _, d := range answer.Body {
			severity := map[string]int{"warning": 2, "message": 3, "suggestion": 4}[d.Category]
			all = append(all, diagnostic{
				Range: span{
					position{d.Start.Line - 1, d.Start.Offset - 1},
					position{d.End.Line - 1, d.End.Offset - 1},
				},
				Severity: cmp.Or(severity, 1), Code: json.RawMessage(strconv.Itoa(d.Code)),
				Source:  "typescript",
				Message: d.Text,
			})
		}
	}
	return all, nil
}
