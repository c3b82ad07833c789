package gateway

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/dlclark/regexp2"
	"github.com/go-json-experiment/json/jsontext"

	"tapgw/internal/protocol"
)

// Bounds of matching (design/protocol.md, "Patterns").
const (
	patternTimeout = time.Millisecond
	maxSubject     = 64 << 10 // bytes of text that a pattern is tried on
	// The clock is coarse and the machine may be busy, so a harmless pattern
	// runs out of time now and then; only one that does again and again, for
	// longer than a hiccup lasts, explodes. Where time stands still (in a test's
	// bubble) the attempts end it.
	patternAttempts    = 3
	patternPatience    = 5 * time.Millisecond
	patternMaxAttempts = 8
)

func init() { regexp2.SetTimeoutCheckPeriod(patternTimeout) }

// verdict is what came of a match: a pattern that took too long, or text too
// long to try, gives unsure, which is a match for what guards and none for what
// only informs. The smaller of two is what both say together.
type verdict int

const (
	no verdict = iota
	unsure
	yes
)

// pattern is a JavaScript regular expression. Go's own engine refuses
// look-around, which existing configurations use, and can't be stopped.
type pattern struct {
	needs [][]string      // a text that it matches holds one of each
	pairs pairs           // that are in what it needs, so in no text that lacks one
	re    *regexp2.Regexp // nil when needs is all there is to it
	most  int             // bytes of text that re is tried on
}

func compilePattern(expr string) (*pattern, error) {
	if len(expr) > protocol.MaxPattern {
		return nil, fmt.Errorf("must be at most %d bytes", protocol.MaxPattern)
	}
	if !strings.ContainsAny(expr, `\.+*?()[]{}|^$`) {
		p := &pattern{}
		p.require([][]string{{expr}})
		return p, nil
	}
	return newPattern(expr)
}

func newPattern(expr string) (*pattern, error) {
	re, err := regexp2.Compile(expr, regexp2.ECMAScript)
	if err != nil {
		return nil, fmt.Errorf("%q is not a regular expression: %w", expr, err)
	}
	re.MatchTimeout = patternTimeout
	p := &pattern{re: re, most: maxSubject}
	if code := program(expr); code != nil {
		p.most = affordable(code)
		p.require(required(code))
	}
	return p, nil
}

// require notes what a text needs to be matched.
func (p *pattern) require(needs [][]string) {
	p.needs = needs
	for _, texts := range needs {
		if len(texts) > 1 {
			continue
		}
		// Without what is written in one way in a path and in another in JSON.
		for _, part := range strings.FieldsFunc(texts[0], func(r rune) bool { return r < ' ' || strings.ContainsRune(`/\"`, r) }) {
			p.pairs.add(part)
		}
	}
}

func (p *pattern) match(s *subject) verdict {
	if len(s.text) > maxSubject {
		return unsure
	}
	if s.absent.overlaps(&p.pairs) {
		return no
	}
	for _, texts := range p.needs {
		if !slices.ContainsFunc(texts, func(t string) bool { return strings.Contains(s.text, t) }) {
			return no
		}
	}
	switch {
	case p.re == nil:
		return yes
	case len(s.text) > p.most:
		return unsure
	}
	for began, attempt := time.Now(), 1; ; attempt++ {
		if ok, err := p.re.MatchRunes(s.decoded()); err == nil {
			return found(ok)
		}
		if attempt >= patternMaxAttempts || attempt >= patternAttempts && time.Since(began) > patternPatience {
			return unsure
		}
	}
}

func found(ok bool) verdict {
	if ok {
		return yes
	}
	return no
}

// argsText is what match.args is tried on: the arguments as JSON.stringify would
// write them, keys in the order received, so that no other way to escape a
// character gets past a pattern.
func argsText(args protocol.Raw) string {
	if stringified(args) {
		return string(args)
	}
	v, lone := markSurrogates(args)
	if err := v.Format(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true), jsontext.CanonicalizeRawInts(true),
		jsontext.CanonicalizeRawFloats(true), jsontext.Multiline(false), jsontext.SpaceAfterColon(false), jsontext.SpaceAfterComma(false)); err != nil {
		return string(args)
	}
	if lone {
		return strings.ReplaceAll(string(v), surrogateMark, `\u`)
	}
	return string(v)
}

// surrogateMark stands for \u while a text is formatted. Nobody else writes it.
var surrogateMark = "tapgw-" + rand.Text() + "-"

// markSurrogates copies JSON, with the escapes of halves of surrogate pairs marked:
// what formats it would make U+FFFD of each, and JSON.stringify keeps them.
func markSurrogates(v protocol.Raw) (marked protocol.Raw, lone bool) {
	marked = make(protocol.Raw, 0, len(v))
	unit := func(at int) rune { // of the escape there, 0 for none
		if at+6 > len(v) || v[at] != '\\' || v[at+1] != 'u' {
			return 0
		}
		n, err := strconv.ParseUint(string(v[at+2:at+6]), 16, 16)
		if err != nil {
			return 0
		}
		return rune(n)
	}
	for i := 0; i < len(v); {
		r, n := unit(i), 1
		switch {
		case utf16.IsSurrogate(r) && utf16.DecodeRune(r, unit(i+6)) != utf8.RuneError:
			n = 12
		case utf16.IsSurrogate(r):
			marked = fmt.Appendf(marked, "%s%04x", surrogateMark, r)
			lone = true
			i += 6
			continue
		case v[i] == '\\':
			n = min(2, len(v)-i)
		}
		marked = append(marked, v[i:i+n]...)
		i += n
	}
	return marked, lone
}

// stringified reports whether JSON stands as JSON.stringify would write it, as
// what programs send mostly does. It may say no where the answer is yes.
func stringified(v protocol.Raw) bool {
	quoted, digits := false, 0
	for _, c := range v {
		switch {
		case c == '"': // none is escaped: there is no backslash
			quoted, digits = !quoted, 0
		case c == '\\' || c >= utf8.RuneSelf:
			return false
		case quoted:
		case '0' <= c && c <= '9':
			if digits++; digits > 15 { // more may round
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
