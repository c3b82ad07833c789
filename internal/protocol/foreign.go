package protocol

import (
	"errors"
	goregexp "regexp/syntax"
)

// foreign is what a schema has of patterns that JavaScript takes and Go's engine,
// which alone can be trusted with any text, does not: look-around, references
// back, \u escapes. They are taken out of the schema and left to the provider.
// Where the rest is such that less in one place is more in another, nothing is
// left that could be checked.
type foreign struct {
	any    bool // there is one
	names  bool // it chooses properties by name
	twists bool // something holds when what is within does not, or by how much of it does
	others bool // what is not chosen by name is bound too
}

// note takes a keyword of the schema into account.
func (f *foreign) note(key string) {
	switch key {
	case "not", "if", "oneOf", "maxContains", "unevaluatedItems", "unevaluatedProperties":
		f.twists = true
	case "additionalProperties":
		f.others = true
	}
}

// tightens reports whether the schema, without those patterns, may refuse what it
// allows with them.
func (f *foreign) tightens() bool { return f.any && (f.twists || f.names && f.others) }

// pattern is how large a pattern is when it is compiled; 0 for one that is
// foreign.
func (in *inspector) pattern(v any, at string) (size int, err error) {
	s, ok := v.(string)
	if !ok {
		return 0, faultAt(at, "must be a string")
	}
	re, err := goregexp.Parse(s, goregexp.Perl)
	if maybeJavaScript(err) {
		in.foreign.any = true
		return 0, nil
	}
	var prog *goregexp.Prog
	if err == nil {
		prog, err = goregexp.Compile(re.Simplify())
	}
	if err != nil {
		return 0, faultAt(at, "is not a pattern that can be checked: %v", brief(err))
	}
	if in.programs += len(prog.Inst); in.programs > maxPrograms {
		return 0, faultAt(at, "the patterns of this schema are too large together; repeat less in them")
	}
	return len(prog.Inst), nil
}

// maybeJavaScript reports whether what Go's engine refuses may be right
// elsewhere.
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
