package server

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
)

// apiDocument is openapi.json as the tests and the documentation read it.
type apiDocument struct {
	OpenAPI string `json:"openapi"`
	Info    struct {
		Title, Summary, Description string
	} `json:"info"`
	Tags       []struct{ Name, Description string } `json:"tags"`
	Paths      map[string]map[string]json.RawMessage
	Components struct {
		Parameters map[string]apiParameter
		Responses  map[string]apiResponse
		Schemas    map[string]json.RawMessage
	}
	schemas map[string]*jsonschema.Resolved // compiled, by their text
}

type apiOperation struct {
	method, path string

	OperationID string
	Tags        []string
	Summary     string
	Description string
	Security    []map[string][]string
	Parameters  []apiParameter
	RequestBody *apiContent
	Responses   map[string]apiResponse
}

func (o *apiOperation) String() string { return o.method + " " + o.path }

type apiParameter struct {
	Ref                   string `json:"$ref"`
	Name, In, Description string
	Required              bool
	Schema                json.RawMessage
	Example               json.RawMessage
}

type apiContent struct {
	Description string
	Content     map[string]apiMedia
}

type apiResponse struct {
	Ref string `json:"$ref"`
	apiContent
}

// apiMedia is a body. Of a stream x-itemSchema is a line, and x-events are the
// events by name.
type apiMedia struct {
	Schema, Example json.RawMessage
	Item            json.RawMessage            `json:"x-itemSchema"`
	Events          map[string]json.RawMessage `json:"x-events"`
}

func readDocument(t *testing.T) *apiDocument {
	t.Helper()
	var d apiDocument
	if err := json.Unmarshal(openapi, &d); err != nil {
		t.Fatal(err)
	}
	d.schemas = map[string]*jsonschema.Resolved{}
	return &d
}

// operations are the document's, references resolved, in the order of their paths.
func (d *apiDocument) operations(t *testing.T) []*apiOperation {
	t.Helper()
	var list []*apiOperation
	for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
		var shared []apiParameter
		if raw, ok := d.Paths[path]["parameters"]; ok {
			if err := json.Unmarshal(raw, &shared); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
		}
		for _, method := range []string{"get", "post", "patch", "delete"} {
			raw, ok := d.Paths[path][method]
			if !ok {
				continue
			}
			o := &apiOperation{method: strings.ToUpper(method), path: path}
			if err := json.Unmarshal(raw, o); err != nil {
				t.Fatalf("%s: %v", o, err)
			}
			o.Parameters = append(slices.Clone(shared), o.Parameters...)
			for i, p := range o.Parameters {
				if name, ok := strings.CutPrefix(p.Ref, "#/components/parameters/"); ok {
					o.Parameters[i] = d.Components.Parameters[name]
				}
				if o.Parameters[i].Name == "" {
					t.Errorf("%s: openapi.json has no parameter %s, want one", o, p.Ref)
				}
			}
			for status, r := range o.Responses {
				if name, ok := strings.CutPrefix(r.Ref, "#/components/responses/"); ok {
					r = d.Components.Responses[name]
					o.Responses[status] = r
				}
				if r.Description == "" {
					t.Errorf("%s: response %s has no description, want one", o, status)
				}
			}
			list = append(list, o)
		}
	}
	return list
}

// check validates a JSON text against a schema of the document. An object has no
// other members than the schema names.
func (d *apiDocument) check(t *testing.T, what string, schema json.RawMessage, text []byte) {
	t.Helper()
	resolved := d.schemas[string(schema)]
	if resolved == nil {
		used := map[string]json.RawMessage{}
		d.uses(schema, used)
		root := map[string]any{"$defs": used}
		var top map[string]any
		if err := json.Unmarshal(schema, &top); err != nil {
			t.Fatalf("%s: schema %s: %v", what, schema, err)
		}
		maps.Copy(root, top)
		data, err := json.Marshal(root)
		if err != nil {
			t.Fatal(err)
		}
		var doc any
		data = []byte(strings.ReplaceAll(string(data), "#/components/schemas/", "#/$defs/"))
		if err := json.Unmarshal(data, &doc); err != nil {
			t.Fatal(err)
		}
		if data, err = json.Marshal(closed(doc,
			doc.(map[string]any)["$defs"].(map[string]any))); err != nil {
			t.Fatal(err)
		}
		var s jsonschema.Schema
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if resolved, err = s.Resolve(nil); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		d.schemas[string(schema)] = resolved
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Errorf("%s: %.200q: %v", what, text, err)
		return
	}
	if err := resolved.Validate(v); err != nil {
		t.Errorf("%s: got %.300s\nwant what the document says: %v", what, text, err)
	}
}

// schemaRef is a reference to a schema of the document.
var schemaRef = regexp.MustCompile(`#/components/schemas/(\w+)`)

// uses collects the schemas that one refers to.
func (d *apiDocument) uses(schema json.RawMessage, used map[string]json.RawMessage) {
	for _, m := range schemaRef.FindAllSubmatch(schema, -1) {
		name := string(m[1])
		if _, ok := used[name]; !ok && d.Components.Schemas[name] != nil {
			used[name] = d.Components.Schemas[name]
			d.uses(used[name], used)
		}
	}
}

// closed forbids the members that a schema does not name. What is all of several
// objects becomes one that has the members of all.
func closed(v any, defs map[string]any) any {
	switch v := v.(type) {
	case map[string]any:
		if parts, ok := v["allOf"].([]any); ok {
			delete(v, "allOf")
			properties, required := map[string]any{}, []any{}
			for _, part := range parts {
				part := part.(map[string]any)
				if ref, ok := part["$ref"].(string); ok {
					part = defs[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
				}
				maps.Copy(properties, part["properties"].(map[string]any))
				if names, ok := part["required"].([]any); ok {
					required = append(required, names...)
				}
			}
			v["type"], v["properties"], v["required"] = "object", properties, required
		}
		for name, member := range v {
			v[name] = closed(member, defs)
		}
		_, names := v["properties"].(map[string]any)
		if _, said := v["additionalProperties"]; names && !said && v["type"] == "object" {
			v["additionalProperties"] = false
		}
	case []any:
		for i := range v {
			v[i] = closed(v[i], defs)
		}
	}
	return v
}

// Each route has its entry in the document, and each entry its route.
func TestOpenAPIRoutes(t *testing.T) {
	var routes []string
	for pattern := range (&api{}).routes() {
		method, path, _ := strings.Cut(pattern, " ")
		routes = append(routes, method+" "+apiPrefix+path)
	}
	session := restSessionPrefix + "{session-id}"
	for _, title := range []string{
		restConfig, restStop, restTest, restToken, restModels, restSessionStart + "/{model-id}",
		session + "/stop", session + "/query", session + "/live",
	} {
		if _, ok := restRoute(restPrefix + title); !ok {
			t.Errorf("%s is none of the session API, want a route for it", title)
		}
		routes = append(routes, "GET "+restPrefix+title, "POST "+restPrefix+title)
	}
	d := readDocument(t)
	var entries []string
	ids := map[string]bool{}
	for _, o := range d.operations(t) {
		entries = append(entries, o.String())
		if o.OperationID == "" || ids[o.OperationID] || o.Summary == "" || len(o.Tags) != 1 {
			t.Errorf(
				"%s: want an operationId of its own, a summary and one tag, got %q, %q and %q",
				o, o.OperationID, o.Summary, o.Tags,
			)
		}
		ids[o.OperationID] = true
		hasTag := func(tag struct{ Name, Description string }) bool { return tag.Name == o.Tags[0] }
		if !slices.ContainsFunc(d.Tags, hasTag) {
			t.Errorf("%s: tag %q is not described, want it among the tags", o, o.Tags[0])
		}
		for _, p := range o.Parameters {
			if p.In == "path" && !strings.Contains(o.path, "{"+p.Name+"}") {
				t.Errorf("%s: parameter %s is not in the path, want it there", o, p.Name)
			}
		}
		if _, ok := o.Responses["default"]; !ok {
			t.Errorf("%s: has no default response, want the error document", o)
		}
	}
	for _, route := range routes {
		if !slices.Contains(entries, route) {
			t.Errorf("%s: openapi.json has no entry, want one for each route", route)
		}
	}
	for _, entry := range entries {
		if !slices.Contains(routes, entry) {
			t.Errorf("%s: openapi.json has an entry, want none without a route", entry)
		}
	}
}

// The examples are what their schemas say.
func TestOpenAPIExamples(t *testing.T) {
	d := readDocument(t)
	if !strings.HasPrefix(d.OpenAPI, "3.1.") {
		t.Errorf("got OpenAPI %s, want 3.1", d.OpenAPI)
	}
	for _, o := range d.operations(t) {
		contents := map[string]apiContent{}
		for status, r := range o.Responses {
			contents["response "+status] = r.apiContent
		}
		if o.RequestBody != nil {
			contents["request"] = *o.RequestBody
		}
		for what, c := range contents {
			for media, m := range c.Content {
				what := fmt.Sprintf("%s: %s %s", o, what, media)
				if len(m.Schema) == 0 {
					t.Errorf("%s: has no schema, want one", what)
				}
				if m.Example != nil {
					d.check(t, what+": the example", m.Schema, m.Example)
				}
			}
		}
	}
}

// The bodies and parameters in the document are those that the handlers take:
// each names them when it refuses another one.
func TestOpenAPIRequests(t *testing.T) {
	f := newOpenAPIFixture(t)
	for _, o := range f.doc.operations(t) {
		if !strings.HasPrefix(o.path, apiPrefix) {
			continue // the session API takes text
		}
		var params []string
		for _, p := range o.Parameters {
			if p.In == "query" {
				params = append(params, p.Name)
			}
		}
		at := f.fill(o, map[string]string{"name": "echo"})
		if len(params) > 0 {
			_, text := f.ask(o.method, at+"?no-such=1", "")
			if got := acceptedFields(t, text); !sameNames(got, params) {
				t.Errorf("%s: got the parameters %q, want %q as in the document", o, got, params)
			}
		}
		var members []string
		if o.RequestBody != nil {
			members = f.doc.members(t, o.RequestBody.Content["application/json"].Schema)
		}
		if o.method != http.MethodPost {
			continue
		}
		status, text := f.ask(o.method, at, `{"no-such":1}`)
		if status == http.StatusOK && o.RequestBody == nil {
			continue // it reads none
		}
		if status == http.StatusNotFound && o.RequestBody == nil {
			continue
		}
		if got := acceptedFields(t, text); !sameNames(got, members) {
			t.Errorf("%s: got the fields %q, want %q as in the document", o, got, members)
		}
	}
}

// members are the names in an object's schema.
func (d *apiDocument) members(t *testing.T, schema json.RawMessage) []string {
	t.Helper()
	var s struct {
		Ref        string `json:"$ref"`
		Properties map[string]json.RawMessage
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		t.Fatal(err)
	}
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		return d.members(t, d.Components.Schemas[name])
	}
	return slices.Sorted(maps.Keys(s.Properties))
}

// acceptedFields reads, from an error, which fields a request may have.
func acceptedFields(t *testing.T, text []byte) []string {
	t.Helper()
	var answer struct{ Error struct{ Message string } }
	if err := json.Unmarshal(text, &answer); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	_, list, ok := strings.Cut(answer.Error.Message, "of this request, which takes ")
	if !ok {
		return []string{answer.Error.Message}
	}
	if list == joinNames(nil) {
		return nil
	}
	return strings.Split(list, ", ")
}

func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
