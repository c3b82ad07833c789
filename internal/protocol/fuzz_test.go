package protocol

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"tapgw/internal/taptest"
)

var spoken = regexp.MustCompile(`(?m)^\w+[<>] (\{.*)$`)

// seeds adds every message of the wire corpus.
func seeds(f *testing.F, add func(message []byte)) {
	files, err := filepath.Glob("../../testdata/wire/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("no corpus: %v, want no error and at least one", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for _, m := range spoken.FindAllSubmatch(text, -1) {
			add(m[1])
		}
	}
}

// memoryToRead is what reading so many bytes may take at most: the schemas within
// are compiled, which takes many times their size.
func memoryToRead(size int) uint64 { return 4<<20 + 4<<10*uint64(size) }

// memoryToCheck is what checking a call's arguments may take at most.
const memoryToCheck = 256 << 20

// FuzzDecode: nothing panics or takes memory without bounds, and what decodes is
// the same when it is written and read again.
func FuzzDecode(f *testing.F) {
	seeds(f, func(m []byte) { f.Add(m) })
	f.Add(
		[]byte(
			`{"type":"tool.result","id":"c","data":{"a":[1e400,"\ud83d"]},"file":{"path":"/x"}}`))
	f.Add(
		[]byte(
			`{"type":"tools.update","remove":[],"tools":[{"name":"a","description":"d","parameters":{"$ref":"#"}}]}`))
	f.Add(
		[]byte(
			`{"type":"hooks.update","transforms":{"a":null,"b":{"action":"append"}},"onPreToolUse":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var frame Frame
		var m Message
		var fault *Error
		taptest.Bounded(t, "opening", memoryToRead(len(data)), func() { frame, fault = Open(data) })
		if fault != nil {
			if fault.Code != CodeInvalidJSON || fault.Message == "" {
				t.Fatalf("%v, want Code %v and a Message", fault, CodeInvalidJSON)
			}
			return
		}
		taptest.Bounded(t, "decoding", memoryToRead(len(data)), func() {
			m, fault = frame.Decode()
		})
		if fault != nil {
			if fault.Code == "" || fault.Message == "" || m != nil {
				t.Fatalf("%v", fault)
			}
			return
		}
		if m.MessageType() != frame.Type {
			t.Fatalf("%s became %s, want %s", frame.Type, m.MessageType(), frame.Type)
		}
		if c, ok := m.(*ToolCall); ok && c.Args != nil && c.Args.Kind() != '{' {
			return // only ever read by providers
		}
		once := Append(nil, m)
		frame, fault = Open(once)
		if fault != nil {
			t.Fatalf("%s: %v", once, fault)
		}
		again, fault := frame.Decode()
		if fault != nil {
			t.Fatalf("%s: %v", once, fault)
		}
		if twice := Append(nil, again); !bytes.Equal(once, twice) {
			t.Fatalf("%s, want %s\n%s", once, twice, twice)
		}
	})
}

// FuzzObject: what it takes is JSON to the standard library too, and so is every
// value that it hands out.
func FuzzObject(f *testing.F) {
	seeds(f, func(m []byte) { f.Add(m) })
	f.Add([]byte(` {"a":{"b":[{}]},"":null} `))
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		seen := map[string]bool{}
		err := Object(data, func(name string, v Raw) error {
			if seen[name] {
				t.Fatalf("%q stands twice, want it once", name)
			}
			seen[name] = true
			if !json.Valid(v) {
				t.Fatalf("%q: %q is not JSON, want JSON", name, v)
			}
			if s, ok := Text(v); ok != (v.Kind() == '"') {
				t.Fatalf("%q: %q, %v, want %v", v, s, ok, (v.Kind() == '"'))
			}
			return nil
		})
		if !bytes.Equal(before, data) {
			t.Fatal("the message was changed, want it as it was")
		}
		if err == nil && !json.Valid(data) {
			t.Fatalf("%q is not JSON, want an error", data)
		}
	})
}

// FuzzPeek: the head of a whole message is what Open finds, that of a part is
// nothing else.
func FuzzPeek(f *testing.F) {
	seeds(f, func(m []byte) { f.Add(m, len(m)/2) })
	f.Add([]byte(`{"requestId":"r","queryId":"q","type":"stream.query"}`), 20)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		whole := Peek(data)
		if frame, fault := Open(data); fault == nil &&
			(whole.Type != frame.Type || whole.RequestID != frame.RequestID) {
			t.Fatalf("%+v, opened as %q %q", whole, frame.Type, frame.RequestID)
		}
		part := Peek(data[:min(max(cut, 0), len(data))])
		if part.Type == "" && whole.Type == TypeStreamQuery {
			part.RequestID = "" // whose requestId is none of its fields
		}
		if (part.Type != "" && part.Type != whole.Type) || (part.ID != "" && part.ID != whole.ID) ||
			(part.RequestID != "" && part.RequestID != whole.RequestID) {
			t.Fatalf("%+v of a part, %+v of the whole", part, whole)
		}
	})
}

// FuzzSchema: compiling and checking end, without a panic and in bounded memory.
func FuzzSchema(f *testing.F) {
	for _, s := range []string{
		`{"type":"object","properties":{"a":{"type":"string","pattern":"^x"}},"required":["a"],"additionalProperties":false}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#","definitions":{"x":{"items":[{},{}],"additionalItems":false}},"dependencies":{"a":["b"],"b":{"$ref":"#/definitions/x"}}}`,
		`{"$defs":{"n":{"$anchor":"n","properties":{"k":{"items":{"$ref":"#n"}}}}},"allOf":[{"$ref":"#/$defs/n"}],"unevaluatedProperties":false}`,
		`{"$id":"https://x.example/a","anyOf":[{"$ref":"a#/$defs/b"}],"$defs":{"b":{"if":{"minProperties":1},"then":{"propertyNames":{"maxLength":3}},"else":false}}}`,
		`{"properties":{"a":{"uniqueItems":true,"contains":{"const":null},"minContains":0,"prefixItems":[true],"unevaluatedItems":{"multipleOf":0.1}}}}`,
		`{"$ref":"#"}`,
		`{"oneOf":[{"enum":[{"a":1},null]},{"not":{"dependentSchemas":{"a":{"$ref":"#/oneOf/0"}}}}]}`,
	} {
		f.Add([]byte(s), []byte(`{"a":[1,null,"x",{}],"b":{"k":[{"k":[]}]}}`))
		f.Add([]byte(s), []byte(`{}`))
	}
	f.Fuzz(func(t *testing.T, schema, args []byte) {
		if !Raw(schema).IsValid() {
			return
		}
		var s *Schema
		var err error
		taptest.Bounded(t, "compiling", memoryToRead(len(schema)), func() {
			s, err = CompileSchema(schema)
		})
		if err != nil {
			if len(err.Error()) > 2*maxErrorLength+len(schema) {
				t.Fatalf("%.1000s, want at most %v", err, 2*maxErrorLength+len(schema))
			}
			return
		}
		taptest.Bounded(t, "checking", memoryToCheck, func() { _ = s.Check(args) })
	})
}
