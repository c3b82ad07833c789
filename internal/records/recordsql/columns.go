package recordsql

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"reflect"
	"strings"
	"sync"
	"time"

	"tapgw/internal/adminapi"
)

// column is a column of the table records: a field of [adminapi.Record], under the name that it has
// in JSON.
type column struct {
	name, typ string
	field     int
}

var columns = sync.OnceValue(recordColumns)

func recordColumns() (list []column) {
	for i, f := range reflect.VisibleFields(reflect.TypeFor[adminapi.Record]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		t := f.Type
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		typ := "TEXT"
		switch t.Kind() {
		case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Bool:
			typ = "INTEGER"
		case reflect.Float64:
			typ = "REAL"
		}
		list = append(list, column{name, typ, i})
	}
	return list
}

// values appends a record's value of each column; nil where a field is missing.
func values(list []any, r *adminapi.Record) []any {
	v := reflect.ValueOf(r).Elem()
	for _, c := range columns() {
		f := v.Field(c.field)
		if f.IsZero() {
			list = append(list, nil)
			continue
		}
		switch x := f.Interface().(type) {
		case time.Time:
			list = append(list, x.UTC().Format(timeLayout))
		case json.RawMessage:
			list = append(list, string(x))
		default:
			list = append(list, plain(f))
		}
	}
	return list
}

// plain is a value as a database takes it.
func plain(f reflect.Value) any {
	if f.Kind() == reflect.Pointer {
		f = f.Elem()
	}
	switch f.Kind() {
	case reflect.String:
		return f.String()
	case reflect.Uint64:
		return int64(f.Uint()) //nolint:gosec // a number of an event
	case reflect.Int, reflect.Int64:
		return f.Int()
	}
	return f.Interface()
}

// timeLayout is the time of a record, as its line has it.
const timeLayout = "2006-01-02T15:04:05.000000Z"

// views are the records of each kind, with the columns that it has: docs/records.md lists them.
var views = []struct{ name, kind, columns string }{
	{"sessions", adminapi.RecordSession, "ts session state label host cwd reason"},
	{"turns", adminapi.RecordTurn, "ts session trace id by outcome reason durationMs"},
	{"calls", adminapi.RecordCall,
		"ts session provider trace gateway id tool outcome code reason durationMs command " +
			"exitCode"},
	{"gates", adminapi.RecordGate, "ts session provider trace tool by outcome reason durationMs"},
	{"pushes", adminapi.RecordPush,
		"ts session provider trace gateway id stream seq level fate reason event prompt metadata"},
	{"runs", adminapi.RecordSource, "ts session provider trace stream outcome reason durationMs"},
	{"goals", adminapi.RecordGoal, "ts session id state by reason"},
	{"remotes", adminapi.RecordRemote, "ts gateway state command outcome code durationMs"},
	{"webhooks", adminapi.RecordWebhook, "ts provider outcome code reason"},
}

// schema returns the statements that make the tables. The rowid of a record, which SELECT * does
// not show, is where it is: the number of its file times 2^32, and its place in the file.
var schema = sync.OnceValue(makeSchema)

func makeSchema() string {
	var b strings.Builder
	b.WriteString(
		"CREATE TABLE files (number INTEGER PRIMARY KEY, size INTEGER, unreadable INTEGER, " +
			"head BLOB);\n")
	separator := "CREATE TABLE records ("
	for _, c := range columns() {
		fmt.Fprintf(&b, "%s%q %s", separator, c.name, c.typ)
		separator = ", "
	}
	b.WriteString(");\n")
	// Without statistics, SQLite takes the index with most columns that are given: so by_session
	// has the kind.
	b.WriteString(
		"CREATE INDEX by_ts ON records (ts); CREATE INDEX by_kind ON records (kind, ts);\n" +
			"CREATE INDEX by_session ON records (session, kind, ts) WHERE session IS NOT NULL;\n" +
			"CREATE INDEX by_trace ON records (trace) WHERE trace IS NOT NULL;\n")
	for _, v := range views {
		names := strings.Fields(v.columns)
		for i, n := range names {
			names[i] = fmt.Sprintf("%q", n)
		}
		fmt.Fprintf(
			&b,
			"CREATE VIEW %s AS SELECT %s FROM records WHERE kind = '%s';\n",
			v.name,
			strings.Join(names, ", "),
			v.kind,
		)
	}
	return b.String()
}

// version is the schema's version: a cache with another one is made again.
func version() int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(schema()))
	return int32(h.Sum32() >> 1)
}
