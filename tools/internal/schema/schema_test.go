package schema

import (
	"strings"
	"testing"
)

func TestFor(t *testing.T) {
	type item struct {
		Name string `json:"name" jsonschema:"its name"`
	}
	type in struct {
		Path  string   `json:"path" jsonschema:"where"`
		Paths []string `json:"paths,omitzero" jsonschema:"more of them"`
		State string   `json:"state,omitzero" jsonschema:"which" enum:"all,staged"`
		Items []item   `json:"items,omitzero" jsonschema:"things"`
		Max   *int     `json:"max,omitzero" jsonschema:"how many"`
	}
	want := `{"type":"object","properties":{` +
		`"path":{"type":"string","description":"where"},` +
		`"paths":{"type":"array","items":{"type":"string"},"description":"more of them"},` +
		`"state":{"type":"string","description":"which","enum":["all","staged"]},` +
		`"items":{"type":"array","items":{"type":"object","properties":{"name":{"type":"string","description":"its name"}},"required":["name"],"additionalProperties":false},"description":"things"},` +
		`"max":{"type":"integer","description":"how many"}},` +
		`"required":["path"],"additionalProperties":false}`
	if got := string(For[in](false)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	want = `{"type":"object","properties":{},"required":[]}`
	if got := string(For[struct{}](true)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestForPanicsWithoutDescription(t *testing.T) {
	defer func() {
		if r := recover(); r == nil || !strings.Contains(r.(string), "description") {
			t.Errorf("recovered %v, want a panic that names the description", r)
		}
	}()
	For[struct {
		Path string `json:"path"`
	}](false)
}

// TestCheck lists what the server refuses at registration.
func TestCheck(t *testing.T) {
	tests := []struct{ name, schema, want string }{
		{"all of it",
			`{"type":"object","properties":{"a":{"type":"string","description":"d"}},"required":["a"]}`, ""},
		{"none", `{"type":"object","properties":{},"required":[]}`, ""},
		{"more keywords",
			`{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{"a":{"type":"array","description":"d","items":{"type":["string","null"]},"default":[]}},"required":[],"additionalProperties":false,"$defs":{}}`, ""},
		{"nested levels are free",
			`{"type":"object","properties":{"a":{"type":"object","description":"d","properties":{"b":{}}}},"required":[]}`, ""},
		{"no required", `{"type":"object","properties":{}}`, "required"},
		{"required null", `{"type":"object","properties":{},"required":null}`, "required"},
		{"no properties", `{"type":"object","required":[]}`, "properties"},
		{"empty", `{}`, "type"},
		{"not an object", `{"type":"string","properties":{},"required":[]}`, "type"},
		{"type a list", `{"type":["object"],"properties":{},"required":[]}`, "type"},
		{"no description", `{"type":"object","properties":{"a":{"type":"string"}},"required":[]}`,
			`"a" needs a "description"`},
		{"no type",
			`{"type":"object","properties":{"a":{"description":"d","enum":["x"]}},"required":[]}`,
			`"a" needs exactly one "type"`},
		{"two types",
			`{"type":"object","properties":{"a":{"type":["string","null"],"description":"d"}},"required":[]}`,
			`"a" needs exactly one "type"`},
		{"property no schema", `{"type":"object","properties":{"a":true},"required":[]}`, `"a"`},
		{"a type that is none",
			`{"type":"object","properties":{"a":{"type":"text","description":"d"}},"required":[]}`,
			"/properties/a/type"},
		{"not JSON", `{`, "reading"},
		{"nothing", ``, "reading"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Check([]byte(tt.schema))
			if tt.want == "" && err != nil || tt.want != "" &&
				(err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got error %v, want %q", err, tt.want)
			}
		})
	}
}
