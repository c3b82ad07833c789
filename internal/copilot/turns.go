package copilot

import (
	"fmt"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
)

// Turns, and the time and the rounds that each may take.

// DefaultMaxTurnTime is how long a turn may take unless max_turn_time says otherwise.
const DefaultMaxTurnTime = 2 * time.Hour

// turn is the turn of a prompt and of the prompts that were steered into it. Only the pump uses it.
type turn struct {
	number     int
	prompts    []string // the gateway's ids; the slice is replaced, never changed
	cutReason  string   // why the turn ends early; ""
	wasStopped bool     // the gateway interrupted it
	rounds     int      // of model and tools since the last prompt
	limit      *time.Timer
}

func (t *turn) stopTimer() {
	if t.limit != nil {
		t.limit.Stop()
	}
}

// startTurn begins a prompt's turn. A prompt that steers joins the turn that runs. Each prompt
// renews the turn's budget.
func (t *tracker) startTurn(p *sentPrompt, steers bool) {
	if !steers {
		t.endTurn("")
	}
	t.wasInterrupted = false
	t.turn.rounds = 0
	t.turn.number++
	t.turn.prompts = append(append([]string(nil), t.turn.prompts...), p.prompt)
	t.turn.stopTimer()
	number := t.turn.number
	t.turn.limit = time.AfterFunc(t.s.o.MaxTurnTime, func() {
		t.s.pushChange(func(t *tracker) { t.overtime(number) })
	})
}

// endTurn tells the gateway that the turn of these prompts has ended.
func (t *tracker) endTurn(cut string) {
	if cut == "" {
		cut = t.turn.cutReason
	}
	t.turn.stopTimer()
	prompts := t.turn.prompts
	t.turn = turn{number: t.turn.number}
	if len(prompts) > 0 {
		t.s.calls.TurnEnded(prompts, cut)
	}
}

// markInterrupted ends the calls and parts of the turn that the runtime stopped.
func (t *tracker) markInterrupted() {
	if !t.isBusy {
		return
	}
	t.turn.cutReason, t.wasInterrupted = "interrupted", true
	t.s.cancelCalls()
	t.endParts("interrupted")
}

// countRound counts a round of model and tools, and stops the turn after the last allowed one.
func (t *tracker) countRound() {
	t.turn.rounds++
	if most := t.s.o.MaxRounds; t.turn.rounds == most+1 {
		t.stopTurn(
			fmt.Sprintf(
				"the model called tools in %d rounds (max_rounds in [copilot] of tapgw.toml)",
				most))
	}
}

// overtime stops a turn that took longer than max_turn_time.
func (t *tracker) overtime(number int) {
	if number == t.turn.number && len(t.turn.prompts) > 0 {
		t.stopTurn(fmt.Sprintf("it took longer than %s (max_turn_time in [copilot] of tapgw.toml)",
			t.s.o.MaxTurnTime))
	}
}

// stopTurn interrupts a turn that used up its budget.
func (t *tracker) stopTurn(why string) {
	t.emit(gateway.Event{SessionError: "the turn is stopped: " + why})
	t.s.r.spawn(func() {
		// Prompts behind the turn go back to the gateway's queue: reportDropped says so.
		if _, err := t.s.Interrupt(t.s.ctx, "past its budget"); err != nil {
			t.s.note(adminapi.LogError,
				fmt.Sprintf("the turn could not be stopped, and goes on: %v", err))
		}
	})
}

// reportDropped tells the gateway that prompts will not begin.
func (s *session) reportDropped(prompts []*sentPrompt, why string) {
	var ids []string
	for _, p := range prompts {
		if p.prompt != "" {
			ids = append(ids, p.prompt)
		}
	}
	if len(ids) > 0 {
		s.calls.TurnEnded(ids, why)
	}
}
