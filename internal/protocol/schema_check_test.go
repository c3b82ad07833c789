package protocol

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// chain is a schema that takes n references for each level of x.
func chain(n int) string {
	var b strings.Builder
	b.WriteString(`{"properties":{"x":{"$ref":"#/$defs/d0"}},"$defs":{`)
	for i := range n {
		fmt.Fprintf(&b, `"d%d":{"$ref":"#/$defs/d%d"},`, i, i+1)
	}
	fmt.Fprintf(&b, `"d%d":{"properties":{"x":{"$ref":"#/$defs/d0"}}}}}`, n)
	return b.String()
}

func nested(levels int) string {
	return strings.Repeat(`{"x":`, levels) + "1" + strings.Repeat("}", levels)
}

// Arguments whose check would take hours or overflow the stack are refused; arguments that are only
// large are not.
func TestCheckIsBounded(t *testing.T) {
	const doubling = `{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"properties":{"x":{"$ref":"#/$defs/a"}}},` +
		`{"properties":{"x":{"$ref":"#/$defs/a"}}}]}}}`
	tries := `{"properties":{"x":{"items":{"anyOf":[` + strings.Repeat(`{"type":"string"},`, 500) +
		`{"type":"integer"}]}}}}`
	for name, tc := range map[string]struct {
		schema, args string
		refused      bool
	}{
		"doubling at each level": {doubling, nested(40), true},
		"doubling, a few levels": {doubling, nested(8), false},
		"deep":                   {chain(50), nested(9000), true},
		"as deep as people nest": {chain(3), nested(50), false},
		"many errors of many":    {tries, `{"x":[` + strings.Repeat("1,", 500_000) + `1]}`, true},
		"many steps of each": {`{"properties":{"x":{"items":{"allOf":[` +
			strings.Repeat(`true,`, 99) +
			`true]}}}}`, `{"x":[` + strings.Repeat("1,", 100_000) + `1]}`, true},
		"a long list again and again": {`{"properties":{"x":{"items":{"enum":["` +
			strings.Repeat(`a","`, 20_000) + `b"]}}}}`,
			`{"x":[` + strings.Repeat(`"b",`, 200) + `"b"]}`, false},
		"a long list once": {`{"properties":{"x":{"enum":["` + strings.Repeat(`a","`, 20_000) +
			`b"]}}}`,
			`{"x":"b"}`, false},
		"a constant again and again": {`{"properties":{"x":{"items":{"const":"` +
			strings.Repeat("a", 100_000) + `"}}}}`, `{"x":[` + strings.Repeat(`"`+
			strings.Repeat("a", 100_000)+`",`, 200) + `"a"]}`, true},
		"a heavy pattern on much": {`{"properties":{"x":{"pattern":"(a?){300}a{300}b"}}}`,
			`{"x":"` +
				strings.Repeat("a", 1<<20) + `"}`, true},
		"a plain pattern on much": {`{"properties":{"x":{"pattern":"^[a-z ]+$"}}}`, `{"x":"` +
			strings.Repeat("a", 1<<20) + `"}`, false},
		"a heavy pattern for names": {`{"patternProperties":{"(a?){300}a{300}b":{}}}`, `{"` +
			strings.Repeat("a", 1<<20) + `":1}`, true},
		"a hundred thousand": {`{"properties":{"x":{"items":{"type":"number","minimum":0}}}}`,
			`{"x":[` +
				strings.Repeat("1,", 100_000) + `1]}`, false},
		"a tuple of many": {`{"properties":{"x":{"prefixItems":[` + strings.Repeat(`true,`, 2000) +
			`true]}}}`, `{"x":[` + strings.Repeat("1,", 2000) + `1]}`, false},
		"two mebibytes of text": {`{"properties":{"x":{"anyOf":[{"type":"number"},{"type":"string"}]}}}`,
			`{"x":"` + strings.Repeat("x", MaxMessage-10) + `"}`, false},
		"what no schema is about": {`{"properties":{"y":{"$ref":"#"}}}`, nested(9000), false},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := CompileSchema(Raw(tc.schema))
			if err != nil {
				t.Fatal(err)
			}
			switch err := s.Check(Raw(tc.args)); {
			case tc.refused && !errors.Is(err, ErrTooCostly):
				t.Errorf("got %v, want %v", err, ErrTooCostly)
			case !tc.refused && err != nil:
				t.Error(err)
			}
		})
	}
}

// Patterns are compiled with the schema: their size together is bounded.
func TestPatternsAreBounded(t *testing.T) {
	schema := func(n int) Raw {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `"p%d":{"pattern":"[a-z]{500}[0-9]{500}"},`, i)
		}
		return Raw(`{"properties":{` + b.String() + `"z":{}}}`)
	}
	if _, err := CompileSchema(schema(50)); err != nil {
		t.Error(err)
	}
	if _, err := CompileSchema(schema(500)); err == nil ||
		!strings.Contains(err.Error(),
			"/pattern: the patterns of this schema are too large together") {
		t.Errorf("got %v, want an error about the size of the patterns", err)
	}
}
