package protocol

import (
	"strings"
	"testing"
)

var plainSchemas = []string{
	`{"type":"object","properties":{"path":{"type":"string"},"line":{"type":"integer","minimum":1},` +
		`"ok":{"type":"boolean"},"x":{"type":"null"}},"required":["path"]}`,
	`{"properties":{"n":{"type":"number","minimum":-2,"maximum":1e3,"multipleOf":3},"e":{"enum":` +
		`["a","b\n",true,5,null]},"c":{"const":"\u00e9"}},"additionalProperties":false}`,
	`{"type":["object","null"],"additionalProperties":{"type":["integer","null"],` +
		`"exclusiveMinimum":1,"exclusiveMaximum":10}}`,
	`{"properties":{"o":{"type":"object","properties":{"f":{"type":"number"}},"required":["f"]},` +
		`"p":{"type":"string","maxLength":2},"\ufffd":{"type":"string"}}}`,
}

func TestPlainSchemaAcceptsTheUsual(t *testing.T) {
	for i, args := range []string{
		`{"path":"a","line":3,"ok":true,"x":null,"more":1.5}`,
		`{"n":999,"e":"b\n","c":"é"}`,
		`{"a":2,"b":null}`,
		`{"o":{"f":-2.5}}`,
	} {
		if !compileT(t, plainSchemas[i]).root.accepts(Raw(args)) {
			t.Errorf("%s is not sure about %s, want it accepted", plainSchemas[i], args)
		}
	}
}

// The check of any value refuses what is no JSON.
func TestPlainSchemaRefusesWhatIsNoJSON(t *testing.T) {
	s, err := CompileValueSchema(Raw(`{"type":["number","string","boolean","null"]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"5a", "-", `"a`, `"a" x`, `"\x"`, "tru", "nul", ""} {
		if s.Check(Raw(value)) == nil {
			t.Errorf("%s is accepted, want an error", value)
		}
	}
}

// A plain schema accepts a value only if the check of the decoded value does, too.
func FuzzPlainAcceptsNoMore(f *testing.F) {
	for _, args := range []string{
		`{"path":"a","line":3}`, `{"path":null}`, `{"path":"a","line":0}`,
		`{"path":"a","line":1.0}`,
		`{"path":"a","line":1e1}`, `{"path":"a","line":-0}`, `{"path":"a","ok":"true"}`,
		`{"path":1}`,
		`{"path":"a","line":12345678901234567890}`, `{"line":1}`, `{"path":"a","x":1e2000}`, `{}`,
		`{"n":1e400}`, `{"n":1001}`, `{"n":-3}`, `{"n":-2.5}`, `{"n":-1}`, `{"n":4}`, `{"e":"c"}`,
		`{"e":"\u0061"}`, `{"e":5}`, `{"e":null}`, `{"e":false}`, `{"n":3,"x":1}`,
		`{"n":3,"n":2000}`, `{"\u006e":2000}`,
		`{"a":1}`, `{"a":10}`, `{"a":"2"}`, `{"a":[]}`, `{"o":{}}`, `{"o":{"f":"1"}}`,
		`{"p":"abc"}`,
		`{"c":"e"}`, "{\"\xff\":1}", `[]`, `{"more":` + strings.Repeat("1", maxDigits+1) + `}`,
	} {
		f.Add([]byte(args))
	}
	var schemas []*Schema
	for _, raw := range plainSchemas {
		schemas = append(schemas, compileT(f, raw))
	}
	f.Fuzz(func(t *testing.T, args []byte) {
		for i, s := range schemas {
			whole := Schema{root: &subschema{allOf: []*subschema{s.root}}} // it is not plain
			if s.Check(args) != nil {
				continue
			}
			if err := whole.Check(args); err != nil {
				t.Errorf("%s accepts %s, the check says: %v", plainSchemas[i], args, err)
			}
		}
	})
}
