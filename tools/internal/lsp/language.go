// Package lsp asks language servers that are on PATH about a workspace: what is
// wrong in files, where a symbol is used, which symbols there are. One server runs
// for a language and a workspace, from the first question until nobody has asked
// for a while. One that dies, hangs or is slow costs a bounded time, and then for
// a while nothing.
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

// Language is a language that there is a server for.
type Language struct {
	Name     string
	Server   string // program
	args     []string
	suffixes map[string]string // of files: their language id
	projects []string          // files that matter to the server besides
	options  func(server string) map[string]any
	// ready says why a server that was found can't be used; nil: it always can.
	ready func(server string) error
	// environ is the environment of the server; nil: [program.Environ].
	environ func(ctx context.Context, workspace string) ([]string, error)
	// diagnose asks what is wrong in an open file in a way of the server's own.
	diagnose func(ctx context.Context, s *server, path string) ([]diagnostic, error)
}

// Languages are those that are known.
var Languages = []*Language{
	{
		Name: "Go", Server: "gopls",
		suffixes: map[string]string{".go": "go"},
		projects: []string{"go.mod", "go.sum", "go.work"},
		options: func(string) map[string]any {
			return map[string]any{
				"pullDiagnostics": true, "symbolScope": "workspace", "symbolStyle": "Dynamic",
				"buildFlags": []string{"-buildvcs=false"}, // else go asks git, which runs what the repository names
			}
		},
		environ: func(ctx context.Context, workspace string) ([]string, error) {
			_, env, err := program.Go(ctx, workspace)
			if errors.Is(err, exec.ErrNotFound) { // gopls says so itself, of what needs it
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
			".ts": "typescript", ".mts": "typescript", ".cts": "typescript", ".tsx": "typescriptreact",
			".js": "javascript", ".mjs": "javascript", ".cjs": "javascript", ".jsx": "javascriptreact",
		},
		projects: []string{"package.json", "tsconfig.json", "jsconfig.json"},
		options:  bundledTypeScript,
		ready: func(server string) error {
			if compiler(server) == "" {
				return errors.New("no compiler is installed beside it, and that of the workspace is not run: npm " +
					"install -g typescript")
			}
			return nil
		},
		diagnose: askTypeScript,
	},
}

// Of returns the language of a file, nil if it is none that is known.
func Of(path string) *Language {
	for _, l := range Languages {
		if l.Has(path) {
			return l
		}
	}
	return nil
}

// Has reports whether a file is in the language.
func (l *Language) Has(path string) bool { return l.suffixes[filepath.Ext(path)] != "" }

// matters reports whether the server wants to know that a file has changed.
func (l *Language) matters(path string) bool {
	return l.Has(path) || slices.Contains(l.projects, filepath.Base(path))
}

// Installed reports whether the server is on PATH, outside of a workspace.
func (l *Language) Installed(workspace string) bool {
	_, err := program.Find(l.Server, workspace)
	return err == nil
}

// bundledTypeScript names the compiler that was installed beside the server: one
// that a workspace brings is code that nobody has agreed to run. Nor are types
// fetched for what it imports.
func bundledTypeScript(server string) map[string]any {
	return map[string]any{
		"tsserver":                          map[string]any{"path": compiler(server)},
		"disableAutomaticTypingAcquisition": true,
	}
}

// compiler finds the compiler that was installed beside a server, "" for none.
func compiler(server string) string {
	real, err := filepath.EvalSymlinks(server)
	if err != nil {
		return ""
	}
	for dir := filepath.Dir(real); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
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

// askTypeScript asks the compiler behind the server, which answers when it knows;
// the server itself tells of the file in parts and doesn't say which is the last.
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
			"command": "typescript.tsserverRequest", "arguments": []any{command, object{"file": path}},
		}, &answer)
		if err != nil {
			return nil, err
		}
		for _, d := range answer.Body {
			severity := map[string]int{"warning": 2, "message": 3, "suggestion": 4}[d.Category]
			all = append(all, diagnostic{
				Range: span{position{d.Start.Line - 1, d.Start.Offset - 1},
					position{d.End.Line - 1, d.End.Offset - 1}},
				Severity: cmp.Or(severity, 1), Code: json.RawMessage(strconv.Itoa(d.Code)), Source: "typescript",
				Message: d.Text,
			})
		}
	}
	return all, nil
}
