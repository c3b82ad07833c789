package mcpserver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// localSession starts a session in a bubble.
func localSession(t *testing.T) *gateway.Session {
	t.Helper()
	g := gateway.New(
		gateway.Options{Starters: map[string]gateway.Starter{
			gateway.HostLocal: gateway.LocalStarter{},
		}})
	s, err := g.Start(t.Context(), gateway.StartRequest{Host: gateway.HostLocal, CWD: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Drain(context.Background()) })
	return s
}

func push(t *testing.T, s *gateway.Session, stream, text string) {
	t.Helper()
	if _, err := s.Push(t.Context(), "ci", &protocol.Push{Stream: stream, Event: text,
		Level: "keep"}); err != nil {
		t.Fatal(err)
	}
}

func texts(list eventList) (texts []string) {
	for _, e := range list.Events {
		texts = append(texts, e.Event)
	}
	return texts
}

// Events that come between two polls are in the next answer, exactly once.
func TestNothingIsLostBetweenTwoPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := localSession(t)
		stream := []string{"builds@ci"}
		var got []string
		cursor := cursorText(s, s.HistoryCursor())
		ask := func() eventList {
			t.Helper()
			after, err := readCursor(s, cursor)
			if err != nil {
				t.Fatal(err)
			}
			list, err := poll(t.Context(), s, after, stream, time.Minute, func(int) {})
			if err != nil {
				t.Fatal(err)
			}
			cursor = list.Cursor
			got = append(got, texts(list)...)
			return list
		}
		push(t, s, "builds", "1")
		push(t, s, "other", "no")
		push(t, s, "builds", "2")
		ask()
		go func() {
			<-time.After(10 * time.Second)
			push(t, s, "other", "no")
			push(t, s, "builds", "3")
		}()
		ask()
		push(t, s, "builds", "4")
		ask()
		push(t, s, "other", "no")
		if list := ask(); !strings.Contains(list.Note, "no event came within 1m0s") {
			t.Errorf("note: got %q, want one that no event came", list.Note)
		}
		if want := []string{"1", "2", "3", "4"}; !slices.Equal(got, want) {
			t.Errorf("events: got %v, want %v", got, want)
		}
	})
}

// A client hears something before it gives up, and a session's end ends the wait.
func TestLongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := localSession(t)
		begun, reports := time.Now(), 0
		last := begun
		report := func(int) {
			if quiet := time.Since(last); quiet > 25*time.Second {
				t.Errorf("silence: got %s, want 25s at most", quiet)
			}
			last = time.Now()
			reports++
		}
		list, err := poll(t.Context(), s, 0, nil, 90*time.Second, report)
		if err != nil || len(list.Events) != 0 || reports != 4 ||
			time.Since(begun) != 90*time.Second {
			t.Errorf(
				"got %v, %v, %d reports in %s; want nothing, 4 reports in 90s",
				list,
				err,
				reports,
				time.Since(begun),
			)
		}
		go func() {
			<-time.After(time.Second)
			_ = s.Stop(context.Background(), "over")
		}()
		list, err = poll(t.Context(), s, 0, nil, time.Hour, func(int) {})
		if err != nil || !strings.Contains(list.Note, "session has ended") {
			t.Errorf("the session's end: got %v, %v, want a note that it has ended", list, err)
		}
	})
}

// Events of other streams are no sign of life of a wait: the client hears something in any case.
func TestWaitBesideAnotherStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := localSession(t)
		go func() {
			for range 20 {
				<-time.After(10 * time.Second)
				push(t, s, "other", "no")
			}
		}()
		reports := 0
		list, err := poll(t.Context(), s, 0, []string{"builds@ci"}, 190*time.Second, func(int) {
			reports++
		})
		if err != nil || len(list.Events) != 0 || reports != 9 {
			t.Errorf("got %v, %v, %d reports in 190s; want nothing and 9 reports", list, err,
				reports)
		}
		<-time.After(time.Minute)
	})
}

// A call whose provider says nothing is reported every 20 s, so that no client gives it up.
func TestSilentCallIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		messages, outcome := make(chan string, 64), make(chan gateway.Outcome, 1)
		go func() {
			<-time.After(50 * time.Second)
			messages <- "half"
			<-time.After(25 * time.Second)
			messages <- "last"
			outcome <- gateway.Outcome{Data: protocol.Raw(`"done"`)}
		}()
		var got []string
		o := await(outcome, messages, func(n int, message string) {
			got = append(got, fmt.Sprintf("%d at %s: %s", n, time.Since(begun), message))
		})
		want := []string{"1 at 20s: still running", "2 at 40s: still running", "3 at 50s: half",
			"4 at 1m10s: half", "5 at 1m15s: last"}
		if o.Text() != "done" || !slices.Equal(got, want) {
			t.Errorf("got %q, reports %q; want done, reports %q", o.Text(), got, want)
		}
	})
}

// An unused endpoint is removed, with its goroutines.
func TestUnusedEndpointGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := gateway.New(gateway.Options{})
		h := New(Options{Gateway: g})
		if got := len(h.list()); got != 0 {
			t.Errorf("before the first request: got %d endpoints, want none", got)
		}
		first, err := h.acquire(target{})
		if err != nil {
			t.Fatal(err)
		}
		if second, err := h.acquire(target{}); err != nil || second != first {
			t.Errorf("a second request: got %p, %v, want the endpoint of the first, %p", second,
				err, first)
		}
		h.release(first)
		<-time.After(2 * idleTime)
		if got := len(h.list()); got != 1 {
			t.Errorf("while a request runs: got %d endpoints, want 1", got)
		}
		h.release(first)
		<-time.After(2 * idleTime)
		h.running.Wait()
		if got := len(h.list()); got != 0 {
			t.Errorf("unused: got %d endpoints, want none", got)
		}
		h.Close()
		if _, err := h.acquire(target{}); err == nil {
			t.Error("after the end: got no error, want one")
		}
	})
}

func TestCursors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := localSession(t)
		for range 3 {
			push(t, s, "builds", "x")
		}
		for text, want := range map[string]uint64{
			cursorText(s, 2): 2,
			cursorText(s, 9): 0, // of an earlier session with this id
			"2@other":        0,
		} {
			if got, err := readCursor(s, text); err != nil || got != want {
				t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
			}
		}
		if got, err := readCursor(s, "soon"); err == nil {
			t.Errorf("soon: got %d, want an error", got)
		}
	})
}

func TestEventsThatAreGoneAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := localSession(t)
		for range 5100 {
			push(t, s, "builds", "x")
			<-time.After(time.Second) // the budget of pushes
		}
		events, cursor, lost := eventsAfter(s, 0, nil, 5)
		if len(events) != 5 || lost != 100 || cursor != 105 {
			t.Errorf("got %d events to %d, %d lost; want 5 to 105, 100 lost", len(events), cursor,
				lost)
		}
	})
}

func TestResultContent(t *testing.T) {
	for name, tc := range map[string]struct {
		outcome gateway.Outcome
		want    string
	}{
		"image in an object": {gateway.Outcome{Data: protocol.Raw(
			`{"image":"data:image/png;base64,AAEC","w":1}`)},
			`{"content":[{"type":"text","text":"{\"w\":1}"},{"type":"image","mimeType":"image/png","data":"AAEC"}]}`},
		"a bad image is an object": {gateway.Outcome{Data: protocol.Raw(
			`{"image":"data:image/png;base64,!"}`)},
			`{"content":[{"type":"text","text":"{\"image\":\"data:image/png;base64,!\"}"}],` +
				`"structuredContent":{"image":"data:image/png;base64,!"}}`},
		"list": {gateway.Outcome{Data: protocol.Raw(`[1, 2]`)},
			`{"content":[{"type":"text","text":"[1,2]"}]}`},
		"image file": {gateway.Outcome{File: &gateway.File{Name: "a.png", MimeType: "image/png",
			Content: []byte{0}}},
			`{"content":[{"type":"image","mimeType":"image/png","data":"AA=="}]}`},
		"text file": {gateway.Outcome{File: &gateway.File{Name: "a", MimeType: "text/plain",
			Content: []byte("x")}},
			`{"content":[{"type":"text","text":"x"}]}`},
		"other file": {gateway.Outcome{File: &gateway.File{Name: "a b", MimeType: "model/stl",
			Content: []byte{1}}},
			`{"content":[{"type":"text","text":"The file a b (model/stl, 1 bytes)."},{"type":"resource",` +
				`"resource":{"uri":"tapgw://file/a%20b","mimeType":"model/stl","blob":"AQ=="}}]}`},
		"error": {gateway.Outcome{ErrorCode: "DENIED", Error: "no"},
			`{"content":[{"type":"text","text":"DENIED: no"}],"isError":true}`},
	} {
		got := mustJSON(t, result(tc.outcome))
		if !sameJSON(t, got, tc.want) {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}
