package copilot

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"

	"tapgw/internal/protocol"
)

// parameters makes of a tool's schema one that reaches the model, keeping its numbers
// as they are written.
//
// The runtime drops, without a word, a tool whose schema has no "type": "object" of its
// own. Arguments are an object in any case: the gateway checks them against the schema
// as the provider wrote it. And of alternatives, references and the like at the top it
// keeps the properties of the first alternative, or nothing. So all that they name
// become properties, and the description says the rest, as the runtime does itself with
// what model endpoints don't take.
func parameters(raw protocol.Raw) (map[string]any, error) {
	if len(raw) == 0 {
		return map[string]any{"type": "object", "properties": map[string]any{}}, nil
	}
	var schema map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&schema); err != nil {
		return nil, err
	}
	if schema == nil {
		schema = map[string]any{}
	}
	if said := lostText(schema); len(said) > 0 {
		f := flattener{root: schema, members: map[string]*member{}, isRequired: map[any]bool{}}
		f.add(schema, position{isCertain: true})
		for _, keyword := range lostKeywords {
			delete(schema, keyword)
		}
		schema["properties"] = f.properties()
		if len(f.required) > 0 {
			schema["required"] = f.required
		}
		text := "{" + strings.Join(said, ", ") + "}"
		if own, ok := schema["description"].(string); ok && own != "" {
			text = own + "\n\n" + text
		}
		schema["description"] = text
	}
	schema["type"] = "object"
	return schema, nil
}

// lostKeywords are what the runtime leaves out of a schema at its top, or of it.
var lostKeywords = []string{"$ref", "allOf", "anyOf", "oneOf", "not", "enum"}

// lostText says the keywords of a schema that would be lost.
func lostText(schema map[string]any) (said []string) {
	for _, keyword := range lostKeywords {
		if v, ok := schema[keyword]; ok {
			said = append(said, keyword+": "+string(rawJSON(v)))
		}
	}
	return said
}

// maxFlattened bounds how deep alternatives are looked into.
const maxFlattened = 8

// flattener collects what a schema and its parts say of the object's members.
type flattener struct {
	root       map[string]any
	members    map[string]*member
	required   []any
	isRequired map[any]bool // those of required
}

// member is a property of the object: what always holds of it, or what its alternatives
// say.
type member struct {
	isCertain bool
	schemas   []any
	seen      map[string]bool // those of schemas, as JSON
}

// position says where in a schema a part of it stands.
type position struct {
	isCertain bool // it holds in any case, not in one of several
	isClosed  bool // nothing in it is a property of the object that is not one outside
	depth     int
}

// add takes the members that a part names.
func (f *flattener) add(schema map[string]any, at position) {
	if at.depth > maxFlattened {
		return
	}
	if list, ok := schema["required"].([]any); ok && at.isCertain {
		for _, name := range list {
			if !f.isRequired[name] {
				f.isRequired[name], f.required = true, append(f.required, name)
			}
		}
	}
	if properties, ok := schema["properties"].(map[string]any); ok && !at.isClosed {
		for name, property := range properties {
			f.addMember(name, property, at.isCertain)
		}
	}
	inside := position{
		isCertain: at.isCertain, isClosed: at.isClosed || schema["additionalProperties"] == false, depth: at.depth + 1,
	}
	if ref, ok := schema["$ref"].(string); ok {
		if target, ok := lookUp(f.root, ref).(map[string]any); ok {
			f.add(target, inside)
		}
	}
	for _, keyword := range []string{"allOf", "anyOf", "oneOf"} {
		list, _ := schema[keyword].([]any)
		inside.isCertain = at.isCertain && keyword == "allOf"
		for _, one := range list {
			if one, ok := one.(map[string]any); ok {
				f.add(one, inside)
			}
		}
	}
}

func (f *flattener) addMember(name string, schema any, always bool) {
	m, written := f.members[name], string(rawJSON(schema))
	switch {
	case m == nil, always && !m.isCertain:
		f.members[name] = &member{always, []any{schema}, map[string]bool{written: true}}
	case !m.isCertain && !m.seen[written]:
		m.schemas, m.seen[written] = append(m.schemas, schema), true
	}
}

// properties are the members, those that alternatives tell differently with all that
// they say.
func (f *flattener) properties() map[string]any {
	properties := make(map[string]any, len(f.members))
	for name, m := range f.members {
		properties[name] = m.schemas[0]
		if len(m.schemas) > 1 {
			properties[name] = map[string]any{"anyOf": m.schemas}
		}
	}
	return properties
}

// lookUp follows a reference into the schema itself: "#" and a JSON pointer. Nil for any
// other, and for one that leads nowhere.
func lookUp(root any, ref string) any {
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	if pointer == "" {
		return root
	}
	pointer, err := url.PathUnescape(pointer)
	if err != nil || !strings.HasPrefix(pointer, "/") {
		return nil
	}
	at := root
	for step := range strings.SplitSeq(pointer[1:], "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		switch v := at.(type) {
		case map[string]any:
			at = v[step]
		case []any:
			n, err := strconv.Atoi(step)
			if err != nil || n < 0 || n >= len(v) {
				return nil
			}
			at = v[n]
		default:
			return nil
		}
	}
	return at
}
