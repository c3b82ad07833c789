package mcpbridge

import (
	"encoding/json"
	"testing"
)

// A form begins with its required fields, in the order of its server.
func TestFormSchema(t *testing.T) {
	for requested, want := range map[string]string{
		`{"type":"object","properties":{"b":{},"a":{},"zip":{},"\"c":true,"street":{"type":"string"}},"required":["street","zip","gone","zip",5]}`: `{"properties":{"street":{"type":"string"},"zip":{},"\"c":true,"a":{},"b":{}},"required":["street","zip","gone","zip",5],"type":"object"}`,
		`{"properties":{}}`:               `{"properties":{}}`,
		`{"properties":5,"required":"a"}`: `{"properties":5,"required":"a"}`,
		`"no object"`:                     `"no object"`,
	} {
		var decoded any
		if err := json.Unmarshal([]byte(requested), &decoded); err != nil {
			t.Fatal(err)
		}
		if got, err := formSchema(decoded); err != nil || string(got) != want {
			t.Errorf("formSchema(%s) = %s, %v, want %s", requested, got, err, want)
		}
	}
}
