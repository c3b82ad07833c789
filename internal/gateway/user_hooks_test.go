package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/protocol"
)

// hookOf is a hook that answers with a text.
func hookOf(kind HookKind, answer string) Hook {
	return Hook{
		Name:    "h",
		On:      kind,
		Timeout: time.Second,
		Ask:     func(context.Context, []byte) ([]byte, error) { return []byte(answer), nil },
	}
}

// heard is a hook that keeps what it was told.
type heard struct {
	mu     sync.Mutex
	events []HookEvent
}

func (h *heard) hook(kind HookKind) Hook {
	return Hook{
		Name:    "heard",
		On:      kind,
		Timeout: time.Second,
		Ask: func(_ context.Context, event []byte) ([]byte, error) {
			var e HookEvent
			err := json.Unmarshal(event, &e)
			h.mu.Lock()
			defer h.mu.Unlock()
			h.events = append(h.events, e)
			return nil, err
		},
	}
}

func (h *heard) all() []HookEvent {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]HookEvent(nil), h.events...)
}

// timelineText is all of a session's timeline.
func timelineText(s *Session) string {
	lines, _ := s.Timeline(0)
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(string(l.Level) + " " + l.Source + ": " + l.Message + "\n")
	}
	return b.String()
}

// What a hook says before a tool call decides on it, whoever calls.
func TestHookDecides(t *testing.T) {
	hang := Hook{
		Name:    "h",
		On:      HookPreToolUse,
		Timeout: time.Second,
		Ask: func(ctx context.Context, _ []byte) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}
	deaf := hang
	deaf.Ask = func(context.Context, []byte) ([]byte, error) {
		<-time.After(8 * time.Second)
		return []byte("{}"), nil
	}
	late := hang
	late.Timeout = time.Minute
	fails := func(err error) Hook {
		return Hook{
			Name:    "h",
			On:      HookPreToolUse,
			Timeout: time.Second,
			Ask:     func(context.Context, []byte) ([]byte, error) { return nil, err },
		}
	}
	for _, tt := range []struct {
		name    string
		hook    Hook
		match   string
		open    bool
		deny    string // part of the reason; "" when allowed
		context string
		warns   string
	}{
		{name: "silence allows", hook: hookOf(HookPreToolUse, "")},
		{name: "white space allows", hook: hookOf(HookPreToolUse, " \n")},
		{name: "nothing said allows", hook: hookOf(HookPreToolUse, "{}")},
		{name: "allows", hook: hookOf(HookPreToolUse, `{"decision":"allow"}`)},
		{name: "adds", hook: hookOf(HookPreToolUse, `{"context":"careful"}`), context: "careful"},
		{name: "denies", hook: hookOf(HookPreToolUse, `{"decision":"deny","reason":"not today"}`),
			deny: "not today"},
		{name: "denies, no reason", hook: hookOf(HookPreToolUse, `{"decision":"deny"}`),
			deny: "Denied by hook h."},
		{name: "denies where it is open",
			hook: hookOf(HookPreToolUse, `{"decision":"deny","reason":"no"}`), open: true,
			deny: "no"},
		{name: "exits with a code", hook: fails(&HookDenial{"exit code 1"}), open: true,
			deny: "exit code 1"},
		{name: "garbage", hook: hookOf(HookPreToolUse, "denied!"), deny: "Hook h can't tell"},
		{name: "garbage, open", hook: hookOf(HookPreToolUse, "denied!"), open: true,
			warns: "hook h could not tell whether greet is allowed, so it is: it did not answer with JSON"},
		{name: "a typing error", hook: hookOf(HookPreToolUse, `{"desicion":"deny"}`),
			deny: `"desicion"`},
		{name: "another decision", hook: hookOf(HookPreToolUse, `{"decision":"ask"}`),
			deny: `"ask" is neither allow nor deny`},
		{name: "breaks", hook: fails(errors.New("no such file")), deny: "no such file"},
		{name: "breaks, open", hook: fails(errors.New("no such file")), open: true,
			warns: "no such file"},
		{name: "hangs", hook: hang, deny: "no answer within 1s"},
		{name: "hangs, open", hook: hang, open: true, warns: "no answer within 1s"},
		{name: "does not even end", hook: deaf, deny: "no answer within 1s"},
		{name: "late, open", hook: late, open: true,
			warns: "hook h could not tell whether greet is allowed, so it is: no answer in time"},
		{name: "about another tool", hook: hookOf(HookPreToolUse, `{"decision":"deny"}`),
			match: "shell"},
		{name: "about tools like it",
			hook: hookOf(HookPreToolUse, `{"decision":"deny","reason":"no"}`), match: "gr*t",
			deny: "no"},
		{name: "of another kind", hook: hookOf(HookPostToolUse, `{"decision":"deny"}`)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, s, _ := joined(t)
				tt.hook.Match, tt.hook.FailOpen = tt.match, tt.open
				g.SetHooks([]Hook{tt.hook})
				args := protocol.Raw(`{"name":"x"}`)
				d := s.PreToolUse(t.Context(), "greet", args)
				if d.Deny != (tt.deny != "") || !strings.Contains(d.Reason, tt.deny) ||
					d.Context != tt.context {
					t.Errorf(
						"decided %+v, want a denial with %q: %v, and the context %q",
						d, tt.deny, tt.deny != "", tt.context,
					)
				}
				// A host without hooks: the gateway asks them itself.
				o := s.CallTool(t.Context(), Call{Name: "greet", Args: args})
				if (o.ErrorCode == protocol.CodeDenied) != (tt.deny != "") ||
					!strings.Contains(o.Error, tt.deny) {
					t.Errorf("the call ended with %s, want %q in it", o.Text(), tt.deny)
				}
				if text := timelineText(s); !strings.Contains(text, tt.warns) {
					t.Errorf("the timeline, want %q in it:\n%s", tt.warns, text)
				}
				if err := s.Stop(t.Context(), "done"); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A denial is one, whoever says it: providers' gates and hooks are asked at once.
func TestHookBesideRule(t *testing.T) {
	g, s, e := joined(t)
	h := &heard{}
	g.SetHooks([]Hook{h.hook(HookPreToolUse)})
	if d := s.PreToolUse(t.Context(), "greet", protocol.Raw(`{"name":"<&>"}`)); d.Deny {
		t.Errorf("decided %+v, want no denial", d)
	}
	if got := h.all(); len(got) != 1 || got[0].Tool != "greet" ||
		string(got[0].Args) != `{"name":"<&>"}` ||
		got[0].Session != "s1" || got[0].Label != "l" || got[0].CWD != "/c" ||
		got[0].Host != "test" || got[0].TS.IsZero() || got[0].On != HookPreToolUse {
		t.Errorf("was told %+v, want one event of the call with its session, time and arguments",
			got)
	}
	g.SetHooks(
		[]Hook{
			hookOf(HookPreToolUse, `{"context":"c"}`),
			hookOf(HookPreToolUse, `{"decision":"deny","reason":"by hook"}`),
		},
	)
	if d := s.PreToolUse(t.Context(), "greet", nil); d.Reason != "by hook" {
		t.Errorf(`decided %+v, want "by hook"`, d)
	}
	e.conn.Receive(protocol.Append(nil, &protocol.HooksUpdate{
		OnPreToolUse: []protocol.Rule{
			{Match: protocol.Match{Tool: "greet"}, Action: protocol.ActionDeny, Reason: "by rule"},
		},
	}))
	g.SetHooks([]Hook{hookOf(HookPreToolUse, `{"decision":"allow"}`)})
	if d := s.PreToolUse(t.Context(), "greet", nil); d.Reason != "by rule" {
		t.Errorf(`decided %+v, want "by rule"`, d)
	}
	// Hooks that are taken away decide nothing any more, in running sessions too.
	g.SetHooks(nil)
	e.conn.Receive(protocol.Append(nil, &protocol.HooksUpdate{OnPreToolUse: []protocol.Rule{}}))
	if d := s.PreToolUse(t.Context(), "greet", nil); d.Deny {
		t.Errorf("decided %+v, want no denial", d)
	}
}

// The documents' names for tools stand for the host's own.
func TestHookAlias(t *testing.T) {
	g := New(Options{})
	h := hookOf(HookPreToolUse, `{"decision":"deny","reason":"no shell"}`)
	h.Match = "shell"
	after := hookOf(HookPostToolUse, `{"context":"well done"}`)
	after.Match = "shell"
	g.SetHooks([]Hook{h, after})
	s, err := g.Register(SessionSpec{ID: "s"},
		HostInfo{Kind: "test", Hooks: true, Aliases: map[string][]string{"shell": {"bash"}}},
		quietHost{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Drain(context.Background()) })
	if d := s.PreToolUse(t.Context(), "bash", protocol.Raw(`{}`)); d.Reason != "no shell" {
		t.Errorf(`bash: %+v, want "no shell"`, d)
	}
	if d := s.PreToolUse(t.Context(), "view", protocol.Raw(`{}`)); d.Deny {
		t.Errorf("view: %+v, want no denial", d)
	}
	if a := s.Hook(t.Context(),
		HookEvent{On: HookPostToolUse, Tool: "bash"}); a.Context != "well done" {
		t.Errorf(`after bash: %+v, want "well done"`, a)
	}
	if a := s.Hook(t.Context(), HookEvent{On: HookPostToolUse, Tool: "view"}); a.Context != "" {
		t.Errorf(`after view: %+v, want ""`, a)
	}
}

// What hooks say at the start and about a prompt goes with prompts, once and each
// time.
func TestHookContext(t *testing.T) {
	g := New(Options{})
	h := &heard{}
	fails := hookOf(HookUserPrompt, "")
	fails.Ask = func(context.Context, []byte) ([]byte, error) {
		return nil, &HookDenial{"no such branch"}
	}
	g.SetHooks([]Hook{
		hookOf(HookSessionStart, `{"context":"the branch is red"}`),
		hookOf(HookUserPrompt, `{"context":"be brief"}`),
		h.hook(HookUserPrompt),
		hookOf(HookUserPrompt, "what?"),
		hookOf(HookUserPrompt, `{"decision":"deny"}`),
		fails,
	})
	s, err := g.Register(SessionSpec{ID: "s"}, HostInfo{Kind: "test", Send: true}, quietHost{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Drain(context.Background()) })
	if got := s.UserPrompt(t.Context(), "hello",
		SourceUser); got != "the branch is red\n\nbe brief" {
		t.Errorf("the first prompt: %q, want %q", got, "the branch is red\n\nbe brief")
	}
	if got := s.UserPrompt(t.Context(), "again", "provider:ci"); got != "be brief" {
		t.Errorf(`the second prompt: %q, want "be brief"`, got)
	}
	got := h.all()
	if len(got) != 2 || got[0].Prompt != "hello" || got[0].Source != SourceUser ||
		got[1].Source != "provider:ci" {
		t.Errorf("was told %+v, want the prompts of the user and of provider:ci", got)
	}
	for _, want := range []string{"it did not answer with JSON",
		"answer.decision: there is nothing to deny on user_prompt", "it failed: no such branch"} {
		if text := timelineText(s); !strings.Contains(text,
			"warning gateway: hook h (user_prompt): "+want) {
			t.Errorf("the timeline, want %q in it:\n%s",
				"warning gateway: hook h (user_prompt): "+want, text)
		}
	}
}

// The end of a session, and an error, are told; a hook that hangs holds the end up
// no longer than a provider may.
func TestHookAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Options{})
		h := &heard{}
		hang := hookOf(HookSessionEnd, "")
		hang.Timeout = time.Hour
		hang.Ask = func(ctx context.Context, _ []byte) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		g.SetHooks([]Hook{h.hook(HookSessionEnd), h.hook(HookError), hang})
		s, err := g.Register(SessionSpec{ID: "s"}, HostInfo{Kind: "test"}, quietHost{})
		if err != nil {
			t.Fatal(err)
		}
		s.Event(Event{SessionError: "no model"})
		synctest.Wait()
		begun := time.Now()
		if err := s.Stop(t.Context(), "enough"); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took != protocol.ShutdownDeadline {
			t.Errorf("the end took %s, want %s", took, protocol.ShutdownDeadline)
		}
		got := h.all()
		if len(got) != 2 || got[0].On != HookError || got[0].Error != "no model" ||
			got[1].On != HookSessionEnd || got[1].Reason != "enough" {
			t.Errorf(`was told %+v, want the error "no model" and the end "enough"`, got)
		}
		// Nothing is asked after it.
		s.Event(Event{SessionError: "late"})
		if d := s.PreToolUse(t.Context(), "x", nil); d.Deny {
			t.Errorf("no hook is about tool calls: %+v, want no denial", d)
		}
		if len(h.all()) != 2 {
			t.Errorf("was told of %+v after the end, want none", h.all())
		}
	})
}

// Whatever a hook says is an answer or a fault; what is not understood allows
// nothing.
func FuzzHookAnswer(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"decision":"deny"}`,
		`{"decision":"allow","context":"c"}`,
		`{"Decision":"deny"}`, `{"decision":"deny","decision":"allow"}`, "null", "[]", "\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		h := Hook{On: HookPreToolUse}
		a, err := h.readAnswer(said, nil)
		switch {
		case err != nil && a != HookAnswer{}:
			t.Errorf("%q is a fault and says %+v, want an empty answer with an error", said, a)
		case err == nil && a.Decision != "" && a.Decision != protocol.DecisionAllow &&
			a.Decision != protocol.DecisionDeny:
			t.Errorf("%q decides %q, want allow, deny or none", said, a.Decision)
		case err == nil && a == HookAnswer{} &&
			strings.Contains(strings.ToLower(string(said)), "deny") && !json.Valid(said):
			t.Errorf("%q is taken for nothing, want an error", said)
		}
	})
}

// An interrupt ends a call whose hook is asked; the hook is told to end.
func TestHookInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s, e := joined(t)
		ended := make(chan struct{})
		g.SetHooks([]Hook{
			{
				Name:     "h",
				On:       HookPreToolUse,
				Timeout:  4 * time.Second,
				FailOpen: true,
				Ask: func(ctx context.Context, _ []byte) ([]byte, error) {
					<-ctx.Done()
					close(ended)
					return nil, ctx.Err()
				},
			},
		})
		begun := time.Now()
		time.AfterFunc(time.Second, func() {
			if _, err := s.Interrupt(t.Context(), "enough"); err != nil {
				t.Error(err)
			}
		})
		o := s.CallTool(t.Context(), Call{Name: "greet", Args: protocol.Raw(`{"name":"x"}`)})
		if o.ErrorCode != protocol.CodeCancelled || time.Since(begun) != time.Second {
			t.Errorf(
				"the call ended with %s after %s, want ErrorCode %v and %s",
				o.Text(), time.Since(begun), protocol.CodeCancelled, time.Second,
			)
		}
		<-ended
		if text := timelineText(s); strings.Contains(text, "could not tell") {
			t.Errorf("the timeline speaks of a call that nobody wants:\n%s", text)
		}
		e.conn.Closed() // it would not get ready for the end
	})
}

// Hooks that change while they are asked are asked anew.
func TestHookChangesMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s, e := joined(t)
		g.SetHooks([]Hook{
			{
				Name:    "h",
				On:      HookPreToolUse,
				Timeout: 4 * time.Second,
				Ask: func(context.Context, []byte) ([]byte, error) {
					g.SetHooks([]Hook{hookOf(HookPreToolUse,
						`{"decision":"deny","reason":"by the new one"}`)})
					return nil, nil
				},
			},
		})
		if d := s.PreToolUse(t.Context(), "greet", nil); d.Reason != "by the new one" {
			t.Errorf(`decided %+v, want "by the new one"`, d)
		}
		e.conn.Closed()
	})
}

// Hooks of one session are asked there alone, beside the gateway's, also after those change.
func TestHooksOfASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, other, _ := joined(t)
		own, err := g.Register(
			SessionSpec{ID: "own", CWD: "/c", Hooks: []Hook{
				hookOf(HookPreToolUse, `{"decision":"deny","reason":"own"}`), hookOf(HookUserPrompt,
					`{"context":"own"}`),
			}},
			HostInfo{Kind: "test"}, quietHost{},
		)
		if err != nil {
			t.Fatal(err)
		}
		check := func(s *Session, want string, context string) {
			t.Helper()
			if d := s.PreToolUse(t.Context(), "greet",
				protocol.Raw(`{}`)); d.Deny != (want != "") ||
				!strings.Contains(want, d.Reason) {
				t.Errorf("session %s: denied with %q, want %q", s.ID(), d.Reason, want)
			}
			if got := s.UserPrompt(t.Context(), "hi", SourceUser); got != context {
				t.Errorf("session %s: the prompt gets %q, want %q", s.ID(), got, context)
			}
		}
		check(own, "own", "own")
		check(other, "", "")
		if !own.NeedsHooks() || other.NeedsHooks() {
			t.Errorf("need hooks: %v, %v, want true, false", own.NeedsHooks(), other.NeedsHooks())
		}
		g.SetHooks([]Hook{hookOf(HookPreToolUse, `{"decision":"deny","reason":"all"}`),
			hookOf(HookUserPrompt,
				`{"context":"all"}`)})
		check(own, "all or own", "all\n\nown")
		check(other, "all", "all")
		g.SetHooks(nil)
		check(own, "own", "own")
		check(other, "", "")
	})
}
