package protocol

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Checking of values against a compiled schema.

// schemaCheck is the check of one value. It panics with ErrTooCostly when it has no steps left.
type schemaCheck struct {
	left  int // steps
	depth int // schemas around
}

func (c *schemaCheck) spend(steps int) {
	if c.left -= steps; c.left < 0 {
		panic(ErrTooCostly)
	}
}

// check returns the reason why a value does not fit the schema, or nil if it fits. Then it adds the
// parts of the value that it evaluated to outer, which may be nil.
func (c *schemaCheck) check(s *subschema, v any, outer *evaluated) *mismatch {
	c.spend(schemaSteps)
	if c.depth++; c.depth > maxNested {
		panic(ErrTooCostly)
	}
	m := c.checkAll(s, v, outer)
	c.depth--
	if m != nil {
		m.places = append(m.places, s.at)
	}
	return m
}

func (c *schemaCheck) checkAll(s *subschema, v any, outer *evaluated) *mismatch {
	if s.never {
		return mismatchf("%s is not allowed here", display(v))
	}
	var seen *evaluated
	if outer != nil || s.unevaluatedItems != nil || s.unevaluatedProperties != nil {
		seen = &evaluated{items: map[int]bool{}, members: map[string]bool{}}
	}
	if s.ref != nil {
		if m := c.check(s.ref, v, seen); m != nil {
			return m
		}
	}
	if m := c.checkValue(s, v); m != nil {
		return m
	}
	if m := c.checkCombined(s, v, seen); m != nil {
		return m
	}
	if m := c.checkParts(s, v, seen); m != nil {
		return m
	}
	if outer != nil {
		outer.add(seen)
		c.spend(memberSteps * (len(seen.items) + len(seen.members)))
	}
	return nil
}

// checkValue checks the keywords about the type, the size and the text of the value itself.
func (c *schemaCheck) checkValue(s *subschema, v any) *mismatch {
	fits := func(t string) bool { return hasType(v, t) }
	if s.types != nil && !slices.ContainsFunc(s.types, fits) {
		want := "want"
		if len(s.types) > 1 {
			want = "want one of"
		}
		return mismatchf("type: %s has type %q, %s %q", display(v), jsonType(v), want,
			strings.Join(s.types, ", "))
	}
	if s.enum != nil && !c.isOneOf(v, s.enum) {
		return mismatchf("enum: %s does not equal any of: %s", display(v), display(s.enum.values))
	}
	if s.constant != nil && !c.isOneOf(v, s.constant) {
		return mismatchf("const: %s does not equal %s", display(v), display(s.constant.values[0]))
	}
	switch v := v.(type) {
	case json.Number:
		return c.checkNumber(s, v)
	case string:
		return c.checkText(s, v)
	}
	return nil
}

func (c *schemaCheck) isOneOf(v any, constants *constants) bool {
	text := canonical(v)
	c.spend(byteSteps * len(text))
	return constants.texts[text]
}

func (c *schemaCheck) checkText(s *subschema, v string) *mismatch {
	c.spend(len(v))
	if s.counts != nil {
		n := utf8.RuneCountInString(v)
		if least, ok := s.counts["minLength"]; ok && n < least {
			return mismatchf("minLength: %q contains %d Unicode code points, fewer than %d",
				shorten(v), n, least)
		}
		if most, ok := s.counts["maxLength"]; ok && n > most {
			return mismatchf("maxLength: %q contains %d Unicode code points, more than %d",
				shorten(v), n, most)
		}
	}
	if s.pattern != nil && !c.matches(s.pattern, v) {
		return mismatchf("pattern: %q does not match regular expression %q", shorten(v),
			shorten(s.pattern.String()))
	}
	return nil
}

func (c *schemaCheck) matches(p *pattern, text string) bool {
	c.spend(p.size * len(text))
	return p.MatchString(text)
}

func (c *schemaCheck) checkNumber(s *subschema, v json.Number) *mismatch {
	if len(s.bounds) == 0 {
		return nil
	}
	n, err := exactNumber(v.String())
	if err != nil {
		return mismatchf("%v", err)
	}
	for _, b := range s.bounds {
		c.spend(digitSteps * (digitsOf(v.String()) + digitsOf(b.text)))
		if how := b.breaks(n); how != "" {
			return mismatchf("%s: %s %s %s", b.keyword, display(v), how, shorten(b.text))
		}
	}
	return nil
}

// checkCombined checks the keywords that combine schemas: allOf, anyOf, oneOf, not and if.
func (c *schemaCheck) checkCombined(s *subschema, v any, seen *evaluated) *mismatch {
	for _, s := range s.allOf {
		if m := c.check(s, v, seen); m != nil {
			return m
		}
	}
	if s.anyOf != nil {
		if m := c.checkAny(s, v, seen); m != nil {
			return m
		}
	}
	if s.oneOf != nil {
		fits := 0
		for _, s := range s.oneOf {
			if c.check(s, v, seen) == nil {
				fits++
			}
		}
		if fits != 1 {
			return mismatchf("oneOf: %s fits %d of %d schemas, and must fit one", display(v), fits,
				len(s.oneOf))
		}
	}
	if s.not != nil && c.check(s.not, v, nil) == nil {
		return mismatchf("not: %s fits what it must not", display(v))
	}
	if s.condition != nil {
		next := s.orElse
		if c.check(s.condition, v, seen) == nil {
			next = s.then
		}
		if next != nil {
			return c.check(next, v, seen)
		}
	}
	return nil
}

// checkAny checks all schemas, also after one that fits: each may evaluate something, and the order
// of the schemas does not decide whether a check takes too long.
func (c *schemaCheck) checkAny(s *subschema, v any, seen *evaluated) *mismatch {
	var whys []string
	fits := false
	for _, s := range s.anyOf {
		m := c.check(s, v, seen)
		fits = fits || m == nil
		if m != nil && len(whys) < 3 {
			whys = append(whys, m.text)
		}
	}
	if fits {
		return nil
	}
	return mismatchf("anyOf: %s fits none of %d schemas: %s", display(v), len(s.anyOf),
		strings.Join(whys, "; "))
}

// checkParts checks the items of an array or the members of an object.
func (c *schemaCheck) checkParts(s *subschema, v any, seen *evaluated) *mismatch {
	switch v := v.(type) {
	case []any:
		return c.checkItems(s, v, seen)
	case map[string]any:
		return c.checkMembers(s, v, seen)
	}
	return nil
}

func (c *schemaCheck) checkItems(s *subschema, v []any, seen *evaluated) *mismatch {
	for i, e := range v {
		item := s.items
		if i < len(s.tuple) {
			item = s.tuple[i]
		}
		if item == nil {
			break
		}
		if m := c.check(item, e, nil); m != nil {
			return m
		}
		seen.item(i)
	}
	if m := c.checkContains(s, v, seen); m != nil {
		return m
	}
	if least, ok := s.counts["minItems"]; ok && len(v) < least {
		return mismatchf("minItems: array length %d is less than %d", len(v), least)
	}
	if most, ok := s.counts["maxItems"]; ok && len(v) > most {
		return mismatchf("maxItems: array length %d is greater than %d", len(v), most)
	}
	if s.unique {
		at := make(map[string]int, len(v))
		for i, e := range v {
			text := canonical(e)
			c.spend(memberSteps + byteSteps*len(text))
			if first, twice := at[text]; twice {
				return mismatchf("uniqueItems: array items %d and %d are equal", first, i)
			}
			at[text] = i
		}
	}
	if s.unevaluatedItems == nil {
		return nil
	}
	for i, e := range v {
		if !seen.items[i] {
			if m := c.check(s.unevaluatedItems, e, nil); m != nil {
				return m
			}
			seen.item(i)
		}
	}
	return nil
}

func (c *schemaCheck) checkContains(s *subschema, v []any, seen *evaluated) *mismatch {
	if s.contains == nil {
		return nil
	}
	n := 0
	for i, e := range v {
		if c.check(s.contains, e, nil) == nil {
			n++
			seen.item(i)
		}
	}
	least, ok := s.counts["minContains"]
	if !ok {
		least = 1
	}
	most, bounded := s.counts["maxContains"]
	switch {
	case n == 0 && least > 0:
		return mismatchf("contains: %s does not have an item that fits", display(v))
	case n < least:
		return mismatchf("minContains: %d items fit, less than %d", n, least)
	case bounded && n > most:
		return mismatchf("maxContains: %d items fit, more than %d", n, most)
	}
	return nil
}

func (c *schemaCheck) checkMembers(s *subschema, v map[string]any, seen *evaluated) *mismatch {
	names := sortedKeys(v)
	c.spend(memberSteps * (len(names) + len(s.required)))
	var extra []string
	for _, name := range names {
		known, m := c.checkMember(s, name, v[name])
		switch {
		case m != nil:
			return m
		case known:
			seen.member(name)
		case s.additional != nil && s.additional.never:
			extra = append(extra, name)
		case s.additional != nil:
			if m := c.check(s.additional, v[name], nil); m != nil {
				return m
			}
			seen.member(name)
		}
		if s.propertyNames != nil {
			if m := c.check(s.propertyNames, name, nil); m != nil {
				return m
			}
		}
	}
	if extra != nil {
		return mismatchf("unexpected additional properties %q", extra)
	}
	if least, ok := s.counts["minProperties"]; ok && len(v) < least {
		return mismatchf("minProperties: object has %d properties, less than %d", len(v), least)
	}
	if most, ok := s.counts["maxProperties"]; ok && len(v) > most {
		return mismatchf("maxProperties: object has %d properties, greater than %d", len(v), most)
	}
	if lack := missing(v, s.required); len(lack) > 0 {
		return mismatchf("required: missing properties: %q", lack)
	}
	if m := c.checkDependencies(s, v, seen); m != nil || s.unevaluatedProperties == nil {
		return m
	}
	for _, name := range names {
		if !seen.members[name] {
			if m := c.check(s.unevaluatedProperties, v[name], nil); m != nil {
				return m
			}
			seen.member(name)
		}
	}
	return nil
}

// checkMember checks a member of an object. It is known if properties or patternProperties name it.
func (c *schemaCheck) checkMember(s *subschema, name string, v any) (known bool, m *mismatch) {
	if p := s.properties[name]; p != nil {
		known = true
		if m := c.check(p, v, nil); m != nil {
			return true, m
		}
	}
	for _, p := range s.patternProperties {
		if c.matches(p.pattern, name) {
			known = true
			if m := c.check(p.subschema, v, nil); m != nil {
				return true, m
			}
		}
	}
	return known, nil
}

func (c *schemaCheck) checkDependencies(s *subschema, v map[string]any, seen *evaluated) *mismatch {
	c.spend(memberSteps * (len(s.dependentRequired) + len(s.dependentSchemas)))
	for _, name := range sortedKeys(s.dependentRequired) {
		c.spend(memberSteps * len(s.dependentRequired[name]))
		if _, ok := v[name]; ok {
			if lack := missing(v, s.dependentRequired[name]); len(lack) > 0 {
				return mismatchf("dependentRequired[%q]: missing properties %q", name, lack)
			}
		}
	}
	for _, name := range sortedKeys(s.dependentSchemas) {
		if _, ok := v[name]; ok {
			if m := c.check(s.dependentSchemas[name], v, seen); m != nil {
				return m
			}
		}
	}
	return nil
}

// missing returns the names that an object lacks.
func missing(v map[string]any, names []string) (lack []string) {
	for _, name := range names {
		if _, ok := v[name]; !ok {
			lack = append(lack, name)
		}
	}
	return lack
}

// evaluated notes which parts of a value a schema has checked. unevaluatedItems and
// unevaluatedProperties need it. The methods of a nil evaluated have no effect.
type evaluated struct {
	items   map[int]bool
	members map[string]bool
}

func (e *evaluated) item(i int) {
	if e != nil {
		e.items[i] = true
	}
}

func (e *evaluated) member(name string) {
	if e != nil {
		e.members[name] = true
	}
}

func (e *evaluated) add(other *evaluated) {
	maps.Copy(e.items, other.items)
	maps.Copy(e.members, other.members)
}

// mismatch says why a value does not fit a schema.
type mismatch struct {
	places []string // JSON pointers of the schemas, the innermost first
	text   string
}

func mismatchf(format string, args ...any) *mismatch {
	return &mismatch{text: fmt.Sprintf(format, args...)}
}

// String writes the places, outermost first, and the text. Of places that begin with each other it
// shows the longest; of a recursive schema it shows the first place and the last.
func (m *mismatch) String() string {
	var places []string
	for _, at := range slices.Backward(m.places) {
		switch n := len(places); {
		case n > 0 && strings.HasPrefix(at, places[n-1]+"/"):
			places[n-1] = at
		case at != "" && (n == 0 || places[n-1] != at):
			places = append(places, at)
		}
	}
	if n := len(places); n > 2 {
		places = []string{places[0], places[n-1]}
	}
	return strings.Join(append(places, m.text), ": ")
}
