// Package recordsql answers queries in SQL about the records of a gateway. It copies their lines into a database of
// SQLite, the cache, which lies beside them and can be removed at any time: the lines are the truth. Only tapctl has
// it, so that no gateway links a database (docs/adr/0025-records.md).
package recordsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"tapgw/internal/proc"
	"tapgw/internal/records"
)

// cacheFile is the cache's name in the directory of the records, and lockName the name of the lock
// that a writer of the cache takes.
const (
	cacheFile = records.CacheFile
	lockName  = cacheFile + ".lock"
)

// busyTimeout bounds the wait for another process that opens or closes the cache: the lock is for changes only.
const busyTimeout = 10 * time.Second

// Options say which records to ask. Progress, unless nil, is called while new records are read,
// with the bytes read so far and those that there are. Note, unless nil, gets a line about each
// unusual event.
type Options struct {
	Dir      string
	Progress func(done, total int64)
	Note     func(line string)
}

// Cache is a database with the records of a directory. Make one with [Open], and close it. It is for one goroutine.
type Cache struct {
	o    Options
	db   *sql.DB
	conn *sql.Conn
	// Unreadable counts the lines that are no records.
	Unreadable int
}

// Open brings the cache up to date with the records, and returns it for queries. It waits while another process does
// the same. A damaged cache, or one of another version, is made again. If the directory can't be written, the database
// is a temporary one. The error is that of reading the records or of writing the database, or that of ctx.
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
	o.Note(fmt.Sprintf("the database of the records can't be kept, so all of them are read: %v", err))
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
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return false
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH: // it has other tables, or other rows
		return true
	}
	return isCorrupt(err)
}

// isCorrupt reports whether SQLite can't read a database.
func isCorrupt(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && (e.Code()&0xff == sqlite3.SQLITE_CORRUPT || e.Code()&0xff == sqlite3.SQLITE_NOTADB)
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

// open opens a database, "" for a temporary one, brings it up to date and closes it to all but queries.
func open(ctx context.Context, o Options, path string) (_ *Cache, err error) {
	name := ""
	if path != "" {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // SQLite gives its files this mode
		if err != nil {
			return nil, fmt.Errorf("opening the database of the records: %w", err)
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
		name = "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + url.Values{"_pragma": {
			fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()), "journal_mode(WAL)",
		}}.Encode()
	}
	db, err := sql.Open("sqlite", name)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	c := &Cache{o: o, db: db}
	defer func() {
		if err != nil {
			_ = c.Close()
		}
	}()
	if c.conn, err = db.Conn(ctx); err != nil {
		return nil, err
	}
	if err := c.prepare(ctx, path == ""); err != nil {
		return nil, err
	}
	if err := c.update(ctx); err != nil {
		return nil, err
	}
	return c, c.restrict(ctx)
}

// Close closes the database. A temporary one is gone then.
func (c *Cache) Close() error {
	var err error
	if c.conn != nil {
		err = c.conn.Close()
	}
	return errors.Join(err, c.db.Close())
}

// prepare makes the tables of a new database, and checks the version of one that is there.
func (c *Cache) prepare(ctx context.Context, isTemporary bool) error {
	var have int32
	var tables int
	if err := c.conn.QueryRowContext(ctx, "PRAGMA user_version").Scan(&have); err != nil {
		return err
	}
	if err := c.conn.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
		return err
	}
	switch {
	case tables > 0 && have != version():
		return errVersion
	case tables > 0:
	default:
		if _, err := c.conn.ExecContext(ctx, fmt.Sprintf("BEGIN; %s PRAGMA user_version = %d; COMMIT", schema(),
			version())); err != nil {
			return err
		}
	}
	// A cache that a crash damages is made again, so nothing is synced. Rows that retention removed
	// are overwritten.
	set := "PRAGMA synchronous = OFF; PRAGMA secure_delete = ON; PRAGMA cache_size = -32000;"
	if isTemporary {
		set += "PRAGMA journal_mode = OFF;"
	}
	_, err := c.conn.ExecContext(ctx, set)
	return err
}
