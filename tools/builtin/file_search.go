package builtin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"tapgw/internal/protect"
	"tapgw/tools"
	"tapgw/tools/internal/search"
)

type fileSearchIn struct {
	Query      string `json:"query" jsonschema:"A glob pattern of the path, such as **/*.{js,ts} or src/**; without a slash it is looked for in every directory. A text without * ? [ { finds the paths that it is a part of."`
	MaxResults int    `json:"maxResults,omitzero" jsonschema:"How many paths to show at most. Default: 200."`
}

var _ = add(&tools.Tool{
	Name: "file_search",
	Description: "Find files in the workspace by name or path. Files that .gitignore leaves out " +
		"are not found, " +
		"hidden ones are. A query that is no pattern finds capitals too if it has none. The " +
		"paths are relative to " +
		"the workspace.",
	Kind: tools.Read,
}, fileSearch)

// How many results a search shows.
const (
	defaultResults = 200
	maxResults     = 2000
)

func fileSearch(ctx context.Context, env *access, in fileSearchIn) (tools.Result, error) {
	if in.MaxResults < 0 {
		return tools.Result{}, fmt.Errorf("maxResults is %d: it must be at least 1", in.MaxResults)
	}
	query, err := env.relativePattern(in.Query)
	if err != nil {
		return tools.Result{}, err
	}
	var include *search.Glob
	if search.IsGlob(query) || strings.HasSuffix(query, "/") || query == "." {
		if include, err = search.ParseGlob(query); err != nil {
			return tools.Result{}, err
		}
	}
	tree, done, err := env.searchTree(ctx)
	if err != nil {
		return tools.Result{}, err
	}
	defer done()
	type match struct {
		rank int
		path string
	}
	var matches []match
	files, err := tree.Files(ctx, include)
	if err != nil {
		return tools.Result{}, err
	}
	for _, path := range files {
		rank := 0
		if include == nil {
			rank = search.NameRank(path, strings.Trim(query, "/"))
		}
		if rank >= 0 {
			matches = append(matches, match{rank, path})
		}
	}
	if len(matches) == 0 {
		const answer = "No file fits %q. Ignored files are not searched; list_dir shows them."
		return textResult(fmt.Sprintf(answer, in.Query)), nil
	}
	slices.SortFunc(matches, func(a, b match) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), strings.Compare(a.path, b.path))
	})
	show := min(cmp.Or(in.MaxResults, defaultResults), maxResults)
	var b strings.Builder
	for _, m := range matches[:min(show, len(matches))] {
		b.WriteString(m.path + "\n")
	}
	if len(matches) > show {
		fmt.Fprintf(&b,
			"[%d of %d files: narrow the query, or ask for more with maxResults (up to %d)]\n",
			show, len(matches), maxResults)
	}
	return textResult(strings.TrimSuffix(b.String(), "\n")), nil
}

// searchTree opens the workspace for searches, without the directories of secrets.
// The caller calls done when it has finished with the tree.
func (e *access) searchTree(ctx context.Context) (t search.Tree, done func(), err error) {
	at, err := e.files().At(ctx, ".", false)
	if err != nil {
		return t, nil, err
	}
	fsys, err := at.FS()
	if err != nil {
		at.Close()
		return t, nil, err
	}
	t = search.Open(at.Real(), fsys)
	for _, dir := range e.Secrets {
		resolved, err := protect.Resolve(filepath.Clean(dir))
		if err != nil {
			continue // the directory can't be read anyway
		}
		if rel, err := filepath.Rel(t.Dir, resolved); err == nil && filepath.IsLocal(rel) {
			t.Skip = append(t.Skip, filepath.ToSlash(rel))
		}
	}
	return t, at.Close, nil
}

// relativePattern turns a glob pattern into one of paths relative to the workspace.
// It refuses patterns that lead out of it.
func (e *access) relativePattern(p string) (string, error) {
	switch {
	case p == "":
		return "", errors.New("the pattern is empty: ** finds every file")
	case strings.ContainsRune(p, 0):
		return "", fmt.Errorf("%q is no pattern: it has a NUL in it", p)
	case filepath.IsAbs(p) && !strings.HasPrefix(p, "/**"):
		if rel, ok := strings.CutPrefix(p, filepath.Clean(e.Root)); ok &&
			(rel == "" || rel[0] == '/') {
			return cmp.Or(rel, "."), nil
		}
		return "", fmt.Errorf("%s is outside the workspace %s: only files in it are searched", p,
			e.Root)
	case p == ".." || strings.HasPrefix(p, "../") || strings.Contains(p, "/../"):
		return "", fmt.Errorf("%s leads out of the workspace: only files in it are searched", p)
	}
	return p, nil
}
