package protocol

import (
	"encoding/json"
	"testing"
)

var flatSchemas = []string{
	`{"type":"object","properties":{"path":{"type":"string"},"line":{"type":"integer","minimum":1},"ok":{"type":"boolean"}},"required":["path"]}`,
	`{"type":"object","properties":{"n":{"type":"number","minimum":-1.5,"maximum":1e3},"e":{"type":"string","enum":["a","b"]}},"additionalProperties":false}`,
	`{"type":"object"}`,
}

var notFlat = []string{
	`{}`, // no type
	`{"type":["object","null"]}`,
	`{"type":"object","properties":{"a":{"type":"array"}}}`,
	`{"type":"object","properties":{"a":{"type":"string","pattern":"x"}}}`,
	`{"type":"object","properties":{"a":{}}}`,
	`{"type":"object","properties":{"a":true}}`,
	`{"type":"object","required":["other"]}`,
	`{"type":"object","additionalProperties":{"type":"string"}}`,
	`{"type":"object","minProperties":1}`,
	`{"type":"object","properties":{"a":{"type":"integer","enum":[1]}}}`,
}

func compileT(t testing.TB, raw string) *Schema {
	t.Helper()
	s, err := CompileSchema(Raw(raw))
	if err != nil {
		t.Fatalf("compiling %s: %v", raw, err)
	}
	return s
}

func TestFlattenOnlyPlainSchemas(t *testing.T) {
	for _, raw := range flatSchemas {
		if compileT(t, raw).flat == nil {
			t.Errorf("%s was not flattened", raw)
		}
	}
	for _, raw := range notFlat {
		if raw == `{}` {
			continue
		}
		if compileT(t, raw).flat != nil {
			t.Errorf("%s was flattened, though it says more", raw)
		}
	}
}

func TestFlatAcceptsTheUsual(t *testing.T) {
	for i, args := range []string{
		`{"path":"a","line":3,"ok":true,"extra":[1]}`,
		`{"n":-1.5,"e":"b"}`,
		`{}`,
	} {
		if !compileT(t, flatSchemas[i]).flat.accepts(Raw(args)) {
			t.Errorf("%s is not sure about %s, want it accepted", flatSchemas[i], args)
		}
	}
}

// agree fails when flat accepts what the rules refuse.
func agree(t *testing.T, s *Schema, args []byte) {
	t.Helper()
	if !json.Valid(args) || !s.flat.accepts(args) {
		return
	}
	var v map[string]any
	if err := decodeNumbers(args, &v); err != nil {
		t.Errorf("flat accepts %s, which is no object: %v", args, err)
		return
	}
	if m := s.root.requirements.check(v, nil); m != nil {
		t.Errorf("flat accepts %s, the rules say: %v", args, m)
	}
}

func FuzzFlatAcceptsNoMore(f *testing.F) {
	for _, args := range []string{
		`{"path":"a","line":3}`, `{"path":null}`, `{"path":"a","line":0}`, `{"path":"a","line":1.0}`,
		`{"path":"a","line":1e1}`,
		`{"path":"a","line":-0}`, `{"path":"a","line":12345678901234567890}`, `{"path":1}`, `{"line":1}`,
		`{"path":"a","ok":"true"}`,
		`{"n":1e400}`, `{"n":1001}`, `{"n":-1.6}`, `{"e":"c"}`, `{"e":"\u0061"}`, `{"n":1,"x":1}`, `[]`,
		`{"n":1,"n":2000}`, `{"\u006e":2000}`,
	} {
		f.Add([]byte(args))
	}
	f.Fuzz(func(t *testing.T, args []byte) {
		for _, raw := range flatSchemas {
			agree(t, compileT(t, raw), args)
		}
	})
}
