package protocol

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// rule is one schema, ready to hold values against. Numbers are compared as they
// are written, so that 19.99 is a multiple of 0.01 and 2^53+1 is not 2^53.
type rule struct {
	at     string // its place, a JSON pointer
	never  bool   // the schema false
	types  []string
	list   []any // enum
	listed bool
	value  any // const
	fixed  bool
	bounds []bound

	minLength, maxLength *int
	pattern              *regexp.Regexp

	ref     *rule
	refOnly bool // draft-07 ignores what is beside a reference

	all, any, one      []*rule
	not                *rule
	cond, then, orElse *rule

	tuple                    []*rule
	items                    *rule // of what follows the tuple
	contains                 *rule
	minContains, maxContains *int
	minItems, maxItems       *int
	unique                   bool
	restItems                *rule // unevaluatedItems

	members      []memberRule
	named        map[string]bool // of members
	patterns     []patternRule
	others       *rule // additionalProperties
	names        *rule
	restMembers  *rule // unevaluatedProperties
	required     []string
	minMembers   *int
	maxMembers   *int
	needs        []needRule
	whenPresent  []memberRule // dependentSchemas
	seesChildren bool         // it asks what was evaluated
}

type memberRule struct {
	name string
	*rule
}

type patternRule struct {
	pattern *regexp.Regexp
	*rule
}

type needRule struct {
	name  string
	needs []string
}

// bound is a keyword about numbers.
type bound struct {
	keyword string
	limit   *big.Rat
	text    string
}

// breaks says how a number breaks the bound, "" where it does not.
func (b *bound) breaks(n *big.Rat) string {
	if b.keyword == "multipleOf" {
		if new(big.Rat).Quo(n, b.limit).IsInt() {
			return ""
		}
		return "is not a multiple of"
	}
	switch cmp := n.Cmp(b.limit); {
	case b.keyword == "minimum" && cmp < 0:
		return "is less than"
	case b.keyword == "maximum" && cmp > 0:
		return "is greater than"
	case b.keyword == "exclusiveMinimum" && cmp <= 0:
		return "is less than or equal to"
	case b.keyword == "exclusiveMaximum" && cmp >= 0:
		return "is greater than or equal to"
	}
	return ""
}

// misfit says why a value does not fit: the places of the schemas from the outermost
// on, and how. nil is a fit.
type misfit struct {
	places []string
	text   string
}

func misfits(format string, args ...any) *misfit { return &misfit{text: fmt.Sprintf(format, args...)} }

// within adds the schema around.
func (m *misfit) within(r *rule) *misfit {
	if m != nil {
		m.places = append(m.places, r.at)
	}
	return m
}

// String leaves out the places that the next one says again: of the way to a
// property the whole, and where a reference led from there.
func (m *misfit) String() string {
	var places []string
	for _, at := range slices.Backward(m.places) {
		switch n := len(places); {
		case n > 0 && strings.HasPrefix(at, places[n-1]+"/"):
			places[n-1] = at
		case at != "" && (n == 0 || places[n-1] != at):
			places = append(places, at)
		}
	}
	if n := len(places); n > 2 { // a recursive schema's: where it began and where it ended
		places = []string{places[0], places[n-1]}
	}
	return strings.Join(append(places, m.text), ": ")
}

// seen is what was evaluated of a value, for unevaluatedItems and
// unevaluatedProperties; of nil nobody asks.
type seen struct {
	allItems, allMembers bool
	tuple                int // items before this one
	items                map[int]bool
	members              map[string]bool
}

func (s *seen) item(i int) {
	if s == nil {
		return
	}
	if s.items == nil {
		s.items = map[int]bool{}
	}
	s.items[i] = true
}

func (s *seen) member(name string) {
	if s == nil {
		return
	}
	if s.members == nil {
		s.members = map[string]bool{}
	}
	s.members[name] = true
}

func (s *seen) add(o *seen) {
	if s == nil || o == nil {
		return
	}
	s.allItems, s.allMembers, s.tuple = s.allItems || o.allItems, s.allMembers || o.allMembers, max(s.tuple, o.tuple)
	for i := range o.items {
		s.item(i)
	}
	for name := range o.members {
		s.member(name)
	}
}

// check holds a value against the schema. around is told what was evaluated, where
// the value fits.
func (r *rule) check(v any, around *seen) *misfit {
	if r.never {
		return misfits("%s is not allowed here", shown(v)).within(r)
	}
	var mine *seen
	if around != nil || r.seesChildren {
		mine = &seen{}
	}
	var m *misfit
	if r.ref != nil {
		m = r.ref.check(v, mine)
	}
	if m == nil && !r.refOnly {
		m = r.checkValue(v)
	}
	if m == nil && !r.refOnly {
		m = r.checkCombined(v, mine)
	}
	if m == nil && !r.refOnly {
		m = r.checkParts(v, mine)
	}
	if m == nil && r.seesChildren {
		m = r.checkRest(v, mine)
	}
	if m == nil {
		around.add(mine)
	}
	return m.within(r)
}

// checkValue holds the value itself against the keywords about its type and size.
func (r *rule) checkValue(v any) *misfit {
	if r.types != nil && !slices.ContainsFunc(r.types, func(t string) bool { return hasType(v, t) }) {
		if len(r.types) == 1 {
			return misfits("type: %s has type %q, want %q", shown(v), jsonType(v), r.types[0])
		}
		return misfits("type: %s has type %q, want one of %q", shown(v), jsonType(v), strings.Join(r.types, ", "))
	}
	if r.listed && !slices.ContainsFunc(r.list, func(e any) bool { return equal(e, v) }) {
		return misfits("enum: %s does not equal any of: %s", shown(v), shown(r.list))
	}
	if r.fixed && !equal(r.value, v) {
		return misfits("const: %s does not equal %s", shown(v), shown(r.value))
	}
	switch v := v.(type) {
	case json.Number:
		return r.checkNumber(v)
	case string:
		n := utf8.RuneCountInString(v)
		switch {
		case r.minLength != nil && n < *r.minLength:
			return misfits("minLength: %q contains %d Unicode code points, fewer than %d", short(v), n, *r.minLength)
		case r.maxLength != nil && n > *r.maxLength:
			return misfits("maxLength: %q contains %d Unicode code points, more than %d", short(v), n, *r.maxLength)
		case r.pattern != nil && !r.pattern.MatchString(v):
			return misfits("pattern: %q does not match regular expression %q", short(v), short(r.pattern.String()))
		}
	}
	return nil
}

func (r *rule) checkNumber(v json.Number) *misfit {
	if len(r.bounds) == 0 {
		return nil
	}
	n, err := exact(v.String())
	if err != nil {
		return misfits("%v", err)
	}
	for i := range r.bounds {
		b := &r.bounds[i]
		if how := b.breaks(n); how != "" {
			return misfits("%s: %s %s %s", b.keyword, shown(v), how, short(b.text))
		}
	}
	return nil
}

// checkCombined holds the value against the schemas that are combined in this one.
func (r *rule) checkCombined(v any, mine *seen) *misfit {
	for _, s := range r.all {
		if m := s.check(v, mine); m != nil {
			return m
		}
	}
	if r.any != nil {
		if m := r.checkAny(v, mine); m != nil {
			return m
		}
	}
	if r.one != nil {
		fits := 0
		for _, s := range r.one {
			if s.check(v, mine) == nil {
				fits++
			}
		}
		if fits != 1 {
			return misfits("oneOf: %s fits %d of %d schemas, and must fit one", shown(v), fits, len(r.one))
		}
	}
	if r.not != nil && r.not.check(v, nil) == nil {
		return misfits("not: %s fits what it must not", shown(v))
	}
	if r.cond != nil {
		next := r.orElse
		if r.cond.check(v, mine) == nil {
			next = r.then
		}
		if next != nil {
			return next.check(v, mine)
		}
	}
	return nil
}

func (r *rule) checkAny(v any, mine *seen) *misfit {
	var whys []string
	fits := false
	for _, s := range r.any { // all of them, since each may evaluate something
		m := s.check(v, mine)
		if fits = fits || m == nil; fits && mine == nil {
			return nil
		}
		if m != nil && len(whys) < 3 {
			whys = append(whys, m.text)
		}
	}
	if fits {
		return nil
	}
	return misfits("anyOf: %s fits none of %d schemas: %s", shown(v), len(r.any), strings.Join(whys, "; "))
}

// checkParts holds what the value consists of against the schemas for it.
func (r *rule) checkParts(v any, mine *seen) *misfit {
	switch v := v.(type) {
	case []any:
		return r.checkItems(v, mine)
	case map[string]any:
		return r.checkMembers(v, mine)
	}
	return nil
}

func (r *rule) checkItems(v []any, mine *seen) *misfit {
	for i, s := range r.tuple[:min(len(r.tuple), len(v))] {
		if m := s.check(v[i], nil); m != nil {
			return m
		}
	}
	if r.items != nil {
		for _, e := range v[min(len(r.tuple), len(v)):] {
			if m := r.items.check(e, nil); m != nil {
				return m
			}
		}
	}
	if mine != nil {
		mine.tuple, mine.allItems = max(mine.tuple, len(r.tuple)), mine.allItems || r.items != nil
	}
	if m := r.checkContains(v, mine); m != nil {
		return m
	}
	switch {
	case r.minItems != nil && len(v) < *r.minItems:
		return misfits("minItems: array length %d is less than %d", len(v), *r.minItems)
	case r.maxItems != nil && len(v) > *r.maxItems:
		return misfits("maxItems: array length %d is greater than %d", len(v), *r.maxItems)
	}
	if r.unique {
		at := make(map[string]int, len(v))
		for i, e := range v {
			key := string(appendCanonical(nil, e))
			if first, twice := at[key]; twice {
				return misfits("uniqueItems: array items %d and %d are equal", first, i)
			}
			at[key] = i
		}
	}
	return nil
}

func (r *rule) checkContains(v []any, mine *seen) *misfit {
	if r.contains == nil {
		return nil
	}
	n := 0
	for i, e := range v {
		if r.contains.check(e, nil) == nil {
			n++
			mine.item(i)
		}
	}
	least := 1
	if r.minContains != nil {
		least = *r.minContains
	}
	switch {
	case n == 0 && least > 0:
		return misfits("contains: %s does not have an item that fits", shown(v))
	case n < least:
		return misfits("minContains: %d items fit, less than %d", n, least)
	case r.maxContains != nil && n > *r.maxContains:
		return misfits("maxContains: %d items fit, more than %d", n, *r.maxContains)
	}
	return nil
}

func (r *rule) checkMembers(v map[string]any, mine *seen) *misfit {
	for _, p := range r.members {
		part, there := v[p.name]
		if !there {
			continue
		}
		if m := p.check(part, nil); m != nil {
			return m
		}
		mine.member(p.name)
	}
	if m := r.checkNames(v, mine); m != nil {
		return m
	}
	switch {
	case r.minMembers != nil && len(v) < *r.minMembers:
		return misfits("minProperties: object has %d properties, less than %d", len(v), *r.minMembers)
	case r.maxMembers != nil && len(v) > *r.maxMembers:
		return misfits("maxProperties: object has %d properties, greater than %d", len(v), *r.maxMembers)
	}
	if lack := missing(v, r.required); len(lack) > 0 {
		return misfits("required: missing properties: %q", lack)
	}
	for _, n := range r.needs {
		if _, there := v[n.name]; there {
			if lack := missing(v, n.needs); len(lack) > 0 {
				return misfits("dependentRequired[%q]: missing properties %q", n.name, lack)
			}
		}
	}
	for _, s := range r.whenPresent {
		if _, there := v[s.name]; there {
			if m := s.check(v, mine); m != nil {
				return m
			}
		}
	}
	return nil
}

// checkNames holds members against what is said of them by their names, or of all
// others.
func (r *rule) checkNames(v map[string]any, mine *seen) *misfit {
	if r.patterns == nil && r.others == nil && r.names == nil {
		return nil
	}
	var extra []string
	for _, name := range slices.Sorted(maps.Keys(v)) {
		known := r.named[name]
		for _, p := range r.patterns {
			if !p.pattern.MatchString(name) {
				continue
			}
			known = true
			mine.member(name)
			if m := p.check(v[name], nil); m != nil {
				return m
			}
		}
		switch {
		case known || r.others == nil:
		case r.others.never:
			extra = append(extra, name)
		default:
			mine.member(name)
			if m := r.others.check(v[name], nil); m != nil {
				return m
			}
		}
		if r.names != nil {
			if m := r.names.check(name, nil); m != nil {
				return m
			}
		}
	}
	if extra != nil {
		return misfits("unexpected additional properties %q", extra)
	}
	return nil
}

// checkRest holds against their schemas what nothing before has evaluated.
func (r *rule) checkRest(v any, mine *seen) *misfit {
	switch v := v.(type) {
	case []any:
		if r.restItems == nil || mine.allItems {
			return nil
		}
		for i := mine.tuple; i < len(v); i++ {
			if mine.items[i] {
				continue
			}
			if m := r.restItems.check(v[i], nil); m != nil {
				return m
			}
		}
		mine.allItems = true
	case map[string]any:
		if r.restMembers == nil || mine.allMembers {
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if mine.members[name] {
				continue
			}
			if m := r.restMembers.check(v[name], nil); m != nil {
				return m
			}
		}
		mine.allMembers = true
	}
	return nil
}

func missing(v map[string]any, names []string) (lack []string) {
	for _, name := range names {
		if _, there := v[name]; !there {
			lack = append(lack, name)
		}
	}
	return lack
}

func jsonType(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "boolean"
	case json.Number:
		if isWhole(v.String()) {
			return "integer"
		}
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

func hasType(v any, want string) bool {
	_, number := v.(json.Number)
	if number && want == "number" {
		return true
	}
	return jsonType(v) == want
}

// equal compares decoded JSON: numbers by their values.
func equal(a, b any) bool {
	switch a := a.(type) {
	case json.Number:
		b, ok := b.(json.Number)
		return ok && sameNumber(a, b)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, equal)
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, equal)
	}
	switch b.(type) {
	case []any, map[string]any:
		return false
	}
	return a == b
}

// appendCanonical writes what is equal alike.
func appendCanonical(dst []byte, v any) []byte {
	switch v := v.(type) {
	case json.Number:
		if n, err := exact(v.String()); err == nil {
			return append(dst, n.RatString()...)
		}
		return append(dst, v...)
	case string:
		return strconv.AppendQuote(dst, v)
	case []any:
		dst = append(dst, '[')
		for _, e := range v {
			dst = append(appendCanonical(dst, e), ',')
		}
		return append(dst, ']')
	case map[string]any:
		dst = append(dst, '{')
		for _, name := range slices.Sorted(maps.Keys(v)) {
			dst = append(strconv.AppendQuote(dst, name), ':')
			dst = append(appendCanonical(dst, v[name]), ',')
		}
		return append(dst, '}')
	}
	return fmt.Append(dst, v)
}

// shown is a value as an error shows it, shortened.
func shown(v any) string {
	switch v := v.(type) {
	case json.Number:
		return short(v.String())
	case string:
		return short(v)
	case nil:
		return "null"
	case []any:
		const most = 5
		var parts []string
		for _, e := range v[:min(len(v), most)] {
			parts = append(parts, shown(e))
		}
		if len(v) > most {
			parts = append(parts, "…")
		}
		return short("[" + strings.Join(parts, " ") + "]")
	case map[string]any:
		return "an object"
	}
	return fmt.Sprint(v)
}
