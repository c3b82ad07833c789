//go:build runtime

package copilot

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// TestToolsComeBackBetweenTurns: a provider that leaves and joins again while no turn
// runs has its tools at the next, as often as it likes; so it is in a session that was
// closed and resumed. A tool of the runtime's own stays the runtime's.
func TestToolsComeBackBetweenTurns(t *testing.T) {
	g := newRig(t)
	s := g.start()
	for i := range 3 {
		s.tool("brew", text(fmt.Sprint("tea ", i)))
		s.tool(fmt.Sprint("once", i), text("x"))
		s.turn("call:brew")
		if want := fmt.Sprint("tea ", i); s.lastSaid() != want {
			t.Errorf("start %d of the provider: the model said %q, want %q", i, s.lastSaid(), want)
		}
		s.removeTool("brew")
		s.removeTool(fmt.Sprint("once", i))
	}
	if notes := s.allNotes(); notes != "" {
		t.Errorf(`notes: %s, want ""`, notes)
	}
	s.tool("bash", text("mine"))
	s.tool("brew", text("coffee"))
	s.turn("call:brew")
	if s.lastSaid() != "coffee" ||
		!strings.Contains(
			s.allNotes(),
			"tool bash of provider tests is left out: the Copilot runtime has a tool of that name",
		) {
		t.Errorf(
			`the model said %q, notes: %s, want "coffee" and %q in it`,
			s.lastSaid(), s.allNotes(),
			"tool bash of provider tests is left out: the Copilot runtime has a tool of that name",
		)
	}
	if err := s.host.Close(g.ctx, "test"); err != nil {
		t.Fatal(err)
	}
	again, err := g.resume(s.id, gateway.ResumeRequest{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	again.tool("brew", text("cocoa"))
	again.turn("call:brew")
	if again.lastSaid() != "cocoa" {
		t.Errorf(`resumed, the model said %q; notes: %s, want "cocoa"`, again.lastSaid(),
			again.allNotes())
	}
}

// forms are schemas that protocol.md allows, with what of them the model must be told:
// the properties that it is offered, the required ones, and text for what can't be said
// to it otherwise.
var forms = map[string]struct {
	schema, properties, required string
	says                         []string
}{
	"none":   {schema: ``},
	"empty":  {schema: `{}`},
	"object": {schema: `{"type":"object"}`},
	"properties": {schema: `{"properties":{"a":{"type":"string"}},"required":["a"]}`,
		properties: "a", required: "a"},
	"list": {schema: `{"type":["object"],"properties":{"a":{"type":"string"}}}`,
		properties: "a"},
	"nullable": {schema: `{"type":["object","null"],"properties":{"a":{"type":"string"}}}`,
		properties: "a"},
	"ref": {
		schema:     `{"$ref":"#/$defs/x","$defs":{"x":{"type":"object","required":["a"],"properties":{"a":{"$ref":"#/$defs/y"}}},"y":{"type":"string"}}}`,
		properties: "a",
		required:   "a",
	},
	"ref7": {
		schema:     `{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#/definitions/a~1b","definitions":{"a/b":{"properties":{"a":{"type":"string"}}}}}`,
		properties: "a",
	},
	"anchor": {
		schema: `{"$ref":"#here","$defs":{"x":{"$anchor":"here","type":"object","properties":{"a":{}}}}}`,
		says:   []string{"#here"},
	},
	"oneOf": {
		schema:     `{"oneOf":[{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},{"properties":{"b":{}},"required":["b"]}]}`,
		properties: "a b",
		says:       []string{`oneOf: [`, `"required":["b"]`},
	},
	"anyOf": {
		schema:     `{"type":"object","properties":{"a":{},"b":{}},"anyOf":[{"required":["a"]},{"required":["b"]}]}`,
		properties: "a b",
		says:       []string{`anyOf: [{"required":["a"]},{"required":["b"]}]`},
	},
	"union": {
		schema:     `{"type":"object","description":"A shape.","properties":{"kind":{"enum":["a","b"]}},"required":["kind"],"oneOf":[{"properties":{"kind":{"const":"a"},"r":{"type":"number"}}},{"properties":{"kind":{"const":"b"},"r":{"type":"string"}}}]}`,
		properties: "kind r",
		required:   "kind",
		says:       []string{"A shape.", `{"const":"a"}`},
	},
	"allOf": {
		schema:     `{"allOf":[{"$ref":"#/$defs/x"},{"properties":{"b":{"type":"string"}},"required":["b"]}],"$defs":{"x":{"properties":{"a":{}},"required":["a"]}}}`,
		properties: "a b",
		required:   "a b",
	},
	"not": {
		schema:     `{"not":{"required":["a"]},"properties":{"a":{},"b":{}}}`,
		properties: "a b",
		says:       []string{`not: {"required":["a"]}`},
	},
	"enum": {
		schema:     `{"enum":[{"a":1},{"a":2}],"properties":{"a":{}}}`,
		properties: "a",
		says:       []string{`enum: [{"a":1},{"a":2}]`},
	},
	"const": {schema: `{"const":{"a":1}}`},
	"if": {
		schema:     `{"properties":{"a":{},"b":{}},"if":{"required":["a"]},"then":{"required":["b"]}}`,
		properties: "a b",
		says:       []string{"if: ", "then: "},
	},
	"closed": {
		schema:     `{"additionalProperties":false,"properties":{"a":{}},"anyOf":[{"required":["a"]},{"properties":{"never":{}}}]}`,
		properties: "a",
	},
	"additional": {schema: `{"additionalProperties":{"type":"string"}}`},
	"pattern": {schema: `{"patternProperties":{"^x":{"type":"string"}}}`,
		says: []string{"patternProperties"}},
	"names":     {schema: `{"propertyNames":{"pattern":"^x"}}`, says: []string{"propertyNames"}},
	"dependent": {schema: `{"dependentRequired":{"a":["b"]}}`, says: []string{"dependentRequired"}},
	"count":     {schema: `{"minProperties":1}`, says: []string{"minProperties"}},
	"boolean":   {schema: `{"properties":{"a":true,"b":false}}`, properties: "a b"},
	"unknown":   {schema: `{"x-ui":{"order":[1]},"nullable":true,"discriminator":7}`},
	"big": {
		schema:     `{"properties":{"a":{"type":"integer","maximum":9007199254740993}}}`,
		properties: "a",
		says:       []string{"9007199254740993"},
	},
	"schema2020": {
		schema:     `{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"https://x.example/t","properties":{"a":{}}}`,
		properties: "a",
	},
	"description": {schema: `{"description":"Why."}`, says: []string{"Why."}},
	"self":        {schema: `{"properties":{"kids":{"items":{"$ref":"#"}}}}`, properties: "kids"},
}

// TestEveryFormOfSchemaReachesTheModel sends each to the real runtime, on each wire to
// models.
func TestEveryFormOfSchemaReachesTheModel(t *testing.T) {
	for _, wire := range []string{"completions", "responses"} {
		t.Run(wire, func(t *testing.T) {
			g := newRig(t, func(o *Options) { o.Profile.Provider.Wire = wire })
			s := g.start()
			names := slices.Sorted(maps.Keys(forms))
			for _, name := range names {
				raw := protocol.Raw(forms[name].schema)
				if len(raw) > 0 {
					if _, err := protocol.CompileSchema(raw); err != nil {
						t.Fatalf("%s: %v", name, err)
					}
				}
				s.list = append(
					s.list, gateway.Tool{Name: "t-" + name, Description: "A tool.",
						Provider: "tests", Parameters: raw},
				)
			}
			s.setTools()
			s.turn("hello")
			have := map[string]json.RawMessage{}
			for _, tool := range g.lastRequest().Tools {
				have[tool.Name] = tool.Parameters
			}
			for _, name := range names {
				want, got := forms[name], have["t-"+name]
				if got == nil {
					t.Errorf("%s did not reach the model, want %s", name, want.schema)
					continue
				}
				var is struct {
					Type        string
					Properties  map[string]any
					Required    []string
					Description string
				}
				if err := json.Unmarshal(got, &is); err != nil {
					t.Errorf("%s: %v in %s", name, err, got)
				}
				slices.Sort(is.Required)
				if is.Type != "object" ||
					strings.Join(slices.Sorted(maps.Keys(is.Properties)), " ") != want.properties ||
					strings.Join(is.Required, " ") != want.required {
					t.Errorf(
						"%s: the model was told %s, want an object with the properties %q, of which %q are required",
						name, got, want.properties, want.required,
					)
				}
				for _, text := range want.says {
					if !strings.Contains(string(got), text) &&
						!strings.Contains(is.Description, text) {
						t.Errorf("%s: the model was told %s, want %s in it", name, got, text)
					}
				}
			}
			if notes := s.allNotes(); notes != "" {
				t.Errorf(`notes: %s, want ""`, notes)
			}
		})
	}
}

// TestHiddenToolsStayHidden: a provider's tool with the name of one that the runtime does not list
// is left out, so that it does not bring the model the runtime's own.
func TestHiddenToolsStayHidden(t *testing.T) {
	g := newRig(t)
	s := g.start()
	for _, name := range hiddenTools {
		s.tool(name, text("of the provider"))
	}
	s.tool("hello", text("of the provider"))
	s.turn("call:hello {}")
	if said := s.lastSaid(); !strings.Contains(said, "of the provider") {
		t.Errorf("a tool beside them: %q, want its answer", said)
	}
	for _, name := range hiddenTools {
		s.turn("call:" + name + " {}")
		isMissing := strings.HasPrefix(s.lastSaid(), "There is no tool ")
		if name != "list_agents" && !isMissing { // the runtime lists that one
			t.Errorf("%s: %q, want no such tool", name, s.lastSaid())
		}
		if !strings.Contains(s.allNotes(), "tool "+name+" of provider tests is left out") {
			t.Errorf("%s: notes %s, want one that it is left out", name, s.allNotes())
		}
	}
}
