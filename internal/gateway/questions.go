package gateway

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
	"tapgw/internal/visible"
)

// Questions of hosts, and the answers of people.

// DefaultAnswerTimeout is how long a question waits for a person if its [Question].Timeout
// is 0.
const DefaultAnswerTimeout = 5 * time.Minute

// maxQuestions is how many questions of one session may wait.
const maxQuestions = 1000

// maxPermission bounds a permission's message and detail together, in bytes. A longer request is
// refused, not cut: the part that matters could be cut off.
const maxPermission = 64 << 10

// ErrUnanswered is the error of a question that was not answered before its timeout. A host takes
// it for a refusal, so that silence allows nothing.
var ErrUnanswered = errors.New("nobody answered in time")

// errWithdrawn is the error of a question whose turn was interrupted.
var errWithdrawn = errors.New("the turn was interrupted")

// errNotNeeded is the error of a question that its host no longer waits for.
var errNotNeeded = errors.New("the session does not wait for it any more")

// Question is what a host asks a person: a permission, a choice or text, or a form. A
// permission may have 64 KiB of message and detail; a longer one is refused, not cut.
// People answer it at POST /sessions/{id}/answer.
type Question struct {
	Kind    string // adminapi.QuestionPermission, QuestionInput or QuestionForm
	Message string
	Detail  string        // the command or path, or ""; of a permission: all that will be done
	Choices []string      // the choices of an input
	Free    bool          // of an input: answers other than the choices are allowed
	Schema  protocol.Raw  // of a form: the JSON Schema of its content
	Timeout time.Duration // 0: DefaultAnswerTimeout
	Call    string        // id of the tool.call that it is about, if a provider asks, or ""
}

// Answer is a person's answer to a [Question]: a decision, a text or content, by the
// question's kind. A host gets only answers that [Session.Answer] has checked.
type Answer struct {
	// of a permission; adminapi.DecideDeny for an input or a form that was declined
	Decision string
	Text     string       // of an input; with a denial: the reason, for the model
	Content  protocol.Raw // of a form: an object
	Person   string       // the person that answered, for the timeline; "" shows "the user"
}

// Denied reports whether the person refused a permission, or declined an input or a form.
func (a Answer) Denied() bool { return a.Decision == adminapi.DecideDeny }

// openQuestion is a question that waits for its answer.
type openQuestion struct {
	Question
	view        adminapi.Question
	data        protocol.Raw     // of question.asked; nil: too long for providers
	schema      *protocol.Schema // of a form
	answered    chan Answer      // holds one
	withdrawn   chan struct{}    // closed when it is withdrawn
	isAbandoned func() bool      // whether its host has stopped waiting
}

// questions are the open questions of all sessions. They are the gateway's: an id is never used
// twice, not even by the next gateway, so that a person never answers another question than the one
// that they saw. A late answer is told how the question ended, even if another session has the id
// of the question's session by then. Its lock is a leaf.
type questions struct {
	prefix string
	touch  func() // called at each change

	mu      sync.Mutex      // guards the fields below
	waiting []*openQuestion // oldest first
	ended   []questionEnd   // at most maxEnded, oldest first
	count   uint64          // of all ids
}

func newQuestions() questions {
	return questions{prefix: strings.ToLower(rand.Text()[:4]) + "-"}
}

// create makes a question with an id, and does not list it yet. The error says why it
// can't be asked, for the host.
func (qs *questions) create(ctx context.Context, s *Session, q Question) (*openQuestion, error) {
	w := &openQuestion{Question: q, answered: make(chan Answer, 1), withdrawn: make(chan struct{}),
		isAbandoned: func() bool { return ctx.Err() != nil }}
	if q.Kind == adminapi.QuestionForm {
		var err error
		if w.schema, err = protocol.CompileSchema(q.Schema); err != nil {
			return nil, fmt.Errorf("asking: the form's schema: %w", err)
		}
	}
	// Escapes are spelt out, not removed, so that a person sees all that they allow.
	message, detail := visible.Controls(q.Message), visible.Text(q.Detail)
	if n := len(message) + len(detail); q.Kind == adminapi.QuestionPermission && n > maxPermission {
		return nil,
			fmt.Errorf(
				"the request is %d bytes long, and nobody is asked to allow more than %d at once: "+
					"make it smaller", n, maxPermission)
	}
	now := time.Now().UTC()
	qs.mu.Lock()
	defer qs.mu.Unlock()
	n := 0
	for _, other := range qs.waiting {
		if other.view.Session == s.id {
			n++
		}
	}
	if n >= maxQuestions {
		return nil, fmt.Errorf("%d questions of the session wait already", n)
	}
	qs.count++
	w.view = adminapi.Question{
		ID: fmt.Sprintf("%s%d", qs.prefix, qs.count), Session: s.id, Kind: q.Kind, Message: message,
		Detail:  detail,
		Choices: q.Choices, Freeform: q.Kind == adminapi.QuestionInput &&
			q.Free, Schema: json.RawMessage(q.Schema),
		AskedAt: now, ExpiresAt: now.Add(q.Timeout),
	}
	return w, nil
}

// add lists a question, so that it can be answered.
func (qs *questions) add(w *openQuestion) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	qs.waiting = append(qs.waiting, w)
	qs.touch()
}

// remove removes a question from the list and records why; false if it is not there any more.
func (qs *questions) remove(w *openQuestion, reason string, by answerer) bool {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	at := slices.Index(qs.waiting, w)
	if at < 0 {
		return false
	}
	qs.waiting = slices.Delete(qs.waiting, at, at+1)
	qs.end(w, reason, by)
	qs.touch()
	return true
}

// withdraw ends all questions of a session, for a reason of [protocol.QuestionEnd].
func (qs *questions) withdraw(s *Session, reason string) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	before := len(qs.waiting)
	qs.waiting = slices.DeleteFunc(qs.waiting, func(w *openQuestion) bool {
		if w.view.Session != s.id {
			return false
		}
		close(w.withdrawn)
		qs.end(w, reason, answerer{})
		return true
	})
	if len(qs.waiting) != before {
		qs.touch()
	}
}

// find returns the session's open question with an id. The error is NOT_FOUND, INVALID_STATE for a
// question that is over, or INVALID_JSON without an id; it names the questions that wait, since an
// answer is for one that was seen.
func (qs *questions) find(s *Session, id string) (*openQuestion, *protocol.Error) {
	qs.mu.Lock()
	defer qs.mu.Unlock()
	var waiting []string
	for _, w := range qs.waiting {
		switch {
		case w.view.Session != s.id || w.isAbandoned():
		case w.view.ID == id:
			return w, nil
		default:
			waiting = append(waiting, w.name())
		}
	}
	if id == "" && len(waiting) > 0 {
		return nil, errorf(protocol.CodeInvalidJSON,
			"question: is required, the id of the one that is answered: %s", nameSome(waiting))
	}
	if id == "" {
		return nil, errorf(protocol.CodeNotFound, "no question waits in this session")
	}
	if e := qs.endOf(s.id, id); e != nil {
		return nil, errorf(protocol.CodeInvalidState, "question %s is over: %v", id, e)
	}
	if qs.isOver(id) {
		return nil, errorf(protocol.CodeInvalidState,
			"question %s is over: it was answered, its time was up or its turn ended", id)
	}
	if len(waiting) == 0 {
		waiting = []string{"none"}
	}
	return nil, errorf(protocol.CodeNotFound,
		"question %.64q does not exist in this session; waiting: %s", id, nameSome(waiting))
}

// nameSome joins names of questions. Of many it has the first ones.
func nameSome(names []string) string {
	const most = 10
	text := strings.Join(names[:min(len(names), most)], ", ")
	if len(names) > most {
		text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return text
}

// name names the question in an error: its id, its kind and the beginning of its text.
func (w *openQuestion) name() string {
	const most = 80 // characters
	text := []rune(w.questionLine())
	if len(text) > most {
		text = append(text[:most], '…')
	}
	return fmt.Sprintf("%s (%s: %s)", w.view.ID, w.Kind, string(text))
}

// isOver reports whether an id was given to a question that does not wait any more.
// Call with mu held.
func (qs *questions) isOver(id string) bool {
	digits, ours := strings.CutPrefix(id, qs.prefix)
	var n uint64
	if _, err := fmt.Sscanf(digits, "%d", &n); !ours || err != nil || fmt.Sprint(n) != digits {
		return false
	}
	isWaiting := func(w *openQuestion) bool { return w.view.ID == id && !w.isAbandoned() }
	return n >= 1 && n <= qs.count && !slices.ContainsFunc(qs.waiting, isWaiting)
}

// Questions lists the open questions of all sessions, oldest first, as GET /questions of
// docs/admin-api.md shows them. Those that their host no longer waits for are left out. Its
// changes count among [Gateway.Changes].
func (g *Gateway) Questions() []adminapi.Question {
	g.questions.mu.Lock()
	defer g.questions.mu.Unlock()
	views := make([]adminapi.Question, 0, len(g.questions.waiting))
	for _, w := range g.questions.waiting {
		if !w.isAbandoned() {
			views = append(views, w.view)
		}
	}
	return views
}

// Ask implements [HostCalls]. It shows the question in the timeline, lists it in
// [Gateway.Questions], and waits. Beside the errors of the interface, it fails for a form with a
// wrong schema, for a permission that is too long, and beyond 1000 open questions.
func (s *Session) Ask(ctx context.Context, q Question) (Answer, error) {
	q.Timeout = cmp.Or(q.Timeout, DefaultAnswerTimeout)
	w, err := s.g.questions.create(ctx, s, q)
	if err != nil {
		return Answer{}, err
	}
	id := w.view.ID
	// The timeline shows the question before it can be answered.
	s.show(adminapi.LogWarning, sourceGateway, fmt.Sprintf("%s asked (%s, until %s): %s",
		q.Kind, id, w.view.ExpiresAt.Format(time.TimeOnly), w.questionLine()))
	if w.data = w.event(); w.data == nil {
		s.note(adminapi.LogWarning, sourceGateway,
			fmt.Sprintf("%s is too long for providers: answer it here", id))
	}
	s.g.questions.add(w)
	s.tellProviders((*binding).tellQuestions)
	defer s.tellProviders((*binding).tellQuestions)
	if c := s.pendingCall(q.Call); c != nil && c.asked != nil {
		c.asked(w.view, false)
		defer c.asked(w.view, true)
	}
	timer := time.NewTimer(q.Timeout)
	defer timer.Stop()
	select {
	case a := <-w.answered:
		return a, nil
	case <-timer.C:
		err = ErrUnanswered
	case <-w.withdrawn:
		if err = errWithdrawn; s.isEnding() {
			err = ErrSessionEnded
		}
	case <-s.stopping:
		err = ErrSessionEnded
	case <-ctx.Done():
		if err = context.Cause(ctx); errors.Is(err, context.Canceled) {
			err = errNotNeeded
		}
	}
	// An answer that came at the same moment stands.
	if !s.g.questions.remove(w, endReason(err), answerer{}) {
		select {
		case a := <-w.answered:
			return a, nil
		case <-w.withdrawn:
		}
	}
	level := adminapi.LogInfo
	if errors.Is(err, ErrUnanswered) {
		level = adminapi.LogWarning
	}
	s.show(level, sourceGateway, fmt.Sprintf("%s %s is over: %v", q.Kind, id, err))
	return Answer{}, err
}

// endReason is the reason of [protocol.QuestionEnd] for an error of Ask.
func endReason(err error) string {
	switch {
	case errors.Is(err, ErrUnanswered):
		return protocol.QuestionExpired
	case errors.Is(err, ErrSessionEnded):
		return protocol.QuestionSessionEnded
	}
	return protocol.QuestionWithdrawn
}

// questionLine is the question in one line for the timeline.
func (w *openQuestion) questionLine() string {
	text := w.view.Message
	if w.view.Detail != "" {
		text += ": " + w.view.Detail
	}
	if len(w.Choices) > 0 {
		text += " [" + strings.Join(w.Choices, " | ") + "]"
	}
	return oneLine(text)
}

// oneLine is the text in one line; of a long text its beginning and end.
func oneLine(text string) string {
	const maxLength = 1000
	return strings.Join(strings.Fields(visible.Ends(strings.Join(strings.Fields(text), " "),
		maxLength, 2)), " ")
}

// Answer answers the session's question with an id. The error is NOT_FOUND, INVALID_STATE for a
// question that is over, or INVALID_JSON with the field that is missing or does not fit the
// question; the question then goes on waiting.
func (s *Session) Answer(id string, a Answer) error {
	w, err := s.g.questions.find(s, id)
	if err != nil {
		return err
	}
	if err := w.check(a); err != nil {
		return err
	}
	by := answerer{person: a.Person}
	if !s.g.questions.remove(w, protocol.QuestionAnswered, by) {
		_, err := s.g.questions.find(s, w.view.ID)
		return err
	}
	s.accept(w, a, by)
	return nil
}

// answerLine is an answer in one line for the timeline. Of a form it has the names of
// the fields only, since their values may be secret.
func (w *openQuestion) answerLine(a Answer) string {
	text := a.Text
	switch {
	case a.Decision != "" && text != "":
		text = a.Decision + " (" + text + ")"
	case a.Decision != "":
		text = a.Decision
	case w.Kind == adminapi.QuestionForm:
		var fields []string
		_ = protocol.Object(a.Content, func(name string, _ protocol.Raw) error {
			fields = append(fields, name)
			return nil
		})
		text = strings.Join(fields, ", ")
	}
	return oneLine(visible.Text(text))
}

// check checks whether an answer fits the question. The error names the field.
func (w *openQuestion) check(a Answer) *protocol.Error {
	bad := func(field, format string, args ...any) *protocol.Error {
		return errorf(protocol.CodeInvalidJSON, "%s", field+": "+fmt.Sprintf(format, args...))
	}
	decisions := []string{adminapi.DecideDeny}
	if w.Kind == adminapi.QuestionPermission {
		decisions = []string{adminapi.DecideOnce, adminapi.DecideSession, adminapi.DecideDeny}
	}
	switch {
	case a.Decision != "" && !slices.Contains(decisions, a.Decision):
		return bad("decision", "%q is not one of %s, which a question of kind %s takes",
			a.Decision, strings.Join(decisions, ", "), w.Kind)
	case w.Kind == adminapi.QuestionPermission && a.Decision == "":
		return bad("decision", "is required: %s", strings.Join(decisions, ", "))
	case w.Kind == adminapi.QuestionPermission && a.Text != "" && !a.Denied():
		return bad("text", "goes with a denial only: it tells the model why")
	case w.Kind != adminapi.QuestionForm && a.Content != nil:
		return bad("content", "is for questions of kind %s", adminapi.QuestionForm)
	case a.Decision != "":
		return nil
	case w.Kind == adminapi.QuestionForm:
		return w.checkForm(a)
	case a.Text == "":
		return bad("text", "is required: the answer, or decision %s to decline",
			adminapi.DecideDeny)
	case !w.Free && len(w.Choices) > 0 && !slices.Contains(w.Choices, a.Text):
		return bad("text", "%q is not one of the choices: %s", a.Text,
			strings.Join(w.Choices, ", "))
	}
	return nil
}

func (w *openQuestion) checkForm(a Answer) *protocol.Error {
	switch {
	case a.Text != "":
		return errorf(protocol.CodeInvalidJSON,
			"text: a form takes content, an object that its schema allows")
	case a.Content == nil:
		return errorf(protocol.CodeInvalidJSON,
			"content: is required: an object that the form's schema allows, or decision "+
				"deny to decline")
	}
	if err := w.schema.Check(a.Content); err != nil {
		return errorf(protocol.CodeInvalidJSON, "content: %v", err)
	}
	return nil
}
