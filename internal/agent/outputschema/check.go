package outputschema

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
)

// Keywords of JSON Schema whose values are schemas, lists of schemas, or schemas by name.
var (
	schemaKeywords = []string{"items", "additionalItems", "prefixItems", "contains", "unevaluatedItems",
		"additionalProperties", "propertyNames", "unevaluatedProperties", "properties", "patternProperties", "$defs",
		"definitions"}
	// sameValueKeywords hold schemas for the very value that the schema around them is for.
	sameValueKeywords = []string{"allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas",
		"dependencies"}
)

var schemaTypes = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

// schemaChecker finds the faults of a schema that the library for schemas passes over: types that do not exist, and
// schemas that refer to themselves for the same value, on which it would never end.
type schemaChecker struct {
	root    any
	checked map[string]bool // schemas that refer to themselves nowhere, by pointer
}

// checkSchema returns the first fault of a schema. It reads the schema as the library understood it, not as the file
// has it: the library takes "$REF" for "$ref", and joins the values of a keyword that stands twice.
func checkSchema(schema *jsonschema.Schema) error {
	data, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	var root any
	if err := json.Unmarshal(data, &root); err != nil {
		return err
	}
	c := &schemaChecker{root: root, checked: map[string]bool{}}
	return c.check(root, "")
}

// check checks the schema at a JSON pointer and those in it.
func (c *schemaChecker) check(schema any, pointer string) error {
	node, ok := schema.(map[string]any)
	if !ok {
		return nil
	}
	if err := checkType(node["type"], pointer); err != nil {
		return err
	}
	if err := c.checkReferences(node, pointer); err != nil {
		return err
	}
	if err := c.checkLoop(schema, pointer, map[string]bool{}); err != nil {
		return err
	}
	return eachSchema(node, pointer, slices.Concat(schemaKeywords, sameValueKeywords), c.check)
}

func checkType(value any, pointer string) error {
	list, ok := value.([]any)
	if !ok && value != nil {
		list = []any{value}
	}
	for _, t := range list {
		if name, ok := t.(string); ok && !slices.Contains(schemaTypes, name) {
			return fmt.Errorf("#%s/type: there is no type %q: there are %s", pointer, name,
				strings.Join(schemaTypes, ", "))
		}
	}
	return nil
}

// checkReferences allows references by JSON pointers into the file, which checkLoop can follow.
func (c *schemaChecker) checkReferences(node map[string]any, pointer string) error {
	if _, ok := node["$dynamicRef"]; ok {
		return fmt.Errorf("#%s: $dynamicRef is not supported", pointer)
	}
	if _, ok := node["$id"]; ok && pointer != "" {
		return fmt.Errorf("#%s: $id is supported at the root only", pointer)
	}
	ref, ok := node["$ref"].(string)
	if !ok {
		return nil
	}
	to, isPointer := strings.CutPrefix(ref, "#")
	if !isPointer || to != "" && to[0] != '/' {
		return fmt.Errorf("#%s: the reference %q leads out of the file: only those like #/$defs/NAME are supported",
			pointer, ref)
	}
	if _, found := c.at(to); !found {
		return fmt.Errorf("#%s: the reference %q leads to nothing", pointer, ref)
	}
	return nil
}

// checkLoop follows the schemas for the same value; active has the pointers on the way.
func (c *schemaChecker) checkLoop(schema any, pointer string, active map[string]bool) error {
	node, ok := schema.(map[string]any)
	switch {
	case !ok || c.checked[pointer]:
		return nil
	case active[pointer]:
		return fmt.Errorf("#%s: refers to itself without end", pointer)
	}
	active[pointer] = true
	defer delete(active, pointer)
	if ref, ok := node["$ref"].(string); ok {
		to := strings.TrimPrefix(ref, "#")
		target, _ := c.at(to) // not found: checkReferences has an error for it
		if err := c.checkLoop(target, to, active); err != nil {
			return err
		}
	}
	err := eachSchema(node, pointer, sameValueKeywords, func(schema any, pointer string) error {
		return c.checkLoop(schema, pointer, active)
	})
	if err == nil {
		c.checked[pointer] = true
	}
	return err
}

// at returns what a JSON pointer points to.
func (c *schemaChecker) at(pointer string) (any, bool) {
	node := c.root
	if pointer == "" {
		return node, true
	}
	for _, key := range strings.Split(pointer, "/")[1:] {
		switch parent := node.(type) {
		case map[string]any:
			var ok bool
			if node, ok = parent[unescape.Replace(key)]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(parent) {
				return nil, false
			}
			node = parent[i]
		default:
			return nil, false
		}
	}
	return node, true
}

// Keys in JSON pointers.
var (
	escape   = strings.NewReplacer("~", "~0", "/", "~1")
	unescape = strings.NewReplacer("~1", "/", "~0", "~")
)

// eachSchema calls do for each schema below the keywords of a schema, until one returns an error.
func eachSchema(node map[string]any, pointer string, keywords []string,
	do func(schema any, pointer string) error) error {
	for _, keyword := range keywords {
		below := pointer + "/" + keyword
		switch value := node[keyword].(type) {
		case []any:
			for i, schema := range value {
				if err := do(schema, below+"/"+strconv.Itoa(i)); err != nil {
					return err
				}
			}
		case map[string]any:
			if !slices.Contains([]string{"properties", "patternProperties", "$defs", "definitions",
				"dependentSchemas", "dependencies"}, keyword) {
				if err := do(value, below); err != nil {
					return err
				}
				continue
			}
			for _, name := range slices.Sorted(maps.Keys(value)) {
				if err := do(value[name], below+"/"+escape.Replace(name)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
