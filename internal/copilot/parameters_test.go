package copilot

import (
	"encoding/json"
	"strings"
	"testing"

	"tapgw/internal/protocol"
)

// FuzzParameters: whatever schema a tool may have, what is made of it is one of an
// object, and a tool may have that too.
func FuzzParameters(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"type":["object","null"]}`, `{"$ref":"#/$defs/x","$defs":{"x":{"properties":{"a":true},"required":["a"]}}}`,
		`{"oneOf":[{"properties":{"a":{"type":"string"}}},{"properties":{"a":{"type":"number"}}},true]}`,
		`{"allOf":[{"anyOf":[{"properties":{"a":{}}}]},{"properties":{"a":{"const":1}}}],"additionalProperties":false}`,
		`{"$ref":"#/allOf/0","allOf":[{"enum":[{}]}],"description":"x"}`,
		`{"properties":{"a":{"$ref":"#/oneOf/1/properties/b"}},"oneOf":[{},{"properties":{"b":{"type":"string"}}}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := protocol.CompileSchema(raw); err != nil {
			return
		}
		made, err := parameters(raw)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		data, err := json.Marshal(made)
		if err != nil || made["type"] != "object" {
			t.Fatalf("%s became %s, %v", raw, data, err)
		}
		// What leads into an alternative leads nowhere: the runtime has none.
		if _, err := protocol.CompileSchema(data); err != nil && !strings.Contains(err.Error(), "is not in this schema") {
			t.Errorf("%s became %s: %v", raw, data, err)
		}
	})
}
