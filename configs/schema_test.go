package configs

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/google/jsonschema-go/jsonschema"
)

var update = flag.Bool("update", false, "write the schemas anew")

// schemaSource is what a schema is made from: the struct that declares the file's keys, and
// the samples that document them.
type schemaSource struct {
	name    string
	unset   any // a file without keys
	samples []string
	also    func(*jsonschema.Schema)
	parse   func(data []byte) Faults
}

func schemaSources(t *testing.T) []schemaSource {
	t.Helper()
	providers, err := filepath.Glob("providers/*.sample")
	if err != nil || len(providers) == 0 {
		t.Fatalf("the providers of the sample: %v, %v, want some", providers, err)
	}
	slices.SortFunc(providers, func(a, b string) int { // the one that documents most counts first
		if filepath.Base(a) == "hello.toml.sample" {
			return -1
		}
		if filepath.Base(b) == "hello.toml.sample" {
			return 1
		}
		return strings.Compare(a, b)
	})
	return []schemaSource{
		{"tapgw", Default(), []string{"tapgw.toml"}, nil,
			func(d []byte) Faults { _, f := Parse("tapgw.toml", d); return f }},
		{"lsclient", DefaultLSClient(), []string{"lsclient.toml"}, nil,
			func(d []byte) Faults { _, f := ParseLSClient("lsclient.toml", d); return f }},
		{"provider", defaults[Provider](), providers, ofKinds,
			func(d []byte) Faults { _, f := ParseProvider("p.toml", d); return f }},
	}
}

// neverSchema is the schema that no value fits.
var neverSchema = &jsonschema.Schema{Not: &jsonschema.Schema{}}

// durationPattern fits what time.ParseDuration takes.
const durationPattern = `^[+-]?(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$`

// schemaOfTable is the schema of a table, with the values of the struct as defaults.
func schemaOfTable(v reflect.Value) *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type: "object", Properties: map[string]*jsonschema.Schema{},
		AdditionalProperties: neverSchema,
	}
	for _, f := range fieldsOf(v.Type()) {
		key := schemaOfKey(&f, f.in(v))
		if f.tag.Get("need") != "" {
			s.Required, key.Default = append(s.Required, f.key), nil
		}
		s.Properties[f.key], s.PropertyOrder = key, append(s.PropertyOrder, f.key)
	}
	return s
}

// schemaOfKey is the schema of a key with this default.
func schemaOfKey(f *field, v reflect.Value) *jsonschema.Schema {
	_, isCommand := f.tag.Lookup("first")
	_, hasShell := f.tag.Lookup("shell")
	element := func() reflect.Value {
		one := reflect.New(v.Type().Elem()).Elem()
		setDefaults(one)
		return one
	}
	switch unset := v.Interface().(type) {
	case Sessions:
		filter := schemaOfTable(v)
		filter.MinProperties = new(1)
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{
			{Type: "string", Enum: []any{SessionsEach, SessionsAll}}, filter,
		}}
	case DropIns:
		s := schemaOfTable(v)
		dirs := s.Properties["dirs"]
		s.Type, s.Types, s.Items, s.UniqueItems = "", []string{"object", "array"}, dirs.Items,
			dirs.UniqueItems
		return s
	case hookFailure:
		return &jsonschema.Schema{Type: "string", Enum: []any{"closed", "open"},
			Default: literal("closed")}
	case Template, EventText:
		return &jsonschema.Schema{Type: "string", Default: literal("")}
	case string:
		return stringSchema(f, literal(unset))
	case bool:
		return &jsonschema.Schema{Type: "boolean", Default: literal(unset)}
	case int:
		least, most := float64(f.least.Int()), float64(f.most.Int())
		return &jsonschema.Schema{Type: "integer", Minimum: &least, Maximum: &most,
			Default: literal(unset)}
	case float64:
		least, most := f.least.Float(), f.most.Float()
		return &jsonschema.Schema{Type: "number", Minimum: &least, Maximum: &most,
			Default: literal(unset)}
	case time.Duration:
		return &jsonschema.Schema{Type: "string", Pattern: durationPattern,
			Default: literal(unset.String())}
	case []time.Duration:
		one := &jsonschema.Schema{Type: "string", Pattern: durationPattern}
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{one,
			{Type: "array", Items: one, MinItems: new(1)}}}
	case time.Time:
		return &jsonschema.Schema{} // JSON has no dates
	case []string:
		list := &jsonschema.Schema{
			Type: "array", Items: stringSchema(f, nil), UniqueItems: !isCommand,
			Default: literal([]string{}),
		}
		if !hasShell {
			return list
		}
		list.Default, list.MinItems = nil, new(1)
		return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{list,
			{Type: "string", Pattern: `\S`}}}
	case map[string]string:
		s := &jsonschema.Schema{Type: "object", AdditionalProperties: stringSchema(f, nil)}
		if _, isChoice := f.tag.Lookup("of"); isChoice {
			s.Default = literal(map[string]string{})
		}
		return s
	}
	switch {
	case f.names != nil:
		return &jsonschema.Schema{Type: "object", AdditionalProperties: schemaOfTable(element())}
	case v.Kind() == reflect.Slice:
		return &jsonschema.Schema{Type: "array", Items: schemaOfTable(element()),
			Default: literal([]string{})}
	}
	return schemaOfTable(v)
}

// stringSchema is the schema of a string. A check that leaves a choice names it when it refuses.
func stringSchema(f *field, unset json.RawMessage) *jsonschema.Schema {
	s := &jsonschema.Schema{Type: "string", Default: unset}
	if choice, ok := errors.AsType[*choiceError](f.check("\x00")); ok {
		for _, word := range choice.allowed {
			s.Enum = append(s.Enum, word)
		}
	}
	return s
}

// literal is a default as JSON.
func literal(v any) json.RawMessage {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // strings, numbers and booleans only
	}
	return data
}

// ofKinds adds which keys a provider has by its kind.
func ofKinds(s *jsonschema.Schema) {
	needed := map[string]string{KindCommand: "command", KindTools: "dir", KindHTTP: "tools"}
	for _, kind := range []string{KindCommand, KindConnect, KindTools, KindHTTP, KindMCP,
		KindSource} {
		then := &jsonschema.Schema{Properties: map[string]*jsonschema.Schema{}}
		for _, f := range fieldsOf(reflect.TypeFor[Provider]()) {
			if f.kinds != nil && !slices.Contains(f.kinds, kind) {
				then.Properties[f.key] = neverSchema
				then.PropertyOrder = append(then.PropertyOrder, f.key)
			}
		}
		slices.Sort(then.PropertyOrder)
		if key := needed[kind]; key != "" {
			then.Required = []string{key}
		}
		if kind == KindMCP {
			then.OneOf = []*jsonschema.Schema{{Required: []string{"command"}},
				{Required: []string{"url"}}}
		}
		s.AllOf = append(s.AllOf, &jsonschema.Schema{
			If: &jsonschema.Schema{
				Properties: map[string]*jsonschema.Schema{"kind": {Const: new(any(kind))}},
				Required:   []string{"kind"},
			},
			Then: then,
		})
	}
}

// inTables describes the keys that the samples only mention, by their path: * is
// a name.
var inTables = map[string]string{
	"api":                        "Who may use the API.",
	"copilot":                    "Copilot sessions.",
	"hooks":                      "Hooks of your own: programs or URLs that sessions ask.",
	"hooks.*":                    "A hook: a command, or a url.",
	"hooks.*.on":                 "When the session asks the hook.",
	"hooks.*.match":              "Names of tools, with *; all tools if left out. For pre_tool_use and post_tool_use.",
	"hooks.*.command":            "The program and its arguments, one string each, without a shell. It runs in the file's directory.",
	"hooks.*.url":                "The URL to POST to, instead of command.",
	"hooks.*.timeout":            "How long the hook may take; at most 5s for pre_tool_use.",
	"hooks.*.fail":               "For pre_tool_use: whether a hook that fails denies (closed) or allows (open).",
	"proxy":                      "The proxy through which the language server reaches GitHub.",
	"github":                     "The GitHub server.",
	"gateway":                    "Whether conversations become sessions of a gateway.",
	"mcp":                        "MCP servers that the language server runs, by name.",
	"mcp.*.command":              "The program and its arguments, one string each, without a shell.",
	"mcp.*.env":                  "Variables for the server.",
	"mcp.*.url":                  "The URL of a running server, instead of command.",
	"roles":                      "What the workers of lsclient orchestrate are for.",
	"roles.*":                    "A role: its name is what the plan calls it.",
	"roles.*.description":        "What the role is for. The model that plans chooses by it.",
	"roles.*.instructions":       "What a worker of this role is told besides its task.",
	"roles.*.model":              "The id of its model. If empty, it is that of the other turns.",
	"roles.*.tools":              "Names of tools and of their kinds: read, edit, terminal, web. If empty, all tools.",
	"mcp.*":                      "An MCP server: a command, or a url.",
	"sessions.label":             "The label that sessions must have.",
	"sessions.cwd":               "A glob that the sessions' directory must match.",
	"sessions.host":              "The kind of host that sessions must have: copilot, local, or that of another program.",
	"events":                     "What the server tells unasked that becomes events of sessions.",
	"events.*":                   "An entry: about resources, or about log messages. The first entry that fits decides.",
	"events.*.resource":          "The URI of a resource, or a glob of those that the server lists: * is for one segment, ** for several.",
	"events.*.read":              "Whether an event has the resource's content, or only says that it has changed.",
	"events.*.log":               "The least level of the server's log messages, instead of resource.",
	"events.*.logger":            "A glob of the names of their loggers; all loggers if left out.",
	"events.*.stream":            "The stream that stores the events. If empty, it is that of the file's name.",
	"events.*.level":             "How far an event goes: keep, also surface in the timeline, also inject into the model.",
	"events.*.filter":            "Rules for the stream; the first that matches an event's text chooses its level, or drops it.",
	"events.*.filter.*":          "A rule.",
	"events.*.filter.*.match":    "A JavaScript regular expression on the event's text.",
	"events.*.filter.*.outcome":  "The level of events that match, or drop.",
	"permit.tools":               "Tools that edit files, run programs or reach the network, by name.",
	"permit.outside":             "Globs of absolute paths outside the session's directory.",
	"oauth":                      "How the gateway logs in at url, with: tapctl providers login NAME.",
	"oauth.client_id":            "The id of a client that you have registered. If empty, the gateway registers itself.",
	"oauth.client_secret":        "The client's secret: \"${NAME}\" for a variable of the gateway's environment.",
	"oauth.issuer":               "The URL of the only authorization server that may see the client.",
	"oauth.scopes":               "What to ask for. If empty, what the server names.",
	"oauth.port":                 "The port on 127.0.0.1 to which the browser returns; 0: a free one.",
	"tools":                      "Tools whose calls are HTTP requests, by name.",
	"tools.*":                    "A tool: its calls are HTTP requests.",
	"tools.*.args.*":             "An argument.",
	"tools.*.args.*.type":        "The argument's type.",
	"tools.*.args.*.enum":        "The values that the argument may have.",
	"tools.*.args.*.description": "A description for the model.",
	"tools.*.args.*.required":    "Whether a call must have it.",
}

var (
	headerLine = regexp.MustCompile(`^\[([^]]+)\]`)
	keyLine    = regexp.MustCompile(`^([A-Za-z0-9_-]+) = (.*)$`)
	trailing   = regexp.MustCompile(` # ([^"']+|.*"[^"]*".*)$`)
)

// remarks are what samples say of keys, by path. A remark stands above its key, or
// behind it, and holds for the keys below it up to the next empty line.
func remarks(t *testing.T, samples []string) (about string, of map[string]string) {
	t.Helper()
	of = map[string]string{}
	for _, sample := range samples {
		text, err := os.ReadFile(sample)
		if err != nil {
			t.Fatal(err)
		}
		var block []string
		prefix, first := "", true
		for line := range strings.Lines(string(text) + "\n") {
			line = strings.TrimSpace(line)
			said := strings.Join(block, " ")
			add := func(path, said string) {
				if of[path] == "" {
					of[path] = said
				}
			}
			if m := headerLine.FindStringSubmatch(line); m != nil {
				add(m[1], said)
				prefix, block = m[1]+".", nil
			} else if m := keyLine.FindStringSubmatch(line); m != nil {
				if behind := trailing.FindStringSubmatch(m[2]); behind != nil {
					said = behind[1]
				}
				add(prefix+m[1], said)
			} else if rest, ok := strings.CutPrefix(line, "#"); ok {
				if !strings.HasPrefix(rest, ":") {
					block = append(block, strings.TrimSpace(rest))
				}
			} else {
				if first && len(block) > 0 && about == "" {
					about, _, _ = strings.Cut(said, "  ") // up to an empty remark
				}
				first = first && len(block) == 0
				block = nil
			}
		}
	}
	return about, of
}

// describe puts the remarks into a schema.
func describe(t *testing.T, s *jsonschema.Schema, path, above string, of map[string]string) {
	t.Helper()
	join := func(name string) string { return strings.TrimPrefix(path+"."+name, ".") }
	if path != "" && s.Description == "" {
		if s.Description = of[path]; s.Description == "" {
			s.Description = inTables[path]
		}
		if s.Description == "" {
			s.Description = above
		}
		if s.Description == "" && s.Type == "object" {
			s.Description = "The table [" + path + "]."
		}
		if s.Description == "" {
			t.Errorf(
				"%s: nothing says what it is: write a remark above it in the sample, want a text",
				path)
		}
	}
	for name, sub := range s.Properties {
		describe(t, sub, join(name), s.Description, of)
	}
	for _, sub := range s.AnyOf {
		for name, p := range sub.Properties {
			describe(t, p, join(name), "", of)
		}
	}
	for _, sub := range []*jsonschema.Schema{s.AdditionalProperties, s.Items} {
		if sub != nil && len(sub.Properties) > 0 {
			describe(t, sub, join("*"), "", of)
		}
	}
}

// make builds the schema of a file from its reader and its samples.
func (src schemaSource) make(t *testing.T) []byte {
	t.Helper()
	s := schemaOfTable(reflect.ValueOf(src.unset))
	about, of := remarks(t, src.samples)
	for path, said := range of { // a tool and an argument of the sample stand for all
		if rest, ok := strings.CutPrefix(path, "tools.forecast"); ok && src.name == "provider" {
			of["tools.*"+rest] = said
		}
	}
	describe(t, s, "", "", of)
	s.Schema = "https://json-schema.org/draft/2020-12/schema"
	s.Title, s.Description = filepath.Base(strings.TrimSuffix(src.samples[0], ".sample")), about
	if src.name == "provider" {
		s.Title = "providers/NAME.toml"
	}
	if src.also != nil {
		src.also(s)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(s); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// The schemas that are embedded are those that the code and the samples give.
func TestSchemasAreFresh(t *testing.T) {
	for _, src := range schemaSources(t) {
		want := src.make(t)
		file := filepath.Join("schema", src.name+".json")
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if !bytes.Equal(want, Schema(src.name)) {
			t.Errorf("%s is stale: go test ./configs -run TestSchemasAreFresh -update, want %v",
				file, Schema(src.name))
		}
	}
}

// resolved is an embedded schema, ready for use.
func resolved(t *testing.T, name string) (*jsonschema.Schema, *jsonschema.Resolved) {
	t.Helper()
	var s jsonschema.Schema
	if err := json.Unmarshal(Schema(name), &s); err != nil {
		t.Fatal(err)
	}
	r, err := s.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &s, r
}

// asJSON is what a TOML text says, as editors give it to a schema.
func asJSON(t *testing.T, data []byte) map[string]any {
	t.Helper()
	var v map[string]any
	if _, err := toml.Decode(string(data), &v); err != nil {
		t.Fatal(err)
	}
	j, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(j, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSamplesFitTheirSchemas(t *testing.T) {
	for _, src := range schemaSources(t) {
		_, r := resolved(t, src.name)
		for _, sample := range src.samples {
			data, err := os.ReadFile(sample)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Validate(asJSON(t, data)); err != nil {
				t.Errorf("%s: %v", sample, err)
			}
			hint := "#:schema ./schema/" + src.name + ".json\n"
			if src.name == "provider" {
				hint = "#:schema ../schema/provider.json\n"
			}
			if !bytes.HasPrefix(data, []byte(hint)) {
				t.Errorf("%s begins with %.60q, want %q, which editors complete by", sample, data,
					hint)
			}
		}
	}
}

// What one of the two refuses, the other does: unknown keys in every table,
// values of another type, words that there are not to choose from, numbers that
// are too large, keys of another kind of provider.
func TestSchemasAgreeWithTheDecoder(t *testing.T) {
	for _, src := range schemaSources(t) {
		s, r := resolved(t, src.name)
		bases := []string{""}
		if src.name == "provider" {
			bases = []string{
				"kind = \"command\"\ncommand = [\"p\"]\n", "kind = \"connect\"\n",
				"kind = \"tools\"\ndir = \"d\"\n",
				"kind = \"http\"\n[tools.t]\ndescription = \"d\"\nurl = \"https://h/{a}\"\n[tools.t.args.a]\n",
			}
		}
		for _, base := range bases {
			both(t, src, r, base, false)
			doc := asJSON(t, []byte(base))
			probe(s, nil, func(path []string, value any) {
				text, err := withValue(doc, path, value)
				if err != nil {
					t.Fatalf("%s: %v: %v", src.name, path, err)
				}
				both(t, src, r, text, true)
			})
		}
		if src.name == "provider" {
			for _, bad := range []string{
				"", "kind = \"command\"\n", "kind = \"tools\"\n", "kind = \"http\"\n",
				"kind = \"connect\"\ndir = \"d\"\n",
			} {
				both(t, src, r, bad, true)
			}
		}
	}
}

// both checks that schema and decoder are of one mind.
func both(t *testing.T, src schemaSource, r *jsonschema.Resolved, text string, bad bool) {
	t.Helper()
	faults := src.parse([]byte(text))
	err := r.Validate(asJSON(t, []byte(text)))
	if (len(faults) > 0) != bad || (err != nil) != bad {
		t.Errorf("%s: %s\nthe decoder says %v, the schema %v; want both to refuse: %v",
			src.name, text, faults, err, bad)
	}
}

// probe calls bad with values that no file may have, by the path of their key.
func probe(s *jsonschema.Schema, path []string, bad func(path []string, value any)) {
	at := func(name string) []string { return append(slices.Clone(path), name) }
	if s.AdditionalProperties != nil && s.AdditionalProperties.Not != nil {
		bad(at("no_such_key"), 1)
	}
	for name, sub := range s.Properties {
		bad(at(name), []any{[]any{1}})
		switch {
		case len(sub.Enum) > 0:
			bad(at(name), "no such word")
		case sub.Type == "string" && sub.Pattern != "":
			bad(at(name), "3 parsecs")
		case sub.Type == "string":
			bad(at(name), 1)
		case sub.Type == "boolean":
			bad(at(name), "true")
		case sub.Type == "integer":
			bad(at(name), *sub.Maximum+1)
			bad(at(name), *sub.Minimum-1)
		case sub.Type == "array":
			bad(at(name), "one")
			bad(at(name), []any{1})
		}
		for _, one := range sub.AnyOf {
			probe(one, at(name), bad)
		}
		probe(sub, at(name), bad)
	}
	if s.AdditionalProperties != nil && len(s.AdditionalProperties.Properties) > 0 {
		probe(s.AdditionalProperties, at("x"), bad)
	}
}

// withValue is a document with another value at a path, as TOML.
func withValue(doc map[string]any, path []string, value any) (string, error) {
	data, err := json.Marshal(doc)
	if err != nil {
		return "", err
	}
	var root map[string]any
	if err := json.Unmarshal(data, &root); err != nil {
		return "", err
	}
	at := root
	for _, name := range path[:len(path)-1] {
		sub, ok := at[name].(map[string]any)
		if !ok {
			sub = map[string]any{}
			at[name] = sub
		}
		at = sub
	}
	if f, ok := value.(float64); ok {
		value = int64(f)
	}
	at[path[len(path)-1]] = value
	var out bytes.Buffer
	if err := toml.NewEncoder(&out).Encode(root); err != nil {
		return "", fmt.Errorf("encoding: %w", err)
	}
	return out.String(), nil
}
