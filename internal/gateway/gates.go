package gateway

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"tapgw/internal/protocol"
	"tapgw/internal/spans"
)

// Decision is the decision of rules, gates and user hooks about a tool call. The zero value
// allows the call and adds nothing. See docs/protocol.md, "Rules and gates".
type Decision struct {
	Deny    bool
	Reason  string // of a denial, for the model
	By      string // the denier, for people: "provider ci", "hook no-push" or "the gateway"
	Context string // for the model when the call is allowed, or ""
}

// Denial returns the reason of a denial with the name of the provider or hook before it, for the
// model and for people: "provider ci: the build is red". Reasons of the gateway's own name it
// already.
func (d Decision) Denial() string {
	reason := cmp.Or(d.Reason, "denied")
	kind, name, _ := strings.Cut(d.By, " ")
	if kind == "provider" && !strings.Contains(reason, "provider '"+name+"'") ||
		kind == "hook" && !strings.Contains(reason, "ook "+name) {
		return d.By + ": " + reason
	}
	return reason
}

// PreToolUse implements [HostCalls]. Static denials come first. Then all gates are
// asked at once. A denial wins; contexts are joined in the order of registration. When
// other rules match by then, they are asked too, so that no call passes a gate that was
// not asked. A call waits for required providers that are away, 10 seconds in all. See
// docs/protocol.md, "Rules and gates".
func (s *Session) PreToolUse(ctx context.Context, tool string, args protocol.Raw) Decision {
	var until time.Time // of the waits for required providers
	for {
		r := s.routes.Load()
		matched := s.matchingRules(r, tool, args)
		if s.holder(r, matched, tool, args) == nil {
			if d, isFinal := s.askGates(ctx, r, matched, tool, args); isFinal {
				return d
			}
			continue
		}
		if until.IsZero() {
			until = time.Now().Add(protocol.RequiredTimeout)
		}
		waiting, done := s.interruptible(ctx)
		d := s.awaitRequired(waiting, until, tool, args, s.currentTurn())
		done()
		if d.Deny {
			return d
		}
	}
}

// askGates decides about a call by the rules of r that match it. The decision is not final
// when a required provider that has a say about the call left meanwhile.
func (s *Session) askGates(
	ctx context.Context, r *routes, matched []*rule, tool string, args protocol.Raw,
) (d Decision, isFinal bool) {
	// One deadline for all rounds: a provider that changes its rules at each gate.check
	// would keep the session asking.
	ctx, cancel := context.WithTimeout(ctx, protocol.GateTimeout)
	defer cancel()
	for {
		d := s.decide(ctx, matched, tool, args, "")
		now := s.routes.Load()
		if d.Deny || !needsGate(matched) || now.hasRulesOf(r) {
			return d, true
		}
		asked := matched
		r, matched = now, s.matchingRules(now, tool, args)
		switch {
		case s.holder(r, matched, tool, args) != nil:
			return Decision{}, false
		case slices.Equal(matched, asked):
			return d, true
		case ctx.Err() != nil:
			s.noteDenial("the gateway", tool, rulesTooFast)
			return Decision{Deny: true, Reason: rulesTooFast, By: "the gateway"}, true
		}
	}
}

func needsGate(rules []*rule) bool {
	return slices.ContainsFunc(rules, func(r *rule) bool { return r.Action == protocol.ActionGate })
}

// decide applies the rules that match a call: static denials, then gates, all at once.
// It returns at the first denial, and after protocol.GateTimeout at the latest.
func (s *Session) decide(
	ctx context.Context, rules []*rule, tool string, args protocol.Raw, parent string,
) (d Decision) {
	span := s.startGates(tool, parent, rules)
	defer func() {
		d.Reason = stripEscapes(d.Reason) // terminals show it
		endGates(span, d)
	}()
	if d, denied := s.staticDenial(rules, tool, args, span); denied {
		return d
	}
	begun := time.Now()
	answers := make(chan gateAnswer, len(rules))
	checks := map[int]*gateCheck{} // that have no answer yet, by the index of their rule
	contexts := make([]string, len(rules))
	for i, r := range rules {
		switch r.Action {
		case protocol.ActionGate:
			checks[i] = r.ask(s, i, tool, args, span.Traceparent, answers)
		case protocol.ActionContext:
			contexts[i] = r.Content
		}
	}
	defer func() {
		for _, check := range checks {
			check.stop()
		}
	}()
	// A caller that decides once has no deadline of its own.
	ctx, cancel := context.WithTimeout(ctx, protocol.GateTimeout)
	defer cancel()
	for len(checks) > 0 {
		select {
		case a := <-answers:
			delete(checks, a.index)
			d := s.gateDecision(rules[a.index], a, gateCall{tool, args, begun, span})
			if d.Deny {
				return d
			}
			contexts[a.index] = d.Context
		case <-ctx.Done():
			for i, r := range rules { // in order, so that the reason is always the same
				if checks[i] == nil {
					continue
				}
				if d := s.gateTimeout(ctx, r, gateCall{tool, args, begun, span}); d.Deny {
					return d
				}
			}
			return Decision{Context: joinTexts(contexts)}
		}
	}
	return Decision{Context: joinTexts(contexts)}
}

// gateCall is a call that rules decide about.
type gateCall struct {
	tool  string
	args  protocol.Raw
	begun time.Time // to ask
	span  spans.Span
}

// gateDecision turns a gate's answer into the decision about the call, and notes the answer.
func (s *Session) gateDecision(r *rule, a gateAnswer, c gateCall) Decision {
	switch {
	case a.failure != "" && r.FailOpen:
		s.noteGate(r, c, protocol.DecisionAllow, a.failure)
		return Decision{}
	case a.failure != "":
		s.noteGate(r, c, protocol.DecisionDeny, a.failure)
		return Decision{Deny: true, Reason: a.failure, By: r.owner()}
	}
	s.noteGate(r, c, a.decision, a.reason)
	switch a.decision {
	case protocol.DecisionDeny:
		return Decision{Deny: true, Reason: a.reason, By: r.owner()}
	case protocol.DecisionContext:
		return Decision{Context: a.reason}
	}
	return Decision{}
}

// gateTimeout is the decision of a gate that did not answer in time.
func (s *Session) gateTimeout(ctx context.Context, r *rule, c gateCall) Decision {
	reason := fmt.Sprintf("Gate provider '%s' did not respond in time.", r.provider.name)
	if r.hook != nil {
		reason = fmt.Sprintf("Hook %s did not answer in time.", r.hook.Name)
	}
	if r.FailOpen {
		s.noteGate(r, c, protocol.DecisionAllow, reason)
		r.noteFailOpen(ctx, s, c.tool, "no answer in time")
		return Decision{}
	}
	s.noteGate(r, c, protocol.DecisionDeny, reason)
	return Decision{Deny: true, Reason: reason, By: r.owner()}
}

// gateAnswer is the answer to a gate.check, or the reason why the gate did not answer.
type gateAnswer struct {
	index            int // of the rule
	decision, reason string
	failure          string
}

// gateCheck is a gate.check without an answer yet, or a user hook that runs.
type gateCheck struct {
	id       uuid.UUID
	provider *Provider
	index    int               // of the rule
	answers  chan<- gateAnswer // has room for one answer of each rule
	cancel   func()            // of a user hook, which has no id; else nil
}

// stop ends the wait: an answer that comes later is ignored.
func (g *gateCheck) stop() {
	if g.cancel != nil {
		g.cancel()
		return
	}
	g.provider.mu.Lock()
	defer g.provider.mu.Unlock()
	delete(g.provider.gateChecks, g.id)
	g.provider.notifyIfIdle()
}

func (g *gateCheck) fail(reason string) { g.answers <- gateAnswer{index: g.index, failure: reason} }

// ask sends the rule's gate.check to its provider, or runs its user hook. The answer
// comes on answers.
func (r *rule) ask(
	s *Session, index int, tool string, args protocol.Raw, trace string, answers chan<- gateAnswer,
) *gateCheck {
	if r.hook != nil {
		return r.askUserHook(s, index, tool, args, answers)
	}
	p := r.provider
	check := &gateCheck{id: newCallID(), provider: p, index: index, answers: answers}
	if len(args) == 0 || args.Kind() == 'n' {
		args = protocol.Raw("{}")
	}
	p.mu.Lock()
	if reason := p.whyNotAsked(args); reason != "" {
		p.mu.Unlock()
		check.fail(reason)
		return check
	}
	p.gateChecks[check.id] = check
	p.peer.Send(&protocol.GateCheck{
		GateID: r.GateID, CallID: check.id.String(), SessionID: s.id, Tool: tool, Args: args,
		Traceparent: trace,
	})
	p.mu.Unlock()
	p.peer.Flush()
	return check
}

// whyNotAsked is why the provider can't be sent a gate.check; "" when it can. Arguments
// over the size of a message would end its connection, and with it the gate. Call with
// p.mu held.
func (p *Provider) whyNotAsked(args protocol.Raw) string {
	switch {
	case p.isGone:
		return p.disconnectReason()
	case len(args) > protocol.MaxMessage:
		return fmt.Sprintf("The arguments are too long to ask gate provider '%s' about.", p.name)
	}
	return ""
}

func (p *Provider) disconnectReason() string {
	return fmt.Sprintf("Gate provider '%s' disconnected before it answered.", p.name)
}

// failGates fails all gate checks that the provider did not answer. Call with p.mu held.
func (p *Provider) failGates() {
	for id, check := range p.gateChecks {
		delete(p.gateChecks, id)
		p.notifyIfIdle()
		check.fail(p.disconnectReason())
	}
}

// removeGateCheck removes and returns the gate check that waits for its answer, or nil.
func (p *Provider) removeGateCheck(callID string) *gateCheck {
	id, err := uuid.Parse(callID)
	if err != nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	check := p.gateChecks[id]
	delete(p.gateChecks, id)
	p.notifyIfIdle()
	return check
}

// gateResult handles gate.result. One that answers no gate check is ignored and counted.
func (c *Conn) gateResult(m *protocol.GateResult) {
	check := c.provider.removeGateCheck(m.CallID)
	if check == nil {
		c.g.stats.Ignored.Add(1)
		return
	}
	reason := m.Reason
	if m.Decision == protocol.DecisionDeny {
		reason = cmp.Or(reason, fmt.Sprintf("Denied by gate provider '%s'.", c.provider.name))
	}
	check.answers <- gateAnswer{index: check.index, decision: m.Decision, reason: reason}
}

// failMalformedGate fails the gate check that a malformed gate.result names, if its
// callId can be read: an answer that can't be understood does not allow a call.
func (c *Conn) failMalformedGate(callID string) {
	if c.provider == nil {
		return
	}
	if check := c.provider.removeGateCheck(callID); check != nil {
		check.fail(fmt.Sprintf("Gate provider '%s' answered with a malformed message.",
			c.provider.name))
	}
}
