package copilot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/adminapi"
	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// Questions of the model to a person: a choice, a text or a form.

// whilePending calls do on a goroutine of its own, with a context that ends when the runtime no
// longer waits for the answer. It returns false, and calls nothing, if the conn is gone or the
// request is handled already. The pump calls it.
func (s *session) whilePending(c *conn, requestID string, do func(ctx context.Context)) bool {
	ctx, cancel := context.WithCancel(s.ctx)
	s.mu.Lock()
	if s.conn == nil || s.conn.gen != c.gen || s.inFlight[requestID] != nil {
		s.mu.Unlock()
		cancel()
		return false
	}
	s.inFlight[requestID] = cancel
	s.mu.Unlock()
	forget := func() {
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.inFlight, requestID)
	}
	if !s.r.spawn(func() { defer forget(); do(ctx) }) {
		forget()
		return false
	}
	return true
}

// The runtime announces each question twice: with an event, which comes in order with the event
// that ends the question, and with a request, which gets the answer. The pump matches the two by
// the text of the question.

// pendingQuestion is a question that came with an event.
type pendingQuestion struct {
	done   chan struct{} // closed when the fields that follow are set
	answer gateway.Answer
	err    error
}

// answerWaiter is a request of the SDK that waits for its question.
type answerWaiter struct {
	key      string
	question chan *pendingQuestion // holds one; closed when no question will come
}

// questionMatcher holds questions without a waiter and waiters without a question, by key. Only the
// pump uses it.
type questionMatcher struct {
	questions map[string][]*pendingQuestion
	waiters   map[string][]*answerWaiter
}

func (m *questionMatcher) addQuestion(about string, a *pendingQuestion) {
	if list := m.waiters[about]; len(list) > 0 {
		list[0].question <- a
		setOrDelete(m.waiters, about, list[1:])
		return
	}
	if m.questions == nil {
		m.questions = map[string][]*pendingQuestion{}
	}
	m.questions[about] = append(m.questions[about], a)
}

func (m *questionMatcher) addWaiter(h *answerWaiter) {
	if list := m.questions[h.key]; len(list) > 0 {
		h.question <- list[0]
		setOrDelete(m.questions, h.key, list[1:])
		return
	}
	if m.waiters == nil {
		m.waiters = map[string][]*answerWaiter{}
	}
	m.waiters[h.key] = append(m.waiters[h.key], h)
}

// setOrDelete stores a list, or deletes the key if the list is empty.
func setOrDelete[T any](lists map[string][]T, key string, list []T) {
	if len(list) == 0 {
		delete(lists, key)
		return
	}
	lists[key] = list
}

// releaseAll releases all waiters without an answer.
func (m *questionMatcher) releaseAll() {
	for _, list := range m.waiters {
		for _, h := range list {
			close(h.question)
		}
	}
	*m = questionMatcher{}
}

// waitAnswer returns the answer to the question with a key, for the request that waits for it.
func (s *session) waitAnswer(about string) (gateway.Answer, error) {
	h := &answerWaiter{key: about, question: make(chan *pendingQuestion, 1)}
	s.pushChange(func(t *tracker) { t.questions.addWaiter(h) })
	select {
	case a, ok := <-h.question:
		if !ok {
			return gateway.Answer{}, errLost
		}
		select {
		case <-a.done:
			return a.answer, a.err
		case <-s.ctx.Done():
		}
	case <-s.ctx.Done():
	}
	return gateway.Answer{}, errEnded
}

// askPerson asks a person the question of an event.
func (t *tracker) askPerson(about, requestID string, q gateway.Question) {
	c := t.conn()
	if c == nil || t.s.joined != 0 { // a terminal's person is asked there
		return
	}
	q.Timeout = t.s.o.AnswerTimeout
	a := &pendingQuestion{done: make(chan struct{})}
	if t.s.whilePending(c, requestID, func(ctx context.Context) {
		a.answer, a.err = t.s.calls.Ask(ctx, q)
		close(a.done)
	}) {
		t.questions.addQuestion(about, a)
	}
}

// inputKey and formKey are equal for the event and the request of one question.
func inputKey(question string, choices []string) string {
	return fmt.Sprintf("input %q %q", question, choices)
}

func formKey(message string) string { return "form " + message }

// inputRequested handles the event of a question that the model asks.
func (t *tracker) inputRequested(d *rpc.UserInputRequestedData) {
	t.askPerson(inputKey(d.Question, d.Choices), d.RequestID, gateway.Question{
		Kind: adminapi.QuestionInput, Message: d.Question, Choices: d.Choices,
		Free: d.AllowFreeform == nil || *d.AllowFreeform,
	})
}

// input is the SDK's handler of a question that the model asks. Without an answer in time, the
// model gets a text that says that, and the turn goes on.
func (s *session) input(
	req sdk.UserInputRequest, _ sdk.UserInputInvocation,
) (sdk.UserInputResponse, error) {
	answer, err := s.waitAnswer(inputKey(req.Question, req.Choices))
	said := sdk.UserInputResponse{Answer: answer.Text, WasFreeform: !slices.Contains(req.Choices,
		answer.Text)}
	switch {
	case errors.Is(err, gateway.ErrUnanswered):
		said.Answer = "(nobody answered in time: go on without an answer, or end the turn)"
	case err != nil:
		return sdk.UserInputResponse{}, err
	case answer.Denied() && answer.Text != "":
		said.Answer = fmt.Sprintf("(the user does not want to answer: %s)", answer.Text)
	case answer.Denied():
		said.Answer = "(the user does not want to answer)"
	}
	return said, nil
}

// formRequested handles the event of a form.
func (t *tracker) formRequested(d *rpc.ElicitationRequestedData) {
	message := d.Message
	if from := deref(d.ElicitationSource); from != "" {
		message = from + ": " + message
	}
	q := gateway.Question{Kind: adminapi.QuestionForm, Message: message,
		Schema: protocol.Raw(`{"type":"object"}`)}
	if deref(d.Mode) == rpc.ElicitationRequestedModeURL {
		q = gateway.Question{
			Kind:    adminapi.QuestionPermission,
			Message: message + " (open this in a browser, then answer once)",
			Detail:  deref(d.URL),
		}
	} else if d.RequestedSchema != nil {
		schema, err := json.Marshal(d.RequestedSchema)
		if err == nil {
			q.Schema = schema
		}
	}
	t.askPerson(formKey(d.Message), d.RequestID, q)
}

// form is the SDK's handler of a form.
func (s *session) form(e sdk.ElicitationContext) (sdk.ElicitationResult, error) {
	answer, err := s.waitAnswer(formKey(e.Message))
	switch {
	case err != nil:
		return sdk.ElicitationResult{Action: sdk.ElicitationActionCancel}, nil
	case answer.Denied():
		return sdk.ElicitationResult{Action: sdk.ElicitationActionDecline}, nil
	}
	result := sdk.ElicitationResult{Action: sdk.ElicitationActionAccept}
	if answer.Content != nil {
		if err := json.Unmarshal(answer.Content, &result.Content); err != nil {
			return sdk.ElicitationResult{Action: sdk.ElicitationActionCancel}, nil
		}
	}
	return result, nil
}

// questionHandlers returns the SDK's handlers for questions, or nil handlers if the session may not
// ask a person. Then the model has no ask_user, and MCP servers can't use forms.
func (s *session) questionHandlers() (sdk.UserInputHandler, sdk.ElicitationHandler) {
	if !s.o.AskUser {
		return nil, nil
	}
	return s.input, s.form
}
