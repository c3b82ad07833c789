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

// Bounds of a tool's schema. The check follows each reference whenever it meets it and does not notice a loop, so
// without bounds one schema could stop the gateway.
const (
	maxSchemaDepth = 64      // levels of schemas within schemas
	maxSchemaSteps = 1000    // schemas that check one value
	maxPrograms    = 100_000 // instructions of all compiled patterns together
)

// shape is the kind of value that a keyword of JSON Schema takes.
type shape int

const (
	shapeText shape = iota
	shapeNumber
	shapePositive
	shapeCount
	shapeBool
	shapeType
	shapePattern
	shapeList
	shapeTexts
	shapeTextsByName
	shapeSchema
	shapeSchemaOrList
	shapeSchemaList
	shapeSchemaByName
	shapeSchemaByPattern
	shapeSchemaOrTextsByName
	shapeRef
)

// keywords are those that the check of arguments uses, and those that contain schemas. Other keywords may have any
// value.
var keywords = map[string]shape{
	"$schema": shapeText, "$id": shapeText, "$anchor": shapeText, "$dynamicAnchor": shapeText, "$comment": shapeText,
	"$ref":  shapeRef,
	"title": shapeText, "description": shapeText, "format": shapeText, "contentEncoding": shapeText,
	"contentMediaType": shapeText,
	"type":             shapeType, "enum": shapeList, "examples": shapeList, "required": shapeTexts,
	"dependentRequired": shapeTextsByName,
	"minimum":           shapeNumber, "maximum": shapeNumber, "exclusiveMinimum": shapeNumber,
	"exclusiveMaximum": shapeNumber,
	"multipleOf":       shapePositive,
	"minLength":        shapeCount, "maxLength": shapeCount, "minItems": shapeCount, "maxItems": shapeCount,
	"minProperties": shapeCount,
	"maxProperties": shapeCount,
	"minContains":   shapeCount, "maxContains": shapeCount,
	"uniqueItems": shapeBool, "deprecated": shapeBool, "readOnly": shapeBool, "writeOnly": shapeBool,
	"pattern": shapePattern,
	"not":     shapeSchema, "if": shapeSchema, "then": shapeSchema, "else": shapeSchema, "contains": shapeSchema,
	"propertyNames":   shapeSchema,
	"contentSchema":   shapeSchema,
	"additionalItems": shapeSchema, "additionalProperties": shapeSchema, "unevaluatedItems": shapeSchema,
	"unevaluatedProperties": shapeSchema,
	"items":                 shapeSchemaOrList, "allOf": shapeSchemaList, "anyOf": shapeSchemaList,
	"oneOf":       shapeSchemaList,
	"prefixItems": shapeSchemaList,
	"properties":  shapeSchemaByName, "$defs": shapeSchemaByName, "definitions": shapeSchemaByName,
	"dependentSchemas":  shapeSchemaByName,
	"patternProperties": shapeSchemaByPattern, "dependencies": shapeSchemaOrTextsByName,
}

// inPlace are the keywords whose schemas check the value itself and not a part of it.
var inPlace = map[string]bool{"not": true, "if": true, "then": true, "else": true, "allOf": true, "anyOf": true,
	"oneOf":            true,
	"dependentSchemas": true, "dependencies": true}

// inspector walks a schema and refuses what is wrong in it. Places are JSON pointers.
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
	base    *node // the nearest schema around with an $id, or the root; references are relative to it
	uri     *url.URL
	anchors map[string]*node // of a base, by name
	steps   int              // schemas that check one value from here on; 0 before, -1 while countSteps counts

	next       []*node          // check the same value
	properties map[string]*node // check the members of these names
	tuple      []*node          // check the elements at these indices
	parts      []*node          // may check any member or element

	schema       any // nil once requirements is built
	requirements *requirements

	fixedCost int // cost of its keywords whatever the value, see addCost
	program   int // instructions of its pattern
	names     int // instructions of its patterns for names
}

// attach notes which values the schema of a keyword within checks.
func (n *node) attach(key, name string, child *node) {
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

// faultAt makes an error about a place in the schema; the place of the root is "".
func faultAt(at, format string, args ...any) error {
	if at == "" {
		return fmt.Errorf(format, args...)
	}
	return fmt.Errorf("%s: %s", at, fmt.Sprintf(format, args...))
}

// inspect checks that raw is a schema within the bounds; the error names the place. The doc that it returns lacks the
// patterns that Go can't check.
func inspect(raw Raw) (*inspector, error) {
	var doc any
	if err := decodeNumbers(raw, &doc); err != nil {
		return nil, oneLine(err)
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
	if err := in.resolveRefs(); err != nil {
		return nil, err
	}
	if err := in.checkSteps(); err != nil {
		return nil, err
	}
	in.buildRequirements()
	return in, nil
}

func (in *inspector) root() *node { return in.nodes[""] }

func knownDraft(v string) bool {
	v = strings.TrimSuffix(v, "#")
	v = strings.TrimPrefix(strings.TrimPrefix(v, "https://"), "http://")
	return v == "" || v == "json-schema.org/draft-07/schema" || v == "json-schema.org/draft/2020-12/schema"
}

// schema inspects one schema and all schemas within it.
func (in *inspector) schema(v any, at string, base *node, depth int) (*node, error) {
	n := &node{at: at, base: base, schema: v}
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
	if _, refers := m["$ref"]; !refers || !in.draft07 { // draft-07 ignores keywords beside a reference
		if err := in.identify(n, m); err != nil {
			return nil, err
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if key == "$dynamicRef" || key == "$recursiveRef" {
			return nil, faultAt(at+"/"+key, "dynamic references are not supported in a tool's parameters; use $ref")
		}
		n.addCost(key, m[key])
		want, known := keywords[key]
		if !known {
			// A keyword in the wrong case would be ignored, and its author would not notice.
			if meant, ok := keywordInOtherCase(key); ok {
				return nil, faultAt(at+"/"+key, "is no keyword; write %q", meant)
			}
			continue
		}
		in.foreign.note(key)
		if want == shapePattern {
			size, err := in.pattern(m[key], at+"/"+key)
			if err != nil {
				return nil, err
			}
			if n.program = size; size == 0 {
				delete(m, key)
			}
			continue
		}
		if err := in.keyword(n, key, want, m[key], depth); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// keyword inspects the value of one keyword.
func (in *inspector) keyword(n *node, key string, what shape, v any, depth int) error {
	at := n.at + "/" + escape(key)
	within := func(v any, at, name string) error {
		child, err := in.schema(v, at, n.base, depth+1)
		if err == nil {
			n.attach(key, name, child)
		}
		return err
	}
	switch what {
	case shapeSchema:
		return within(v, at, "")
	case shapeSchemaOrList:
		if list, ok := v.([]any); ok {
			return each(list, at, within)
		}
		return within(v, at, "")
	case shapeSchemaList:
		list, ok := v.([]any)
		if !ok || len(list) == 0 {
			return faultAt(at, "must be an array of schemas, and not empty")
		}
		return each(list, at, within)
	case shapeSchemaByName, shapeSchemaByPattern, shapeSchemaOrTextsByName, shapeTextsByName:
		return in.byName(n, v, at, what, within)
	case shapeRef:
		var ok bool
		if n.ref, ok = v.(string); !ok {
			return faultAt(at, "must be a string")
		}
		return nil
	}
	return checkPlain(v, at, what)
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

// byName inspects an object whose members are schemas or lists of names.
func (in *inspector) byName(n *node, v any, at string, what shape, within func(v any, at, name string) error) error {
	m, ok := v.(map[string]any)
	if !ok {
		return faultAt(at, "must be an object")
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		here := at + "/" + escape(name)
		_, list := m[name].([]any)
		var err error
		if what == shapeTextsByName || (what == shapeSchemaOrTextsByName && list) {
			err = checkPlain(m[name], here, shapeTexts)
		} else {
			err = within(m[name], here, name)
		}
		if err != nil {
			return err
		}
		if what == shapeSchemaByPattern {
			size, err := in.pattern(name, here)
			if err != nil {
				return err
			}
			if n.names += size; size == 0 {
				delete(m, name)
				in.foreign.inNames = true
			}
		}
	}
	return nil
}

// mostCounted bounds the counts of characters, items and members.
var mostCounted = big.NewRat(math.MaxInt32, 1)

// checkPlain checks the value of a keyword that contains no schema.
func checkPlain(v any, at string, what shape) error {
	switch what {
	case shapeText:
		if _, ok := v.(string); !ok {
			return faultAt(at, "must be a string")
		}
	case shapeBool:
		if _, ok := v.(bool); !ok {
			return faultAt(at, "must be true or false")
		}
	case shapeNumber, shapePositive, shapeCount:
		text, ok := v.(json.Number)
		if !ok {
			return faultAt(at, "must be a number")
		}
		n, err := exactNumber(text.String())
		switch {
		case err != nil:
			return faultAt(at, "%v", err)
		case what == shapePositive && n.Sign() <= 0:
			return faultAt(at, "must be greater than 0")
		case what == shapeCount && (n.Sign() < 0 || !n.IsInt() || n.Cmp(mostCounted) > 0):
			return faultAt(at, "must be a whole number, at least 0")
		}
	case shapeList:
		if _, ok := v.([]any); !ok {
			return faultAt(at, "must be an array")
		}
	case shapeTexts:
		list, ok := v.([]any)
		if !ok {
			return faultAt(at, "must be an array of strings")
		}
		return each(list, at, func(v any, at, _ string) error { return checkPlain(v, at, shapeText) })
	case shapeType:
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

// keywordInOtherCase finds the keyword that differs from key in case only.
func keywordInOtherCase(key string) (keyword string, ok bool) {
	for k := range keywords {
		if strings.EqualFold(k, key) {
			return k, true
		}
	}
	return "", strings.EqualFold(key, "$dynamicRef") || strings.EqualFold(key, "$recursiveRef")
}
