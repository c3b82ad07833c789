package gateway

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"tapgw/internal/protocol"
)

// Pending is a tool call that [Session.BeginCall] started, for its caller to cancel. It
// needs no closing, and stays valid after the call has ended.
type Pending struct {
	mu           sync.Mutex         // guards the fields below
	call         *call              // the last that was given to a provider, or nil
	cancelGates  context.CancelFunc // of the gates that were asked last, or nil
	cancelReason string             // of Cancel; "" before
}

// Cancel ends the call with CANCELLED and sends its provider a tool.cancel with the
// reason: "interrupted", for example. It does nothing when the call has ended. Any
// goroutine may call it, under no lock.
func (p *Pending) Cancel(reason string) {
	p.mu.Lock()
	p.cancelReason = cmp.Or(p.cancelReason, reason)
	c := p.call
	if p.cancelGates != nil {
		p.cancelGates()
	}
	p.mu.Unlock()
	if c == nil {
		return
	}
	provider := c.tool.provider
	ended := provider.cancelCalls(func(x *call) bool { return x == c }, reason)
	provider.peer.Flush()
	finishAll(ended, cancelledOutcome(reason))
}

func cancelledText(reason string) string { return "Cancelled: " + reason }

func cancelledOutcome(reason string) Outcome {
	return Outcome{Error: cancelledText(reason), ErrorCode: protocol.CodeCancelled}
}

// cancelledBy is the reason of Cancel; "" when it was not called.
func (p *Pending) cancelledBy() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cancelReason
}

// setCall tells Cancel which call to cancel. It returns the reason when Cancel came
// first; then the call must not be sent.
func (p *Pending) setCall(c *call) (cancelled string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.call = c
	return p.cancelReason
}

// setGates tells Cancel how to stop asking gates. When Cancel came first it stops them.
func (p *Pending) setGates(cancel context.CancelFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cancelGates = cancel
	if p.cancelReason != "" {
		cancel()
	}
}

// removePending removes a call from the provider's pending calls; nil when it ended
// before. When the provider was sent the call, its id is remembered for late answers.
// Call with p.mu held.
func (p *Provider) removePending(id uuid.UUID) *call {
	c := p.pending[id]
	if c == nil {
		return nil
	}
	delete(p.pending, id)
	p.notifyIfIdle()
	c.session.g.touch()
	if c.isSent {
		p.ended.add(id)
	}
	return c
}

// cancelPending removes a pending call and, when the provider was sent it, sends a
// tool.cancel. Call with p.mu held.
func (p *Provider) cancelPending(c *call, reason string) {
	p.removePending(c.id)
	if !c.isSent {
		c.tool.slots.dequeue(c)
		return
	}
	p.peer.Send(&protocol.ToolCancel{ID: c.idText, SessionID: c.session.id, Reason: reason})
	if c.tool.slots != nil {
		c.keepsSlot = true
		p.keepSlot(c.id, c.tool.slots)
	}
}

// cancelCalls cancels the pending calls that match, in the order in which they were
// begun, and returns them. The caller finishes them, under no lock.
func (p *Provider) cancelCalls(match func(*call) bool, reason string) []*call {
	p.mu.Lock()
	defer p.mu.Unlock()
	var ended []*call
	for _, c := range p.pending {
		if match(c) {
			ended = append(ended, c)
		}
	}
	sortCalls(ended)
	for _, c := range ended {
		p.cancelPending(c, reason)
	}
	return ended
}

// sortCalls sorts calls by their ids, which rise with time.
func sortCalls(calls []*call) {
	slices.SortFunc(calls, func(a, b *call) int { return bytes.Compare(a.id[:], b.id[:]) })
}

// disconnect marks the provider as gone, ends its gate checks and transform requests
// and frees its slots. It returns its pending calls for the caller to finish, under no
// lock.
func (p *Provider) disconnect() []*call {
	p.mu.Lock()
	p.isGone = true
	if p.alarm != nil {
		p.alarm.Stop()
		p.alarm = nil
	}
	ended := make([]*call, 0, len(p.pending))
	for id, c := range p.pending {
		if !c.isSent {
			c.tool.slots.dequeue(c)
		}
		ended = append(ended, p.removePending(id))
	}
	p.endRequests()
	var slots []uuid.UUID
	for id := range p.keptSlots {
		slots = append(slots, id)
	}
	p.mu.Unlock()
	for _, id := range slots {
		p.releaseKeptSlot(id)
	}
	return ended
}

// endRequests ends the gate checks and transform requests that the provider did not
// answer: gates fail, sections stay as they are. Call with p.mu held.
func (p *Provider) endRequests() {
	p.failGates()
	p.endTransformRequests()
}

// setAlarm makes sure that the alarm rings at a deadline or before. All calls of a
// provider share one alarm, and it stays set when they end early, as nearly all do: a
// timer for each call would wake the runtime's poller each time. Call with p.mu held.
func (p *Provider) setAlarm(deadline time.Time) {
	if p.alarm != nil && !deadline.Before(p.alarmAt) {
		return
	}
	if p.alarm != nil {
		p.alarm.Stop()
	}
	p.alarmAt = deadline
	p.alarm = time.AfterFunc(time.Until(deadline), p.expire)
}

// expire ends the calls whose deadline has come, with TIMEOUT.
func (p *Provider) expire() {
	p.mu.Lock()
	p.alarm = nil
	now := time.Now()
	var due []*call
	var next time.Time
	for _, c := range p.pending {
		switch {
		case !c.deadline.After(now):
			due = append(due, c)
		case next.IsZero() || c.deadline.Before(next):
			next = c.deadline
		}
	}
	sortCalls(due)
	for _, c := range due {
		p.cancelPending(c, protocol.ReasonTimeout)
	}
	if !next.IsZero() {
		p.setAlarm(next)
	}
	p.mu.Unlock()
	p.peer.Flush()
	for _, c := range due {
		text := fmt.Sprintf("%s did not answer within %s", c.tool.Name, c.timeout)
		c.finish(Outcome{Error: text, ErrorCode: protocol.CodeTimeout})
	}
}

// idleChannel returns a channel that is closed when no call is pending and no gate asked any
// more; nil when that is so now.
func (p *Provider) idleChannel() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending)+len(p.gateChecks) == 0 {
		return nil
	}
	if p.idle == nil {
		p.idle = make(chan struct{})
	}
	return p.idle
}

// notifyIfIdle closes the channel of idleChannel when that is so. Call with
// p.mu held.
func (p *Provider) notifyIfIdle() {
	if p.idle != nil && len(p.pending)+len(p.gateChecks) == 0 {
		close(p.idle)
		p.idle = nil
	}
}
