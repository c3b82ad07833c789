package match

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"tapgw/internal/protocol"
)

// ArgsText returns a call's arguments as JSON.stringify writes them: compact, keys
// in the order received. A pattern is tried on this form, so that no other way to
// escape a character gets past it.
func ArgsText(args protocol.Raw) string {
	if isStringified(args) {
		return string(args)
	}
	v, hasLone := markSurrogates(args)
	err := v.Format(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true),
		jsontext.CanonicalizeRawInts(true), jsontext.CanonicalizeRawFloats(true),
		jsontext.Multiline(false), jsontext.SpaceAfterColon(false), jsontext.SpaceAfterComma(false))
	if err != nil {
		return string(args)
	}
	if hasLone {
		return strings.ReplaceAll(string(v), surrogateMark(), `\u`)
	}
	return string(v)
}

// surrogateMark stands for \u while a text is formatted. It is random, so that no
// arguments hold it.
var surrogateMark = sync.OnceValue(func() string { return "tapgw-" + rand.Text() + "-" })

// markSurrogates copies JSON and marks the escapes of lone surrogates. The
// formatter would replace each by U+FFFD, while JSON.stringify keeps them.
func markSurrogates(v protocol.Raw) (marked protocol.Raw, hasLone bool) {
	marked = make(protocol.Raw, 0, len(v))
	for i := 0; i < len(v); {
		r, n := escapedUnit(v, i), 1
		switch {
		case utf16.IsSurrogate(r) && utf16.DecodeRune(r, escapedUnit(v, i+6)) != utf8.RuneError:
			n = 12
		case utf16.IsSurrogate(r):
			marked = fmt.Appendf(marked, "%s%04x", surrogateMark(), r)
			hasLone = true
			i += 6
			continue
		case v[i] == '\\':
			n = min(2, len(v)-i)
		}
		marked = append(marked, v[i:i+n]...)
		i += n
	}
	return marked, hasLone
}

// escapedUnit decodes the \uXXXX at a place of JSON, or returns 0 if there is no such escape.
func escapedUnit(v protocol.Raw, at int) rune {
	if at+6 > len(v) || v[at] != '\\' || v[at+1] != 'u' {
		return 0
	}
	n, err := strconv.ParseUint(string(v[at+2:at+6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(n)
}

// isStringified reports whether JSON already has the form that JSON.stringify
// writes, as most programs send it. It may report false for JSON that has.
func isStringified(v protocol.Raw) bool {
	quoted, digits := false, 0
	for _, c := range v {
		switch {
		case c == '"': // no quote is escaped: a backslash ends the loop
			quoted, digits = !quoted, 0
		case c == '\\' || c >= utf8.RuneSelf:
			return false
		case quoted:
		case '0' <= c && c <= '9':
			if digits++; digits > 15 { // JSON.stringify rounds longer numbers
				return false
			}
		case c == ',' || c == '}' || c == ']':
			digits = 0
		case digits > 0 || !strings.ContainsRune(":{[truefalsn", rune(c)):
			return false
		}
	}
	return true
}
