package gateway

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/internal/visible"
)

// Providers are told of a session's open questions, and how each ended.

// maxEnded is how many ended questions are remembered, so that a late answer is told how its
// question ended.
const maxEnded = 1000

// answerer is the provider that answered a question, or without a name, the user.
type answerer struct {
	provider string
	person   string // as the provider says it; "" if it does not
}

// String is the answerer for people. The person's name is quoted, so that it can't look
// like the gateway's own words.
func (a answerer) String() string {
	switch {
	case a.provider == "" && a.person == "":
		return "the user"
	case a.provider == "":
		return "the user (" + strconv.Quote(a.person) + ")"
	case a.person == "":
		return "provider " + a.provider
	}
	return "provider " + a.provider + " (" + strconv.Quote(a.person) + ")"
}

// source is the answerer as providers are told: "user" or "provider:NAME".
func (a answerer) source() string {
	if a.provider == "" {
		return SourceUser
	}
	return SourceProvider + a.provider
}

// questionEnd is how a question ended.
type questionEnd struct {
	session string
	data    protocol.QuestionEnd
	by      answerer // of an answered one
}

func (e *questionEnd) String() string {
	switch e.data.Reason {
	case protocol.QuestionAnswered:
		return e.by.String() + " answered it"
	case protocol.QuestionExpired:
		return "nobody answered in time"
	case protocol.QuestionSessionEnded:
		return "its session has ended"
	}
	return "it was withdrawn, because its turn ended"
}

// end records how a question ended, for providers and for late answers. Call with mu held.
func (qs *questions) end(w *openQuestion, reason string, by answerer) {
	e := questionEnd{session: w.view.Session, data: protocol.QuestionEnd{ID: w.view.ID,
		Reason: reason}, by: by}
	if reason == protocol.QuestionAnswered {
		e.data.By, e.data.Person = by.source(), by.person
	}
	qs.ended = appendNewest(qs.ended, e, maxEnded)
}

// endOf returns how a session's question ended; nil if it has not, or is not remembered.
// Call with mu held.
func (qs *questions) endOf(session, id string) *questionEnd {
	for i := range slices.Backward(qs.ended) {
		if e := &qs.ended[i]; e.data.ID == id && e.session == session {
			return e
		}
	}
	return nil
}

// event makes the data of question.asked; nil if it is too long for providers.
func (w *openQuestion) event() protocol.Raw {
	q := protocol.Question{ID: w.view.ID, Kind: w.Kind, Message: w.view.Message,
		Detail: w.view.Detail, Choices: append([]string(nil), w.Choices...),
		Freeform: w.view.Freeform, Schema: w.Schema, AskedAt: w.view.AskedAt,
		ExpiresAt: w.view.ExpiresAt}
	data, err := json.Marshal(q)
	if err != nil || len(data) > protocol.MaxQuestion {
		return nil
	}
	return data
}

// tellQuestions queues the news about the session's questions for the provider: which of those that
// it knows have ended, and which new ones wait. A provider knows of at most
// [protocol.MaxToldQuestions] open questions, so that a flood of them can't fill its connection.
// tellQuestions reports whether there was news. Call with Gateway.mu held.
func (b *binding) tellQuestions() bool {
	if !b.provider.hearsOf(protocol.EventQuestionAsked) {
		return false
	}
	asked, ended := b.session.g.questions.news(b)
	for _, e := range ended {
		if data, err := json.Marshal(e); err == nil &&
			b.provider.hearsOf(protocol.EventQuestionEnded) {
			b.sendEvent(protocol.EventQuestionEnded, data)
		}
	}
	for _, data := range asked {
		b.sendEvent(protocol.EventQuestionAsked, data)
	}
	return len(asked)+len(ended) > 0
}

// hearsOf reports whether the provider hears of an event of questions.
func (p *Provider) hearsOf(event string) bool {
	return p.mayAnswer && slices.Contains(p.subscribed, event)
}

func (b *binding) sendEvent(name string, data protocol.Raw) {
	b.provider.peer.Send(&protocol.SessionEvent{SessionID: b.session.id, Event: name, Data: data})
}

// news returns the questions that the provider must be told of, and counts them as told. Call with
// Gateway.mu held.
func (qs *questions) news(b *binding) (asked []protocol.Raw, ended []protocol.QuestionEnd) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	session := b.session.id
	isOpen := func(id string) bool {
		return slices.ContainsFunc(qs.waiting, func(w *openQuestion) bool {
			return w.view.ID == id
		})
	}
	b.told = slices.DeleteFunc(b.told, func(id string) bool {
		if isOpen(id) {
			return false
		}
		e := protocol.QuestionEnd{ID: id, Reason: protocol.QuestionWithdrawn}
		if known := qs.endOf(session, id); known != nil {
			e = known.data
		}
		ended = append(ended, e)
		return true
	})
	for _, w := range qs.waiting {
		if len(b.told) >= protocol.MaxToldQuestions {
			break
		}
		if w.view.Session == session && w.data != nil && !slices.Contains(b.told, w.view.ID) {
			b.told = append(b.told, w.view.ID)
			asked = append(asked, w.data)
		}
	}
	return asked, ended
}

// questionAnswer handles question.answer.
func (c *Conn) questionAnswer(m *protocol.QuestionAnswer) {
	a := Answer{Decision: m.Decision, Text: m.Text}
	if m.Content.Kind() == '{' {
		a.Content = slices.Clone(m.Content)
	}
	by := answerer{c.provider.name, oneLine(visible.Line(m.Person))}
	w, session, err := c.findQuestion(m)
	if err == nil {
		err = w.check(a) // it may take a while, so under no lock
	}
	if err == nil {
		err = c.takeQuestion(w, by, m)
	}
	if err != nil {
		if err.Code == protocol.CodeInvalidJSON {
			err.Message = string(protocol.TypeQuestionAnswer) + "." + err.Message
		}
		if session != nil {
			err.SessionID = session.id
		}
		c.reportError(err)
		return
	}
	session.accept(w, a, by)
	c.peer.Flush()
}

// findQuestion returns the question that an answer is for, and its session. The error is
// UNAUTHORIZED, RATE_LIMITED, INVALID_STATE for a question that is over, or NOT_FOUND for one
// that the provider was not told of. Then the session may be nil.
func (c *Conn) findQuestion(m *protocol.QuestionAnswer) (*openQuestion, *Session, *protocol.Error) {
	if err := c.identity.check(m); err != nil {
		return nil, nil, err
	}
	if !c.answers.Allow() {
		return nil, nil, errorf(protocol.CodeRateLimited,
			"more than %d answers a second; retry in a second", protocol.AnswerRate)
	}
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	for _, b := range c.provider.bindings {
		if slices.Contains(b.told, m.Question) {
			w, err := c.g.questions.find(b.session, m.Question)
			return w, b.session, err
		}
		if err := c.g.questions.lateError(b.session, m.Question); err != nil {
			return nil, b.session, err
		}
	}
	return nil, nil, errorf(protocol.CodeNotFound, "no question %.64q was put to this provider",
		m.Question)
}

// lateError is the INVALID_STATE error of a question that is over; nil if its end is not
// remembered.
func (qs *questions) lateError(s *Session, id string) *protocol.Error {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	if e := qs.endOf(s.id, id); e != nil {
		return errorf(protocol.CodeInvalidState, "question %s is over: %v", id, e)
	}
	return nil
}

// takeQuestion ends a question by a provider's answer, and queues the ack, which so comes
// before the provider is told of the end. The error is INVALID_STATE if the question has
// ended meanwhile, or the provider has left the session.
func (c *Conn) takeQuestion(
	w *openQuestion, by answerer, m *protocol.QuestionAnswer,
) *protocol.Error {
	g := c.g
	g.mu.Lock()
	defer g.mu.Unlock()
	at := slices.IndexFunc(c.provider.bindings, func(b *binding) bool {
		return b.session.id == w.view.Session
	})
	if at < 0 {
		return errorf(protocol.CodeInvalidState, "the provider has left the session of question %s",
			w.view.ID)
	}
	session := c.provider.bindings[at].session
	if !g.questions.remove(w, protocol.QuestionAnswered, by) {
		_, err := g.questions.find(session, w.view.ID)
		return err
	}
	if m.RequestID != "" {
		c.peer.Send(&protocol.Ack{RequestID: m.RequestID, SessionID: session.id})
	}
	return nil
}

// accept gives the host an answer, after the question was removed. The timeline shows the
// answer before the host goes on with it.
func (s *Session) accept(w *openQuestion, a Answer, by answerer) {
	s.show(adminapi.LogInfo, sourceGateway,
		fmt.Sprintf("%s %s answered by %v: %s", w.Kind, w.view.ID, by, w.answerLine(a)))
	w.answered <- a
}
