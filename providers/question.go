package providers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"tapgw/internal/protocol"
)

// QuestionKind is the kind of a [Question], and so decides which fields its [Answer] has.
type QuestionKind string

// Kinds of questions. There may be others.
const (
	// may something be done? Answered with a Decision
	QuestionPermission QuestionKind = "permission"
	QuestionInput      QuestionKind = "input" // the model asks. Answered with Text
	QuestionForm       QuestionKind = "form"  // answered with Content that Schema allows
)

// Question is a question of a session to its user, as [Options.OnQuestion] gets it. Its texts are
// the model's or a tool's: show those of a permission whole, since the person allows all of it.
type Question struct {
	ID                 string // never used twice
	Session            string
	Kind               QuestionKind
	Message            string
	Detail             string          // of a permission: the whole action; may be ""
	Choices            []string        // of an input: the texts to choose from
	Freeform           bool            // of an input: an answer that is no choice is allowed
	Schema             json.RawMessage // of a form: the JSON Schema of its content
	AskedAt, ExpiresAt time.Time
	conn               *conn
}

// Decisions of an [Answer].
const (
	AllowOnce    = "once"
	AllowSession = "session" // and the same again, as long as the session lasts
	Decline      = "deny"    // refuses a permission, declines an input or a form
)

// Answer is a person's answer to a [Question]. The question's kind decides which fields it has.
type Answer struct {
	// of a permission: AllowOnce, AllowSession or Decline; of the others Decline, or ""
	Decision string
	Text     string // of an input; with Decline: the reason, for the model
	Content  any    // of a form: a value that becomes a JSON object; may be nil
	Person   string // the person's name for the timeline, in at most 100 bytes; it is not checked
}

// QuestionEnd is the cause of the end of a question's context, as [context.Cause] returns it, when
// the question is over. A lost connection has the cause [*CancelError]: the question may still
// wait.
type QuestionEnd struct {
	Reason string // "answered", "expired", "withdrawn" or "session.ended"; there may be others
	By     string // of an answered one: "user", or "provider:NAME"
	Person string // who answered, as that provider says; "" if it does not
}

// Error implements error: how the question ended.
func (e *QuestionEnd) Error() string {
	text := "the question is over: " + e.Reason
	if e.By != "" {
		text += " by " + e.By
	}
	if e.Person != "" {
		text += fmt.Sprintf(" (%q)", e.Person)
	}
	return text
}

// Unwrap returns [context.Canceled].
func (e *QuestionEnd) Unwrap() error { return context.Canceled }

// Answer answers the question, and returns nil if this answer is the one that counts. Otherwise the
// error is an [*Error]: INVALID_STATE if the question is over (its message says who answered),
// INVALID_JSON for an answer that the question does not take, which may then be answered again. It
// is the [*QuestionEnd] if the question's own context ends first. After a lost connection it is
// [ErrNotConnected], and the answer may count or not: if the question still waits, OnQuestion gets
// it again.
func (q Question) Answer(ctx context.Context, a Answer) error {
	if err := q.answer(ctx, a); err != nil {
		return fmt.Errorf("answering question %s: %w", q.ID, err)
	}
	return nil
}

func (q Question) answer(ctx context.Context, a Answer) error {
	m := &protocol.QuestionAnswer{Question: q.ID, Decision: a.Decision, Text: a.Text,
		Person: a.Person}
	if a.Content != nil {
		var err error
		if m.Content, err = marshal("Content", a.Content); err != nil {
			return err
		}
	}
	if err := protocol.Validate(m); err != nil {
		return fromGateway(err)
	}
	if q.conn == nil {
		return errors.New("only a question that OnQuestion got can be answered")
	}
	r := &request{typ: protocol.TypeQuestionAnswer, due: map[string]bool{q.Session: true}}
	m.RequestID, _ = q.conn.addRequest("answer-", r)
	defer q.conn.removeRequest(m.RequestID)
	err := q.conn.write(ctx, m)
	if err == nil {
		select {
		case <-r.done:
		case <-ctx.Done():
		case <-q.conn.ctx.Done():
			err = errCutOff
		}
	}
	if ctx.Err() != nil && !errors.Is(err, ErrNotConnected) {
		err = context.Cause(ctx) // a *QuestionEnd says more than "context canceled"
	}
	_, err = q.conn.outcome(r, false, err)
	return err
}

// handleQuestion starts OnQuestion for a question, or ends the context of one that is over. It
// reports false for other events.
func (c *conn) handleQuestion(m *protocol.SessionEvent) bool {
	if m.Event != protocol.EventQuestionAsked && m.Event != protocol.EventQuestionEnded {
		return false
	}
	var q protocol.Question
	var e protocol.QuestionEnd
	b, f := c.bindings[m.SessionID], c.run.p.opts.OnQuestion
	switch {
	case b == nil || b.ending || f == nil:
	case m.Event == protocol.EventQuestionAsked:
		if err := json.Unmarshal(m.Data, &q); err != nil || q.ID == "" {
			c.log.Warn("ignoring a wrong question of the gateway", "error", err)
		} else if b.questions[q.ID] == nil {
			c.ask(b, q, f)
		}
	default:
		if err := json.Unmarshal(m.Data, &e); err != nil {
			c.log.Warn("ignoring a wrong end of a question of the gateway", "error", err)
		} else if end := b.questions[e.ID]; end != nil {
			end(&QuestionEnd{Reason: e.Reason, By: e.By, Person: e.Person})
			delete(b.questions, e.ID)
		}
	}
	return true
}

// ask runs OnQuestion for a question.
func (c *conn) ask(b *binding, m protocol.Question, f func(context.Context, Question)) {
	q := Question{
		ID: m.ID, Session: b.Session, Kind: QuestionKind(m.Kind), Message: m.Message,
		Detail:  m.Detail,
		Choices: m.Choices, Freeform: m.Freeform, Schema: json.RawMessage(m.Schema),
		AskedAt: m.AskedAt, ExpiresAt: m.ExpiresAt, conn: c,
	}
	ctx, cancel := context.WithCancelCause(b.ctx)
	b.questions[q.ID] = cancel
	c.run.wg.Go(func() { _ = guard(c.log, "OnQuestion", func() { f(ctx, q) }) })
}
