package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/big"
	"net/url"
	"regexp"
	goregexp "regexp/syntax"
	"strconv"
	"strings"
)

// Compiling of JSON Schemas, with limits that keep a hostile schema from costing much.

// Bounds of a schema. Without them, one schema could stop the gateway.
const (
	maxSchemaDepth = 64      // levels of schemas within schemas
	maxSchemaSteps = 1000    // schemas that check one value
	maxPrograms    = 100_000 // instructions of all compiled patterns together
)

// subschema is one schema within a schema, ready to check values. Nil and empty fields accept any
// value.
type subschema struct {
	at      string // its place, a JSON pointer
	never   bool   // the schema is false
	isPlain bool   // see schema_plain.go

	types    []string
	enum     *constants
	constant *constants
	bounds   []bound

	counts  map[string]int // minLength and others, by keyword
	pattern *pattern

	ref                          *subschema
	allOf, anyOf, oneOf          []*subschema
	not, condition, then, orElse *subschema

	tuple            []*subschema
	items            *subschema // for the items after the tuple
	contains         *subschema
	unique           bool
	unevaluatedItems *subschema

	properties            map[string]*subschema
	patternProperties     []patternProperty
	additional            *subschema
	propertyNames         *subschema
	unevaluatedProperties *subschema
	required              []string
	dependentRequired     map[string][]string
	dependentSchemas      map[string]*subschema
}

// constants are values that a schema allows.
type constants struct {
	values []any
	texts  map[string]bool // as canonical writes them
}

func newConstants(values ...any) *constants {
	c := &constants{values, make(map[string]bool, len(values))}
	for _, v := range values {
		c.texts[canonical(v)] = true
	}
	return c
}

// bound is a keyword that bounds numbers, such as minimum.
type bound struct {
	keyword string
	limit   *big.Rat
	text    string
}

// pattern is a regular expression and the number of its instructions, which is the number of steps
// that it takes at most for each byte.
type pattern struct {
	*regexp.Regexp
	size int
}

type patternProperty struct {
	pattern *pattern
	*subschema
}

// schemaParser reads a schema and reports its faults. Places are JSON pointers.
type schemaParser struct {
	draft07  bool
	schemas  map[string]*subschema // by place
	bases    map[string]*schemaBase
	refs     []schemaRef
	programs int
	foreign  foreign
	steps    map[*subschema]int // see countSteps
	err      error              // the first fault
}

func newSchemaParser(doc map[string]any) *schemaParser {
	p := &schemaParser{schemas: map[string]*subschema{}, bases: map[string]*schemaBase{},
		steps: map[*subschema]int{}}
	draft, _ := doc["$schema"].(string)
	name := strings.TrimSuffix(draft, "#")
	name = strings.TrimPrefix(strings.TrimPrefix(name, "https://"), "http://")
	switch name {
	case "", "json-schema.org/draft/2020-12/schema":
	case "json-schema.org/draft-07/schema":
		p.draft07 = true
	default:
		p.fault("/$schema", "%.100q is not supported; use 2020-12 or draft-07, or leave it out",
			draft)
	}
	return p
}

// fault notes a fault at a place, unless an earlier fault is noted. The place of the root is "".
func (p *schemaParser) fault(at, format string, args ...any) {
	if p.err == nil {
		p.err = faultAt(at, format, args...)
	}
}

func faultAt(at, format string, args ...any) error {
	if at == "" {
		return fmt.Errorf(format, args...)
	}
	return fmt.Errorf("%s: %s", at, fmt.Sprintf(format, args...))
}

// read reads one schema and all schemas within it. References within it are relative to base.
func (p *schemaParser) read(v any, at string, base *schemaBase, depth int) *subschema {
	s := &subschema{at: at}
	p.schemas[at] = s
	if b, ok := v.(bool); ok {
		s.never = !b
		return s
	}
	m, ok := v.(map[string]any)
	if !ok {
		p.fault(at, "must be a schema (an object, true or false)")
	}
	if depth > maxSchemaDepth {
		p.fault(at, "schemas are nested more than %d deep", maxSchemaDepth)
	}
	if base == nil {
		base = &schemaBase{s, new(url.URL), map[string]*subschema{}}
	}
	_, refers := m["$ref"]
	onlyRefers := refers && p.draft07 // draft-07 ignores keywords beside a reference
	if !onlyRefers {
		base = p.identify(s, m, base)
	}
	_, tuple := m["items"].([]any)
	for _, key := range sortedKeys(m) {
		if p.err != nil {
			return s
		}
		k := &schemaPlace{p, m[key], at + "/" + escape(key), base, depth + 1}
		if onlyRefers && key != "$ref" || p.ignores(key) {
			// It has no effect, but may be wrong, and schemas within it may be referred to.
			k.readKeyword(key, tuple, &subschema{at: at})
		} else {
			p.foreign.note(key)
			k.readKeyword(key, tuple, s)
		}
	}
	return s
}

// ignores reports whether a keyword belongs to the other draft.
func (p *schemaParser) ignores(keyword string) bool {
	switch keyword {
	case "prefixItems", "minContains", "maxContains", "unevaluatedItems", "unevaluatedProperties",
		"dependentSchemas", "dependentRequired":
		return p.draft07
	case "additionalItems", "dependencies":
		return !p.draft07
	}
	return false
}

// schemaKeywords are the keywords that readKeyword knows. It refuses them in another case.
const schemaKeywords = `$ref $dynamicRef $recursiveRef $schema $id $anchor $dynamicAnchor
	$comment title description format contentEncoding contentMediaType type enum examples
	required dependentRequired minimum maximum exclusiveMinimum exclusiveMaximum multipleOf
	minLength maxLength minItems maxItems minProperties maxProperties minContains maxContains
	uniqueItems deprecated readOnly writeOnly pattern not if then else contains propertyNames
	contentSchema additionalItems additionalProperties unevaluatedItems unevaluatedProperties
	items allOf anyOf oneOf prefixItems properties $defs definitions dependentSchemas
	patternProperties dependencies`

// readKeyword sets the field of s for a keyword; tuple says that the items beside it are a list. An
// unknown keyword may have any value.
func (k *schemaPlace) readKeyword(keyword string, tuple bool, s *subschema) {
	switch keyword {
	case "$dynamicRef", "$recursiveRef":
		k.fault(k.at, "dynamic references are not supported; use $ref")
	case "$ref":
		k.refs = append(k.refs, schemaRef{s, k.text(), k.base})
	case "$schema", "$id", "$anchor", "$dynamicAnchor", "$comment", "title", "description",
		"format", "contentEncoding", "contentMediaType":
		k.text()
	case "deprecated", "readOnly", "writeOnly":
		k.boolean()
	case "examples":
		k.list("must be an array")
	case "type":
		s.types = k.types()
	case "enum":
		s.enum = newConstants(k.list("must be an array")...)
	case "const":
		s.constant = newConstants(k.value)
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
		s.bounds = append(s.bounds, k.bound(keyword))
	case "minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains",
		"minProperties", "maxProperties":
		if s.counts == nil {
			s.counts = map[string]int{}
		}
		s.counts[keyword] = k.count()
	case "uniqueItems":
		s.unique = k.boolean()
	case "pattern":
		s.pattern = k.compile(k.text())
	case "required":
		s.required = k.names()
	case "dependentRequired":
		s.dependentRequired = map[string][]string{}
		for name, place := range k.members() {
			s.dependentRequired[name] = place.names()
		}
	default:
		k.readSchemas(keyword, tuple, s)
	}
}

// readSchemas reads the keywords that contain schemas.
func (k *schemaPlace) readSchemas(keyword string, tuple bool, s *subschema) {
	switch keyword {
	case "not":
		s.not = k.schema()
	case "if":
		s.condition = k.schema()
	case "then":
		s.then = k.schema()
	case "else":
		s.orElse = k.schema()
	case "allOf":
		s.allOf = k.schemas()
	case "anyOf":
		s.anyOf = k.schemas()
	case "oneOf":
		s.oneOf = k.schemas()
	case "prefixItems":
		s.tuple = k.schemas()
	case "items":
		k.readItems(tuple, s)
	case "additionalItems":
		if rest := k.schema(); tuple {
			s.items = rest
		}
	case "contains":
		s.contains = k.schema()
	case "unevaluatedItems":
		s.unevaluatedItems = k.schema()
	case "properties":
		s.properties = k.schemasByName()
	case "patternProperties":
		k.readPatternProperties(s)
	case "additionalProperties":
		s.additional = k.schema()
	case "propertyNames":
		s.propertyNames = k.schema()
	case "unevaluatedProperties":
		s.unevaluatedProperties = k.schema()
	case "dependentSchemas":
		s.dependentSchemas = k.schemasByName()
	case "dependencies":
		k.readDependencies(s)
	case "$defs", "definitions":
		k.schemasByName()
	case "contentSchema":
		k.schema()
	default:
		// A keyword in the wrong case would be ignored, and its author would not notice.
		for name := range strings.FieldsSeq(schemaKeywords) {
			if strings.EqualFold(name, keyword) {
				k.fault(k.at, "is no keyword; write %q", name)
			}
		}
	}
}

func (k *schemaPlace) readItems(tuple bool, s *subschema) {
	if !tuple {
		s.items = k.schema()
	} else if list := k.schemas(); k.draft07 { // 2020-12 ignores a list
		s.tuple = list
	}
}

func (k *schemaPlace) readDependencies(s *subschema) {
	s.dependentRequired, s.dependentSchemas = map[string][]string{}, map[string]*subschema{}
	for name, place := range k.members() {
		if _, list := place.value.([]any); list {
			s.dependentRequired[name] = place.names()
		} else {
			s.dependentSchemas[name] = place.schema()
		}
	}
}

func (k *schemaPlace) readPatternProperties(s *subschema) {
	for name, place := range k.members() {
		schema := place.schema()
		if pattern := place.compile(name); pattern != nil {
			s.patternProperties = append(s.patternProperties, patternProperty{pattern, schema})
		} else {
			k.foreign.inNames = true
		}
	}
}

// schemaPlace is a place in a schema and the value there. Its methods return empty values for a
// value of the wrong kind.
type schemaPlace struct {
	*schemaParser
	value any
	at    string
	base  *schemaBase
	depth int
}

// within returns the place of a part of the value.
func (k *schemaPlace) within(name string, v any) *schemaPlace {
	return &schemaPlace{k.schemaParser, v, k.at + "/" + escape(name), k.base, k.depth}
}

func (k *schemaPlace) text() string {
	s, ok := k.value.(string)
	if !ok {
		k.fault(k.at, "must be a string")
	}
	return s
}

func (k *schemaPlace) boolean() bool {
	b, ok := k.value.(bool)
	if !ok {
		k.fault(k.at, "must be true or false")
	}
	return b
}

func (k *schemaPlace) number() *big.Rat {
	text, ok := k.value.(json.Number)
	if !ok {
		k.fault(k.at, "must be a number")
		return new(big.Rat)
	}
	n, err := exactNumber(text.String())
	if err != nil {
		k.fault(k.at, "%v", err)
		return new(big.Rat)
	}
	return n
}

// count reads a number of characters, items or members.
func (k *schemaPlace) count() int {
	n := k.number()
	i := n.Num().Int64()
	if !n.IsInt() || !n.Num().IsInt64() || i < 0 || i > math.MaxInt32 {
		k.fault(k.at, "must be a whole number, at least 0")
	}
	return int(i)
}

func (k *schemaPlace) bound(keyword string) bound {
	n := k.number()
	if keyword == "multipleOf" && n.Sign() <= 0 {
		k.fault(k.at, "must be greater than 0")
	}
	return bound{keyword, n, fmt.Sprint(k.value)}
}

// list returns the values of an array; fault is for another value.
func (k *schemaPlace) list(fault string) []any {
	list, ok := k.value.([]any)
	if !ok {
		k.fault(k.at, "%s", fault)
	}
	return list
}

// items returns the places in an array; fault is for another value.
func (k *schemaPlace) items(fault string) iter.Seq[*schemaPlace] {
	list := k.list(fault)
	return func(yield func(*schemaPlace) bool) {
		for i, v := range list {
			if !yield(k.within(strconv.Itoa(i), v)) {
				return
			}
		}
	}
}

// members returns the names of an object, sorted, and the places in it.
func (k *schemaPlace) members() iter.Seq2[string, *schemaPlace] {
	m, ok := k.value.(map[string]any)
	if !ok {
		k.fault(k.at, "must be an object")
	}
	return func(yield func(string, *schemaPlace) bool) {
		for _, name := range sortedKeys(m) {
			if !yield(name, k.within(name, m[name])) {
				return
			}
		}
	}
}

func (k *schemaPlace) names() (names []string) {
	for place := range k.items("must be an array of strings") {
		names = append(names, place.text())
	}
	return names
}

// types reads a type or a list of them.
func (k *schemaPlace) types() (types []string) {
	if list, ok := k.value.([]any); !ok || len(list) == 0 {
		return []string{k.typeName()}
	}
	for place := range k.items("") {
		types = append(types, place.typeName())
	}
	return types
}

func (k *schemaPlace) typeName() string {
	switch k.value {
	case "object", "array", "string", "number", "integer", "boolean", "null":
		return k.value.(string)
	}
	k.fault(k.at, "must be object, array, string, number, integer, boolean or null")
	return ""
}

func (k *schemaPlace) schema() *subschema { return k.read(k.value, k.at, k.base, k.depth) }

func (k *schemaPlace) schemas() (list []*subschema) {
	const fault = "must be an array of schemas, and not empty"
	for place := range k.items(fault) {
		list = append(list, place.schema())
	}
	if len(list) == 0 {
		k.fault(k.at, fault)
	}
	return list
}

func (k *schemaPlace) schemasByName() map[string]*subschema {
	schemas := map[string]*subschema{}
	for name, place := range k.members() {
		schemas[name] = place.schema()
	}
	return schemas
}

// compile compiles a pattern. It returns nil for a foreign one.
func (k *schemaPlace) compile(expr string) *pattern {
	re, err := goregexp.Parse(expr, goregexp.Perl)
	if maybeJavaScript(err) {
		k.foreign.found = true
		return nil
	}
	var prog *goregexp.Prog
	if err == nil {
		prog, err = goregexp.Compile(re.Simplify())
	}
	if err != nil {
		k.fault(k.at, "is not a pattern that can be checked: %v", oneLine(err))
		return nil
	}
	if k.programs += len(prog.Inst); k.programs > maxPrograms {
		k.fault(k.at, "the patterns of this schema are too large together; repeat less in them")
		return nil
	}
	return &pattern{regexp.MustCompile(expr), len(prog.Inst)}
}

// escape writes a name as a part of a JSON pointer.
func escape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// foreign describes the patterns of a schema that JavaScript accepts and Go's engine does not:
// look-around, back references, \u escapes. Only Go's engine is safe on any text. So the parser
// leaves these patterns out, to the provider. mayRefuseMore reports when the rest of such a schema
// can't be used.
type foreign struct {
	found       bool
	inNames     bool // a pattern chooses properties by their names
	inverts     bool // the schema accepts a value that one within refuses, or counts such values
	bindsOthers bool // the schema bounds the properties that no pattern chooses
}

// note notes a keyword of the schema.
func (f *foreign) note(keyword string) {
	switch keyword {
	case "not", "if", "oneOf", "maxContains", "unevaluatedItems", "unevaluatedProperties":
		f.inverts = true
	case "additionalProperties":
		f.bindsOthers = true
	}
}

// mayRefuseMore reports whether the schema without the removed patterns may refuse a value that it
// accepts with them.
func (f *foreign) mayRefuseMore() bool {
	return f.found && (f.inverts || f.inNames && f.bindsOthers)
}

// maybeJavaScript reports whether a pattern that Go's engine refuses may be one of JavaScript's.
func maybeJavaScript(err error) bool {
	e, ok := errors.AsType[*goregexp.Error](err)
	if !ok {
		return false
	}
	switch e.Code {
	case goregexp.ErrInvalidPerlOp, goregexp.ErrInvalidEscape, goregexp.ErrInvalidCharRange,
		goregexp.ErrInvalidNamedCapture, goregexp.ErrInvalidRepeatSize:
		return true
	}
	return false
}
