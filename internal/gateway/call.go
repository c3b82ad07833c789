package gateway

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"tapgw/internal/protocol"
)

// call is a tool call that a provider has to answer. It is in its provider's
// pending from when it is queued or sent; whoever takes it out ends it.
type call struct {
	id      uuid.UUID
	pending *Pending
	session *Session
	name    string // as the caller named it
	route   *route
	tool    *tool
	given   protocol.Raw // the arguments as the caller gave them
	args    protocol.Raw // as the provider gets them
	target  string       // the instance that the caller chose
	tried   *tool        // what a retry is not to use
	trace   string
	begun   time.Time     // when the caller called
	limit   time.Duration // the caller's own, from when it called; 0: none
	asks    bool          // the rules and gates, which its host asks otherwise
	asked   *routes       // whose rules were asked
	passed  []*rule       // those about it, gates among them, that let it go on
	done    func(Outcome)

	// The tool's timeout runs from when the call was first queued or sent, to
	// deadline at most; a retry has what is left.
	timeout  time.Duration
	deadline time.Time

	// Guarded by Provider.mu until the call is taken out of pending.
	sent    bool // not waiting for a slot
	lingers bool // cancelled: its slot is not free yet
}

// Pending is a call that was begun.
type Pending struct {
	mu        sync.Mutex
	call      *call              // in pending of its provider, or nil
	gates     context.CancelFunc // while gates are asked
	cancelled string             // the reason of Cancel
}

// Cancel ends the call with CANCELLED, unless it ended, and tells the provider
// why: "interrupted" and the like.
func (w *Pending) Cancel(reason string) {
	w.mu.Lock()
	w.cancelled = cmp.Or(w.cancelled, reason)
	k := w.call
	if w.gates != nil {
		w.gates()
	}
	w.mu.Unlock()
	if k == nil {
		return
	}
	p := k.tool.provider
	ended := p.cancelCall(k, reason)
	p.peer.Flush()
	finishAll(ended, cancelledOutcome(reason))
}

func cancelledOutcome(reason string) Outcome {
	return Outcome{Error: "Cancelled: " + reason, ErrorCode: protocol.CodeCancelled}
}

// hold notes where the call is, for Cancel. It returns why, when the caller gave
// up meanwhile.
func (w *Pending) hold(k *call) (reason string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.call = k
	return w.cancelled
}

// Else the system is asked for the randomness of each id.
func init() { uuid.EnableRandPool() }

func newCallID() uuid.UUID {
	id, err := uuid.NewV7()
	if err != nil {
		panic(err) // only without a source of randomness
	}
	return id
}

// BeginCall starts a tool call. done is called once, with its outcome, from
// whatever goroutine ends it, maybe before BeginCall returns; it must not block.
// The outcome's data shares memory that is nobody else's.
func (s *Session) BeginCall(c Call, done func(Outcome)) *Pending {
	if s.g.tracer != nil {
		c.Traceparent, done = s.traceCall(c, done)
	}
	w := &Pending{}
	k := &call{pending: w, session: s, name: c.Name, begun: time.Now(), given: c.Args, trace: c.Traceparent, limit: c.Timeout,
		asks: !s.info.Hooks || c.AskGates, done: done}
	if len(k.given) == 0 {
		k.given = protocol.Raw("{}")
	}
	r := s.routes.Load()
	if fault := k.prepare(r, c.Name); fault != nil {
		k.fail(fault)
		return w
	}
	k.proceed(r)
	return w
}

// proceed asks the rules about the call and dispatches it if they allow. Where
// gates are to be asked that goes on after it returned.
func (k *call) proceed(r *routes) {
	s, w := k.session, k.pending
	for {
		var matched []*rule
		if k.asks {
			matched = s.matchingRules(r, k.route.name, k.args)
		}
		if d, denied := s.staticDenial(matched, k.name); denied {
			k.fail(errorf(protocol.CodeDenied, "%s", d.Reason))
			return
		}
		if needsGate(matched) && !slices.Equal(matched, k.passed) {
			ctx, cancel := k.patience()
			w.mu.Lock()
			if w.gates = cancel; w.cancelled != "" { // while no provider had it
				cancel()
			}
			w.mu.Unlock()
			s.gated(w, true)
			go func() {
				defer cancel()
				k.gate(ctx, r, matched)
			}()
			return
		}
		if k.asked = r; k.dispatch() {
			return
		}
		r = s.routes.Load()
	}
}

// patience is how long the gates of a call are waited for, their own time apart:
// until the call's is over, the caller gives up or the session ends.
func (k *call) patience() (context.Context, context.CancelFunc) {
	switch {
	case !k.deadline.IsZero(): // it waited for a slot, or failed at another instance
		return context.WithDeadline(k.session.ctx, k.deadline)
	case k.limit > 0:
		return context.WithDeadline(k.session.ctx, k.begun.Add(k.limit))
	}
	return context.WithCancel(k.session.ctx)
}

// gated notes that a call's gates are asked, so that an interrupt finds it while
// no provider has it.
func (s *Session) gated(w *Pending, begin bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if begin {
		s.askingGates[w] = struct{}{}
	} else {
		delete(s.askingGates, w)
	}
}

// gate asks the gates of a call and lets it go on when they allow it.
func (k *call) gate(ctx context.Context, r *routes, matched []*rule) {
	s, name, args := k.session, k.route.name, k.args
	defer s.gated(k.pending, false)
	latest := time.Now().Add(protocol.GateTimeout)
	for {
		d := s.decide(ctx, matched, name, args, k.trace)
		k.pending.mu.Lock()
		reason := k.pending.cancelled
		k.pending.mu.Unlock()
		switch {
		case reason != "":
			k.fail(errorf(protocol.CodeCancelled, "%s", cancelledOutcome(reason).Error))
			return
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			k.fail(errorf(protocol.CodeTimeout, "%s was not allowed within %s", name, cmp.Or(k.timeout, k.limit)))
			return
		case ctx.Err() != nil:
			k.fail(errorf(protocol.CodeCancelled, "%s", cancelledOutcome("the session has ended").Error))
			return
		case d.Deny:
			k.fail(errorf(protocol.CodeDenied, "%s", d.Reason))
			return
		}
		// What joined meanwhile is asked too, if it is about the call.
		for k.passed = matched; slices.Equal(matched, k.passed); matched = s.matchingRules(r, name, args) {
			if k.asked = r; k.dispatch() {
				return
			}
			r = s.routes.Load()
		}
		if time.Now().After(latest) {
			s.noteDenial("the gateway", name, rulesTooFast)
			k.fail(errorf(protocol.CodeDenied, "%s", rulesTooFast))
			return
		}
	}
}

// rulesTooFast denies what providers kept changing their rules about.
const rulesTooFast = "The providers' rules changed faster than they could be asked."

// prepare finds the call's route and checks its arguments.
func (k *call) prepare(r *routes, name string) *protocol.Error {
	to := r.tools[name]
	if to == nil {
		return errorf(protocol.CodeNotFound, "tool %q does not exist in this session", name)
	}
	k.route, k.args, k.target = to, k.given, ""
	switch {
	case len(k.args) > protocol.MaxMessage:
		return errorf(protocol.CodePayloadTooLarge, "arguments of %s: %d bytes are over the limit of %d", name, len(k.args), protocol.MaxMessage)
	case k.args.Kind() != '{':
		return errorf(protocol.CodeInvalidArguments, "arguments of %s: must be an object", name)
	}
	if len(to.tools) == 0 {
		return nil
	}
	if to.merged {
		var ok bool
		if k.target, k.args, ok = takeTarget(k.args); !ok {
			return errorf(protocol.CodeInvalidArguments, "arguments of %s: /target: must be a string", name)
		}
	}
	t := to.tools[0]
	if t.check {
		if err := k.session.checkArgs(t, k.args); err != nil {
			return errorf(protocol.CodeInvalidArguments, "arguments of %s: %v", name, err)
		}
	}
	return nil
}

// fail ends a call that no provider has.
func (k *call) fail(e *protocol.Error) {
	k.end(Outcome{Error: e.Message, ErrorCode: e.Code})
}

// end tells the caller.
func (k *call) end(o Outcome) {
	o.Duration = time.Since(k.begun)
	stats := &k.session.g.stats
	stats.Calls.Add(1)
	if o.Failed() {
		stats.FailedCalls.Add(1)
	}
	stats.CallMicros.Add(uint64(o.Duration.Microseconds()))
	k.session.g.diag.noteCall(k, &o)
	k.done(o)
}

// dispatch gives the call to a provider, or ends it. It does neither and reports
// false when other rules may be about it than those that were asked.
func (k *call) dispatch() bool {
	s, name := k.session, k.route.name
	for {
		r := s.routes.Load()
		if k.asks && !r.hasRulesOf(k.asked) {
			return false
		}
		to := r.tools[name]
		if to != k.route {
			// Changed since: what is dispatched is checked as it is now.
			was := k.route.owner()
			if fault := k.prepare(r, name); fault != nil {
				k.fail(fault)
				return true
			}
			if k.asks && to.owner() != was {
				return false // rules may be about a provider's tools
			}
		}
		if to.instances != "" {
			k.end(Outcome{Data: s.listInstances(to.instances)})
			return true
		}
		t := to.choose(k.target, k.tried)
		if t == nil {
			k.fail(errorf(protocol.CodeNotFound, "%s: there is no instance %q; call %s", name, k.target, metaTool(to.owner())))
			return true
		}
		k.tool = t
		sent, fault := k.enter(r)
		if fault != nil {
			k.fail(fault)
			return true
		}
		if sent {
			t.provider.peer.Flush()
			return true
		}
	}
}

// goOn dispatches a call that no provider has any more, asking the rules again
// only if they changed.
func (k *call) goOn() {
	k.sent = false
	if !k.dispatch() {
		k.proceed(k.session.routes.Load())
	}
}

// enter puts the call into its provider's pending and sends it, or queues it for
// a slot. It reports false when the routes changed: they are not swapped while
// it looks and sends, so no call of the old state follows the ack of a change.
func (k *call) enter(r *routes) (bool, *protocol.Error) {
	p := k.tool.provider
	p.mu.Lock()
	defer p.mu.Unlock()
	k.session.swap.RLock()
	defer k.session.swap.RUnlock()
	if k.session.routes.Load() != r {
		return false, nil
	}
	if p.isGone {
		return false, errorf(protocol.CodeDisconnected, "provider %q disconnected", p.name)
	}
	k.id = newCallID()
	if reason := k.pending.hold(k); reason != "" {
		return false, errorf(protocol.CodeCancelled, "%s", cancelledOutcome(reason).Error)
	}
	if k.tool.slots != nil {
		in, full := k.tool.slots.enter(k)
		if full {
			return false, errorf(protocol.CodeRateLimited, "%s: %d calls wait already", k.tool.Name, protocol.MaxQueuedCalls)
		}
		k.sent = in
	} else {
		k.sent = true
	}
	if k.deadline.IsZero() {
		k.timeout, k.deadline = k.route.timeout, time.Now().Add(k.route.timeout)
		if own := k.begun.Add(k.limit); k.limit > 0 && own.Before(k.deadline) {
			k.timeout, k.deadline = k.limit, own
		}
	}
	p.pending[k.id] = k
	k.session.g.touch()
	p.watch(k.deadline)
	if k.sent {
		k.send()
	}
	return true, nil
}

// send queues the call's message. Call with Provider.mu held.
func (k *call) send() {
	p := k.tool.provider
	p.peer.Send(&protocol.ToolCall{ID: k.id.String(), SessionID: k.session.id, Tool: k.tool.called, Args: k.args, Traceparent: k.trace})
}

// watch sees to it that the alarm goes off at a deadline or before. One alarm
// serves all calls and is left alone when they end early, as nearly all do: a
// timer for each call would wake the runtime's poller for each. Call with p.mu
// held.
func (p *Provider) watch(deadline time.Time) {
	if p.alarm != nil && !deadline.Before(p.alarmAt) {
		return
	}
	if p.alarm != nil {
		p.alarm.Stop()
	}
	p.alarmAt = deadline
	p.alarm = time.AfterFunc(time.Until(deadline), p.expire)
}

// expire ends the calls whose deadline has come.
func (p *Provider) expire() {
	p.mu.Lock()
	p.alarm = nil
	now := time.Now()
	var due []*call
	var next time.Time
	for _, k := range p.pending {
		switch {
		case !k.deadline.After(now):
			due = append(due, k)
		case next.IsZero() || k.deadline.Before(next):
			next = k.deadline
		}
	}
	slices.SortFunc(due, func(a, b *call) int { return bytes.Compare(a.id[:], b.id[:]) })
	for _, k := range due {
		p.cancelPending(k, protocol.ReasonTimeout)
	}
	if !next.IsZero() {
		p.watch(next)
	}
	p.mu.Unlock()
	p.peer.Flush()
	for _, k := range due {
		k.finish(Outcome{Error: fmt.Sprintf("%s did not answer within %s", k.tool.Name, k.timeout), ErrorCode: protocol.CodeTimeout})
	}
}

// finish ends calls that were taken out of pending. Call under no lock.
func finishAll(calls []*call, o Outcome) {
	for _, k := range calls {
		k.finish(o)
	}
}

// finish ends a call that was taken out of pending, or gives it to the next
// instance, once.
func (k *call) finish(o Outcome) {
	if k.tool.slots != nil && k.sent && !k.lingers {
		defer k.tool.slots.free()
	}
	if o.Failed() && o.Retryable && k.target == "" && k.tried == nil && k.route.merged {
		r := k.session.routes.Load()
		if to := r.tools[k.route.name]; to != nil && to.choose("", k.tool) != nil && time.Now().Before(k.deadline) {
			retry := *k
			retry.tried = k.tool
			retry.goOn()
			return
		}
	}
	k.end(o)
}

func (s *Session) checkArgs(t *tool, args protocol.Raw) error {
	schema, err := s.g.schemas.get(t)
	if err != nil {
		return err // it compiled when it was registered
	}
	return schema.Check(args)
}

// CallTool implements [HostCalls].
func (s *Session) CallTool(ctx context.Context, c Call) Outcome {
	answer := make(chan Outcome, 1)
	w := s.BeginCall(c, func(o Outcome) { answer <- o })
	select {
	case o := <-answer:
		s.settle(ctx)
		return o
	case <-ctx.Done():
		w.Cancel(protocol.ReasonInterrupted)
		return <-answer
	}
}

// Execute is CallTool for who is not the session's host, asked as if its model
// called: through rules and gates, and told to all who follow the session.
func (s *Session) Execute(ctx context.Context, c Call) Outcome {
	c.AskGates = true
	return execute(s, "call-"+newCallID().String(), c.Name, string(c.Args), func() Outcome { return s.CallTool(ctx, c) })
}

// listInstances answers a meta-tool.
func (s *Session) listInstances(provider string) protocol.Raw {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	return s.routes.Load().listInstances(s.bindings, provider)
}
