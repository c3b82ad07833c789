package gateway

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
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
	q.conn.Receive(protocol.Append(nil, &protocol.Hello{Name: name, ProtocolVersion: &version,
		Session: "one", Subscribe: []string{protocol.EventQuestionAsked,
			protocol.EventQuestionEnded}}))
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
			end := asks(t.Context(), s, Question{Kind: adminapi.QuestionPermission,
				Message: "May it?"})
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
		if strings.Count(got, `"question.ended"`) != 1 ||
			strings.Contains(got, `"INVALID_STATE"`) == isFirst || !isFirst &&
			!strings.Contains(got, "is over: "+said+" answered it") {
			t.Errorf("p%d got %s, want the end once, and unless it was first, that %s was", i, got,
				said)
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
			t.Errorf("an answer of one that is retired: %s, %d wait, want NOT_FOUND and 1", got,
				len(g.Questions()))
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
			end := asks(t.Context(), s, Question{Kind: adminapi.QuestionPermission,
				Message: "May it?"})
			synctest.Wait()
			if first == "" {
				first = g.Questions()[0].ID
			}
			if err := s.Answer(g.Questions()[0].ID,
				Answer{Decision: adminapi.DecideOnce}); err != nil {
				t.Fatal(err)
			}
			<-end
		}
		if n := len(g.questions.ended); n != maxEnded {
			t.Errorf("%d ends are kept, want %d", n, maxEnded)
		}
		if err := s.Answer(first,
			Answer{Decision: adminapi.DecideOnce}); codeOf(err) != protocol.CodeInvalidState {
			t.Errorf("an answer to one that is forgotten: %v, want %v", err,
				protocol.CodeInvalidState)
		}
	})
}

// stormer is a provider that answers, rebinds and leaves at random. It checks that what it is
// told makes sense.
type stormer struct {
	questioned
	t     *testing.T
	known []string // ids of the questions that it knows of
	acks  int
}

func (s *stormer) Send(m protocol.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m := m.(type) {
	case *protocol.HelloAck:
		s.known = nil
	case *protocol.Ack:
		s.acks++
	case *protocol.SessionEvent:
		var e struct{ ID string }
		if err := json.Unmarshal(m.Data, &e); err != nil {
			s.t.Error(err)
		}
		at := slices.Index(s.known, e.ID)
		switch m.Event {
		case protocol.EventQuestionAsked:
			if s.known = append(s.known, e.ID); at >= 0 ||
				len(s.known) > protocol.MaxToldQuestions {
				s.t.Errorf("it is told of %s and knows %v, want none twice and %d at most", e.ID,
					s.known, protocol.MaxToldQuestions)
			}
		case protocol.EventQuestionEnded:
			if at < 0 {
				s.t.Errorf("it is told of the end of %s and knows %v, want an end of what it knows",
					e.ID, s.known)
				return
			}
			s.known = slices.Delete(s.known, at, at+1)
		}
	}
}

// act does one thing at random.
func (s *stormer) act(r *rand.Rand, hello []byte) {
	s.mu.Lock()
	id := ""
	if len(s.known) > 0 {
		id = s.known[r.IntN(len(s.known))]
	}
	s.mu.Unlock()
	switch r.IntN(10) {
	case 0:
		s.conn.Receive(slices.Clone(hello))
	case 1:
		s.answer("guess-1", "r")
	default:
		s.answer(id, "r")
	}
}

// However questions, their ends, answers and providers that come and go fall together, each
// question ends once and each provider knows what waits.
func TestQuestionStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s, _ := asking(t)
		var providers []*stormer
		var acting, asked sync.WaitGroup
		for i := range 6 {
			p := &stormer{t: t}
			pass, version := g.Issue(PassSpec{Trust: TrustProject, Grants: []string{"questions"}}),
				protocol.Version
			hello := protocol.Append(nil, &protocol.Hello{Name: fmt.Sprintf("p%d", i),
				ProtocolVersion: &version,
				Session:         "one", Subscribe: []string{protocol.EventQuestionAsked,
					protocol.EventQuestionEnded}})
			p.conn = g.Connect(p, ConnOptions{})
			p.conn.Receive(protocol.Append(nil, &protocol.Auth{Token: pass.Token()}))
			p.conn.Receive(slices.Clone(hello))
			providers = append(providers, p)
			acting.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 1))
				for range 200 {
					<-time.After(time.Duration(r.IntN(300)) * time.Millisecond)
					p.act(r, hello)
				}
			})
		}
		for i := range 50 {
			asked.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 2))
				for range 20 {
					_, _ = s.Ask(t.Context(), Question{Kind: adminapi.QuestionPermission,
						Message: "May it?",
						Timeout: time.Duration(1+r.IntN(2000)) * time.Millisecond})
				}
			})
		}
		go func() {
			for range 10 {
				<-time.After(time.Second)
				s.CancelCalls()
			}
		}()
		asked.Wait()
		acting.Wait()
		synctest.Wait()
		acks := 0
		for i, p := range providers {
			if acks += p.acks; len(p.known) != 0 {
				t.Errorf("p%d knows %v at the end, want none", i, p.known)
			}
			p.conn.Closed()
		}
		answers := strings.Count(lines(s), "answered by provider")
		if n := len(g.Questions()); n != 0 || acks == 0 || answers > acks {
			t.Errorf(
				"%d wait, %d acks, %d answers in the timeline: want none, some, and as many at most",
				n,
				acks,
				answers,
			)
		}
	})
}
