package protocol

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Schema is a compiled JSON Schema of a tool's parameters; [CompileSchema] makes one. It does not change, so
// [Schema.Check] may be called from several goroutines.
type Schema struct {
	root *node // nil if the gateway can't check anything of it
	flat *flat // nil unless the schema is as simple as flat
}

// CompileSchema compiles the schema of a tool's parameters: JSON Schema 2020-12 or draft-07, of an object. The
// error names the wrong place as a JSON pointer. The gateway does not check patterns that JavaScript accepts and Go
// does not; they are the provider's to check.
func CompileSchema(raw Raw) (s *Schema, err error) {
	defer recoverError(&err)
	in, err := inspect(raw)
	if err != nil {
		return nil, err
	}
	if !objectSchema(in.doc) {
		return nil, errors.New(`must be the schema of an object ("type": "object")`)
	}
	if in.foreign.mayRefuseMore() {
		return &Schema{}, nil
	}
	s = &Schema{root: in.root()}
	if !in.foreign.found {
		s.flat = flatten(raw)
	}
	return s, nil
}

func objectSchema(doc map[string]any) bool {
	types := texts(doc["type"])
	return len(types) == 0 || slices.Contains(types, "object")
}

// Check checks the arguments of a call, the JSON of an object, against the schema. The error is one line that names the
// property; the caller reports it as INVALID_ARGUMENTS. Numbers are compared exactly, and refused beyond 1000 digits.
func (s *Schema) Check(args Raw) (err error) {
	defer recoverError(&err)
	if args.Kind() != '{' {
		return errors.New("must be an object")
	}
	if s.flat != nil && s.flat.accepts(args) {
		return nil
	}
	var v map[string]any
	if err := decodeNumbers(args, &v); err != nil {
		return oneLine(err)
	}
	if err := checkDigits(v, ""); err != nil {
		return oneLine(err)
	}
	if s.root == nil {
		return nil
	}
	if err := s.root.checkCost(v); err != nil {
		return err
	}
	if m := s.root.requirements.check(v, nil); m != nil {
		return oneLine(errors.New(m.String()))
	}
	return nil
}

// recoverError turns a panic into an error, so that no schema and no argument can end the gateway.
func recoverError(err *error) {
	if r := recover(); r != nil {
		*err = oneLine(fmt.Errorf("cannot be checked: %v", r))
	}
}

// maxErrorLength bounds the text of an error about a schema, in bytes.
const maxErrorLength = 400

// oneLine makes one short line of an error about a schema or a value.
func oneLine(err error) error {
	msg := strings.Join(strings.Fields(err.Error()), " ")
	msg = strings.TrimPrefix(msg, "json: ")
	if len(msg) > maxErrorLength {
		cut := maxErrorLength
		for !utf8.RuneStart(msg[cut]) {
			cut--
		}
		msg = msg[:cut] + "…"
	}
	return errors.New(msg)
}
