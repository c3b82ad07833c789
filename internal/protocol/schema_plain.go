package protocol

import (
	"bytes"
	"cmp"
	"reflect"
	"slices"
	"strconv"
)

// A plain schema is the schema of most tools: an object of texts, numbers and booleans. The scanner
// finds their members, so that the usual arguments are accepted without being decoded, which would
// take five times as long.

// markPlain sets isPlain. Call it when the schema has been read.
func (s *subschema) markPlain() {
	rest := *s
	rest.at, rest.types, rest.enum, rest.constant, rest.bounds = "", nil, nil, nil, nil
	rest.properties, rest.additional, rest.required = nil, nil, nil
	s.isPlain = reflect.ValueOf(rest).IsZero()
}

// accepts reports whether a JSON value without white space around it surely fits the schema. If it
// reports false, only [schemaCheck] knows.
func (s *subschema) accepts(v Raw) bool {
	if !s.isPlain {
		return false
	}
	switch v.Kind() {
	case '{':
		return s.acceptsType("object") && s.isConstant(v) && s.acceptsMembers(v)
	case '"':
		return s.acceptsType("string") && s.isConstant(v)
	case 't', 'f':
		return s.acceptsType("boolean") && s.isConstant(v)
	case 'n':
		return s.acceptsType("null") && s.isConstant(v)
	case '0':
		return s.isConstant(v) && s.acceptsNumber(v)
	}
	return false
}

func (s *subschema) acceptsType(name string) bool {
	return s.types == nil || slices.Contains(s.types, name)
}

// isConstant reports whether enum and const allow a value. Texts and booleans are mostly written as
// canonical writes them; other values count as not allowed.
func (s *subschema) isConstant(v Raw) bool {
	return (s.enum == nil || s.enum.texts[string(v)]) &&
		(s.constant == nil || s.constant.texts[string(v)])
}

// anything is the schema of the members that a schema does not mention.
var anything = &subschema{isPlain: true}

func (s *subschema) acceptsMembers(v Raw) bool {
	in := scanner{data: v}
	found, ok := in.members()
	if !ok {
		return false
	}
	required := 0
	for _, m := range found {
		p := cmp.Or(s.properties[string(m.name)], s.additional, anything)
		if !p.accepts(m.value) {
			return false
		}
		if slices.Contains(s.required, string(m.name)) {
			required++
		}
	}
	return required == len(s.required)
}

func (s *subschema) acceptsNumber(v Raw) bool {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil { // it has a fraction, an exponent or many digits
		return s.acceptsType("number") && s.bounds == nil && len(v) <= maxDigits &&
			!bytes.ContainsAny(v, "eE")
	}
	for _, b := range s.bounds {
		if !b.accepts(n) {
			return false
		}
	}
	return s.acceptsType("number") || s.acceptsType("integer")
}

// accepts reports whether an integer surely keeps the bound.
func (b *bound) accepts(n int64) bool {
	if !b.limit.IsInt() || !b.limit.Num().IsInt64() {
		return false
	}
	limit := b.limit.Num().Int64()
	switch b.keyword {
	case "minimum":
		return n >= limit
	case "maximum":
		return n <= limit
	case "exclusiveMinimum":
		return n > limit
	case "exclusiveMaximum":
		return n < limit
	}
	return n%limit == 0
}
