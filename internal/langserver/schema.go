package langserver

import (
	"bytes"
	"cmp"
	"encoding/json"
)

// StrictSchema returns a tool's schema in the form that the server accepts, which is stricter than
// JSON Schema: an object with properties and required, and for each property one type and a
// description. It derives missing parts; of several types it takes the first that is not null. The
// tool checks arguments against its original schema. A text that is not a schema comes back as it
// is, and [Client.SetTools] reports it as a [Fault].
func StrictSchema(parameters json.RawMessage) json.RawMessage {
	if len(parameters) == 0 {
		return noParameters
	}
	var s map[string]json.RawMessage
	if json.Unmarshal(parameters, &s) != nil || s == nil {
		return parameters
	}
	var properties map[string]json.RawMessage
	if json.Unmarshal(s["properties"], &properties) != nil || properties == nil {
		properties = map[string]json.RawMessage{}
	}
	for name, p := range properties {
		properties[name] = strictProperty(name, p)
	}
	var required []string
	if json.Unmarshal(s["required"], &required) != nil || required == nil {
		required = []string{}
	}
	s["type"], s["properties"], s["required"] = encode("object"), encode(properties),
		encode(required)
	return encode(s)
}

func strictProperty(name string, schema json.RawMessage) json.RawMessage {
	var p map[string]json.RawMessage
	if json.Unmarshal(schema, &p) != nil || p == nil {
		p = map[string]json.RawMessage{} // the schema true
	}
	p["type"] = encode(cmp.Or(typeOf(p), "string"))
	var description, title string
	if json.Unmarshal(p["description"], &description) != nil || description == "" {
		_ = json.Unmarshal(p["title"], &title)
		p["description"] = encode(cmp.Or(title, name))
	}
	return encode(p)
}

// typeOf returns the first type that a schema allows, or "".
func typeOf(p map[string]json.RawMessage) string {
	var one string
	if json.Unmarshal(p["type"], &one) == nil && one != "" {
		return one
	}
	var many []string
	_ = json.Unmarshal(p["type"], &many)
	for _, t := range many {
		if t != "null" {
			return t
		}
	}
	var values []json.RawMessage
	_ = json.Unmarshal(p["enum"], &values)
	for _, v := range append(values, p["const"]) {
		if t := kindOf(v); t != "" && t != "null" {
			return t
		}
	}
	for _, key := range []string{"anyOf", "oneOf", "allOf"} {
		var choices []map[string]json.RawMessage
		_ = json.Unmarshal(p[key], &choices)
		for _, c := range choices {
			if t := typeOf(c); t != "" && t != "null" {
				return t
			}
		}
	}
	switch {
	case p["items"] != nil:
		return "array"
	case p["properties"] != nil || p["$ref"] != nil:
		return "object"
	}
	return ""
}

// kindOf returns the JSON Schema type of a value, or "" for an empty text.
func kindOf(v json.RawMessage) string {
	v = bytes.TrimSpace(v)
	if len(v) == 0 {
		return ""
	}
	switch v[0] {
	case '"':
		return "string"
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	if bytes.ContainsAny(v, ".eE") {
		return "number"
	}
	return "integer"
}

func encode(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil { // can't happen: it has strings and decoded JSON
		panic(err)
	}
	return data
}
