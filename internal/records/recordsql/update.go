package recordsql

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

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
	have, err := c.known(ctx)
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
		if err := c.read(ctx, s, have[s.Number], func(n int64) { c.o.Progress(done+n, total) }, &done); err != nil {
			return err
		}
		delete(have, s.Number)
	}
	for number := range have {
		if err := c.forget(ctx, c.conn, number); err != nil {
			return err
		}
	}
	return c.conn.QueryRowContext(ctx, "SELECT coalesce(sum(unreadable), 0) FROM files").Scan(&c.Unreadable)
}

func (c *Cache) known(ctx context.Context) (map[int]known, error) {
	rows, err := c.conn.QueryContext(ctx, "SELECT number, size, head FROM files")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	have := map[int]known{}
	for rows.Next() {
		var k known
		if err := rows.Scan(&k.number, &k.size, &k.head); err != nil {
			return nil, err
		}
		have[k.number] = k
	}
	return have, rows.Err()
}

// execer runs a statement: a connection, or a transaction on it.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// forget removes the rows of a file from the cache.
func (c *Cache) forget(ctx context.Context, on execer, number int) error {
	_, err := on.ExecContext(ctx, "DELETE FROM records WHERE rowid >= ? AND rowid < ?", firstLine(number),
		firstLine(number+1))
	if err == nil {
		_, err = on.ExecContext(ctx, "DELETE FROM files WHERE number = ?", number)
	}
	return err
}

// read reads the new lines of a file, in one transaction, and adds its bytes to done.
func (c *Cache) read(ctx context.Context, s records.Segment, k known, progress func(int64), done *int64) (err error) {
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
	tx, err := c.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if !isKnown {
		if err := c.forget(ctx, tx, s.Number); err != nil {
			return err
		}
		k = known{}
	}
	if _, err := f.Seek(k.size, io.SeekStart); err != nil {
		return fmt.Errorf("reading the records of %s: %w", s.Path, err)
	}
	in := newImport(ctx, tx, firstLine(s.Number)+k.size)
	err = in.lines(ctx, bufio.NewReaderSize(f, records.MaxLine), progress)
	in.close()
	if err != nil {
		return fmt.Errorf("reading the records of %s: %w", s.Path, err)
	}
	size := in.line - firstLine(s.Number)
	*done += size - k.size
	if _, err := tx.ExecContext(ctx, `INSERT INTO files VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET size = excluded.size,
		unreadable = unreadable + excluded.unreadable, head = excluded.head`, s.Number, size, in.unreadable,
		head[:min(int64(len(head)), size)]); err != nil {
		return err
	}
	return tx.Commit()
}

// importer copies lines into the table.
type importer struct {
	insert     *sql.Stmt
	err        error
	line       int64 // where the next line is
	unreadable int
	row        []any
}

func newImport(ctx context.Context, tx *sql.Tx, line int64) *importer {
	var names, places strings.Builder
	for _, c := range columns() {
		fmt.Fprintf(&names, ", %q", c.name)
		places.WriteString(", ?")
	}
	//nolint:gosec // our own names, and places
	insert := "INSERT INTO records (rowid" + names.String() + ") VALUES (?" + places.String() + ")"
	stmt, err := tx.PrepareContext(ctx, insert)
	return &importer{insert: stmt, err: err, line: line}
}

func (in *importer) close() {
	if in.insert != nil {
		_ = in.insert.Close()
	}
}

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
	_, in.err = in.insert.Exec(in.row...)
}
