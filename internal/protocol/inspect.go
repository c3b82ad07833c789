package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// What a tool's schema may be at most. The check follows every reference as often
// as it meets it and does not notice when that never ends: one schema could stop
// the gateway.
const (
	maxSchemaDepth = 64      // levels of schemas within schemas
	maxSchemaSteps = 1000    // schemas that one value is held against
	maxPrograms    = 100_000 // instructions of all its patterns, compiled
)

// shape says what a keyword of JSON Schema may hold.
type shape int

const (
	aText shape = iota
	aNumber
	aPositive
	aCount
	aBool
	aType
	aPattern
	aList
	aTexts
	aTextsByName
	aSchema
	aSchemaOrList
	aSchemaList
	aSchemaByName
	aSchemaByPattern
	aSchemaOrTextsByName
	aRef
)

// keywords are those that mean something to the check of arguments, and those
// that hold schemas. All others may be anything.
var keywords = map[string]shape{
	"$schema": aText, "$id": aText, "$anchor": aText, "$dynamicAnchor": aText, "$comment": aText, "$ref": aRef,
	"title": aText, "description": aText, "format": aText, "contentEncoding": aText, "contentMediaType": aText,
	"type": aType, "enum": aList, "examples": aList, "required": aTexts, "dependentRequired": aTextsByName,
	"minimum": aNumber, "maximum": aNumber, "exclusiveMinimum": aNumber, "exclusiveMaximum": aNumber,
	"multipleOf": aPositive,
	"minLength":  aCount, "maxLength": aCount, "minItems": aCount, "maxItems": aCount, "minProperties": aCount,
	"maxProperties": aCount,
	"minContains":   aCount, "maxContains": aCount,
	"uniqueItems": aBool, "deprecated": aBool, "readOnly": aBool, "writeOnly": aBool, "pattern": aPattern,
	"not": aSchema, "if": aSchema, "then": aSchema, "else": aSchema, "contains": aSchema, "propertyNames": aSchema,
	"contentSchema":   aSchema,
	"additionalItems": aSchema, "additionalProperties": aSchema, "unevaluatedItems": aSchema,
	"unevaluatedProperties": aSchema,
	"items":                 aSchemaOrList, "allOf": aSchemaList, "anyOf": aSchemaList, "oneOf": aSchemaList,
	"prefixItems": aSchemaList,
	"properties":  aSchemaByName, "$defs": aSchemaByName, "definitions": aSchemaByName,
	"dependentSchemas":  aSchemaByName,
	"patternProperties": aSchemaByPattern, "dependencies": aSchemaOrTextsByName,
}

// inPlace are the keywords whose schemas are held against the value itself, not
// against a part of it.
var inPlace = map[string]bool{"not": true, "if": true, "then": true, "else": true, "allOf": true, "anyOf": true,
	"oneOf":            true,
	"dependentSchemas": true, "dependencies": true}

// inspector walks a schema. Places are JSON pointers.
type inspector struct {
	doc      map[string]any
	draft07  bool
	nodes    map[string]*node // by place
	ids      map[string]*node // by absolute $id
	programs int
	foreign  foreign
}

// node is one schema within a schema.
type node struct {
	at      string
	ref     string
	base    *node // the nearest with an $id, or the root: what references begin at
	uri     *url.URL
	anchors map[string]*node // of a base
	state   int              // 0 not counted, -1 being counted, else the count

	next       []*node          // held against the same value
	properties map[string]*node // against the members of these names
	tuple      []*node          // against the elements of these numbers
	parts      []*node          // against any member or element, maybe

	says any   // the schema; nil when there is a rule
	rule *rule // of it

	weight  int // of its keywords, see [node.weigh]
	program int // instructions of its pattern
	names   int // instructions of its patterns for names
}

// hold notes what a schema within is held against.
func (n *node) hold(key, name string, child *node) {
	switch {
	case inPlace[key]:
		n.next = append(n.next, child)
	case key == "properties":
		if n.properties == nil {
			n.properties = map[string]*node{}
		}
		n.properties[name] = child
	case name != "" && (key == "items" || key == "prefixItems"):
		n.tuple = append(n.tuple, child)
	case key == "$defs" || key == "definitions" || key == "contentSchema":
	default:
		n.parts = append(n.parts, child)
	}
}

// faultAt says what is wrong at a place; the root's is empty.
func faultAt(at, format string, args ...any) error {
	if at == "" {
		return fmt.Errorf(format, args...)
	}
	return fmt.Errorf("%s: %s", at, fmt.Sprintf(format, args...))
}

// inspect refuses what is no schema, by its place. Of what it returns, doc lacks
// the patterns that can't be checked.
func inspect(raw Raw) (*inspector, error) {
	var doc any
	if err := decodeNumbers(raw, &doc); err != nil {
		return nil, brief(err)
	}
	m, ok := doc.(map[string]any)
	if !ok {
		return nil, errors.New("must be an object")
	}
	if v, ok := m["$schema"].(string); ok && !knownDraft(v) {
		return nil, fmt.Errorf("/$schema: %.100q is not supported; use 2020-12 or draft-07, or leave it out", v)
	}
	draft, _ := m["$schema"].(string)
	in := &inspector{doc: m, draft07: strings.Contains(draft, "draft-07"), nodes: map[string]*node{},
		ids: map[string]*node{}}
	if _, err := in.schema(m, "", nil, 0); err != nil {
		return nil, err
	}
	if err := in.link(); err != nil {
		return nil, err
	}
	if err := in.bounded(); err != nil {
		return nil, err
	}
	in.rules()
	return in, nil
}

// root is the whole schema.
func (in *inspector) root() *node { return in.nodes[""] }

func knownDraft(v string) bool {
	v = strings.TrimSuffix(v, "#")
	v = strings.TrimPrefix(strings.TrimPrefix(v, "https://"), "http://")
	return v == "" || v == "json-schema.org/draft-07/schema" || v == "json-schema.org/draft/2020-12/schema"
}

// schema looks at one schema and all within it.
func (in *inspector) schema(v any, at string, base *node, depth int) (*node, error) {
	n := &node{at: at, base: base, says: v}
	in.nodes[at] = n
	if _, ok := v.(bool); ok && base != nil {
		return n, nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, faultAt(at, "must be a schema (an object, true or false)")
	}
	if depth > maxSchemaDepth {
		return nil, faultAt(at, "schemas are nested more than %d deep", maxSchemaDepth)
	}
	if base == nil {
		n.base, n.uri, n.anchors = n, new(url.URL), map[string]*node{}
	}
	if _, refers := m["$ref"]; !refers || !in.draft07 { // there what is beside a reference says nothing
		if err := in.identify(n, m); err != nil {
			return nil, err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if key == "$dynamicRef" || key == "$recursiveRef" {
			return nil, faultAt(at+"/"+key, "dynamic references are not supported in a tool's parameters; use $ref")
		}
		n.weigh(key, m[key])
		what, known := keywords[key]
		if !known {
			// The library reads keys as encoding/json does, whatever their
			// case: what is looked at here must be what it sees.
			if meant, alike := alike(key); alike {
				return nil, faultAt(at+"/"+key, "is no keyword; write %q", meant)
			}
			continue
		}
		in.foreign.note(key)
		if what == aPattern {
			size, err := in.pattern(m[key], at+"/"+key)
			if err != nil {
				return nil, err
			}
			if n.program = size; size == 0 {
				delete(m, key)
			}
			continue
		}
		if err := in.keyword(n, key, what, m[key], depth); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// keyword looks at the value of one keyword.
func (in *inspector) keyword(n *node, key string, what shape, v any, depth int) error {
	at := n.at + "/" + escape(key)
	within := func(v any, at, name string) error {
		child, err := in.schema(v, at, n.base, depth+1)
		if err == nil {
			n.hold(key, name, child)
		}
		return err
	}
	switch what {
	case aSchema:
		return within(v, at, "")
	case aSchemaOrList:
		if list, ok := v.([]any); ok {
			return each(list, at, within)
		}
		return within(v, at, "")
	case aSchemaList:
		list, ok := v.([]any)
		if !ok || len(list) == 0 {
			return faultAt(at, "must be an array of schemas, and not empty")
		}
		return each(list, at, within)
	case aSchemaByName, aSchemaByPattern, aSchemaOrTextsByName, aTextsByName:
		return in.byName(n, v, at, what, within)
	case aRef:
		var ok bool
		if n.ref, ok = v.(string); !ok {
			return faultAt(at, "must be a string")
		}
		return nil
	}
	return plain(v, at, what)
}

func each(list []any, at string, do func(v any, at, name string) error) error {
	for i, v := range list {
		number := strconv.Itoa(i)
		if err := do(v, at+"/"+number, number); err != nil {
			return err
		}
	}
	return nil
}

// byName looks at an object whose members are schemas, or lists of names.
func (in *inspector) byName(n *node, v any, at string, what shape, within func(v any, at, name string) error) error {
	m, ok := v.(map[string]any)
	if !ok {
		return faultAt(at, "must be an object")
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		here := at + "/" + escape(name)
		_, list := m[name].([]any)
		var err error
		if what == aTextsByName || (what == aSchemaOrTextsByName && list) {
			err = plain(m[name], here, aTexts)
		} else {
			err = within(m[name], here, name)
		}
		if err != nil {
			return err
		}
		if what == aSchemaByPattern {
			size, err := in.pattern(name, here)
			if err != nil {
				return err
			}
			if n.names += size; size == 0 {
				delete(m, name)
				in.foreign.names = true
			}
		}
	}
	return nil
}

// mostCounted bounds counts of letters, items and members.
var mostCounted = big.NewRat(math.MaxInt32, 1)

// plain looks at a value that holds no schema.
func plain(v any, at string, what shape) error {
	switch what {
	case aText:
		if _, ok := v.(string); !ok {
			return faultAt(at, "must be a string")
		}
	case aBool:
		if _, ok := v.(bool); !ok {
			return faultAt(at, "must be true or false")
		}
	case aNumber, aPositive, aCount:
		text, ok := v.(json.Number)
		if !ok {
			return faultAt(at, "must be a number")
		}
		n, err := exact(text.String())
		switch {
		case err != nil:
			return faultAt(at, "%v", err)
		case what == aPositive && n.Sign() <= 0:
			return faultAt(at, "must be greater than 0")
		case what == aCount && (n.Sign() < 0 || !n.IsInt() || n.Cmp(mostCounted) > 0):
			return faultAt(at, "must be a whole number, at least 0")
		}
	case aList:
		if _, ok := v.([]any); !ok {
			return faultAt(at, "must be an array")
		}
	case aTexts:
		list, ok := v.([]any)
		if !ok {
			return faultAt(at, "must be an array of strings")
		}
		return each(list, at, func(v any, at, _ string) error { return plain(v, at, aText) })
	case aType:
		if list, ok := v.([]any); ok && len(list) > 0 {
			return each(list, at, typeName)
		}
		return typeName(v, at, "")
	}
	return nil
}

func typeName(v any, at, _ string) error {
	switch v {
	case "object", "array", "string", "number", "integer", "boolean", "null":
		return nil
	}
	return faultAt(at, "must be object, array, string, number, integer, boolean or null")
}

// escape writes a name as a part of a JSON pointer.
func escape(name string) string {
	return strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1")
}

// alike finds the keyword that a key differs from in case only.
func alike(key string) (keyword string, ok bool) {
	for k := range keywords {
		if strings.EqualFold(k, key) {
			return k, true
		}
	}
	return "", strings.EqualFold(key, "$dynamicRef") || strings.EqualFold(key, "$recursiveRef")
}
