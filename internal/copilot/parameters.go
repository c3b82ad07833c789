package copilot

import (
	"bytes"
	"encoding/json"
	"net/url"
	"strings"

	"tapgw/configs"
	"tapgw/internal/protocol"
)

// parameters makes of a tool's schema one that reaches the model. Numbers stay as they are written.
// The error is that of decoding the schema.
//
// The runtime silently drops a tool whose schema has no "type": "object" at its top, and it loses
// alternatives and references there, with the properties that they name. So all properties that
// they name become properties at the top, and the description repeats the lost keywords, as the
// runtime itself does with keywords that model endpoints refuse. The gateway checks arguments
// against the provider's own schema in any case.
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

// lostKeywords are the keywords at a schema's top that the runtime drops.
var lostKeywords = []string{"$ref", "allOf", "anyOf", "oneOf", "not", "enum"}

// lostText returns the lost keywords of a schema as JSON members.
func lostText(schema map[string]any) (said []string) {
	for _, keyword := range lostKeywords {
		if v, ok := schema[keyword]; ok {
			said = append(said, keyword+": "+string(rawJSON(v)))
		}
	}
	return said
}

// maxFlattened bounds how deep nested alternatives are read.
const maxFlattened = 8

// flattener collects the constraints of a schema and its parts on the object's members.
type flattener struct {
	root       map[string]any
	members    map[string]*member
	required   []any
	isRequired map[any]bool // the members of required
}

// member is a property of the object. If it is certain, it has one schema. Else it has the schemas
// of all alternatives that name it.
type member struct {
	isCertain bool
	schemas   []any
	seen      map[string]bool // the JSON of each of schemas
}

// position says how a part of a schema relates to its top.
type position struct {
	isCertain bool // the part always holds; it is not one of several alternatives
	isClosed  bool // additionalProperties is false outside, so the part adds no properties
	depth     int
}

// add collects the members that a part of the schema names.
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
		isCertain: at.isCertain, isClosed: at.isClosed || schema["additionalProperties"] == false,
		depth: at.depth + 1,
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

// properties returns the members. A member that alternatives describe differently gets an anyOf of
// all its schemas.
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

// lookUp follows a reference within the schema: "#" and a JSON pointer. It returns nil for any
// other reference, and for one without a target.
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
	v, _ := configs.ResolvePointer(root, pointer)
	return v
}
