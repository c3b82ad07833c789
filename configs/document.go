package configs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
	"github.com/google/jsonschema-go/jsonschema"
)

// maxFaults bounds what one file can complain about.
const maxFaults = 100

// document is a file that is being read: the faults found in it, and where its
// keys stand.
type document struct {
	file   string
	text   string
	keys   map[string]int // offset of each key's first letter, by its path
	faults Faults
}

// table is one table of a document. A nil table is one that is missing or has
// a fault: it has no keys.
type table struct {
	doc    *document
	path   toml.Key
	values map[string]any
	known  []string
	bad    map[string]bool
	shape  *jsonschema.Schema // collects the JSON Schema of the keys; nil when it is not needed
}

// open parses a file. The table is nil when it is not TOML.
func open(file string, data []byte) (*document, *table) {
	text := strings.TrimPrefix(string(data), "\ufeff")
	doc := &document{file: file, text: text}
	values := map[string]any{}
	switch {
	case len(data) > maxFile:
		doc.at(0, fmt.Sprintf("is larger than %d bytes", maxFile))
		return doc, nil
	case !utf8.ValidString(text):
		valid := 0
		for {
			r, size := utf8.DecodeRuneInString(text[valid:])
			if r == utf8.RuneError && size <= 1 {
				break
			}
			valid += size
		}
		doc.at(valid, "is not UTF-8 text")
		return doc, nil
	case nesting(text) > maxNesting:
		doc.at(0, fmt.Sprintf("is nested more than %d deep", maxNesting))
		return doc, nil
	}
	if _, err := toml.Decode(text, &values); err != nil {
		parse, ok := errors.AsType[toml.ParseError](err)
		if !ok {
			doc.at(0, "is not TOML: "+err.Error())
			return doc, nil
		}
		message := strings.TrimSuffix(strings.ReplaceAll(parse.Message, `'\x00'`, "the end of the file"), ".")
		if rest, ok := strings.CutPrefix(message, "Key "); ok {
			message = "key " + rest
		}
		doc.at(parse.Position.Start, "is not TOML: "+message)
		return doc, nil
	}
	doc.keys = scanKeys(text)
	return doc, &table{doc: doc, values: values, bad: map[string]bool{}}
}

// maxNesting bounds arrays in arrays: the parser recurses.
const maxNesting = 64

// nesting is at most how deep the brackets of a text go; those in strings count.
func nesting(text string) int {
	depth, deepest := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '[', '{':
			depth++
			deepest = max(deepest, depth)
		case ']', '}':
			depth = max(depth-1, 0)
		}
	}
	return deepest
}

// at adds a fault at an offset in the text. Messages are one line, whatever the
// file holds.
func (d *document) at(offset int, message string) {
	if len(d.faults) == maxFaults {
		return
	}
	message = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, message)
	before := d.text[:max(0, min(offset, len(d.text)))]
	line := strings.Count(before, "\n")
	column := utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
	d.faults = append(d.faults, Fault{File: d.file, Line: line + 1, Column: column + 1, Message: message})
}

func (d *document) sorted() Faults {
	slices.SortStableFunc(d.faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return d.faults
}

// fault complains about a key of the table, or of a table in it: "api.auth".
func (t *table) fault(key, format string, args ...any) {
	path := slices.Clone(t.path)
	path = append(path, strings.Split(key, ".")...)
	t.faultAt(path, pathText(path), fmt.Errorf(format, args...))
	t.bad[key] = true
}

// pathText is a path as people read it: hooks[0].on for the first of [[hooks]].
func pathText(path toml.Key) string {
	return strings.NewReplacer(`."[`, "[", `]"`, "]").Replace(path.String())
}

// faultAt complains at the place of a path, else of the table around it.
func (t *table) faultAt(path toml.Key, name string, err error) {
	offset := 0
	for n := len(path); n > 0; n-- {
		if o, ok := t.doc.keys[path[:n].String()]; ok {
			offset = o
			break
		}
	}
	t.doc.at(offset, name+": "+err.Error())
}

// lookup returns the value of a key, false when there is none.
func (t *table) lookup(key string) (any, bool) {
	if t == nil {
		return nil, false
	}
	t.known = append(t.known, key)
	v, ok := t.values[key]
	return v, ok
}

// present returns those of the keys that are set.
func (t *table) present(keys ...string) []string {
	return slices.DeleteFunc(keys, func(key string) bool { return !t.has(key) })
}

// isGood reports whether a key has no fault.
func (t *table) isGood(key string) bool { return !t.bad[key] }

func (t *table) mismatch(key, want string, got any) {
	t.fault(key, "must be %s, found %s", want, typeName(got))
}

func (t *table) str(key string, into *string, check func(string) error) {
	t.describe(key, func() *jsonschema.Schema { return stringShape(*into, check) })
	v, ok := t.lookup(key)
	if !ok {
		return
	}
	s, ok := v.(string)
	if !ok {
		t.mismatch(key, "a string", v)
		return
	}
	if check != nil {
		if err := check(s); err != nil {
			t.fault(key, "%w", err)
			return
		}
	}
	*into = s
}

func (t *table) boolean(key string, into *bool) {
	t.describe(key, func() *jsonschema.Schema { return &jsonschema.Schema{Type: "boolean", Default: literal(*into)} })
	v, ok := t.lookup(key)
	if !ok {
		return
	}
	b, ok := v.(bool)
	if !ok {
		t.mismatch(key, "true or false", v)
		return
	}
	*into = b
}

func (t *table) integer(key string, into *int, least, most int) {
	t.describe(key, func() *jsonschema.Schema {
		return &jsonschema.Schema{
			Type:    "integer",
			Minimum: new(float64(least)),
			Maximum: new(float64(most)),
			Default: literal(*into),
		}
	})
	v, ok := t.lookup(key)
	if !ok {
		return
	}
	n, ok := v.(int64)
	switch {
	case !ok:
		t.mismatch(key, "a whole number", v)
	case n < int64(least) || n > int64(most):
		t.fault(key, "%d is not from %d to %d", n, least, most)
	default:
		*into = int(n)
	}
}

// duration reads a time such as "2m30s".
func (t *table) duration(key string, into *time.Duration, least, most time.Duration) {
	t.describe(key, func() *jsonschema.Schema {
		return &jsonschema.Schema{Type: "string", Pattern: durationPattern, Default: literal(into.String())}
	})
	v, ok := t.lookup(key)
	if !ok {
		return
	}
	s, ok := v.(string)
	if !ok {
		t.mismatch(key, `a time such as "30s" or "5m"`, v)
		return
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		t.fault(key, `%q is not a time such as "30s" or "5m"`, s)
	case d < least || d > most:
		t.fault(key, "%s is not from %s to %s", d, least, most)
	default:
		*into = d
	}
}

// strs reads an array of strings; no two may be equal.
func (t *table) strs(key string, into *[]string, check func(string) error) {
	defer t.describe(key, func() *jsonschema.Schema {
		items := stringShape("", check)
		items.Default = nil
		return &jsonschema.Schema{
			Type:        "array",
			Items:       items,
			UniqueItems: true,
			Default:     literal(append([]string{}, *into...)),
		}
	})
	var good []string
	t.list(key, into, func(list []string, s string) error {
		if check != nil {
			if err := check(s); err != nil {
				return err
			}
		}
		if slices.Contains(list, s) {
			return fmt.Errorf("%q stands there twice", s)
		}
		good = append(good, s)
		return nil
	})
	if len(good) > 0 && !t.isGood(key) {
		*into = good // denials of a project count though others beside them have faults
	}
}

// list reads an array of strings, with a check that sees those before.
func (t *table) list(key string, into *[]string, check func(before []string, s string) error) {
	t.describe(key, func() *jsonschema.Schema {
		return &jsonschema.Schema{
			Type:    "array",
			Items:   &jsonschema.Schema{Type: "string"},
			Default: literal(append([]string{}, *into...)),
		}
	})
	v, ok := t.lookup(key)
	if !ok {
		return
	}
	values, ok := v.([]any)
	if !ok {
		t.mismatch(key, "an array of strings", v)
		return
	}
	var list []string
	for i, v := range values {
		err := fmt.Errorf("must be a string, found %s", typeName(v))
		s, ok := v.(string)
		if ok {
			err = check(list, s)
		}
		if err != nil {
			path := append(slices.Clone(t.path), key)
			t.faultAt(append(path, element(i)), fmt.Sprintf("%s[%d]", pathText(path), i), err)
			t.bad[key] = true
		}
		list = append(list, s)
	}
	if t.isGood(key) {
		*into = list
	}
}

// strings reads a table whose values are all strings.
func (t *table) strings(key string, into *map[string]string, check func(name string) error) {
	sub := t.table(key)
	sub.describeOthers(&jsonschema.Schema{Type: "string"})
	if sub == nil || sub.shape != nil {
		return
	}
	m := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(sub.values)) {
		s, ok := sub.values[name].(string)
		path := append(slices.Clone(sub.path), name)
		if err := check(name); err != nil {
			sub.faultAt(path, path.String(), err)
		} else if !ok {
			sub.faultAt(path, path.String(), fmt.Errorf("must be a string, found %s", typeName(sub.values[name])))
		}
		m[name] = s
	}
	*into = m
}

// table returns a table of the table, nil when there is none.
func (t *table) table(key string) *table {
	v, ok := t.lookup(key)
	if !ok && t != nil && t.shape != nil {
		shape := &jsonschema.Schema{Type: "object"}
		t.describe(key, func() *jsonschema.Schema { return shape })
		return &table{doc: t.doc, path: append(slices.Clone(t.path), key), bad: map[string]bool{}, shape: shape}
	}
	if !ok {
		return nil
	}
	values, ok := v.(map[string]any)
	if !ok {
		t.mismatch(key, "a table", v)
		return nil
	}
	return &table{doc: t.doc, path: append(slices.Clone(t.path), key), values: values, bad: map[string]bool{}}
}

// isList reports whether a key is an array of anything but tables.
func (t *table) isList(key string) bool {
	_, ok := t.values[key].([]any)
	return ok
}

// alsoList says that a list may stand in the table's place, for the list of this key.
func (t *table) alsoList(key string) {
	if t != nil && t.shape != nil {
		list := t.shape.Properties[key]
		t.shape.Type, t.shape.Types = "", []string{"object", "array"}
		t.shape.Items, t.shape.UniqueItems = list.Items, list.UniqueItems
	}
}

// eachTable reads the tables of a table whose keys are names.
func (t *table) eachTable(read func(name string, sub *table)) {
	if t == nil {
		return
	}
	if t.shape != nil {
		sub := &table{
			doc:   t.doc,
			path:  append(slices.Clone(t.path), "NAME"),
			bad:   map[string]bool{},
			shape: &jsonschema.Schema{Type: "object"},
		}
		read("NAME", sub)
		t.describeOthers(sub.shape)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(t.values)) {
		if sub := t.table(name); sub != nil {
			read(name, sub)
		}
	}
}

// isMissing reports whether a key is missing that must be there.
func (t *table) isMissing(key string) bool {
	if t.shape != nil {
		t.shape.Required = append(t.shape.Required, key)
		t.shape.Properties[key].Default = nil
		return false
	}
	_, ok := t.values[key]
	return !ok
}

// rejectUnknown adds a fault for each key that was not read.
func (t *table) rejectUnknown() {
	if t == nil {
		return
	}
	t.describeOthers(neverSchema)
	for _, key := range slices.Sorted(maps.Keys(t.values)) {
		if slices.Contains(t.known, key) {
			continue
		}
		path := append(slices.Clone(t.path), key)
		t.faultAt(path, "unknown key "+pathText(path), fmt.Errorf("there are %s", strings.Join(t.known, ", ")))
	}
}

// typeName names the type of a value for people.
func typeName(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case int64:
		return "a whole number"
	case float64:
		return "a number"
	case bool:
		return "true or false"
	case time.Time:
		return "a date or time"
	case []any:
		return "an array"
	case []map[string]any:
		return "an array of tables"
	case map[string]any:
		return "a table"
	}
	return fmt.Sprintf("%T", v)
}
