package gateway

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/protocol"
)

// questioned is a provider with the grant for questions, which keeps what it is sent.
type questioned struct {
	conn *Conn

	mu   sync.Mutex
	sent []string // JSON
}

func (q *questioned) Send(m protocol.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sent = append(q.sent, string(protocol.Append(nil, m)))
}

func (q *questioned) Flush()                           {}
func (q *questioned) Close(protocol.CloseCode, string) {}

// take returns what was sent since the last take.
func (q *questioned) take() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	sent := strings.Join(q.sent, "\n")
	q.sent = nil
	return sent
}

// joinWithGrant binds a provider with the grant for questions to session one.
func joinWithGrant(g *Gateway, name string) (*questioned, *Pass) {
	pass := g.Issue(PassSpec{Trust: TrustExternal, Grants: []string{"questions"}})
	q, version := &questioned{}, protocol.Version
	q.conn = g.Connect(q, ConnOptions{})
	q.conn.Receive(protocol.Append(nil, &protocol.Auth{Token: pass.Token()}))
	q.conn.Receive(protocol.Append(nil, &protocol.Hello{Name: name, ProtocolVersion: &version, Session: "one",
		Subscribe: []string{protocol.EventQuestionAsked, protocol.EventQuestionEnded}}))
	return q, pass
}

// answer sends the provider's answer to a permission.
func (q *questioned) answer(id, requestID string) {
	q.conn.Receive(protocol.Append(nil, &protocol.QuestionAnswer{RequestID: requestID, Question: id,
		Decision: adminapi.DecideOnce}))
}

// Of many who answer at the same moment, providers and the user, one is first. Each of the
// others is told who it was, and the first has its ack before the question's end.
func TestFirstAnswerCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s, _ := asking(t)
		var providers []*questioned
		for i := range 5 {
			q, _ := joinWithGrant(g, fmt.Sprintf("p%d", i))
			providers = append(providers, q)
			defer q.conn.Closed()
		}
		for round := range 50 {
			<-time.After(time.Second) // no provider answers too often
			end := asks(t.Context(), s, Question{Kind: adminapi.QuestionPermission, Message: "May it?"})
			synctest.Wait()
			id := g.Questions()[0].ID
			for _, q := range providers {
				if got := q.take(); strings.Count(got, `"question.asked"`) != 1 {
					t.Fatalf("round %d: %s, want the question once", round, got)
				}
			}
			user := make(chan error, 1)
			go func() { user <- s.Answer(id, Answer{Decision: adminapi.DecideDeny}) }()
			for _, q := range providers {
				go q.answer(id, "r1")
			}
			got := <-end
			synctest.Wait()
			first := checkFirst(t, providers)
			if err := <-user; (err == nil) != (first == "user") || err != nil &&
				!strings.Contains(err.Error(), "is over: provider "+first+" answered it") {
				t.Errorf("round %d: the user got %v, want the first to be %s", round, err, first)
			}
			want := adminapi.DecideOnce
			if first == "user" {
				want = adminapi.DecideDeny
			}
			if got != want {
				t.Errorf("round %d: the host got %q, want %q of %s", round, got, want, first)
			}
		}
	})
}

// checkFirst checks what providers were told after they all answered, and returns who was
// first: the user or a provider's name.
func checkFirst(t *testing.T, providers []*questioned) string {
	t.Helper()
	first, said := "user", "the user"
	var told []string
	for i, q := range providers {
		told = append(told, q.take())
		if ack := strings.Index(told[i], `"type":"ack"`); ack >= 0 {
			if first != "user" || ack > strings.Index(told[i], `"question.ended"`) {
				t.Errorf("p%d got %s, want one ack of all, before the end", i, told[i])
			}
			first = fmt.Sprintf("p%d", i)
			said = "provider " + first
		}
	}
	for i, got := range told {
		isFirst := first == fmt.Sprintf("p%d", i)
		if strings.Count(got, `"question.ended"`) != 1 || strings.Contains(got, `"INVALID_STATE"`) == isFirst ||
			!isFirst && !strings.Contains(got, "is over: "+said+" answered it") {
			t.Errorf("p%d got %s, want the end once, and unless it was first, that %s was", i, got, said)
		}
	}
	return first
}

// A provider whose pass has ended hears of nothing more and answers nothing more, also where
// its connection is still open for its calls.
func TestRetiredProviderAnswersNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s, _ := asking(t)
		q, pass := joinWithGrant(g, "chat")
		defer q.conn.Closed()
		end := asks(t.Context(), s, Question{Kind: adminapi.QuestionPermission, Message: "May it?"})
		synctest.Wait()
		id := g.Questions()[0].ID
		q.take()
		pass.Retire()
		q.answer(id, "r1")
		if got := q.take(); !strings.Contains(got, `"NOT_FOUND"`) || len(g.Questions()) != 1 {
			t.Errorf("an answer of one that is retired: %s, %d wait, want NOT_FOUND and 1", got, len(g.Questions()))
		}
		if err := s.Answer(id, Answer{Decision: adminapi.DecideDeny}); err != nil {
			t.Error(err)
		}
		<-end
		synctest.Wait()
		if got := q.take(); got != "" {
			t.Errorf("one that is retired heard %s, want nothing", got)
		}
	})
}

// The ends of a thousand questions are remembered, and no more.
func TestEndedQuestionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s, _ := asking(t)
		var first string
		for range maxEnded + 1 {
			end := asks(t.Context(), s, Question{Kind: adminapi.QuestionPermission, Message: "May it?"})
			synctest.Wait()
			if first == "" {
				first = g.Questions()[0].ID
			}
			if err := s.Answer("", Answer{Decision: adminapi.DecideOnce}); err != nil {
				t.Fatal(err)
			}
			<-end
		}
		if n := len(g.questions.ended); n != maxEnded {
			t.Errorf("%d ends are kept, want %d", n, maxEnded)
		}
		if err := s.Answer(first, Answer{Decision: adminapi.DecideOnce}); codeOf(err) != protocol.CodeInvalidState {
			t.Errorf("an answer to one that is forgotten: %v, want %v", err, protocol.CodeInvalidState)
		}
	})
}
