package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/records"
	"tapgw/internal/records/recordsql"
)

// manyRecords is how many records the queries go through, a second apart, of manySessions sessions
// in turn.
const (
	manyRecords  = 1_000_000
	manySessions = 1000
)

// recordID is that of a session, or of a call.
func recordID(i int) string { return fmt.Sprintf("0190a0e2-0000-7000-8000-%012d", i) }

func writeRecords(b *testing.B, dir string, begin time.Time) {
	b.Helper()
	log := records.New(records.Options{Dir: dir, MaxBytes: 1 << 40})
	for i := range manyRecords {
		log.Record(adminapi.Record{TS: begin.Add(time.Duration(i) * time.Second),
			Kind: adminapi.RecordCall, ID: recordID(i), Session: recordID(i % manySessions),
			Provider: "ci", Tool: "build", Outcome: adminapi.OutcomeOK, DurationMs: 1.234})
		if i%1000 == 0 {
			log.Flush(b.Context())
		}
	}
	if err := log.Close(); err != nil {
		b.Fatal(err)
	}
	if fault := log.Faults(); fault != "" {
		b.Fatal(fault)
	}
}

// BenchmarkQuery is the time of queries of many records: of a gateway, with tapctl records from its
// start to its end, and in SQL. It also measures the memory that the gateway has more after its
// queries.
func BenchmarkQuery(b *testing.B) {
	m := rig{B: b}.gateway("")
	dir := filepath.Join(m.home, "extensions", "tap", "records")
	begin := time.Now().Add(-manyRecords * time.Second)
	writeRecords(b, dir, begin)
	middle := begin.Add(manyRecords / 2 * time.Second)
	ctx, c, tapctl := b.Context(), m.client(), program(b, "tapctl")
	began := time.Now()
	cache, err := recordsql.Open(ctx, recordsql.Options{Dir: dir})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = cache.Close() })
	first := time.Since(began).Seconds()
	b.Run("sql-open", func(b *testing.B) {
		measure(b, func() metrics {
			began := time.Now()
			again, err := recordsql.Open(ctx, recordsql.Options{Dir: dir})
			if err != nil {
				b.Fatal(err)
			}
			took := time.Since(began)
			_ = again.Close()
			return metrics{"ms": ms(took), "first-s": first}
		})
	})
	settle(b)
	_, before := m.memory()
	for _, q := range []struct {
		name string
		q    records.Query
		want int
	}{
		{"session", records.Query{Session: recordID(7)}, manyRecords / manySessions},
		{"hour", records.Query{Since: middle, Until: middle.Add(3599 * time.Second)}, 3600},
		{"both", records.Query{Session: recordID(7), Since: middle},
			manyRecords / manySessions / 2},
		{"last", records.Query{Last: 100}, 100},
	} {
		args, where := []string{"records", "--last", fmt.Sprint(q.want)}, "1"
		if q.q.Session != "" {
			args = append(args, "--session", q.q.Session)
			where += fmt.Sprintf(" AND session = '%s'", q.q.Session)
		}
		for _, bound := range []struct {
			flag, op string
			at       time.Time
		}{{"--since", ">=", q.q.Since}, {"--until", "<=", q.q.Until}} {
			if !bound.at.IsZero() {
				args = append(args, bound.flag, bound.at.Format(time.RFC3339Nano))
				where += fmt.Sprintf(" AND ts %s '%s'", bound.op,
					bound.at.UTC().Format("2006-01-02T15:04:05.000000Z"))
			}
		}
		if q.q.Last == 0 {
			q.q.Last = records.MaxFound
		}
		for how, ask := range map[string]func() (int, error){
			"api": func() (int, error) {
				found, err := c.Records(ctx, q.q)
				return len(found.Records), err
			},
			"tapctl": func() (int, error) { return m.countLines(ctx, tapctl, args) },
			"sql": func() (int, error) {
				query := fmt.Sprintf("SELECT * FROM calls WHERE %s ORDER BY ts DESC LIMIT %d",
					where, q.want)
				a, err := cache.Query(ctx, query, records.MaxFound)
				return len(a.Rows), err
			},
		} {
			b.Run(how+"/"+q.name, func(b *testing.B) {
				measure(b, func() metrics {
					began := time.Now()
					got, err := ask()
					if err != nil || got != q.want {
						b.Fatalf("got %d records and %v, want %d and no error", got, err, q.want)
					}
					return metrics{"ms": ms(time.Since(began))}
				})
			})
		}
	}
	b.Run("memory", func(b *testing.B) {
		settle(b)
		measure(b, func() metrics {
			_, after := m.memory()
			return metrics{"more-MiB": after - before}
		})
	})
}

// countLines runs a command of the gateway's user, and counts the lines of its output below the
// headings.
func (m *middle) countLines(ctx context.Context, program string, args []string) (int, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(append(os.Environ(), m.env...), "TAP_GATEWAY_URL=", "TAP_ADMIN_TOKEN=")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return bytes.Count(out, []byte("\n")) - 1, err
}
