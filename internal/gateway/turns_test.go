package gateway

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// turnHost takes prompts and stores them.
type turnHost struct {
	quietHost
	mu   sync.Mutex
	sent []Prompt
	err  error

	interrupt func() (dropped []string) // nil: an interrupt drops none
}

func (h *turnHost) Interrupt(context.Context, string) (dropped []string, err error) {
	if h.interrupt == nil {
		return nil, nil
	}
	return h.interrupt(), nil
}

func (h *turnHost) Send(_ context.Context, p Prompt) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sent = append(h.sent, p)
	return h.err
}

func turning(t *testing.T, info HostInfo) (*Session, *turnHost) {
	t.Helper()
	g := New(Options{})
	h := &turnHost{}
	info.Kind, info.Send = "test", true
	s, err := g.Register(SessionSpec{}, info, h)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Drain(context.Background()) })
	return s, h
}

// read returns a turn's callbacks until it ends, and the error that it ends with.
func read(ctx context.Context, turn *Turn) (said []string, end error) {
	for {
		lines, err := turn.Next(ctx)
		if err != nil {
			return said, err
		}
		for _, l := range lines {
			said = append(said, l.Event.Callback+l.Event.Content+l.Event.SessionError)
		}
	}
}

// TestTurnIsItsPrompts shows that a turn has the callbacks of its own prompt only, and
// that a callback of several prompts is in each one's turn.
func TestTurnIsItsPrompts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := turning(t, HostInfo{Turns: true})
		var turns []*Turn
		for _, p := range []Prompt{{Text: "a"}, {Text: "b", Mode: adminapi.ModeImmediate},
			{Text: "c"}} {
			turn, err := s.Turn(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			turns = append(turns, turn)
		}
		id := func(n int) string { return h.sent[n].ID }
		say := func(text string, prompts ...string) {
			s.Event(Event{Callback: OnEndMessage, Content: " " + text, Prompts: prompts})
		}
		say("one", id(0))
		say("of nobody")
		say("both", id(0), id(1))
		s.TurnEnded([]string{id(0), id(1)}, "")
		s.Idle()
		synctest.Wait() // until the host is given what waited
		say("last", id(2))
		s.Event(Event{SessionError: "the host stumbles"})
		s.TurnEnded([]string{id(2)}, "interrupted")
		say("too late", id(2))
		for n, want := range []struct {
			said []string
			end  string
		}{
			{[]string{"onEndMessage one", "onEndMessage both"}, ErrTurnEnded.Error()},
			{[]string{"onEndMessage both"}, ErrTurnEnded.Error()},
			{[]string{"onEndMessage last", "the host stumbles"}, "interrupted"},
		} {
			said, end := read(t.Context(), turns[n])
			if !slices.Equal(said, want.said) || end.Error() != want.end {
				t.Errorf("turn %d: %q, %v, want %q and %v", n, said, end, want.said, want.end)
			}
		}
		if len(s.prompts.turns) != 0 {
			t.Errorf("%d turns are kept, want none", len(s.prompts.turns))
		}
	})
}

// A reader's wait ends with the turn, with its context and with the session.
func TestTurnWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := turning(t, HostInfo{Turns: true})
		ends := make(chan error, 3)
		ctx, cancel := context.WithCancel(t.Context())
		for n := range 3 {
			turn, err := s.Turn(t.Context(), Prompt{Text: "x"})
			if err != nil {
				t.Fatal(err)
			}
			reader := t.Context()
			if n == 1 {
				reader = ctx
			}
			go func() {
				defer turn.Close()
				_, err := read(reader, turn)
				ends <- err
			}()
		}
		synctest.Wait()
		s.TurnEnded([]string{h.sent[0].ID}, "")
		if err := <-ends; !errors.Is(err, ErrTurnEnded) {
			t.Error(err)
		}
		cancel()
		if err := <-ends; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		go func() { _ = s.Stop(context.Background(), "test") }()
		if err := <-ends; !errors.Is(err, ErrSessionEnded) {
			t.Error(err)
		}
	})
}

// If the host doesn't tell prompts apart, a turn has all callbacks until the session
// is idle.
func TestTurnUntilIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := turning(t, HostInfo{})
		turn, err := s.Turn(t.Context(), Prompt{Text: "x"})
		if err != nil {
			t.Fatal(err)
		}
		s.Event(Event{Callback: OnEndMessage, Content: " hi"})
		s.Idle()
		s.Event(Event{Callback: OnEndMessage, Content: " later"})
		said, end := read(t.Context(), turn)
		if want := []string{"onEndMessage hi", "onIdle"}; !slices.Equal(said, want) ||
			!errors.Is(end, ErrTurnEnded) {
			t.Errorf("the turn gave %q, %v, want %q and %v", said, end, want, ErrTurnEnded)
		}
		for _, p := range []Prompt{{Text: "x", Attachments: []Attachment{{Path: "/"}}},
			{Text: "x", Headers: map[string]string{"A": "b"}}} {
			if _, err := s.Turn(t.Context(), p); err == nil {
				t.Errorf("Turn takes %+v, want an error: a local session has no such thing", p)
			}
		}
		h.err = errors.New("no")
		if _, err := s.Turn(t.Context(), Prompt{Text: "x"}); err == nil ||
			len(s.prompts.turns) != 0 {
			t.Errorf(
				"a prompt that was not taken: %v, %d turns are kept, want an error and none",
				err, len(s.prompts.turns),
			)
		}
	})
}

// whenTurnEnds is a recorder that calls a function for the record of a turn, which Idle writes.
type whenTurnEnds func()

func (f whenTurnEnds) Record(r adminapi.Record) {
	if r.Kind == adminapi.RecordTurn {
		f()
	}
}

func (whenTurnEnds) Pushed(string) []adminapi.Record { return nil }

// A push that comes while Idle still tells of a turn's end begins no turn before all know of the
// end: else its callbacks would be part of the turn before.
func TestNextTurnWaitsUntilEndIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s *Session
		h := &patientHost{}
		sent := -1
		g := New(Options{Recorder: whenTurnEnds(func() {
			if sent >= 0 {
				return
			}
			go func() {
				_, _ = s.Push(context.Background(), "ci",
					&protocol.Push{Level: protocol.LevelInject, Event: "e"})
			}()
			synctest.Wait()
			sent = len(h.sent)
		})})
		s, err := g.Register(SessionSpec{ID: "s1", CWD: "/c"}, HostInfo{Kind: "test", Send: true},
			h)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Drain(context.Background())
		turn, err := s.Turn(t.Context(), Prompt{Text: "first"})
		if err != nil {
			t.Fatal(err)
		}
		defer turn.Close()
		s.Idle()
		synctest.Wait()
		if sent != 1 || len(h.sent) != 2 {
			t.Errorf(
				"the host had %d prompts while Idle told of the end, and then %d; want 1 and 2",
				sent, len(h.sent))
		}
		var callbacks []string
		for err == nil {
			var lines []LiveLine
			lines, err = turn.Next(t.Context())
			for _, l := range lines {
				callbacks = append(callbacks, l.Event.Callback)
			}
		}
		if !slices.Equal(callbacks, []string{OnIdle}) {
			t.Errorf("the first turn has the callbacks %q, want its own end alone", callbacks)
		}
	})
}
