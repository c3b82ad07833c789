package builtin

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"tapgw/tools"
	"tapgw/tools/internal/search"
)

type grepSearchIn struct {
	Query          string `json:"query" jsonschema:"The text to find, or a regular expression with isRegexp. It is looked for line by line."`
	IsRegexp       bool   `json:"isRegexp,omitzero" jsonschema:"Whether query is a regular expression. Default: false."`
	IncludePattern string `json:"includePattern,omitzero" jsonschema:"A glob pattern of the files to search, such as *.{ts,tsx} or src/**/*.go; without a slash it is looked for in every directory."`
	MaxResults     int    `json:"maxResults,omitzero" jsonschema:"How many lines to show at most. Default: 200."`
}

var _ = add(&tools.Tool{
	Name: "grep_search",
	Description: "Find a text or a regular expression in the workspace's files. Files that " +
		".gitignore leaves out, " +
		"binary files and files over 16 MB are not searched, hidden ones are. A query in small " +
		"letters finds " +
		"capitals too. Each line of the answer is PATH:LINE: TEXT.",
	Kind: tools.Read,
}, grepSearch)

func grepSearch(ctx context.Context, env *access, in grepSearchIn) (tools.Result, error) {
	if in.MaxResults < 0 {
		return tools.Result{}, fmt.Errorf("maxResults is %d: it must be at least 1", in.MaxResults)
	}
	query := search.Query{Text: in.Query, Regexp: in.IsRegexp}
	if in.IncludePattern != "" {
		pattern, err := env.relativePattern(in.IncludePattern)
		if err != nil {
			return tools.Result{}, err
		}
		if query.Include, err = search.ParseGlob(pattern); err != nil {
			return tools.Result{}, err
		}
	}
	tree, done, err := env.searchTree(ctx)
	if err != nil {
		return tools.Result{}, err
	}
	defer done()
	found, err := tree.Grep(ctx, query)
	if err != nil {
		return tools.Result{}, fmt.Errorf("searching for %.200q: %w", in.Query, err)
	}
	if len(found.Matches) == 0 {
		where := ""
		if in.IncludePattern != "" {
			where = fmt.Sprintf(" in files that fit %q", in.IncludePattern)
		}
		return textResult(fmt.Sprintf("No line with %q%s.", in.Query, where)), nil
	}
	return textResult(foundText(found, min(cmp.Or(in.MaxResults, defaultResults), maxResults))), nil
}

// foundText lists the first matching lines and counts the others.
func foundText(found search.Found, show int) string {
	var b strings.Builder
	files, last := 0, ""
	for i, m := range found.Matches {
		if m.Path != last {
			files, last = files+1, m.Path
		}
		if i < show {
			fmt.Fprintf(&b, "%s:%d: %s\n", m.Path, m.Line, m.Text)
		}
	}
	if n := len(found.Matches); n > show {
		more := ""
		if found.More {
			more = "more than "
		}
		fmt.Fprintf(&b,
			"[%d of %s%d lines, in %d files: narrow the query or includePattern, or ask for more "+
				"with maxResults "+
				"(up to %d)]\n", show, more, n, files, maxResults)
	}
	return strings.TrimSuffix(b.String(), "\n")
}
