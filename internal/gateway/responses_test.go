package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// quiet is a session whose host does nothing.
func quiet(t *testing.T) *Session {
	t.Helper()
	g := New(Options{})
	s, err := g.Register(SessionSpec{ID: "s1", Label: "l", CWD: "/c"},
		HostInfo{Kind: "test", Send: true}, quietHost{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Drain(context.Background()) })
	return s
}

// waiting are the callbacks in a queue, with their ids.
func waiting(q *Responses) []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := make([]string, len(q.items))
	for i, r := range q.items {
		list[i] = strings.TrimSpace(r.Event.Callback + " " + r.Event.ID)
		if r.Event.SessionError != "" {
			list[i] = "sessionError"
		}
	}
	return list
}

func TestResponsesBegin(t *testing.T) {
	past := []Event{
		{Callback: OnAgentStart, ID: "t1"},
		{Callback: OnStartMessage, ID: "m1"},
		{Callback: OnMessage, ID: "m1", Delta: "a"},
		{Callback: OnEndMessage, ID: "m1", Content: "a"},
		{Callback: OnAgentEnd, ID: "t1"},
		{ID: "c0", Duration: time.Second}, // no callback of the session API
		{Callback: OnIdle},
		{Callback: OnAgentStart, ID: "t2"},
		{Callback: OnStartReasoning, ID: "x"},
		{Callback: OnReasoning, ID: "x", Delta: "b"},
		{Callback: OnStartMessage, ID: "x"},
		{Callback: OnEndReasoning, ID: "x", Content: "b"},
		{Callback: OnStartToolExecution, ID: "c1", Tool: "greet"},
	}
	var all []string
	for _, e := range past {
		if e.Callback != "" {
			all = append(all, strings.TrimSpace(e.Callback+" "+e.ID))
		}
	}
	for _, tc := range []struct {
		name      string
		fromStart bool
		want      []string
	}{
		{"from the start", true, all},
		{"in mid-turn", false, []string{"onAgentStart t2", "onStartMessage x",
			"onStartToolExecution c1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := quiet(t)
			for _, e := range past {
				s.publish(e)
			}
			q := s.Responses(tc.fromStart)
			if got := waiting(q); !slices.Equal(got, tc.want) {
				t.Errorf("the queue begins with %q, want %q", got, tc.want)
			}
			s.Event(Event{ID: "c1", Duration: time.Second})
			s.Event(Event{Callback: OnEndMessage, ID: "x"})
			if got := waiting(q); !slices.Equal(got, append(tc.want, "onEndMessage x")) {
				t.Errorf("and goes on with %q, want %q", got, append(tc.want, "onEndMessage x"))
			}
			if s.Responses(true) != q {
				t.Error("Responses makes a second queue, want the first one")
			}
		})
	}
}

// A response stays the next one until it is removed.
func TestResponsesRemove(t *testing.T) {
	s := quiet(t)
	q := s.Responses(true)
	ctx := t.Context()
	for i := range 3 {
		s.publish(Event{Callback: OnMessage, ID: "m", Delta: fmt.Sprint(i)})
	}
	for i := range 3 {
		first, err := q.Next(ctx)
		again, err2 := q.Next(ctx)
		if err != nil || err2 != nil || first.seq != again.seq ||
			first.Event.Delta != fmt.Sprint(i) {
			t.Fatalf(
				"response %d is %+v, then %+v (%v, %v), want the same twice, delta %d",
				i, first.Event, again.Event, err, err2, i,
			)
		}
		q.Remove(first)
		q.Remove(first)
	}
	if q.Bytes() != 0 || len(waiting(q)) != 0 {
		t.Errorf("an empty queue holds %d bytes, %q, want 0 and none", q.Bytes(), waiting(q))
	}
}

// Next waits as long as its context, and returns what is queued after the end of the
// session too.
func TestResponsesWaitAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := quiet(t)
		q := s.Responses(true)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := q.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("an empty queue says %v, want %v", err, context.DeadlineExceeded)
		}
		got := make(chan Response)
		go func() {
			r, _ := q.Next(context.Background())
			got <- r
		}()
		synctest.Wait()
		s.publish(Event{Callback: OnAgentStart, ID: "t1"})
		r := <-got
		if r.Event.Callback != OnAgentStart {
			t.Fatalf("the one who waits gets %+v, want %v", r, OnAgentStart)
		}
		s.Ended("it died")
		<-s.Done()
		if want := []string{"onAgentStart t1", "sessionError"}; !slices.Equal(waiting(q), want) {
			t.Fatalf("at the end %q wait, want %q", waiting(q), want)
		}
		q.Remove(r)
		if r, err := q.Next(t.Context()); err != nil ||
			r.Event.SessionError != "the session's host is gone: it died" {
			t.Fatalf(
				`the host's death is told as %+v, %v, want "the session's host is gone: it died"`,
				r.Event, err)
		} else {
			q.Remove(r)
		}
		for range 2 {
			if _, err := q.Next(t.Context()); !errors.Is(err, ErrSessionEnded) {
				t.Fatalf("a drained queue of a session that ended says %v, want %v", err,
					ErrSessionEnded)
			}
		}
		if _, err := s.Responses(false).Next(t.Context()); !errors.Is(err, ErrSessionEnded) {
			t.Error("the queue has forgotten its end, want ErrSessionEnded again")
		}
	})
}

// The queue of a session that has ended is closed, even if nobody read it before.
func TestResponsesAfterTheEnd(t *testing.T) {
	s := quiet(t)
	if err := s.Stop(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Responses(true).Next(t.Context()); !errors.Is(err, ErrSessionEnded) {
		t.Errorf("it says %v, want %v", err, ErrSessionEnded)
	}
}

const mebibyte = 1 << 20

// Past 64 MiB the oldest deltas are dropped; all other responses stay in their order.
func TestResponsesGiveWay(t *testing.T) {
	s := quiet(t)
	q := s.Responses(true)
	chunk := strings.Repeat("x", mebibyte)
	s.publish(Event{Callback: OnStartReasoning, ID: "r"})
	for range 10 {
		s.publish(Event{Callback: OnReasoning, ID: "r", Delta: chunk})
	}
	head, err := q.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	q.Remove(head)
	head, _ = q.Next(t.Context()) // being written while it gives way
	s.publish(Event{Callback: OnEndReasoning, ID: "r", Content: strings.Repeat(chunk, 10)})
	s.publish(Event{Callback: OnStartMessage, ID: "m"})
	for i := range 60 {
		s.publish(Event{Callback: OnMessage, ID: fmt.Sprint("m", i), Delta: chunk})
		if n := q.Bytes(); n > maxResponseBytes {
			t.Fatalf("after %d deltas the queue holds %d bytes, want at most %d", i, n,
				maxResponseBytes)
		}
	}
	q.Remove(head) // it has gone: nothing else goes with it
	got := waiting(q)
	if want := []string{"onEndReasoning r", "onStartMessage m"}; !slices.Equal(got[:2], want) {
		t.Errorf("what must stay is %q, want %q", got[:2], want)
	}
	deltas := got[2:]
	if len(deltas) < 30 || len(deltas) >= 54 {
		t.Errorf("%d deltas are left, want at least 30 and less than 54", len(deltas))
	}
	for i, d := range deltas {
		if want := fmt.Sprint("onMessage m", 60-len(deltas)+i); d != want {
			t.Fatalf("delta %d is %q, want %q", i, d, want)
		}
	}
}

// If there are no deltas the oldest responses are dropped, and the queue says so.
func TestResponsesMissing(t *testing.T) {
	s := quiet(t)
	q := s.Responses(true)
	chunk := strings.Repeat("x", mebibyte)
	for i := range 200 {
		s.publish(Event{Callback: OnEndMessage, ID: fmt.Sprint(i), Content: chunk})
		if n := q.Bytes(); n > maxResponseBytes {
			t.Fatalf("after %d the queue holds %d bytes, want at most %d", i, n, maxResponseBytes)
		}
	}
	got := waiting(q)
	if got[0] != "sessionError" || got[len(got)-1] != "onEndMessage 199" ||
		slices.Contains(got[1:], "sessionError") {
		t.Errorf(`the queue holds %q, want "sessionError" once, and "onEndMessage 199"`, got)
	}
	// One that is too large by itself is kept.
	s.publish(Event{Callback: OnEndMessage, ID: "large",
		Content: strings.Repeat("x", maxResponseBytes+1)})
	if got := waiting(q); !slices.Equal(got, []string{"sessionError", "onEndMessage large"}) {
		t.Errorf(`with a large one the queue holds %q, want ["sessionError" "onEndMessage large"]`,
			got)
	}
}

// Events come from many goroutines while one reader removes them.
func TestResponsesUnderLoad(t *testing.T) {
	s := quiet(t)
	q := s.Responses(true)
	const writers, each = 4, 2000
	for w := range writers {
		go func() {
			for i := range each {
				s.Event(Event{Callback: OnMessage, ID: fmt.Sprint(w), Delta: fmt.Sprint(i)})
			}
		}()
	}
	next := map[string]int{}
	for range writers * each {
		r, err := q.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprint(next[r.Event.ID]); r.Event.Delta != want {
			t.Fatalf("writer %s: %s came, want %s", r.Event.ID, r.Event.Delta, want)
		}
		next[r.Event.ID]++
		q.Remove(r)
	}
	if len(waiting(q)) != 0 {
		t.Errorf("%d more wait, want none", len(waiting(q)))
	}
}

// toolArguments is JSON text, whatever a session's arguments are.
func TestArgumentsText(t *testing.T) {
	for args, want := range map[string]string{
		``: `{}`, ` `: `{}`, `{"a":1}`: `{"a":1}`, `null`: `null`, `{not json`: `"{not json"`,
		"\"": `"\""`,
	} {
		e := Event{Callback: OnStartToolExecution, ID: "c", Tool: "t", Args: args}
		if got := *e.View().ToolArguments; got != want {
			t.Errorf("%q becomes %q, want %q", args, got, want)
		}
	}
}
