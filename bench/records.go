package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"tapgw/internal/gateway"
	"tapgw/internal/records"
)

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
	return queryRecords(ctx, o, r)
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
