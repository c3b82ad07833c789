package recordsql

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ncruces/go-sqlite3"
)

// This file answers a query. It allows the query only to read, within limits.

// Limits of a query's answer.
const (
	MaxRows      = 1_000_000
	maxValue     = 16 << 20 // bytes of one value
	maxRowsBytes = 128 << 20
)

// Answer has the rows of a query. A value is nil, int64, float64 or string; other bytes are a
// string too.
type Answer struct {
	Columns []string
	Rows    [][]any
}

// restrict closes the connection to all that is not reading its tables.
func (c *Cache) restrict() error {
	if err := c.conn.Exec("PRAGMA query_only = ON"); err != nil {
		return err
	}
	c.conn.Limit(sqlite3.LIMIT_ATTACHED, 0)
	c.conn.Limit(sqlite3.LIMIT_LENGTH, maxValue)
	return c.conn.SetAuthorizer(authorize)
}

// readPragmas tell of tables, and change nothing.
var readPragmas = map[string]bool{"table_info": true, "table_xinfo": true, "table_list": true,
	"index_list": true, "index_info": true}

// authorize allows a query to read and to compute, and nothing else.
func authorize(
	action sqlite3.AuthorizerActionCode, arg1, arg2, _, _ string,
) sqlite3.AuthorizerReturnCode {
	switch action {
	case sqlite3.AUTH_SELECT, sqlite3.AUTH_READ, sqlite3.AUTH_RECURSIVE:
		return sqlite3.AUTH_OK
	case sqlite3.AUTH_FUNCTION:
		if !strings.EqualFold(arg2, "load_extension") {
			return sqlite3.AUTH_OK
		}
	case sqlite3.AUTH_PRAGMA:
		if readPragmas[strings.ToLower(arg1)] {
			return sqlite3.AUTH_OK
		}
	}
	return sqlite3.AUTH_DENY
}

// ErrQuery is wrapped by the errors of queries that are wrong, or want more than reading.
var ErrQuery = errors.New("the query is wrong")

// Query answers a query of at most maxRows rows; more are an error, as are more than 128 MiB. When
// ctx ends, the query ends with its error. Of several queries the last one is answered. A query
// that is wrong, or that would change something, fails with [ErrQuery].
func (c *Cache) Query(ctx context.Context, query string, maxRows int) (Answer, error) {
	a, err := c.ask(ctx, query, maxRows)
	if err == nil || !isCorrupt(err) {
		return a, err
	}
	if err := c.renew(ctx); err != nil {
		return Answer{}, err
	}
	return c.ask(ctx, query, maxRows)
}

func (c *Cache) ask(ctx context.Context, query string, maxRows int) (a Answer, err error) {
	c.conn.SetInterrupt(ctx)
	defer c.conn.SetInterrupt(context.Background())
	stmt, err := c.last(query)
	if err != nil {
		return a, queryError(ctx, err)
	}
	defer func() { _ = stmt.Close() }()
	if stmt == nil || stmt.ColumnCount() == 0 {
		return a, fmt.Errorf("%w: it has no columns; write SELECT", ErrQuery)
	}
	for i := range stmt.ColumnCount() {
		a.Columns = append(a.Columns, stmt.ColumnName(i))
	}
	bytes := 0
	for stmt.Step() {
		if len(a.Rows) == maxRows {
			return a, fmt.Errorf("%w: it has more than %d rows; give it a LIMIT", ErrQuery, maxRows)
		}
		row := make([]any, len(a.Columns))
		for i := range row {
			switch stmt.ColumnType(i) {
			case sqlite3.INTEGER:
				row[i] = stmt.ColumnInt64(i)
			case sqlite3.FLOAT:
				row[i] = stmt.ColumnFloat(i)
			case sqlite3.TEXT, sqlite3.BLOB:
				s := strings.ToValidUTF8(stmt.ColumnText(i), "\uFFFD")
				bytes += len(s)
				row[i] = s
			}
		}
		if bytes += 16 * len(row); bytes > maxRowsBytes {
			return a, fmt.Errorf("%w: its rows have more than %d MiB; give it a LIMIT", ErrQuery,
				maxRowsBytes>>20)
		}
		a.Rows = append(a.Rows, row)
	}
	if err := stmt.Err(); err != nil {
		return a, queryError(ctx, err)
	}
	return a, nil
}

// last prepares the last of several queries, and runs those before it. Without any it returns nil.
func (c *Cache) last(query string) (last *sqlite3.Stmt, err error) {
	for err == nil && query != "" {
		var next *sqlite3.Stmt
		if next, query, err = c.conn.Prepare(query); next == nil {
			continue // a comment, or an error
		}
		if last != nil {
			err = last.Exec()
			_ = last.Close()
		}
		last = next
	}
	if err != nil {
		_ = last.Close()
		return nil, err
	}
	return last, nil
}

// queryError explains why a query failed.
func queryError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	switch codeOf(err) {
	case sqlite3.AUTH, sqlite3.READONLY:
		return fmt.Errorf("%w: it may only read the tables; write SELECT", ErrQuery)
	case sqlite3.TOOBIG:
		return fmt.Errorf("%w: a value has more than %d MiB", ErrQuery, maxValue>>20)
	case sqlite3.ERROR, sqlite3.MISMATCH, sqlite3.RANGE:
		text := strings.TrimPrefix(err.Error(), "sqlite3: ")
		return fmt.Errorf("%w: %s", ErrQuery, strings.TrimPrefix(text, "SQL logic error: "))
	}
	return err
}
