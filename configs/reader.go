package configs

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tapgw/internal/match"
)

// A struct declares a table of a file: each field with a tag toml is a key, and the order of the
// fields is the order in which faults and schemas list the keys. The type of a field says which
// values its key has. More tags say the rest:
//
//	default  the value without the key; the zero value if the tag is missing
//	of       the words that a text may be, with commas between them
//	is       the check of a text, and of the texts in a list or table: a name in checks. With a ?
//	         behind the name the text may be empty
//	names    the check of the names in a table whose keys are names
//	range    the least and the most that a number or time may be; without the tag it is a part
//	         of a whole, above 0 and at most 1
//	first    a list is a program with its arguments; the tag is the fault of an empty program
//	shell    a command may also be a text, for sh -c
//	repeats  words in a list may repeat
//	base     "file": a path is relative to the file's directory; "program": unless it is a name
//	kinds    the kinds of providers that have the key; all kinds if the tag is missing
//	need     why a key must not be missing; "-" if a method check says it
//	user     in a project's file, the key has a fault if it is "set" or "changed"
//
// The tag toml:",inline", like embedding, adds the keys of a struct to those of the table around
// it. The schemas of the files are made of the same declarations, and the samples document the
// keys.

// field is a key of a table.
type field struct {
	key          string
	path         []int // of the struct's field, through inline structs
	tag          reflect.StructTag
	check, names func(string) error
	least, most  reflect.Value
	preset       reflect.Value // of the tag default
	kinds        []string
}

// preparer is a table that needs the keys before they are read into it.
type preparer interface{ prepare(t *table) }

// checker is a table that checks its keys together, after they were read.
type checker interface{ check(t *table) }

// keyReader is a value that may have several forms in a file.
type keyReader interface{ readKey(t *table, key string) }

// textParser is a value that a file has as a text.
type textParser interface{ parseText(s string) error }

var fieldLists sync.Map // of []field, by the type of the struct

// fieldsOf returns the keys that a struct declares.
func fieldsOf(of reflect.Type) []field {
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if known, ok := fieldLists.Load(of); ok {
		return known.([]field)
	}
	var fields []field
	for s := range of.Fields() {
		key, isKey := s.Tag.Lookup("toml")
		var kinds []string
		if names, ok := s.Tag.Lookup("kinds"); ok {
			kinds = strings.Split(names, ",")
		}
		switch {
		case key == ",inline" || s.Anonymous && !isKey:
			for _, f := range fieldsOf(s.Type) {
				f.path = append(slices.Clone(s.Index), f.path...)
				if kinds != nil {
					f.kinds = kinds
				}
				fields = append(fields, f)
			}
		case isKey:
			f := field{key: key, path: s.Index, tag: s.Tag, kinds: kinds,
				check: checkNamed(s.Tag.Get("is"))}
			if words, ok := s.Tag.Lookup("of"); ok {
				f.check = oneOf(strings.Split(words, ",")...)
			}
			if name, ok := s.Tag.Lookup("names"); ok {
				f.names = checkNamed(name)
			}
			if least, most, ok := strings.Cut(s.Tag.Get("range"), ","); ok {
				one := s.Type
				if one.Kind() == reflect.Slice {
					one = one.Elem()
				}
				f.least, f.most = parseTag(one, least), parseTag(one, most)
			}
			if text, ok := s.Tag.Lookup("default"); ok {
				f.preset = parseTag(s.Type, text)
			}
			fields = append(fields, f)
		}
	}
	fieldLists.Store(of, fields)
	return fields
}

// parseTag parses a value of a tag, for a field of this type. It panics if the tag is wrong.
func parseTag(of reflect.Type, text string) reflect.Value {
	v := reflect.New(of).Elem()
	var err error
	switch into := v.Addr().Interface().(type) {
	case *time.Duration:
		*into, err = time.ParseDuration(text)
	case *string:
		*into = text
	case *bool:
		*into, err = strconv.ParseBool(text)
	case *int:
		*into, err = strconv.Atoi(text)
	case textParser:
		err = into.parseText(text)
	case *float64:
		*into, err = strconv.ParseFloat(text, 64)
	default:
		err = fmt.Errorf("a tag can't have a value of type %s", of)
	}
	if err != nil {
		panic(err)
	}
	return v
}

// in returns the field's value in a struct. It makes the inline structs that are nil.
func (f *field) in(v reflect.Value) reflect.Value {
	for _, i := range f.path {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				v.Set(reflect.New(v.Type().Elem()))
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	return v
}

// defaults returns a table without keys.
func defaults[T any]() T {
	var v T
	setDefaults(reflect.ValueOf(&v).Elem())
	return v
}

// setDefaults sets the values of a table that are zero to their defaults.
func setDefaults(v reflect.Value) {
	for _, f := range fieldsOf(v.Type()) {
		switch at := f.in(v); {
		case f.preset.IsValid() && at.IsZero():
			at.Set(f.preset)
		case at.Kind() == reflect.Struct:
			setDefaults(at)
		}
	}
}

// read reads the keys of the table into a struct, and adds a fault for each key that the struct
// does not declare. If a key has a fault, its field does not change.
func (t *table) read(into any) {
	if p, ok := into.(preparer); ok {
		p.prepare(t)
	}
	v := reflect.ValueOf(into).Elem()
	var known []string
	for _, f := range fieldsOf(v.Type()) {
		known = append(known, f.key)
		if value, isSet := t.values[f.key]; isSet {
			t.readField(&f, f.in(v), value)
		} else if why := f.tag.Get("need"); why != "" && why != "-" {
			t.fault(f.key, "is missing: %s", why)
		}
	}
	if c, ok := into.(checker); ok {
		c.check(t)
	}
	t.rejectUnknown(known)
}

func (t *table) readField(f *field, v reflect.Value, value any) {
	switch into := v.Addr().Interface().(type) {
	case keyReader:
		into.readKey(t, f.key)
	case textParser:
		t.readText(f.key, value, into.parseText)
	case **match.Pattern:
		t.readText(f.key, value, func(s string) (err error) {
			*into, err = match.Compile(s)
			return err
		})
	case *string:
		t.readText(f.key, value, func(s string) error {
			if err := f.check(s); err != nil {
				return err
			}
			switch base := f.tag.Get("base"); {
			case base == "file", base == "program" && strings.ContainsAny(s, `/\`):
				s = resolvePath(filepath.Dir(t.doc.file), s)
			}
			*into = s
			return nil
		})
	case *bool:
		if b, ok := value.(bool); ok {
			*into = b
		} else {
			t.mismatch(f.key, "true or false", value)
		}
	case *int:
		if n, ok := value.(int64); !ok {
			t.mismatch(f.key, "a whole number", value)
		} else if least, most := f.least.Int(), f.most.Int(); n < least || n > most {
			t.fault(f.key, "%d is not from %d to %d", n, least, most)
		} else {
			*into = int(n)
		}
	case *float64:
		t.readNumber(f, into, value)
	case *time.Duration:
		if d, ok := t.readDuration(f, value, `a time such as "30s" or "5m"`); ok {
			*into = d
		}
	case *[]time.Duration:
		t.readDurations(f, into, value)
	case *time.Time:
		t.readTime(f.key, into, value)
	case *[]string:
		t.readList(f, into, value)
	case *map[string]string:
		t.readTexts(f, into)
	default:
		t.readTables(f, v)
	}
}

func (t *table) readText(key string, value any, use func(string) error) {
	if s, ok := value.(string); !ok {
		t.mismatch(key, "a string", value)
	} else if err := use(s); err != nil {
		t.fault(key, "%w", err)
	}
}

// readNumber reads a number, whole or not.
func (t *table) readNumber(f *field, into *float64, value any) {
	n, ok := value.(float64)
	if whole, isWhole := value.(int64); isWhole {
		n, ok = float64(whole), true
	}
	switch isPart := !f.least.IsValid(); { // NaN is in no range
	case !ok && isPart:
		t.mismatch(f.key, "a number such as 0.8", value)
	case !ok:
		t.mismatch(f.key, "a number", value)
	case isPart && !(n > 0 && n <= 1):
		t.fault(f.key, "%v is not above 0 and at most 1", n)
	case !isPart && !(n >= f.least.Float() && n <= f.most.Float()):
		t.fault(f.key, "%v is not from %v to %v", n, f.least, f.most)
	default:
		*into = n
	}
}

// readDuration reads a time such as "2m30s".
func (t *table) readDuration(f *field, value any, want string) (time.Duration, bool) {
	s, ok := value.(string)
	if !ok {
		t.mismatch(f.key, want, value)
		return 0, false
	}
	d, err := time.ParseDuration(s)
	least, most := time.Duration(f.least.Int()), time.Duration(f.most.Int())
	switch {
	case err != nil:
		t.fault(f.key, `%q is not a time such as "30s" or "5m"`, s)
	case d < least || d > most:
		t.fault(f.key, "%s is not from %s to %s", d, least, most)
	default:
		return d, true
	}
	return 0, false
}

// readDurations reads a time such as "5m", or an array of them.
func (t *table) readDurations(f *field, into *[]time.Duration, value any) {
	values, isList := value.([]any)
	if !isList {
		values = []any{value}
	}
	var list []time.Duration
	for _, v := range values {
		d, ok := t.readDuration(f, v, `a time such as "5m", or an array of them`)
		if !ok {
			return
		}
		list = append(list, d)
	}
	if len(list) == 0 {
		t.fault(f.key, `must have a time such as "5m"`)
	}
	*into = list
}

// readTime reads a date with its time and its distance from UTC.
func (t *table) readTime(key string, into *time.Time, value any) {
	when, isTime := value.(time.Time)
	if s, isText := value.(string); isText {
		parsed, err := time.Parse(time.RFC3339, s)
		when, isTime = parsed, err == nil
	}
	// The TOML library gives dates and times without a distance a location of such a name.
	zone := when.Location().String()
	if !isTime || zone == "datetime-local" || zone == "date-local" || zone == "time-local" {
		t.fault(key, "must be a time with its distance from UTC, such as 2026-12-24T18:00:00+01:00")
		return
	}
	*into = when
}

// readList reads an array of strings. Without the tags first and repeats, no two may be equal, and
// the strings without faults count: denials of a project hold though others beside them are wrong.
func (t *table) readList(f *field, into *[]string, value any) {
	_, hasShell := f.tag.Lookup("shell")
	if line, isLine := value.(string); isLine && hasShell {
		if err := isCommandLine(line); err != nil {
			t.fault(f.key, "%w", err)
		}
		*into = []string{"sh", "-c", line}
		return
	}
	values, ok := value.([]any)
	if !ok {
		t.mismatch(f.key, "an array of strings", value)
		return
	}
	noProgram, isCommand := f.tag.Lookup("first")
	_, mayRepeat := f.tag.Lookup("repeats")
	mayRepeat = mayRepeat || isCommand
	var list, good []string
	for i, v := range values {
		s, ok := v.(string)
		var err error
		switch {
		case !ok:
			err = fmt.Errorf("must be a string, found %s", typeName(v))
		case isCommand && i == 0 && s == "":
			err = errors.New(noProgram)
		default:
			err = f.check(s)
			if err == nil && !mayRepeat && slices.Contains(list, s) {
				err = fmt.Errorf("%q stands there twice", s)
			}
		}
		if list = append(list, s); err == nil {
			good = append(good, s)
			continue
		}
		path := append(slices.Clone(t.path), f.key)
		t.faultAt(append(path, element(i)), fmt.Sprintf("%s[%d]", pathText(path), i), err)
		t.bad[f.key] = true
	}
	isGood := t.isGood(f.key)
	switch {
	case isGood && hasShell && len(list) == 0:
		t.fault(f.key, `must be a command such as ["make", "test"] or "make test"`)
	case isGood && f.tag.Get("base") == "file":
		for i := range good {
			good[i] = resolvePath(filepath.Dir(t.doc.file), good[i])
		}
		*into = good
	case isGood, !mayRepeat && len(good) > 0 && f.tag.Get("base") == "":
		*into = good
	}
}

// readTexts reads a table whose values are all strings.
func (t *table) readTexts(f *field, into *map[string]string) {
	sub := t.table(f.key)
	if sub == nil {
		return
	}
	texts := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(sub.values)) {
		s, ok := sub.values[name].(string)
		err := f.names(name)
		if err == nil && !ok {
			err = fmt.Errorf("must be a string, found %s", typeName(sub.values[name]))
		} else if err == nil {
			err = f.check(s)
		}
		if err != nil {
			path := append(slices.Clone(sub.path), name)
			sub.faultAt(path, path.String(), err)
		}
		texts[name] = s
	}
	*into = texts
}

// readTables reads a table, an array of tables, or a table of tables by name. The last may be a
// list in the struct; its elements then have a field Name.
func (t *table) readTables(f *field, v reflect.Value) {
	switch {
	case v.Kind() == reflect.Struct:
		if sub := t.table(f.key); sub != nil {
			sub.read(v.Addr().Interface())
		}
	case f.names != nil:
		t.readNamed(f, v)
	default:
		subs, ok := t.arrayOfTables(f.key)
		if !ok {
			return
		}
		list := reflect.MakeSlice(v.Type(), len(subs), len(subs))
		for i, sub := range subs {
			setDefaults(list.Index(i))
			sub.read(list.Index(i).Addr().Interface())
		}
		v.Set(list)
	}
}

// readNamed reads a table of tables by name, over those that the map has.
func (t *table) readNamed(f *field, v reflect.Value) {
	t.table(f.key).eachTable(func(name string, sub *table) {
		one := reflect.New(v.Type().Elem()).Elem()
		setDefaults(one)
		if v.Kind() == reflect.Slice {
			one.FieldByName("Name").SetString(name)
		}
		if err := f.names(name); err != nil {
			sub.faultHere("%w", err)
		}
		sub.read(one.Addr().Interface())
		if v.Kind() == reflect.Slice {
			v.Set(reflect.Append(v, one))
			return
		}
		with := reflect.MakeMap(v.Type())
		for old := v.MapRange(); old.Next(); {
			with.SetMapIndex(old.Key(), old.Value())
		}
		with.SetMapIndex(reflect.ValueOf(name), one)
		v.Set(with)
	})
}

// arrayOfTables returns the tables of an array, false if its key is missing or has a fault.
func (t *table) arrayOfTables(key string) (subs []*table, ok bool) {
	var values []map[string]any
	switch v := t.values[key].(type) {
	case nil:
		return nil, false
	case []map[string]any:
		values = v
	case []any: // written as one value
		for _, v := range v {
			sub, ok := v.(map[string]any)
			if !ok {
				t.mismatch(key, "an array of tables", v)
				return nil, false
			}
			values = append(values, sub)
		}
	default:
		t.mismatch(key, "an array of tables, each [["+key+"]]", v)
		return nil, false
	}
	for i, sub := range values {
		subs = append(subs, t.below(sub, key, element(i)))
	}
	return subs, true
}

// faultHere complains about the table itself.
func (t *table) faultHere(format string, args ...any) {
	t.faultAt(t.path, pathText(t.path), fmt.Errorf(format, args...))
}
