package search

import (
	"fmt"
	"path"
	"strings"
	"unicode"

	"github.com/bmatcuk/doublestar/v4"

	"tapgw/internal/lazyregexp"
)

// Glob is a pattern of paths: **, *, ?, [class] and {one,other}. A pattern without a
// slash matches at every depth. A pattern that ends in a plain name also matches
// everything in directories of that name. [ParseGlob] makes one.
type Glob struct {
	pattern   string
	baseOnly  bool // the pattern has no slash: it is compared with the last element
	takesDirs bool // the pattern ends in a plain name
}

// ParseGlob reads a pattern; a leading "./" or "/" makes no difference, and an empty one matches
// all. The error tells the model which signs a pattern has.
func ParseGlob(pattern string) (*Glob, error) {
	p := strings.TrimPrefix(pattern, "./")
	p, slash := strings.CutSuffix(p, "/")
	g := &Glob{pattern: strings.TrimPrefix(p, "/"), baseOnly: !strings.Contains(p, "/")}
	if g.pattern == "" || g.pattern == "." {
		return &Glob{pattern: "*", baseOnly: true}, nil
	}
	if !doublestar.ValidatePattern(g.pattern) {
		return nil, fmt.Errorf("%q is no glob pattern: use **, *, ?, [abc] and {one,other}",
			pattern)
	}
	g.takesDirs = slash || !IsGlob(path.Base(g.pattern))
	return g, nil
}

// Match reports whether a path matches, itself or by one of its directories. The path is relative
// to the tree and has slashes; case counts.
func (g *Glob) Match(p string) bool {
	if g.matchesPath(p) {
		return true
	}
	for p = path.Dir(p); g.takesDirs && p != "."; p = path.Dir(p) {
		if g.matchesPath(p) {
			return true
		}
	}
	return false
}

// matchesAllIn reports whether every file in a directory matches.
func (g *Glob) matchesAllIn(dir string) bool { return g.takesDirs && g.matchesPath(dir) }

// matchesPath is Match without regard to the directories of the path.
func (g *Glob) matchesPath(p string) bool {
	if g.baseOnly {
		p = path.Base(p)
	}
	return doublestar.MatchUnvalidated(g.pattern, p)
}

// IsGlob reports whether a text is a pattern and not a plain name: it has one of the signs *, ?, [
// and {. It does not say that the pattern is valid.
func IsGlob(s string) bool { return strings.ContainsAny(s, "*?[{") }

// NameRank ranks how well a path matches a plain name: 0 if the path or its last
// element is the name, 1 if the last element contains it, 2 if the path contains it,
// -1 otherwise. A name without capitals also matches capitals.
func NameRank(p, name string) int {
	if !hasUpper(name) {
		p = strings.ToLower(p)
	}
	switch base := path.Base(p); {
	case base == name || p == name:
		return 0
	case strings.Contains(base, name):
		return 1
	case strings.Contains(p, name):
		return 2
	}
	return -1
}

func hasUpper(s string) bool { return strings.ContainsFunc(s, unicode.IsUpper) }

// escapes match the parts of a regular expression whose letters are not searched for.
var escapes = lazyregexp.New(`\\[pPx]\{[^}]*\}|\\.|\(\?P?<\w+>`)

// ignoresCase reports whether a query has no capitals and so also matches capitals.
func ignoresCase(text string, isRegexp bool) bool {
	if isRegexp {
		text = escapes.ReplaceAllString(text, "")
	}
	return !hasUpper(text)
}
