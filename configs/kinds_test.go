package configs

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// The tags of Provider name the kinds of the table, and no others.
func TestKinds(t *testing.T) {
	inFiles := slices.DeleteFunc(slices.Sorted(maps.Keys(kinds)), func(name string) bool {
		return kinds[name].isOwn
	})
	for f := range reflect.TypeFor[Provider]().Fields() {
		if f.Name == "Kind" {
			if got := slices.Sorted(strings.SplitSeq(f.Tag.Get("of"), ",")); !slices.Equal(got,
				inFiles) {
				t.Errorf("the key kind takes %q, want %q", got, inFiles)
			}
		}
	}
	for _, f := range fieldsOf(reflect.TypeFor[Provider]()) {
		for _, name := range f.kinds {
			if !slices.Contains(inFiles, name) {
				t.Errorf("the key %s belongs to kind %q, which is none of %q", f.key, name, inFiles)
			}
		}
	}
}
