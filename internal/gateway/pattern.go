package gateway

import (
	"fmt"
	"strings"
	"time"

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
	// longer than a hiccup lasts, explodes.
	patternAttempts = 3
	patternPatience = 5 * time.Millisecond
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
	literal string // set when the expression is plain text
	re      *regexp2.Regexp
}

func compilePattern(expr string) (*pattern, error) {
	if len(expr) > protocol.MaxPattern {
		return nil, fmt.Errorf("must be at most %d bytes", protocol.MaxPattern)
	}
	if !strings.ContainsAny(expr, `\.+*?()[]{}|^$`) {
		return &pattern{literal: expr}, nil
	}
	return newPattern(expr)
}

func newPattern(expr string) (*pattern, error) {
	re, err := regexp2.Compile(expr, regexp2.ECMAScript)
	if err != nil {
		return nil, fmt.Errorf("%q is not a regular expression: %w", expr, err)
	}
	re.MatchTimeout = patternTimeout
	return &pattern{re: re}, nil
}

func (p *pattern) match(text string) verdict {
	if len(text) > maxSubject {
		return unsure
	}
	if p.re == nil {
		return found(strings.Contains(text, p.literal))
	}
	for began, attempt := time.Now(), 1; ; attempt++ {
		if ok, err := p.re.MatchString(text); err == nil {
			return found(ok)
		}
		if attempt >= patternAttempts && time.Since(began) > patternPatience {
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
	v := args.Clone()
	if err := v.Format(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true), jsontext.CanonicalizeRawInts(true),
		jsontext.CanonicalizeRawFloats(true), jsontext.Multiline(false), jsontext.SpaceAfterColon(false), jsontext.SpaceAfterComma(false)); err != nil {
		return string(args)
	}
	return string(v)
}
