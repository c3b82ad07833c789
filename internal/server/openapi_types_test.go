package server

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
)

// schemaTypes are the types that openapi.json describes, each under its name.
var schemaTypes = []any{
	adminapi.Answer{}, adminapi.Call{}, adminapi.CallNote{}, adminapi.CallResult{},
	adminapi.Callback{},
	adminapi.Files{}, adminapi.Command{}, adminapi.CommandChoice{}, adminapi.RunCommand{},
	adminapi.CommandRan{}, adminapi.Cluster{}, adminapi.ClusterGateway{}, adminapi.KeptHistory{},
	adminapi.Broadcast{},
	adminapi.ConfiguredProvider{}, adminapi.Diagnostics{}, adminapi.Error{}, adminapi.ErrorNote{},
	adminapi.Fault{}, adminapi.Earlier{}, adminapi.SessionEvent{}, adminapi.Faults{},
	adminapi.Gap{}, adminapi.GateNote{}, adminapi.Interrupt{}, adminapi.Interrupted{},
	adminapi.Keep{}, adminapi.LoggedOut{}, adminapi.LoginRequest{}, adminapi.LoginStep{},
	adminapi.MCPToken{}, adminapi.Record{}, adminapi.Records{}, adminapi.Source{},
	adminapi.Goal{}, adminapi.GoalContract{}, adminapi.GoalBudget{}, adminapi.GoalIteration{},
	adminapi.GoalRequest{},
	adminapi.GoalStop{}, adminapi.Check{}, adminapi.FileCheck{}, adminapi.StreamCheck{},
	adminapi.CallCheck{},
	adminapi.Evidence{},
	adminapi.Terminal{}, adminapi.TerminalHook{}, adminapi.TerminalAnswer{},
	adminapi.TerminalAttach{},
	adminapi.TerminalAttached{},
	adminapi.Model{}, adminapi.ModelRequest{}, adminapi.Nothing{}, adminapi.Pairing{},
	adminapi.Persisted{}, adminapi.Provider{}, adminapi.ProviderLoad{},
	adminapi.ProviderToken{}, adminapi.Push{}, adminapi.PushBudget{},
	adminapi.EditQueued{}, adminapi.QueuedPrompt{}, adminapi.Query{}, adminapi.Question{},
	adminapi.Receipt{}, adminapi.RecordingLine{}, adminapi.RecordingStart{},
	adminapi.RenameRequest{}, adminapi.Restarted{},
	adminapi.ResumeRequest{}, adminapi.RuntimeEvent{}, adminapi.Session{}, adminapi.SigninLink{},
	adminapi.StartRequest{}, adminapi.Started{}, adminapi.StartedProvider{}, adminapi.Status{},
	adminapi.Stopped{},
	adminapi.StreamRow{}, adminapi.Sums{}, adminapi.TimelineLine{}, adminapi.Tool{},
	adminapi.ToolAnnotations{},
	adminapi.TurnEnd{},
	adminapi.Rule{}, adminapi.RuleMatch{}, adminapi.SessionRule{},
	adminapi.Filters{}, adminapi.Filter{}, adminapi.FilterRule{}, adminapi.DroppedEvent{},
	adminapi.Usage{}, adminapi.Context{}, adminapi.ModelCall{},
}

// TestOpenAPITypes compares the schemas of openapi.json with the types of adminapi: which
// fields there are, of what type, and which of them are always there.
func TestOpenAPITypes(t *testing.T) {
	c := &schemaComparison{t: t, doc: readDocument(t),
		compared: map[string]bool{"SigninRequest": true, "RecordQuery": true}}
	types := map[string]reflect.Type{}
	for _, v := range schemaTypes {
		typ := reflect.TypeOf(v)
		types[typ.Name()] = typ
	}
	for name, schema := range c.doc.Components.Schemas {
		switch typ := types[name]; {
		case strings.HasPrefix(name, "Contract"): // of the session API
		case typ == nil:
			t.Errorf("openapi.json has the schema %s, want a type of that name in schemaTypes",
				name)
		default:
			c.value(name, c.object(schema), typ)
		}
		delete(types, name)
	}
	for name := range types {
		t.Errorf("openapi.json has no schema %s, want one for the type adminapi.%s", name, name)
	}
	signin := c.object(c.operation("POST",
		apiPrefix+"/signin-links").RequestBody.Content["application/json"].Schema)
	c.value("SigninRequest", signin, reflect.TypeFor[adminapi.SigninRequest]())
	for _, name := range adminTypes(t) {
		if !c.compared[name] {
			t.Errorf(
				"openapi.json does not describe adminapi.%s, want it in schemaTypes, or removed",
				name)
		}
	}
}

// adminTypes are the structs that adminapi declares.
func adminTypes(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob("../adminapi/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("files of adminapi: got %v (%v), want some", files, err)
	}
	for _, path := range files {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok {
				if _, isStruct := spec.Type.(*ast.StructType); isStruct {
					names = append(names, spec.Name.Name)
				}
			}
			return true
		})
	}
	return names
}

// schemaComparison compares schemas with types, and notes the structs that it has seen.
type schemaComparison struct {
	t        *testing.T
	doc      *apiDocument
	compared map[string]bool
}

func (c *schemaComparison) operation(method, path string) *apiOperation {
	c.t.Helper()
	for _, o := range c.doc.operations(c.t) {
		if o.method == method && o.path == path {
			return o
		}
	}
	c.t.Fatalf("openapi.json has no %s %s, want it", method, path)
	return nil
}

func (c *schemaComparison) object(schema json.RawMessage) map[string]any {
	c.t.Helper()
	var o map[string]any
	if err := json.Unmarshal(schema, &o); err != nil {
		c.t.Fatalf("schema %s: %v", schema, err)
	}
	return o
}

// value compares one value. at is the path to it: a schema and its fields.
func (c *schemaComparison) value(at string, schema map[string]any, typ reflect.Type) {
	c.t.Helper()
	if typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	if ref, ok := schema["$ref"].(string); ok {
		if got := strings.TrimPrefix(ref, "#/components/schemas/"); got != typ.Name() {
			c.t.Errorf("%s: openapi.json refers to %s, want %s as in adminapi", at, got, typ.Name())
		}
		return
	}
	if typ == reflect.TypeFor[json.RawMessage]() {
		return // any JSON; the schema may say more
	}
	want := jsonType(typ)
	if got := schemaType(schema); got != want && got != "" {
		c.t.Errorf("%s: openapi.json says %s, want %s as in adminapi", at, got, want)
		return
	}
	switch {
	case want == "array":
		items, _ := schema["items"].(map[string]any)
		c.value(at+"[]", items, typ.Elem())
	case want == "object" && typ.Kind() == reflect.Map:
		values, _ := schema["additionalProperties"].(map[string]any)
		c.value(at+"{}", values, typ.Elem())
	case want == "object":
		c.fields(at, schema, typ)
	}
}

// jsonType is the type of the JSON of a Go type, with the format of a time.
func jsonType(typ reflect.Type) string {
	switch typ.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Float64:
		return "number"
	case reflect.Slice:
		if typ.Elem().Kind() == reflect.Uint8 {
			return "string" // base64
		}
		return "array"
	case reflect.Struct, reflect.Map:
		if typ == reflect.TypeFor[time.Time]() {
			return "string date-time"
		}
		return "object"
	}
	return "integer"
}

// schemaType is the type that a schema names, with the format of a time; "" where a list of
// values stands for it. That null is allowed, too, does not count.
func schemaType(schema map[string]any) string {
	name, _ := schema["type"].(string)
	if list, ok := schema["type"].([]any); ok && len(list) == 2 && list[1] == "null" {
		name, _ = list[0].(string)
	}
	if _, ok := schema["allOf"]; ok {
		name = "object"
	}
	if schema["format"] == "date-time" {
		name += " date-time"
	}
	return name
}

// fields compares an object's fields with a struct's.
func (c *schemaComparison) fields(at string, schema map[string]any, typ reflect.Type) {
	c.t.Helper()
	c.compared[typ.Name()] = true
	properties, required := map[string]any{}, []any{}
	parts, _ := schema["allOf"].([]any)
	for _, part := range append(parts, schema) {
		part := part.(map[string]any)
		if ref, ok := part["$ref"].(string); ok {
			part = c.object(c.doc.Components.Schemas[strings.TrimPrefix(ref,
				"#/components/schemas/")])
		}
		if p, ok := part["properties"].(map[string]any); ok {
			maps.Copy(properties, p)
		}
		if names, ok := part["required"].([]any); ok {
			required = append(required, names...)
		}
	}
	for _, f := range reflect.VisibleFields(typ) {
		if f.Anonymous {
			c.compared[f.Type.Name()] = true
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		property, ok := properties[name].(map[string]any)
		if !ok {
			c.t.Errorf("%s.%s: openapi.json does not have it, want it as in adminapi", at, name)
			continue
		}
		got, want := slices.Contains(required, any(name)), !strings.Contains(options, "omit")
		if got != want {
			c.t.Errorf("%s.%s: openapi.json has required %t, want %t as in adminapi", at, name, got,
				want)
		}
		c.value(at+"."+name, property, f.Type)
		delete(properties, name)
	}
	for name := range properties {
		c.t.Errorf("%s.%s: openapi.json has it, and adminapi does not, want both or neither", at,
			name)
	}
}
