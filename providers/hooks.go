package providers

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"

	"tapgw/internal/protocol"
)

// Match says which tool calls of a session a rule is about, calls of the session's own tools
// included: all parts that are not empty must match (docs/protocol.md, "Match and patterns").
type Match struct {
	// Tool is a tool's name, or a glob with *. "shell", "edit" and "read" stand for the session's
	// tools that run commands, write files and read files.
	Tool string
	// Args is a JavaScript regular expression of at most 1 KiB. It is matched with the call's
	// arguments as compact JSON.
	Args string
	// File is a glob for the file in the call's arguments: "*.sql", "src/**".
	File string
	// Provider is the name of the tool's provider.
	Provider string
}

// Rule is a rule of a provider, made by [Provider.Deny], [Provider.AddContext] or [Provider.Gate].
// A provider may have 50 (docs/protocol.md, "Rules and gates").
type Rule struct {
	// Revision is the revision of the session's state in which the rule is in force; 0 if no
	// session was bound.
	Revision uint64

	// Fixed at creation.
	p      *Provider
	wire   protocol.Rule
	decide func(context.Context, GateCall) (Decision, error) // of a gate
}

// Deny adds a rule that denies the calls that match, with a reason for the model. An external
// provider needs a grant for rules, else the [*Error] is UNAUTHORIZED (docs/protocol.md, "Trust").
func (p *Provider) Deny(ctx context.Context, m Match, reason string) (*Rule, error) {
	return p.addRule(ctx, "adding a rule", m,
		&Rule{wire: protocol.Rule{Action: protocol.ActionDeny, Reason: reason}})
}

// AddContext adds a rule that gives the model a text with the calls that match. It does not stop
// them.
func (p *Provider) AddContext(ctx context.Context, m Match, text string) (*Rule, error) {
	return p.addRule(ctx, "adding a rule", m,
		&Rule{wire: protocol.Rule{Action: protocol.ActionContext, Content: text}})
}

// Gate adds a rule that asks decide about each call that matches, before the call runs
// (docs/protocol.md, "Rules and gates"). decide has five seconds, then its context ends. Without an
// answer by then, and while the connection is lost, the gateway denies the call, unless the option
// [FailOpen] is set. An error or a panic of decide always denies.
func (p *Provider) Gate(ctx context.Context, m Match,
	decide func(ctx context.Context, call GateCall) (Decision, error),
	opts ...func(*Rule)) (*Rule, error) {
	p.mu.Lock()
	p.gateCount++
	id := "gate-" + strconv.FormatUint(p.gateCount, 10)
	p.mu.Unlock()
	r := &Rule{wire: protocol.Rule{Action: protocol.ActionGate, GateID: id}, decide: decide}
	for _, opt := range opts {
		opt(r)
	}
	return p.addRule(ctx, "adding a gate", m, r)
}

// FailOpen is an option of [Provider.Gate]. It allows the calls that the gate did not answer in
// time, or that came while its provider was not connected. Use it for gates that help and do not
// protect.
func FailOpen(r *Rule) { r.wire.FailOpen = true }

func (p *Provider) addRule(ctx context.Context, what string, m Match, r *Rule) (*Rule, error) {
	r.p = p
	r.wire.Match = protocol.Match{Tool: m.Tool, Args: m.Args, File: m.File, Provider: m.Provider}
	revision, err := p.changeRules(ctx, what, func(rules []*Rule) []*Rule {
		return append(slices.Clone(rules), r)
	})
	if err != nil {
		return nil, err
	}
	r.Revision = revision
	return r, nil
}

// Remove removes the rule. To replace a rule without a moment between them, add the new one first.
// Removing a rule twice is no error.
func (r *Rule) Remove(ctx context.Context) (revision uint64, err error) {
	return r.p.changeRules(ctx, "removing a rule", func(rules []*Rule) []*Rule {
		return slices.DeleteFunc(slices.Clone(rules), func(other *Rule) bool { return other == r })
	})
}

func (p *Provider) changeRules(
	ctx context.Context, what string, edit func([]*Rule) []*Rule,
) (uint64, error) {
	return p.change(ctx, &change{what: what,
		apply: func(o *offer) error { o.rules = edit(o.rules); return nil },
		message: func(o *offer, session, id string) protocol.Message {
			return &protocol.HooksUpdate{RequestID: id, SessionID: session,
				OnPreToolUse: wireRules(o.rules)}
		},
	})
}

// wireRules makes the wire form of rules. It is never nil, because nil would leave the rules as
// they are.
func wireRules(rules []*Rule) []protocol.Rule {
	wire := make([]protocol.Rule, len(rules))
	for i, r := range rules {
		wire[i] = r.wire
	}
	return wire
}

// GateCall is a tool call that a gate decides about.
type GateCall struct {
	ID          string          // of this question, not of the call
	Session     string          // the id of the calling session
	Tool        string          // the tool's name in the session
	Args        json.RawMessage // JSON of an object
	Traceparent string          // W3C trace context of the caller, or ""
}

// Decision is the answer of a gate about a call: [Allow], [AllowWith] or [Deny]. The zero Decision
// denies.
type Decision struct {
	verdict string
	text    string
}

// Allow lets the call run.
func Allow() Decision { return Decision{verdict: protocol.DecisionAllow} }

// AllowWith lets the call run and gives the model a text with it.
func AllowWith(text string) Decision {
	return Decision{verdict: protocol.DecisionContext, text: text}
}

// Deny stops the call, with a reason for the model.
func Deny(reason string) Decision { return Decision{verdict: protocol.DecisionDeny, text: reason} }

// handleGate asks a gate of the user's about a call.
func (c *conn) handleGate(m *protocol.GateCheck) {
	p := c.run.p
	r, ok := lookup(p, func(o *offer) (*Rule, bool) {
		i := slices.IndexFunc(o.rules, func(r *Rule) bool {
			return r.wire.GateID == m.GateID && r.decide != nil
		})
		if i < 0 {
			return nil, false
		}
		return o.rules[i], true
	})
	answer := &protocol.GateResult{GateID: m.GateID, CallID: m.CallID,
		Decision: protocol.DecisionDeny}
	if !ok {
		answer.Reason = fmt.Sprintf("Provider %s has no gate %q.", p.name, m.GateID)
		_ = c.send(answer) // the reader notices an error
		return
	}
	ctx, cancel := context.WithTimeoutCause(c.ctx, protocol.GateTimeout,
		&CancelError{ReasonTimeout})
	call := GateCall{ID: m.CallID, Session: m.SessionID, Tool: m.Tool, Args: []byte(m.Args),
		Traceparent: m.Traceparent}
	c.run.wg.Go(func() {
		d := Deny("The gate's function ended its goroutine.")
		defer func() {
			c.sendDecision(ctx, answer, d)
			cancel()
		}()
		d = r.run(ctx, c.log, call)
	})
}

// sendDecision sends the decision of a gate.
func (c *conn) sendDecision(ctx context.Context, answer *protocol.GateResult, d Decision) {
	if ctx.Err() != nil {
		// The gateway has decided without the gate.
		c.log.Warn("gate did not decide in time", "gate", answer.GateID, "cause",
			context.Cause(ctx))
		return
	}
	answer.Decision, answer.Reason = d.verdict, d.text
	if err := c.write(c.ctx, answer); isTooLarge(err) {
		answer.Decision, answer.Reason = protocol.DecisionDeny,
			"The gate's answer is too large to be sent."
		_ = c.write(c.ctx, answer)
	}
}

// run runs the user's function. Only a clear decision allows the call.
func (r *Rule) run(ctx context.Context, log *slog.Logger, call GateCall) (d Decision) {
	var err error
	panicked := guard(log.With("tool", call.Tool), "gate", func() { d, err = r.decide(ctx, call) })
	switch {
	case panicked != nil:
		return Deny(fmt.Sprintf("The gate %v", panicked))
	case err != nil:
		return Deny(err.Error())
	case d.verdict == "":
		return Deny("The gate did not decide.")
	}
	return d
}
