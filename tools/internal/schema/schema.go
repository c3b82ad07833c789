// Package schema makes and checks the schemas of tools' parameters in the strict
// form that the Copilot language server accepts: an object that always has
// properties and required, even when they are empty, and whose properties each have
// one type and a description. One tool without that form makes the server refuse all
// tools that are registered with it.
package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"tapgw/internal/protocol"
)

// For infers the schema of a struct, which it describes with field tags: json
// (omitzero means optional), jsonschema (the description) and enum (values, separated
// by commas). The schema refuses arguments that the struct does not name, unless
// allowsExtra is set. For panics if the struct has no strict form.
func For[T any](allowsExtra bool) json.RawMessage {
	t := reflect.TypeFor[T]()
	s, err := jsonschema.ForType(t, nil)
	if err != nil {
		panic(fmt.Sprintf("schema of %v: %v", t, err))
	}
	strict(s, t)
	if allowsExtra {
		s.AdditionalProperties = nil
	}
	raw, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("schema of %v: %v", t, err))
	}
	raw, err = complete(raw)
	if err == nil {
		err = Check(raw)
	}
	if err != nil {
		panic(fmt.Sprintf("schema of %v: %v", t, err))
	}
	return raw
}

// strict removes the null that the inference allows for slices and pointers, and
// adds the values of enum tags.
func strict(s *jsonschema.Schema, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if len(s.Types) == 2 && s.Types[0] == "null" {
		s.Type, s.Types = s.Types[1], nil
	}
	switch t.Kind() {
	case reflect.Slice:
		strict(s.Items, t.Elem())
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			p := s.Properties[name]
			if p == nil {
				continue
			}
			strict(p, f.Type)
			if values, ok := f.Tag.Lookup("enum"); ok {
				for v := range strings.SplitSeq(values, ",") {
					p.Enum = append(p.Enum, v)
				}
			}
		}
	default:
	}
}

// complete adds properties and required, which the schema library leaves out when they
// are empty.
func complete(raw json.RawMessage) (json.RawMessage, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	var add string
	if _, ok := m["properties"]; !ok {
		add += `,"properties":{}`
	}
	if _, ok := m["required"]; !ok {
		add += `,"required":[]`
	}
	return slices.Concat(raw[:len(raw)-1], []byte(add), []byte("}")), nil
}

// Check reports the first fault of a schema that the language server or our own
// compiler of schemas would refuse. The error names the property.
func Check(raw json.RawMessage) error {
	var s struct {
		Type       any                        `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
		Required   json.RawMessage            `json:"required"`
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return fmt.Errorf("reading the schema of the parameters: %w", err)
	}
	if s.Type != "object" {
		return errors.New(`the schema of the parameters needs "type": "object"`)
	}
	if s.Properties == nil {
		return errors.New(`the schema of the parameters needs "properties", {} if there are none`)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		var p struct {
			Type        any `json:"type"`
			Description any `json:"description"`
		}
		if err := json.Unmarshal(s.Properties[name], &p); err != nil {
			return fmt.Errorf("property %q: must be a schema that says its type and description",
				name)
		}
		if _, ok := p.Type.(string); !ok {
			return fmt.Errorf(`property %q needs exactly one "type", a string`, name)
		}
		if _, ok := p.Description.(string); !ok {
			return fmt.Errorf(`property %q needs a "description"`, name)
		}
	}
	var required []string
	if err := json.Unmarshal(s.Required, &required); err != nil || required == nil {
		return errors.New(
			`the schema of the parameters needs "required", a list of names, [] if there are none`)
	}
	_, err := protocol.CompileSchema(protocol.Raw(raw))
	return err
}
