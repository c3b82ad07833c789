package configs

import (
	"reflect"
	"regexp"
	"slices"
	"testing"
	"time"
)

// A tag that the reader does not know would be ignored, and a missing one found only by a file that
// has the key: each field of each file has the tags that its type needs, and no others.
func TestTagsOfFields(t *testing.T) {
	known := []string{
		"toml", "json", "default", "of", "is", "names", "range", "first", "shell", "repeats",
		"base", "kinds", "need", "user",
	}
	tagName := regexp.MustCompile(`(\w+):"(?:[^"\\]|\\.)*"`)
	seen := map[reflect.Type]bool{}
	var walk func(of reflect.Type)
	walk = func(of reflect.Type) {
		for of.Kind() != reflect.Struct {
			if of.Kind() != reflect.Slice && of.Kind() != reflect.Map &&
				of.Kind() != reflect.Pointer {
				return
			}
			of = of.Elem()
		}
		if seen[of] {
			return
		}
		seen[of] = true
		for f := range of.Fields() {
			for _, m := range tagName.FindAllStringSubmatch(string(f.Tag), -1) {
				if !slices.Contains(known, m[1]) {
					t.Errorf("%s.%s has the tag %s, which no reader knows", of, f.Name, m[1])
				}
			}
		}
		for _, f := range fieldsOf(of) { // panics on checks and values that there are not
			at := of.FieldByIndex(f.path)
			var one reflect.Type
			switch at.Type {
			case reflect.TypeFor[int](), reflect.TypeFor[time.Duration](),
				reflect.TypeFor[[]time.Duration]():
				if !f.least.IsValid() {
					t.Errorf("%s.%s has no range", of, at.Name)
				}
			case reflect.TypeFor[map[string]string]():
				if f.names == nil {
					t.Errorf("%s.%s has no check of its names", of, at.Name)
				}
			default:
				one = at.Type
			}
			if one != nil {
				walk(one)
			}
		}
	}
	for _, file := range []any{Config{}, LSClient{}, Provider{}, EvalCase{}, EvalVariant{}} {
		walk(reflect.TypeOf(file))
	}
	if len(seen) < 40 {
		t.Errorf("looked at %d tables, want all of them", len(seen))
	}
}
