package schemadoc

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"tapgw/internal/protocol"
)

var update = flag.Bool("update", false, "write docs/schema")

const (
	root   = "../../../"
	folder = root + "docs/schema/"
)

func document(t testing.TB) []byte {
	t.Helper()
	doc, err := os.ReadFile(root + "docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func files(t testing.TB) map[string][]byte {
	t.Helper()
	f, err := Files(document(t))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The files are what the types and the document say.
func TestFilesAreFresh(t *testing.T) {
	want := files(t)
	if *update {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range have {
		if want[e.Name()] != nil {
			continue
		}
		if *update {
			if err := os.Remove(folder + e.Name()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		t.Errorf(
			"docs/schema/%s belongs to no message, want it removed: go test ./internal/protocol/schemadoc -update",
			e.Name(),
		)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if *update {
			if err := os.WriteFile(folder+name, want[name], 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(folder + name)
		if err != nil {
			t.Errorf("%v; run go test ./internal/protocol/schemadoc -update", err)
			continue
		}
		if diff := cmp.Diff(string(got), string(want[name])); diff != "" {
			t.Errorf(
				"docs/schema/%s is stale (-have +want); run go test ./internal/protocol/schemadoc -update:\n%s",
				name, diff)
		}
	}
}

// Every type of message of package protocol has a schema.
func TestEveryMessage(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../protocol.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	have := files(t)
	n := 0
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if id, ok := spec.Type.(*ast.Ident); !ok || id.Name != "Type" {
			return true
		}
		for _, v := range spec.Values {
			name, err := strconv.Unquote(v.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			if n++; have[name+".json"] == nil {
				t.Errorf("there is no schema of %s", name)
			}
		}
		return true
	})
	if n != len(messages) || n != 30 {
		t.Errorf("%d types of messages, %d schemas, want 30", n, len(messages))
	}
}

// schemas are those of the files, by file name.
func schemas(t testing.TB) map[string]*jsonschema.Resolved {
	t.Helper()
	resolved := map[string]*jsonschema.Resolved{}
	for name, text := range files(t) {
		if filepath.Ext(name) != ".json" {
			continue
		}
		if _, err := protocol.CompileSchema(text); err != nil && name != "bundle.json" {
			t.Errorf("%s is no JSON Schema: %v, want %q", name, err, "bundle.json")
		}
		var s jsonschema.Schema
		if err := json.Unmarshal(text, &s); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		r, err := s.Resolve(nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		resolved[name] = r
	}
	return resolved
}

// huge are numbers that no float64 holds: JSON to the protocol, nothing to the
// schema library.
var huge = regexp.MustCompile(`\b1e[0-9]{3,}\b`)

func valid(t testing.TB, s *jsonschema.Resolved, text []byte) error {
	t.Helper()
	var v any
	if err := json.Unmarshal(huge.ReplaceAll(text, []byte("1")), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s.Validate(v)
}

// line is something that was said in the wire corpus.
type line struct {
	at   string
	text []byte
}

var spoken = regexp.MustCompile(`^\w+([<>]) (\{.*)$`)

// corpus returns what both sides said, by side: what a host says is no message.
func corpus(t testing.TB) map[string][]line {
	t.Helper()
	names, err := filepath.Glob(root + "testdata/wire/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatalf("no corpus: %v, want no error and at least one", err)
	}
	said := map[string][]line{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, l := range bytes.Split(text, []byte("\n")) {
			m := spoken.FindSubmatch(l)
			if m == nil || bytes.Contains(l, []byte(`"jsonrpc"`)) {
				continue
			}
			said[string(m[1])] = append(said[string(m[1])],
				line{filepath.Base(name) + ":" + strconv.Itoa(i+1), m[2]})
		}
	}
	return said
}

// What the gateway says, and what it takes, is what the schemas say; and what
// they say it takes.
func TestCorpus(t *testing.T) {
	all := schemas(t)
	said := corpus(t)
	for _, l := range said["<"] {
		f, bad := protocol.Open(l.text)
		if bad != nil {
			t.Errorf("%s: %v", l.at, bad)
			continue
		}
		for _, name := range []string{string(f.Type) + ".json", "bundle.json"} {
			if s := all[name]; s == nil {
				t.Errorf("%s: there is no %s", l.at, name)
			} else if err := valid(t, s, l.text); err != nil {
				t.Errorf("%s: %s does not take it: %v\n%s", l.at, name, err, l.text)
			}
		}
	}
	for _, l := range said[">"] {
		f, bad := protocol.Open(l.text)
		if bad != nil || !f.Type.FromProvider() {
			continue
		}
		_, bad = f.Decode()
		err := valid(t, all[string(f.Type)+".json"], l.text)
		if err == nil {
			err = valid(t, all["bundle.json"], l.text)
		}
		switch {
		case bad == nil && err != nil:
			t.Errorf("%s: the gateway takes it, %s does not: %v\n%s", l.at, f.Type, err, l.text)
		case bad != nil && err == nil && !beyond(bad):
			t.Errorf("%s: the schema takes it, the gateway does not: %v\n%s", l.at, bad, l.text)
		}
	}
}

// beyond reports whether a fault is one that no schema sees: lengths in bytes, a
// tool's own schema, two tools of one name.
func beyond(e *protocol.Error) bool {
	return e.Code == protocol.CodePayloadTooLarge ||
		strings.Contains(e.Message, ".parameters: tool ") ||
		strings.Contains(e.Message, ".outputSchema: tool ") ||
		strings.Contains(e.Message, "stands twice") ||
		strings.Contains(e.Message, "must be base64") ||
		strings.Contains(e.Message, "must be at most")
}

// The schemas and the gateway agree on each field of each message, present,
// wrong and absent.
func TestFields(t *testing.T) {
	all := schemas(t)
	whole := map[protocol.Type]string{
		protocol.TypeAuth:            `{"token":"t","mode":"pair","reconnectToken":"r","session":"s","name":"n","instance":"i"}`,
		protocol.TypeAuthConfirm:     `{"code":"123456"}`,
		protocol.TypeHello:           `{"name":"n","protocolVersion":2,"session":"s","instance":"i","reconnectToken":"r","startup_context":"a","context":"b","metadata":{},"tools":[{"name":"t","description":"d","parameters":{},"timeout":1,"validate":false}],"hooks":{"onPreToolUse":[{"match":{"tool":"t","args":"a","file":"f","provider":"p"},"action":"gate","gateId":"g","failOpen":true},{"action":"context","content":"c"},{"action":"deny","reason":"r"}],"transforms":{"a":{"action":"append","content":"c"},"b":null}},"subscribe":["user.message"],"concurrency":{"max":1,"scope":"tool"}}`,
		protocol.TypeGoodbye:         `{"reason":"r"}`,
		protocol.TypeSessionReady:    `{"sessionId":"s"}`,
		protocol.TypeShutdownReady:   `{"sessionId":"s"}`,
		protocol.TypeToolResult:      `{"id":"i","data":1,"error":"e","errorCode":"INTERNAL","retryable":true,"file":{"path":"p","mimeType":"m","size":1,"ttl":1}}`,
		protocol.TypeToolProgress:    `{"id":"i","message":"m"}`,
		protocol.TypeGateResult:      `{"gateId":"g","callId":"c","decision":"allow","reason":"r"}`,
		protocol.TypeTransformResult: `{"callId":"c","content":""}`,
		protocol.TypePush:            `{"stream":"s","sessionId":"s","broadcast":true,"event":"e","prompt":"p","level":"keep","metadata":{},"requestId":"r"}`,
		protocol.TypeToolsUpdate:     `{"requestId":"r","sessionId":"s","tools":[],"remove":["a"]}`,
		protocol.TypeHooksUpdate:     `{"requestId":"r","sessionId":"s","onPreToolUse":[],"transforms":{"a":null}}`,
		protocol.TypeContextUpdate:   `{"requestId":"r","sessionId":"s","context":""}`,
		protocol.TypeFilterSet:       `{"requestId":"r","sessionId":"s","stream":"s","rules":[{"match":"m","outcome":"drop"}]}`,
		protocol.TypeStreamQuery:     `{"queryId":"q","sessionId":"s","streams":["a"],"last":1}`,
	}
	wrong := []any{nil, "", "x", "a b", "pair", "keep", 0.0, 1.0, 1.5, -1.0, 3600001.0, true,
		[]any{}, []any{"x"}, []any{1.0}, []any{map[string]any{}},
		map[string]any{}, map[string]any{"a": 1.0}, map[string]any{"a": nil},
		map[string]any{"action": "gate"}, map[string]any{"max": 0.0}, map[string]any{"path": ""}}
	for typ, text := range whole {
		var m map[string]any
		if err := json.Unmarshal([]byte(text), &m); err != nil {
			t.Fatal(err)
		}
		m["type"] = string(typ)
		check := func(what string) {
			t.Helper()
			data, err := json.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			f, bad := protocol.Open(data)
			if bad == nil {
				_, bad = f.Decode()
			}
			err = valid(t, all[string(typ)+".json"], data)
			if loose := bad != nil && beyond(bad); (bad == nil) != (err == nil) && !loose &&
				!stricter(typ, m) {
				t.Errorf("%s, %s: the gateway says %v, the schema %v\n%s", typ, what, bad, err,
					data)
			}
		}
		check("whole")
		vary(m, "", wrong, check)
	}
}

// vary changes each field within a value, one at a time.
func vary(v any, at string, values []any, check func(what string)) {
	switch v := v.(type) {
	case map[string]any:
		for key, old := range v {
			if at == "" && key == "type" {
				continue
			}
			for _, bad := range values {
				v[key] = bad
				check(at + "." + key)
			}
			delete(v, key)
			check("without " + at + "." + key)
			v[key] = old
			vary(old, at+"."+key, values, check)
		}
	case []any:
		for i, old := range v {
			for _, bad := range values {
				v[i] = bad
				check(at + "[]")
			}
			v[i] = old
			vary(old, at+"[]", values, check)
		}
	}
}

// stricter reports whether a message has an empty text where the gateway takes
// that for absence and the schema wants a proper value, or null for a text in a
// list: nobody should write so.
func stricter(typ protocol.Type, m map[string]any) bool {
	switch typ {
	case protocol.TypeAuth:
		return m["mode"] == ""
	case protocol.TypePush:
		return m["stream"] == ""
	case protocol.TypeHello:
		c, _ := m["concurrency"].(map[string]any)
		return c["scope"] == ""
	case protocol.TypeToolsUpdate, protocol.TypeStreamQuery:
		list, _ := m["remove"].([]any)
		streams, _ := m["streams"].([]any)
		return slices.Contains(append(list, streams...), nil)
	}
	return false
}

// Names are those that the gateway takes.
func TestNames(t *testing.T) {
	name, tool := regexp.MustCompile(namePattern), regexp.MustCompile(toolNamePattern)
	long := strings.Repeat("x", 64)
	for _, s := range []string{"", "a", "-a", "_a", ".a", "a.b", "a_b-c", "a b", "ä", "a/b", "9",
		long, long + "x",
		"a\n",
		"My Provider", "@scope/name", "-", "- _a", "ä ä", "", "  a--", long + " -", "-" + long,
		long[:62] + " / b",
		long[:62] + " /-b"} {
		if name.MatchString(s) != protocol.ValidName(s) {
			t.Errorf("%q: as a name, want %v", s, protocol.ValidName(s))
		}
		if tool.MatchString(s) != protocol.ValidToolName(s) {
			t.Errorf("%q: as a tool's name, want %v", s, protocol.ValidToolName(s))
		}
	}
}

// A document that says too little, too much or something else is noticed.
func TestDocumentDiffers(t *testing.T) {
	tests := map[string]struct{ old, new, want string }{
		"no message": {"### `goodbye`", "### `farewell`", "does not describe goodbye"},
		"no field": {"| `reason` | optional string | for people |",
			"| `because` | optional string | for people |",
			"does not describe goodbye.reason"},
		"more fields": {"| `reason` | optional string | for people |",
			"| `reason` | optional string | for people |\n| `why` | string | x |",
			"fields of goodbye that it does not have: [why]"},
		"another type": {"| `code` | string | six digits |", "| `code` | integer | six digits |",
			`auth.confirm.code is "integer", but must be "string"`},
		"required": {"| `code` | string | six digits |",
			"| `code` | optional string | six digits |",
			`but must be "string"`},
		"optional": {"| `reason` | optional string | for people |",
			"| `reason` | string | for people |",
			`goodbye.reason is "string", but must be "optional string"`},
		"twice": {"| `code` | string | six digits |",
			"| `code` | string | x |\n| `code` | string | y |",
			"auth.confirm.code is described twice"},
		"too much": {"## Trust\n",
			"## Weather\n\n| Field | Type | Meaning |\n|---|---|---|\n| `sky` | string | x |\n\n## Trust\n",
			"describes Weather, which is no message"},
		"cells": {"| `code` | string | six digits |", "| `code` | six digits |",
			"three cells"},
		"two sections": {"### `goodbye`", "### `hello`", "hello is described twice"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			doc := bytes.Replace(document(t), []byte(tt.old), []byte(tt.new), 1)
			if _, err := Files(doc); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}
