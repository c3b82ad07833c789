package providers

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strconv"

	"tapgw/internal/protocol"
)

// Match says which tool calls of a session, of its own tools too, a rule is
// about: those that every given part matches (docs/protocol.md, "Match and
// patterns").
type Match struct {
	// Tool is a tool's name, or a glob with *. "shell", "edit" and "read" are
	// whatever tools the session runs commands, writes and reads files with.
	Tool string
	// Args is a JavaScript regular expression, at most 1 KiB, that is tried on
	// the call's arguments as compact JSON.
	Args string
	// File is a glob for the file that the call names: "*.sql", "src/**".
	File string
	// Provider is the name of the provider that the tool belongs to.
	Provider string
}

// Rule is a rule that a provider holds: at most 50 of them (v2, "onPreToolUse
// rules").
type Rule struct {
	// Revision of the session's state from which on the rule holds; 0 if no
	// session was bound.
	Revision uint64

	// Fixed at creation.
	p      *Provider
	wire   protocol.Rule
	decide func(context.Context, GateCall) (Decision, error) // of a gate
}

// Deny adds a rule: the calls that match are denied, with a reason for the model.
func (p *Provider) Deny(ctx context.Context, m Match, reason string) (*Rule, error) {
	return p.addRule(ctx, "adding a rule", m, &Rule{wire: protocol.Rule{Action: protocol.ActionDeny, Reason: reason}})
}

// AddContext adds a rule: the model is told this text with the calls that match.
func (p *Provider) AddContext(ctx context.Context, m Match, text string) (*Rule, error) {
	return p.addRule(ctx, "adding a rule", m, &Rule{wire: protocol.Rule{Action: protocol.ActionContext, Content: text}})
}

// Gate adds a rule: decide is asked about the calls that match, before they
// run. It has five seconds, when its context ends; the gateway takes silence,
// and a lost connection, for a denial, unless [FailOpen] is among the options.
// An error or a panic of decide denies, always (v2, "Gate timeout behavior: fail
// closed").
func (p *Provider) Gate(ctx context.Context, m Match, decide func(ctx context.Context, call GateCall) (Decision, error),
	opts ...func(*Rule)) (*Rule, error) {
	p.mu.Lock()
	p.gates++
	id := "gate-" + strconv.FormatUint(p.gates, 10)
	p.mu.Unlock()
	r := &Rule{wire: protocol.Rule{Action: protocol.ActionGate, GateID: id}, decide: decide}
	for _, opt := range opts {
		opt(r)
	}
	return p.addRule(ctx, "adding a gate", m, r)
}

// FailOpen lets the calls of a gate run that it did not answer in time, or that
// came while it was not connected, as an option of [Provider.Gate]. For gates
// that are a convenience, not a guard.
func FailOpen(r *Rule) { r.wire.FailOpen = true }

func (p *Provider) addRule(ctx context.Context, what string, m Match, r *Rule) (*Rule, error) {
	r.p = p
	r.wire.Match = protocol.Match{Tool: m.Tool, Args: m.Args, File: m.File, Provider: m.Provider}
	revision, err := p.changeRules(ctx, what, func(rules []*Rule) []*Rule { return append(slices.Clone(rules), r) })
	if err != nil {
		return nil, err
	}
	r.Revision = revision
	return r, nil
}

// Remove takes the rule away. To change one without a moment in which no rule
// holds, add the new one first.
func (r *Rule) Remove(ctx context.Context) (revision uint64, err error) {
	return r.p.changeRules(ctx, "removing a rule", func(rules []*Rule) []*Rule {
		return slices.DeleteFunc(slices.Clone(rules), func(other *Rule) bool { return other == r })
	})
}

func (p *Provider) changeRules(ctx context.Context, what string, edit func([]*Rule) []*Rule) (uint64, error) {
	return p.change(ctx, &change{what: what,
		apply: func(o *offer) error { o.rules = edit(o.rules); return nil },
		message: func(o *offer, session, id string) protocol.Message {
			return &protocol.HooksUpdate{RequestID: id, SessionID: session, OnPreToolUse: wireRules(o.rules)}
		},
	})
}

// wireRules writes rules; never nil, because no rules is said too.
func wireRules(rules []*Rule) []protocol.Rule {
	wire := make([]protocol.Rule, len(rules))
	for i, r := range rules {
		wire[i] = r.wire
	}
	return wire
}

// GateCall is a tool call that a gate decides about.
type GateCall struct {
	ID          string // of this question
	Session     string // the id of the session that wants to call
	Tool        string // its name in the session
	Args        json.RawMessage
	Traceparent string // W3C trace context of the caller, "" if there was none
}

// Decision is what a gate says about a call. The zero Decision denies: a gate
// allows only where it says so.
type Decision struct {
	verdict string
	text    string
}

// Allow lets the call run.
func Allow() Decision { return Decision{verdict: protocol.DecisionAllow} }

// AllowWith lets the call run and tells the model something with it.
func AllowWith(text string) Decision {
	return Decision{verdict: protocol.DecisionContext, text: text}
}

// Deny stops the call, with a reason for the model.
func Deny(reason string) Decision { return Decision{verdict: protocol.DecisionDeny, text: reason} }

// check asks a gate of the user's.
func (c *conn) check(m *protocol.GateCheck) {
	p := c.run.p
	r, ok := lookup(p, func(o *offer) (*Rule, bool) {
		i := slices.IndexFunc(o.rules, func(r *Rule) bool { return r.wire.GateID == m.GateID && r.decide != nil })
		if i < 0 {
			return nil, false
		}
		return o.rules[i], true
	})
	answer := &protocol.GateResult{GateID: m.GateID, CallID: m.CallID, Decision: protocol.DecisionDeny}
	if !ok {
		answer.Reason = fmt.Sprintf("Provider %s has no gate %q.", p.name, m.GateID)
		_ = c.send(answer) // the reader notices
		return
	}
	ctx, cancel := context.WithTimeoutCause(c.ctx, protocol.GateTimeout, &CancelError{ReasonTimeout})
	call := GateCall{ID: m.CallID, Session: m.SessionID, Tool: m.Tool, Args: []byte(m.Args), Traceparent: m.Traceparent}
	c.run.wg.Go(func() {
		d := Deny("The gate's function ended its goroutine.")
		defer func() {
			c.decided(ctx, answer, d)
			cancel()
		}()
		d = r.ask(ctx, c.log, call)
	})
}

// decided sends what a gate decided.
func (c *conn) decided(ctx context.Context, answer *protocol.GateResult, d Decision) {
	if ctx.Err() != nil {
		// The gateway has decided by itself.
		c.log.Warn("gate did not decide in time", "gate", answer.GateID, "cause", context.Cause(ctx))
		return
	}
	answer.Decision, answer.Reason = d.verdict, d.text
	if err := c.write(c.ctx, answer); isTooLarge(err) {
		answer.Decision, answer.Reason = protocol.DecisionDeny, "The gate's answer is too large to be sent."
		_ = c.write(c.ctx, answer)
	}
}

// ask runs the user's function; whatever is not a clear yes is a no.
func (r *Rule) ask(ctx context.Context, log *slog.Logger, call GateCall) (d Decision) {
	defer func() {
		if v := recover(); v != nil {
			log.Error("gate panicked", "tool", call.Tool, "panic", v, "stack", string(debug.Stack()))
			d = Deny(fmt.Sprintf("The gate panicked: %v", v))
		}
	}()
	d, err := r.decide(ctx, call)
	switch {
	case err != nil:
		return Deny(err.Error())
	case d.verdict == "":
		return Deny("The gate did not decide.")
	}
	return d
}
