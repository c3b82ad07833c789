// Package schemadoc makes a JSON Schema (2020-12) of every message of the protocol. The types of
// package protocol give the shapes, the tables of docs/protocol.md the descriptions. A field that
// only one of them has is an error, so that types, document and schemas stay the same.
//
// A schema accepts what the gateway accepts: unknown fields, and null for an optional field of a
// provider's message. Lists that may grow, such as codes, are examples and not constraints.
package schemadoc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"tapgw/internal/protocol"
)

const (
	draft = "https://json-schema.org/draft/2020-12/schema"
	urn   = "urn:tapgw:provider-protocol:2:"
)

// messages are all messages, in the order of the document.
var messages = []protocol.Message{
	&protocol.Auth{}, &protocol.AuthConfirm{},
	&protocol.Hello{}, &protocol.Goodbye{}, &protocol.SessionReady{}, &protocol.ShutdownReady{},
	&protocol.ToolResult{}, &protocol.ToolProgress{}, &protocol.GateResult{},
	&protocol.TransformResult{}, &protocol.Push{}, &protocol.ToolsUpdate{}, &protocol.HooksUpdate{},
	&protocol.ContextUpdate{}, &protocol.FilterSet{}, &protocol.StreamQuery{},
	&protocol.QuestionAnswer{},

	&protocol.AuthPairing{}, &protocol.Sessions{}, &protocol.SessionsUpdated{},
	&protocol.HelloAck{}, &protocol.Ack{}, &protocol.Error{},
	&protocol.ToolCall{}, &protocol.ToolCancel{}, &protocol.GateCheck{},
	&protocol.TransformRequest{}, &protocol.SessionEvent{}, &protocol.SessionLifecycle{},
	&protocol.StreamHistory{},
}

// parts are the types within messages, with their names in the document.
var parts = map[reflect.Type]string{
	reflect.TypeFor[protocol.Tool]():        "Tool",
	reflect.TypeFor[protocol.Annotations](): "Annotations",
	reflect.TypeFor[protocol.Concurrency](): "Limit",
	reflect.TypeFor[protocol.Hooks]():       "Hooks",
	reflect.TypeFor[protocol.Rule]():        "Rule",
	reflect.TypeFor[protocol.Match]():       "Match",
	reflect.TypeFor[protocol.Transform]():   "Transform",
	reflect.TypeFor[protocol.FileRef]():     "File",
	reflect.TypeFor[protocol.Part]():        "Part",
	reflect.TypeFor[protocol.FilterRule]():  "FilterRule",
	reflect.TypeFor[protocol.SessionInfo](): "Session",
	reflect.TypeFor[protocol.StreamEntry](): "Entry",
	reflect.TypeFor[protocol.Question]():    "Question",
	reflect.TypeFor[protocol.QuestionEnd](): "QuestionEnd",
}

// eventData are the types of the data of events that have data.
var eventData = []struct {
	event string
	typ   reflect.Type
}{
	{protocol.EventQuestionAsked, reflect.TypeFor[protocol.Question]()},
	{protocol.EventQuestionEnded, reflect.TypeFor[protocol.QuestionEnd]()},
}

// Files returns the files of docs/schema by name, made from doc, the text of docs/protocol.md. The
// error names a message or field that the document and the types describe differently.
func Files(doc []byte) (map[string][]byte, error) {
	sections, err := parse(doc)
	if err != nil {
		return nil, err
	}
	g := &generator{sections: sections, used: map[string]bool{}}
	files := map[string][]byte{}
	bundle := &jsonschema.Schema{
		Schema: draft, ID: urn + "bundle", Title: "provider protocol, version 2",
		Description: "Every message of the protocol between the gateway and its providers.",
		Defs:        map[string]*jsonschema.Schema{},
		AnyOf: []*jsonschema.Schema{{Ref: "#/$defs/fromProvider"},
			{Ref: "#/$defs/fromGateway"}},
	}
	union := map[bool]*jsonschema.Schema{
		true:  {Description: "A message from a provider."},
		false: {Description: "A message from the gateway."},
	}
	for _, m := range messages {
		name := string(m.MessageType())
		s, err := g.message(m)
		if err != nil {
			return nil, err
		}
		maps.Copy(bundle.Defs, s.Defs)
		inside := *s
		inside.Defs = nil
		bundle.Defs[name] = &inside
		u := union[m.MessageType().FromProvider()]
		u.OneOf = append(u.OneOf, &jsonschema.Schema{Ref: "#/$defs/" + name})
		s.Schema, s.ID = draft, urn+name
		if files[name+".json"], err = write(s); err != nil {
			return nil, err
		}
	}
	for name := range sections {
		if !g.used[name] {
			return nil,
				fmt.Errorf("docs/protocol.md describes %s, which is no message and no part of one",
					name)
		}
	}
	bundle.Defs["fromProvider"], bundle.Defs["fromGateway"] = union[true], union[false]
	if files["bundle.json"], err = write(bundle); err != nil {
		return nil, err
	}
	files["README.md"] = index()
	return files, nil
}

func write(s *jsonschema.Schema) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(s); err != nil {
		return nil, fmt.Errorf("writing schema %s: %w", s.Title, err)
	}
	return b.Bytes(), nil
}

// index is the list of the schemas, for people.
func index() []byte {
	var b bytes.Buffer
	b.WriteString(`# Schemas of the messages

Each message of the [provider protocol](../protocol.md) has a JSON Schema (2020-12). [bundle.json](bundle.json) has all of them. To check any message, use the bundle, or its ` + "`$defs/fromProvider`" + ` or ` + "`$defs/fromGateway`" + `. ` + "`go test ./internal/protocol/schemadoc -update`" + ` writes the schemas from the gateway's types and from docs/protocol.md.

The schemas accept unknown fields, as the protocol requires. ` + "`maxLength`" + ` counts characters, but the gateway counts bytes. So the gateway may refuse a text that the schema accepts.
`)
	for _, from := range []string{"provider", "gateway"} {
		fmt.Fprintf(&b, "\n## From the %s\n\n", from)
		for _, m := range messages {
			if m.MessageType().FromProvider() == (from == "provider") {
				fmt.Fprintf(&b, "- [`%s`](%[1]s.json)\n", m.MessageType())
			}
		}
	}
	return b.Bytes()
}

// generator makes schemas of types.
type generator struct {
	sections map[string]*section
	used     map[string]bool
	defs     map[string]*jsonschema.Schema // parts of the current message
	// the current message may have null for an optional field
	lenient bool
}

func (g *generator) message(m protocol.Message) (*jsonschema.Schema, error) {
	name := string(m.MessageType())
	g.defs = map[string]*jsonschema.Schema{}
	g.lenient = m.MessageType().FromProvider()
	s, err := g.object(reflect.TypeOf(m).Elem(), name)
	if err != nil {
		return nil, err
	}
	if m.MessageType() == protocol.TypeSessionEvent {
		for _, e := range eventData {
			data, _, err := g.field(e.typ, name+".data")
			if err != nil {
				return nil, err
			}
			s.AllOf = append(s.AllOf, &jsonschema.Schema{
				If:   hasField("event", &jsonschema.Schema{Const: constant(e.event)}),
				Then: &jsonschema.Schema{Properties: map[string]*jsonschema.Schema{"data": data}},
			})
		}
	}
	typ := any(name)
	s.Properties["type"] = &jsonschema.Schema{Const: &typ}
	s.Required = append([]string{"type"}, s.Required...)
	s.PropertyOrder = append([]string{"type"}, s.PropertyOrder...)
	if len(g.defs) > 0 {
		s.Defs = g.defs
	}
	return s, nil
}

// object makes the schema of a struct that the document describes under a name.
func (g *generator) object(t reflect.Type, name string) (*jsonschema.Schema, error) {
	doc := g.sections[name]
	if doc == nil {
		return nil, fmt.Errorf("docs/protocol.md does not describe %s", name)
	}
	g.used[name] = true
	s := &jsonschema.Schema{Title: name, Description: withoutMarks(doc.about), Type: "object",
		Properties: map[string]*jsonschema.Schema{}}
	for f := range t.Fields() {
		key, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		at := name + "." + key
		row, ok := doc.fields[key]
		if !ok {
			return nil, fmt.Errorf("docs/protocol.md does not describe %s", at)
		}
		p, typ, err := g.field(f.Type, at)
		if err != nil {
			return nil, err
		}
		required := options != "omitzero" && !optionalFields[at]
		if !required {
			typ = "optional " + typ
		}
		if row.typ != typ {
			return nil, fmt.Errorf("docs/protocol.md: %s is %q, but must be %q", at, row.typ, typ)
		}
		if tighten := fields[at]; tighten != nil {
			tighten(p)
		}
		if required {
			s.Required = append(s.Required, key)
		} else if g.lenient {
			p = orNull(p)
		}
		p.Description = withoutMarks(row.meaning)
		s.Properties[key] = p
		s.PropertyOrder = append(s.PropertyOrder, key)
	}
	if len(doc.fields) != t.NumField() {
		return nil, fmt.Errorf("docs/protocol.md describes fields of %s that it does not have: %v",
			name,
			slices.DeleteFunc(slices.Sorted(maps.Keys(doc.fields)),
				func(k string) bool { return s.Properties[k] != nil }))
	}
	if complete := objects[name]; complete != nil {
		complete(s)
	}
	return s, nil
}

// field makes the schema of a field, and the type as the document writes it.
func (g *generator) field(t reflect.Type, at string) (s *jsonschema.Schema, typ string, err error) {
	if t == reflect.TypeFor[protocol.Raw]() {
		if anyFields[at] {
			return &jsonschema.Schema{}, "any", nil
		}
		return &jsonschema.Schema{Type: "object"}, "object", nil
	}
	if t == reflect.TypeFor[[]byte]() {
		return &jsonschema.Schema{Type: "string", ContentEncoding: "base64"}, "string", nil
	}
	if t == reflect.TypeFor[time.Time]() {
		return &jsonschema.Schema{Type: "string", Format: "date-time"}, "string", nil
	}
	switch t.Kind() {
	case reflect.Pointer:
		return g.field(t.Elem(), at)
	case reflect.String:
		return &jsonschema.Schema{Type: "string"}, "string", nil
	case reflect.Bool:
		return &jsonschema.Schema{Type: "boolean"}, "boolean", nil
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return &jsonschema.Schema{Type: "integer"}, "integer", nil
	case reflect.Slice:
		items, typ, err := g.field(t.Elem(), at+"[]")
		return &jsonschema.Schema{Type: "array", Items: items}, "array of " + typ, err
	case reflect.Map:
		values, typ, err := g.field(t.Elem(), at+"[]")
		if t.Elem().Kind() == reflect.Pointer {
			values = orNull(values) // null removes an entry
		}
		return &jsonschema.Schema{Type: "object", AdditionalProperties: values}, "map of " +
			typ, err
	case reflect.Struct:
		name := parts[t]
		if name == "" {
			return nil, "", fmt.Errorf("%s: %v is not among the parts of messages", at, t)
		}
		if g.defs[name] == nil {
			g.defs[name] = &jsonschema.Schema{} // ends the recursion of a type within itself
			if g.defs[name], err = g.object(t, name); err != nil {
				return nil, "", err
			}
		}
		return &jsonschema.Schema{Ref: "#/$defs/" + name}, name, nil
	}
	return nil, "", fmt.Errorf("%s: a %v has no place in a message", at, t)
}

// orNull makes a schema accept null too.
func orNull(s *jsonschema.Schema) *jsonschema.Schema {
	switch {
	case s.Ref != "":
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{s, {Type: "null"}}}
	case s.Type != "":
		s.Types, s.Type = []string{s.Type, "null"}, ""
	}
	if s.Enum != nil {
		s.Enum = append(s.Enum, nil)
	}
	return s
}
