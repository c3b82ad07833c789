package protocol

import (
	"errors"
	goregexp "regexp/syntax"
)

// foreign describes the patterns of a schema that JavaScript accepts and Go's engine does not: look-around, back
// references, \u escapes. Only Go's engine is safe on any text. So inspect removes these patterns from the schema and
// leaves them to the provider. mayRefuseMore reports when the rest of such a schema can't be used.
type foreign struct {
	found       bool
	inNames     bool // a pattern chooses properties by their names
	inverts     bool // the schema accepts a value because a schema within refuses it, or counts what that accepts
	bindsOthers bool // the schema bounds the properties that no pattern chooses
}

// note notes a keyword of the schema.
func (f *foreign) note(key string) {
	switch key {
	case "not", "if", "oneOf", "maxContains", "unevaluatedItems", "unevaluatedProperties":
		f.inverts = true
	case "additionalProperties":
		f.bindsOthers = true
	}
}

// mayRefuseMore reports whether the schema without the removed patterns may refuse a value that it accepts with them.
func (f *foreign) mayRefuseMore() bool { return f.found && (f.inverts || f.inNames && f.bindsOthers) }

// pattern returns the number of instructions of a compiled pattern, and 0 for a foreign one.
func (in *inspector) pattern(v any, at string) (size int, err error) {
	s, ok := v.(string)
	if !ok {
		return 0, faultAt(at, "must be a string")
	}
	re, err := goregexp.Parse(s, goregexp.Perl)
	if maybeJavaScript(err) {
		in.foreign.found = true
		return 0, nil
	}
	var prog *goregexp.Prog
	if err == nil {
		prog, err = goregexp.Compile(re.Simplify())
	}
	if err != nil {
		return 0, faultAt(at, "is not a pattern that can be checked: %v", oneLine(err))
	}
	if in.programs += len(prog.Inst); in.programs > maxPrograms {
		return 0, faultAt(at, "the patterns of this schema are too large together; repeat less in them")
	}
	return len(prog.Inst), nil
}

// maybeJavaScript reports whether a pattern that Go's engine refuses may be one of JavaScript's.
func maybeJavaScript(err error) bool {
	e, ok := errors.AsType[*goregexp.Error](err)
	if !ok {
		return false
	}
	switch e.Code {
	case goregexp.ErrInvalidPerlOp, goregexp.ErrInvalidEscape, goregexp.ErrInvalidCharRange,
		goregexp.ErrInvalidNamedCapture, goregexp.ErrInvalidRepeatSize:
		return true
	}
	return false
}
