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

	jsonv2 "github.com/go-json-experiment/json"

	"tapgw/internal/adminapi"
	"tapgw/internal/match"
	"tapgw/internal/protocol"
)

// HookKind says when a user hook is asked, and so which fields of [HookEvent] it gets and
// which answer has an effect. See docs/hooks.md, "When".
type HookKind string

// Kinds of user hooks, as [[hooks]] in tapgw.toml writes them. Hosts ask HookPostToolUse
// and HookAgentStop through [HostCalls].Hook; the gateway asks the others itself.
const (
	HookSessionStart HookKind = "session_start"
	HookUserPrompt   HookKind = "user_prompt"
	HookPreToolUse   HookKind = "pre_tool_use"
	HookPostToolUse  HookKind = "post_tool_use"
	HookAgentStop    HookKind = "agent_stop"
	HookError        HookKind = "error"
	HookSessionEnd   HookKind = "session_end"
)

// Hook is a user hook: an entry of [[hooks]] in tapgw.toml, with a function that runs its
// program or requests its URL. [Gateway.SetHooks] gives the hooks to all sessions. See
// docs/hooks.md.
type Hook struct {
	Name     string // for people
	On       HookKind
	Match    string // a tool's name, * for any text in it; "" for all tools
	FailOpen bool   // of HookPreToolUse: a call goes on when the hook fails
	Timeout  time.Duration
	// Ask runs the program or requests the URL. event is a [HookEvent] as JSON, the
	// answer a [HookAnswer] as JSON or empty. It returns soon after ctx ends. The error
	// is a *[HookDenial] when the hook denies by its exit code or status.
	Ask func(ctx context.Context, event []byte) (answer []byte, err error)
}

// HookDenial is the error of a hook that denies without an answer in JSON, by its exit code
// or status. Only pre_tool_use can be denied so; for other kinds it is a failure.
type HookDenial struct{ Reason string }

// Error implements error: the reason of the user hook, after "denied: ".
func (e *HookDenial) Error() string { return "denied: " + e.Reason }

// HookEvent is the event that a user hook is asked about. The host or the gateway sets the members
// that the kind has. The gateway sets TS to CWD.
type HookEvent struct {
	On      HookKind  `json:"on"`
	TS      time.Time `json:"ts"`
	Session string    `json:"session"`
	Label   string    `json:"label"`
	Host    string    `json:"host"`
	CWD     string    `json:"cwd"`

	Prompt string       `json:"prompt,omitempty"` // user_prompt
	Source string       `json:"source,omitempty"` // of the prompt, as in [Prompt].Source
	Tool   string       `json:"tool,omitempty"`   // pre_tool_use, post_tool_use
	Args   protocol.Raw `json:"args,omitempty"`
	Result string       `json:"result,omitempty"` // post_tool_use
	Error  string       `json:"error,omitempty"`  // post_tool_use of a tool that failed; error
	Reason string       `json:"reason,omitempty"` // session_end, agent_stop
	// Again says that a hook already made the agent go on. agent_stop.
	Again bool `json:"again,omitempty"`
}

// HookAnswer is the answer of one user hook, or of several together. The zero value allows
// and adds nothing. Only hooks on pre_tool_use and agent_stop may deny. See docs/hooks.md,
// "How".
type HookAnswer struct {
	Decision string `json:"decision"` // allow, deny or ""
	Reason   string `json:"reason"`
	Context  string `json:"context"` // for the model
}

// userHooks are the user hooks of all sessions, or those of one session. They are immutable.
type userHooks struct {
	rules []*rule // one for each hook of HookPreToolUse
	all   []Hook
}

func newUserHooks(list []Hook) *userHooks {
	h := &userHooks{all: list}
	for i := range list {
		if hook := &list[i]; hook.On == HookPreToolUse {
			h.rules = append(h.rules, hook.rule())
		}
	}
	return h
}

// SetHooks replaces the user hooks, in running sessions too; nil removes all. A session
// whose host can't enable its hooks within 5 seconds ends, because the hooks must have
// effect everywhere.
func (g *Gateway) SetHooks(list []Hook) {
	h := newUserHooks(list)
	g.lockWithHooksOrEnd(func() []*Session {
		if !h.needHost() {
			return nil
		}
		return slices.Clone(g.order)
	})
	defer g.mu.Unlock()
	g.hooks.Store(h)
	for _, s := range g.order {
		s.rebuildRoutes()
	}
}

// rule makes the gate of a pre_tool_use hook, so that it is asked together with the
// gates of providers.
func (h *Hook) rule() *rule {
	r := &rule{
		Rule:     protocol.Rule{Action: protocol.ActionGate, GateID: h.Name, FailOpen: h.FailOpen},
		provider: &Provider{name: h.Name}, hook: h,
	}
	if h.Match != "" {
		r.tool = match.NewToolGlob(h.Match)
	}
	return r
}

// hookRules are the rules of user hooks, and of the session's own.
func (s *Session) hookRules() []*rule {
	own := s.ownHooks.rules
	if h := s.g.hooks.Load(); h != nil {
		return append(slices.Clip(h.rules), own...)
	}
	return own
}

// hooksOn returns the user hooks of a kind that match a tool, and the session's own.
func (s *Session) hooksOn(kind HookKind, tool string) []Hook {
	all := s.ownHooks.all
	if h := s.g.hooks.Load(); h != nil {
		all = append(slices.Clip(h.all), all...)
	}
	var found []Hook
	for _, hook := range all {
		if hook.On == kind &&
			(hook.Match == "" || s.toolMatches(match.NewToolGlob(hook.Match), tool)) {
			found = append(found, hook)
		}
	}
	return found
}

// toolMatches reports whether a glob matches a tool's name or one of its aliases.
func (s *Session) toolMatches(glob match.ToolGlob, tool string) bool {
	c := s.newToolCall(s.routes.Load(), tool, nil)
	return slices.ContainsFunc(append(c.aliases, tool), glob.Match)
}

// hookEvent sets the members that all kinds have and encodes the event.
func (s *Session) hookEvent(e HookEvent) ([]byte, error) {
	e.TS, e.Session, e.Label, e.Host, e.CWD = time.Now().UTC(), s.id, s.label(), s.info.Kind, s.cwd
	event, err := protocol.Marshal(e) // shell scripts search the text as people wrote it
	if err != nil {
		return nil, fmt.Errorf("encoding the event: %w", err)
	}
	return append(event, '\n'), nil
}

// askHook asks a user hook and waits for its timeout at most. The hook may run on; the
// end of the session waits for it. The error says why there is no answer.
func (s *Session) askHook(ctx context.Context, h *Hook, event []byte) (HookAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	type result struct {
		answer []byte
		err    error
	}
	results := make(chan result, 1)
	started := s.runHook(func() {
		answer, err := h.Ask(ctx, event)
		results <- result{answer, err}
	})
	if !started {
		return HookAnswer{}, ErrSessionEnded
	}
	select {
	case r := <-results:
		return h.readAnswer(r.answer, r.err)
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return HookAnswer{}, fmt.Errorf("no answer within %s", h.Timeout)
		}
		return HookAnswer{}, ctx.Err()
	}
}

// readAnswer decodes the result of [Hook].Ask. Unknown members are errors: a typing
// error must not allow a call.
func (h *Hook) readAnswer(text []byte, err error) (HookAnswer, error) {
	var a HookAnswer
	if denial, ok := errors.AsType[*HookDenial](err); ok {
		if h.On != HookPreToolUse {
			return a, fmt.Errorf("it failed: %s", denial.Reason)
		}
		return HookAnswer{Decision: protocol.DecisionDeny, Reason: denial.Reason}, nil
	}
	switch {
	case err != nil:
		return a, err
	case len(bytes.TrimSpace(text)) == 0:
		return a, nil
	}
	if err := jsonv2.Unmarshal(text, &a, jsonv2.RejectUnknownMembers(true)); err != nil {
		fault := protocol.Explain("answer", err)
		if errors.Is(err, jsonv2.ErrUnknownName) {
			se, _ := errors.AsType[*jsonv2.SemanticError](err)
			fault = fmt.Sprintf("answer: %q is none of these", se.JSONPointer.LastToken())
		}
		return HookAnswer{},
			fmt.Errorf("it did not answer with JSON of decision, reason and context: %s", fault)
	}
	switch {
	case a.Decision == "", a.Decision == protocol.DecisionAllow:
	case a.Decision != protocol.DecisionDeny:
		return HookAnswer{}, fmt.Errorf("answer.decision: %q is neither allow nor deny", a.Decision)
	case h.On != HookPreToolUse && h.On != HookAgentStop:
		return HookAnswer{}, fmt.Errorf("answer.decision: there is nothing to deny on %s", h.On)
	}
	return a, nil
}

// Hook implements [HostCalls]. It asks all user hooks of e's kind at once. The first
// denial in their order counts; contexts are joined. A hook that fails is a warning in
// the timeline.
func (s *Session) Hook(ctx context.Context, e HookEvent) HookAnswer {
	list := s.hooksOn(e.On, e.Tool)
	if len(list) == 0 {
		return HookAnswer{}
	}
	event, err := s.hookEvent(e)
	if err != nil {
		s.note(adminapi.LogWarning, sourceGateway, fmt.Sprintf("hooks on %s were not asked: %v",
			e.On, err))
		return HookAnswer{}
	}
	answers := make([]HookAnswer, len(list))
	var wg sync.WaitGroup
	for i := range list {
		wg.Go(func() {
			var err error
			if answers[i], err = s.askHook(ctx, &list[i], event); err != nil && ctx.Err() == nil {
				s.note(adminapi.LogWarning, sourceGateway,
					fmt.Sprintf("hook %s (%s): %v", list[i].Name, e.On, err))
			}
		})
	}
	wg.Wait()
	var all HookAnswer
	contexts := make([]string, len(answers))
	for i, a := range answers {
		contexts[i] = a.Context
		if a.Decision == protocol.DecisionDeny && all.Decision == "" {
			all.Decision, all.Reason = a.Decision, a.Reason
		}
	}
	all.Context = joinTexts(contexts)
	return all
}

// askHooksLater asks the user hooks of e's kind in a goroutine.
func (s *Session) askHooksLater(e HookEvent) {
	if len(s.hooksOn(e.On, "")) > 0 {
		_ = s.runHook(func() { s.Hook(s.ctx, e) })
	}
}

// runHook runs f in a goroutine that the end of the session waits for. It reports false,
// and does not run f, when the session has ended.
func (s *Session) runHook(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hooksClosed {
		return false
	}
	s.runningHooks.Go(f)
	return true
}

// askEndHooks asks the session_end hooks in a goroutine, for as long as providers have to
// get ready for the end. The channel is closed when all have answered.
func (s *Session) askEndHooks(ctx context.Context, reason string) <-chan struct{} {
	done := make(chan struct{})
	if len(s.hooksOn(HookSessionEnd, "")) == 0 {
		close(done)
		return done
	}
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), protocol.ShutdownDeadline)
		defer cancel()
		s.Hook(ctx, HookEvent{On: HookSessionEnd, Reason: reason})
	}()
	return done
}

// waitForHooks waits for the hooks that run. No hook can start after it.
func (s *Session) waitForHooks() {
	s.mu.Lock()
	s.hooksClosed = true
	s.mu.Unlock()
	s.runningHooks.Wait()
}

// askStartHooks asks the session_start hooks in a goroutine. Their context goes with the
// session's first prompt.
func (s *Session) askStartHooks() {
	if len(s.hooksOn(HookSessionStart, "")) == 0 {
		return
	}
	answer := make(chan string, 1)
	s.startContext.Store(&answer)
	_ = s.runHook(func() { answer <- s.Hook(s.ctx, HookEvent{On: HookSessionStart}).Context })
}

// promptHooks returns the context that user hooks add to a prompt.
func (s *Session) promptHooks(ctx context.Context, prompt, source string) string {
	var texts []string
	if answer := s.startContext.Swap(nil); answer != nil {
		select {
		case text := <-*answer:
			texts = append(texts, text)
		case <-ctx.Done():
		case <-s.ctx.Done():
		}
	}
	answer := s.Hook(ctx, HookEvent{On: HookUserPrompt, Prompt: prompt, Source: source})
	return joinTexts(append(texts, answer.Context))
}

// noteFailOpen adds a warning to the timeline when a call goes on although its user hook
// failed, unless the question was cancelled.
func (r *rule) noteFailOpen(ctx context.Context, s *Session, tool, failure string) {
	if r.hook != nil && !errors.Is(ctx.Err(), context.Canceled) {
		s.note(adminapi.LogWarning, sourceGateway, fmt.Sprintf(
			"hook %s could not tell whether %s is allowed, so it is: %s", r.hook.Name, tool,
			failure))
	}
}

// askUserHook runs the rule's user hook in a goroutine, as [rule.ask] asks a provider.
func (r *rule) askUserHook(
	s *Session, index int, tool string, args protocol.Raw, answers chan<- gateAnswer,
) *gateCheck {
	ctx, cancel := context.WithCancel(s.ctx)
	check := &gateCheck{provider: r.provider, index: index, answers: answers, cancel: cancel}
	started := s.runHook(func() {
		defer cancel()
		event, err := s.hookEvent(HookEvent{On: HookPreToolUse, Tool: tool, Args: args})
		var a HookAnswer
		if err == nil {
			a, err = s.askHook(ctx, r.hook, event)
		}
		switch {
		case err != nil:
			if r.FailOpen {
				r.noteFailOpen(ctx, s, tool, err.Error())
			}
			check.fail(fmt.Sprintf("Hook %s can't tell whether this is allowed: %v.", r.hook.Name,
				err))
		case a.Decision == protocol.DecisionDeny:
			reason := cmp.Or(a.Reason, fmt.Sprintf("Denied by hook %s.", r.hook.Name))
			answers <- gateAnswer{index: index, decision: a.Decision, reason: reason}
		case a.Context != "":
			answers <- gateAnswer{index: index, decision: protocol.DecisionContext,
				reason: a.Context}
		default:
			answers <- gateAnswer{index: index, decision: protocol.DecisionAllow}
		}
	})
	if !started {
		cancel()
		check.fail("The session has ended.")
	}
	return check
}
