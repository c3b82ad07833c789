package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tapgw/internal/adminapi"
)

// A trace is shown as a tree: each record below its parent, in the order in which they began. A
// record whose parent is missing is shown too.
func TestPlaceAll(t *testing.T) {
	record := func(kind, span, parent string, end, took int) adminapi.Record {
		return adminapi.Record{Kind: kind, Span: span, Parent: parent, DurationMs: float64(took),
			TS: time.UnixMilli(int64(end))}
	}
	got := ""
	for _, p := range placeAll([]adminapi.Record{ // as they ended
		record("push", "p", "s", 10, 0), record("source", "s", "remote", 20, 15),
		record("push2", "p", "s", 30, 0),
		record("gate", "g", "c", 40, 2), record("call2", "", "t", 45, 1),
		record("call1", "c", "t", 50, 15),
		record("turn", "t", "p", 60, 30), record("alone", "", "", 70, 0),
		record("loop1", "x", "y", 80, 0), record("loop2", "y", "x", 90, 0),
		record("self", "z", "z", 95, 0),
	}) {
		got += fmt.Sprint(strings.Repeat("-", p.depth), p.Kind, " ")
	}
	want := "source -push --turn ---call1 ----gate ---call2 -push2 alone loop1 -loop2 self "
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
