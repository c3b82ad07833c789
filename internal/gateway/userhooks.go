package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"tapgw/internal/match"
	"tapgw/internal/protocol"
)

// HookKind is when a hook of the user's own is asked.
type HookKind string

// Kinds of hooks.
const (
	HookSessionStart HookKind = "session_start"
	HookUserPrompt   HookKind = "user_prompt"
	HookPreToolUse   HookKind = "pre_tool_use"
	HookPostToolUse  HookKind = "post_tool_use"
	HookAgentStop    HookKind = "agent_stop"
	HookError        HookKind = "error"
	HookSessionEnd   HookKind = "session_end"
)

// Hook is a hook of the user's own.
type Hook struct {
	Name     string // for people
	On       HookKind
	Match    string // names of tools, with *; "" for all
	FailOpen bool   // of HookPreToolUse: a call that it can't decide on goes on
	Timeout  time.Duration
	// Ask gives the hook an event, as JSON, and returns what it says: "" for
	// nothing. It returns soon after ctx ended. The error is a [HookDenial]
	// where the hook denies without words of its own.
	Ask func(ctx context.Context, event []byte) (answer []byte, err error)
}

// HookDenial is that a hook denies, and why.
type HookDenial struct{ Reason string }

func (e *HookDenial) Error() string { return "denied: " + e.Reason }

// HookEvent is what a hook is told. Which members there are depends on the kind.
type HookEvent struct {
	On      HookKind  `json:"on"`
	TS      time.Time `json:"ts"`
	Session string    `json:"session"`
	Label   string    `json:"label"`
	Host    string    `json:"host"`
	CWD     string    `json:"cwd"`

	Prompt string       `json:"prompt,omitempty"` // user_prompt
	Source string       `json:"source,omitempty"` // whose it is, as in [Prompt].Source
	Tool   string       `json:"tool,omitempty"`   // pre_tool_use, post_tool_use
	Args   protocol.Raw `json:"args,omitempty"`
	Result string       `json:"result,omitempty"` // post_tool_use
	Error  string       `json:"error,omitempty"`  // post_tool_use of a tool that failed; error
	Reason string       `json:"reason,omitempty"` // session_end, agent_stop
	// Again: the agent goes on because of a hook already. agent_stop.
	Again bool `json:"again,omitempty"`
}

// HookAnswer is what a hook says. Decision is "", "allow" or "deny".
type HookAnswer struct {
	Decision string `json:"decision"`
	Reason   string `json:"reason"`
	Context  string `json:"context"` // for the model
}

// hooks are those of all sessions. They are replaced whole.
type hooks struct {
	rules []*rule // of HookPreToolUse
	all   []Hook
}

// SetHooks replaces the user's own hooks, in running sessions too.
func (g *Gateway) SetHooks(list []Hook) {
	h := &hooks{all: list}
	for i := range list {
		if hook := &list[i]; hook.On == HookPreToolUse {
			// It is asked as providers' gates are, so that all are asked at once.
			r := &rule{Rule: protocol.Rule{Action: protocol.ActionGate, GateID: hook.Name, FailOpen: hook.FailOpen}, provider: &Provider{name: hook.Name}, hook: hook}
			if hook.Match != "" {
				r.tool = match.NewToolGlob(hook.Match)
			}
			h.rules = append(h.rules, r)
		}
	}
	var given []*Session // up
	for {
		unasked := g.lockWithHooks(func() []*Session {
			if !h.needHost() {
				return nil
			}
			return slices.DeleteFunc(slices.Clone(g.order), func(s *Session) bool { return slices.Contains(given, s) })
		})
		if len(unasked) == 0 {
			break
		}
		// There is nobody to refuse: the user's word holds, and the sessions end.
		var ending sync.WaitGroup
		for _, u := range unasked {
			given = append(given, u.session)
			ending.Go(func() {
				u.session.interruptWithoutHooks()
				u.session.Ended("its hooks can't be asked: " + u.cause.Error())
			})
		}
		ending.Wait()
	}
	defer g.mu.Unlock()
	g.hooks.Store(h)
	for _, s := range g.order {
		s.rebuildRoutes()
	}
}

// hookRules are the rules that hold in every session.
func (g *Gateway) hookRules() []*rule {
	if h := g.hooks.Load(); h != nil {
		return h.rules
	}
	return nil
}

// hooksOn are the hooks of a kind that are about a tool.
func (s *Session) hooksOn(kind HookKind, tool string) []Hook {
	h := s.g.hooks.Load()
	if h == nil {
		return nil
	}
	var found []Hook
	for _, hook := range h.all {
		if hook.On == kind && (hook.Match == "" || s.toolMatches(match.NewToolGlob(hook.Match), tool)) {
			found = append(found, hook)
		}
	}
	return found
}

// toolMatches reports whether a glob is about a tool, by its name or one of the
// documents' for it.
func (s *Session) toolMatches(glob match.ToolGlob, tool string) bool {
	c := s.newToolCall(s.routes.Load(), tool, nil)
	return slices.ContainsFunc(append(c.aliases, tool), glob.Match)
}

// hookEvent is an event with what all have.
func (s *Session) hookEvent(e HookEvent) ([]byte, error) {
	e.TS, e.Session, e.Label, e.Host, e.CWD = time.Now().UTC(), s.id, s.label(), s.info.Kind, s.cwd
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // hooks look for what people wrote
	if err := enc.Encode(e); err != nil {
		return nil, fmt.Errorf("encoding the event: %w", err)
	}
	return b.Bytes(), nil
}

// askHook asks a hook and returns at its time at the latest, while the end of the
// session waits for what is left of it. The error says why there is no answer.
func (s *Session) askHook(ctx context.Context, h *Hook, event []byte) (HookAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	said := make(chan func() (HookAnswer, error), 1)
	asked := s.runHook(func() {
		answer, err := h.Ask(ctx, event)
		said <- func() (HookAnswer, error) { return h.read(answer, err) }
	})
	if !asked {
		return HookAnswer{}, ErrSessionEnded
	}
	select {
	case read := <-said:
		return read()
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return HookAnswer{}, fmt.Errorf("no answer within %s", h.Timeout)
		}
		return HookAnswer{}, ctx.Err()
	}
}

// read makes an answer of what a hook said.
func (h *Hook) read(said []byte, err error) (HookAnswer, error) {
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
	case len(bytes.TrimSpace(said)) == 0:
		return a, nil
	}
	if err := jsonv2.Unmarshal(said, &a, jsonv2.RejectUnknownMembers(true)); err != nil {
		why := protocol.Explain("answer", err)
		if errors.Is(err, jsonv2.ErrUnknownName) { // a typing error must not allow anything
			se, _ := errors.AsType[*jsonv2.SemanticError](err)
			why = fmt.Sprintf("answer: %q is none of these", se.JSONPointer.LastToken())
		}
		return HookAnswer{}, fmt.Errorf("it did not answer with JSON of decision, reason and context: %s", why)
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

// Hook implements [HostCalls].
func (s *Session) Hook(ctx context.Context, e HookEvent) HookAnswer {
	list := s.hooksOn(e.On, e.Tool)
	if len(list) == 0 {
		return HookAnswer{}
	}
	event, err := s.hookEvent(e)
	if err != nil {
		s.note(LogWarning, sourceGateway, fmt.Sprintf("hooks on %s were not asked: %v", e.On, err))
		return HookAnswer{}
	}
	answers := make([]HookAnswer, len(list))
	var wg sync.WaitGroup
	for i := range list {
		wg.Go(func() {
			var err error
			if answers[i], err = s.askHook(ctx, &list[i], event); err != nil && ctx.Err() == nil {
				s.note(LogWarning, sourceGateway, fmt.Sprintf("hook %s (%s): %v", list[i].Name, e.On, err))
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
	all.Context = join(contexts)
	return all
}

// askHooksLater asks the hooks of a kind while the session goes on.
func (s *Session) askHooksLater(e HookEvent) {
	if len(s.hooksOn(e.On, "")) > 0 {
		_ = s.runHook(func() { s.Hook(s.ctx, e) })
	}
}

// runHook runs what the end of the session waits for; false when it has come.
func (s *Session) runHook(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hooksClosed {
		return false
	}
	s.runningHooks.Go(f)
	return true
}

// askEndHooks asks the hooks of the session's end, as long as providers have to get
// ready for it. The channel is closed when all have answered.
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

// waitForHooks waits for hooks that are asked still; there are no more from now on.
func (s *Session) waitForHooks() {
	s.mu.Lock()
	s.hooksClosed = true
	s.mu.Unlock()
	s.runningHooks.Wait()
}

// askStartHooks asks the hooks of the session's start. What they say for the model
// goes with its first prompt.
func (s *Session) askStartHooks() {
	if len(s.hooksOn(HookSessionStart, "")) == 0 {
		return
	}
	said := make(chan string, 1)
	s.startContext.Store(&said)
	_ = s.runHook(func() { said <- s.Hook(s.ctx, HookEvent{On: HookSessionStart}).Context })
}

// promptHooks are the texts of hooks that go with a prompt.
func (s *Session) promptHooks(ctx context.Context, prompt, source string) string {
	var texts []string
	if said := s.startContext.Swap(nil); said != nil {
		select {
		case text := <-*said:
			texts = append(texts, text)
		case <-ctx.Done():
		case <-s.ctx.Done():
		}
	}
	return join(append(texts, s.Hook(ctx, HookEvent{On: HookUserPrompt, Prompt: prompt, Source: source}).Context))
}

// noteFailOpen says in the timeline that a call goes on although a hook that is open
// could not decide on it; nothing where nobody wants to know any more.
func (r *rule) noteFailOpen(ctx context.Context, s *Session, tool, why string) {
	if r.hook != nil && !errors.Is(ctx.Err(), context.Canceled) {
		s.note(LogWarning, sourceGateway, fmt.Sprintf("hook %s could not tell whether %s is allowed, so it is: %s", r.hook.Name, tool, why))
	}
}

// askUserHook asks a hook about a tool call, as [rule.ask] asks a provider.
func (r *rule) askUserHook(s *Session, index int, tool string, args protocol.Raw, answers chan<- gateAnswer) *gateWait {
	ctx, cancel := context.WithCancel(s.ctx)
	w := &gateWait{provider: r.provider, index: index, answers: answers, cancel: cancel}
	asked := s.runHook(func() {
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
			w.fail(fmt.Sprintf("Hook %s can't tell whether this is allowed: %v.", r.hook.Name, err))
		case a.Decision == protocol.DecisionDeny:
			reason := cmp.Or(a.Reason, fmt.Sprintf("Denied by hook %s.", r.hook.Name))
			answers <- gateAnswer{index: index, decision: a.Decision, reason: reason}
		case a.Context != "":
			answers <- gateAnswer{index: index, decision: protocol.DecisionContext, reason: a.Context}
		default:
			answers <- gateAnswer{index: index, decision: protocol.DecisionAllow}
		}
	})
	if !asked {
		cancel()
		w.fail("The session has ended.")
	}
	return w
}
