// Package match tries the patterns of rules and filters on texts: JavaScript
// regular expressions and globs for files and tools (docs/protocol.md, "Match and
// patterns").
//
// Patterns come from providers and texts from models, so either may be made to take
// forever. A match is therefore bounded in time and text, and one that reaches a
// bound is [Undecided]. The caller chooses the safe meaning: a rule that may deny
// treats it as a match.
package match

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlclark/regexp2"

	"tapgw/internal/protocol"
)

// Bounds of one match (docs/adr/0008-patterns.md).
const (
	timeout = time.Millisecond
	maxText = 64 << 10 // bytes
	// The engine's clock is coarse and the machine may be busy, so a harmless
	// pattern runs out of time now and then. Only a pattern that runs out of time
	// in each of minAttempts, for longer than patience, explodes. maxAttempts ends
	// the loop where time stands still, in a test's bubble.
	minAttempts = 3
	patience    = 5 * time.Millisecond
	maxAttempts = 8
)

func init() { regexp2.SetTimeoutCheckPeriod(timeout) }

// Result is the result of a match. Results are ordered: of two conditions that must both hold the
// smaller result counts, of two alternatives the larger.
type Result int

// The results of a match. Undecided means that the pattern took too long, or that
// the text is too long to try: over 64 KiB, or less for a pattern with a class of
// hundreds of characters.
const (
	No Result = iota
	Undecided
	Yes
)

// Pattern is a compiled JavaScript regular expression without flags. It runs in a
// backtracking engine, since existing configurations use look-ahead, which Go's own
// engine refuses. It is safe for concurrent use.
type Pattern struct {
	required [][]string      // a text that matches holds at least one text of each list
	pairs    pairSet         // pairs of bytes that are in every text that matches
	re       *regexp2.Regexp // nil when holding the required texts is enough to match
	// beyond is re for texts beyond ASCII, with word boundaries as JavaScript has them; nil if re
	// does.
	beyond  func() *regexp2.Regexp
	maxText int // bytes of text that re is tried on
}

// Compile compiles a JavaScript regular expression of at most [protocol.MaxPattern] bytes. The
// error describes the fault in one line, without the name of the field that the expression came
// from.
func Compile(expr string) (*Pattern, error) {
	if len(expr) > protocol.MaxPattern {
		return nil, fmt.Errorf("must be at most %d bytes", protocol.MaxPattern)
	}
	if !strings.ContainsAny(expr, `\.+*?()[]{}|^$`) {
		p := &Pattern{}
		p.require([][]string{{expr}})
		return p, nil
	}
	return compile(expr)
}

func compile(expr string) (*Pattern, error) {
	re, err := regexp2.Compile(expr, regexp2.ECMAScript)
	if err != nil {
		return nil, fmt.Errorf("%q is not a regular expression: %w", expr, err)
	}
	re.MatchTimeout = timeout
	p := &Pattern{re: re, maxText: maxText, beyond: withASCIIBoundaries(expr, re)}
	if code := parse(expr); code != nil {
		p.maxText = affordableText(code)
		p.require(requiredTexts(code))
	}
	return p, nil
}

// require records the texts that every match holds.
func (p *Pattern) require(required [][]string) {
	p.required = required
	for _, texts := range required {
		if len(texts) > 1 {
			continue
		}
		// Pairs with a separator or an escaped character are left out: a path and
		// the JSON that it came in may write them differently, and the pairs of a
		// glob are looked for in the JSON.
		separator := func(r rune) bool { return r < ' ' || strings.ContainsRune(`/\"`, r) }
		for _, part := range strings.FieldsFunc(texts[0], separator) {
			p.pairs.add(part)
		}
	}
}

// Match tries the pattern anywhere in a text. It takes a few milliseconds at the
// worst, and then returns [Undecided].
func (p *Pattern) Match(t *Text) Result { return p.try(t, patience, maxAttempts) }

// MatchAtLeisure is [Pattern.Match] where no call waits for the result: a machine
// however busy leaves no harmless pattern undecided. It takes a second at the worst.
func (p *Pattern) MatchAtLeisure(t *Text) Result { return p.try(t, time.Second, 1000) }

func (p *Pattern) try(t *Text, patience time.Duration, maxAttempts int) Result {
	if len(t.text) > maxText {
		return Undecided
	}
	if p.isRuledOut(t) {
		return No
	}
	switch {
	case p.re == nil:
		return Yes
	case len(t.text) > p.maxText:
		return Undecided
	}
	re, runes := p.re, t.decoded()
	if p.beyond != nil && len(runes) != len(t.text) {
		re = p.beyond()
	}
	for began, attempt := time.Now(), 1; ; attempt++ {
		if matches, err := re.MatchRunes(runes); err == nil {
			return resultOf(matches)
		}
		if attempt >= maxAttempts || attempt >= minAttempts && time.Since(began) > patience {
			return Undecided
		}
	}
}

// isRuledOut reports whether a text lacks something that every match holds. It
// takes a fraction of the engine's time.
func (p *Pattern) isRuledOut(t *Text) bool {
	if t.missing.overlaps(&p.pairs) {
		return true
	}
	for _, texts := range p.required {
		if !slices.ContainsFunc(texts, func(text string) bool {
			return strings.Contains(t.text, text)
		}) {
			return true
		}
	}
	return false
}

func resultOf(matches bool) Result {
	if matches {
		return Yes
	}
	return No
}
