package search

import (
	"fmt"
	"path"
	"strings"
	"unicode"

	"github.com/bmatcuk/doublestar/v4"

	"tapgw/internal/lazyregexp"
)

// Glob is a pattern of paths: **, *, ?, [class] and {one,other}. One without a
// slash is looked for at every depth. One whose last element is a name takes all
// that is in directories of that name, too.
type Glob struct {
	pattern string
	base    bool // it has no slash
	dirs    bool // it ends in a name
}

// ParseGlob reads a pattern.
func ParseGlob(pattern string) (*Glob, error) {
	p := strings.TrimPrefix(pattern, "./")
	p, slash := strings.CutSuffix(p, "/")
	g := &Glob{pattern: strings.TrimPrefix(p, "/"), base: !strings.Contains(p, "/")}
	if g.pattern == "" || g.pattern == "." {
		return &Glob{pattern: "*", base: true}, nil
	}
	if !doublestar.ValidatePattern(g.pattern) {
		return nil, fmt.Errorf("%q is no glob pattern: use **, *, ?, [abc] and {one,other}", pattern)
	}
	g.dirs = slash || !IsGlob(path.Base(g.pattern))
	return g, nil
}

// Match reports whether a path fits, relative and with slashes.
func (g *Glob) Match(p string) bool {
	if g.fits(p) {
		return true
	}
	for p = path.Dir(p); g.dirs && p != "."; p = path.Dir(p) {
		if g.fits(p) {
			return true
		}
	}
	return false
}

// takesAll reports whether all that is in a directory fits.
func (g *Glob) takesAll(dir string) bool { return g.dirs && g.fits(dir) }

func (g *Glob) fits(p string) bool {
	if g.base {
		p = path.Base(p)
	}
	return doublestar.MatchUnvalidated(g.pattern, p)
}

// IsGlob reports whether a text has anything in it that makes it a pattern.
func IsGlob(s string) bool { return strings.ContainsAny(s, "*?[{") }

// Named ranks how well a path fits a name that is no pattern: 0 its last element
// is that, 1 that is in its last element, 2 in the path; -1 not at all. A name in
// small letters fits capitals too.
func Named(p, name string) int {
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

// escapes are what in a regular expression is no letter to find.
var escapes = lazyregexp.New(`\\[pPx]\{[^}]*\}|\\.|\(\?P?<\w+>`)

// folds reports whether a query in small letters is to find capitals.
func folds(text string, isRegexp bool) bool {
	if isRegexp {
		text = escapes.ReplaceAllString(text, "")
	}
	return !hasUpper(text)
}
