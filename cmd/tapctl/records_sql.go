package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/records/recordsql"
	"tapgw/internal/statedir"
	"tapgw/internal/visible"
)

// tapctl records sql, which asks the records with SQL.

// Limits of a query, unless flags say otherwise.
const (
	sqlTimeout = 30 * time.Second // reading new records is not part of it
	sqlRows    = 10_000
)

// maxCell is how much of a value a table shows, in characters.
const maxCell = 100

func recordsSQLCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "sql",
		Usage:     "ask the records a question in SQL",
		ArgsUsage: "QUERY",
		Description: `It copies the records that are new into a database beside them, and answers one query, in
the SQL of SQLite, that reads. The table records has a column for each member of a record;
sessions, turns, calls, gates, pushes, runs, goals and webhooks have the records of one
kind. Write "by" in double quotes. docs/records.md lists the columns. It reads the files of this
machine, so no gateway needs to run.

A query ends after 30s, or --timeout; reading new records does not count. A value has at
most 16 MiB, and a table shows 100 characters of one.

Examples:
  tapctl records sql 'SELECT tool, count(*), max(durationMs) FROM calls GROUP BY tool'
  tapctl records sql "SELECT ts, command FROM calls WHERE exitCode <> 0 AND ts > strftime('%FT%T', 'now', '-1 day')"
  tapctl records sql 'SELECT * FROM pushes' --csv > pushes.csv`,
		Flags: []ucli.Flag{
			&ucli.IntFlag{Name: "rows", Usage: "fail if there are more than `N` rows",
				Value: sqlRows},
			&ucli.BoolFlag{Name: "csv", Usage: "print CSV with a line of headings"},
		},
		Action: longAction(1, askRecords),
	}
}

func askRecords(c *command) error {
	query := c.Args().First()
	rows := c.Int("rows")
	switch {
	case strings.TrimSpace(query) == "":
		return cli.Usage("records sql: needs a query, such as 'SELECT * FROM calls LIMIT 10'")
	case rows < 1 || rows > recordsql.MaxRows:
		return cli.Usage("flag --rows: must be from 1 to %d", recordsql.MaxRows)
	case c.out.JSON && c.Bool("csv"):
		return cli.Usage("records sql: --json and --csv exclude each other")
	case c.IsSet("url"):
		return cli.Usage("records sql: reads the files of this machine's gateway; leave out --url")
	}
	if flags := c.Lineage()[1].LocalFlagNames(); len(flags) > 0 {
		return cli.Usage("records sql: takes no --%s; write it into the query", flags[0])
	}
	home, err := statedir.Home()
	if err != nil {
		return err
	}
	answer, err := c.askSQL(filepath.Join(statedir.Of(home), statedir.RecordsDir), query, rows)
	if errors.Is(err, recordsql.ErrQuery) {
		return &cli.Error{Exit: cli.ExitUsage, Code: cli.CodeUsage,
			Message: "records sql: " + err.Error(), Err: err}
	}
	if err != nil {
		return err
	}
	switch {
	case c.out.JSON:
		return c.printSQLObjects(answer)
	case c.Bool("csv"):
		return c.printCSV(answer)
	}
	t := &cli.Table{Columns: answer.Columns}
	for i, name := range t.Columns {
		t.Columns[i] = cli.OneLine(name)
	}
	for _, row := range answer.Rows {
		cells := make([]any, len(row))
		for i, v := range row {
			cells[i] = cli.Shorten(cli.OneLine(sqlText(v)), maxCell)
		}
		t.Row(cells...)
	}
	return c.out.Table(t, "no rows")
}

// askSQL brings the database up to date and asks it.
func (c *command) askSQL(dir, query string, rows int) (a recordsql.Answer, err error) {
	o := recordsql.Options{Dir: dir, Note: func(line string) { c.out.Notef("tapctl: %s", line) }}
	showsProgress := cli.Foreground(c.out.Err) && !c.out.JSON
	begun, shown := time.Now(), false
	if showsProgress {
		o.Progress = func(done, total int64) {
			if time.Since(begun) > time.Second {
				shown = true
				_, _ = fmt.Fprintf(c.out.Err, "\rreading new records: %d of %d MiB", done>>20,
					total>>20)
			}
		}
	}
	cache, err := recordsql.Open(c.ctx, o)
	if shown {
		_, _ = fmt.Fprint(c.out.Err, "\r\x1b[K")
	}
	if ctxErr := c.ctx.Err(); err != nil && ctxErr != nil {
		return a, fmt.Errorf("records sql: reading new records: %w", ctxErr)
	}
	if err != nil {
		return a, err
	}
	defer func() { err = errors.Join(err, cache.Close()) }()
	if n := cache.Unreadable; n > 0 {
		c.out.Notef(
			"tapctl: %s in %s %s none of a record",
			visible.Count(n, "line"),
			filepath.Clean(dir),
			visible.IsAre(n),
		)
	}
	ctx := c.ctx
	if !c.IsSet("timeout") {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, sqlTimeout)
		defer cancel()
	}
	a, err = cache.Query(ctx, query, rows)
	if ctxErr := ctx.Err(); err != nil && ctxErr != nil {
		err = fmt.Errorf("records sql: answering the query: %w", ctxErr)
	}
	return a, err
}

// sqlText returns a value as text for people; "" for NULL.
func sqlText(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// printSQLObjects prints an object for each row, with a member for each column.
func (c *command) printSQLObjects(a recordsql.Answer) error {
	seen := map[string]bool{}
	for _, name := range a.Columns {
		if seen[name] {
			return cli.Usage(
				"records sql: two columns are called %q; name them with AS, or leave out --json",
				name)
		}
		seen[name] = true
	}
	objects := make([]map[string]any, len(a.Rows))
	for i, row := range a.Rows {
		objects[i] = make(map[string]any, len(row))
		for j, v := range row {
			objects[i][a.Columns[j]] = v
		}
	}
	return c.out.Document(objects)
}

func (c *command) printCSV(a recordsql.Answer) error {
	var b strings.Builder
	w := csv.NewWriter(&b)
	lines := [][]string{a.Columns}
	for _, row := range a.Rows {
		cells := make([]string, len(row))
		for i, v := range row {
			cells[i] = sqlText(v)
		}
		lines = append(lines, cells)
	}
	for _, cells := range lines {
		for i, text := range cells { // Printf lets our own colours through
			cells[i] = visible.Controls(text)
		}
		if err := w.Write(cells); err != nil {
			return err
		}
	}
	w.Flush()
	return errors.Join(w.Error(), c.out.Printf("%s", b.String()))
}
