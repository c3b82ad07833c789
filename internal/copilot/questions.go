package copilot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	sdk "github.com/github/copilot-sdk/go"
	"github.com/github/copilot-sdk/go/rpc"

	"tapgw/internal/gateway"
	"tapgw/internal/protocol"
)

// whilePending does something on a goroutine of its own, with a context that ends
// when the runtime no longer waits for it. Called by the pump.
func (s *session) whilePending(c *conn, requestID string, do func(ctx context.Context)) bool {
	ctx, cancel := context.WithCancel(s.ctx)
	s.mu.Lock()
	if s.conn == nil || s.conn.gen != c.gen { // lost meanwhile
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

// The runtime asks a person twice for one thing: with an event, which comes in
// order with what ends the question, and with a request, which gets the answer. The
// pump brings the two together, by what they ask.

// asking is a question of an event.
type asking struct {
	done   chan struct{} // closed when the rest is set
	answer gateway.Answer
	err    error
}

// handler is the SDK's, which waits for the asking that is its.
type handler struct {
	about string
	found chan *asking // holds one; closed when there will be none
}

// meetings are askings without a handler and handlers without an asking, by what
// they are about. Only the pump touches them.
type meetings struct {
	askings  map[string][]*asking
	handlers map[string][]*handler
}

func (m *meetings) asked(about string, a *asking) {
	if list := m.handlers[about]; len(list) > 0 {
		list[0].found <- a
		put(m.handlers, about, list[1:])
		return
	}
	if m.askings == nil {
		m.askings = map[string][]*asking{}
	}
	m.askings[about] = append(m.askings[about], a)
}

func (m *meetings) handles(h *handler) {
	if list := m.askings[h.about]; len(list) > 0 {
		h.found <- list[0]
		put(m.askings, h.about, list[1:])
		return
	}
	if m.handlers == nil {
		m.handlers = map[string][]*handler{}
	}
	m.handlers[h.about] = append(m.handlers[h.about], h)
}

// put keeps a list, or forgets an empty one.
func put[T any](m map[string][]T, key string, list []T) {
	if len(list) == 0 {
		delete(m, key)
		return
	}
	m[key] = list
}

// end lets all go that wait for the runtime's other half.
func (m *meetings) end() {
	for _, list := range m.handlers {
		for _, h := range list {
			close(h.found)
		}
	}
	*m = meetings{}
}

// wait is the handler's side: it returns what became of its question.
func (s *session) wait(about string) (gateway.Answer, error) {
	h := &handler{about: about, found: make(chan *asking, 1)}
	s.items.push(item{handler: h})
	select {
	case a, ok := <-h.found:
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

// asks puts a question of an event to a person.
func (t *turn) asks(about, requestID string, q gateway.Question) {
	c := t.conn()
	if c == nil {
		return
	}
	q.Timeout = t.s.o.AnswerTimeout
	a := &asking{done: make(chan struct{})}
	if t.s.whilePending(c, requestID, func(ctx context.Context) {
		a.answer, a.err = t.s.calls.Ask(ctx, q)
		close(a.done)
	}) {
		t.meetings.asked(about, a)
	}
}

// What the handler and the event of one question have in common.
func aboutInput(question string, choices []string) string {
	return fmt.Sprintf("input %q %q", question, choices)
}

func aboutForm(message string) string { return "form " + message }

// inputRequested is the event of a question that the model asks.
func (t *turn) inputRequested(d *rpc.UserInputRequestedData) {
	t.asks(aboutInput(d.Question, d.Choices), d.RequestID, gateway.Question{
		Kind: gateway.QuestionInput, Message: d.Question, Choices: d.Choices, Free: d.AllowFreeform == nil || *d.AllowFreeform,
	})
}

// input is the SDK's handler of a question that the model asks. The model is told
// that nobody answered, so that it goes on.
func (s *session) input(req sdk.UserInputRequest, _ sdk.UserInputInvocation) (sdk.UserInputResponse, error) {
	answer, err := s.wait(aboutInput(req.Question, req.Choices))
	said := sdk.UserInputResponse{Answer: answer.Text, WasFreeform: !slices.Contains(req.Choices, answer.Text)}
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

// formRequested is the event of a form to be filled in.
func (t *turn) formRequested(d *rpc.ElicitationRequestedData) {
	message := d.Message
	if from := deref(d.ElicitationSource); from != "" {
		message = from + ": " + message
	}
	q := gateway.Question{Kind: gateway.QuestionForm, Message: message, Schema: protocol.Raw(`{"type":"object"}`)}
	if d.Mode != nil && *d.Mode == rpc.ElicitationRequestedModeURL {
		q = gateway.Question{Kind: gateway.QuestionPermission, Message: message + " (open this in a browser, then answer once)", Detail: deref(d.URL)}
	} else if d.RequestedSchema != nil {
		schema, err := json.Marshal(d.RequestedSchema)
		if err == nil {
			q.Schema = schema
		}
	}
	t.asks(aboutForm(d.Message), d.RequestID, q)
}

// form is the SDK's handler of a form.
func (s *session) form(e sdk.ElicitationContext) (sdk.ElicitationResult, error) {
	answer, err := s.wait(aboutForm(e.Message))
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

// asker returns the SDK's handlers for a session that may ask a person, nil ones
// for one that may not: the model is not offered ask_user then, nor its MCP servers
// forms.
func (s *session) asker() (sdk.UserInputHandler, sdk.ElicitationHandler) {
	if !s.o.AskUser {
		return nil, nil
	}
	return s.input, s.form
}
