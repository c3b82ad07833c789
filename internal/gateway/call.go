package gateway

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/internal/spans"
)

// call is one tool call, from the host's request to its outcome.
//
//	begin     BeginCall makes the call and runs it.
//	run       advance takes three steps: prepare (look up the tool, check the
//	          arguments), decide (match the rules), dispatch (send or queue). When
//	          the session's routes change between two steps it starts again.
//	gates     When a gate matches, a goroutine asks it (passGates) and runs advance
//	          again. Calls that match no gate need no goroutine. The same goroutine
//	          waits for required providers that are away.
//	pending   The provider has the call, or it waits for a slot. Whoever removes it
//	          from the provider's pending calls finishes it, so it ends exactly once.
//	finish    The outcome is reported, or the call runs again at another instance.
type call struct {
	// Fixed when the call begins.
	pending       *Pending
	session       *Session
	name          string
	callerArgs    protocol.Raw
	callerTimeout time.Duration // from begun on; 0: no limit
	span          spans.Span
	begun         time.Time
	checksRules   bool // false when the session's host asks rules and gates itself
	done          func(Outcome)
	hostID        string                               // of Call
	progress      func(string)                         // of Call, or nil
	asked         func(q adminapi.Question, over bool) // of Call, or nil
	// of Call; nil once another goroutine runs the call
	batch *Batch

	// Written by the goroutine that runs the call, before the call is pending.
	id         uuid.UUID
	idText     string // id as messages, records and spans have it; "" before it has one
	route      *route
	args       protocol.Raw // for the provider: callerArgs without target
	target     string       // the instance that the caller chose, "" for any
	tool       *tool
	failedTool *tool     // of the first attempt, when this is the second
	decidedBy  *routes   // the routes whose rules matched last
	passed     []*rule   // the matching rules whose gates allowed the call
	waitsUntil time.Time // for required providers; zero before the first wait
	context    string    // of Outcome

	// The tool's timeout runs from when the call was first queued or sent. A second
	// attempt has the rest of it.
	timeout  time.Duration
	deadline time.Time

	// Guarded by Provider.mu while the call is pending.
	isSent    bool // false while it waits for a slot
	keepsSlot bool // it was cancelled, and its slot is freed later
}

func init() { uuid.EnableRandPool() } // one system call for many ids

func newCallID() uuid.UUID {
	id, err := uuid.NewV7()
	if err != nil {
		panic(err) // only without a source of randomness
	}
	return id
}

// BeginCall starts a tool call. It calls done once with the outcome, from any
// goroutine and maybe before BeginCall returns; done must not block. Outcome.Data
// is not shared with others. The call ends at its timeout at the latest. See
// docs/protocol.md, "Calls".
func (s *Session) BeginCall(c Call, done func(Outcome)) *Pending {
	tc := &call{
		pending: &Pending{}, session: s, name: c.Name, callerArgs: c.Args, callerTimeout: c.Timeout,
		span: s.startCall(&c), begun: time.Now(), checksRules: !s.info.Hooks || c.AskGates,
		done: done, progress: c.Progress, hostID: c.HostID, asked: c.Asked, batch: c.Batch,
	}
	if len(tc.callerArgs) == 0 {
		tc.callerArgs = protocol.Raw("{}")
	}
	pending := tc.pending
	tc.run()
	return pending
}

// CallTool implements [HostCalls]: it runs [Session.BeginCall] and waits for the outcome. A
// host with [HostInfo].LiveTools gets the outcome of a call after the tools that the call
// changed, or a second later.
func (s *Session) CallTool(ctx context.Context, c Call) Outcome {
	answer := make(chan Outcome, 1)
	pending := s.BeginCall(c, func(o Outcome) { answer <- o })
	select {
	case o := <-answer:
		s.waitForRefresh(ctx)
		return o
	case <-ctx.Done():
		pending.Cancel(protocol.ReasonInterrupted)
		return <-answer
	}
}

// Execute is [Session.CallTool] for callers other than the session's host, such as the
// admin API. The session's rules and gates are asked, and followers of the session see the
// call as if its model had made it.
func (s *Session) Execute(ctx context.Context, c Call) Outcome {
	c.AskGates = true
	if c.Source != "" {
		s.note(adminapi.LogInfo, c.Source, "calls "+c.Name)
	}
	run := func() Outcome { return s.CallTool(ctx, c) }
	return reportExecution(s, "call-"+newCallID().String(), c.Name, string(c.Args), run)
}

// run takes the call to its provider. It does not wait: gates are asked in a
// goroutine.
func (c *call) run() {
	first := c.advance()
	if first == nil {
		return
	}
	ctx, cancel := c.gateContext()
	c.pending.setGates(cancel)
	c.session.setAskingGates(c.pending, true)
	c.batch = nil
	go func() {
		defer cancel()
		c.passGates(ctx, first)
	}()
}

// obstacle stops a call until required providers are back, or until the gates among rules
// have allowed it.
type obstacle struct {
	isAway bool
	rules  []*rule
}

// advance looks the tool up, decides about the call and dispatches it. It starts
// again when the session's routes changed meanwhile, for as long as gates have, so the
// provider gets the call by the routes by which it was checked and allowed. It returns
// the obstacle in the call's way; nil means that the call was sent, queued or ended.
func (c *call) advance() *obstacle {
	var latest time.Time
	for {
		r := c.session.routes.Load()
		if err := c.prepare(r); err != nil {
			if c.checksRules && r.find(c.name) == nil &&
				c.session.holder(r, nil, c.name, c.callerArgs) != nil {
				return &obstacle{isAway: true} // a provider that is away may have the tool
			}
			c.fail(err)
			return nil
		}
		if c.checksRules && !r.hasRulesOf(c.decidedBy) {
			matched := c.session.matchingRules(r, c.name, c.args)
			if c.session.holder(r, matched, c.name, c.args) != nil {
				return &obstacle{isAway: true}
			}
			if d, denied := c.session.staticDenial(matched, c.name, c.args,
				spans.Below(c.span.Traceparent)); denied {
				c.fail(errorf(protocol.CodeDenied, "%s", d.Denial()))
				return nil
			}
			c.decidedBy = r
			c.context = cmp.Or(c.context, staticContext(matched))
			if needsGate(matched) && !slices.Equal(matched, c.passed) {
				return &obstacle{rules: matched}
			}
		}
		dispatched, err := c.dispatch(r)
		switch {
		case err != nil:
			c.fail(err)
			return nil
		case dispatched:
			return nil
		case latest.IsZero(): // one slow round is no rapid change
			latest = time.Now().Add(protocol.GateTimeout)
		case time.Now().After(latest):
			c.failChangedTooFast()
			return nil
		}
	}
}

// prepare looks the tool up in r and checks the arguments, unless it checked them for the
// same tool before.
func (c *call) prepare(r *routes) *protocol.Error {
	to := r.find(c.name)
	switch {
	case to == nil:
		return errorf(protocol.CodeNotFound, "tool %q does not exist in this session", c.name)
	case to == c.route:
		return nil
	case c.route != nil && c.route.takesSameArgs(to):
		c.route = to
		return nil
	case c.route != nil && c.route.owner() != to.owner():
		c.decidedBy = nil // rules may match by the tool's provider
	}
	c.route, c.args, c.target = to, c.callerArgs, ""
	switch {
	case len(c.args) > protocol.MaxMessage:
		return errorf(protocol.CodePayloadTooLarge,
			"arguments of %s: %d bytes are over the limit of %d", c.name, len(c.args),
			protocol.MaxMessage)
	case c.args.Kind() != '{':
		return errorf(protocol.CodeInvalidArguments, "arguments of %s: must be an object", c.name)
	}
	if len(to.tools) == 0 {
		return nil
	}
	if to.merged {
		var ok bool
		if c.target, c.args, ok = splitTarget(c.args); !ok {
			return errorf(protocol.CodeInvalidArguments,
				"arguments of %s: /target: must be a string", c.name)
		}
	}
	if t := to.tools[0]; t.check {
		if err := c.session.checkArgs(t, c.args); err != nil {
			return errorf(protocol.CodeInvalidArguments, "arguments of %s: %v", c.name, err)
		}
	}
	return nil
}

func (s *Session) checkArgs(t *tool, args protocol.Raw) error {
	schema, err := s.g.schemas.get(t)
	if err != nil {
		return err // it compiled when it was registered
	}
	return schema.Check(args)
}

// dispatch chooses the call's provider and sends the call there, or queues it for a
// slot. A meta-tool is answered at once. It reports false when r is not the session's
// routes any more.
func (c *call) dispatch(r *routes) (bool, *protocol.Error) {
	if c.route.instances != "" {
		c.report(Outcome{Data: c.session.listInstances(c.route.instances)})
		return true, nil
	}
	t := c.route.choose(c.target, c.failedTool)
	if t == nil {
		return false, errorf(protocol.CodeNotFound, "%s: there is no instance %q; call %s",
			c.name, c.target, metaTool(c.route.owner()))
	}
	c.tool = t
	dispatched, err := c.addPending(r)
	if dispatched {
		c.batch.Add(t.provider.peer)
	}
	return dispatched, err
}

// addPending adds the call to its provider's pending calls and sends it, or queues it
// for a slot. It reports false when r is not the session's routes any more. The
// routes can't be swapped while it holds their lock, so no call of the old routes
// follows the ack of a change.
func (c *call) addPending(r *routes) (bool, *protocol.Error) {
	p := c.tool.provider
	p.mu.Lock()
	defer p.mu.Unlock()
	c.session.routesMu.RLock()
	defer c.session.routesMu.RUnlock()
	if c.session.routes.Load() != r {
		return false, nil
	}
	if p.isGone {
		return false, errorf(protocol.CodeDisconnected, "provider %q disconnected", p.name)
	}
	c.id = newCallID()
	c.idText = c.id.String()
	if reason := c.pending.setCall(c); reason != "" {
		return false, errorf(protocol.CodeCancelled, "%s", cancelledText(reason))
	}
	c.isSent = true
	if c.tool.slots != nil {
		acquired, full := c.tool.slots.acquire(c)
		if full {
			return false, errorf(protocol.CodeRateLimited, "%s: %d calls wait already",
				c.tool.Name, protocol.MaxQueuedCalls)
		}
		c.isSent = acquired
	}
	if c.deadline.IsZero() {
		c.setDeadline()
	}
	p.pending[c.id] = c
	c.session.g.touch()
	p.setAlarm(c.deadline)
	if c.isSent {
		c.send()
	}
	return true, nil
}

// setDeadline applies the shorter one of the tool's timeout, from now on, and the
// caller's, from the beginning of the call on.
func (c *call) setDeadline() {
	c.timeout, c.deadline = c.route.timeout, time.Now().Add(c.route.timeout)
	if d := c.begun.Add(c.callerTimeout); c.callerTimeout > 0 && d.Before(c.deadline) {
		c.timeout, c.deadline = c.callerTimeout, d
	}
}

// send queues the call's message on its provider's peer. Call with Provider.mu held.
func (c *call) send() {
	c.tool.provider.peer.Send(c.message())
}

func (c *call) message() *protocol.ToolCall {
	return &protocol.ToolCall{
		ID: c.idText, SessionID: c.session.id, Tool: c.tool.called, Args: c.args,
		Traceparent: c.span.Traceparent,
	}
}

// passGates removes the obstacles in the call's way, and lets the call go on when its gates
// allow it. When other rules match by then it asks those too, until the gates' time is over.
// Waits for required providers don't use up that time.
func (c *call) passGates(ctx context.Context, next *obstacle) {
	s := c.session
	defer s.setAskingGates(c.pending, false)
	latest := time.Now().Add(protocol.GateTimeout)
	for {
		var err *protocol.Error
		if next.isAway {
			begun := time.Now()
			err = c.awaitRequired(ctx)
			latest = latest.Add(time.Since(begun))
		} else {
			d := s.decide(ctx, next.rules, c.name, c.args, c.span.Traceparent)
			err = c.gateError(ctx, d)
			c.passed, c.context = next.rules, d.Context
		}
		if err != nil {
			c.fail(err)
			return
		}
		if next = c.advance(); next == nil {
			return
		}
		if time.Now().After(latest) {
			c.failChangedTooFast()
			return
		}
	}
}

// awaitRequired waits for the required providers that are away, no longer than the call may
// take. The error is why the call ends.
func (c *call) awaitRequired(ctx context.Context) *protocol.Error {
	if c.waitsUntil.IsZero() {
		limit := protocol.RequiredTimeout
		if c.route != nil {
			limit = min(limit, c.route.timeout)
		}
		if c.callerTimeout > 0 {
			limit = min(limit, c.callerTimeout)
		}
		c.waitsUntil = c.begun.Add(limit)
	}
	args := c.args
	if len(args) == 0 { // no tool of the name was found
		args = c.callerArgs
	}
	d := c.session.awaitRequired(ctx, c.waitsUntil, c.name, args, c.span.Traceparent)
	if d.Deny && !errors.Is(ctx.Err(), context.Canceled) { // it waited as long as the call may take
		return errorf(protocol.CodeDenied, "%s", d.Reason)
	}
	return c.gateError(ctx, d)
}

// gateError is why the call ends after its gates were asked; nil when it goes on.
func (c *call) gateError(ctx context.Context, d Decision) *protocol.Error {
	reason := c.pending.cancelledBy()
	switch {
	case reason != "":
		return errorf(protocol.CodeCancelled, "%s", cancelledText(reason))
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errorf(protocol.CodeTimeout, "%s was not allowed within %s", c.name,
			cmp.Or(c.timeout, c.callerTimeout))
	case ctx.Err() != nil:
		return errorf(protocol.CodeCancelled, "%s", cancelledText("the session has ended"))
	case d.Deny:
		return errorf(protocol.CodeDenied, "%s", d.Denial())
	}
	return nil
}

// gateContext returns a context for the questions to gates. It ends at the call's
// deadline, when the caller cancels the call, or with the session.
func (c *call) gateContext() (context.Context, context.CancelFunc) {
	switch {
	case !c.deadline.IsZero(): // it waited for a slot, or failed at another instance
		return context.WithDeadline(c.session.ctx, c.deadline)
	case c.callerTimeout > 0:
		return context.WithDeadline(c.session.ctx, c.begun.Add(c.callerTimeout))
	}
	return context.WithCancel(c.session.ctx)
}

// setAskingGates notes whether a call's gates are being asked, so that CancelCalls
// finds the call although no provider has it.
func (s *Session) setAskingGates(p *Pending, asking bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if asking {
		s.askingGates[p]++
		return
	}
	// A retry may ask gates before the attempt before it has noted that it is done.
	if s.askingGates[p]--; s.askingGates[p] == 0 {
		delete(s.askingGates, p)
	}
}

// rulesTooFast is the reason to deny a call when providers change their rules again
// and again while it is checked.
const rulesTooFast = "The providers' rules changed faster than they could be asked."

func (c *call) failChangedTooFast() {
	c.session.noteDenial("the gateway", c.name, rulesTooFast)
	c.fail(errorf(protocol.CodeDenied, "%s", rulesTooFast))
}

// finish ends a call that was removed from its provider's pending calls. After a
// retryable failure it runs the call again instead, at the next instance, once. Call
// under no lock.
func (c *call) finish(o Outcome) {
	if c.tool.slots != nil && c.isSent && !c.keepsSlot {
		defer c.tool.slots.release()
	}
	if o.Failed() && o.Retryable && c.canRetry() {
		second := c.copyToRetry()
		second.failedTool = c.tool
		second.run()
		return
	}
	c.report(o)
}

// canRetry reports whether another instance may be tried.
func (c *call) canRetry() bool {
	if c.target != "" || c.failedTool != nil || !c.route.merged || !time.Now().Before(c.deadline) {
		return false
	}
	to := c.session.routes.Load().find(c.name)
	return to != nil && to.choose("", c.tool) != nil
}

// copyToRetry returns a copy of the call to run once more. Cancel may still read the old one.
func (c *call) copyToRetry() *call {
	next := *c
	next.isSent, next.batch = false, nil
	return &next
}

// finishAll ends calls that were removed from pending. Call under no lock.
func finishAll(calls []*call, o Outcome) {
	for _, c := range calls {
		c.finish(o)
	}
}

// fail ends a call that is not pending.
func (c *call) fail(err *protocol.Error) {
	c.report(Outcome{Error: err.Message, ErrorCode: err.Code})
}

// report counts the call and gives its caller the outcome.
func (c *call) report(o Outcome) {
	now := time.Now()
	o.Duration = now.Sub(c.begun)
	if !o.Failed() {
		o.Context = c.context
	}
	stats := &c.session.g.stats
	stats.Calls.Add(1)
	if o.Failed() {
		stats.FailedCalls.Add(1)
	}
	stats.CallMicros.Add(uint64(o.Duration.Microseconds()))
	c.session.g.diag.noteCall(c, &o)
	if c.session.g.o.Recorder != nil {
		c.recordCall(&o, now)
	}
	c.endSpan(&o)
	c.countCall(&o)
	c.done(o)
}
