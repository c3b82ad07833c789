package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// What a tool's schema may be at most. The schema library follows every
// reference as often as it meets it and does not notice when that never ends:
// one schema could stop the gateway.
const (
	maxSchemaDepth = 64   // levels of schemas within schemas
	maxSchemaSteps = 1000 // schemas that one value is held against
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
	"minimum": aNumber, "maximum": aNumber, "exclusiveMinimum": aNumber, "exclusiveMaximum": aNumber, "multipleOf": aPositive,
	"minLength": aCount, "maxLength": aCount, "minItems": aCount, "maxItems": aCount, "minProperties": aCount, "maxProperties": aCount,
	"minContains": aCount, "maxContains": aCount,
	"uniqueItems": aBool, "deprecated": aBool, "readOnly": aBool, "writeOnly": aBool, "pattern": aPattern,
	"not": aSchema, "if": aSchema, "then": aSchema, "else": aSchema, "contains": aSchema, "propertyNames": aSchema, "contentSchema": aSchema,
	"additionalItems": aSchema, "additionalProperties": aSchema, "unevaluatedItems": aSchema, "unevaluatedProperties": aSchema,
	"items": aSchemaOrList, "allOf": aSchemaList, "anyOf": aSchemaList, "oneOf": aSchemaList, "prefixItems": aSchemaList,
	"properties": aSchemaByName, "$defs": aSchemaByName, "definitions": aSchemaByName, "dependentSchemas": aSchemaByName,
	"patternProperties": aSchemaByPattern, "dependencies": aSchemaOrTextsByName,
}

// inPlace are the keywords whose schemas are held against the value itself, not
// against a part of it.
var inPlace = map[string]bool{"not": true, "if": true, "then": true, "else": true, "allOf": true, "anyOf": true, "oneOf": true,
	"dependentSchemas": true, "dependencies": true}

// inspector walks a schema. Places are JSON pointers.
type inspector struct {
	nodes map[string]*node // by place
	ids   map[string]*node // by absolute $id
}

// node is one schema within a schema.
type node struct {
	at      string
	ref     string
	base    *node // the nearest with an $id, or the root: what references begin at
	uri     *url.URL
	anchors map[string]*node // of a base
	next    []*node          // held against the same value
	state   int              // 0 not counted, -1 being counted, else the count
}

// faultAt says what is wrong at a place; the root's is empty.
func faultAt(at, format string, args ...any) error {
	if at == "" {
		return fmt.Errorf(format, args...)
	}
	return fmt.Errorf("%s: %s", at, fmt.Sprintf(format, args...))
}

// inspect refuses what the schema library would take for a schema, or refuse
// without saying where.
func inspect(raw Raw) error {
	var doc any
	if err := json.Unmarshal(raw, &doc); err != nil {
		return brief(err)
	}
	m, ok := doc.(map[string]any)
	if !ok {
		return errors.New("must be an object")
	}
	if v, ok := m["$schema"].(string); ok && !knownDraft(v) {
		return fmt.Errorf("/$schema: %.100q is not supported; use 2020-12 or draft-07, or leave it out", v)
	}
	in := &inspector{nodes: map[string]*node{}, ids: map[string]*node{}}
	if _, err := in.schema(m, "", nil, 0); err != nil {
		return err
	}
	if err := in.link(); err != nil {
		return err
	}
	return in.bounded()
}

func knownDraft(v string) bool {
	v = strings.TrimSuffix(v, "#")
	v = strings.TrimPrefix(strings.TrimPrefix(v, "https://"), "http://")
	return v == "" || v == "json-schema.org/draft-07/schema" || v == "json-schema.org/draft/2020-12/schema"
}

// schema looks at one schema and all within it.
func (in *inspector) schema(v any, at string, base *node, depth int) (*node, error) {
	n := &node{at: at, base: base}
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
	if err := in.identify(n, m); err != nil {
		return nil, err
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if key == "$dynamicRef" || key == "$recursiveRef" {
			return nil, faultAt(at+"/"+key, "dynamic references are not supported in a tool's parameters; use $ref")
		}
		what, known := keywords[key]
		if !known {
			// The library reads keys as encoding/json does, whatever their
			// case: what is looked at here must be what it sees.
			if meant, alike := alike(key); alike {
				return nil, faultAt(at+"/"+key, "is no keyword; write %q", meant)
			}
			continue
		}
		if err := in.keyword(n, key, what, m[key], depth); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// identify gives a schema the names that references may use.
func (in *inspector) identify(n *node, m map[string]any) error {
	id, ok := m["$id"].(string)
	if name, anchor := strings.CutPrefix(id, "#"); anchor { // draft-07
		n.base.anchors[name] = n
	} else if ok {
		u, err := url.Parse(id)
		if err != nil {
			return faultAt(n.at+"/$id", "must be a URI")
		}
		u = n.base.uri.ResolveReference(u)
		n.base, n.uri, n.anchors = n, u, map[string]*node{}
		in.ids[withoutFragment(u)] = n
	}
	for _, key := range []string{"$anchor", "$dynamicAnchor"} {
		if a, ok := m[key].(string); ok {
			n.base.anchors[a] = n
		}
	}
	return nil
}

func withoutFragment(u *url.URL) string {
	v := *u
	v.Fragment, v.RawFragment = "", ""
	return v.String()
}

// keyword looks at the value of one keyword.
func (in *inspector) keyword(n *node, key string, what shape, v any, depth int) error {
	at := n.at + "/" + escape(key)
	within := func(v any, at string) error {
		child, err := in.schema(v, at, n.base, depth+1)
		if err == nil && inPlace[key] {
			n.next = append(n.next, child)
		}
		return err
	}
	switch what {
	case aSchema:
		return within(v, at)
	case aSchemaOrList:
		if list, ok := v.([]any); ok {
			return each(list, at, within)
		}
		return within(v, at)
	case aSchemaList:
		list, ok := v.([]any)
		if !ok || len(list) == 0 {
			return faultAt(at, "must be an array of schemas, and not empty")
		}
		return each(list, at, within)
	case aSchemaByName, aSchemaByPattern, aSchemaOrTextsByName, aTextsByName:
		return byName(v, at, what, within)
	case aRef:
		var ok bool
		if n.ref, ok = v.(string); !ok {
			return faultAt(at, "must be a string")
		}
		return nil
	}
	return plain(v, at, what)
}

func each(list []any, at string, do func(any, string) error) error {
	for i, v := range list {
		if err := do(v, at+"/"+strconv.Itoa(i)); err != nil {
			return err
		}
	}
	return nil
}

// byName looks at an object whose members are schemas, or lists of names.
func byName(v any, at string, what shape, within func(any, string) error) error {
	m, ok := v.(map[string]any)
	if !ok {
		return faultAt(at, "must be an object")
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		here := at + "/" + escape(name)
		if what == aSchemaByPattern {
			if err := plain(name, here, aPattern); err != nil {
				return err
			}
		}
		_, list := m[name].([]any)
		var err error
		if what == aTextsByName || (what == aSchemaOrTextsByName && list) {
			err = plain(m[name], here, aTexts)
		} else {
			err = within(m[name], here)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// plain looks at a value that holds no schema.
func plain(v any, at string, what shape) error {
	switch what {
	case aText:
		if _, ok := v.(string); !ok {
			return faultAt(at, "must be a string")
		}
	case aPattern:
		s, ok := v.(string)
		if !ok {
			return faultAt(at, "must be a string")
		}
		if _, err := regexp.Compile(s); err != nil {
			return faultAt(at, "is not a pattern that can be checked: %v", brief(err))
		}
	case aBool:
		if _, ok := v.(bool); !ok {
			return faultAt(at, "must be true or false")
		}
	case aNumber, aPositive, aCount:
		f, ok := v.(float64)
		switch {
		case !ok:
			return faultAt(at, "must be a number")
		case what == aPositive && f <= 0:
			return faultAt(at, "must be greater than 0")
		case what == aCount && (f < 0 || f != math.Trunc(f) || f > math.MaxInt32):
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
		return each(list, at, func(v any, at string) error { return plain(v, at, aText) })
	case aType:
		if list, ok := v.([]any); ok && len(list) > 0 {
			return each(list, at, typeName)
		}
		return typeName(v, at)
	}
	return nil
}

func typeName(v any, at string) error {
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

// link finds what every reference refers to.
func (in *inspector) link() error {
	for _, at := range slices.Sorted(maps.Keys(in.nodes)) {
		n := in.nodes[at]
		if n.ref == "" {
			continue
		}
		target := in.find(n)
		if target == nil {
			return faultAt(at+"/$ref", "%.100q is not in this schema", n.ref)
		}
		n.next = append(n.next, target)
	}
	return nil
}

// find is the schema that a node's reference refers to; nil for none.
func (in *inspector) find(n *node) *node {
	u, err := url.Parse(n.ref)
	if err != nil {
		return nil
	}
	base := n.base
	if !strings.HasPrefix(n.ref, "#") {
		if base = in.ids[withoutFragment(n.base.uri.ResolveReference(u))]; base == nil {
			return nil
		}
	}
	switch {
	case u.Fragment == "":
		return base
	case u.Fragment[0] == '/':
		return in.nodes[base.at+u.Fragment]
	}
	return base.anchors[u.Fragment]
}

// bounded refuses a schema that would be followed for ever, or for too long,
// from any of its parts.
func (in *inspector) bounded() error {
	for _, at := range slices.Sorted(maps.Keys(in.nodes)) {
		if err := in.nodes[at].count(); err != nil {
			return err
		}
	}
	return nil
}

// count adds up the schemas that one value is held against from here.
func (n *node) count() error {
	switch {
	case n.state > 0:
		return nil
	case n.state < 0:
		return faultAt(n.at, "refers to itself without an end")
	}
	n.state = -1
	steps := 1
	for _, next := range n.next {
		if err := next.count(); err != nil {
			return err
		}
		if steps += next.state; steps > maxSchemaSteps {
			return faultAt(n.at, "too many schemas are combined here: more than %d for one value", maxSchemaSteps)
		}
	}
	n.state = steps
	return nil
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
