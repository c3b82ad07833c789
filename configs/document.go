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
)

// maxFaults bounds the faults that are reported for one file.
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
	bad    map[string]bool
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
		message := strings.TrimSuffix(strings.ReplaceAll(parse.Message, `'\x00'`,
			"the end of the file"), ".")
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

// nesting returns how deep the brackets of a text nest. It also counts brackets in strings.
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

// at adds a fault at an offset in the text. Messages are one line, whatever the file contains.
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
	d.faults = append(d.faults, Fault{File: d.file, Line: line + 1, Column: column + 1,
		Message: message})
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

// has reports whether a key is set, to any value.
func (t *table) has(key string) bool {
	if t == nil {
		return false
	}
	_, ok := t.values[key]
	return ok
}

// present returns the keys among keys that are set.
func (t *table) present(keys ...string) []string {
	return slices.DeleteFunc(keys, func(key string) bool { return !t.has(key) })
}

// isGood reports whether a key has no fault.
func (t *table) isGood(key string) bool { return !t.bad[key] }

func (t *table) mismatch(key, want string, got any) {
	t.fault(key, "must be %s, found %s", want, typeName(got))
}

// table returns the table at a key of this table, or nil if there is no such table.
func (t *table) table(key string) *table {
	if t == nil {
		return nil
	}
	values, ok := t.values[key].(map[string]any)
	if !ok {
		if t.has(key) {
			t.mismatch(key, "a table", t.values[key])
		}
		return nil
	}
	return t.below(values, key)
}

// below returns a table in the table.
func (t *table) below(values map[string]any, path ...string) *table {
	return &table{
		doc: t.doc, path: slices.Concat(t.path, toml.Key(path)), values: values,
		bad: map[string]bool{},
	}
}

// isList reports whether a key is an array of anything but tables.
func (t *table) isList(key string) bool {
	_, ok := t.values[key].([]any)
	return ok
}

// eachTable reads the tables of a table whose keys are names.
func (t *table) eachTable(read func(name string, sub *table)) {
	if t == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(t.values)) {
		if sub := t.table(name); sub != nil {
			read(name, sub)
		}
	}
}

// rejectUnknown adds a fault for each key that is not one of known.
func (t *table) rejectUnknown(known []string) {
	for _, key := range slices.Sorted(maps.Keys(t.values)) {
		if !slices.Contains(known, key) {
			path := append(slices.Clone(t.path), key)
			t.faultAt(path, "unknown key "+pathText(path),
				fmt.Errorf("there are %s", strings.Join(known, ", ")))
		}
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
