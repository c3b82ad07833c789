package main

import (
	"slices"
	"time"

	"tapgw/internal/adminapi"
)

// maxIndent bounds how far a record is indented.
const maxIndent = 12

// placed is a record of a trace, so far below the record that it is part of.
type placed struct {
	adminapi.Record
	depth int
}

// placeAll puts each record of a trace below the record that it is part of, in the order of their
// starts. A record whose parent is missing is at the top.
func placeAll(records []adminapi.Record) []placed {
	records = slices.Clone(records)
	slices.SortStableFunc(records, func(a, b adminapi.Record) int {
		return beginOf(a).Compare(beginOf(b))
	})
	at := map[string]int{} // by span; the first of two records
	for i, r := range slices.Backward(records) {
		at[r.Span] = i
	}
	below := make([][]int, len(records))
	var first []int
	for i, r := range records {
		if above, ok := at[r.Parent]; ok && r.Parent != "" {
			below[above] = append(below[above], i)
		} else {
			first = append(first, i)
		}
	}
	list := make([]placed, 0, len(records))
	isPlaced := make([]bool, len(records))
	var place func(i, depth int)
	place = func(i, depth int) {
		if isPlaced[i] {
			return
		}
		isPlaced[i] = true
		list = append(list, placed{records[i], min(depth, maxIndent)})
		for _, child := range below[i] {
			place(child, depth+1)
		}
	}
	for _, i := range first {
		place(i, 0)
	}
	for i := range records { // cycles of parents, which the gateway never writes
		place(i, 0)
	}
	return list
}

func beginOf(r adminapi.Record) time.Time {
	return r.TS.Add(-time.Duration(r.DurationMs * float64(time.Millisecond)))
}
