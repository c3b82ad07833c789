package copilot

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"tapgw/internal/protocol"
)

// FuzzParameters: whatever schema a tool may have, what is made of it is one of an
// object, and a tool may have that too.
func FuzzParameters(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"type":["object","null"]}`,
		`{"$ref":"#/$defs/x","$defs":{"x":{"properties":{"a":true},"required":["a"]}}}`,
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
			t.Fatalf(`%s became %s, %v, want no error and "object"`, raw, data, err)
		}
		// What leads into an alternative leads nowhere: the runtime has none.
		if _, err := protocol.CompileSchema(data); err != nil &&
			!strings.Contains(err.Error(), "is not in this schema") {
			t.Errorf("%s became %s: %v, want a schema that compiles", raw, data, err)
		}
	})
}

// longSchemas are as long as a hello may hold, and each names more than a look through
// a list for each name would end with soon.
func longSchemas() map[string]protocol.Raw {
	list := func(n int, each func(i int) string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = each(i)
		}
		return strings.Join(all, ",")
	}
	return map[string]protocol.Raw{
		"required": protocol.Raw(
			`{"anyOf":[{}],"required":[` + list(150_000, func(i int) string {
				return fmt.Sprintf(`"p%d"`, i)
			}) + `]}`,
		),
		"alternatives": protocol.Raw(`{"anyOf":[` + list(450, func(i int) string {
			return `{"properties":{` + list(
				200,
				func(j int) string { return fmt.Sprintf(`"p%d":{"const":%d}`, j, i) },
			) + `}}`
		}) + `]}`),
	}
}

func TestParametersOfLongSchemas(t *testing.T) {
	for name, raw := range longSchemas() {
		got, err := parameters(raw)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		required, _ := got["required"].([]any)
		properties, _ := got["properties"].(map[string]any)
		if name == "required" && len(required) != 150_000 || name == "alternatives" &&
			len(properties) != 200 {
			t.Errorf("%s: got %d required and %d properties, want 150000 or 200", name,
				len(required), len(properties))
		}
	}
}

// A session and other providers wait for it: milliseconds, not a minute.
func BenchmarkParametersOfLongSchemas(b *testing.B) {
	for name, raw := range longSchemas() {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := parameters(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
