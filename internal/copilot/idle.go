package copilot

import (
	"context"
	"strconv"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/gateway"
)

// Idleness: the runtime has no more work, or it has lost a prompt or the end of a turn.

// idle handles the runtime's report that it has no more work. The runtime may have sent the report
// before it got our last prompt; then the idle is withheld until the prompt begins or is lost.
func (t *tracker) idle() {
	t.endTurn("")
	if all, _ := t.s.unbegun(); len(all) > 0 {
		t.idleWithheld = true
		t.sync(false)
		return
	}
	t.reportIdle()
}

// assistantIdle handles that the agent is done. The runtime reports the session idle only after it
// saved the session. If saving fails, sync finds out that the turn is over.
func (t *tracker) assistantIdle(e sdk.SessionEvent) {
	if e.AgentID != nil {
		return
	}
	t.agentDone = true
	if t.s.saveError.Load() != nil {
		t.sync(false)
	}
}

// sessionIdle handles the runtime's report that the session is idle and saved.
func (t *tracker) sessionIdle(aborted bool) {
	t.s.markSaved()
	early := t.idleEarly
	t.idleEarly = false
	switch {
	case early && aborted && !t.turn.wasStopped:
		// The end of the interrupted turn before this one came late. If it is this
		// one's after all, sync ends it.
		if t.isBusy {
			t.sync(true)
		}
		return
	case early && !aborted && (!t.isBusy || !t.agentDone):
		return // that turn has ended already
	case aborted:
		t.markInterrupted() // the event of the abort may come after this one
	}
	t.idle()
}

// abortReported handles the runtime's word that it stopped a turn. A busy runtime may
// report that when the next turn has begun; the next turn goes on then.
func (t *tracker) abortReported() {
	if !t.idleEarly || t.turn.wasStopped {
		t.markInterrupted()
	}
}

// reportUnsaved reports once, while it lasts, that the runtime can't save the session. The runtime
// tries again by itself.
func (t *tracker) reportUnsaved(why string) {
	if t.s.saveError.Swap(&why) == nil {
		t.s.log.Error("the session can't be saved", "error", why)
		t.emit(gateway.Event{
			SessionError: "the session can't be saved, and what was said since is lost when the " +
				"Copilot runtime ends " +
				"(is the disk full?): " + why,
		})
	}
	if t.isBusy && t.agentDone {
		t.sync(false)
	}
}

// reportIdle tells the gateway that the session is idle.
func (t *tracker) reportIdle() {
	t.endParts("the turn ended")
	t.endAgent()
	t.endTurn("")
	t.isBusy, t.idleWithheld = false, false
	// the stop hook, which does this too, does not run after a failed or interrupted turn
	t.s.expirePrompt()
	t.s.calls.Idle()
}

// recheck reports an idle that was withheld, if no prompt waits any more.
func (t *tracker) recheck() {
	if all, _ := t.s.unbegun(); t.idleWithheld && len(all) == 0 {
		t.reportIdle()
	}
}

// syncPoint is the state when a sync was requested.
type syncPoint struct {
	waiting []*sentPrompt // prompts that the runtime had accepted and not begun
	turn    int           // the number of the turn
	aborted bool
}

// sync finds out whether something that the session waits for will never come: the end of a turn
// that was interrupted or can't be saved, or the beginning of prompts that an idle runtime has
// lost. The runtime does not report such a loss. So sync asks whether the runtime has work. If not,
// sync writes a line, which comes back as an event behind all earlier events. An end or a beginning
// that has not come by then will not come.
func (t *tracker) sync(aborted bool) {
	c := t.conn()
	if c == nil {
		return
	}
	_, waiting := t.s.unbegun()
	if t.idleWithheld && len(waiting) == 0 {
		return // Send is about to report their fate
	}
	t.syncCount++
	id := strconv.Itoa(t.syncCount)
	if t.pendingSyncs == nil {
		t.pendingSyncs = map[string]syncPoint{}
	}
	t.pendingSyncs[id] = syncPoint{waiting, t.turn.number, aborted}
	t.s.r.spawn(func() {
		activity, err := ask(t.s.ctx, c.process, askTimeout, c.sdk.RPC.Metadata.Activity)
		if err != nil || activity.HasActiveWork {
			return
		}
		level, typ, ephemeral := rpc.SessionLogLevelInfo, syncType, true
		_ = execute(t.s.ctx, c.process, askTimeout, func(ctx context.Context) error {
			_, err := c.sdk.RPC.Log(ctx, &rpc.LogRequest{Message: id, Level: &level, Type: &typ,
				Ephemeral: &ephemeral})
			return err
		})
	})
}

// syncReached handles a sync line that came back.
func (t *tracker) syncReached(id string) {
	was := t.pendingSyncs[id]
	delete(t.pendingSyncs, id)
	switch {
	case t.idleWithheld:
		why := "the Copilot runtime lost the prompt"
		if t.wasInterrupted {
			why = gateway.InterruptedBefore
		}
		t.s.reportDropped(t.s.removeSent(was.waiting), why)
		t.recheck()
	case t.isBusy && was.turn == t.turn.number && (t.agentDone || was.aborted):
		t.idleEarly = true
		if was.aborted || t.turn.wasStopped {
			t.markInterrupted() // the event of the abort may come after this one
		}
		t.idle()
	}
}
