package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// What happens in a session comes in the order in which it happened, from where
// the reader wants it, and ends with it.
func TestSessionEvents(t *testing.T) {
	f := eventsFixture{newRESTFixture(t)}
	s := f.session("s")
	addNote(s, "before")
	now, all, some := f.listen("/sessions/s/events", ""),
		f.listen("/sessions/s/events?last=100", ""), f.listen(
			"/sessions/s/events?last=1",
			"",
		)
	addDelta(s, "one")
	pushText(t, s, "two")
	addNote(s, "three")
	addDelta(s, "four")
	if err := s.Stop(t.Context(), "enough"); err != nil {
		t.Fatal(err)
	}
	want := []string{"timeline session started", "timeline before", "live one", "stream two",
		"timeline three", "live four", "timeline session is ending: enough", "ended "}
	for name, tc := range map[string]struct {
		l    *reader
		want []string
	}{"from now": {now, want[2:]}, "from the beginning": {all, want},
		"from the last": {some, want[1:]}} {
		if got := eventTexts(t, tc.l.until(adminapi.EventEnded)); !slices.Equal(got, tc.want) {
			t.Errorf("%s:\n got %q\nwant %q", name, got, tc.want)
		}
		if _, err := tc.l.events.next(); !errors.Is(err, io.EOF) {
			t.Errorf("%s: after the end: %v, want %v", name, err, io.EOF)
		}
	}
}

// A reader that is cut off at any byte goes on without loss and without doubles.
func TestSessionEventsResume(t *testing.T) {
	f := eventsFixture{newRESTFixture(t)}
	s := f.session("s")
	addNote(s, "one")
	addDelta(s, "two\n\ndata: no")
	pushText(t, s, "three")
	addDelta(s, "four")
	addNote(s, "five")
	l := f.listen("/sessions/s/events?last=100", "")
	var raw strings.Builder
	l.events = newEvents(io.TeeReader(l.body, &raw))
	var all []event
	for len(all) < 6 {
		all = append(all, l.next())
	}
	whole := raw.String()
	l.stop()
	for cut := range len(whole) + 1 {
		var had []event
		last := ""
		for before := newEvents(strings.NewReader(whole[:cut])); ; {
			e, err := before.next()
			if err != nil {
				break
			}
			had, last = append(had, e), e.id
		}
		path := "/sessions/s/events?last=100"
		again := f.listen(path, last)
		for len(had) < len(all) {
			had = append(had, again.next())
		}
		again.stop()
		if !slices.Equal(had, all) {
			t.Fatalf("cut after %d bytes:\n got %v\nwant %v", cut, had, all)
		}
	}
}

// A reader that is cut off while its session ends has the rest when it comes back
// within a minute, and nobody else has.
func TestSessionEventsEndedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := eventsFixture{newRESTBubble(t)}
		s := f.session("s")
		l := f.listen("/sessions/s/events", "")
		addDelta(s, "one")
		id := l.next().id
		l.stop()
		synctest.Wait()
		addDelta(s, "two")
		if err := s.Stop(t.Context(), "enough"); err != nil {
			t.Fatal(err)
		}
		want := []string{"live two", "timeline session is ending: enough", "ended "}
		for range 2 {
			l = f.listen("/sessions/s/events", id)
			if got := eventTexts(t, l.until(adminapi.EventEnded)); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		status := func(id string) int {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
				f.url+"/api/v1/sessions/s/events", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header = http.Header{"Authorization": {"Bearer " + f.gateway.AdminToken()},
				"Last-Event-Id": {id}}
			response, err := f.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			return response.StatusCode
		}
		// behind the end there is nothing
		for _, other := range []string{"", "x", "0.1.1.0", l.last} {
			if got := status(other); got != http.StatusNotFound {
				t.Errorf("behind %q: %d, want %v", other, got, http.StatusNotFound)
			}
		}
		f.session("s") // another one
		l = f.listen("/sessions/s/events", id)
		if got := eventTexts(t, l.until(adminapi.EventEnded)); !slices.Equal(got, want) {
			t.Errorf("beside another session of the id: got %q, want %q", got, want)
		}
		wait(resumableTime)
		synctest.Wait()
		l = f.listen("/sessions/s/events", id)
		if got, want := eventTexts(t, []event{l.next(), l.next()}), []string{"gap {}",
			"timeline session started"}; !slices.Equal(
			got,
			want,
		) {
			t.Errorf("after a minute: got %q, want %q", got, want)
		}
		l.stop()
	})
}

// What a reader missed and nobody has any more is counted; an id of another
// session, or none at all, begins with what there is.
func TestSessionEventsGap(t *testing.T) {
	f := eventsFixture{newRESTFixture(t)}
	s := f.session("s")
	l := f.listen("/sessions/s/events", "")
	addDelta(s, "first")
	id := l.next().id
	l.stop()
	for i := range 20_500 {
		addNote(s, fmt.Sprint(i))
	}
	addDelta(s, "last")
	l = f.listen("/sessions/s/events", id)
	texts := eventTexts(t, []event{l.next(), l.next()})
	if want := []string{`gap {"timeline":500}`, "timeline 500"}; !slices.Equal(texts, want) {
		t.Errorf("got %q, want %q", texts, want)
	}
	list := l.until(adminapi.EventLive)
	if got := eventTexts(t, list[len(list)-1:]); len(list) != 20_000 || got[0] != "live last" {
		t.Errorf(`%d events, the last is %q, want 20000 and "live last"`, len(list), got)
	}
	l.stop()

	f.session("other")
	for _, id := range []string{id, "x", "0.0.0.0", "....", id + ".1", strings.Repeat("9", 1000),
		"é \"",
		id[:strings.Index(id, ".")] + ".99999999999.1.1", id[:strings.Index(id, ".")] + ".-1.1.1"} {
		l := f.listen("/sessions/other/events", id)
		if got, want := eventTexts(t, []event{l.next(), l.next()}), []string{"gap {}",
			"timeline session started"}; !slices.Equal(
			got,
			want,
		) {
			t.Errorf("behind %q: got %q, want %q", id, got, want)
		}
		l.stop()
	}
}

// All readers see one order, whoever does things at the same time, and all of each
// kind in its own.
func TestSessionEventsOrder(t *testing.T) {
	f := eventsFixture{newRESTFixture(t)}
	s := f.session("s")
	const each = 300
	var readers []*reader
	for range 4 {
		readers = append(readers, f.listen("/sessions/s/events", ""))
	}
	var doing sync.WaitGroup
	for _, do := range []func(i int){
		func(i int) { addNote(s, fmt.Sprint(i)) },
		func(i int) { addDelta(s, fmt.Sprint(i)) },
		func(i int) { pushText(t, s, fmt.Sprint(i)) },
	} {
		doing.Go(func() {
			for i := range each {
				do(i)
			}
		})
	}
	doing.Wait()
	var first []string
	for i, l := range readers {
		var list []event
		for len(list) < 3*each {
			list = append(list, l.next())
		}
		texts := eventTexts(t, list)
		if i == 0 {
			first = texts
		} else if !slices.Equal(texts, first) {
			t.Errorf("reader %d: got another order than the first reader, want the same", i)
		}
		seen := map[string]int{}
		for _, text := range texts {
			name, number, _ := strings.Cut(text, " ")
			if number != fmt.Sprint(seen[name]) {
				t.Fatalf("reader %d: %s comes after %d of its kind, want its next", i, text,
					seen[name])
			}
			seen[name]++
		}
	}
}

// On a busy session 50 readers and 20 long polls get everything in order, while
// one who does not read and one who comes back again and again harm nobody.
func TestSessionEventsMany(t *testing.T) {
	f := eventsFixture{newRESTFixture(t)}
	s := f.session("s")
	readers, polls, deltas := 50, 20, 500
	if testing.Short() {
		readers, polls, deltas = 10, 5, 100
	}
	stalled := f.listen("/sessions/s/events", "")
	var list []*reader
	for range readers {
		list = append(list, f.listen("/sessions/s/events", ""))
	}
	var all sync.WaitGroup
	for i, l := range list {
		all.Go(func() {
			for n := range deltas {
				e, err := l.events.next()
				if want := fmt.Sprintf(`"delta":"%d"`, n); err != nil ||
					!strings.Contains(e.data, want) {
					t.Errorf("reader %d: event %d is %+v, %v, want no error and %q in it", i, n, e,
						err, want)
					return
				}
			}
		})
	}
	all.Go(func() { // comes back
		last := ""
		for n := 0; n < deltas; {
			l := f.listen("/sessions/s/events?last=100000", last)
			for range min(40, deltas-n) {
				e, err := l.events.next()
				if e.name == adminapi.EventTimeline {
					last = e.id
					continue
				}
				if want := fmt.Sprintf(`"delta":"%d"`, n); err != nil ||
					!strings.Contains(e.data, want) {
					t.Errorf(
						"the one who comes back: event %d is %+v, %v, want no error and %q in it",
						n, e, err, want)
					l.stop()
					return
				}
				last = e.id
				n++
			}
			l.stop()
		}
	})
	var mu sync.Mutex
	polled := map[string]int{}
	done, finish := context.WithCancel(t.Context())
	defer finish()
	s.Responses(true)
	for range polls {
		all.Go(func() {
			for {
				answer, err := f.tryWithin(done, http.MethodPost, "copilot/session/s/live", "")
				if done.Err() != nil {
					return // all have been told, this one waits for more
				}
				if err != nil {
					t.Error(err)
					return
				}
				var r struct{ Delta, Error string }
				if err := json.Unmarshal([]byte(answer), &r); err != nil {
					t.Error(err)
					return
				}
				if r.Error == "" {
					mu.Lock()
					if polled[r.Delta]++; len(polled) == deltas && polled[r.Delta] == 1 {
						finish()
					}
					mu.Unlock()
				}
			}
		})
	}
	for n := range deltas {
		addDelta(s, fmt.Sprint(n))
	}
	all.Wait()
	for n := range deltas {
		if got := polled[fmt.Sprint(n)]; got != 1 {
			t.Fatalf("delta %d was polled %d times, want 1", n, got)
		}
	}
	stalled.stop()
}

// Readers that do not read take no memory that grows with what happens.
func TestSessionEventsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := eventsFixture{newRESTBubble(t)}
		s := f.session("s")
		for range 50 {
			f.listen("/sessions/s/events", "")
		}
		text := strings.Repeat("x", 16<<10)
		used := func() int64 {
			synctest.Wait() // until all readers wait for theirs to read
			var m runtime.MemStats
			runtime.GC()
			runtime.GC()
			runtime.ReadMemStats(&m)
			return int64(m.HeapAlloc)
		}
		before := used()
		for n := range 4_000 { // 64 MB, of which 8 are kept
			addDelta(s, text+fmt.Sprint(n))
		}
		if grown := used() - before; grown > 32<<20 {
			t.Errorf("got %d MiB more in use, want a few", grown>>20)
		} else {
			t.Logf("%d KiB more are in use", grown>>10)
		}
	})
}

// A stream without news says that it lives, and one whose reader takes nothing
// ends after a while, whether or not there is news.
func TestEventsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := eventsFixture{newRESTBubble(t)}
		s := f.session("s")
		for _, path := range []string{"/sessions/s/events", "/events?name=sessions"} {
			l := f.listen(path, "")
			if path != "/sessions/s/events" {
				l.next()
			}
			begun := time.Now()
			for n := range 3 {
				for {
					line, err := l.lines.ReadString('\n')
					if err != nil {
						t.Fatal(err)
					}
					if line == ":\n" {
						break
					}
				}
				if at := time.Since(begun).Round(time.Second); at != time.Duration(n+
					1)*sseKeepAlive {
					t.Errorf("%s: comment %d comes after %s, want %s", path, n+1, at,
						time.Duration(n+1)*sseKeepAlive)
				}
			}
			l.stop()
		}

		// A pipe takes nothing that is not read.
		used := f.server.LastActivity()
		stalled := f.listen("/sessions/s/events", "")
		quick := f.listen("/sessions/s/events", "")
		for range 3 {
			addDelta(s, strings.Repeat("x", 1<<20))
			quick.next()
		}
		wait(2 * writeDeadline)
		addDelta(s, "still")
		if e := quick.next(); !strings.Contains(e.data, "still") {
			t.Errorf(`the one who reads got %.100v, want "still" in it`, e)
		}
		if _, err := io.Copy(io.Discard, stalled.body); err == nil {
			t.Error("the one who did not read is still served, want an end of its stream")
		}
		if now := f.server.LastActivity(); !now.After(used) {
			t.Errorf("the gateway counts as unused since %s, want a later time", now)
		}
	})
}

// FuzzPlace: an id is read as it was written, and of whatever else comes as one
// nothing breaks.
func FuzzPlace(f *testing.F) {
	f.Add("b.1.2.3.4.5", uint64(1), uint64(2), uint64(3), uint64(4), uint64(5))
	f.Add("b.1.2", uint64(0), uint64(1<<64-1), uint64(7), uint64(7), uint64(0))
	f.Add("b.+1.0x2.3.4.5.", uint64(9), uint64(9), uint64(9), uint64(1), uint64(1<<64-1))
	f.Fuzz(func(t *testing.T, id string, lines, live, rows, things, order uint64) {
		at := gateway.Place{Timeline: lines, Live: live, Stream: rows, Things: things,
			Number: order}
		if got, ok := parsePlace(placeID("b", at), "b"); !ok || got != at {
			t.Errorf("%v is read as %v %v, want the same and true", at, got, ok)
		}
		if got, ok := parsePlace(id, "b"); ok && !strings.HasPrefix(id, "b.") || !ok &&
			got != (gateway.Place{}) {
			t.Errorf("%q is read as %v %v, want the start, or true for an id of b", id, got, ok)
		}
	})
}
