package protocol

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// check returns why a value does not fit the schema, or nil if it fits. Then it adds what it evaluated of the value to
// outer, which may be nil.
func (r *requirements) check(v any, outer *evaluated) *mismatch {
	if r.rejectsAll {
		return mismatchf("%s is not allowed here", display(v)).within(r)
	}
	var seen *evaluated
	if outer != nil || r.tracksEvaluated {
		seen = &evaluated{}
	}
	var m *mismatch
	if r.ref != nil {
		m = r.ref.check(v, seen)
	}
	if m == nil && !r.ignoresSiblings {
		m = r.checkValue(v)
	}
	if m == nil && !r.ignoresSiblings {
		m = r.checkCombined(v, seen)
	}
	if m == nil && !r.ignoresSiblings {
		m = r.checkParts(v, seen)
	}
	if m == nil && r.tracksEvaluated {
		m = r.checkRest(v, seen)
	}
	if m == nil {
		outer.add(seen)
	}
	return m.within(r)
}

// checkValue checks the keywords about the type, the size and the text of the value itself.
func (r *requirements) checkValue(v any) *mismatch {
	if r.types != nil && !slices.ContainsFunc(r.types, func(t string) bool { return hasType(v, t) }) {
		if len(r.types) == 1 {
			return mismatchf("type: %s has type %q, want %q", display(v), jsonType(v), r.types[0])
		}
		return mismatchf("type: %s has type %q, want one of %q", display(v), jsonType(v), strings.Join(r.types, ", "))
	}
	if r.hasEnum && !slices.ContainsFunc(r.enum, func(e any) bool { return equal(e, v) }) {
		return mismatchf("enum: %s does not equal any of: %s", display(v), display(r.enum))
	}
	if r.hasConst && !equal(r.constant, v) {
		return mismatchf("const: %s does not equal %s", display(v), display(r.constant))
	}
	switch v := v.(type) {
	case json.Number:
		return r.checkNumber(v)
	case string:
		n := utf8.RuneCountInString(v)
		switch {
		case r.minLength != nil && n < *r.minLength:
			return mismatchf("minLength: %q contains %d Unicode code points, fewer than %d", shorten(v), n,
				*r.minLength)
		case r.maxLength != nil && n > *r.maxLength:
			return mismatchf("maxLength: %q contains %d Unicode code points, more than %d", shorten(v), n, *r.maxLength)
		case r.pattern != nil && !r.pattern.MatchString(v):
			return mismatchf("pattern: %q does not match regular expression %q", shorten(v),
				shorten(r.pattern.String()))
		}
	}
	return nil
}

func (r *requirements) checkNumber(v json.Number) *mismatch {
	if len(r.bounds) == 0 {
		return nil
	}
	n, err := exactNumber(v.String())
	if err != nil {
		return mismatchf("%v", err)
	}
	for i := range r.bounds {
		b := &r.bounds[i]
		if how := b.breaks(n); how != "" {
			return mismatchf("%s: %s %s %s", b.keyword, display(v), how, shorten(b.text))
		}
	}
	return nil
}

// checkCombined checks the keywords that combine schemas: allOf, anyOf, oneOf, not and if.
func (r *requirements) checkCombined(v any, seen *evaluated) *mismatch {
	for _, s := range r.allOf {
		if m := s.check(v, seen); m != nil {
			return m
		}
	}
	if r.anyOf != nil {
		if m := r.checkAny(v, seen); m != nil {
			return m
		}
	}
	if r.oneOf != nil {
		fits := 0
		for _, s := range r.oneOf {
			if s.check(v, seen) == nil {
				fits++
			}
		}
		if fits != 1 {
			return mismatchf("oneOf: %s fits %d of %d schemas, and must fit one", display(v), fits, len(r.oneOf))
		}
	}
	if r.not != nil && r.not.check(v, nil) == nil {
		return mismatchf("not: %s fits what it must not", display(v))
	}
	if r.cond != nil {
		next := r.orElse
		if r.cond.check(v, seen) == nil {
			next = r.then
		}
		if next != nil {
			return next.check(v, seen)
		}
	}
	return nil
}

func (r *requirements) checkAny(v any, seen *evaluated) *mismatch {
	var whys []string
	fits := false
	for _, s := range r.anyOf { // all of them, since each may evaluate something
		m := s.check(v, seen)
		if fits = fits || m == nil; fits && seen == nil {
			return nil
		}
		if m != nil && len(whys) < 3 {
			whys = append(whys, m.text)
		}
	}
	if fits {
		return nil
	}
	return mismatchf("anyOf: %s fits none of %d schemas: %s", display(v), len(r.anyOf), strings.Join(whys, "; "))
}
