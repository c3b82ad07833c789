package copilot

import (
	"context"
	"strconv"
	"tapgw/internal/gateway"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"
)

// idle handles that the runtime has nothing more to do. That may have been so
// before it got our last prompt.
func (t *tracker) idle() {
	t.endTurn("")
	if all, _ := t.s.unbegun(); len(all) > 0 {
		t.idleWithheld = true
		t.sync(false)
		return
	}
	t.reportIdle()
}

// assistantIdle notes that the agent has nothing more to do. The runtime says that the
// session is idle once it is saved too: where it can't be, nobody waits for that.
func (t *tracker) assistantIdle(e sdk.SessionEvent) {
	if e.AgentID != nil {
		return
	}
	t.agentDone = true
	if t.s.saveError.Load() != nil {
		t.sync(false)
	}
}

// sessionIdle is the runtime's word that the session is idle, and saved.
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
	case early && !aborted && !(t.isBusy && t.agentDone):
		return // of a turn that is over
	case aborted:
		t.markInterrupted() // the runtime may say that only after this
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

// reportUnsaved says, once while it lasts, that the runtime can't write the session down. It
// tries again by itself.
func (t *tracker) reportUnsaved(why string) {
	if t.s.saveError.Swap(&why) == nil {
		t.s.log.Error("the session can't be saved", "error", why)
		t.emit(gateway.Event{
			SessionError: "the session can't be saved, and what was said since is lost when the Copilot runtime ends (is the disk full?): " + why,
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
	t.s.expirePrompt() // a turn that failed or was stopped has not said its end
	t.s.calls.Idle()
}

// recheck looks again at an idle that was held back.
func (t *tracker) recheck() {
	if all, _ := t.s.unbegun(); t.idleWithheld && len(all) == 0 {
		t.reportIdle()
	}
}

// syncPoint is what was so when a sync was asked for.
type syncPoint struct {
	waiting []*sentPrompt // taken by the runtime, and not begun
	run     int           // its number
	aborted bool
}

// sync finds out whether what the session waits for will ever come: the end of a turn
// that was interrupted or can't be saved, or, where the session is idle already, the
// beginning of the prompts that hold this back. Nothing says so when the runtime loses
// one. If the runtime has no work, and it did not come by the time a line of ours came
// back after all events before it, it will not.
func (t *tracker) sync(aborted bool) {
	c := t.conn()
	if c == nil {
		return
	}
	_, waiting := t.s.unbegun()
	if t.idleWithheld && len(waiting) == 0 {
		return // Send is about to say what becomes of them
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
			_, err := c.sdk.RPC.Log(ctx, &rpc.LogRequest{Message: id, Level: &level, Type: &typ, Ephemeral: &ephemeral})
			return err
		})
	})
}

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
	case t.isBusy && was.run == t.turn.number && (t.agentDone || was.aborted):
		if t.turn.wasStopped {
			t.markInterrupted() // abortReported may have taken the event for that of an older turn
		}
		t.idleEarly = true
		t.idle()
	}
}
