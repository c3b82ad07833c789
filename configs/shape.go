package configs

import (
	"encoding/json"
	"errors"

	"github.com/google/jsonschema-go/jsonschema"
)

// What the JSON Schemas say of a key is what the code says that reads it: run
// over a table with a shape, it notes each key there instead of reading one. So
// a schema knows no key that the decoder doesn't, and the other way round.

// neverSchema is the schema that no value fits.
var neverSchema = &jsonschema.Schema{Not: &jsonschema.Schema{}}

// durationPattern fits what time.ParseDuration takes.
const durationPattern = `^[+-]?(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`

// describe describes a key where somebody wants to know.
func (t *table) describe(key string, describe func() *jsonschema.Schema) {
	if t == nil || t.shape == nil {
		return
	}
	if t.shape.Properties == nil {
		t.shape.Properties = map[string]*jsonschema.Schema{}
	}
	if _, known := t.shape.Properties[key]; !known {
		t.shape.PropertyOrder = append(t.shape.PropertyOrder, key)
	}
	t.shape.Properties[key] = describe()
}

// describeOthers describes the keys that have no description of their own.
func (t *table) describeOthers(s *jsonschema.Schema) {
	if t != nil && t.shape != nil {
		t.shape.AdditionalProperties = s
	}
}

// stringShape describes a string. A check that leaves a choice names it when it
// refuses.
func stringShape(value string, check func(string) error) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string", Default: literal(value)}
	if check == nil {
		return s
	}
	if choice, ok := errors.AsType[*choiceError](check("\x00")); ok {
		for _, word := range choice.allowed {
			s.Enum = append(s.Enum, word)
		}
	}
	return s
}

// literal is a default as JSON.
func literal(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers and booleans only
	}
	return data
}

// shapeOf is the schema of a kind of file, by the code that reads it.
func shapeOf(read func(*table)) *jsonschema.Schema {
	root := &table{doc: &document{}, bad: map[string]bool{}, shape: &jsonschema.Schema{Type: "object"}}
	read(root)
	return root.shape
}
