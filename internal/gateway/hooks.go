package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"tapgw/internal/match"
	"tapgw/internal/protocol"
)

// rule is an onPreToolUse rule, compiled. It is fixed once made.
type rule struct {
	protocol.Rule
	provider *Provider
	tool     match.ToolGlob  // nil: any
	args     *match.Pattern  // nil: any
	file     *match.FileGlob // nil: any
	hook     *Hook           // asked instead of the provider, which only has its name; nil: none
}

// compileRules compiles the rules of a message; at is where they stand in it.
// The error is INVALID_JSON naming the field.
func (p *Provider) compileRules(at string, defs []protocol.Rule) ([]*rule, *protocol.Error) {
	rules := make([]*rule, len(defs))
	for i, d := range defs {
		r := &rule{Rule: d, provider: p}
		if normal := protocol.NormalName(d.Match.Provider); normal != "" {
			r.Match.Provider = normal
		}
		wrong := func(field string, err error) *protocol.Error {
			return errorf(protocol.CodeInvalidJSON, "%sonPreToolUse[%d].match.%s: %v", at, i, field, err)
		}
		if d.Match.Tool != "" {
			r.tool = match.NewToolGlob(d.Match.Tool)
		}
		if d.Match.Args != "" {
			var err error
			if r.args, err = match.Compile(d.Match.Args); err != nil {
				return nil, wrong("args", err)
			}
		}
		if d.Match.File != "" {
			var err error
			if r.file, err = match.CompileFileGlob(d.Match.File); err != nil {
				return nil, wrong("file", err)
			}
		}
		rules[i] = r
	}
	return rules, nil
}

// mayDeny reports whether the rule may deny, so that an undecided match counts as one.
func (r *rule) mayDeny() bool { return r.Action != protocol.ActionContext }

// toolCall is what rules are matched against. Text and files are made when the
// first rule asks.
type toolCall struct {
	tool     string
	aliases  []string // the documents' names for the tool
	provider string   // that owns the tool, "" for the session's own
	args     protocol.Raw

	text  *match.Text
	files []match.File
	read  bool
}

func (s *Session) newToolCall(r *routes, tool string, args protocol.Raw) *toolCall {
	c := &toolCall{tool: tool, args: args}
	if to := r.tools[tool]; to != nil {
		c.provider = to.owner()
	}
	for alias, names := range s.info.Aliases {
		if slices.Contains(names, tool) {
			c.aliases = append(c.aliases, alias)
		}
	}
	return c
}

func (c *toolCall) argsText() *match.Text {
	if c.text == nil {
		c.text = match.NewIndexedText(match.ArgsText(c.args))
	}
	return c.text
}

// paths are the files that the call names, by the names that tools use.
func (c *toolCall) paths() []match.File {
	if !c.read {
		c.read = true
		_ = protocol.Object(c.args, func(name string, v protocol.Raw) error {
			switch name {
			case "path", "file", "filePath", "file_path":
				if s, ok := protocol.Text(v); ok {
					c.files = append(c.files, match.NewFile(s))
				}
			}
			return nil
		})
	}
	return c.files
}

// match reports whether the rule is about the call. Cheap parts come first.
func (r *rule) match(c *toolCall, g *Gateway) bool {
	if r.Match.Provider != "" && r.Match.Provider != c.provider {
		return false
	}
	if r.tool != nil && !r.tool.Match(c.tool) && !slices.ContainsFunc(c.aliases, r.tool.Match) {
		return false
	}
	result := match.Yes
	if r.file != nil {
		if r.file.MatchesNoneIn(c.argsText()) {
			return false
		}
		result = match.No
		for _, file := range c.paths() {
			result = max(result, r.file.Match(file))
		}
	}
	if r.args != nil && result != match.No {
		result = min(result, r.args.Match(c.argsText()))
	}
	if result == match.Undecided {
		g.reportUndecided("hook rule", r.provider.name)
		return r.mayDeny()
	}
	return result == match.Yes
}

// reportUndecided counts and logs a match that was [match.Undecided].
func (g *Gateway) reportUndecided(what, provider string) {
	g.stats.UndecidedMatches.Add(1)
	g.log.Warn("a pattern took too long, or its text is too long", "of", what, "provider", provider)
}

// PreToolUse implements [HostCalls]. Static denials come first; then all gates
// are asked at once; any denial wins, and contexts are joined in the order in
// which their rules were registered. If other rules are about the call by then
// they are asked anew: nothing passes a gate that it did not ask.
func (s *Session) PreToolUse(ctx context.Context, tool string, args protocol.Raw) Decision {
	// One deadline for all rounds: a provider that changes its rules at each
	// question would otherwise keep the session asking.
	ctx, cancel := context.WithTimeout(ctx, protocol.GateTimeout)
	defer cancel()
	r := s.routes.Load()
	matched := s.matchingRules(r, tool, args)
	for {
		d := s.decide(ctx, matched, tool, args, "")
		now := s.routes.Load()
		if d.Deny || !needsGate(matched) || now.hasRulesOf(r) {
			return d
		}
		asked := matched
		r, matched = now, s.matchingRules(now, tool, args)
		switch {
		case slices.Equal(matched, asked):
			return d
		case ctx.Err() != nil:
			s.noteDenial("the gateway", tool, rulesTooFast)
			return Decision{Deny: true, Reason: rulesTooFast}
		}
	}
}

// matching finds the rules that are about a call.
func (s *Session) matchingRules(r *routes, tool string, args protocol.Raw) []*rule {
	if len(r.rules) == 0 {
		return nil
	}
	c := s.newToolCall(r, tool, args)
	var matched []*rule
	for _, rule := range r.rules {
		if rule.match(c, s.g) {
			matched = append(matched, rule)
		}
	}
	return matched
}

// staticDenial is what the rules say that ask nobody.
func (s *Session) staticDenial(rules []*rule, tool string) (Decision, bool) {
	for _, r := range rules {
		if r.Action == protocol.ActionDeny {
			reason := r.Reason
			if reason == "" {
				reason = fmt.Sprintf("Denied by a rule of provider '%s'.", r.provider.name)
			}
			s.noteGate(r, tool, protocol.DecisionDeny, reason, time.Now())
			return Decision{Deny: true, Reason: reason}, true
		}
	}
	return Decision{}, false
}

func needsGate(rules []*rule) bool {
	return slices.ContainsFunc(rules, func(r *rule) bool { return r.Action == protocol.ActionGate })
}

// decide asks the rules that match a call.
func (s *Session) decide(ctx context.Context, rules []*rule, tool string, args protocol.Raw, traceparent string) (d Decision) {
	if s.g.tracer != nil && needsGate(rules) {
		var ends func(Decision)
		traceparent, ends = s.traceGate(tool, traceparent, rules)
		defer func() { ends(d) }()
	}
	if d, denied := s.staticDenial(rules, tool); denied {
		return d
	}
	begun := time.Now()
	answers := make(chan gateAnswer, len(rules))
	waits := map[int]*gateWait{}
	for i, r := range rules {
		if r.Action == protocol.ActionGate {
			waits[i] = r.ask(s, i, tool, args, traceparent, answers)
		}
	}
	defer func() {
		for _, w := range waits {
			w.drop()
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, protocol.GateTimeout)
	defer cancel()
	contexts := make([]string, len(rules))
	for i, r := range rules {
		if r.Action == protocol.ActionContext {
			contexts[i] = r.Content
		}
	}
	for len(waits) > 0 {
		select {
		case a := <-answers:
			r := rules[a.index]
			delete(waits, a.index)
			switch {
			case a.failed != "" && r.FailOpen:
				s.noteGate(r, tool, protocol.DecisionAllow, a.failed, begun)
			case a.failed != "":
				s.noteGate(r, tool, protocol.DecisionDeny, a.failed, begun)
			default:
				s.noteGate(r, tool, a.decision, a.reason, begun)
			}
			switch {
			case a.failed != "" && !r.FailOpen:
				return Decision{Deny: true, Reason: a.failed}
			case a.decision == protocol.DecisionDeny:
				return Decision{Deny: true, Reason: a.reason}
			case a.decision == protocol.DecisionContext:
				contexts[a.index] = a.reason
			}
		case <-ctx.Done():
			for i, r := range rules { // in order, so that the reason is always the same
				if waits[i] != nil && r.FailOpen {
					s.noteGate(r, tool, protocol.DecisionAllow, r.late(), begun)
					r.noteFailOpen(ctx, s, tool, "no answer in time")
				} else if waits[i] != nil {
					s.noteGate(r, tool, protocol.DecisionDeny, r.late(), begun)
					return Decision{Deny: true, Reason: r.late()}
				}
			}
			return Decision{Context: join(contexts)}
		}
	}
	return Decision{Context: join(contexts)}
}

// late is why a gate that did not answer denies.
func (r *rule) late() string {
	if r.hook != nil {
		return fmt.Sprintf("Hook %s did not answer in time.", r.hook.Name)
	}
	return fmt.Sprintf("Gate provider '%s' did not respond in time.", r.provider.name)
}

// gateAnswer is what became of one gate.check: a decision, or why there is none.
type gateAnswer struct {
	index            int
	decision, reason string
	failed           string
}

// gateWait is a gate.check in flight.
type gateWait struct {
	id       uuid.UUID
	gateID   string
	provider *Provider
	index    int
	answers  chan<- gateAnswer // has room for one of each rule
	cancel   func()            // of a hook of the user's own, which has no id
}

// drop stops waiting: an answer that comes now is ignored.
func (w *gateWait) drop() {
	if w.cancel != nil {
		w.cancel()
		return
	}
	w.provider.mu.Lock()
	defer w.provider.mu.Unlock()
	delete(w.provider.gates, w.id)
}

// ask sends the rule's gate.check.
func (r *rule) ask(s *Session, index int, tool string, args protocol.Raw, traceparent string, answers chan<- gateAnswer) *gateWait {
	if r.hook != nil {
		return r.askUserHook(s, index, tool, args, answers)
	}
	p := r.provider
	w := &gateWait{id: newCallID(), gateID: r.GateID, provider: p, index: index, answers: answers}
	if len(args) == 0 || args.Kind() == 'n' {
		args = protocol.Raw("{}")
	}
	p.mu.Lock()
	if why := p.whyNotAsked(args); why != "" {
		p.mu.Unlock()
		w.fail(why)
		return w
	}
	p.gates[w.id] = w
	p.peer.Send(&protocol.GateCheck{GateID: r.GateID, CallID: w.id.String(), SessionID: s.id, Tool: tool, Args: args, Traceparent: traceparent})
	p.mu.Unlock()
	p.peer.Flush()
	return w
}

// whyNotAsked is why a gate is not asked; "" if it can be. More than a message may
// hold would end the provider's connection, and with it the gate. Call with p.mu
// held.
func (p *Provider) whyNotAsked(args protocol.Raw) string {
	switch {
	case p.isGone:
		return p.disconnectReason()
	case len(args) > protocol.MaxMessage:
		return fmt.Sprintf("The arguments are too long to ask gate provider '%s' about.", p.name)
	}
	return ""
}

func (w *gateWait) fail(why string) { w.answers <- gateAnswer{index: w.index, failed: why} }

func (p *Provider) disconnectReason() string {
	return fmt.Sprintf("Gate provider '%s' disconnected before it answered.", p.name)
}

// failGates fails the gates that the provider did not answer. Call with p.mu held.
func (p *Provider) failGates() {
	for id, w := range p.gates {
		delete(p.gates, id)
		w.fail(p.disconnectReason())
	}
}

func (c *Conn) gateResult(m *protocol.GateResult) {
	p := c.provider
	id, err := uuid.Parse(m.CallID)
	p.mu.Lock()
	w := p.gates[id]
	delete(p.gates, id)
	p.mu.Unlock()
	if err != nil || w == nil {
		c.g.stats.Ignored.Add(1)
		return
	}
	reason := m.Reason
	if m.Decision == protocol.DecisionDeny && reason == "" {
		reason = fmt.Sprintf("Denied by gate provider '%s'.", p.name)
	}
	w.answers <- gateAnswer{index: w.index, decision: m.Decision, reason: reason}
}

// failMalformedGate fails the gate that a malformed gate.result names, as far as its
// callId can be read: a provider that answers nonsense has not allowed.
func (c *Conn) failMalformedGate(callID string) {
	p := c.provider
	id, err := uuid.Parse(callID)
	if p == nil || err != nil {
		return
	}
	p.mu.Lock()
	w := p.gates[id]
	delete(p.gates, id)
	p.mu.Unlock()
	if w != nil {
		w.fail(fmt.Sprintf("Gate provider '%s' answered with a malformed message.", p.name))
	}
}

// join puts texts together with an empty line between.
func join(texts []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(texts), func(s string) bool { return s == "" }), "\n\n")
}

// warnUnmatchedRules tells the session's timeline of rules that can match no tool: a
// gate that never fires is a gate that is open. Of a host that asks about its own
// tools but did not name them nothing is known.
func (s *Session) warnUnmatchedRules(p *Provider, rules []*rule) {
	if s.info.Hooks && s.info.Tools == nil {
		return
	}
	names := slices.Collect(maps.Keys(s.routes.Load().tools))
	if s.info.Hooks {
		names = append(names, s.info.Tools...)
		for alias, tools := range s.info.Aliases {
			if len(tools) > 0 {
				names = append(names, alias)
			}
		}
	}
	for i, rule := range rules {
		if rule.tool != nil && !slices.ContainsFunc(names, rule.tool.Match) {
			s.note(LogWarning, sourceGateway, fmt.Sprintf("rule %d of provider %s matches no tool of this session: there is no %q", i, p.name, rule.Match.Tool))
		}
	}
}
