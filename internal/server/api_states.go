package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tapgw/internal/chans"
)

// statePause is how long after a state was sent it is not sent again, however often it
// changes.
const statePause = 100 * time.Millisecond

// states are the states that GET /events shows, by the name of the event. A state is made when a
// reader asks and the gateway has changed since it was last made. All readers share it.
type states struct {
	birth string // part of each event's id; differs between runs of the gateway
	names []string
	build map[string]func() any

	mu       sync.Mutex // guards the fields below
	revision uint64     // of the newest change
	last     map[string]*state
}

// state is one state as it was last made.
type state struct {
	name     string
	data     json.RawMessage
	revision uint64 // since which the data is the same
	change   uint64 // the gateway's change that it was made after
	at       time.Time
}

func newStates(build map[string]func() any) *states {
	return &states{
		birth: strconv.FormatInt(time.Now().UnixMicro(), 36),
		names: slices.Sorted(maps.Keys(build)), build: build, last: map[string]*state{},
	}
}

// changedSince returns those of the named states that changed after a revision, in the order
// of their changes. It makes a state anew that is older than the gateway's present change. A
// state that was made less than statePause ago stays: isStale says to ask again soon.
func (s *states) changedSince(
	names []string, after, change uint64,
) (changed []state, isStale bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		now := s.last[name]
		switch {
		case now != nil && now.change >= change:
		case now != nil && time.Since(now.at) < statePause:
			isStale = true
		default:
			now = s.renew(name, change)
		}
		if now.revision > after {
			changed = append(changed, *now)
		}
	}
	slices.SortFunc(changed, func(a, b state) int { return cmp.Compare(a.revision, b.revision) })
	return changed, isStale
}

// renew makes a state anew. Call with mu held.
func (s *states) renew(name string, change uint64) *state {
	now := s.last[name]
	if now == nil {
		now = &state{name: name}
		s.last[name] = now
	}
	var b bytes.Buffer
	if err := encodeJSON(&b, s.build[name]()); err == nil && !bytes.Equal(now.data, b.Bytes()) {
		s.revision++
		now.data, now.revision = b.Bytes(), s.revision
	}
	now.change, now.at = change, time.Now()
	return now
}

// revisionOf returns the revision that a reader has, by the id of its last event; 0 if the
// event is not of this run.
func (s *states) revisionOf(eventID string) uint64 {
	birth, number, _ := strings.Cut(eventID, ".")
	n, err := strconv.ParseUint(number, 10, 64)
	s.mu.Lock()
	defer s.mu.Unlock()
	if birth != s.birth || err != nil || n > s.revision {
		return 0
	}
	return n
}

// touch notes that a reader watches the gateway. The states are made again, since some change
// without a notice to the gateway: faults of files, for example.
func (a *api) touch() {
	a.server.recordActivity()
	a.gateway.Touch()
}

// stateEvents answers GET /events: the states of the gateway, each at once and again when it
// has changed.
func (a *api) stateEvents(w http.ResponseWriter, r *http.Request) error {
	return a.sendStates(w, r, "")
}

// sendStates sends states until the reader disconnects: those that the request names, else all, but
// not the hidden one.
func (a *api) sendStates(w http.ResponseWriter, r *http.Request, hidden string) error {
	q, err := readParams(r, "name")
	if err != nil {
		return err
	}
	names := slices.Compact(slices.Sorted(slices.Values(q["name"])))
	for _, name := range names {
		if !slices.Contains(a.states.names, name) {
			return fieldError("name", "%q is not one of %s", name, joinNames(a.states.names))
		}
	}
	if len(names) == 0 {
		names = slices.Clone(a.states.names)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == hidden })
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.server.serving, cancel)()
	defer a.gateway.Watch()()
	revision := a.states.revisionOf(lastEventID(r))
	e := newSSE(w, r)
	defer e.clearDeadline()
	for e.err == nil && ctx.Err() == nil {
		change := a.gateway.Changes()
		changed, isStale := a.states.changedSince(names, revision, change)
		for _, s := range changed {
			revision = s.revision
			e.add(s.name, fmt.Sprintf("%s.%d", a.states.birth, revision), s.data)
		}
		e.send()
		_ = chans.Sleep(ctx, statePause)
		if isStale {
			continue
		}
		wait := func(ctx context.Context) error { return a.gateway.WaitChange(ctx, change) }
		if err := e.waitWithKeepAlive(ctx, a.touch, wait); err != nil {
			return nil
		}
	}
	return nil
}
