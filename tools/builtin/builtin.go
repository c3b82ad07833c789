// Package builtin has the tools that a model uses in a workspace. Each tool is one Go file that
// calls add, and [All] lists them. A tool reaches files only through internal/workspace.
package builtin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	jsonexp "github.com/go-json-experiment/json"

	"tapgw/tools"
	"tapgw/tools/internal/schema"
	"tapgw/tools/internal/workspace"
)

// access is the environment of a built-in tool's call, and the workspace's files.
type access struct{ *tools.Env }

// constructors build the built-in tools; [add] fills it before main runs.
var constructors []func() *tools.Tool

// builtinTools are the built-in tools, sorted by name. They are built at the first use, because a
// gateway that does not run them should not pay for their schemas.
var builtinTools = sync.OnceValue(func() []*tools.Tool {
	list := make([]*tools.Tool, len(constructors))
	for i, construct := range constructors {
		list[i] = construct()
		if err := list[i].Check(); err != nil {
			panic(err)
		}
	}
	slices.SortFunc(list, func(a, b *tools.Tool) int { return cmp.Compare(a.Name, b.Name) })
	for i, t := range list[1:] {
		if list[i].Name == t.Name {
			panic("two tools have the name " + t.Name)
		}
	}
	return list
})

// option is an option of [add].
type option int

// allowsExtra makes the schema of a tool allow arguments that it does not name.
const allowsExtra option = 1

// add makes a built-in tool of a definition and a typed function. Each tool has a
// file of its own that calls it once:
//
//	var _ = add(&tools.Tool{Name: ..., Description: ..., Kind: ...}, listDir)
//
// Parameters is inferred from In; see [schema.For] for the struct tags. run gets
// the arguments checked and decoded.
func add[In any](
	t *tools.Tool, run func(context.Context, *access, In) (tools.Result, error), options ...option,
) *tools.Tool {
	t.Run = func(ctx context.Context, env *tools.Env, args json.RawMessage) (tools.Result, error) {
		var in In
		if err := jsonexp.Unmarshal(args, &in); err != nil {
			return tools.Result{}, fmt.Errorf("reading the arguments of %s: %w", t.Name, err)
		}
		return run(ctx, &access{env}, in)
	}
	constructors = append(constructors, func() *tools.Tool {
		t.Parameters = schema.For[In](slices.Contains(options, allowsExtra))
		return t
	})
	return t
}

// All returns the built-in tools, sorted by name. The caller leaves them unchanged.
func All() []*tools.Tool { return slices.Clone(builtinTools()) }

// files returns the access to the workspace's files, and to other files if the policy allows it.
func (e *access) files() workspace.Files {
	return workspace.Files{
		Root: e.Root, Outside: e.Outside, Protected: e.Protected, Sources: e.Sources,
		Secrets: e.Secrets,
	}
}

// ReadFile reads a file that a person names: a path in the workspace, or one outside that Outside
// allows. No other file is reached through symbolic links. The error wraps fs.ErrNotExist if the
// file does not exist.
func ReadFile(ctx context.Context, env *tools.Env, path string) ([]byte, error) {
	at, err := (&access{env}).files().At(ctx, path, false)
	if err != nil {
		return nil, err
	}
	defer at.Close()
	return at.Read()
}

// WorkspaceFiles lists the workspace's files, with / between directories and seen from its root,
// without the files that .gitignore names.
func WorkspaceFiles(ctx context.Context, env *tools.Env) ([]string, error) {
	tree, done, err := (&access{env}).searchTree(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return tree.Files(ctx, nil)
}

// maxFiles is how many files a call may ask about.
const maxFiles = 50

// eachFile answers a question about several files, with one part for each. The
// error about one file becomes its part; if all fail, the result is an error.
func eachFile(paths []string, answer func(path string) (string, error)) (tools.Result, error) {
	if n := len(paths); n == 0 || n > maxFiles {
		return tools.Result{}, fmt.Errorf("filePaths names %d files: name 1 to %d", n, maxFiles)
	}
	var res tools.Result
	failed := 0
	for _, path := range paths {
		part, err := answer(path)
		if err != nil {
			part = err.Error()
			failed++
		}
		res.Parts = append(res.Parts, part)
	}
	if failed == len(paths) {
		return tools.Result{}, errors.New(strings.Join(res.Parts, "; "))
	}
	return res, nil
}

// textResult is a result that holds texts only.
func textResult(parts ...string) tools.Result { return tools.Result{Parts: parts} }
