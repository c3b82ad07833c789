package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"tapgw/internal/lazyregexp"
)

// Schema is a compiled JSON Schema of a tool's parameters.
type Schema struct {
	resolved *jsonschema.Resolved // nil where nothing can be checked
	root     *node                // what the check costs
	flat     *flat                // nil where it says more
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
	if in.foreign.any {
		if raw, err = json.Marshal(in.doc); err != nil {
			return nil, fmt.Errorf("not a JSON Schema: %w", brief(err))
		}
	}
	var doc jsonschema.Schema
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, fmt.Errorf("not a JSON Schema: %w", brief(err))
	}
	if !objectSchema(&doc) {
		return nil, errors.New(`must be the schema of an object ("type": "object")`)
	}
	// inspect let only these two pass; their other spellings are normalised.
	if strings.Contains(doc.Schema, "draft-07") {
		doc.Schema = "http://json-schema.org/draft-07/schema#"
	} else {
		doc.Schema = ""
	}
	resolved, err := doc.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("not a JSON Schema: %w", brief(err))
	}
	if in.foreign.tightens() {
		return &Schema{}, nil
	}
	return &Schema{resolved, in.root(), flatten(raw)}, nil
}

func objectSchema(s *jsonschema.Schema) bool {
	if s.Type != "" {
		return s.Type == "object"
	}
	return len(s.Types) == 0 || slices.Contains(s.Types, "object")
}

// Check validates the raw JSON of a call's arguments. The error names the
// property.
func (s *Schema) Check(args Raw) (err error) {
	defer recovered(&err)
	if args.Kind() != '{' {
		return errors.New("must be an object")
	}
	if s.flat != nil && s.flat.accepts(args) {
		return nil
	}
	var v map[string]any
	if err := json.Unmarshal(args, &v); err != nil {
		return brief(err)
	}
	if s.resolved == nil {
		return nil
	}
	if err := s.root.affordable(v); err != nil {
		return err
	}
	if err := s.resolved.Validate(v); err != nil {
		return brief(err)
	}
	return nil
}

// recovered turns a panic of the schema library, which checks some of its
// assumptions so, into an error: a schema or an argument must not end the
// gateway.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = brief(fmt.Errorf("cannot be checked: %v", r))
	}
}

// placed is how the schema library says where it was, once for each level.
var placed = lazyregexp.New(`^validating (\S+): `)

// maxBrief bounds a schema error: the library writes whole values into it.
const maxBrief = 400

// brief makes one short line of an error of the schema library.
func brief(err error) error {
	msg := strings.Join(strings.Fields(err.Error()), " ")
	for _, prefix := range []string{"json: ", "jsonschema: "} {
		msg = strings.TrimPrefix(msg, prefix)
	}
	msg = shortPlace(msg)
	if len(msg) > maxBrief {
		cut := maxBrief
		for !utf8.RuneStart(msg[cut]) {
			cut--
		}
		msg = msg[:cut] + "…"
	}
	return errors.New(msg)
}

// shortPlace leaves out the places that the next one says again: of the way to a
// property the whole, and where a reference led from there.
func shortPlace(msg string) string {
	var places []string
	for m := placed.FindStringSubmatch(msg); m != nil; m = placed.FindStringSubmatch(msg) {
		msg = msg[len(m[0]):]
		if n := len(places); n > 0 && strings.HasPrefix(m[1], places[n-1]+"/") {
			places[n-1] = m[1]
		} else if m[1] != "root" {
			places = append(places, m[1])
		}
	}
	if n := len(places); n > 2 { // a recursive schema's: where it began and where it ended
		places = []string{places[0], places[n-1]}
	}
	return strings.Join(append(places, msg), ": ")
}
