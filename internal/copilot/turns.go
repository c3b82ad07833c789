package copilot

import (
	"fmt"
	"time"

	"tapgw/internal/gateway"
)

// DefaultMaxTurnTime is how long a turn may take.
const DefaultMaxTurnTime = 2 * time.Hour

// run is what comes of a prompt, and of those that were steered into it. Only the
// pump touches it.
type run struct {
	number  int
	prompts []string // the gateway's ids; replaced, never changed
	cut     string   // why it is cut short
	rounds  int      // of model and tools since the last prompt
	limit   *time.Timer
}

// stop lets the clock of the run go.
func (r *run) stop() {
	if r.limit != nil {
		r.limit.Stop()
	}
}

// promptBegan notes whose turn it is from now on. A prompt that steers joins the
// turn that runs. Each renews the turn's budget.
func (t *turn) promptBegan(p *sentPrompt, steers bool) {
	if !steers {
		t.endRun("")
	}
	t.interrupted = false
	t.run.rounds = 0
	t.run.number++
	t.run.prompts = append(append([]string(nil), t.run.prompts...), p.prompt)
	t.run.stop()
	number := t.run.number
	t.run.limit = time.AfterFunc(t.s.o.MaxTurnTime, func() { t.s.items.push(item{overtime: number}) })
}

// endRun tells the gateway that nothing more comes of the prompts of this turn.
func (t *turn) endRun(cut string) {
	if cut == "" {
		cut = t.run.cut
	}
	t.run.stop()
	prompts := t.run.prompts
	t.run = run{number: t.run.number}
	if len(prompts) > 0 {
		t.s.calls.TurnEnded(prompts, cut)
	}
}

// aborted ends what the runtime stopped.
func (t *turn) aborted() {
	if !t.running {
		return
	}
	t.run.cut, t.interrupted = "interrupted", true
	t.s.cancelCalls()
	t.closeOpen("interrupted")
}

// anotherRound counts a round of model and tools.
func (t *turn) anotherRound() {
	t.run.rounds++
	if most := t.s.o.MaxRounds; t.run.rounds == most+1 {
		t.stop(fmt.Sprintf("the model called tools in %d rounds (max_rounds in [copilot] of tapgw.toml)", most))
	}
}

// overtime ends a turn that took its time.
func (t *turn) overtime(number int) {
	if number == t.run.number && len(t.run.prompts) > 0 {
		t.stop(fmt.Sprintf("it took longer than %s (max_turn_time in [copilot] of tapgw.toml)", t.s.o.MaxTurnTime))
	}
}

// stop interrupts a turn that is past its budget.
func (t *turn) stop(why string) {
	t.emit(gateway.Event{SessionError: "the turn is stopped: " + why})
	t.s.r.spawn(func() {
		dropped, err := t.s.Interrupt(t.s.ctx, "past its budget")
		if err != nil {
			t.s.note(gateway.LogError, fmt.Sprintf("the turn could not be stopped, and goes on: %v", err))
		}
		if len(dropped) > 0 {
			t.s.note(gateway.LogWarning, gateway.DroppedPrompts(dropped))
		}
	})
}

// abandoned tells the gateway that prompts will not begin.
func (s *session) abandoned(prompts []*sentPrompt, why string) {
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
