package protocol

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Schema is a compiled JSON Schema of a tool's parameters.
type Schema struct {
	root *node // nil where nothing can be checked
	flat *flat // nil where it says more
}

// CompileSchema compiles the schema of a tool's parameters (2020-12, draft-07
// accepted). It must be a schema of an object. The error names the place in it,
// as a JSON pointer. A pattern that may be right but is not one of Go's is left
// to the provider to check.
func CompileSchema(raw Raw) (s *Schema, err error) {
	defer recovered(&err)
	in, err := inspect(raw)
	if err != nil {
		return nil, err
	}
	if !objectSchema(in.doc) {
		return nil, errors.New(`must be the schema of an object ("type": "object")`)
	}
	if in.foreign.tightens() {
		return &Schema{}, nil
	}
	s = &Schema{root: in.root()}
	if !in.foreign.any {
		s.flat = flatten(raw)
	}
	return s, nil
}

func objectSchema(doc map[string]any) bool {
	types := texts(doc["type"])
	return len(types) == 0 || slices.Contains(types, "object")
}

// Check validates the raw JSON of a call's arguments. The error names the
// property. Numbers are taken as they are written, and refused past a thousand
// digits or places.
func (s *Schema) Check(args Raw) (err error) {
	defer recovered(&err)
	if args.Kind() != '{' {
		return errors.New("must be an object")
	}
	if s.flat != nil && s.flat.accepts(args) {
		return nil
	}
	var v map[string]any
	if err := decodeNumbers(args, &v); err != nil {
		return brief(err)
	}
	if err := countable(v, ""); err != nil {
		return brief(err)
	}
	if s.root == nil {
		return nil
	}
	if err := s.root.affordable(v); err != nil {
		return err
	}
	if m := s.root.rule.check(v, nil); m != nil {
		return brief(errors.New(m.String()))
	}
	return nil
}

// recovered turns a panic into an error: a schema or an argument must not end the
// gateway.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = brief(fmt.Errorf("cannot be checked: %v", r))
	}
}

// maxBrief bounds a schema error.
const maxBrief = 400

// brief makes one short line of an error about a schema, or a value.
func brief(err error) error {
	msg := strings.Join(strings.Fields(err.Error()), " ")
	msg = strings.TrimPrefix(msg, "json: ")
	if len(msg) > maxBrief {
		cut := maxBrief
		for !utf8.RuneStart(msg[cut]) {
			cut--
		}
		msg = msg[:cut] + "…"
	}
	return errors.New(msg)
}
