package configs

import (
	"path/filepath"
	"reflect"
)

// A project's file can't set which programs run, where traffic goes, and who may connect: the keys
// with the tag user. It may repeat the default of one with user:"changed".

// copyUserKeys copies the keys that only the user may set.
func copyUserKeys[C any](to *C, from C) {
	copyUserFields(reflect.ValueOf(to).Elem(), reflect.ValueOf(from))
}

func copyUserFields(to, from reflect.Value) {
	for _, f := range fieldsOf(to.Type()) {
		switch to, from := f.in(to), f.in(from); {
		case f.tag.Get("user") != "":
			to.Set(from)
		case to.Kind() == reflect.Struct:
			copyUserFields(to, from)
		}
	}
}

// rejectUserKeys adds a fault for each key of a project's file that only the user may set. read and
// unset are the configuration that was read and the one without a file, userFile the name of the
// user's own file.
func (t *table) rejectUserKeys(prefix string, read, unset reflect.Value, userFile string) {
	for _, f := range fieldsOf(read.Type()) {
		read, unset, key := f.in(read), f.in(unset), prefix+f.key
		isRejected := false
		switch f.tag.Get("user") {
		case "set":
			isRejected = t.has(f.key)
		case "changed":
			isRejected = !isEqual(read.Interface(), unset.Interface())
		default:
			if read.Kind() == reflect.Struct {
				t.rejectUserKeys(key+".", read, unset, userFile)
			}
		}
		if isRejected && t.isGood(key) {
			t.faultOfUser(key, userFile)
		}
	}
}

func (t *table) faultOfUser(key, userFile string) {
	t.fault(key, "a project's file can't set it: write it into %s",
		filepath.Join(UserDir(), userFile))
}
