package main

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"time"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// streamFilter is the example of three rules in the documents.
var streamFilter = []map[string]string{
	{"match": "behind=0", "outcome": "drop"},
	{"match": "conflicts=[1-9]", "outcome": "inject"},
	{"match": ".*", "outcome": "keep"},
}

// feeders is the number of providers that share the stream under one name. Each has a budget of ten pushes a
// second, so the measurement stays within the budgets.
const feeders = 1000

// streams measures how many events go into a stream in a second on one core: read from JSON, filtered by the last
// of three rules, counted in the budget, stored.
func streams(ctx context.Context, _ options, r *report) error {
	r.title("Events through a filter of three rules into a stream, in process, medians",
		"metric\t\ttapgw\tof target\tat least\t")
	rate, err := streamRate(ctx, feeders, 9)
	if err != nil {
		return err
	}
	r.row("events a second of CPU (100,000)", "", fmt.Sprintf("%.0f", rate), rate/100000, 1, true)
	return nil
}

func streamRate(ctx context.Context, feeders, rounds int) (perSecond float64, err error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	l, err := newLocal(gateway.Options{})
	if err != nil {
		return 0, err
	}
	defer l.close()
	for range feeders {
		if _, err := l.join(&provider{name: "git-watch"}, 0); err != nil {
			return 0, err
		}
	}
	filter, err := json.Marshal(map[string]any{"type": "filter.set", "requestId": "f", "stream": "git-watch",
		"rules": streamFilter})
	if err != nil {
		return 0, err
	}
	if err := l.peers[0].update(filter); err != nil {
		return 0, err
	}
	frame := []byte(`{"type":"push","stream":"git-watch",` +
		`"event":"main: ahead=2 behind=3 conflicts=0 dirty=1","level":"surface"}`)
	var rates []float64
	stored := l.s.HistoryCursor()
	for round := range rounds {
		if round > 0 {
			select { // until all budgets are whole again
			case <-ctx.Done():
				return 0, ctx.Err()
			case <-time.After(1100 * time.Millisecond):
			}
		}
		before := ownCPU()
		for range protocol.PushRate {
			for _, p := range l.peers {
				p.conn.Receive(frame) // its reader has nothing to read
			}
		}
		rates = append(rates, float64(feeders*protocol.PushRate)/(ownCPU()-before).Seconds())
		if err := l.failed(); err != nil {
			return 0, err
		}
		stored += uint64(feeders * protocol.PushRate)
		if got := l.s.HistoryCursor(); got != stored {
			return 0, fmt.Errorf("%d events are stored, want %d", got, stored)
		}
	}
	return median(rates), nil
}
