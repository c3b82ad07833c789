package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

const (
	// maxHistory is how far back the history goes, in events of all streams of a gateway.
	maxHistory = 10_000
	// maxHistoryBytes bounds the newest of them that are shown.
	maxHistoryBytes = 16 << 20
	// historyWithin bounds the time that reading takes.
	historyWithin = 10 * time.Second
)

// History returns the events that this gateway and the admitted ones keep, newest first: at most
// last of each stream (0 for all), and only those since a time. Streams are STREAM or
// STREAM@PROVIDER; an empty list means all.
func (c *Cluster) History(
	ctx context.Context, streams []string, last int, since time.Time,
) adminapi.KeptHistory {
	ctx, cancel := context.WithTimeout(ctx, historyWithin)
	defer cancel()
	c.mu.Lock()
	js := c.js
	c.mu.Unlock()
	h := adminapi.KeptHistory{Events: []adminapi.StreamRow{}, Faults: []string{}}
	if js == nil {
		return h
	}
	var mu sync.Mutex // guards h
	var reading sync.WaitGroup
	read := func(name string) {
		f := &follower{c: c, origin: name, js: js}
		rows, err := f.history(ctx, streams, last, since)
		mu.Lock()
		defer mu.Unlock()
		h.Events = append(h.Events, rows...)
		if err != nil {
			h.Faults = append(h.Faults, "gateway "+name+": "+faultText(err))
		}
	}
	if c.o.Keeper != nil {
		reading.Go(func() { read(c.name) })
	}
	for name := range c.trunks {
		reading.Go(func() { read(name) })
	}
	reading.Wait()
	slices.SortStableFunc(h.Events, func(a, b adminapi.StreamRow) int { return b.TS.Compare(a.TS) })
	slices.Sort(h.Faults)
	return h
}

// history reads the events of one gateway, newest first.
func (f *follower) history(
	ctx context.Context, streams []string, last int, since time.Time,
) (rows []adminapi.StreamRow, err error) {
	// a user without the right to ask gets no answer
	within, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	stream, err := f.open(within)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	state := stream.CachedInfo().State
	begin := state.FirstSeq
	if state.LastSeq > begin+maxHistory {
		begin = state.LastSeq - maxHistory
	}
	seen := map[uint64]bool{} // two of streams may name the same
	size, isCut := 0, false
	for _, subject := range f.subjects(streams) {
		for seq := begin; seq <= state.LastSeq; seq++ {
			m, err := stream.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(subject))
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				break
			}
			if err != nil {
				return newest(rows, last), err
			}
			seq = m.Sequence
			if e, _ := f.read(m); e != nil && !seen[seq] && !e.TS.Before(since) {
				seen[seq] = true
				row := adminapi.StreamRow{ID: e.ID, Stream: protocol.NormalName(e.Stream),
					Provider: e.Provider, TS: e.TS, Event: e.Event, Level: e.Level,
					Metadata: []byte(e.Metadata), Prompt: e.Prompt}
				rows = append(rows, row)
				for size += rowBytes(row); size > maxHistoryBytes; rows = rows[1:] {
					size, isCut = size-rowBytes(rows[0]), true
				}
			}
		}
	}
	if isCut {
		err = fmt.Errorf("its events are larger than %d MiB together; name fewer streams",
			maxHistoryBytes>>20)
	}
	return newest(rows, last), err
}

// rowBytes is the size of a row in bytes.
func rowBytes(r adminapi.StreamRow) int {
	return len(r.Event) + len(r.Prompt) + len(r.Metadata) + recordSize
}

// subjects returns the subjects of these streams of the gateway, or of all its streams.
func (f *follower) subjects(streams []string) (list []string) {
	root := keptSubjects(f.origin) + "."
	if len(streams) == 0 {
		return []string{root + ">"}
	}
	for _, s := range streams {
		name, provider, hasProvider := protocol.SplitStream(s)
		token := "*"
		if hasProvider {
			token = subjectToken(protocol.NormalName(provider))
		}
		list = append(list, root+token+"."+subjectToken(protocol.NormalName(name)))
	}
	return list
}

// newest returns at most the last rows of each stream, newest first.
func newest(rows []adminapi.StreamRow, last int) (list []adminapi.StreamRow) {
	slices.SortStableFunc(rows, func(a, b adminapi.StreamRow) int { return a.TS.Compare(b.TS) })
	counts := map[string]int{}
	for _, row := range slices.Backward(rows) {
		name := row.Stream + "@" + row.Provider
		if counts[name]++; last == 0 || counts[name] <= last {
			list = append(list, row)
		}
	}
	return list
}
