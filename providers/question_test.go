package providers_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"tapgw/internal/adminapi"
	domain "tapgw/internal/gateway"
	"tapgw/internal/protocol"
	"tapgw/providers"
)

// withGrant makes the token of a provider file with the grant for questions.
func (w *world) withGrant(name string) *domain.Pass {
	return w.gateway.Issue(domain.PassSpec{Trust: domain.TrustProject,
		Grants: []string{"questions"}, Name: name, Owner: "/home/me/providers"})
}

// asked is a question that OnQuestion got, with its context.
type asked struct {
	ctx context.Context
	providers.Question
}

// answerer runs a provider that hears of questions.
func (w *world) answerer(name string) <-chan asked {
	w.t.Helper()
	heard := make(chan asked, 10)
	bound := make(chan struct{})
	p := providers.New(name, &providers.Options{URL: w.url, Token: w.withGrant(name).Token(),
		Logger: quiet, OnBound: func(context.Context, providers.Binding) { close(bound) },
		OnQuestion: func(ctx context.Context, q providers.Question) { heard <- asked{ctx, q} }})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("the run: %v, want no error", err)
		}
	})
	receive(w.t, bound)
	return heard
}

// ask asks a question in a session and returns a channel for its answer.
func ask(s *session, q domain.Question) <-chan string {
	answer := make(chan string, 1)
	go func() {
		a, err := s.Ask(context.Background(), q)
		if err != nil {
			answer <- err.Error()
			return
		}
		answer <- strings.TrimSpace(a.Decision + " " + a.Text + string(a.Content))
	}()
	return answer
}

// Two providers hear of a question. The first answer counts, the second is told who was first, and
// the contexts of both end with how the question ended.
func TestQuestionsAreAnswered(t *testing.T) {
	w := newWorld(t)
	s := w.session("s1")
	first, second := w.answerer("chat"), w.answerer("phone")
	answer := ask(s, domain.Question{Kind: adminapi.QuestionPermission, Message: "May it?",
		Detail: "git push"})
	a, b := receive(t, first), receive(t, second)
	if a.ID != b.ID || a.Session != "s1" || a.Kind != providers.QuestionPermission ||
		a.Detail != "git push" {
		t.Errorf("the question is %+v and %+v, want one of s1 about git push", a.Question,
			b.Question)
	}
	err := a.Answer(a.ctx, providers.Answer{Decision: providers.AllowSession, Text: "x"})
	if coded, ok := errors.AsType[*providers.Error](err); !ok ||
		coded.Code != providers.CodeInvalidJSON {
		t.Errorf("an answer that the question does not take: %v, want %s", err,
			providers.CodeInvalidJSON)
	}
	if err := a.Answer(a.ctx, providers.Answer{Decision: providers.AllowSession,
		Person: "Anna"}); err != nil {
		t.Errorf("the first answer: %v, want no error", err)
	}
	if got := receive(t, answer); got != providers.AllowSession {
		t.Errorf("the session got %q, want %q", got, providers.AllowSession)
	}
	for who, q := range map[string]asked{"chat": a, "phone": b} {
		receive(t, q.ctx.Done())
		end, _ := errors.AsType[*providers.QuestionEnd](context.Cause(q.ctx))
		if end == nil ||
			*end != (providers.QuestionEnd{Reason: "answered", By: "provider:chat",
				Person: "Anna"}) {
			t.Errorf("the context of %s ended with %v, want that Anna answered by provider:chat",
				who, context.Cause(q.ctx))
		}
	}
	err = b.Answer(t.Context(), providers.Answer{Decision: providers.Decline})
	if coded, ok := errors.AsType[*providers.Error](err); !ok ||
		coded.Code != providers.CodeInvalidState ||
		!strings.Contains(coded.Message, `provider chat ("Anna") answered it`) {
		t.Errorf("the second answer: %v, want %s and who was first", err,
			providers.CodeInvalidState)
	}
}

// A form takes a value that can be written as JSON. An answer that comes after the question has
// ended gets an error that says how it ended.
func TestQuestionsOfOtherKinds(t *testing.T) {
	w := newWorld(t)
	s := w.session("s1")
	heard := w.answerer("chat")
	form := ask(s, domain.Question{Kind: adminapi.QuestionForm, Message: "Who?",
		Schema: protocol.Raw(`{"type":"object","properties":{"name":{"type":"string"}}}`)})
	q := receive(t, heard)
	content := struct {
		Name string `json:"name"`
	}{"Ada"}
	if err := q.Answer(q.ctx, providers.Answer{Content: make(chan int)}); err == nil {
		t.Error("content that is no JSON: got no error, want one")
	}
	if err := q.Answer(q.ctx, providers.Answer{Content: content}); err != nil {
		t.Errorf("the form: %v, want no error", err)
	}
	if got := receive(t, form); got != `{"name":"Ada"}` {
		t.Errorf("the session got %s, want Ada", got)
	}
	input := ask(s, domain.Question{Kind: adminapi.QuestionInput, Message: "Which?",
		Choices: []string{"a", "b"}})
	q = receive(t, heard)
	if err := s.Answer(q.ID, domain.Answer{Text: "a"}); err != nil {
		t.Fatal(err)
	}
	receive(t, q.ctx.Done())
	if err := q.Answer(q.ctx, providers.Answer{Text: "b"}); err == nil ||
		!strings.Contains(err.Error(), "user") {
		t.Errorf("a late answer: %v, want that the user was first", err)
	}
	receive(t, input)
}

// Without the grant the run ends with an error that names it.
func TestQuestionsNeedTheGrant(t *testing.T) {
	w := newWorld(t)
	w.session("s1")
	p := providers.New("chat", &providers.Options{URL: w.url, Token: w.gateway.InstanceToken(),
		Logger: quiet, OnQuestion: func(context.Context, providers.Question) {}})
	err := p.Run(t.Context())
	if coded, ok := errors.AsType[*providers.Error](err); !ok ||
		coded.Code != providers.CodeUnauthorized ||
		!strings.Contains(err.Error(), `grants = ["questions"]`) {
		t.Errorf("the run: %v, want %s and what to write", err, providers.CodeUnauthorized)
	}
}
