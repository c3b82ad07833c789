package server

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Update says to write what tests compare with: the wire corpus, docs/admin-api.md.
var Update = flag.Bool("update", false, "write the wire corpus and docs/admin-api.md anew")

// endOfReference separates the part of docs/admin-api.md that comes from openapi.json from the
// part that people write.
const endOfReference = "<!-- end of openapi.json -->\n"

// TestAdminAPIDocument holds the first part of docs/admin-api.md against what openapi.json makes
// of it; -update writes it.
func TestAdminAPIDocument(t *testing.T) {
	file := filepath.Join("..", "..", "docs", "admin-api.md")
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, written, marked := strings.Cut(string(have), endOfReference)
	if !marked {
		t.Fatalf("docs/admin-api.md has no line %q, want one", endOfReference)
	}
	want := string(readDocument(t).markdown(t))
	switch {
	case got == want:
	case *Update:
		if err := os.WriteFile(file, []byte(want+endOfReference+written), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Error("docs/admin-api.md is stale, want what openapi.json says: " +
			"go test ./internal/server -run TestAdminAPIDocument -update")
	}
}

// sample shows how the API is used.
const sample = `api=http://127.0.0.1:9400/api/v1 auth="Authorization: Bearer $(cat ~/.copilot/extensions/tap/.admin-token)"
id=$(curl -s -H "$auth" $api/sessions -d "{\"cwd\":\"$PWD\"}" | jq -r .id)
curl -sN -H "$auth" "$api/sessions/$id/events?last=100"   # what happened, and what will
curl -s -H "$auth" $api/sessions/$id/query -d '{"prompt":"what changed since yesterday?","detach":true}'`

// markdown renders the document for people.
func (d *apiDocument) markdown(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p("# The admin API\n\n%s %s\n", d.Info.Summary, d.Info.Description)
	p(
		"`GET /api/v1/openapi.json` is this for machines. A body is JSON where nothing else is said. " +
			"A name with `?` may be left out. Programs that were written for the older contract use " +
			"[the session API](#the-session-api).\n")
	p("```sh not run: it needs the gateway at its usual port\n%s\n```\n", sample)
	p("**Errors** are documents too, with a status and a code. %s\n",
		strings.TrimPrefix(d.Components.Responses["Error"].Description, "Why not. "))
	operations := d.operations(t)
	for _, tag := range d.Tags {
		if tag.Name == "session API" {
			continue
		}
		p("## %s\n\n%s\n", strings.ToUpper(tag.Name[:1])+tag.Name[1:], tag.Description)
		for _, o := range operations {
			if o.Tags[0] == tag.Name {
				d.operation(t, p, o)
			}
		}
	}
	p("## Objects\n")
	for _, name := range slices.Sorted(maps.Keys(d.Components.Schemas)) {
		if strings.HasPrefix(name, "Contract") {
			continue
		}
		s := d.schema(t, d.Components.Schemas[name])
		if len(s.Properties) == 0 {
			continue
		}
		p("### %s\n", name)
		if s.Description != "" {
			p("%s\n", s.Description)
		}
		d.listMembers(t, p, s)
	}
	return append(bytes.TrimRight(b.Bytes(), "\n"), '\n')
}

func (d *apiDocument) operation(t *testing.T, p func(string, ...any), o *apiOperation) {
	t.Helper()
	p("### %s\n\n%s.", o, o.Summary)
	if o.Description != "" {
		p("%s", o.Description)
	}
	p("")
	var params []apiParameter
	for _, parameter := range o.Parameters {
		if parameter.In != "path" {
			params = append(params, parameter)
		}
	}
	for _, parameter := range params {
		s := d.schema(t, parameter.Schema)
		name := "`" + parameter.Name + "`"
		if parameter.In == "header" {
			name = "header " + name
		}
		item(p, name, s.kind(), s.note(parameter.Description))
	}
	if len(params) > 0 {
		p("")
	}
	if o.RequestBody != nil {
		for _, media := range slices.Sorted(maps.Keys(o.RequestBody.Content)) {
			m := o.RequestBody.Content[media]
			p("Body: %s.\n", d.schema(t, m.Schema).kind())
			d.example(p, m)
		}
	}
	for _, status := range slices.Sorted(maps.Keys(o.Responses)) {
		if status == "default" {
			continue
		}
		r := o.Responses[status]
		p("**%s** %s", status, r.Description)
		for _, media := range slices.Sorted(maps.Keys(r.Content)) {
			m := r.Content[media]
			switch {
			case m.Events != nil:
				p("")
				for _, name := range slices.Sorted(maps.Keys(m.Events)) {
					s := d.schema(t, m.Events[name])
					item(p, "`"+name+"`", s.kind(), s.note(""))
				}
			case m.Item != nil:
				p("As %s, a line each: %s.", media, d.schema(t, m.Item).kind())
			case m.Schema != nil && media == "application/json":
				p("Body: %s.", d.schema(t, m.Schema).kind())
			case m.Schema != nil:
				p("As %s: %s.", media, d.schema(t, m.Schema).kind())
			}
			p("")
			d.example(p, m)
		}
	}
}

func (d *apiDocument) example(p func(string, ...any), m apiMedia) {
	if text := string(m.Example); len(text) > 2 {
		var b bytes.Buffer
		_ = json.Compact(&b, m.Example) // it was decoded
		p("```json\n%s\n```\n", strings.ReplaceAll(strings.ReplaceAll(b.String(), `":`, `": `),
			`,"`, `, "`))
	}
}

// apiSchema is what of a schema the documentation shows.
type apiSchema struct {
	Ref         string `json:"$ref"`
	Type        any
	Description string
	Enum        []any
	Const       any
	Default     any
	Minimum     *float64
	Items       *apiSchema
	AnyOf       []apiSchema
	AllOf       []apiSchema
	Required    []string
	Properties  json.RawMessage
}

func (d *apiDocument) schema(t *testing.T, raw json.RawMessage) *apiSchema {
	t.Helper()
	var s apiSchema
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return &s
}

// kind says what a value is.
func (s *apiSchema) kind() string {
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		if name == "Nothing" {
			return "`{}`"
		}
		return "[" + name + "](#" + strings.ToLower(name) + ")"
	}
	if s.AnyOf != nil {
		var kinds []string
		for _, one := range s.AnyOf {
			kinds = append(kinds, one.kind())
		}
		return strings.Join(kinds, " or ")
	}
	if s.AllOf != nil {
		var parts []string
		for _, one := range s.AllOf {
			if one.Ref != "" {
				parts = append(parts, one.kind())
				continue
			}
			for _, name := range one.Required {
				parts = append(parts, "`"+name+"`")
			}
		}
		return parts[0] + " with " + strings.Join(parts[1:], ", ")
	}
	switch typ := s.Type.(type) {
	case []any:
		return fmt.Sprint(typ[0])
	case string:
		if typ == "array" {
			return "array of " + s.Items.kind()
		}
		return typ
	}
	if s.Const != nil {
		return fmt.Sprintf("`%v`", s.Const)
	}
	return "any"
}

// note is a description with what else the schema says.
func (s *apiSchema) note(description string) string {
	notes := []string{}
	if description != "" {
		notes = append(notes, description)
	}
	if len(s.Enum) > 0 {
		var words []string
		for _, e := range s.Enum {
			words = append(words, fmt.Sprintf("`%v`", e))
		}
		notes = append(notes, "One of "+strings.Join(words, ", ")+".")
	}
	if s.Default != nil {
		notes = append(notes, fmt.Sprintf("Default `%v`.", s.Default))
	}
	if s.Minimum != nil {
		notes = append(notes, fmt.Sprintf("At least %v.", *s.Minimum))
	}
	return strings.Join(notes, " ")
}

// item writes a line of a list: a name, the type of its value, and a note if there is one.
func item(p func(string, ...any), name, kind, note string) {
	if note != "" {
		note = ". " + note
	}
	p("- %s: %s%s", name, kind, note)
}

// listMembers lists an object's members, in the order of the document.
func (d *apiDocument) listMembers(t *testing.T, p func(string, ...any), s *apiSchema) {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(s.Properties))
	if _, err := dec.Token(); err != nil {
		t.Fatal(err)
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			t.Fatal(err)
		}
		var member apiSchema
		if err := dec.Decode(&member); err != nil {
			t.Fatal(err)
		}
		optional := "?"
		if slices.Contains(s.Required, name.(string)) {
			optional = ""
		}
		item(p, fmt.Sprintf("`%s`%s", name, optional), member.kind(),
			member.note(member.Description))
	}
	p("")
}
