package gateway

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// asking is a gateway with two sessions.
func asking(t *testing.T) (*Gateway, *Session, *Session) {
	t.Helper()
	g := New(Options{})
	var made []*Session
	for _, id := range []string{"one", "two"} {
		s, err := g.Register(SessionSpec{ID: id},
			HostInfo{Kind: "test", Send: true, Interrupt: true, Turns: true}, quietHost{})
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, s)
	}
	t.Cleanup(func() { g.Drain(context.Background()) })
	return g, made[0], made[1]
}

// asks asks a question and returns a channel for its end.
func asks(ctx context.Context, s *Session, q Question) chan string {
	end := make(chan string, 1)
	go func() {
		a, err := s.Ask(ctx, q)
		if err != nil {
			end <- err.Error()
			return
		}
		end <- strings.TrimSpace(a.Decision + " " + a.Text + string(a.Content))
	}()
	return end
}

func lines(s *Session) string {
	list, _ := s.Timeline(0)
	var b strings.Builder
	for _, l := range list {
		b.WriteString(l.Message + "\n")
	}
	return b.String()
}

func codeOf(err error) protocol.Code {
	e, _ := errors.AsType[*protocol.Error](err)
	if e == nil {
		return ""
	}
	return e.Code
}

// TestQuestionEndsWithItsTurn shows that a question is neither listed nor answerable
// once its turn has ended.
func TestQuestionEndsWithItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s, _ := asking(t)
		for range 50 {
			ctx, cancel := context.WithCancel(t.Context())
			end := asks(ctx, s, Question{Kind: adminapi.QuestionInput, Message: "Which?",
				Free: true})
			synctest.Wait()
			id := g.Questions()[0].ID
			cancel()
			list := g.Questions()
			if err := s.Answer(id, Answer{Text: "this"}); len(list) != 0 ||
				codeOf(err) != protocol.CodeInvalidState {
				t.Fatalf(
					"after the turn: %+v, answering it: %v, want none and %v",
					list, err, protocol.CodeInvalidState,
				)
			}
			if err := s.Answer("", Answer{Text: "this"}); codeOf(err) != protocol.CodeNotFound {
				t.Fatalf("after the turn, answering any: %v, want %v", err, protocol.CodeNotFound)
			}
			if got := <-end; got != errNotNeeded.Error() {
				t.Fatalf("the host was told %q, want %q", got, errNotNeeded.Error())
			}
		}
	})
}

// A permission is shown whole, with escapes spelt out, or it is refused.
func TestPermissionIsShownWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s, _ := asking(t)
		for detail, want := range map[string]string{
			"git status " + strings.Repeat("x", 40_000) + "; rm -rf END": "; rm -rf END",
			"ls '\x1b]' ; rm x ; echo '\a'":                              `ls '\x1b]' ; rm x ; echo '\x07'`,
			"a\rb\u202ec\u00a0d":                                         `a\x0db\u202ec\u00a0d`,
		} {
			end := asks(t.Context(), s, Question{Kind: adminapi.QuestionPermission,
				Message: "May it?", Detail: detail})
			synctest.Wait()
			list := g.Questions()
			if len(list) != 1 || !strings.HasSuffix(list[0].Detail, want) ||
				len(list[0].Detail) < len(detail) {
				t.Errorf("%.60q is shown as %+v, want one with the detail, escaped", detail, list)
			}
			lines, _ := s.Timeline(0)
			if last := lines[len(lines)-1].Message; !strings.HasSuffix(last, want) ||
				len(detail) > 1000 && !strings.Contains(last, "bytes are left out here") {
				t.Errorf(
					"%.60q is in the timeline as %q, want %q at its end, shortened if it is long",
					detail, last, want,
				)
			}
			if err := s.Answer(g.Questions()[0].ID,
				Answer{Decision: adminapi.DecideOnce}); err != nil {
				t.Error(err)
			}
			<-end
		}
		_, err := s.Ask(t.Context(), Question{Kind: adminapi.QuestionPermission, Message: "May it?",
			Detail: strings.Repeat("x", maxPermission)})
		if err == nil || !strings.Contains(err.Error(), "65543 bytes long") ||
			len(g.Questions()) != 0 {
			t.Errorf(
				"more than anybody reads: %v, waits %d, want a refusal for its length, and none",
				err, len(g.Questions()),
			)
		}
	})
}

func TestQuestionAnsweredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s, other := asking(t)
		defer g.Watch()()
		told := make(chan error, 1)
		go func() { told <- g.WaitChange(t.Context(), g.Changes()) }()
		synctest.Wait()
		end := asks(t.Context(), s, Question{Kind: adminapi.QuestionPermission, Message: "May it?",
			Detail: "rm \x1b[31mx"})
		synctest.Wait()
		if err := <-told; err != nil {
			t.Error(err)
		}
		list := g.Questions()
		if len(list) != 1 || list[0].Session != "one" || list[0].Detail != `rm \x1b[31mx` ||
			list[0].ExpiresAt.Sub(list[0].AskedAt) != DefaultAnswerTimeout {
			t.Fatalf("waits: %+v, want one of session one about %q for %v", list, `rm \x1b[31mx`,
				DefaultAnswerTimeout)
		}
		id := list[0].ID
		for _, wrong := range []struct {
			s    *Session
			id   string
			a    Answer
			code protocol.Code
			text string
		}{
			{s, id, Answer{}, protocol.CodeInvalidJSON, "decision: is required"},
			{s, id, Answer{Decision: "maybe"}, protocol.CodeInvalidJSON,
				`decision: "maybe" is not one of once, session, deny`},
			{s, id, Answer{Decision: adminapi.DecideOnce, Text: "x"}, protocol.CodeInvalidJSON,
				"text: goes with a denial"},
			{s, id, Answer{Decision: adminapi.DecideOnce, Content: protocol.Raw("{}")},
				protocol.CodeInvalidJSON,
				"content: is for"},
			{s, "nope-1", Answer{Decision: adminapi.DecideOnce}, protocol.CodeNotFound,
				"does not exist"},
			{s, id + "0", Answer{Decision: adminapi.DecideOnce}, protocol.CodeNotFound,
				"does not exist"},
			{other, id, Answer{Decision: adminapi.DecideOnce}, protocol.CodeNotFound,
				"does not exist in this session"},
			{other, "", Answer{Decision: adminapi.DecideOnce}, protocol.CodeNotFound,
				"no question waits"},
		} {
			if err := wrong.s.Answer(wrong.id, wrong.a); codeOf(err) != wrong.code ||
				!strings.Contains(err.Error(), wrong.text) {
				t.Errorf("%q %+v: %v, want %v and %q in it", wrong.id, wrong.a, err, wrong.code,
					wrong.text)
			}
		}
		results := make(chan error, 10)
		for range 10 {
			go func() { results <- s.Answer(id, Answer{Decision: adminapi.DecideSession}) }()
		}
		won := 0
		for range 10 {
			switch err := <-results; {
			case err == nil:
				won++
			case codeOf(err) != protocol.CodeInvalidState ||
				!strings.Contains(err.Error(), "is over"):
				t.Errorf(`one that came late: %v, want %v and "is over" in it`, err,
					protocol.CodeInvalidState)
			}
		}
		if got := <-end; won != 1 || got != adminapi.DecideSession {
			t.Errorf("%d answers were taken; the host got %q, want 1 and %q", won, got,
				adminapi.DecideSession)
		}
		for _, want := range []string{"permission asked (" + id, ": May it?: rm \\x1b[31mx",
			"permission " + id + " answered by the user: session"} {
			if !strings.Contains(lines(s), want) {
				t.Errorf("the timeline, want %q in it:\n%s", want, lines(s))
			}
		}
	})
}

// However a question ends, the host gets the reason and the list forgets it.
func TestQuestionEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		do   func(g *Gateway, s *Session, cancel context.CancelFunc)
		want string
	}{
		"time": {func(*Gateway, *Session, context.CancelFunc) { <-time.After(time.Minute) },
			ErrUnanswered.Error()},
		"host": {func(_ *Gateway, _ *Session, cancel context.CancelFunc) {
			cancel()
		}, errNotNeeded.Error()},
		"interrupt": {func(_ *Gateway, s *Session, _ context.CancelFunc) {
			_, _ = s.Interrupt(context.Background(), "enough")
		}, "the turn was interrupted"},
		"end": {func(_ *Gateway, s *Session, _ context.CancelFunc) {
			_ = s.Stop(context.Background(), "test")
		},
			ErrSessionEnded.Error()},
		"drain": {func(g *Gateway, _ *Session, _ context.CancelFunc) {
			g.Drain(context.Background())
		},
			ErrSessionEnded.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g, s, other := asking(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				end := asks(ctx, s, Question{Kind: adminapi.QuestionInput, Message: "Which?",
					Timeout: time.Minute})
				synctest.Wait()
				beside := asks(t.Context(), other,
					Question{Kind: adminapi.QuestionInput, Message: "Other?", Timeout: time.Hour})
				synctest.Wait()
				list := g.Questions()
				start := time.Now()
				tc.do(g, s, cancel)
				synctest.Wait()
				if got := <-end; got != tc.want || time.Since(start) > time.Minute {
					t.Errorf(
						"ended with %q after %s, want %q and at most %s",
						got, time.Since(start), tc.want, time.Minute,
					)
				}
				left := g.Questions()
				if slices.ContainsFunc(left, func(q adminapi.Question) bool {
					return q.Session == "one"
				}) {
					t.Errorf("it still waits: %+v, want none of session one", left)
				}
				if err := s.Answer(list[0].ID,
					Answer{Text: "late"}); codeOf(err) != protocol.CodeInvalidState {
					t.Errorf("a late answer: %v, want %v", err, protocol.CodeInvalidState)
				}
				if !strings.Contains(lines(s), "input "+list[0].ID+" is over: "+tc.want) {
					t.Errorf("the timeline, want %q in it:\n%s",
						"input "+list[0].ID+" is over: "+tc.want, lines(s))
				}
				if name != "drain" {
					if err := other.Answer(list[1].ID, Answer{Text: "yes"}); err != nil {
						t.Error(err)
					}
				}
				<-beside
			})
		})
	}
}

func TestAnswersOfInputsAndForms(t *testing.T) {
	form := protocol.Raw(
		`{"type":"object","properties":{"name":{"type":"string","minLength":2},"age":{"type":"integer"}},"required":["name"],"additionalProperties":false}`,
	)
	for _, tc := range []struct {
		q    Question
		a    Answer
		want string // the host's, or what is wrong
	}{
		{Question{Kind: adminapi.QuestionInput}, Answer{Text: "anything"}, "anything"},
		{Question{Kind: adminapi.QuestionInput}, Answer{}, "text: is required"},
		{Question{Kind: adminapi.QuestionInput}, Answer{Decision: adminapi.DecideDeny, Text: "why"},
			"deny why"},
		{Question{Kind: adminapi.QuestionInput}, Answer{Decision: adminapi.DecideOnce},
			`decision: "once" is not one of deny`},
		{Question{Kind: adminapi.QuestionInput}, Answer{Content: protocol.Raw(`{}`)},
			"content: is for"},
		{Question{Kind: adminapi.QuestionInput, Choices: []string{"red", "blue"}},
			Answer{Text: "blue"}, "blue"},
		{Question{Kind: adminapi.QuestionInput, Choices: []string{"red", "blue"}},
			Answer{Text: "green"},
			`text: "green" is not one of the choices: red, blue`},
		{Question{Kind: adminapi.QuestionInput, Choices: []string{"red"}, Free: true},
			Answer{Text: "green"}, "green"},
		{Question{Kind: adminapi.QuestionForm, Schema: form},
			Answer{Content: protocol.Raw(`{"name":"Ada"}`)},
			`{"name":"Ada"}`},
		{Question{Kind: adminapi.QuestionForm, Schema: form},
			Answer{Content: protocol.Raw(`{"name":"A"}`)}, "name"},
		{Question{Kind: adminapi.QuestionForm, Schema: form},
			Answer{Content: protocol.Raw(`{"age":1}`)}, "name"},
		{Question{Kind: adminapi.QuestionForm, Schema: form},
			Answer{Content: protocol.Raw(`{"name":"Ada","age":"x"}`)},
			"age"},
		{Question{Kind: adminapi.QuestionForm, Schema: form},
			Answer{Content: protocol.Raw(`{"name":"Ada","x":1}`)},
			"x"},
		{Question{Kind: adminapi.QuestionForm, Schema: form}, Answer{Text: "Ada"},
			"text: a form takes content"},
		{Question{Kind: adminapi.QuestionForm, Schema: form}, Answer{}, "content: is required"},
		{Question{Kind: adminapi.QuestionForm, Schema: form}, Answer{Decision: adminapi.DecideDeny},
			"deny"},
	} {
		synctest.Test(t, func(t *testing.T) {
			g, s, _ := asking(t)
			tc.q.Message = "What?"
			end := asks(t.Context(), s, tc.q)
			synctest.Wait()
			err := s.Answer(g.Questions()[0].ID, tc.a)
			if err != nil {
				if codeOf(err) != protocol.CodeInvalidJSON ||
					!strings.Contains(err.Error(), tc.want) {
					t.Errorf("%+v: %v, want %q", tc.a, err, tc.want)
				}
				if list := g.Questions(); len(list) != 1 {
					t.Errorf("%+v: a wrong answer ended the question, want it to wait", tc.a)
				}
				return
			}
			if got := <-end; got != tc.want {
				t.Errorf("%+v: the host got %q, want %q", tc.a, got, tc.want)
			}
			if strings.Contains(lines(s), "Ada") {
				t.Errorf("the timeline, want nothing of what the form was filled in with:\n%s",
					lines(s))
			}
		})
	}
}

// A thousand questions wait at once, one more does not; each gets its own answer.
func TestManyQuestions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s, other := asking(t)
		ends := map[string]chan string{}
		for n := range maxQuestions {
			text := fmt.Sprintf("question %d", n)
			ends[text] = asks(t.Context(), s, Question{Kind: adminapi.QuestionInput, Message: text})
		}
		synctest.Wait()
		if _, err := s.Ask(t.Context(),
			Question{Kind: adminapi.QuestionInput, Message: "one more"}); err == nil ||
			!strings.Contains(err.Error(), "1000 questions") {
			t.Errorf(`one more: %v, want an error and "1000 questions" in it`, err)
		}
		end := asks(t.Context(), other,
			Question{Kind: adminapi.QuestionInput, Message: "elsewhere"})
		synctest.Wait()
		if err := s.Answer("", Answer{Text: "x"}); codeOf(err) != protocol.CodeInvalidJSON ||
			!strings.Contains(err.Error(), "question: is required") ||
			!strings.Contains(err.Error(), "990 more") {
			t.Errorf(`which one: %v, want %v, "question: is required" and "990 more" in it`, err,
				protocol.CodeInvalidJSON)
		}
		list := g.Questions()
		var answering sync.WaitGroup
		for _, q := range list {
			of, _ := g.Session(q.Session)
			answering.Go(func() {
				if err := of.Answer(q.ID, Answer{Text: "to " + q.Message}); err != nil {
					t.Error(err)
				}
			})
		}
		answering.Wait()
		for text, end := range ends {
			if got := <-end; got != "to "+text {
				t.Errorf("%s got %q, want %q", text, got, "to "+text)
			}
		}
		if got := <-end; got != "to elsewhere" {
			t.Errorf(`the other session got %q, want "to elsewhere"`, got)
		}
		if list := g.Questions(); len(list) != 0 {
			t.Errorf("%d still wait, want none", len(list))
		}
	})
}

// An answer is for the question that a person saw. Without its id, or with that of another, nothing
// is answered, and the error names what waits.
func TestAnswerNamesItsQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s, other := asking(t)
		beside := asks(t.Context(), other, Question{Kind: adminapi.QuestionPermission,
			Message: "There?"})
		synctest.Wait()
		end := asks(t.Context(), s, Question{Kind: adminapi.QuestionPermission, Message: "Here?",
			Detail: "rm x"})
		synctest.Wait()
		theirs, own := g.Questions()[0].ID, g.Questions()[1].ID
		waits := own + " (permission: Here?: rm x)"
		for id, code := range map[string]protocol.Code{
			"": protocol.CodeInvalidJSON, "x": protocol.CodeNotFound, theirs: protocol.CodeNotFound,
		} {
			err := s.Answer(id, Answer{Decision: adminapi.DecideOnce})
			if codeOf(err) != code || !strings.Contains(err.Error(), waits) ||
				strings.Contains(err.Error(), "There") {
				t.Errorf("an answer to %q: %v, want %s with %q", id, err, code, waits)
			}
		}
		if n := len(g.Questions()); n != 2 {
			t.Errorf("%d questions wait, want both", n)
		}
		for _, a := range []struct {
			s  *Session
			id string
		}{{s, own}, {other, theirs}} {
			if err := a.s.Answer(a.id, Answer{Decision: adminapi.DecideDeny}); err != nil {
				t.Error(err)
			}
		}
		<-end
		<-beside
		if err := s.Answer("", Answer{}); codeOf(err) != protocol.CodeNotFound {
			t.Errorf("nothing waits: %v, want %s", err, protocol.CodeNotFound)
		}
	})
}
