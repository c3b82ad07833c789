package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tapgw/internal/protocol"
)

// This file chooses the tool that the kit calls, and makes arguments for it from its schema.

// errNoTool says that the user named a tool that the provider does not have.
var errNoTool = errors.New("it has no tool of that name")

// choose chooses the tool that the kit calls: the one that the user named, else the first whose
// arguments the kit can make. The error wraps [errNoTool].
func (k *kit) choose() error {
	tools := k.ledger.current().Tools
	var names []string
	for _, t := range tools {
		names = append(names, t.Name)
	}
	for _, named := range []string{k.opts.Tool, k.slow.name} {
		if named != "" && len(names) > 0 && !slices.Contains(names, named) {
			return fmt.Errorf("calling %s: %w; it has %s", named, errNoTool,
				strings.Join(names, ", "))
		}
	}
	if k.opts.Tool != "" {
		k.tool = call{k.opts.Tool, k.opts.Args}
		return nil
	}
	for _, t := range tools {
		if t.Name == k.slow.name {
			continue
		}
		if args, ok := argsFor(t.Parameters); ok {
			k.tool = call{t.Name, args}
			return nil
		}
	}
	k.noTool = skipf(
		"it has no tool whose arguments the kit can make: name one with --tool and --args")
	if len(tools) == 0 {
		k.noTool = skipf("it has no tools")
	}
	return nil
}

// argsFor makes arguments that a schema allows: its required properties only.
func argsFor(schema protocol.Raw) (args json.RawMessage, ok bool) {
	compiled, err := protocol.CompileSchema(schema)
	if err != nil {
		return nil, false
	}
	var doc struct {
		Required   []string
		Properties map[string]property
	}
	if json.Unmarshal(schema, &doc) != nil {
		return nil, false
	}
	made := object{}
	for _, name := range doc.Required {
		made[name] = doc.Properties[name].value()
	}
	text := encode(made)
	return text, compiled.Check(protocol.Raw(text)) == nil
}

// property is the part that the kit reads of a property's schema.
type property struct {
	Type     any
	Enum     []any
	Const    any
	Default  any
	Examples []any
	Minimum  *float64
}

// value makes a value for the property. It need not be right: the whole is checked against the
// schema.
func (p property) value() any {
	switch {
	case p.Const != nil:
		return p.Const
	case p.Default != nil:
		return p.Default
	case len(p.Examples) > 0:
		return p.Examples[0]
	case len(p.Enum) > 0:
		return p.Enum[0]
	}
	typ, _ := p.Type.(string)
	if list, ok := p.Type.([]any); ok && len(list) > 0 {
		typ, _ = list[0].(string)
	}
	switch typ {
	case "integer", "number":
		if p.Minimum != nil {
			return *p.Minimum
		}
		return 1
	case "boolean":
		return true
	case "array":
		return []any{}
	case "object":
		return object{}
	case "null":
		return nil
	}
	return "text"
}

// wrongArgs makes arguments that the schema does not allow: of the wrong type, or without a
// required one.
func wrongArgs(tools []protocol.Tool, name string) json.RawMessage {
	for _, t := range tools {
		if t.Name != name {
			continue
		}
		var doc struct {
			Required   []string
			Properties map[string]property
		}
		if json.Unmarshal(t.Parameters, &doc) != nil {
			break
		}
		wrong := object{}
		for _, name := range doc.Required {
			wrong[name] = object{"wrong": []int{1}}
		}
		if len(wrong) > 0 {
			return encode(wrong)
		}
	}
	return json.RawMessage(`{"unexpected":[null]}`)
}

// rawArgs reads arguments; those that are no object become empty.
func rawArgs(args json.RawMessage) (read object) {
	if json.Unmarshal(args, &read) != nil || read == nil {
		read = object{}
	}
	return read
}
