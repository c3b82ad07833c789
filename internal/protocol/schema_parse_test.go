package protocol

import "testing"

// A pattern that JavaScript takes and Go does not is accepted and not checked;
// all the rest of its schema is, where that is sure to be right.
func TestForeignPatterns(t *testing.T) {
	for name, tc := range map[string]struct {
		schema string
		takes  []string
		not    []string
	}{
		"look-ahead": {
			`{"properties":{"p":{"type":"string","pattern":"^(?=.*[0-9]).+$","minLength":2}},"required":["p"],"additionalProperties":false}`,
			[]string{`{"p":"abc"}`, `{"p":"abc1"}`},
			[]string{`{"p":"a"}`, `{"p":1}`, `{}`, `{"p":"ab","q":1}`},
		},
		"not this": {`{"properties":{"p":{"pattern":"^(?!bad)"}}}`, []string{`{"p":"bad"}`, `{}`},
			nil},
		"behind": {`{"properties":{"p":{"pattern":"(?<=a)b(?<!c)"}}}`, []string{`{"p":"x"}`}, nil},
		"back":   {`{"properties":{"p":{"pattern":"(a)\\1"}}}`, []string{`{"p":"x"}`}, nil},
		"escape": {`{"properties":{"p":{"pattern":"\\u00e9\\cA"}}}`, []string{`{"p":"x"}`}, nil},
		"class":  {`{"properties":{"p":{"pattern":"^[\\w-.]+$"}}}`, []string{`{"p":"x"}`}, nil},
		"repeat": {`{"properties":{"p":{"pattern":"^a{2000}$"}}}`, []string{`{"p":"x"}`}, nil},
		"below a branch that only loosens": {
			`{"properties":{"p":{"anyOf":[{"type":"string","pattern":"(?=a)"},{"type":"integer"}]}}}`,
			[]string{`{"p":"x"}`, `{"p":1}`}, []string{`{"p":true}`},
		},
		"below not": {`{"properties":{"p":{"not":{"pattern":"(?=a)"}}}}`,
			[]string{`{"p":"x"}`, `{"p":"a"}`},
			[]string{`[]`}},
		"below if": {`{"properties":{"p":{"if":{"pattern":"(?=a)"},"then":{"maxLength":1}}}}`,
			[]string{`{"p":"xyz"}`}, nil},
		"below oneOf": {`{"properties":{"p":{"oneOf":[{"pattern":"(?=a)"},{"maxLength":3}]}}}`,
			[]string{`{"p":"xyz"}`},
			nil},
		"by name": {
			`{"patternProperties":{"^(?!x)":{"type":"string"}},"additionalProperties":false}`,
			[]string{`{"a":"x"}`, `{"x":"x"}`}, nil,
		},
		"by name, others free": {
			`{"patternProperties":{"^(?!x)":{"type":"string"}},"properties":{"n":{"type":"integer"}}}`,
			[]string{`{"a":1}`, `{"n":1}`}, []string{`{"n":"x"}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := CompileSchema(Raw(tc.schema))
			if err != nil {
				t.Fatal(err)
			}
			for _, args := range tc.takes {
				if err := s.Check(Raw(args)); err != nil {
					t.Errorf("%s: %v", args, err)
				}
			}
			for _, args := range tc.not {
				if s.Check(Raw(args)) == nil {
					t.Errorf("%s: passed", args)
				}
			}
		})
	}
}
