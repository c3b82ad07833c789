package outputschema

import (
	"strings"
	"testing"
)

func TestParseOutputSchema(t *testing.T) {
	tests := map[string]struct{ schema, fault string }{
		"an object": {`{"type":"object","properties":{"type":{"enum":["strng"]}}}`, ""},
		"a tree": {
			`{"$defs":{"n":{"properties":{"c":{"$ref":"#/$defs/n"}}}},"$ref":"#/$defs/n"}`,
			"",
		},
		"draft 7": {`{"$schema":"http://json-schema.org/draft-07/schema#","type":"null"}`, ""},
		"no JSON": {"{\n\"type\": x}", "line 2: is not JSON"},
		"nothing": {"", "line 1: is not JSON"},
		"a list":  {`[]`, "is not a JSON object"},
		"null":    {`null`, "is not a JSON object"},
		"a type that does not exist": {
			`{"properties":{"a/b":{"type":"strng"}}}`,
			`/properties/a~1b/type: must be object, array, string`,
		},
		"one among several": {
			`{"anyOf":[{"type":["null","any"]}]}`,
			`/anyOf/0/type/1: must be object, array, string`,
		},
		"a limit that is no number": {`{"minimum":"x"}`, "/minimum: must be a number"},
		"a pattern that is none":    {`{"pattern":"("}`, "/pattern: is not a pattern"},
		"a pattern of JavaScript": {`{"not":{"pattern":"(?=a)"}}`,
			"needs JavaScript's engine"},
		"a reference elsewhere":  {`{"$ref":"https://x.example/y"}`, "is not in this schema"},
		"a reference to nothing": {`{"$ref":"#/$defs/n"}`, "is not in this schema"},
		"a reference to itself":  {`{"$ref":"#"}`, "refers to itself"},
		"a reference round the corner": {`{"$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"}]}}}`,
			"refers to itself"},
		"a reference in capitals": {`{"$REF":"#"}`, `/$REF: is no keyword; write "$ref"`},
		"an encoded reference":    {`{"$ref":"#/%24defs/n","$defs":{"n":{}}}`, ""},
		"a draft that is too old": {`{"$schema":"http://json-schema.org/draft-04/schema#"}`,
			"draft-04"},
	}
	for name, tt := range tests {
		_, err := parse([]byte(tt.schema))
		if (err == nil) != (tt.fault == "") || err != nil &&
			!strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%s: got %v, want %q", name, err, tt.fault)
		}
	}
}

func TestReadOutput(t *testing.T) {
	schema, err := parse(
		[]byte(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct{ answer, want, fault string }{
		"a value": {` {"n": 12345678901234567890} ` + "\n", `{"n": 12345678901234567890}`,
			""},
		"a fenced value": {"```json\n{\"n\":1}\n```", `{"n":1}`, ""},
		"a fenced value in prose": {
			"So:\n```\n{\"n\":1}\n```\nOr rather\n```json\n{\"n\":2}\n```\n",
			`{"n":2}`,
			"",
		},
		"a value with fences in it": {`{"n":1,"t":"` + "```\\n```" + `"}`, `{"n":1,"t":"` +
			"```\\n```" + `"}`, ""},
		"prose":      {"I can't.", "", "is not JSON"},
		"nothing":    {" \n", "", "is empty"},
		"two values": {`{"n":1} {"n":2}`, "", "is not JSON"},
		"another type": {
			`{"n":"one"}`,
			"",
			`/properties/n: type: one has type "string", want "integer"`,
		},
		"null":                         {"null", "", `type: null has type "null", want "object"`},
		"a value without the property": {`{}`, "", "required"},
		"control characters":           {`{"n":"\u001b[31m"}`, "", ` [31m has type`},
		"a fence that does not end":    {"```json\n{\"n\":1}", "", "is not JSON"},
	}
	for name, tt := range tests {
		got, err := schema.Read(tt.answer)
		if string(got) != tt.want || (err == nil) != (tt.fault == "") ||
			err != nil && !strings.Contains(err.Error(), tt.fault) {
			t.Errorf("%s: got %s, %v; want %s, %q", name, got, err, tt.want, tt.fault)
		}
	}
}

// No schema and no answer breaks the program.
func FuzzOutputSchema(f *testing.F) {
	f.Add(`{"$ref":"#"}`, `{}`)
	f.Add(`{"$reF":"#"}`, `{}`)
	f.Add(`{"dependencies":{"a":{"$ref":"#"}}}`, `{"a":1}`)
	f.Add(`{"allOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"not":{"$ref":"#"}}}}`, `1`)
	f.Add(`{"type":["object","null"],"properties":{"a":{"items":[true]}}}`,
		"```json\n{\"a\":[1]}\n```")
	f.Fuzz(func(t *testing.T, schema, answer string) {
		s, err := parse([]byte(schema))
		if err != nil {
			return
		}
		if value, err := s.Read(answer); (value == nil) == (err == nil) {
			t.Errorf("schema %s, answer %q: got %s and %v, want one of the two", schema, answer,
				value, err)
		}
	})
}
