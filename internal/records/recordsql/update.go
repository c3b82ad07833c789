package recordsql

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ncruces/go-sqlite3"

	"tapgw/internal/adminapi"
	"tapgw/internal/records"
)

// This file brings the cache's database up to date with the files of records.

const (
	maxHead   = 512  // bytes of a file by which it is known again
	checkEach = 1000 // lines between two looks at the context
)

// known is the cache's view of a file of records.
type known struct {
	number int
	size   int64 // bytes whose records it has
	head   []byte
}

// firstLine is the number of the first line of a file.
func firstLine(number int) int64 { return int64(number) << 32 }

// update brings the cache up to date: it forgets files that are gone, and reads new lines.
func (c *Cache) update(ctx context.Context) error {
	list, err := records.Segments(c.o.Dir)
	if err != nil {
		return err
	}
	have, err := c.known()
	if err != nil {
		return err
	}
	var total, done int64
	for _, s := range list {
		if info, err := os.Stat(s.Path); err == nil {
			total += max(info.Size()-have[s.Number].size, 0)
		}
	}
	for _, s := range list {
		if err := c.read(ctx, s, have[s.Number], func(n int64) { c.o.Progress(done+n, total) },
			&done); err != nil {
			return err
		}
		delete(have, s.Number)
	}
	for number := range have {
		if err := c.forget(number); err != nil {
			return err
		}
	}
	c.Unreadable, err = c.number("SELECT coalesce(sum(unreadable), 0) FROM files")
	return err
}

func (c *Cache) known() (map[int]known, error) {
	have := map[int]known{}
	err := c.run("SELECT number, size, head FROM files", nil, func(s *sqlite3.Stmt) {
		k := known{s.ColumnInt(0), s.ColumnInt64(1), s.ColumnBlob(2, nil)}
		have[k.number] = k
	})
	return have, err
}

// forget removes the rows of a file from the cache.
func (c *Cache) forget(number int) error {
	err := c.run("DELETE FROM records WHERE rowid >= ? AND rowid < ?",
		[]any{firstLine(number), firstLine(number + 1)}, nil)
	if err == nil {
		err = c.run("DELETE FROM files WHERE number = ?", []any{int64(number)}, nil)
	}
	return err
}

// read reads the new lines of a file, in one transaction, and adds its bytes to done.
func (c *Cache) read(
	ctx context.Context, s records.Segment, k known, progress func(int64), done *int64,
) (err error) {
	f, err := os.Open(s.Path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // its time has come
	}
	if err != nil {
		return fmt.Errorf("reading the records: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("reading the records: %w", err)
	}
	head := make([]byte, min(info.Size(), maxHead))
	if _, err := f.ReadAt(head, 0); err != nil {
		return fmt.Errorf("reading the records of %s: %w", s.Path, err)
	}
	isKnown := bytes.HasPrefix(head, k.head) && info.Size() >= k.size
	if isKnown && info.Size() == k.size {
		return nil
	}
	defer c.conn.Begin().End(&err)
	if !isKnown {
		if err := c.forget(s.Number); err != nil {
			return err
		}
		k = known{}
	}
	if _, err := f.Seek(k.size, io.SeekStart); err != nil {
		return fmt.Errorf("reading the records of %s: %w", s.Path, err)
	}
	in := c.newImport(firstLine(s.Number) + k.size)
	err = in.lines(ctx, bufio.NewReaderSize(f, records.MaxLine), progress)
	in.close()
	if err != nil {
		return fmt.Errorf("reading the records of %s: %w", s.Path, err)
	}
	size := in.line - firstLine(s.Number)
	*done += size - k.size
	return c.run(`INSERT INTO files VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET size = excluded.size,
		unreadable = unreadable + excluded.unreadable, head = excluded.head`,
		[]any{int64(s.Number), size, int64(in.unreadable), head[:min(int64(len(head)), size)]}, nil)
}

// importer copies lines into the table.
type importer struct {
	insert     *sqlite3.Stmt
	err        error
	line       int64 // where the next line is
	unreadable int
	row        []any
}

func (c *Cache) newImport(line int64) *importer {
	var names, places strings.Builder
	for _, c := range columns() {
		fmt.Fprintf(&names, ", %q", c.name)
		places.WriteString(", ?")
	}
	//nolint:gosec // our own names, and places
	insert := "INSERT INTO records (rowid" + names.String() + ") VALUES (?" + places.String() + ")"
	stmt, _, err := c.conn.Prepare(insert)
	return &importer{insert: stmt, err: err, line: line}
}

func (in *importer) close() { _ = in.insert.Close() }

// lines copies all lines that have an end.
func (in *importer) lines(ctx context.Context, r *bufio.Reader, progress func(int64)) error {
	start := in.line
	isSkipping := false
	for n := 0; in.err == nil; n++ {
		if n%checkEach == 0 {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			progress(in.line - start)
		}
		text, err := r.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			isSkipping = true // no record is that long
			in.line += int64(len(text))
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case isSkipping:
			isSkipping = false
			in.unreadable++
		default:
			in.add(bytes.TrimSuffix(text, []byte("\n")))
		}
		in.line += int64(len(text))
	}
	return in.err
}

// add copies one line.
func (in *importer) add(text []byte) {
	if len(text) == 0 {
		return // written after a line that was cut off
	}
	var r adminapi.Record
	if json.Unmarshal(text, &r) != nil || r.TS.IsZero() || r.Kind == "" {
		in.unreadable++
		return
	}
	in.row = values(append(in.row[:0], in.line), &r)
	if in.err = bind(in.insert, in.row); in.err == nil {
		in.err = in.insert.Exec()
	}
}
