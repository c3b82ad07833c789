package match

import (
	"strings"
	"sync"

	"github.com/dlclark/regexp2"
)

// The meaning of \b and \B in JavaScript: \w is ASCII there. At a boundary, but not for \w, the
// engine also takes letters and digits beyond ASCII for parts of words.
const (
	boundary    = `(?:(?<=\w)(?!\w)|(?<!\w)(?=\w))`
	notBoundary = `(?:(?<=\w)(?=\w)|(?<!\w)(?!\w))`
)

// withASCIIBoundaries compiles a pattern, once it is needed, with the boundaries of JavaScript. It
// returns nil for a pattern without boundaries. It leaves a pattern alone that only this engine
// takes, such as a comment with a boundary in it.
func withASCIIBoundaries(expr string, re *regexp2.Regexp) func() *regexp2.Regexp {
	written := spellBoundaries(expr)
	if written == expr {
		return nil
	}
	return sync.OnceValue(func() *regexp2.Regexp {
		beyond, err := regexp2.Compile(written, regexp2.ECMAScript)
		if err != nil {
			return re
		}
		beyond.MatchTimeout = timeout
		return beyond
	})
}

// spellBoundaries writes boundaries in a pattern as look-arounds. In a class, \b is a backspace.
func spellBoundaries(expr string) string {
	var b strings.Builder
	inClass := false
	for i := 0; i < len(expr); i++ {
		switch c := expr[i]; {
		case c == '\\' && i+1 < len(expr):
			i++
			switch {
			case expr[i] == 'b' && !inClass:
				b.WriteString(boundary)
			case expr[i] == 'B' && !inClass:
				b.WriteString(notBoundary)
			default:
				b.WriteString(expr[i-1 : i+1])
			}
			continue
		case c == '[':
			inClass = true
		case c == ']':
			inClass = false
		}
		b.WriteByte(expr[i])
	}
	return b.String()
}
