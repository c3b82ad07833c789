package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/client"
	"tapgw/internal/records"
	"tapgw/internal/records/recordsql"
)

// manyRecords is how many records the queries go through, a second apart, of manySessions sessions in turn.
const (
	manyRecords  = 1_000_000
	manySessions = 1000
)

// queryRecords measures queries of many records: by a gateway, by tapctl, and in SQL.
func queryRecords(ctx context.Context, o options, r *report) error {
	r.title(fmt.Sprintf("Queries of %d records, %d rounds, medians", manyRecords, min(o.rounds, 11)),
		"metric\t\tms\tms\ttarget\t")
	m, err := startGateway(ctx, o.binary, nil)
	if err != nil {
		return err
	}
	defer m.stop()
	dir := filepath.Join(m.removeHomeDir, "extensions", "tap", "records")
	begin := time.Now().Add(-manyRecords * time.Second)
	if err := writeRecords(ctx, dir, begin); err != nil {
		return err
	}
	middle := begin.Add(manyRecords / 2 * time.Second)
	queries := []recordsQuery{
		{"one session of a thousand", records.Query{Session: recordSession(7)}, manyRecords / manySessions},
		{"an hour in the middle", records.Query{Since: middle, Until: middle.Add(3599 * time.Second)}, 3600},
		{"both", records.Query{Session: recordSession(7), Since: middle}, manyRecords / manySessions / 2},
		{"the last 100", records.Query{Last: 100}, 100},
	}
	if err := queryGateway(ctx, o, r, m, queries); err != nil {
		return err
	}
	if err := queryTapctl(ctx, o, r, m, queries); err != nil {
		return err
	}
	return querySQL(ctx, o, r, dir, queries)
}

type recordsQuery struct {
	name string
	q    records.Query
	want int // records
}

func recordSession(i int) string { return fmt.Sprintf("0190a0e2-0000-7000-8000-%012d", i%manySessions) }

func writeRecords(ctx context.Context, dir string, begin time.Time) error {
	log := records.New(records.Options{Dir: dir, MaxBytes: 1 << 40})
	for i := range manyRecords {
		log.Record(adminapi.Record{TS: begin.Add(time.Duration(i) * time.Second), Kind: adminapi.RecordCall,
			Session: recordSession(
				i,
			), Provider: "ci", ID: fmt.Sprintf("0190a0e2-0000-7000-9000-%012d", i), Tool: "build",
			Outcome: adminapi.OutcomeOK, DurationMs: 1.234})
		if i%1000 == 0 {
			log.Flush(ctx)
		}
	}
	if err := log.Close(); err != nil {
		return err
	}
	if fault := log.Faults(); fault != "" {
		return fmt.Errorf("writing the records: %s", fault)
	}
	return nil
}

// timed measures what is asked, in ms. ask returns how many records it got.
func timed(o options, r *report, name string, want int, ask func() (int, error)) error {
	var took []float64
	for range min(o.rounds, 11) {
		start := time.Now()
		got, err := ask()
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("%s: %d records, want %d", name, got, want)
		}
		took = append(took, float64(time.Since(start).Microseconds())/1000)
	}
	ms := median(took)
	r.row(name, "", fmt.Sprintf("%.1f", ms), ms, 200, false)
	return nil
}

// queryGateway measures GET /api/v1/records, and how much of the gateway's memory the queries keep.
func queryGateway(ctx context.Context, o options, r *report, m *middle, queries []recordsQuery) error {
	c, err := client.New(client.Options{URL: m.url, Token: m.admin})
	if err != nil {
		return err
	}
	defer c.Close()
	if err := waitUntilIdle(ctx); err != nil {
		return err
	}
	before, err := m.memory()
	if err != nil {
		return err
	}
	for _, q := range queries {
		if q.q.Last == 0 {
			q.q.Last = records.MaxFound
		}
		err := timed(o, r, "GET /api/v1/records, "+q.name, q.want, func() (int, error) {
			found, err := c.Records(ctx, q.q)
			return len(found.Records), err
		})
		if err != nil {
			return err
		}
	}
	if err := waitUntilIdle(ctx); err != nil {
		return err
	}
	after, err := m.memory()
	mib := float64(after.anonymous-before.anonymous) / (1 << 20)
	r.row("anonymous memory that the gateway has more then (5 MiB)", "", fmt.Sprintf("%.1f MiB", mib), mib/5, 1, false)
	return err
}

// queryTapctl measures tapctl records, from its start to its end, if it was built beside the gateway.
func queryTapctl(ctx context.Context, o options, r *report, m *middle, queries []recordsQuery) error {
	tapctl := filepath.Join(filepath.Dir(o.binary), "tapctl")
	if _, err := os.Stat(tapctl); err != nil {
		return fmt.Errorf("there is no tapctl beside the gateway: %w", err)
	}
	for _, q := range queries {
		args := []string{"records", "--last", fmt.Sprint(q.want)}
		for _, f := range []struct{ name, value string }{
			{"--session", q.q.Session}, {"--since", timeFlag(q.q.Since)}, {"--until", timeFlag(q.q.Until)},
		} {
			if f.value != "" {
				args = append(args, f.name, f.value)
			}
		}
		err := timed(o, r, "tapctl records, "+q.name, q.want, func() (int, error) {
			cmd := exec.CommandContext(ctx, tapctl, args...) //nolint:gosec // our own program
			cmd.Env = append(os.Environ(), "COPILOT_HOME="+m.removeHomeDir, "TAP_GATEWAY_URL=", "TAP_ADMIN_TOKEN=")
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			lines := -1 // the headings
			for _, b := range out {
				if b == '\n' {
					lines++
				}
			}
			return lines, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func timeFlag(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format(time.RFC3339Nano)
}

// querySQL measures tapctl records sql: reading all records once, and queries after that.
func querySQL(ctx context.Context, o options, r *report, dir string, queries []recordsQuery) error {
	began := time.Now()
	cache, err := recordsql.Open(ctx, recordsql.Options{Dir: dir})
	if err != nil {
		return err
	}
	defer func() { _ = cache.Close() }()
	seconds := time.Since(began).Seconds()
	r.inform("SQL, all records read for the first time, s", "", fmt.Sprintf("%.1f", seconds), seconds)
	err = timed(o, r, "SQL, opened again", 0, func() (int, error) {
		again, err := recordsql.Open(ctx, recordsql.Options{Dir: dir})
		if err != nil {
			return 0, err
		}
		return 0, again.Close()
	})
	if err != nil {
		return err
	}
	for _, q := range queries {
		where := []string{"1"}
		if q.q.Session != "" {
			where = append(where, fmt.Sprintf("session = '%s'", q.q.Session))
		}
		for op, t := range map[string]time.Time{">=": q.q.Since, "<=": q.q.Until} {
			if !t.IsZero() {
				where = append(where, fmt.Sprintf("ts %s '%s'", op, t.UTC().Format("2006-01-02T15:04:05.000000Z")))
			}
		}
		query := fmt.Sprintf("SELECT * FROM calls WHERE %s ORDER BY ts DESC LIMIT %d", strings.Join(where, " AND "),
			q.want)
		err := timed(o, r, "SQL, "+q.name, q.want, func() (int, error) {
			a, err := cache.Query(ctx, query, records.MaxFound)
			return len(a.Rows), err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
