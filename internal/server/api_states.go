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
)

// statePause is how long a state that was sent is not sent again, however often it
// changes.
const statePause = 100 * time.Millisecond

// states are what the stream of the whole gateway shows, by the name of the event,
// made when somebody looks and something has changed. All who follow it share them.
type states struct {
	birth string // tells the revisions of this run from another's
	names []string
	make  map[string]func() any

	mu       sync.Mutex
	revision uint64 // of the newest change
	last     map[string]*stateNow
}

// stateNow is a state as it was last made.
type stateNow struct {
	data     json.RawMessage
	revision uint64 // since when it is so
	change   uint64 // the gateway's change that it was made after
	at       time.Time
}

func newStates(make map[string]func() any) *states {
	return &states{birth: strconv.FormatInt(time.Now().UnixMicro(), 36), names: slices.Sorted(maps.Keys(make)), make: make, last: map[string]*stateNow{}}
}

// look returns the states of these names that changed after a revision, in the
// order of their changes. It makes those anew that are older than the gateway's
// present change, but none that was made a moment ago: again says to look again
// soon.
func (x *states) look(names []string, after, change uint64) (news []stateNews, again bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, name := range names {
		now := x.last[name]
		switch {
		case now != nil && now.change >= change:
		case now != nil && time.Since(now.at) < statePause:
			again = true
		default:
			now = x.renew(name, change)
		}
		if now.revision > after {
			news = append(news, stateNews{name, *now})
		}
	}
	slices.SortFunc(news, func(a, b stateNews) int { return cmp.Compare(a.revision, b.revision) })
	return news, again
}

// renew needs mu held.
func (x *states) renew(name string, change uint64) *stateNow {
	now := x.last[name]
	if now == nil {
		now = &stateNow{}
		x.last[name] = now
	}
	var b bytes.Buffer
	if err := apiEncode(&b, x.make[name]()); err == nil && !bytes.Equal(now.data, b.Bytes()) {
		x.revision++
		now.data, now.revision = b.Bytes(), x.revision
	}
	now.change, now.at = change, time.Now()
	return now
}

// stateNews is a state that a reader does not have yet.
type stateNews struct {
	name string
	stateNow
}

// had is the revision that a reader has, by the id of its last event.
func (x *states) had(id string) uint64 {
	birth, number, _ := strings.Cut(id, ".")
	n, err := strconv.ParseUint(number, 10, 64)
	x.mu.Lock()
	defer x.mu.Unlock()
	if birth != x.birth || err != nil || n > x.revision {
		return 0
	}
	return n
}

// lookedAt notes that somebody looks at the gateway, and has what changes without
// its knowledge, faults of files say, looked at too.
func (a *api) lookedAt() {
	a.server.recordActivity()
	a.gateway.Touch()
}

// follow answers GET /events: the states of the gateway, each at once and again
// when it has changed.
func (a *api) follow(w http.ResponseWriter, r *http.Request) error {
	q, err := apiParams(r, "name")
	if err != nil {
		return err
	}
	names := slices.Compact(slices.Sorted(slices.Values(q["name"])))
	for _, name := range names {
		if !slices.Contains(a.states.names, name) {
			return apiFault("name", "%q is not one of %s", name, apiNames(a.states.names))
		}
	}
	if len(names) == 0 {
		names = a.states.names
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(a.server.serving, cancel)()
	defer a.gateway.Watch()()
	had := a.states.had(lastEventID(r))
	e := newSSE(w, r)
	defer e.clearDeadline()
	for e.err == nil && ctx.Err() == nil {
		change := a.gateway.Changes()
		news, again := a.states.look(names, had, change)
		for _, n := range news {
			had = n.revision
			e.add(n.name, fmt.Sprintf("%s.%d", a.states.birth, had), n.data)
		}
		e.send()
		pause := time.NewTimer(statePause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		}
		if again {
			continue
		}
		if err := e.waitWithKeepAlive(ctx, a.lookedAt, func(ctx context.Context) error { return a.gateway.WaitChange(ctx, change) }); err != nil {
			return nil
		}
	}
	return nil
}
