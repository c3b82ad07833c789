package server

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// event is a server-sent event.
type event struct{ name, id, data string }

// events reads a stream as browsers do: what is cut off in its middle is no event.
type events struct{ lines *bufio.Reader }

func newEvents(r io.Reader) *events { return &events{bufio.NewReader(r)} }

func (x *events) next() (event, error) {
	var e event
	for {
		line, err := x.lines.ReadString('\n')
		if err != nil {
			return event{}, err
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case line == "\n" && e.data != "":
			return e, nil
		case field == "event":
			e.name = value
		case field == "id":
			e.id = value
		case field == "data":
			e.data = value
		}
	}
}

// eventsFixture is a server whose streams of events are read.
type eventsFixture struct{ *restFixture }

// reader is a stream that is read.
type reader struct {
	*events
	t    *testing.T
	body io.ReadCloser
	stop context.CancelFunc
	last string // id
}

// listen opens a stream, behind an event.
func (f eventsFixture) listen(path, lastEventID string) *reader {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url+"/api/v1"+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.gateway.AdminToken())
	if lastEventID != "" {
		r.Header.Set("Last-Event-ID", lastEventID)
	}
	response, err := f.client.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	if got := response.Header.Get("Content-Type"); response.StatusCode != http.StatusOK ||
		got != "text/event-stream" {
		f.t.Fatalf(`%s: %s %s, want StatusCode %v and "text/event-stream"`, path, response.Status,
			got, http.StatusOK)
	}
	l := &reader{newEvents(response.Body), f.t, response.Body, func() {
		cancel()
		_ = response.Body.Close()
	},
		lastEventID}
	f.t.Cleanup(l.stop)
	return l
}

// next is the next event.
func (l *reader) next() event {
	l.t.Helper()
	e, err := l.events.next()
	if err != nil {
		l.t.Fatalf("after %s: %v", l.last, err)
	}
	l.last = e.id
	return e
}

// until reads to an event of this name.
func (l *reader) until(name string) (list []event) {
	l.t.Helper()
	for {
		list = append(list, l.next())
		if list[len(list)-1].name == name {
			return list
		}
	}
}

// eventTexts returns the texts of events: a message or delta, and the name of a gap or an end.
func eventTexts(t *testing.T, list []event) []string {
	t.Helper()
	var texts []string
	for _, e := range list {
		var d struct{ Message, Delta, Event string }
		if err := json.Unmarshal([]byte(e.data), &d); err != nil {
			t.Fatalf("%+v: %v", e, err)
		}
		text := e.name + " " + d.Message + d.Delta + d.Event
		if e.name == adminapi.EventGap {
			text += e.data
		}
		texts = append(texts, text)
	}
	return texts
}

func addNote(s *gateway.Session, text string) { s.Note(adminapi.LogInfo, text) }

func addDelta(s *gateway.Session, text string) {
	s.Event(gateway.Event{Callback: gateway.OnMessage, ID: "m", Delta: text})
}

func pushText(t *testing.T, s *gateway.Session, text string) {
	t.Helper()
	if _, err := s.Push(t.Context(), text,
		&protocol.Push{Stream: "s", Event: text, Level: protocol.LevelKeep}); err != nil {
		t.Error(err)
	}
}
