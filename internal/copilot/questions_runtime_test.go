//go:build runtime

package copilot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/github/copilot-sdk/go"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// hosted is a real session of a real gateway.
type hosted struct {
	t testing.TB
	r *rig
	g *gateway.Gateway
	s *gateway.Session
}

// newHosted starts a gateway on a rig, without a session yet.
func newHosted(t testing.TB, r *rig) *hosted {
	h := &hosted{t: t, r: r}
	h.g = gateway.New(gateway.Options{Starters: map[string]gateway.Starter{Kind: r.r}})
	t.Cleanup(func() { h.g.Drain(context.Background()) })
	return h
}

func (h *hosted) start(label string) *gateway.Session {
	h.t.Helper()
	s, err := h.g.Start(h.r.ctx, gateway.StartRequest{Host: Kind, Model: "scripted", CWD: h.r.cwd,
		Label: label})
	if err != nil {
		h.t.Fatalf("starting session %s: %v", label, err)
	}
	return s
}

func startHosted(t testing.TB, r *rig) *hosted {
	h := newHosted(t, r)
	h.s = h.start("test")
	return h
}

// turnOf gives a session a prompt and returns what the model said, and how the turn
// ended.
func turnOf(
	ctx context.Context, s *gateway.Session, p gateway.Prompt,
) (said string, errs []string, end error) {
	turn, err := s.Turn(ctx, p)
	if err != nil {
		return "", nil, err
	}
	defer turn.Close()
	return answerOf(ctx, turn)
}

func answerOf(ctx context.Context, turn *gateway.Turn) (said string, errs []string, end error) {
	var parts []string
	for {
		lines, err := turn.Next(ctx)
		if err != nil {
			return strings.Join(parts, "\n"), errs, err
		}
		for _, l := range lines {
			switch e := l.Event; {
			case e.SessionError != "":
				errs = append(errs, e.SessionError)
			case e.Callback == gateway.OnEndMessage && e.Content != "":
				parts = append(parts, e.Content)
			}
		}
	}
}

// asked waits for a question of a session.
func (h *hosted) asked(s *gateway.Session) adminapi.Question {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.r.ctx, patience)
	defer cancel()
	defer h.g.Watch()()
	for {
		changes := h.g.Changes()
		for _, q := range h.g.Questions() {
			if q.Session == s.ID() {
				return q
			}
		}
		if err := h.g.WaitChange(ctx, changes); err != nil {
			h.t.Fatalf("waiting for a question: %v\n%s", err, timeline(s))
		}
	}
}

func timeline(s *gateway.Session) string {
	lines, _ := s.Timeline(0)
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%s %s: %s\n", l.Level, l.Source, l.Message)
	}
	return b.String()
}

// asking is a turn that ends when a person has answered.
func (h *hosted) asking(prompt string) chan string {
	done := make(chan string, 1)
	go func() {
		said, errs, end := turnOf(h.r.ctx, h.s, gateway.Prompt{Text: prompt})
		done <- strings.TrimSpace(said + " " + strings.Join(errs, " ") + map[bool]string{
			true: "", false: " END " + fmt.Sprint(end),
		}[errors.Is(end, gateway.ErrTurnEnded)])
	}()
	return done
}

func (h *hosted) answer(q adminapi.Question, a gateway.Answer) {
	h.t.Helper()
	if err := h.s.Answer(q.ID, a); err != nil {
		h.t.Fatalf("answering %+v: %v", q, err)
	}
}

func shellCall(command string) string {
	return "call:bash " +
		string(rawJSON(map[string]string{"command": command, "description": "try it"}))
}

// TestPermissionAsked: once lets this one pass, session the same again without a
// question, deny tells the model why; patterns and other commands are not touched.
func TestPermissionAsked(t *testing.T) {
	h := startHosted(t, newRig(t, func(o *Options) {
		o.Permissions = configs.Permissions{
			Shell: configs.Ask, DenyCommands: []string{"rm"}, AllowCommands: []string{"echo fine"},
		}
	}))

	turn := h.asking(shellCall("echo once"))
	q := h.asked(h.s)
	if q.Kind != adminapi.QuestionPermission || q.Detail != "echo once" ||
		!strings.Contains(q.Message, "run this command") ||
		!strings.Contains(q.Message, "try it") {
		t.Errorf(`the question: %+v, want %v about "echo once" with what it would do`, q,
			adminapi.QuestionPermission)
	}
	h.answer(q, gateway.Answer{Decision: adminapi.DecideOnce})
	if said := <-turn; !strings.Contains(said, "once") || strings.Contains(said, "denied") {
		t.Errorf(`allowed once: %q, want "once" in it and no "denied" in it`, said)
	}
	if err := h.s.Answer(q.ID, gateway.Answer{Decision: adminapi.DecideOnce}); err == nil ||
		!strings.Contains(err.Error(), "is over") {
		t.Errorf(`answered again: %v, want an error and "is over" in it`, err)
	}

	turn = h.asking(shellCall("echo once")) // once was once
	h.answer(h.asked(h.s), gateway.Answer{Decision: adminapi.DecideSession})
	if said := <-turn; !strings.Contains(said, "once") {
		t.Errorf(`allowed for the session: %q, want "once" in it`, said)
	}
	if said := <-h.asking(shellCall("echo once")); !strings.Contains(said, "once") {
		t.Errorf(`the same again: %q, want "once" in it`, said)
	}
	turn = h.asking(shellCall("echo once more"))
	h.answer(h.asked(h.s), gateway.Answer{Decision: adminapi.DecideDeny, Text: "that is enough"})
	if said := <-turn; !strings.Contains(said, "that is enough") {
		t.Errorf(`denied: %q, want "that is enough" in it`, said)
	}
	if said := <-h.asking(shellCall("echo fine")); !strings.Contains(said, "fine") ||
		strings.Contains(said, "not allow") {
		t.Errorf(`allowed by a pattern: %q, want "fine" in it and no "not allow" in it`, said)
	}
	if said := <-h.asking(shellCall("echo fine && rm -f x")); !strings.Contains(
		said, "deny_commands in [copilot.permissions]",
	) {
		t.Errorf(`denied by a pattern: %q, want "deny_commands in [copilot.permissions]" in it`,
			said)
	}
	turn = h.asking(shellCall("echo fine > made"))
	h.answer(h.asked(h.s), gateway.Answer{Decision: adminapi.DecideDeny})
	if said := <-turn; !strings.Contains(said, "the user denied it") {
		t.Errorf(`a redirection, denied: %q, want "the user denied it" in it`, said)
	}
	if _, err := os.Stat(filepath.Join(h.r.cwd, "made")); err == nil {
		t.Error("the file was made, want none")
	}
	for _, want := range []string{
		"permission asked (", "answered by the user: once", "answered by the user: session",
		"answered by the user: deny (that is enough)",
	} {
		if !strings.Contains(timeline(h.s), want) {
			t.Errorf("the timeline, want %q in it:\n%s", want, timeline(h.s))
		}
	}
}

// TestPermissionsAskedByKind asks for a write, a read and a provider's tool, and anew when another
// provider has it.
func TestPermissionsAskedByKind(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Permissions = configs.Permissions{Write: configs.Ask, Read: configs.Ask,
			CustomTool: configs.Ask}
	})
	s := r.start()
	var mu sync.Mutex
	var asked []gateway.Question
	s.answer = func(_ context.Context, q gateway.Question) (gateway.Answer, error) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, q)
		return gateway.Answer{Decision: adminapi.DecideSession}, nil
	}
	s.tool("act", text("acted"))
	file := filepath.Join(r.cwd, "made.txt")
	s.turn(fmt.Sprintf(`call:create {"path":%q,"file_text":"made"}`, file))
	for range 2 {
		s.turn(fmt.Sprintf(`call:view {"path":%q}`, file))
		if !strings.Contains(s.lastSaid(), "made") {
			t.Errorf(`reading: %q, want "made" in it`, s.lastSaid())
		}
		s.turn(`call:act {"x":"y"}`)
		if s.lastSaid() != "acted" {
			t.Errorf(`calling: %q, want "acted"`, s.lastSaid())
		}
	}
	s.record(func() { s.identity = "another" })
	s.turn(`call:act {"x":"y"}`)
	var details []string
	for _, q := range asked {
		details = append(details,
			q.Message[:strings.Index(q.Message, "?")]+" "+strings.SplitN(q.Detail, "\n", 2)[0])
	}
	want := []string{
		"May the session write this file " + file,
		"May the session read this " + file,
		`May the session call this tool act {"x":"y"}`,
		`May the session call this tool act {"x":"y"}`,
	}
	if !slices.Equal(details, want) {
		t.Errorf("asked, want\n%v\ngot\n%s", want, strings.Join(details, "\n"))
	}
}

// TestUnanswered: a question without an answer is refused, and the turn goes on.
func TestUnanswered(t *testing.T) {
	h := startHosted(t, newRig(t, func(o *Options) {
		o.Permissions.Shell, o.AskUser, o.AnswerTimeout = configs.Ask, true, 300*time.Millisecond
	}))
	if said := <-h.asking(shellCall("echo ran")); !strings.Contains(said,
		"nobody answered in time (answer_timeout") {
		t.Errorf(`a permission: %q, want "nobody answered in time (answer_timeout" in it`, said)
	}
	if said := <-h.asking(`call:ask_user {"question":"Which?"}`); !strings.Contains(
		said, "nobody answered in time: go on",
	) {
		t.Errorf(`an input: %q, want "nobody answered in time: go on" in it`, said)
	}
	result := h.elicit(h.r.ctx, "Who?")
	if got := <-result; got != "cancel map[]" {
		t.Errorf(`a form: %s, want "cancel map[]"`, got)
	}
	if list := h.g.Questions(); len(list) != 0 {
		t.Errorf("still waiting: %+v, want none", list)
	}
	if n := strings.Count(timeline(h.s), "is over: nobody answered in time"); n != 3 {
		t.Errorf("the timeline has it %d times, want 3:\n%s", n, timeline(h.s))
	}
}

// conn is the session's in the runtime.
func (h *hosted) conn() *sdk.Session {
	h.t.Helper()
	h.r.r.mu.Lock()
	s := h.r.r.sessions[h.s.ID()]
	h.r.r.mu.Unlock()
	c, err := s.waitConn(h.r.ctx)
	if err != nil {
		h.t.Fatal(err)
	}
	return c.sdk
}

// elicit has the runtime put a form to the user, as its MCP servers do.
func (h *hosted) elicit(ctx context.Context, message string) chan string {
	h.t.Helper()
	ui := h.conn().UI()
	done := make(chan string, 1)
	go func() {
		r, err := ui.Elicitation(ctx, message, sdk.ElicitationSchema{
			Properties: map[string]any{
				"name": map[string]any{"type": "string", "minLength": 2},
				"size": map[string]any{"type": "string", "enum": []any{"small", "large"}},
				"many": map[string]any{"type": "integer"},
			},
			Required: []string{"name"},
		})
		if err != nil {
			done <- err.Error()
			return
		}
		done <- fmt.Sprintf("%s %v", r.Action, r.Content)
	}()
	return done
}

// TestAskUser: the model asks, a person answers, chooses, declines.
func TestAskUser(t *testing.T) {
	h := startHosted(t, newRig(t, func(o *Options) { o.AskUser = true }))

	turn := h.asking(`call:ask_user {"question":"Which colour?","choices":["red","green"]}`)
	q := h.asked(h.s)
	if q.Kind != adminapi.QuestionInput || q.Message != "Which colour?" ||
		!slices.Equal(q.Choices, []string{"red", "green"}) ||
		!q.Freeform {
		t.Errorf(
			`the question: %+v, want %v "Which colour?" with the choices red and green, and a free answer`,
			q, adminapi.QuestionInput,
		)
	}
	h.answer(q, gateway.Answer{Text: "green"})
	if said := <-turn; !strings.Contains(said, "green") {
		t.Errorf(`a choice: %q, want "green" in it`, said)
	}

	turn = h.asking(`call:ask_user {"question":"Why?"}`)
	h.answer(h.asked(h.s), gateway.Answer{Text: "because of the weather"})
	if said := <-turn; !strings.Contains(said, "because of the weather") {
		t.Errorf(`a text: %q, want "because of the weather" in it`, said)
	}

	turn = h.asking(`call:ask_user {"question":"And now?"}`)
	h.answer(h.asked(h.s), gateway.Answer{Decision: adminapi.DecideDeny})
	if said := <-turn; !strings.Contains(said, "does not want to answer") {
		t.Errorf(`declined: %q, want "does not want to answer" in it`, said)
	}

	// Two at once: each gets its own answer.
	turn = h.asking(
		"call:ask_user {\"question\":\"First?\"}\ncall:ask_user {\"question\":\"Second?\"}")
	for range 2 {
		q := h.asked(h.s)
		h.answer(q, gateway.Answer{Text: "to " + q.Message})
	}
	if said := <-turn; !strings.Contains(said, "to First?") ||
		!strings.Contains(said, "to Second?") {
		t.Errorf(`two at once: %q, want "to First?" and "to Second?" in it`, said)
	}

	// Interrupted while it asks: the question goes, the session stays.
	turn = h.asking(`call:ask_user {"question":"Still there?"}`)
	q = h.asked(h.s)
	if _, err := h.s.Interrupt(h.r.ctx, "enough"); err != nil {
		t.Error(err)
	}
	if said := <-turn; !strings.Contains(said, "END interrupted") {
		t.Errorf(`interrupted: %q, want "END interrupted" in it`, said)
	}
	if list := h.g.Questions(); len(list) != 0 {
		t.Errorf("still waiting: %+v, want none", list)
	}
	if err := h.s.Answer(q.ID, gateway.Answer{Text: "late"}); err == nil ||
		!strings.Contains(err.Error(), "is over") {
		t.Errorf(`a late answer: %v, want an error and "is over" in it`, err)
	}
	turn = h.asking(`call:ask_user {"question":"Really?"}`)
	h.answer(h.asked(h.s), gateway.Answer{Text: "yes"})
	if said := <-turn; !strings.Contains(said, "yes") {
		t.Errorf(`afterwards: %q, want "yes" in it`, said)
	}
}

func TestNobodyToAsk(t *testing.T) {
	h := startHosted(t, newRig(t))
	if said := <-h.asking(`call:ask_user {"question":"Which?"}`); !strings.Contains(said,
		`no tool "ask_user"`) {
		t.Errorf("the model's call of ask_user: %q, want no such tool", said)
	}
	if caps := h.conn().Capabilities(); caps.UI != nil && caps.UI.Elicitation {
		t.Error("the runtime may ask with forms, want it to know that it may not")
	}
}

// TestForm: a form is filled in as its schema says, or declined.
func TestForm(t *testing.T) {
	h := startHosted(t, newRig(t, func(o *Options) { o.AskUser = true }))
	result := h.elicit(h.r.ctx, "Who are you?")
	q := h.asked(h.s)
	if q.Kind != adminapi.QuestionForm || q.Message != "Who are you?" ||
		!strings.Contains(string(q.Schema), `"minLength":2`) {
		t.Errorf(
			`the question: %+v, want Kind %v, Message "Who are you?" and "minLength":2 in it`,
			q, adminapi.QuestionForm,
		)
	}
	for content, wrong := range map[string]string{
		`{"name":"A"}`: "name", `{"size":"large"}`: "name", `{"name":"Ada","size":"huge"}`: "size",
		`{"name":"Ada","many":"x"}`: "many",
	} {
		if err := h.s.Answer(q.ID, gateway.Answer{Content: protocol.Raw(content)}); err == nil ||
			!strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v, want an error and %q in it", content, err, wrong)
		}
	}
	h.answer(q, gateway.Answer{Content: protocol.Raw(`{"name":"Ada","size":"large","many":3}`)})
	if got := <-result; got != "accept map[many:3 name:Ada size:large]" {
		t.Errorf(`filled in: %s, want "accept map[many:3 name:Ada size:large]"`, got)
	}
	result = h.elicit(h.r.ctx, "Again?")
	h.answer(h.asked(h.s), gateway.Answer{Decision: adminapi.DecideDeny})
	if got := <-result; got != "decline map[]" {
		t.Errorf(`declined: %s, want "decline map[]"`, got)
	}
}

// TestEndWhileAsked: a session that is stopped while it asks ends at once.
func TestEndWhileAsked(t *testing.T) {
	h := startHosted(t, newRig(t, func(o *Options) {
		o.AskUser, o.Permissions.Shell = true, configs.Ask
	}))
	turn := h.asking("call:ask_user {\"question\":\"Which?\"}\n" + shellCall("echo x"))
	h.asked(h.s)
	if err := h.s.Stop(h.r.ctx, "test"); err != nil {
		t.Error(err)
	}
	if said := <-turn; !strings.Contains(said, "END the session has ended") {
		t.Errorf(`the turn: %q, want "END the session has ended" in it`, said)
	}
	if list := h.g.Questions(); len(list) != 0 {
		t.Errorf("still waiting: %+v, want none", list)
	}
}

// TestRuntimeKilledWhileAsked: a question goes with the runtime that asked it, and
// the session asks again in the next.
func TestRuntimeKilledWhileAsked(t *testing.T) {
	h := startHosted(t, newRigWith(t, obey, func(o *Options) { o.AskUser = true }))
	turn := h.asking(`call:ask_user {"question":"Which?"}`)
	h.asked(h.s)
	p, err := h.r.r.process(h.r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	kill(p.pid)
	if said := <-turn; !strings.Contains(said, "the turn is lost") {
		t.Errorf(`the turn: %q, want "the turn is lost" in it`, said)
	}
	turn = h.asking(`call:ask_user {"question":"Again?"}`)
	q := h.asked(h.s)
	if q.Message != "Again?" || len(h.g.Questions()) != 1 {
		t.Errorf(`asked: %+v, want one, "Again?"`, h.g.Questions())
	}
	h.answer(q, gateway.Answer{Text: "the other one"})
	if said := <-turn; !strings.Contains(said, "the other one") {
		t.Errorf(`in the next runtime: %q, want "the other one" in it`, said)
	}
}
