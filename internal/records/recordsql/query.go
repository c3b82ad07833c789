package recordsql

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// This file answers a query. It allows the query only to read, within limits.

// Limits of a query's answer.
const (
	MaxRows      = 1_000_000
	maxValue     = 16 << 20 // bytes of one value
	maxRowsBytes = 128 << 20
)

// Answer has the rows of a query. A value is nil, int64, float64 or string; other bytes are a string too.
type Answer struct {
	Columns []string
	Rows    [][]any
}

// restrict closes the connection to all that is not reading its tables.
func (c *Cache) restrict(ctx context.Context) error {
	if _, err := c.conn.ExecContext(ctx, "PRAGMA query_only = ON"); err != nil {
		return err
	}
	for limit, value := range map[int]int{
		sqlite3.SQLITE_LIMIT_ATTACHED: 0, sqlite3.SQLITE_LIMIT_LENGTH: maxValue,
	} {
		if _, err := sqlite.Limit(c.conn, limit, value); err != nil {
			return err
		}
	}
	return c.conn.Raw(func(conn any) error { return conn.(sqlite.AuthorizerRegisterer).RegisterAuthorizer(authorize) })
}

// readPragmas tell of tables, and change nothing.
var readPragmas = map[string]bool{"table_info": true, "table_xinfo": true, "table_list": true, "index_list": true,
	"index_info": true}

// authorize allows a query to read and to compute, and nothing else.
func authorize(action sqlite.AuthorizerActionCode, arg1, arg2, _, _ string) sqlite.AuthorizerReturnCode {
	switch action {
	case sqlite.AuthSelect, sqlite.AuthRead, sqlite.AuthRecursive:
		return sqlite.AuthorizerOK
	case sqlite.AuthFunction:
		if !strings.EqualFold(arg2, "load_extension") {
			return sqlite.AuthorizerOK
		}
	case sqlite.AuthPragma:
		if readPragmas[strings.ToLower(arg1)] {
			return sqlite.AuthorizerOK
		}
	}
	return sqlite.AuthorizerDeny
}

// ErrQuery is wrapped by the errors of queries that are wrong, or want more than reading.
var ErrQuery = errors.New("the query is wrong")

// Query answers a query of at most maxRows rows; more are an error, as are more than 128 MiB. When ctx ends, the query
// ends with its error. Of several queries the last one is answered. A query that is wrong, or that would change
// something, fails with [ErrQuery].
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
	rows, err := c.conn.QueryContext(ctx, query)
	if err != nil {
		return a, queryError(ctx, err)
	}
	defer func() { _ = rows.Close() }()
	if a.Columns, err = rows.Columns(); err != nil {
		return a, queryError(ctx, err)
	}
	if len(a.Columns) == 0 {
		return a, fmt.Errorf("%w: it has no columns; write SELECT", ErrQuery)
	}
	bytes := 0
	for rows.Next() {
		if len(a.Rows) == maxRows {
			return a, fmt.Errorf("%w: it has more than %d rows; give it a LIMIT", ErrQuery, maxRows)
		}
		row := make([]any, len(a.Columns))
		to := make([]any, len(row))
		for i := range row {
			to[i] = &row[i]
		}
		if err := rows.Scan(to...); err != nil {
			return a, queryError(ctx, err)
		}
		for i, v := range row {
			if b, ok := v.([]byte); ok {
				v = string(b)
			}
			if s, ok := v.(string); ok {
				v = strings.ToValidUTF8(s, "\uFFFD")
				bytes += len(s)
			}
			row[i] = v
		}
		if bytes += 16 * len(row); bytes > maxRowsBytes {
			return a, fmt.Errorf("%w: its rows have more than %d MiB; give it a LIMIT", ErrQuery, maxRowsBytes>>20)
		}
		a.Rows = append(a.Rows, row)
	}
	if err := rows.Err(); err != nil {
		return a, queryError(ctx, err)
	}
	return a, nil
}

// queryError explains why a query failed.
func queryError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return err
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY:
		return fmt.Errorf("%w: it may only read the tables; write SELECT", ErrQuery)
	case sqlite3.SQLITE_TOOBIG:
		return fmt.Errorf("%w: a value has more than %d MiB", ErrQuery, maxValue>>20)
	case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE:
		text := strings.TrimPrefix(e.Error(), "SQL logic error: ")
		return fmt.Errorf("%w: %s", ErrQuery, strings.TrimSuffix(text, " (1)"))
	}
	return err
}
