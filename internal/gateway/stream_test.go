package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// A provider's streams hold 64 MiB in a session, all together. Over that its oldest
// events are dropped, whatever their stream. Other providers' events stay.
func TestStreamBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, s, _ := joined(t)
		keep := func(from, stream, event string) {
			t.Helper()
			if _, err := s.Push(t.Context(), from,
				&protocol.Push{Level: protocol.LevelKeep, Stream: stream,
					Event: event}); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Second / protocol.PushRate) // on the bubble's clock
		}
		of := func(streams ...string) (firsts []string, bytes int) {
			for _, row := range s.History(streams, 0, time.Time{}) {
				firsts = append(firsts, row.Event[:3])
				bytes += len(row.Event)
			}
			return firsts, bytes
		}
		keep("other", "own", "own")
		const each = 1 << 20
		most := protocol.MaxStreamBytes/(each+rowCost) + 1
		pad := strings.Repeat("x", each-3)
		for i := range most - 1 {
			keep("big", []string{"odd", "even"}[i%2], fmt.Sprintf("%03d", i)+pad)
		}
		if firsts, _ := of("odd@big", "even@big"); len(firsts) != most-1 ||
			firsts[len(firsts)-1] != "000" {
			t.Fatalf("%d events are kept, the oldest is %s: want all", len(firsts),
				firsts[len(firsts)-1])
		}
		// One more and the oldest goes, which is in the other stream or in this.
		for i := most - 1; i < most+3; i++ {
			keep("big", "odd", fmt.Sprintf("%03d", i)+pad)
			firsts, bytes := of("odd@big", "even@big")
			if want := fmt.Sprintf("%03d", i-most+2); len(firsts) != most-1 ||
				firsts[len(firsts)-1] != want || bytes > protocol.MaxStreamBytes {
				t.Errorf("%d events of %d bytes are kept, the oldest is %s, want %s", len(firsts),
					bytes, firsts[len(firsts)-1], want)
			}
		}
		if firsts, _ := of("own@other"); len(firsts) != 1 {
			t.Errorf("another provider keeps %d events, want its own", len(firsts))
		}
		// What the ring of 200 drops makes room too.
		for i := range protocol.StreamRetention + 1 {
			keep("big", "odd", fmt.Sprintf("%03d", i))
		}
		if firsts, _ := of("odd@big"); len(firsts) != protocol.StreamRetention {
			t.Errorf("%d small events are kept, want %d", len(firsts), protocol.StreamRetention)
		}
		there := 0
		for key, st := range s.streams.byKey {
			for i := range st.rows {
				if key.provider == "big" {
					there += rowSize(&st.rows[i])
				}
			}
		}
		if s.streams.byOwner["big"].bytes != there {
			t.Errorf("%d bytes are counted, want the %d that are there",
				s.streams.byOwner["big"].bytes, there)
		}
	})
}

// storeEvent stores an event of a provider's stream s.
func storeEvent(s *Session, provider, text string) {
	_, err := s.streams.store("stream", streamKey{"s", provider}, "s",
		HistoryRow{StreamRow: adminapi.StreamRow{Event: text, Level: "keep"}})
	if err != nil {
		panic(err)
	}
}

// All providers' streams hold 256 MiB in a session, however many names there are. Over that the
// provider that has most loses its oldest events. An event of another that has little stays.
func TestSessionBytes(t *testing.T) {
	_, s, _ := joined(t)
	pad := strings.Repeat("x", 1<<20) // the rows share it
	storeEvent(s, "small", "own")
	for i := range 20 {
		for range 30 {
			storeEvent(s, fmt.Sprintf("tap.%02d", i), pad)
		}
	}
	total := 0
	for key, st := range s.streams.byKey {
		size := 0
		for i := range st.rows {
			size += rowSize(&st.rows[i])
		}
		if counted := s.streams.byOwner[key.provider].bytes; size != counted {
			t.Errorf("%d bytes of %s are counted, want the %d that are there", counted, key, size)
		}
		total += size
	}
	if total != s.streams.bytes || total > protocol.MaxSessionBytes ||
		total < protocol.MaxSessionBytes-2<<20 {
		t.Errorf("%d bytes are there and %d counted, want just under %d", total, s.streams.bytes,
			protocol.MaxSessionBytes)
	}
	if rows := s.streams.byKey[streamKey{"s", "small"}].rows; len(rows) != 1 {
		t.Errorf("the provider that has little keeps %d events, want its one", len(rows))
	}
	for key, st := range s.streams.byKey {
		if n := len(st.rows); key.provider != "small" && (n < 11 || n > 30) {
			t.Errorf("%s keeps %d events, want about as many as the others", key, n)
		}
	}
}

// What is dropped frees its memory: a stream of many names has no more room behind its rows than
// rows that grow have.
func TestSessionBytesOfManyNames(t *testing.T) {
	_, s, _ := joined(t)
	pad := strings.Repeat("x", 100<<10) // the rows share it
	for i := range 300 {
		for range protocol.StreamRetention {
			storeEvent(s, fmt.Sprintf("tap.%d", i), pad)
		}
	}
	for key, st := range s.streams.byKey {
		if len(st.rows) == 0 || cap(st.rows) > 3*len(st.rows) {
			t.Errorf("%s keeps %d events in room for %d", key, len(st.rows), cap(st.rows))
		}
	}
}

// An answer holds 4 MiB of text: the newest events of the first streams.
func TestHistoryFits(t *testing.T) {
	g, s, _ := joined(t)
	var answer *protocol.StreamHistory
	c := g.Connect(&listening{hear: func(m protocol.Message) {
		if h, ok := m.(*protocol.StreamHistory); ok {
			answer = h
		}
	}}, ConnOptions{})
	defer c.Closed()
	c.Receive(protocol.Append(nil, &protocol.Auth{Token: g.InstanceToken()}))
	c.Receive(
		protocol.Append(nil, &protocol.Hello{Name: "big", ProtocolVersion: new(protocol.Version),
			Session: s.ID()}),
	)
	for i, stream := range []string{"b", "a", "a", "b", "c"} {
		c.Receive(protocol.Append(nil, &protocol.Push{Level: protocol.LevelKeep, Stream: stream,
			Event: fmt.Sprint(i) + strings.Repeat("x", 3<<19)}))
	}
	for _, tc := range []struct {
		streams []string
		want    string
	}{
		{nil, "a@big 2 1, b@big, c@big"},
		{[]string{"b", "a"}, "a@big, b@big 3 0"},
		{[]string{"c", "b"}, "b@big 3, c@big 4"},
	} {
		c.Receive(protocol.Append(nil, &protocol.StreamQuery{QueryID: "q", Streams: tc.streams}))
		var got []string
		for _, name := range slices.Sorted(maps.Keys(answer.Streams)) {
			for _, e := range answer.Streams[name] {
				name += " " + e.Event[:1]
			}
			got = append(got, name)
		}
		if strings.Join(got, ", ") != tc.want {
			t.Errorf("%v: %s, want %s", tc.streams, strings.Join(got, ", "), tc.want)
		}
	}
}

// What filters drop is remembered with the rule that did it: the newest events, and the beginnings
// of their texts.
func TestDroppedEvents(t *testing.T) {
	_, s, _ := joined(t)
	f, err := compileFilter(&protocol.FilterSet{Rules: []protocol.FilterRule{
		{Match: "^ok", Outcome: protocol.LevelKeep},
		{Match: "noise", Outcome: protocol.OutcomeDrop}}})
	if err != nil {
		t.Fatal(err)
	}
	s.streams.setFilter(streamKey{"builds", "ci"}, "builds", f)
	push := func(text string) {
		t.Helper()
		s.prompts.mu.Lock()
		s.prompts.pushers = map[string]*pusher{} // the rate is not what is tested
		s.prompts.mu.Unlock()
		m := &protocol.Push{Stream: "builds", Level: protocol.LevelKeep, Event: text}
		if _, err := s.Push(t.Context(), "ci", m); err != nil {
			t.Fatal(err)
		}
	}
	push("ok: noise is kept")
	for i := range maxDropped + 5 {
		push(fmt.Sprintf("noise %d %s", i, strings.Repeat("x", 3*maxDroppedText)))
	}
	view := s.Filters()
	if len(view.Filters) != 1 || len(view.Filters[0].Rules) != 2 ||
		view.Filters[0].Rules[1].Match != "noise" {
		t.Errorf("the filters are %+v, want the one of two rules", view.Filters)
	}
	if len(view.Dropped) != maxDropped {
		t.Fatalf("%d dropped events are remembered, want %d", len(view.Dropped), maxDropped)
	}
	for i, e := range view.Dropped {
		if !strings.HasPrefix(e.Event, fmt.Sprintf("noise %d x", maxDropped+4-i)) ||
			len(e.Event) > maxDroppedText+3 || e.Rule != 1 || e.Match != "noise" ||
			e.Stream != "builds" || e.Provider != "ci" {
			t.Fatalf("dropped event %d is %.40q of rule %d, want the newest first, cut, of rule 1",
				i, e.Event, e.Rule)
		}
	}
	if n := len(s.History(nil, 0, time.Time{})); n != 1 {
		t.Errorf("the stream has %d events, want the one that was kept", n)
	}
}
