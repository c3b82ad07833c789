package protocol

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestCompileSchemaAccepts(t *testing.T) {
	for name, schema := range map[string]string{
		"empty":                 `{}`,
		"core's greet":          `{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}`,
		"type list":             `{"type":["object","null"]}`,
		"draft-07":              `{"$schema":"http://json-schema.org/draft-07/schema#","type":"object","definitions":{"x":{"type":"string"}},"properties":{"a":{"$ref":"#/definitions/x"}}}`,
		"draft-07 without hash": `{"$schema":"http://json-schema.org/draft-07/schema","type":"object"}`,
		"2020-12":               `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object"}`,
		"2020-12 with hash":     `{"$schema":"https://json-schema.org/draft/2020-12/schema#","type":"object"}`,
		"empty $schema":         `{"$schema":""}`,
		"boolean properties":    `{"properties":{"a":true,"b":false}}`,
		"unknown keywords":      `{"type":"object","x-ui":{"order":[1]},"nullable":true,"discriminator":7}`,
		"any default":           `{"properties":{"a":{"type":"string","default":5,"const":null,"examples":[1,null]}}}`,
		"tuple of draft-07":     `{"properties":{"a":{"items":[{"type":"string"},{"type":"number"}]}}}`,
		"a tree":                `{"$defs":{"n":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/n"}}}}},"properties":{"root":{"$ref":"#/$defs/n"}}}`,
		"a tree of itself":      `{"type":"object","properties":{"kids":{"items":{"$ref":"#"}}}}`,
		"anchor":                `{"$defs":{"x":{"$anchor":"here","type":"string"}},"properties":{"a":{"$ref":"#here"}}}`,
		"own id":                `{"$id":"https://x.example/tool","$defs":{"x":{"type":"string"}},"properties":{"a":{"$ref":"#/$defs/x"},"b":{"$ref":"https://x.example/tool#/$defs/x"}}}`,
		"odd names":             `{"$defs":{"a/b~c d":{"type":"string"}},"properties":{"a":{"$ref":"#/$defs/a~1b~0c%20d"}}}`,
		"dependencies":          `{"$schema":"http://json-schema.org/draft-07/schema#","dependencies":{"a":["b"],"c":{"required":["d"]}}}`,
		"lone surrogate":        `{"description":"\ud83d"}`,
	} {
		if _, err := CompileSchema(Raw(schema)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each error begins with the place, as a JSON pointer, unless it is the root's.
func TestCompileSchemaNamesThePlace(t *testing.T) {
	for _, tc := range []struct{ schema, says string }{
		{`[]`, "must be an object"},
		{`true`, "must be an object"},
		{`{"type":"array"}`, `must be the schema of an object ("type": "object")`},
		{`{"type":"string"}`, `must be the schema of an object ("type": "object")`},
		{`{"type":"objekt"}`,
			"/type: must be object, array, string, number, integer, boolean or null"},
		{`{"type":""}`, "/type: must be object"},
		{`{"type":null}`, "/type: must be object"},
		{`{"type":["object","x"]}`, "/type/1: must be object"},
		{`{"type":[["object"]]}`, "/type/0: must be object"},
		{`{"properties":[]}`, "/properties: must be an object"},
		{`{"properties":{"a":{"type":7}}}`, "/properties/a/type: must be object"},
		{`{"properties":{"a":{"type":"strin"}}}`, "/properties/a/type: must be object"},
		{`{"properties":{"a":null}}`, "/properties/a: must be a schema"},
		{`{"properties":{"a":"string"}}`, "/properties/a: must be a schema"},
		{`{"properties":{"a":{"minimum":"x"}}}`, "/properties/a/minimum: must be a number"},
		{`{"properties":{"a":{"exclusiveMinimum":true}}}`,
			"/properties/a/exclusiveMinimum: must be a number"},
		{`{"properties":{"a":{"minLength":-1}}}`,
			"/properties/a/minLength: must be a whole number, at least 0"},
		{`{"properties":{"a":{"maxItems":1.5}}}`, "/properties/a/maxItems: must be a whole number"},
		{`{"properties":{"a":{"multipleOf":0}}}`,
			"/properties/a/multipleOf: must be greater than 0"},
		{`{"properties":{"a":{"enum":"x"}}}`, "/properties/a/enum: must be an array"},
		{`{"properties":{"a":{"uniqueItems":"yes"}}}`,
			"/properties/a/uniqueItems: must be true or false"},
		{`{"properties":{"a":{"pattern":"("}}}`,
			"/properties/a/pattern: is not a pattern that can be checked"},
		{`{"properties":{"a":{"pattern":5}}}`, "/properties/a/pattern: must be a string"},
		{`{"properties":{"a":{"description":5}}}`, "/properties/a/description: must be a string"},
		{`{"patternProperties":{"(":{}}}`, "/patternProperties/(: is not a pattern"},
		{`{"required":"a"}`, "/required: must be an array of strings"},
		{`{"required":["a",1]}`, "/required/1: must be a string"},
		{`{"dependentRequired":{"a":"b"}}`, "/dependentRequired/a: must be an array of strings"},
		{`{"allOf":[]}`, "/allOf: must be an array of schemas, and not empty"},
		{`{"allOf":{}}`, "/allOf: must be an array of schemas"},
		{`{"allOf":[{},null]}`, "/allOf/1: must be a schema"},
		{`{"not":null}`, "/not: must be a schema"},
		{`{"items":null}`, "/items: must be a schema"},
		{`{"properties":{"a/b":{"items":{"type":9}}}}`,
			"/properties/a~1b/items/type: must be object"},
		{`{"properties":{"a":{"$ref":"#/definitions/x"}}}`,
			`/properties/a/$ref: "#/definitions/x" is not in this schema`},
		{`{"properties":{"a":{"$ref":"http://x.example/y"}}}`,
			`/properties/a/$ref: "http://x.example/y" is not in this schema`},
		{`{"properties":{"a":{"$ref":7}}}`, "/properties/a/$ref: must be a string"},
		{`{"properties":{"a":{"$dynamicRef":"#x"}}}`,
			"/properties/a/$dynamicRef: dynamic references are not supported"},
		{`{"$schema":"http://json-schema.org/draft-04/schema#"}`,
			`/$schema: "http://json-schema.org/draft-04/schema#" is not supported; use 2020-12 or draft-07`},
		{`{"$schema":"https://json-schema.org/draft/2019-09/schema"}`, "/$schema: "},
		{`{"$schema":7}`, "/$schema: must be a string"},
		{strings.Repeat(`{"not":`, 100) + "{}" + strings.Repeat("}", 100),
			strings.Repeat("/not", 65) +
				": schemas are nested more than 64 deep"},
	} {
		_, err := CompileSchema(Raw(tc.schema))
		if err == nil {
			t.Errorf("%.80s: compiled, want an error", tc.schema)
		} else if !strings.HasPrefix(err.Error(), tc.says) {
			t.Errorf("%.80s:\n got %s\nwant %s", tc.schema, err, tc.says)
		}
	}
}

// The check of these schemas would never end.
func TestCompileSchemaRefusesWhatNeverEnds(t *testing.T) {
	var doubling strings.Builder
	doubling.WriteString(`{"$ref":"#/$defs/d0","$defs":{`)
	for i := range 40 {
		fmt.Fprintf(&doubling, `"d%d":{"anyOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`,
			i, i+1, i+1)
	}
	doubling.WriteString(`"d40":{}}}`)
	for name, schema := range map[string]string{
		"itself":       `{"$ref":"#"}`,
		"by allOf":     `{"type":"object","allOf":[{"$ref":"#"}]}`,
		"by not":       `{"not":{"$ref":"#"}}`,
		"two":          `{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"anyOf":[true,{"$ref":"#/$defs/a"}]}},"properties":{"x":{"$ref":"#/$defs/a"}}}`,
		"by anchor":    `{"$anchor":"me","oneOf":[{"$ref":"#me"}]}`,
		"by id":        `{"$id":"https://x.example/a","allOf":[{"$ref":"a"}]}`,
		"by if":        `{"if":{"$ref":"#"}}`,
		"by dependent": `{"dependentSchemas":{"a":{"$ref":"#"}}}`,
		"doubling":     doubling.String(),
	} {
		start := time.Now()
		_, err := CompileSchema(Raw(schema))
		if err == nil {
			t.Errorf("%s: compiled, want an error", name)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: took %s, want at most %s", name, took, 5*time.Second)
		}
	}
}

func TestCheckNamesTheProperty(t *testing.T) {
	schema, err := CompileSchema(Raw(`{"type":"object","required":["name"],"additionalProperties":false,"properties":{
		"name":{"type":"string","maxLength":5},
		"n":{"type":"integer","minimum":1},
		"tags":{"type":"array","items":{"type":"string"},"uniqueItems":true},
		"mode":{"enum":["a","b"]},
		"who":{"anyOf":[{"type":"string"},{"type":"object","properties":{"id":{"type":"integer"}}}]},
		"ref":{"$ref":"#/$defs/r"},
		"big":{"type":"string"}},"$defs":{"r":{"properties":{"kids":{"items":{"$ref":"#/$defs/r"}},"n":{"type":"integer"}}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ args, says string }{
		{`{"name":"x"}`, ""},
		{` {"name":"x","n":1e2,"tags":["a"],"mode":"b","who":{"id":1}} `, ""},
		{`{}`, `required: missing properties: ["name"]`},
		{`{"name":7}`, "/properties/name: type: 7 has type \"integer\", want \"string\""},
		{`{"name":null}`, "/properties/name: type: "},
		{`{"name":"abcdef"}`, "/properties/name: maxLength: "},
		{`{"name":"x","n":0}`, "/properties/n: minimum: "},
		{`{"name":"x","n":1.5}`, "/properties/n: type: "},
		{`{"name":"x","n":1e400}`, ""},
		{`{"name":"x","n":-1e400}`, "/properties/n: minimum: -1e400 is less than 1"},
		{`{"name":"x","n":1e1000000000}`,
			"/n: the number 1e1000000000 has more than 1000 digits or places"},
		{`{"name":"x","other":[{"a/b":1e-2000}]}`,
			"/other/0/a~1b: the number 1e-2000 has more than 1000"},
		{`{"name":"x","tags":["a",2]}`, "/properties/tags/items: type: "},
		{`{"name":"x","tags":["a","a"]}`, "/properties/tags: uniqueItems: "},
		{`{"name":"x","mode":"c"}`, "/properties/mode: enum: "},
		{`{"name":"x","who":[]}`, "/properties/who: anyOf: "},
		{`{"name":"x","ref":{"n":"1"}}`, "/properties/ref: /$defs/r/properties/n: type: "},
		{`{"name":"x","ref":{"kids":[{"kids":[{"kids":[{"n":"1"}]}]}]}}`,
			"/properties/ref: /$defs/r/properties/n: type: "},
		{`{"name":"x","other":1}`, `unexpected additional properties ["other"]`},
		{`[]`, "must be an object"},
		{`"x"`, "must be an object"},
		{`null`, "must be an object"},
		{``, "must be an object"},
		{`{"name":`, "unexpected end"},
		{`{"name":"x","big":` + strings.Repeat(`[`, 20000) + strings.Repeat(`]`, 20000) + `}`,
			"exceeded max depth"},
		{`{"name":"x","big":[` + strings.Repeat(`"\n",`, 20000) + `1]}`, "/properties/big: type: "},
	} {
		err := schema.Check(Raw(tc.args))
		switch {
		case tc.says == "" && err != nil:
			t.Errorf("%.60s: %v, want no error", tc.args, err)
		case tc.says != "" && err == nil:
			t.Errorf("%.60s: passed, want an error with %q", tc.args, tc.says)
		case tc.says != "" && !strings.Contains(err.Error(), tc.says):
			t.Errorf("%.60s:\n got %s\nwant %s", tc.args, err, tc.says)
		}
		if err != nil &&
			(len(err.Error()) > maxErrorLength+8 || strings.Contains(err.Error(), "\n")) {
			t.Errorf("%.60s: not one short line: %.600q", tc.args, err)
		}
	}
}

// Items of all types are compared.
func TestCheckComparesItems(t *testing.T) {
	schema, err := CompileSchema(Raw(`{"properties":{"a":{"uniqueItems":true}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Check(Raw(`{"a":[null,{},null]}`)); err == nil {
		t.Error("two equal items passed, want an error")
	}
}

// Several goroutines may check with one schema.
func TestCheckConcurrently(t *testing.T) {
	schema, err := CompileSchema(Raw(`{"properties":{"a":{"type":"string","pattern":"^x"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	for range 8 {
		go func() {
			for range 200 {
				if err := schema.Check(Raw(`{"a":"xyz"}`)); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
