//go:build runtime

package copilot

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tapgw/configs"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/internal/scriptmodel"
)

// withUserHooks is a real session in a real gateway with hooks of the user's own.
func withUserHooks(
	t *testing.T, script scriptmodel.ReplyFunc, hooks ...gateway.Hook,
) (*rig, *gateway.Session) {
	t.Helper()
	g := newRigWith(t, script, func(o *Options) {
		o.Permissions.Shell = configs.Allow
	})
	gw := gateway.New(gateway.Options{Starters: map[string]gateway.Starter{Kind: g.r}})
	gw.SetHooks(hooks)
	s, err := gw.Start(g.ctx, gateway.StartRequest{Host: Kind, Model: scriptmodel.ModelID,
		CWD: g.cwd, Label: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		gw.Drain(ctx)
	})
	return g, s
}

// answerTo prompts a session, waits for the end of the turn and returns what the
// model said.
func answerTo(t *testing.T, ctx context.Context, s *gateway.Session, prompt string) string {
	t.Helper()
	cursor, err := s.Prompt(ctx, gateway.Prompt{Text: prompt, Source: gateway.SourceUser})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	said := ""
	for {
		var lines []gateway.LiveLine
		lines, cursor = s.Live(cursor)
		for _, l := range lines {
			switch l.Event.Callback {
			case gateway.OnEndMessage:
				said = l.Event.Content
			case gateway.OnIdle:
				return said
			}
		}
		if err := s.WaitLive(ctx, cursor); err != nil {
			t.Fatal(err)
		}
	}
}

func hook(
	kind gateway.HookKind, match string, ask func(ctx context.Context, e gateway.HookEvent) (string,
		error),
) gateway.Hook {
	return gateway.Hook{
		Name:    "own",
		On:      kind,
		Match:   match,
		Timeout: 5 * time.Second,
		Ask: func(ctx context.Context, event []byte) ([]byte, error) {
			var e gateway.HookEvent
			if err := json.Unmarshal(event, &e); err != nil {
				return nil, err
			}
			said, err := ask(ctx, e)
			return []byte(said), err
		},
	}
}

func answeringHook(kind gateway.HookKind, match, answer string) gateway.Hook {
	return hook(kind, match, func(context.Context, gateway.HookEvent) (string, error) {
		return answer, nil
	})
}

// A hook that denies keeps the runtime's own shell from running: by a decision,
// by an exit code, by silence.
func TestHookKeepsShellFromRunning(t *testing.T) {
	hang := hook(gateway.HookPreToolUse, "shell",
		func(ctx context.Context, _ gateway.HookEvent) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
	hang.Timeout = 100 * time.Millisecond
	open := hang
	open.FailOpen = true
	denial := hook(gateway.HookPreToolUse, "shell",
		func(context.Context, gateway.HookEvent) (string, error) {
			return "", &gateway.HookDenial{Reason: "not on a Friday"}
		})
	for _, tt := range []struct {
		name string
		hook gateway.Hook
		runs bool
		says string
	}{
		{
			"denied", answeringHook(gateway.HookPreToolUse, "shell",
				`{"decision":"deny","reason":"no shell today"}`),
			false, "no shell today",
		},
		{"exit code", denial, false, "not on a Friday"},
		{"garbage", answeringHook(gateway.HookPreToolUse, "shell", "what?"), false,
			"did not answer with JSON"},
		{"time-out", hang, false, "no answer within 100ms"},
		{"time-out, open", open, true, ""},
		{"allowed", answeringHook(gateway.HookPreToolUse, "shell", `{"decision":"allow"}`), true,
			""},
		{"about another tool", answeringHook(gateway.HookPreToolUse, "edit", `{"decision":"deny"}`),
			true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g, s := withUserHooks(t, scriptmodel.Calls, tt.hook)
			file := filepath.Join(g.cwd, "made")
			said := answerTo(t, g.ctx, s,
				`call:bash {"command":"touch made","description":"makes a file"}`)
			if _, err := os.Stat(file); (err == nil) != tt.runs {
				t.Errorf("the shell ran: %v; the model was told %q, want %v", err == nil, said,
					tt.runs)
			}
			if !strings.Contains(said, tt.says) {
				t.Errorf("the model was told %q, not %q", said, tt.says)
			}
		})
	}
}

// Hooks of the user's own do not pass over the permissions: what they allow may
// still be denied.
func TestHookIsNoPermission(t *testing.T) {
	g := newRig(t)
	gw := gateway.New(gateway.Options{Starters: map[string]gateway.Starter{Kind: g.r}})
	gw.SetHooks([]gateway.Hook{answeringHook(gateway.HookPreToolUse, "", `{"decision":"allow"}`)})
	s, err := gw.Start(g.ctx, gateway.StartRequest{Host: Kind, Model: scriptmodel.ModelID,
		CWD: g.cwd})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gw.Drain(context.Background()) })
	answerTo(t, g.ctx, s, `call:bash {"command":"touch made","description":"makes a file"}`)
	if _, err := os.Stat(filepath.Join(g.cwd, "made")); err == nil {
		t.Error("the shell made the file although permissions deny it, want no file")
	}
}

// What hooks add reaches the model: at the start, with a prompt, before and after
// a tool call.
func TestHookContextReachesModel(t *testing.T) {
	var events []gateway.HookEvent
	keep := func(kind gateway.HookKind, answer string) gateway.Hook {
		return hook(kind, "", func(_ context.Context, e gateway.HookEvent) (string, error) {
			events = append(events, e) // they come one after the other
			return answer, nil
		})
	}
	g, s := withUserHooks(t, scriptmodel.Calls,
		keep(gateway.HookSessionStart, `{"context":"CONTEXT-OF-START"}`),
		keep(gateway.HookUserPrompt, `{"context":"CONTEXT-OF-PROMPT"}`),
		keep(gateway.HookPreToolUse, `{"context":"CONTEXT-BEFORE"}`),
		keep(gateway.HookPostToolUse, `{"context":"CONTEXT-AFTER"}`),
	)
	answerTo(t, g.ctx, s, `call:bash {"command":"echo out","description":"says something"}`)
	answerTo(t, g.ctx, s, `call:view {"path":"missing"}`)
	requests := g.model.Requests()
	var last strings.Builder
	for _, m := range requests[len(requests)-1].Messages {
		if m.Role != "assistant" { // which repeats what it read
			last.WriteString(m.Text + "\n")
		}
	}
	for text, times := range map[string]int{
		"CONTEXT-OF-START": 1, "CONTEXT-OF-PROMPT": 2, "CONTEXT-BEFORE": 2, "CONTEXT-AFTER": 2,
	} {
		if n := strings.Count(last.String(), text); n != times {
			t.Errorf("the model saw %s %d times, not %d:\n%s", text, n, times, last.String())
		}
	}
	byKind := map[gateway.HookKind][]gateway.HookEvent{}
	for _, e := range events {
		byKind[e.On] = append(byKind[e.On], e)
		if e.Session != s.ID() || e.Host != Kind || e.CWD != g.cwd || e.Label != "test" {
			t.Errorf(`was told %+v, want Session %v, Host %v, CWD %v and Label "test"`, e, s.ID(),
				Kind, g.cwd)
		}
	}
	if e := byKind[gateway.HookPreToolUse]; len(e) != 2 || e[0].Tool != "bash" ||
		!strings.Contains(string(e[0].Args), "echo out") {
		t.Errorf(`before tools: %+v, want two, of bash with "echo out"`, e)
	}
	if e := byKind[gateway.HookPostToolUse]; len(e) != 2 || !strings.Contains(e[0].Result, "out") ||
		e[0].Error != "" || e[1].Tool != "view" ||
		e[1].Error == "" {
		t.Errorf(`after tools: %+v, want "out" of bash and the error of view`, e)
	}
	if e := byKind[gateway.HookUserPrompt]; len(e) != 2 ||
		!strings.HasPrefix(e[0].Prompt, "call:bash") || e[0].Source != gateway.SourceUser {
		t.Errorf("with prompts: %+v, want two, the first call:bash of %v", e, gateway.SourceUser)
	}
}

// A hook that does not let the agent stop gives it more to do, once here.
func TestHookKeepsAgentGoing(t *testing.T) {
	g, s := withUserHooks(
		t,
		scriptmodel.Calls,
		hook(gateway.HookAgentStop, "", func(_ context.Context, e gateway.HookEvent) (string,
			error) {
			if e.Again {
				return "", nil
			}
			return `{"decision":"deny","reason":"run the tests first"}`, nil
		}),
	)
	if said := answerTo(t, g.ctx, s, "are you done?"); said != "You said: run the tests first" {
		t.Errorf(`the model ended with %q, want "You said: run the tests first"`, said)
	}
}

// Errors and the end are told.
func TestHookHearsErrorAndEnd(t *testing.T) {
	heard := make(chan gateway.HookEvent, 10)
	keep := func(_ context.Context, e gateway.HookEvent) (string, error) {
		heard <- e
		return "", nil
	}
	g, s := withUserHooks(t, func(*scriptmodel.Request) scriptmodel.Reply {
		return scriptmodel.Reply{Status: 400, Text: "no such thing"}
	}, hook(gateway.HookError, "", keep), hook(gateway.HookSessionEnd, "", keep))
	answerTo(t, g.ctx, s, "hello")
	if err := s.Stop(g.ctx, "enough"); err != nil {
		t.Fatal(err)
	}
	// Hooks that only hear run side by side, so either may be the first.
	events := map[gateway.HookKind]gateway.HookEvent{}
	for range 2 {
		e := <-heard
		events[e.On] = e
	}
	if e, ok := events[gateway.HookError]; !ok || !strings.Contains(e.Error, "400") {
		t.Errorf(`hooks heard %+v, want an event of %v with "400" in its error`, events,
			gateway.HookError)
	}
	if e, ok := events[gateway.HookSessionEnd]; !ok || e.Reason != "enough" {
		t.Errorf(`hooks heard %+v, want an event of %v with the reason "enough"`, events,
			gateway.HookSessionEnd)
	}
}

// A provider's gate and a hook are asked at once; either denies.
func TestHookBesidePermittedTool(t *testing.T) {
	g, s := withUserHooks(
		t,
		scriptmodel.Calls,
		answeringHook(gateway.HookPreToolUse, "view", `{"decision":"deny","reason":"don't look"}`),
	)
	if d := s.PreToolUse(g.ctx, "read", protocol.Raw("{}")); d.Deny {
		t.Errorf(
			"a glob of one tool's name is not about what the documents call it: %+v, want no denial", d)
	}
	if said := answerTo(t, g.ctx, s, `call:view {"path":"."}`); !strings.Contains(said,
		"don't look") {
		t.Errorf(`the model was told %q, want "don't look" in it`, said)
	}
}
