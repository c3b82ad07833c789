// Package recordsql answers queries in SQL about the records of a gateway. It copies their lines
// into a database of SQLite, the cache, which lies beside them and can be removed at any time: the
// lines are the truth. Only tapctl has it, so that no gateway links a database
// (docs/adr/0025-records.md).
package recordsql

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/ncruces/go-sqlite3"

	"tapgw/internal/proc"
	"tapgw/internal/records"
)

// cacheFile is the cache's name in the directory of the records, and lockName the name of the lock
// that a writer of the cache takes.
const (
	cacheFile = records.CacheFile
	lockName  = cacheFile + ".lock"
)

// busyTimeout bounds the wait for another process that opens or closes the cache: the lock is for
// changes only.
const busyTimeout = 10 * time.Second

// Options say which records to ask. Progress, unless nil, is called while new records are read,
// with the bytes read so far and those that there are. Note, unless nil, gets a line about each
// unusual event.
type Options struct {
	Dir      string
	Progress func(done, total int64)
	Note     func(line string)
}

// Cache is a database with the records of a directory. Make one with [Open], and close it. It is
// for one goroutine.
type Cache struct {
	o    Options
	conn *sqlite3.Conn
	// Unreadable counts the lines that are no records.
	Unreadable int
}

// Open brings the cache up to date with the records, and returns it for queries. It waits while
// another process does the same. A damaged cache, or one of another version, is made again. If the
// directory can't be written, the database is a temporary one. The error is that of reading the
// records or of writing the database, or that of ctx.
func Open(ctx context.Context, o Options) (*Cache, error) {
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
	if o.Note == nil {
		o.Note = func(string) {}
	}
	list, err := records.Segments(o.Dir)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return open(ctx, o, "")
	}
	lock, err := proc.WaitLock(ctx, filepath.Join(o.Dir, lockName))
	if err == nil {
		defer lock.Unlock()
		var c *Cache
		if c, err = openFile(ctx, o); err == nil {
			return c, nil
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	o.Note(fmt.Sprintf("the database of the records can't be kept, so all of them are read: %v",
		err))
	return open(ctx, o, "")
}

// openFile opens the cache; one that can't be used is made again, once.
func openFile(ctx context.Context, o Options) (*Cache, error) {
	path := filepath.Join(o.Dir, cacheFile)
	c, err := open(ctx, o, path)
	if err == nil || !isDamaged(err) {
		return c, err
	}
	if err := removeCache(path); err != nil {
		return nil, err
	}
	return open(ctx, o, path)
}

// removeCache removes a cache and the files that SQLite keeps beside it.
func removeCache(path string) error {
	for _, suffix := range []string{"-wal", "-shm", "-journal", ""} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("removing the database of the records: %w", err)
		}
	}
	return nil
}

// errVersion means that the cache was made by another version.
var errVersion = errors.New("the database of the records is of another version")

// isDamaged reports whether an error means that the cache is to be made again.
func isDamaged(err error) bool {
	if errors.Is(err, errVersion) {
		return true
	}
	switch codeOf(err) {
	case sqlite3.ERROR, sqlite3.CONSTRAINT, sqlite3.MISMATCH: // it has other tables, or other rows
		return true
	}
	return isCorrupt(err)
}

// codeOf returns SQLite's code of an error, 0 for an error that is not SQLite's.
func codeOf(err error) sqlite3.ErrorCode {
	var code sqlite3.ErrorCode
	_ = errors.As(err, &code)
	return code
}

// isCorrupt reports whether SQLite can't read a database.
func isCorrupt(err error) bool {
	code := codeOf(err)
	return code == sqlite3.CORRUPT || code == sqlite3.NOTADB
}

// renew makes a cache again that turned out to be damaged.
func (c *Cache) renew(ctx context.Context) error {
	_ = c.Close()
	if err := removeCache(filepath.Join(c.o.Dir, cacheFile)); err != nil {
		return err
	}
	again, err := Open(ctx, c.o)
	if err == nil {
		*c = *again
	}
	return err
}

// open opens a database, "" for a temporary one, brings it up to date and closes it to all but
// queries.
func open(ctx context.Context, o Options, path string) (_ *Cache, err error) {
	if path != "" {
		// SQLite gives its files this mode.
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec
		if err != nil {
			return nil, fmt.Errorf("opening the database of the records: %w", err)
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	conn, err := sqlite3.OpenFlags(path, sqlite3.OPEN_READWRITE|sqlite3.OPEN_CREATE)
	if err != nil {
		return nil, err
	}
	conn.SetInterrupt(ctx)
	c := &Cache{o: o, conn: conn}
	defer func() {
		if err != nil {
			_ = c.Close()
		}
	}()
	if err := c.prepare(path == ""); err != nil {
		return nil, err
	}
	if err := c.update(ctx); err != nil {
		return nil, err
	}
	return c, c.restrict()
}

// Close closes the database. A temporary one is gone then.
func (c *Cache) Close() error { return c.conn.Close() }

// prepare makes the tables of a new database, and checks the version of one that is there.
func (c *Cache) prepare(isTemporary bool) error {
	if err := c.conn.BusyTimeout(busyTimeout); err != nil {
		return err
	}
	if !isTemporary {
		if err := c.conn.Exec("PRAGMA journal_mode = WAL"); err != nil {
			return err
		}
	}
	have, err := c.number("PRAGMA user_version")
	if err != nil {
		return err
	}
	tables, err := c.number("SELECT count(*) FROM sqlite_schema")
	switch {
	case err != nil:
		return err
	case tables > 0 && have != int(version()):
		return errVersion
	case tables > 0:
	default:
		make := fmt.Sprintf("BEGIN; %s PRAGMA user_version = %d; COMMIT", schema(), version())
		if err := c.conn.Exec(make); err != nil {
			return err
		}
	}
	// A cache that a crash damages is made again, so nothing is synced. Rows that retention removed
	// are overwritten.
	set := "PRAGMA synchronous = OFF; PRAGMA secure_delete = ON; PRAGMA cache_size = -32000;"
	if isTemporary {
		set += "PRAGMA journal_mode = OFF;"
	}
	return c.conn.Exec(set)
}

// number returns the number that a query has as its only value.
func (c *Cache) number(query string) (n int, err error) {
	err = c.run(query, nil, func(s *sqlite3.Stmt) { n = s.ColumnInt(0) })
	return n, err
}

// run runs a statement with its arguments. It calls row, unless that is nil, for each row.
func (c *Cache) run(query string, args []any, row func(*sqlite3.Stmt)) error {
	stmt, _, err := c.conn.Prepare(query)
	if err != nil {
		return err
	}
	defer func() { _ = stmt.Close() }()
	if err := bind(stmt, args); err != nil {
		return err
	}
	for stmt.Step() {
		if row != nil {
			row(stmt)
		}
	}
	return stmt.Err()
}

// bind gives a statement its arguments.
func bind(stmt *sqlite3.Stmt, args []any) error {
	for i, v := range args {
		var err error
		switch v := v.(type) {
		case nil:
			err = stmt.BindNull(i + 1)
		case int64:
			err = stmt.BindInt64(i+1, v)
		case bool:
			err = stmt.BindBool(i+1, v)
		case float64:
			err = stmt.BindFloat(i+1, v)
		case string:
			err = stmt.BindText(i+1, v)
		case []byte:
			err = stmt.BindBlob(i+1, v)
		default:
			err = fmt.Errorf("a record has a value of type %T, which no column takes", v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
