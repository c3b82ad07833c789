package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/records"
)

// manyRecords is how many records the queries go through.
const manyRecords = 1_000_000

// recorded measures what records cost a call, and how long queries of many take.
func recorded(ctx context.Context, o options, r *report) error {
	dir, err := os.MkdirTemp("", "bench-records-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := recordCalls(ctx, o, r, filepath.Join(dir, "calls")); err != nil {
		return err
	}
	return queryRecords(ctx, o, r, filepath.Join(dir, "many"))
}

func recordCalls(ctx context.Context, o options, r *report, dir string) error {
	r.title(fmt.Sprintf("Records, a call in process, %d rounds in turn, medians", o.rounds),
		"metric\twithout\twith\tdifference\ttarget\t")
	log := records.New(records.Options{Dir: dir, MaxBytes: 256 << 20})
	var both [2]*local
	for i, recorder := range []gateway.Recorder{nil, log} {
		l, err := newLocal(gateway.Options{Recorder: recorder})
		if err != nil {
			return err
		}
		defer l.close()
		if _, err := l.join(&provider{name: "tool", tools: 1}, 0); err != nil {
			return err
		}
		both[i] = l
	}
	var p50, cpu series
	const calls = 2000
	for round := range o.rounds + 1 {
		var took, ran [2]float64
		for turn := range both {
			i := (turn + round) % 2
			before := ownCPU()
			l := load(1, calls, 1, func(k int) error { return callDirectly(ctx, both[i].s, k) })
			if l.Error != "" {
				return errors.New(l.Error)
			}
			took[i], ran[i] = micros(l.P50), micros(int64(ownCPU()-before))/calls
		}
		if round > 0 { // the first warms up
			p50.add(took[0], took[1])
			cpu.add(ran[0], ran[1])
		}
	}
	for _, m := range []struct {
		name string
		s    series
		max  float64
	}{{"p50 of a call, us", p50, 5}, {"CPU of a call and of writing its record, us", cpu, 0}} {
		without, with := median(m.s.floor), median(m.s.ours)
		a, b := fmt.Sprintf("%.1f", without), fmt.Sprintf("%.1f", with)
		if m.max > 0 {
			r.row(m.name, a, b, with-without, m.max, false)
		} else {
			r.inform(m.name, a, b, with-without)
		}
	}
	if fault := log.Faults(); fault != "" {
		return errors.New(fault)
	}
	return log.Close()
}

func queryRecords(ctx context.Context, o options, r *report, dir string) error {
	r.title(
		fmt.Sprintf("Queries of %d records, %d rounds, medians", manyRecords, o.rounds),
		"metric\t\tms\tms\ttarget\t",
	)
	log := records.New(records.Options{Dir: dir, MaxBytes: 1 << 40})
	begin := time.Now().Add(-manyRecords * time.Second)
	session := func(i int) string { return fmt.Sprintf("0190a0e2-0000-7000-8000-%012d", i%1000) }
	for i := range manyRecords {
		log.Record(adminapi.Record{
			TS: begin.Add(
				time.Duration(i) * time.Second,
			), Kind: adminapi.RecordCall, Session: session(i), Provider: "ci",
			ID: fmt.Sprintf(
				"0190a0e2-0000-7000-9000-%012d",
				i,
			), Tool: "build", Outcome: adminapi.OutcomeOK, DurationMs: 1.234,
		})
		if i%1000 == 0 {
			log.Flush(ctx)
		}
	}
	if err := log.Close(); err != nil {
		return err
	}
	middle := begin.Add(manyRecords / 2 * time.Second)
	for _, q := range []struct {
		name string
		q    records.Query
		want int
	}{
		{"one session of a thousand", records.Query{Session: session(7), Last: 10_000}, 1000},
		{"an hour in the middle", records.Query{
			Since: middle, Until: middle.Add(3599 * time.Second),
			Last: 10_000,
		}, 3600},
		{"both", records.Query{Session: session(7), Since: middle, Last: 10_000}, 500},
		{"the last 100", records.Query{Last: 100}, 100},
	} {
		var took []float64
		var held uint64
		for range min(o.rounds, 11) {
			start := time.Now()
			found, err := records.Find(ctx, dir, q.q)
			if err != nil {
				return err
			}
			if len(found.Records) != q.want {
				return fmt.Errorf("%s: %d records, want %d", q.name, len(found.Records), q.want)
			}
			took = append(took, float64(time.Since(start).Microseconds())/1000)
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		held = m.HeapInuse
		ms := median(took)
		r.row(
			q.name+fmt.Sprintf(" (heap after: %.1f MiB)", float64(held)/(1<<20)),
			"",
			fmt.Sprintf("%.1f", ms),
			ms,
			200,
			false,
		)
	}
	return nil
}
