package builtin

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"tapgw/internal/visible"
	"tapgw/tools"
	"tapgw/tools/internal/code"
	"tapgw/tools/internal/gitstate"
)

type getErrorsIn struct {
	FilePaths []string `json:"filePaths,omitzero" jsonschema:"The files to check. Default: those that git says have changed, or else all."`
}

var _ = add(&tools.Tool{
	Name: "get_errors",
	Description: "Tell compile errors and warnings in source files, as an editor would show " +
		"them. Use it after " +
		"editing. " +
		"Language servers are asked where they are installed, compilers otherwise; the " +
		"answer says which.",
	Kind: tools.Read,
}, getErrors)

// maxChecked is how many files are checked when the call does not name files.
const maxChecked = 100

func getErrors(ctx context.Context, env *access, in getErrorsIn) (tools.Result, error) {
	w, done, err := env.codeWorkspace(ctx)
	if err != nil {
		return tools.Result{}, err
	}
	defer done()
	var more string
	paths, err := env.realPaths(ctx, in.FilePaths)
	if err != nil {
		return tools.Result{}, err
	}
	if len(in.FilePaths) == 0 {
		names := changedSources(ctx, w)
		if n := len(names) - maxChecked; n > 0 {
			names = names[:maxChecked]
			more = fmt.Sprintf(", %d more were not: name those that matter", n)
		}
		for _, name := range names {
			paths = append(paths, filepath.Join(w.Tree.Dir, name))
		}
	}
	if len(paths) == 0 {
		return textResult("There are no source files to check."), nil
	}
	a, err := w.Problems(ctx, paths)
	if err != nil {
		return tools.Result{}, err
	}
	files := visible.Count(len(paths), "file")
	if len(a.Lines) == 0 {
		return answerResult("No errors in "+files+more, a), nil
	}
	return answerResult(visible.Count(len(a.Lines), "problem")+" in "+files+more, a), nil
}

// changedSources lists the source files that git reports as changed. It lists all source files if
// git reports no changes or the workspace is no repository.
func changedSources(ctx context.Context, w code.Workspace) (names []string) {
	all := slices.DeleteFunc(slices.Clone(w.Files), func(name string) bool {
		return !w.Checkable(name)
	})
	dir, err := gitstate.Open(ctx, w.Tree.Dir, w.Tree.Dir)
	if err != nil {
		return all
	}
	defer dir.Close()
	state, err := dir.State(ctx)
	if err != nil {
		return all
	}
	for _, entry := range slices.Concat(state.Staged, state.Unstaged, state.Untracked,
		state.Conflicts) {
		plain, _, _ := strings.Cut(entry, " (") // without git's note about it
		_, renamed, _ := strings.Cut(entry, " -> ")
		for _, name := range []string{entry, plain, renamed} {
			if slices.Contains(all, name) && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return all
	}
	return names
}
