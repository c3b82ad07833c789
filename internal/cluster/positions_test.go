package cluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Where sessions begin and go on: each step changes the stream, or which sessions are here.
func TestPlaces(t *testing.T) {
	first, second := time.Unix(1, 0), time.Unix(2, 0)
	now := time.Unix(1000, 0)
	for name, test := range map[string]struct {
		steps func(o *origin)
		want  map[string]uint64
	}{
		"a new session begins behind what there is": {func(o *origin) {
			o.look(first, 7)
			o.arrive([]string{"s"}, 7, now)
		}, map[string]uint64{"s": 7}},
		"one that came before an event gets it": {func(o *origin) {
			o.look(first, 7)
			o.arrive(nil, 7, now)
			o.look(first, 8)
			o.arrive([]string{"s"}, 8, now)
			o.arrive([]string{"s", "later"}, 8, now)
		}, map[string]uint64{"s": 7, "later": 8}},
		"a session that was here before goes on": {func(o *origin) {
			o.Created, o.Places = first, map[string]*place{"s": {Seq: 3, Left: now}}
			o.look(first, 7)
			o.arrive([]string{"s", "new"}, 7, now)
		}, map[string]uint64{"s": 3, "new": 7}},
		"a stream that is made later is new to all": {func(o *origin) {
			o.lookInVain()
			o.arrive([]string{"s"}, 0, now)
			o.look(first, 4)
			o.arrive([]string{"s"}, 4, now)
		}, map[string]uint64{"s": 0}},
		"and so is one that is made again": {func(o *origin) {
			o.look(first, 7)
			o.arrive([]string{"s"}, 7, now)
			o.look(second, 2)
			o.arrive([]string{"s", "new"}, 2, now)
		}, map[string]uint64{"s": 0, "new": 0}},
		"who is away for long is forgotten": {func(o *origin) {
			o.look(first, 7)
			o.arrive([]string{"s", "t"}, 7, now)
			o.arrive([]string{"t"}, 7, now)
			o.arrive([]string{"t"}, 7, now.Add(maxAbsent+time.Second))
		}, map[string]uint64{"t": 7}},
		"who was here for long without an event is not": {func(o *origin) {
			o.look(first, 7)
			o.arrive([]string{"s"}, 7, now)
			o.arrive(nil, 9, now.Add(2*maxAbsent))
			o.arrive([]string{"s"}, 9, now.Add(2*maxAbsent+time.Second))
		}, map[string]uint64{"s": 7}},
	} {
		p := &positions{origins: map[string]*origin{}}
		o := p.origin("a")
		test.steps(o)
		got := map[string]uint64{}
		for id, at := range o.Places {
			got[id] = at.Seq
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// The places of a thousand sessions that are away are kept, those that left last.
func TestPlacesAreBounded(t *testing.T) {
	p := &positions{origins: map[string]*origin{}}
	o := p.origin("a")
	now := time.Unix(1000, 0)
	for n := range maxAway + 10 {
		o.Places[strings.Repeat("x", n+1)] = &place{Left: now.Add(time.Duration(n) * time.Second)}
	}
	o.arrive([]string{"x"}, 0, now.Add(time.Hour))
	if got := len(o.Places); got != maxAway+1 {
		t.Errorf("%d places, want %d and that of the session which is here", got, maxAway)
	}
	if o.Places["x"] == nil || o.Places["xx"] != nil {
		t.Error(
			"the place of a session that is here is gone, or one that left before others is left")
	}
}

// A file comes back as it was saved. One that is damaged is an error, and no place.
func TestPositionsFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.json")
	p, err := openPositions(file)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1000, 0).UTC()
	p.origin("a").Places["s"] = &place{Seq: 4, Left: now}
	p.origin("a").Created, p.isDirty = now, true
	// no place is saved before its event's record
	late := func() error { return context.DeadlineExceeded }
	if err := p.save(late); err == nil {
		t.Error("the records were not written, and the places were")
	}
	// Changes while the records are written wait for the next save.
	err = p.save(func() error {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.origin("a").Places["s"].Seq, p.isDirty = 5, true
		return nil
	})
	if err != nil || !p.isDirty {
		t.Fatalf("%v, dirty %v, want that there is more to save", err, p.isDirty)
	}
	again, err := openPositions(file)
	if err != nil || again.origins["a"].Places["s"].Seq != 4 ||
		!again.origins["a"].Created.Equal(now) {
		t.Errorf("%+v, %v, want what was saved", again.origins["a"], err)
	}
	for _, data := range []string{"", "{", "[]", `{"a":{"places":{"s":1}}}`} {
		if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		if p, err := openPositions(file); err == nil || len(p.origins) > 0 {
			t.Errorf("%q: %v and %d places, want an error and none", data, err, len(p.origins))
		}
	}
	if err := os.WriteFile(file, []byte(`{"a":null,"b":{"places":{"s":null}},"c":{}}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	if p, err := openPositions(file); err != nil || len(p.origins) != 1 {
		t.Errorf("%v and %d gateways, want that without nothings", err, len(p.origins))
	}
}
