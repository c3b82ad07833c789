package copilot

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

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

// A schema as long as a hello may hold is made one of an object at once: sessions and
// other providers wait for it.
func TestParametersOfLongSchemas(t *testing.T) {
	list := func(n int, each func(i int) string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = each(i)
		}
		return strings.Join(all, ",")
	}
	for name, raw := range map[string]string{
		"required": `{"anyOf":[{}],"required":[` + list(150_000, func(i int) string { return fmt.Sprintf(`"p%d"`, i) }) + `]}`,
		"alternatives": `{"anyOf":[` + list(450, func(i int) string {
			return `{"properties":{` + list(200, func(j int) string { return fmt.Sprintf(`"p%d":{"const":%d}`, j, i) }) + `}}`
		}) + `]}`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := protocol.CompileSchema(protocol.Raw(raw)); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			if _, err := parameters(protocol.Raw(raw)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begin); took > 5*time.Second { // it took a minute and 10 s
				t.Errorf("%d bytes took %s", len(raw), took)
			}
		})
	}
}
