package gateway

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// queueRig is a session whose host tells prompts apart and reports nothing by itself.
type queueRig struct {
	*testing.T
	s *Session
	h *turnHost
}

func newQueueRig(t *testing.T) *queueRig {
	s, h := turning(t, HostInfo{Turns: true, Interrupt: true})
	return &queueRig{t, s, h}
}

// turn gives the session a prompt.
func (r *queueRig) turn(text, mode string) *Turn {
	r.Helper()
	turn, err := r.s.Turn(r.Context(), Prompt{Text: text, Mode: mode})
	if err != nil {
		r.Fatal(err)
	}
	return turn
}

// gave checks which prompts the host has got so far, and in which modes.
func (r *queueRig) gave(want ...string) {
	r.Helper()
	synctest.Wait()
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	got := make([]string, len(r.h.sent))
	for i, p := range r.h.sent {
		got[i] = strings.TrimSuffix(p.Text+" "+p.Mode, " ")
	}
	if !slices.Equal(got, want) {
		r.Errorf("the host got %q, want %q", got, want)
	}
}

// waits checks what the queue shows.
func (r *queueRig) waits(want ...string) {
	r.Helper()
	synctest.Wait()
	got := make([]string, 0, len(want))
	for _, q := range r.s.Queue() {
		line := q.Source + ": " + q.Prompt
		if q.Sent {
			line += " (sent)"
		}
		got = append(got, line)
	}
	if !slices.Equal(got, want) {
		r.Errorf("the queue shows %q, want %q", got, want)
	}
}

// id is the id of what waits at a place.
func (r *queueRig) id(at int) string {
	r.Helper()
	list := r.s.Queue()
	if at >= len(list) {
		r.Fatalf("%d prompts wait, want more", len(list))
	}
	return list[at].ID
}

// ends ends the turn of the prompt that the host got as number n, and the session has nothing more
// to do.
func (r *queueRig) ends(n int) {
	r.Helper()
	synctest.Wait()
	id := r.h.sent[n].ID
	r.s.TurnEnded([]string{id}, "")
	r.s.Idle()
}

func (r *queueRig) idles() (n int) {
	lines, _ := r.s.Live(0)
	for _, l := range lines {
		if l.Event.Callback == OnIdle {
			n++
		}
	}
	return n
}

func (r *queueRig) is(what string, err error, code protocol.Code, words string) {
	r.Helper()
	e, ok := errors.AsType[*protocol.Error](err)
	if !ok || e.Code != code || !strings.Contains(e.Message, words) {
		r.Errorf("%s: %v, want %s with %q", what, err, code, words)
	}
}

// Prompts behind a turn wait in the gateway, in their order, and each can be changed and taken back
// until the agent has it. The session is idle once, after the last one.
func TestQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQueueRig(t)
		r.turn("one", "")
		two, three := r.turn("two", ""), r.turn("three", "")
		r.turn("four", "")
		r.gave("one")
		r.waits("user: two", "user: three", "user: four")
		if err := r.s.EditQueued(r.id(0), "2"); err != nil {
			t.Error(err)
		}
		if err := r.s.CancelQueued(r.id(1)); err != nil {
			t.Error(err)
		}
		if _, err := read(t.Context(), three); err == nil ||
			err.Error() != "cancelled before its turn" {
			t.Errorf("who waits for the cancelled one is told %v, want that it was cancelled", err)
		}
		r.waits("user: 2", "user: four")
		taken := r.id(0)
		r.ends(0)
		r.gave("one", "2")
		r.waits("user: four")
		for what, err := range map[string]error{
			"edit": r.s.EditQueued(taken, "late"), "cancel": r.s.CancelQueued(taken),
			"send": r.s.SendQueued(t.Context(), taken)} {
			r.is(what+" of one that was given", err, protocol.CodeInvalidState,
				"was given to the agent meanwhile")
		}
		r.ends(1)
		if _, err := read(t.Context(), two); !errors.Is(err, ErrTurnEnded) {
			t.Errorf("the turn of the changed one ended %v, want %v", err, ErrTurnEnded)
		}
		late := r.s.EditQueued(taken, "later")
		r.is("edit of one that is over", late, protocol.CodeNotFound, "has begun, or was cancelled")
		r.gave("one", "2", "four")
		if state, n := r.s.View().State, r.idles(); state != "busy" || n != 0 {
			t.Errorf("between the prompts the session is %s and was idle %d times, want busy and 0",
				state, n)
		}
		r.ends(2)
		if state, n := r.s.View().State, r.idles(); state != "idle" || n != 1 {
			t.Errorf("after them the session is %s and was idle %d times, want idle and 1", state,
				n)
		}
		if len(r.s.prompts.given) != 0 {
			t.Errorf("%d prompts are kept, want none", len(r.s.prompts.given))
		}
	})
}

// A prompt that waits can be sent into the turn that runs. It shows until the agent takes it up.
// One that the host refuses waits on.
func TestQueueSendNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQueueRig(t)
		r.turn("one", "")
		r.turn("two", "")
		three := r.turn("three", "")
		if err := r.s.SendQueued(t.Context(), r.id(1)); err != nil {
			t.Fatal(err)
		}
		r.gave("one", "three immediate")
		r.waits("user: three (sent)", "user: two")
		r.is("cancel of one that was sent", r.s.CancelQueued(r.id(0)), protocol.CodeInvalidState,
			"was given")
		r.s.Event(Event{UserMessage: "three", Prompts: []string{r.h.sent[0].ID, r.h.sent[1].ID}})
		r.waits("user: two")
		r.s.TurnEnded([]string{r.h.sent[1].ID}, "")
		if _, err := read(t.Context(), three); !errors.Is(err, ErrTurnEnded) {
			t.Errorf("its turn ended %v, want %v", err, ErrTurnEnded)
		}
		r.h.err = errors.New("not now")
		if err := r.s.SendQueued(t.Context(), r.id(0)); err == nil {
			t.Error("sending a prompt that the host refuses: no error")
		}
		r.waits("user: two")
	})
}

// An interrupt keeps what waits. A prompt that the agent got in the middle of the turn and had not
// taken up waits again, before the others. One that had just begun the turn is what was
// interrupted: it is named, and does not begin again.
func TestQueueSurvivesInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQueueRig(t)
		r.turn("one", "")
		behind := r.turn("two", "")
		steers := r.turn("three", adminapi.ModeImmediate)
		r.gave("one", "three immediate")
		if _, err := r.s.Interrupt(t.Context(), "enough"); err != nil {
			t.Fatal(err)
		}
		r.s.TurnEnded([]string{r.h.sent[0].ID, r.h.sent[1].ID}, InterruptedBefore)
		r.waits("user: three", "user: two")
		r.s.Idle()
		r.gave("one", "three immediate", "three enqueue")
		if r.h.sent[2].ID != r.h.sent[1].ID {
			t.Errorf("it came back as %s, want its id %s", r.h.sent[2].ID, r.h.sent[1].ID)
		}
		r.ends(2)
		r.ends(3)
		for _, turn := range []*Turn{steers, behind} {
			if _, err := read(t.Context(), turn); !errors.Is(err, ErrTurnEnded) {
				t.Errorf("a turn after the interrupt ended %v, want %v", err, ErrTurnEnded)
			}
		}
		if reason := r.s.LastTurn().Interrupted; reason != "enough" {
			t.Errorf("of the last turns it says that %q interrupted them, want enough", reason)
		}
	})
}

// A prompt that an interrupt takes from the host and that the host gets again is not one that was
// dropped, also where it gets it before the interrupt returns.
func TestInterruptKeepsPrompts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQueueRig(t)
		r.turn("one", "")
		r.turn("two", adminapi.ModeImmediate)
		r.gave("one", "two immediate")
		r.h.interrupt = func() []string {
			r.s.TurnEnded([]string{r.h.sent[0].ID}, "interrupted")
			r.s.TurnEnded([]string{r.h.sent[1].ID}, InterruptedBefore)
			r.s.Idle()
			r.gave("one", "two immediate", "two enqueue")
			return []string{"two", "of the host's own"}
		}
		dropped, err := r.s.Interrupt(t.Context(), "enough")
		if err != nil || !slices.Equal(dropped, []string{"of the host's own"}) {
			t.Errorf("dropped %q, %v, want the one that does not come back", dropped, err)
		}
	})
}

// A prompt may have its turn while its caller hears that it waits. The race detector reads over it.
func TestPromptHasItsTurnAtOnce(t *testing.T) {
	s, _ := turning(t, HostInfo{Turns: true, Interrupt: true})
	for range 100 {
		s.Busy()
		waits := make(chan error, 1)
		go func() {
			_, err := s.Prompt(t.Context(), Prompt{Text: "next"})
			waits <- err
		}()
		for len(s.Queue()) == 0 {
			runtime.Gosched()
		}
		s.Idle()
		if err := <-waits; err != nil {
			t.Fatal(err)
		}
		for len(s.Queue()) > 0 {
			runtime.Gosched()
		}
	}
}

// Injects wait behind the prompts. A person can take one back or send it, but its words are its
// provider's.
func TestQueueHasInjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQueueRig(t)
		r.turn("one", "")
		receipts := make(chan Receipt, 2)
		for _, text := range []string{"red", "green"} {
			go func() {
				push := &protocol.Push{Stream: "b", Level: protocol.LevelInject, Event: text}
				receipt, err := r.s.PushAndWait(t.Context(), "ci", push)
				if err != nil {
					t.Error(err)
				}
				receipts <- receipt
			}()
			synctest.Wait()
		}
		r.turn("two", "")
		r.waits("user: two", "provider:ci: red", "provider:ci: green")
		r.is("edit of an inject", r.s.EditQueued(r.id(1), "blue"), protocol.CodeInvalidState,
			"is of provider ci")
		if err := r.s.CancelQueued(r.id(1)); err != nil {
			t.Error(err)
		}
		if got := <-receipts; got.Fate != adminapi.FateDropped ||
			got.Reason != "cancelled before its turn" {
			t.Errorf("the fate of the cancelled inject: %+v, want dropped", got)
		}
		if err := r.s.SendQueued(t.Context(), r.id(1)); err != nil {
			t.Error(err)
		}
		r.gave("one", "green immediate")
		r.waits("provider:ci: green (sent)", "user: two")
		r.s.Idle()
		if got := <-receipts; got.Fate != adminapi.FateDelivered {
			t.Errorf("the fate of the inject that was sent: %+v, want delivered", got)
		}
	})
}

// When the last prompt that waited is taken back between two turns, or refused, the session becomes
// idle.
func TestQueueRunsDry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQueueRig(t)
		r.turn("one", "")
		refused := r.turn("two", "")
		r.h.err = errors.New("no room")
		r.ends(0)
		if _, err := read(t.Context(), refused); err == nil ||
			!strings.Contains(err.Error(), "no room") {
			t.Errorf("who waits for the refused one is told %v, want why", err)
		}
		synctest.Wait()
		if state, n := r.s.View().State, r.idles(); state != "idle" || n != 1 {
			t.Errorf("then the session is %s and was idle %d times, want idle and 1", state, n)
		}
		lines, _ := r.s.Timeline(0)
		if !slices.ContainsFunc(lines, func(l adminapi.TimelineLine) bool {
			return l.Level == adminapi.LogError && strings.Contains(l.Message, `no room: "two"`)
		}) {
			t.Errorf("the timeline: %v, want the refused prompt", lines)
		}
	})
}

// The queue is bounded, and what waits when the session ends is named.
func TestQueueEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newQueueRig(t)
		for n := range maxQueuedPrompts + 1 {
			r.turn(fmt.Sprintf("prompt %d", n), "")
		}
		_, err := r.s.Prompt(t.Context(), Prompt{Text: "one more"})
		r.is("one more", err, protocol.CodeRateLimited, "100 prompts wait")
		last := r.s.prompts.turns["101"]
		if err := r.s.Stop(context.Background(), "test"); err != nil {
			t.Error(err)
		}
		if _, err := read(t.Context(), last); !errors.Is(err, ErrSessionEnded) {
			t.Errorf("who waits for the last one is told %v, want %v", err, ErrSessionEnded)
		}
		lines, _ := r.s.Timeline(0)
		if !slices.ContainsFunc(lines, func(l adminapi.TimelineLine) bool {
			return strings.HasPrefix(l.Message, `100 prompts that waited are dropped: "prompt 1",`)
		}) {
			t.Errorf("the timeline: %v, want a line that names what is dropped", lines)
		}
	})
}
