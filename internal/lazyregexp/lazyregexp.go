// Package lazyregexp has regular expressions that compile at their first use. The
// programs have about a hundred, most for things that they seldom do: compiled at the
// start they would take 1.4 MiB of memory for good, and a gateway at rest would be over
// its 5 MiB (docs/adr/0008-patterns.md has the figures).
package lazyregexp

import (
	"regexp"
	"sync"
)

// Regexp is a regular expression that compiles at its first use. It is safe for concurrent use, as
// [regexp.Regexp] is. Make one with [New]; the zero value panics.
type Regexp struct {
	expr string
	once sync.Once // guards re
	re   *regexp.Regexp
}

// New returns the regular expression expr, in the syntax of package regexp, without compiling it.
// Its first use panics if expr does not compile, so expr must not come from a user.
func New(expr string) *Regexp {
	// The compiler inlines this, so that a variable of a package has its value without code at
	// start.
	return &Regexp{expr: expr}
}

func (r *Regexp) compiled() *regexp.Regexp {
	r.once.Do(func() { r.re = regexp.MustCompile(r.expr) })
	return r.re
}

// FindAll is [regexp.Regexp.FindAll].
func (r *Regexp) FindAll(b []byte, n int) [][]byte {
	return r.compiled().FindAll(b, n)
}

// FindAllStringSubmatch is [regexp.Regexp.FindAllStringSubmatch].
func (r *Regexp) FindAllStringSubmatch(s string, n int) [][]string {
	return r.compiled().FindAllStringSubmatch(s, n)
}

// FindAllStringSubmatchIndex is [regexp.Regexp.FindAllStringSubmatchIndex].
func (r *Regexp) FindAllStringSubmatchIndex(s string, n int) [][]int {
	return r.compiled().FindAllStringSubmatchIndex(s, n)
}

// FindIndex is [regexp.Regexp.FindIndex].
func (r *Regexp) FindIndex(b []byte) []int {
	return r.compiled().FindIndex(b)
}

// FindString is [regexp.Regexp.FindString].
func (r *Regexp) FindString(s string) string {
	return r.compiled().FindString(s)
}

// FindStringSubmatch is [regexp.Regexp.FindStringSubmatch].
func (r *Regexp) FindStringSubmatch(s string) []string {
	return r.compiled().FindStringSubmatch(s)
}

// MatchString is [regexp.Regexp.MatchString].
func (r *Regexp) MatchString(s string) bool {
	return r.compiled().MatchString(s)
}

// ReplaceAllString is [regexp.Regexp.ReplaceAllString].
func (r *Regexp) ReplaceAllString(src, repl string) string {
	return r.compiled().ReplaceAllString(src, repl)
}

// ReplaceAllStringFunc is [regexp.Regexp.ReplaceAllStringFunc].
func (r *Regexp) ReplaceAllStringFunc(src string, repl func(string) string) string {
	return r.compiled().ReplaceAllStringFunc(src, repl)
}
