package langserver

import (
	"context"
	"encoding/json"
	"testing"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

func TestStrictSchema(t *testing.T) {
	for name, tt := range map[string]struct{ in, want string }{
		"nothing":         {``, `{"type":"object","properties":{},"required":[]}`},
		"empty":           {`{}`, `{"type":"object","properties":{},"required":[]}`},
		"as it should be": {`{"type":"object","properties":{"a":{"type":"string","description":"d","default":"x"}},"required":["a"],"additionalProperties":false}`, `{"type":"object","properties":{"a":{"type":"string","description":"d","default":"x"}},"required":["a"],"additionalProperties":false}`},
		"no description": {`{"type":"object","properties":{"a":{"type":"string"}}}`,
			`{"type":"object","properties":{"a":{"type":"string","description":"a"}},"required":[]}`},
		"a title": {`{"type":"object","properties":{"a":{"type":"string","title":"An A"}}}`,
			`{"type":"object","properties":{"a":{"type":"string","title":"An A","description":"An A"}},"required":[]}`},
		"two types": {`{"type":"object","properties":{"a":{"type":["null","integer"]}}}`,
			`{"type":"object","properties":{"a":{"type":"integer","description":"a"}},"required":[]}`},
		"values":          {`{"type":"object","properties":{"a":{"enum":[null,1,2]},"b":{"const":"x"},"c":{"enum":[1.5]},"d":{"const":true}}}`, `{"type":"object","properties":{"a":{"type":"integer","enum":[null,1,2],"description":"a"},"b":{"type":"string","const":"x","description":"b"},"c":{"type":"number","enum":[1.5],"description":"c"},"d":{"type":"boolean","const":true,"description":"d"}},"required":[]}`},
		"choices":         {`{"type":"object","properties":{"a":{"anyOf":[{"type":"null"},{"enum":["x"]}]},"b":{"oneOf":[{"properties":{}}]}}}`, `{"type":"object","properties":{"a":{"type":"string","anyOf":[{"type":"null"},{"enum":["x"]}],"description":"a"},"b":{"type":"object","oneOf":[{"properties":{}}],"description":"b"}},"required":[]}`},
		"by its keywords": {`{"type":"object","properties":{"a":{"items":{}},"b":{"$ref":"#/$defs/b"}},"$defs":{"b":{}}}`, `{"type":"object","properties":{"a":{"type":"array","items":{},"description":"a"},"b":{"type":"object","$ref":"#/$defs/b","description":"b"}},"$defs":{"b":{}},"required":[]}`},
		"anything": {`{"properties":{"a":true,"b":{}},"required":null}`,
			`{"type":"object","properties":{"a":{"type":"string","description":"a"},"b":{"type":"string","description":"b"}},"required":[]}`},
		"no schema at all": {`"text"`, `"text"`},
	} {
		t.Run(name, func(t *testing.T) {
			got := StrictSchema([]byte(tt.in))
			if normalJSON(t, got) != normalJSON(t, []byte(tt.want)) {
				t.Errorf("got %s, want %s", got, tt.want)
			}
			tool := Tool{Name: "t", Description: "d", Parameters: got,
				Call: func(context.Context, Invocation) Outcome { return Outcome{} }}
			if reason := check(tool); (reason == "") != (name != "no schema at all") {
				t.Errorf("fit for the server: %q, want none: %v", reason,
					name != "no schema at all")
			}
		})
	}
}

func normalJSON(t *testing.T, data []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatalf("decoding %s: got %v, want JSON", data, err)
	}
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func FuzzStrictSchema(f *testing.F) {
	f.Add(
		[]byte(`{"type":"object","properties":{"a":{"type":["null","integer"]}},"required":["a"]}`))
	f.Add([]byte(`{"properties":{"a":true,"b":{"enum":[1]}}}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"properties":null}`))
	f.Add([]byte(`{"properties":{"a":{"tYpe":["0"]}}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		got := StrictSchema(in)
		var s struct {
			Type       string `json:"type"`
			Properties map[string]struct {
				Type        string `json:"type"`
				Description string `json:"description"`
			} `json:"properties"`
			Required []string `json:"required"`
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(in, &object) != nil && len(in) > 0 || object == nil && len(in) > 0 {
			return // no schema: as it is
		}
		// The server reads names as they are, and so does this.
		if err := jsonv2.Unmarshal(got, &s, jsontext.AllowDuplicateNames(true),
			jsontext.AllowInvalidUTF8(true)); err != nil || s.Type != "object" ||
			s.Properties == nil || s.Required == nil {
			t.Fatalf("%s of %s: %v, want an object with properties and required", got, in, err)
		}
		for name, p := range s.Properties {
			if p.Type == "" || p.Description == "" && name != "" {
				t.Errorf("property %q of %s, want %q", name, got, "")
			}
		}
	})
}
