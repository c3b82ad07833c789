package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"tapgw/internal/protect"
	"tapgw/tools/internal/search"
)

type fileSearchIn struct {
	Query      string `json:"query" jsonschema:"A glob pattern of the path, such as **/*.{js,ts} or src/**; without a slash it is looked for in every directory. A text without * ? [ { finds the paths that it is a part of."`
	MaxResults int    `json:"maxResults,omitzero" jsonschema:"How many paths to show at most. Default: 200."`
}

var _ = add(&Tool{
	Name: "file_search",
	Description: "Find files in the workspace by name or path. Files that .gitignore leaves out are not found, " +
		"hidden ones are. A query that is no pattern finds capitals too if it has none. The paths are relative to " +
		"the workspace.",
	Kind: Read,
}, fileSearch)

// Results of a search that are shown: without a wish, and at most.
const (
	someResults = 200
	maxResults  = 2000
)

func fileSearch(ctx context.Context, env *Env, in fileSearchIn) (Result, error) {
	if in.MaxResults < 0 {
		return Result{}, fmt.Errorf("maxResults is %d: it must be at least 1", in.MaxResults)
	}
	query, err := env.pattern(in.Query)
	if err != nil {
		return Result{}, err
	}
	var include *search.Glob
	if search.IsGlob(query) || strings.HasSuffix(query, "/") || query == "." {
		if include, err = search.ParseGlob(query); err != nil {
			return Result{}, err
		}
	}
	tree, done, err := env.tree(ctx)
	if err != nil {
		return Result{}, err
	}
	defer done()
	type hit struct {
		rank int
		path string
	}
	var hits []hit
	files, err := tree.Files(ctx, include)
	if err != nil {
		return Result{}, err
	}
	for _, path := range files {
		rank := 0
		if include == nil {
			rank = search.Named(path, strings.Trim(query, "/"))
		}
		if rank >= 0 {
			hits = append(hits, hit{rank, path})
		}
	}
	if len(hits) == 0 {
		return text(fmt.Sprintf("No file fits %q. Ignored files are not searched; list_dir shows them.", in.Query)), nil
	}
	slices.SortFunc(hits, func(a, b hit) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), strings.Compare(a.path, b.path))
	})
	show := min(cmp.Or(in.MaxResults, someResults), maxResults)
	var b strings.Builder
	for _, h := range hits[:min(show, len(hits))] {
		b.WriteString(h.path + "\n")
	}
	if len(hits) > show {
		fmt.Fprintf(&b, "[%d of %d files: narrow the query, or ask for more with maxResults (up to %d)]\n", show,
			len(hits), maxResults)
	}
	return text(strings.TrimSuffix(b.String(), "\n")), nil
}

// tree is the workspace as searches see it; done lets go of it.
func (e *Env) tree(ctx context.Context) (t search.Tree, done func(), err error) {
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
		real, err := protect.Resolve(filepath.Clean(dir))
		if err != nil {
			continue // nothing can be read there
		}
		if rel, err := filepath.Rel(t.Dir, real); err == nil && filepath.IsLocal(rel) {
			t.Skip = append(t.Skip, filepath.ToSlash(rel))
		}
	}
	return t, at.Close, nil
}

// pattern makes a pattern of paths relative to the workspace.
func (e *Env) pattern(p string) (string, error) {
	switch {
	case p == "":
		return "", errors.New("the pattern is empty: ** finds every file")
	case strings.ContainsRune(p, 0):
		return "", fmt.Errorf("%q is no pattern: it has a NUL in it", p)
	case filepath.IsAbs(p) && !strings.HasPrefix(p, "/**"):
		if rel, ok := strings.CutPrefix(p, filepath.Clean(e.Root)); ok && (rel == "" || rel[0] == '/') {
			return cmp.Or(rel, "."), nil
		}
		return "", fmt.Errorf("%s is outside the workspace %s: only files in it are searched", p, e.Root)
	case p == ".." || strings.HasPrefix(p, "../") || strings.Contains(p, "/../"):
		return "", fmt.Errorf("%s leads out of the workspace: only files in it are searched", p)
	}
	return p, nil
}
