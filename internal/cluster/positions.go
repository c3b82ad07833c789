package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"tapgw/internal/proc"
)

// This file keeps how far each session has got in the kept events of each gateway, also over a
// restart.

// Limits of the places of sessions that are not here. One that comes back after that begins anew.
const (
	maxAway   = 1000
	maxAbsent = 7 * 24 * time.Hour
)

// positions say how far sessions have got in the streams that last of each gateway. They are in a
// file, since sessions come back after the gateway was started again.
type positions struct {
	file   string     // "" if places are not saved
	saving sync.Mutex // held by the goroutine that writes the file; before mu

	mu      sync.Mutex // guards the fields that follow
	origins map[string]*origin
	isDirty bool
}

// origin is the state of the kept events of one gateway. positions.mu guards it.
type origin struct {
	Created time.Time         `json:"created"` // when its stream was made
	Places  map[string]*place `json:"places"`  // by session

	head      uint64 // where a new session begins
	hasLooked bool   // at the stream, in this process
}

// place is how far a session has got.
type place struct {
	// the last event that the session got or that was not for it
	Seq uint64 `json:"seq"`
	// when the session was missed first; zero while it is here
	Left time.Time `json:"left,omitzero"`

	notBefore time.Time // when it may be given the next one, after it had no room for it
	refused   uint64    // events that the session does not take
	// the stream in which it had this place is lost, and its session was not told
	isAnew bool
}

// openPositions reads the file. If the file can't be read, or no gateway wrote it, it returns an
// error and no places.
func openPositions(file string) (*positions, error) {
	p := &positions{file: file, origins: map[string]*origin{}}
	if file == "" {
		return p, nil
	}
	data, err := os.ReadFile(file) //nolint:gosec // the path is the gateway's
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	origins := map[string]*origin{}
	if err == nil {
		err = json.Unmarshal(data, &origins)
	}
	if err != nil {
		return p, fmt.Errorf("reading %s: %w", file, err)
	}
	for name, o := range origins {
		if o != nil && !slices.Contains(slices.Collect(maps.Values(o.Places)), nil) {
			p.origins[name] = o
		}
	}
	return p, nil
}

// origin returns the state of a gateway's kept events, and makes it at first. Call with p.mu held.
func (p *positions) origin(gateway string) *origin {
	o := p.origins[gateway]
	if o == nil {
		o = &origin{}
		p.origins[gateway] = o
	}
	if o.Places == nil {
		o.Places = map[string]*place{}
	}
	return o
}

// save writes the places down if they have changed. Before that it calls flush, which writes the
// records of the events that sessions have at these places. Changes meanwhile wait for the next
// save: their records may not be written.
func (p *positions) save(flush func() error) error {
	p.saving.Lock()
	defer p.saving.Unlock()
	p.mu.Lock()
	if !p.isDirty || p.file == "" {
		p.mu.Unlock()
		return nil
	}
	data, _ := json.Marshal(p.origins, json.Deterministic(true)) // cannot fail
	p.isDirty = false
	p.mu.Unlock()
	err := flush()
	if err == nil {
		err = proc.WritePrivate(p.file, data)
	}
	if err != nil {
		p.mu.Lock()
		p.isDirty = true
		p.mu.Unlock()
	}
	return err
}

// look takes over when JetStream made the stream, and the number of its last event. It reports
// whether that must be saved. Call with positions.mu held.
func (o *origin) look(created time.Time, last uint64) (isChanged bool) {
	isAnew := !o.Created.IsZero() && !o.Created.Equal(created)
	if isAnew { // no session has seen its events
		o.head = 0
		for _, p := range o.Places {
			p.Seq, p.isAnew = 0, true
		}
	}
	// A server that comes back may have lost the last events. Those that it gives these numbers now
	// are new. If the server is only late, sessions know the events by their ids.
	o.head = min(o.head, last)
	for _, p := range o.Places {
		if p.Seq > last {
			p.Seq, isChanged = last, true
		}
	}
	if !o.hasLooked { // sessions that are new to this process begin with the next event
		o.head = last
	}
	isChanged = isChanged || !o.Created.Equal(created)
	o.Created, o.hasLooked = created, true
	return isChanged
}

// lookInVain notes that there is no stream: all that will be in it is new. Call with positions.mu
// held.
func (o *origin) lookInVain() { o.head, o.hasLooked = 0, true }

// arrive gives the sessions that are here a place, and forgets those that have been away for too
// long. A session that comes later gets only events after last. It reports whether there is
// something to save. Call with positions.mu held.
func (o *origin) arrive(here []string, last uint64, now time.Time) (isChanged bool) {
	isHere := map[string]bool{}
	for _, id := range here {
		isHere[id] = true
		p := o.Places[id]
		if p == nil {
			p, isChanged = &place{Seq: o.head}, true
			o.Places[id] = p
		}
		isChanged = isChanged || !p.Left.IsZero()
		p.Left = time.Time{}
	}
	o.head = max(o.head, last)
	var away []string
	for id, p := range o.Places {
		switch {
		case isHere[id]:
			continue
		case p.Left.IsZero(): // also if it was here when the gateway ended, however long that took
			p.Left, isChanged = now, true
		case now.Sub(p.Left) > maxAbsent:
			delete(o.Places, id)
			isChanged = true
			continue
		}
		away = append(away, id)
	}
	if len(away) > maxAway {
		slices.SortFunc(away, func(a, b string) int {
			return o.Places[a].Left.Compare(o.Places[b].Left)
		})
		for _, id := range away[:len(away)-maxAway] {
			delete(o.Places, id)
			isChanged = true
		}
	}
	return isChanged
}
