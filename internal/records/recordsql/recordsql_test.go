package recordsql

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/records"
)

var at = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

// write appends records to those of a directory, as a gateway does, in files of about fileSize
// bytes.
func write(t *testing.T, dir string, fileSize int, list ...adminapi.Record) {
	t.Helper()
	l := records.New(records.Options{Dir: dir, MaxBytes: int64(10 * fileSize)})
	for i, r := range list {
		r.TS = at.Add(time.Duration(i) * time.Second)
		l.Record(r)
		l.Flush(t.Context())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

func calls(from, to int) (list []adminapi.Record) {
	for i := from; i < to; i++ {
		list = append(list, adminapi.Record{Kind: adminapi.RecordCall,
			Session: fmt.Sprint("s", i%2), ID: fmt.Sprint(i), Tool: "bash", Command: "make",
			ExitCode: new(i % 3), Outcome: adminapi.OutcomeOK})
	}
	return list
}

func openCache(t *testing.T, o Options) *Cache {
	t.Helper()
	c, err := Open(t.Context(), o)
	if err != nil {
		t.Fatalf("opening: %v", err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("closing: %v", err)
		}
	})
	return c
}

// answer opens the cache and asks it; a row is its values with blanks between them.
func answer(t *testing.T, o Options, query string) string {
	t.Helper()
	c, err := Open(t.Context(), o)
	if err != nil {
		t.Fatalf("opening: %v", err)
	}
	a, err := c.Query(t.Context(), query, 1000)
	if err := errors.Join(err, c.Close()); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	var rows []string
	for _, row := range a.Rows {
		rows = append(rows, strings.TrimSpace(fmt.Sprintln(row...)))
	}
	return strings.Join(rows, ", ")
}

func compare(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// TestColumns: each member of a record is in its column, with its value, and absent ones are NULL.
func TestColumns(t *testing.T) {
	t.Parallel()
	o := Options{Dir: t.TempDir()}
	write(t, o.Dir, 1<<20, adminapi.Record{Kind: adminapi.RecordPush, Session: "s", Provider: "ci",
		Stream: "b", Seq: 7,
		Level: "keep", Fate: "stored", Event: "it's\x00\n", Metadata: []byte(`{"n":1}`),
		DurationMs: 1.5},
		adminapi.Record{Kind: adminapi.RecordCall, Tool: "bash", ExitCode: new(0)})
	compare(t, "a push",
		answer(t, o,
			"SELECT ts, provider, seq, event, metadata ->> 'n', reason IS NULL FROM pushes"),
		"2026-01-02T15:04:05.000000Z ci 7 it's\x00\n 1 1")
	compare(
		t,
		"a duration",
		answer(t, o, `SELECT typeof(durationMs), durationMs FROM records WHERE seq = 7`),
		"real 1.5",
	)
	compare(t, "an exit code of 0", answer(t, o, "SELECT exitCode FROM calls"), "0")
	compare(t, "times of SQLite",
		answer(t, o, "SELECT count(*) FROM records WHERE ts < strftime('%FT%T', 'now', '-1 hour')"),
		"2")
	for _, v := range views {
		answer(t, o, "SELECT * FROM "+v.name)
	}
}

// TestUpdate: new lines are read once, files that are gone are forgotten, and one that was replaced
// is read again.
func TestUpdate(t *testing.T) {
	t.Parallel()
	o := Options{Dir: t.TempDir()}
	const all = "SELECT group_concat(id, ' ') FROM (SELECT id FROM records ORDER BY rowid)"
	compare(t, "no records", answer(t, o, all), "<nil>")
	if entries, err := os.ReadDir(o.Dir); err != nil || len(entries) > 0 {
		t.Errorf("without records there are %v, %v, want no files", entries, err)
	}
	write(t, o.Dir, 500, calls(0, 5)...)
	compare(t, "the first ones", answer(t, o, all), "0 1 2 3 4")
	write(t, o.Dir, 500, calls(5, 9)...)
	var read int64
	o.Progress = func(done, _ int64) { read = max(read, done) }
	compare(t, "new ones", answer(t, o, all), "0 1 2 3 4 5 6 7 8")
	if read == 0 || read > 1000 {
		t.Errorf("%d bytes read, want only those of the new records", read)
	}
	list, err := records.Segments(o.Dir)
	if err != nil || len(list) < 3 {
		t.Fatalf("%d files, %v, want several", len(list), err)
	}
	if err := os.Remove(list[0].Path); err != nil {
		t.Fatal(err)
	}
	if got := answer(t, o, all); strings.HasPrefix(got, "0") || !strings.HasSuffix(got, " 8") {
		t.Errorf("after a file went: %q, want the first ones gone and the last ones there", got)
	}
	other := t.TempDir()
	write(t, other, 1<<20, adminapi.Record{Kind: "call", Session: "s1",
		ID: strings.Repeat("x", 900)})
	data, err := os.ReadFile(filepath.Join(other, "00000001.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list[1:] {
		if err := os.WriteFile(s.Path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	compare(t, "replaced files", answer(t, o, "SELECT DISTINCT length(id) FROM records"), "900")
	info, err := os.Stat(filepath.Join(o.Dir, cacheFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the database: %v, %v, want mode 0600", info, err)
	}
}

// TestCutAnywhere cuts a file all over its last kilobyte: whole lines are there once, also after
// the rest came.
func TestCutAnywhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, 1<<20, calls(0, 40)...)
	path := filepath.Join(dir, "00000001.jsonl")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	step := 7
	if testing.Short() {
		step = 37
	}
	const count = "SELECT count(*), count(DISTINCT id) FROM records"
	for cut := len(whole) - 1024; cut <= len(whole); cut += step {
		if err := removeCache(filepath.Join(dir, cacheFile)); err != nil {
			t.Fatal(err)
		}
		lines := strings.Count(string(whole[:cut]), "\n")
		for _, part := range []struct {
			what string
			data []byte
			want int
		}{{"cut", whole[:cut], lines}, {"the rest came", whole, 40}} {
			if err := os.WriteFile(path, part.data, 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := Open(t.Context(), Options{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			a, err := c.Query(t.Context(), count, 1)
			if want := []any{int64(part.want), int64(part.want)}; err != nil ||
				!slices.Equal(a.Rows[0], want) {
				t.Errorf("at byte %d, %s: %v, %v, want %v", cut, part.what, a.Rows, err, want)
			}
			if c.Unreadable != 0 {
				t.Errorf("at byte %d, %s: %d unreadable, want none", cut, part.what, c.Unreadable)
			}
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestNoRecords: lines that are no records are passed over and counted, however long they are.
func TestNoRecords(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, 1<<20, calls(0, 1)...)
	f, err := os.OpenFile(filepath.Join(dir, "00000001.jsonl"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{`{"ts":"2026-01-02T15:0`, "", "[]", `{"ts":"2026-01-02T15:04:05Z"}`,
		`{"kind":"call"}`, "\x00",
		`{"ts":"2026-01-02T15:04:05Z","kind":"call","id":"` + strings.Repeat("x", records.MaxLine) +
			`"}`,
		`{"ts":"2026-01-02T15:04:05Z","kind":"call","id":"last"}`}
	if _, err := f.WriteString(strings.Join(lines, "\n") + "\n"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		c := openCache(t, Options{Dir: dir})
		a, err := c.Query(t.Context(), "SELECT id FROM records", 10)
		if err != nil || fmt.Sprint(a.Rows) != "[[0] [last]]" || c.Unreadable != 6 {
			t.Errorf("got %v, %v, %d unreadable, want 0 and last, and 6", a.Rows, err, c.Unreadable)
		}
	}
}

// TestDamaged: a file that is no database, is of another version, or is damaged inside is made
// again.
func TestDamaged(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, 1<<20, calls(0, 500)...)
	o := Options{Dir: dir}
	path := filepath.Join(dir, cacheFile)
	for name, damage := range map[string]func(data []byte) []byte{
		"no database": func([]byte) []byte {
			return []byte("nothing of a database, and longer than its head\n")
		},
		"empty":   func([]byte) []byte { return nil },
		"version": func(data []byte) []byte { data[63]++; return data },
		"cut":     func(data []byte) []byte { return data[:len(data)/2] },
		"inside": func(data []byte) []byte {
			for i := 4096; i < len(data); i++ {
				data[i] ^= 0x55
			}
			return data
		},
	} {
		compare(t, name+", before", answer(t, o, "SELECT count(*) FROM records"), "500")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, damage(data), 0o600); err != nil {
			t.Fatal(err)
		}
		compare(t, name,
			answer(t, o, "SELECT count(*), sum(length(command)) FROM records WHERE ts > ''"),
			"500 2000")
	}
}

// TestConcurrent: many who ask at once, and who open the database while others close it, read each
// record once and all use the same database.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, 5000, calls(0, 200)...)
	o := Options{Dir: dir, Note: func(line string) { t.Errorf("it says %q, want nothing", line) }}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			c, err := Open(t.Context(), o)
			if err != nil {
				t.Errorf("opening: %v", err)
				return
			}
			defer func() { _ = c.Close() }()
			a, err := c.Query(t.Context(), "SELECT count(*) FROM records", 1)
			if err != nil || a.Rows[0][0] != int64(200) {
				t.Errorf("got %v, %v, want 200", a.Rows, err)
			}
		})
	}
	wg.Wait()
}

// TestNotKept: where nothing can be written, all records are read, with a word, and nothing is left
// behind.
func TestNotKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, 1<<20, calls(0, 3)...)
	if err := os.Mkdir(filepath.Join(dir, lockName), 0o700); err != nil { // root may write anywhere
		t.Fatal(err)
	}
	notes := ""
	o := Options{Dir: dir, Note: func(line string) { notes += line }}
	compare(t, "without a place", answer(t, o, "SELECT count(*) FROM records"), "3")
	if !strings.Contains(notes, "can't be kept") {
		t.Errorf("notes: %q, want a word about it", notes)
	}
	if _, err := os.Stat(filepath.Join(dir, cacheFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the database: %v, want none", err)
	}
}

// TestReadOnly: no query changes the database, opens another file or makes one.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, 1<<20, calls(0, 3)...)
	c := openCache(t, Options{Dir: dir})
	outside := filepath.Join(dir, "outside.db")
	for _, query := range []string{
		"DELETE FROM records", "DROP TABLE records", "INSERT INTO files VALUES (1,1,1,1)",
		"CREATE TABLE x(a)",
		"CREATE TEMP TABLE x(a)", "UPDATE records SET id = 'x'", "ATTACH '" + outside + "' AS x",
		"VACUUM", "VACUUM INTO '" + outside + "'", "PRAGMA query_only = OFF",
		"PRAGMA journal_mode = DELETE",
		"PRAGMA user_version = 1", "PRAGMA writable_schema = ON", "SELECT 1; DELETE FROM records",
		"BEGIN", "REINDEX",
		"SELECT load_extension('x')", "PRAGMA temp_store_directory = '/'",
		"EXPLAIN DELETE FROM records", "CREATE VIRTUAL TABLE x USING fts5(a)", "", "-- nothing",
		"SELEC", "SELECT * FROM nothing", "SELECT zeroblob(17000000)",
		"SELECT * FROM records LIMIT 3, 'x'",
	} {
		if a, err := c.Query(t.Context(), query, 10); !errors.Is(err, ErrQuery) {
			t.Errorf("%s: got %v, %v, want ErrQuery", query, a.Rows, err)
		}
	}
	a, err := c.Query(t.Context(), "PRAGMA table_info(records)", 100)
	if err != nil || len(a.Rows) != len(columns()) {
		t.Errorf("the columns: %v, %v, want %d", a.Rows, err, len(columns()))
	}
	if a, err = c.Query(t.Context(), "SELECT * FROM records", 100); err != nil ||
		len(a.Columns) != len(columns()) || a.Columns[0] != columns()[0].name {
		t.Errorf("all columns: %v, %v, want those that docs/records.md lists", a.Columns, err)
	}
	if _, err := c.Query(t.Context(), "SELECT * FROM records", 2); !errors.Is(err, ErrQuery) {
		t.Errorf("more rows than allowed: %v, want ErrQuery", err)
	}
	if _, err := os.Stat(outside); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the other file: %v, want none", err)
	}
	if a, err := c.Query(t.Context(), "SELECT count(*) FROM records", 1); err != nil ||
		a.Rows[0][0] != int64(3) {
		t.Errorf("after all: %v, %v, want 3 records", a.Rows, err)
	}
}

// TestInterrupted: a query without an end stops with its context, and the cache goes on.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, dir, 1<<20, calls(0, 3)...)
	c := openCache(t, Options{Dir: dir})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	const endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
	if _, err := c.Query(ctx, endless, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a query without an end: %v, want %v", err, context.DeadlineExceeded)
	}
	if a, err := c.Query(t.Context(), "SELECT count(*) FROM calls", 1); err != nil ||
		a.Rows[0][0] != int64(3) {
		t.Errorf("after it: %v, %v, want 3 calls", a.Rows, err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if c, err := Open(ctx, Options{Dir: dir}); !errors.Is(err, context.Canceled) {
		t.Errorf("opening after the end of ctx: %v, %v, want %v", c, err, context.Canceled)
	}
}

// TestDocument holds docs/records.md to the columns of the table and of the views.
func TestDocument(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../../docs/records.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range columns() {
		names = append(names, c.name)
	}
	lines := []string{"| `records` | " + strings.Join(names, ", ") + " |"}
	for _, v := range views {
		lines = append(lines, "| `"+v.name+"` | "+strings.Join(strings.Fields(v.columns),
			", ")+" |")
	}
	for _, line := range lines {
		if !strings.Contains(string(data), line) {
			t.Errorf("docs/records.md lacks the line %q", line)
		}
	}
}
