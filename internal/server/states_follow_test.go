package server

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// names are those of events, sorted.
func names(list []event) []string {
	var names []string
	for _, e := range list {
		names = append(names, e.name)
	}
	slices.Sort(names)
	return names
}

// The states of the gateway come at once, again when they change, and not more
// often than that; who comes back gets what has changed since.
func TestEventsStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := eventsFixture{newRESTBubble(t)}
		// read takes the events that come without waiting for more.
		read := func(l *reader) (list []event) {
			t.Helper()
			got := make(chan event)
			go func() {
				defer close(got)
				for {
					e, err := l.events.next()
					if err != nil {
						return
					}
					got <- e
				}
			}()
			for {
				select {
				case e, ok := <-got:
					if !ok {
						return list
					}
					list = append(list, e)
				case <-time.After(time.Second):
					l.stop()
					for range got {
						t.Error("an event came late, want none after the list")
					}
					return list
				}
			}
		}
		all := []string{"cluster", "configured", "goals", "pairings", "providers", "questions",
			"queue", "sessions", "sources", "status", "tools"}
		list := read(f.listen("/events", ""))
		if got := names(list); !slices.Equal(got, all) {
			t.Errorf("the states are %q, want %q", got, all)
		}
		last := list[len(list)-1].id
		if list := read(f.listen("/events", last)); len(list) != 0 {
			t.Errorf("nothing has changed, and these came: %v, want none", list)
		}
		s := f.session("s")
		list = read(f.listen("/events", last))
		if got, want := names(list), []string{"sessions", "status"}; !slices.Equal(got, want) ||
			!strings.Contains(fmt.Sprint(list), `"id":"s"`) {
			t.Errorf("after a session came: %v, want %q", list, want)
		}
		for _, id := range []string{"", "x", "0.1", last + "9", strings.Repeat("9", 1000), "."} {
			if list := read(f.listen("/events", id)); !slices.Equal(names(list), all) {
				t.Errorf("behind %q: %v, want %v", id, list, all)
			}
		}

		// A thousand changes in a second are about ten events.
		l := f.listen("/events?name=sessions&name=sessions", "")
		if e := l.next(); e.name != "sessions" {
			t.Errorf(`the first is %v, want "sessions"`, e)
		}
		begun := time.Now()
		s.Busy()
		if e := l.next(); !strings.Contains(e.data, `"busy"`) || time.Since(begun) > 2*statePause {
			t.Errorf("after %s: %v, want busy within %s", time.Since(begun), e, 2*statePause)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := range 1000 {
				s.Update(fmt.Sprint("label ", i), "")
				wait(time.Millisecond)
			}
		}()
		n := 1
		for ; !strings.Contains(l.next().data, `"label 999"`); n++ { //nolint:revive // counts
		}
		if <-done; n > 13 {
			t.Errorf("%d events of a second's changes, want at most 13", n)
		}
		l.stop()
	})
}

// Streams end when the server shuts down.
func TestEventsDrain(t *testing.T) {
	f := eventsFixture{makeRESTFixture(t)}
	if err := f.server.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	f.url = "http" + strings.TrimPrefix(f.server.URL(), "ws")
	served := make(chan error, 1)
	go func() { served <- f.server.Serve() }()
	s := f.session("s")
	states, events := f.listen("/events", ""), f.listen("/sessions/s/events", "")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := f.server.Shutdown(ctx); err != nil {
		t.Errorf("shutting down: %v", err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if got := eventTexts(t, events.until(adminapi.EventEnded)); got[len(got)-1] != "ended " {
		t.Errorf(`the session's events end with %q, want "ended "`, got)
	}
	for _, l := range []*reader{states, events} {
		if _, err := io.Copy(io.Discard, l.lines); err != nil {
			t.Errorf("a stream ends with %v", err)
		}
	}
	<-s.Done()
	f.client.CloseIdleConnections()
}

// What changes is noticed whatever it is.
func TestEventsNotice(t *testing.T) {
	f := eventsFixture{newRESTFixture(t)}
	s := f.session("s")
	l := f.listen("/events", "")
	for range 6 {
		l.next()
	}
	until := func(what, name, text string) {
		t.Helper()
		t.Log(what)
		for {
			if e := l.next(); e.name == name && strings.Contains(e.data, text) {
				return
			}
		}
	}
	(&apiFixture{t: t, gateway: f.gateway}).provide(s.ID())
	until("a provider", "providers", `"sample"`)
	until("its tools", "tools", `"echo"`)
	s.Busy()
	until("a turn", "sessions", `"busy"`)
	s.Idle()
	until("its end", "sessions", `"idle"`)
	s.Update("", "other-model")
	until("another model", "sessions", `"other-model"`)
	if err := f.gateway.SetForeground("s"); err != nil {
		t.Error(err)
	}
	pairing := f.gateway.Connect(&apiProvider{in: make(chan protocol.Message, 10)},
		gateway.ConnOptions{})
	pairing.Receive([]byte(`{"type":"auth","mode":"pair","name":"tab"}`))
	until("a pairing", "pairings", `"tab"`)
	pairing.Closed()
	until("its end", "pairings", "[]")
	other := f.session("other")
	until("a session", "sessions", `"other"`)
	if err := other.Stop(t.Context(), "enough"); err != nil {
		t.Error(err)
	}
	until("its end", "status", `"sessions":1`)
	if n := f.gateway.StopProvider("sample"); n != 1 {
		t.Errorf("%d were stopped, want 1", n)
	}
	until("a provider that goes", "providers", "[]")
}
