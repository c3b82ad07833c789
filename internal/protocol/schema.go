package protocol

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Schema is a compiled JSON Schema, 2020-12 or draft-07. It does not change, so [Schema.Check] may
// be called from several goroutines.
type Schema struct {
	root     *subschema // nil if the gateway can't check anything of it
	anyValue bool       // not only objects
	partial  bool
}

// CompileSchema compiles the schema of a tool's parameters, which must be the schema of an object.
// The error names the wrong place as a JSON pointer. The gateway does not check patterns that
// JavaScript accepts and Go does not; they are the provider's to check.
func CompileSchema(raw Raw) (*Schema, error) { return compileSchema(raw, false) }

// CompileValueSchema is [CompileSchema] for the schema of any value.
func CompileValueSchema(raw Raw) (*Schema, error) { return compileSchema(raw, true) }

func compileSchema(raw Raw, anyValue bool) (s *Schema, err error) {
	defer recoverError(&err)
	v, err := decodeExact(raw, math.MaxInt)
	if err != nil {
		return nil, oneLine(err)
	}
	doc, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("must be an object")
	}
	p := newSchemaParser(doc)
	root := p.read(doc, "", nil, 0)
	p.resolveRefs()
	p.checkSteps()
	for _, s := range p.schemas {
		s.markPlain()
	}
	switch {
	case p.err != nil:
		return nil, p.err
	case !anyValue && root.types != nil && !slices.Contains(root.types, "object"):
		return nil, errors.New(`must be the schema of an object ("type": "object")`)
	case p.foreign.mayRefuseMore():
		root = nil
	}
	return &Schema{root, anyValue, p.foreign.found}, nil
}

// Partial reports whether [Schema.Check] leaves patterns of the schema unchecked.
func (s *Schema) Partial() bool { return s.partial }

// Bounds of the check of one value. Its time may double with each level of the value, where a
// recursive schema combines others, so the check counts its steps. A step is about 2 ns.
const (
	maxCheckSteps = 64 << 20
	schemaSteps   = 200  // of a schema for one value, and of the text that says why it does not fit
	memberSteps   = 50   // of a member or an item, or of a name that is looked for
	byteSteps     = 4    // of a byte that is compared
	digitSteps    = 10   // of a digit that is calculated with
	maxNested     = 1000 // schemas within each other that check one value and its parts
)

// ErrTooCostly is the error of [Schema.Check] for a value whose check takes too long.
var ErrTooCostly = errors.New("cannot be checked: the tool's schema takes too many steps for " +
	`them; make it simpler, or set "validate": false`)

// Check checks the JSON of a value, such as the arguments of a call, against the schema. The error
// is one line that names the property; the caller of a tool reports it as INVALID_ARGUMENTS.
// Numbers are compared exactly, and refused beyond 1000 digits.
func (s *Schema) Check(value Raw) (err error) {
	defer recoverError(&err)
	if !s.anyValue && value.Kind() != '{' {
		return errors.New("must be an object")
	}
	// The members of an object are known to be JSON. Another value may be none.
	if s.root != nil && value.Kind() == '{' && utf8.Valid(value) && s.root.accepts(value) {
		return nil
	}
	v, err := decodeExact(value, maxDigits)
	if err != nil {
		return oneLine(err)
	}
	if s.root == nil {
		return nil
	}
	c := &schemaCheck{left: maxCheckSteps}
	if m := c.check(s.root, v, nil); m != nil {
		return oneLine(errors.New(m.String()))
	}
	return nil
}

// recoverError turns a panic into an error: the panic of a check that takes too long, and any
// other, so that no schema and no argument can end the gateway.
func recoverError(err *error) {
	switch r := recover(); r {
	case nil:
	case ErrTooCostly:
		*err = ErrTooCostly
	default:
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
