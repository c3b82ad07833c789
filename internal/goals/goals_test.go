package goals_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"tapgw/internal/adminapi"
	"tapgw/internal/evidence"
	"tapgw/internal/gateway"
	"tapgw/internal/goals"
	"tapgw/internal/link"
	"tapgw/providers"
)

func TestMain(m *testing.M) {
	// it ends by itself
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/dlclark/regexp2.runClock"))
}

// model is the host of a session; the test decides how it answers a prompt.
type model struct {
	session *gateway.Session
	ready   chan struct{}              // closed when session is set
	turn    func(n int, prompt string) // nil: the turn does not end
	tools   chan struct{}              // the host takes tools when it is closed; nil: at once

	mu      sync.Mutex
	prompts []string
}

func (m *model) Send(_ context.Context, p gateway.Prompt) error {
	m.mu.Lock()
	m.prompts = append(m.prompts, p.Text)
	n := len(m.prompts)
	m.mu.Unlock()
	if m.turn != nil {
		go func() {
			<-m.ready
			m.turn(n, p.Text)
			m.session.Idle()
		}()
	}
	return nil
}

func (m *model) SetTools(context.Context, uint64, []gateway.Tool) error {
	if m.tools != nil {
		<-m.tools
	}
	return nil
}

func (m *model) Log(adminapi.LogLevel, string)                                {}
func (m *model) Interrupt(context.Context, string) (list []string, err error) { return nil, nil }
func (m *model) Close(context.Context, string) error                          { return nil }

func (m *model) got() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.prompts)
}

// world is a gateway in this process, with goals and a session.
type world struct {
	*testing.T
	gateway *gateway.Gateway
	set     *goals.Set
	state   string // the directory of the goals
	dir     string // of the session
	model   *model
	turn    func(n int, prompt string) // of the next model

	mu      sync.Mutex
	calls   []evidence.Call
	since   time.Time // of the last look at calls
	records []adminapi.Record
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, gateway: gateway.New(gateway.Options{}), state: t.TempDir(), dir: t.TempDir()}
	w.register("s", gateway.HostInfo{Kind: "remote", Send: true, Interrupt: true, Usage: true})
	w.open()
	return w
}

// register registers the session.
func (w *world) register(id string, info gateway.HostInfo) {
	w.Helper()
	w.model = &model{turn: w.turn, ready: make(chan struct{})}
	s, err := w.gateway.Register(gateway.SessionSpec{ID: id, CWD: w.dir}, info, w.model)
	if err != nil {
		w.Fatal(err)
	}
	w.model.session = s
	close(w.model.ready)
}

// open makes the goals anew, as a gateway that starts.
func (w *world) open() {
	w.set = goals.New(goals.Options{
		Gateway: w.gateway, Dir: w.state, Dial: w.dial,
		Calls: func(_ context.Context, _ string, since time.Time) ([]evidence.Call, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.since = since
			return slices.Clone(w.calls), nil
		},
		Record: func(r adminapi.Record) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.records = append(w.records, r)
		},
	})
	w.set.Open()
}

func (w *world) dial() (*link.Conn, error) {
	return link.Connect(1<<20, func(p *link.Peer) link.Receiver {
		return w.gateway.Connect(p, gateway.ConnOptions{})
	}, link.Ends{Slow: func() {}, Panic: func(fault any) { panic(fault) }, Close: func() {}}), nil
}

// end ends the gateway.
func (w *world) end() {
	w.set.Close()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	w.gateway.Drain(ctx)
}

func (w *world) start(r adminapi.GoalRequest, checks ...string) adminapi.Goal {
	w.Helper()
	g, err := w.try(r, adminapi.GoalByPerson, checks...)
	if err != nil {
		w.Fatal(err)
	}
	return g
}

func (w *world) try(r adminapi.GoalRequest, by string, checks ...string) (adminapi.Goal, error) {
	if r.Session == "" {
		r.Session = "s"
	}
	if r.Text == "" {
		r.Text = "Write the report."
	}
	for _, c := range checks {
		r.Checks = append(r.Checks, json.RawMessage(c))
	}
	return w.set.Start(r, by)
}

// write writes a file of the session's directory.
func (w *world) write(name, text string) {
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.Error(err)
	}
}

// after lets time pass, and returns the goal.
func (w *world) after(d time.Duration, id string) adminapi.Goal {
	w.Helper()
	<-time.After(d)
	synctest.Wait()
	g, err := w.set.Get(id)
	if err != nil {
		w.Fatal(err)
	}
	return g
}

// want compares a goal's state, its turns, and its reason, of which it gives a part.
func (w *world) want(g adminapi.Goal, state string, turns int, reason string) {
	w.Helper()
	if g.State != state || g.Spent.Turns != turns || len(g.Iterations) != turns ||
		!strings.Contains(g.Reason, reason) {
		w.Errorf("got a goal that is %s after %d turns, %d iterations: %q; want %s after %d: %q",
			g.State, g.Spent.Turns, len(g.Iterations), g.Reason, state, turns, reason)
	}
	if isEnded := !g.EndedAt.IsZero(); isEnded != (state != adminapi.GoalActive) {
		w.Errorf("a goal that is %s has the end %s", g.State, g.EndedAt)
	}
}

const report = `{"file": {"path": "report.md", "contains": "done"}}`

// A goal is met by its file, not before; each prompt names the checks that do not hold, and the
// model's word has no effect.
func TestGoalIsMetByEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.model.turn = func(n int, _ string) {
			w.model.session.Event(gateway.Event{Callback: gateway.OnEndMessage,
				Content: "The goal is met. COMPLETE"})
			<-time.After(time.Minute)
			switch n {
			case 5: // more than an injecting provider may without the user
				w.write("report.md", "begun")
			case 6:
				w.write("report.md", "done")
			}
		}
		g := w.start(adminapi.GoalRequest{Turns: 20}, report, `{"file": "."}`)
		w.want(w.after(30*time.Second, g.ID), adminapi.GoalActive, 1, "")
		if _, err := w.set.Stop(g.ID, adminapi.GoalByPerson, ""); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Hour)
		g = w.start(adminapi.GoalRequest{Turns: 20}, report)
		w.want(w.after(time.Hour, g.ID), adminapi.GoalMet, 5, "")
		g, _ = w.set.Get(g.ID)
		prompts := w.model.got()
		for i, want := range map[int]string{
			1: "file report.md: there is no such file", 5: `file report.md: "done" is not in it`,
		} {
			if len(prompts) <= i || !strings.Contains(prompts[i], want) ||
				!strings.Contains(prompts[i], "Write the report.") {
				t.Errorf(
					"prompt %d of %d: got %q, want the goal and %q",
					i,
					len(prompts),
					prompts[min(i, len(prompts)-1)],
					want,
				)
			}
		}
		if len(prompts) != 6 {
			t.Errorf("the model got %d prompts, want 6", len(prompts))
		}
		if last := g.Iterations[4]; len(last.Missing) != 0 || last.EndedAt.IsZero() ||
			!g.Evidence[0].Holds {
			t.Errorf("the last iteration is %+v with evidence %+v, want nothing missing", last,
				g.Evidence)
		}
		if rows := w.model.session.History([]string{goals.Name}, 1, time.Time{}); len(rows) != 1 ||
			!strings.Contains(rows[0].Event, "goal "+g.ID+": met after 5 turns") {
			t.Errorf("the session was told %+v, want that the goal is met", rows)
		}
		w.end()
	})
}

// A goal that is met at once needs no turn.
func TestGoalThatHoldsAlready(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.write("report.md", "done")
		g := w.start(adminapi.GoalRequest{}, report)
		w.want(w.after(time.Second, g.ID), adminapi.GoalMet, 0, "")
		w.end()
	})
}

// Each budget ends a goal, with its reason.
func TestBudgets(t *testing.T) {
	for name, test := range map[string]struct {
		budget adminapi.GoalRequest
		turns  int
		reason string
	}{
		"turns":  {adminapi.GoalRequest{Turns: 3}, 3, "its budget of 3 turns is used up"},
		"time":   {adminapi.GoalRequest{TimeMs: 150_000}, 3, "its time of 2m30s is over"},
		"tokens": {adminapi.GoalRequest{Tokens: 250}, 3, "its session has used 330 of 250 tokens"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.model.turn = func(int, string) {
					w.model.session.CountModelCall(
						gateway.ModelCall{Tokens: adminapi.Tokens{Input: 100, Output: 10}})
					<-time.After(time.Minute)
				}
				g := w.start(test.budget, report)
				w.want(w.after(time.Hour, g.ID), adminapi.GoalOverBudget, test.turns, test.reason)
				if got := len(w.model.got()); got != test.turns {
					t.Errorf("the model got %d prompts, want %d", got, test.turns)
				}
				w.end()
			})
		})
	}
}

// The time ends a goal also while a turn hangs.
func TestTimeEndsAGoalWhoseTurnHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t) // turns don't end
		g := w.start(adminapi.GoalRequest{TimeMs: 60_000}, report)
		w.want(w.after(59*time.Second, g.ID), adminapi.GoalActive, 1, "")
		w.want(w.after(2*time.Second, g.ID), adminapi.GoalOverBudget, 1, "its time of 1m0s is over")
		w.end()
	})
}

// A person who interrupts a turn has stopped the goal; one who only types has not.
func TestPersonInTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.model.turn = func(_ int, prompt string) {
			if prompt == "mine" {
				<-time.After(10 * time.Minute)
				return
			}
			<-time.After(time.Minute)
		}
		g := w.start(adminapi.GoalRequest{}, report)
		<-time.After(30 * time.Second)
		if _, err := w.model.session.Prompt(t.Context(), gateway.Prompt{Text: "mine"}); err != nil {
			t.Fatal(err)
		}
		w.want(w.after(20*time.Second, g.ID), adminapi.GoalActive, 1, "")
		<-time.After(11 * time.Minute)
		if _, err := w.model.session.Interrupt(t.Context(), "enough"); err != nil {
			t.Fatal(err)
		}
		v := w.after(5*time.Minute, g.ID)
		if v.State != adminapi.GoalStopped || !strings.Contains(v.Reason, "interrupted: enough") {
			t.Errorf("after the interrupt the goal is %s: %q; want it stopped with the reason",
				v.State, v.Reason)
		}
		turns := len(w.model.got())
		if v = w.after(time.Hour, g.ID); len(w.model.got()) != turns {
			t.Errorf("after the interrupt the model got %d prompts more, want none",
				len(w.model.got())-turns)
		}
		w.end()
	})
}

// A prompt of a goal that waits when the goal is stopped is not given any more.
func TestStopTakesBackThePrompt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.model = &model{ready: make(chan struct{}), tools: make(chan struct{})}
		s, err := w.gateway.Register(gateway.SessionSpec{ID: "slow", CWD: w.dir},
			gateway.HostInfo{Kind: "remote", Send: true, LiveTools: true}, w.model)
		if err != nil {
			t.Fatal(err)
		}
		w.model.session = s
		pass := w.gateway.Issue(gateway.PassSpec{Trust: gateway.TrustProject})
		defer pass.Revoke()
		p := providers.New("other", &providers.Options{URL: "ws://this.process",
			Token: pass.Token(), Session: "slow"})
		providers.AddTool(p, "look", "Look.", func(context.Context, struct{}) (string, error) {
			return "", nil
		})
		go func() { _ = p.Run(link.WithDial(t.Context(), w.dial)) }()
		// The session now waits for its model to take the tool, with no prompt in hand.
		synctest.Wait()
		g := w.start(adminapi.GoalRequest{Session: "slow"}, report)
		w.want(w.after(10*time.Second, g.ID), adminapi.GoalActive, 1, "")
		if n := s.QueuedInjects(); n != 1 {
			t.Fatalf("%d injects wait, want the goal's", n)
		}
		if _, err := w.set.Stop(g.ID, adminapi.GoalByPerson, ""); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		close(w.model.tools)
		synctest.Wait()
		if got := w.model.got(); len(got) > 0 {
			t.Errorf("after the stop the session got %q, want nothing", got)
		}
		w.end()
	})
}

// Turns that fail are tried again, more and more slowly, and then not at all.
func TestTurnsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.model.turn = func(int, string) {
			w.model.session.Event(gateway.Event{SessionError: "the model is gone\x1b[2J"})
		}
		began := time.Now()
		g := w.start(adminapi.GoalRequest{}, report)
		v := w.after(time.Hour, g.ID)
		w.want(v, adminapi.GoalBlocked, 3, "3 turns failed in a row: the model is gone")
		if strings.Contains(v.Reason, "\x1b") {
			t.Errorf("the reason is %q, want no control character", v.Reason)
		}
		if took := v.EndedAt.Sub(began); took < time.Minute || took > 5*time.Minute {
			t.Errorf("it took %s until the goal was blocked, want some pauses", took)
		}
		w.end()
	})
}

// Calls count from the start of the goal, also when the clock was set back.
func TestCallsOfAGoal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.model.turn = func(n int, _ string) {
			<-time.After(time.Minute)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.calls = append(w.calls, evidence.Call{Tool: "bash", Command: "make test",
				ExitCode: new(3 - n)})
		}
		began := time.Now()
		g := w.start(adminapi.GoalRequest{}, `{"call": "make test"}`)
		v := w.after(time.Hour, g.ID)
		w.want(v, adminapi.GoalMet, 3, "")
		if want := "ended with exit code 1"; !strings.Contains(strings.Join(v.Iterations[1].Missing,
			""), want) {
			t.Errorf("after the second turn: missing %q, want %q", v.Iterations[1].Missing, want)
		}
		w.mu.Lock()
		since := w.since
		w.mu.Unlock()
		if !since.Equal(began.UTC()) {
			t.Errorf("calls count since %s, want since %s", since, began)
		}
		w.end()
	})
}

// The goals of a model take MaxModelTurns together, until the user speaks: one that it stops gives
// no turns back.
func TestModelsTurnsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.model.turn = func(int, string) {}
		first, err := w.try(adminapi.GoalRequest{Turns: goals.MaxModelTurns - 3},
			adminapi.GoalByModel, report)
		if err != nil {
			t.Fatal(err)
		}
		w.want(w.after(time.Hour, first.ID), adminapi.GoalOverBudget, goals.MaxModelTurns-3, "")
		second, err := w.try(adminapi.GoalRequest{}, adminapi.GoalByModel, report)
		if err != nil || second.Budget.Turns != 3 {
			t.Fatalf("the second goal: got %+v, %v, want the 3 turns that are left", second.Budget,
				err)
		}
		w.want(w.after(time.Hour, second.ID), adminapi.GoalOverBudget, 3, "")
		if g, err := w.try(adminapi.GoalRequest{}, adminapi.GoalByModel, report); err == nil {
			t.Errorf("without turns left: got %+v, want an error", g)
		}
		if _, err := w.model.session.Prompt(t.Context(),
			gateway.Prompt{Text: "go on"}); err != nil {
			t.Fatal(err)
		}
		third, err := w.try(adminapi.GoalRequest{}, adminapi.GoalByModel, report)
		if err != nil || third.Budget.Turns != goals.ModelTurns {
			t.Errorf("after the user's word: got %+v, %v, want the usual budget", third.Budget, err)
		}
		w.end()
	})
}

// A request that can't be a goal is refused with its field, and a session has one goal.
func TestStartRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.register("deaf", gateway.HostInfo{Kind: "remote"})
		w.register("free", gateway.HostInfo{Kind: "remote", Send: true})
		w.start(adminapi.GoalRequest{}, report)
		type request = adminapi.GoalRequest
		one := []string{report}
		many := slices.Repeat(one, 21)
		for _, test := range []struct {
			request adminapi.GoalRequest
			by      string
			checks  []string
			want    string
		}{
			{request{Session: "none"}, "person", one, `session "none" does not exist`},
			{request{Session: "deaf"}, "person", one, "take no prompts"},
			{request{}, "person", one, "the session has the goal g-"},
			{request{Session: "free"}, "model", nil, "checks: are missing"},
			{request{Session: "free"}, "person", many, "checks: has 21 entries"},
			{request{Session: "free"}, "person", []string{report, `{"file": 1}`},
				"checks[1]: file: "},
			{request{Session: "free"}, "model", []string{report, `{"file": "../x"}`},
				"checks[1]: file.path: "},
			{request{Session: "free"}, "person", []string{`{"file": "/etc/passwd"}`},
				"checks[0]: file.path: "},
			{request{Session: "free", Text: " \n"}, "person", one, "text: must say"},
			{request{Session: "free", Text: strings.Repeat("x", 9<<10)}, "person", one,
				"text: has"},
			{request{Session: "free", Turns: 501}, "person", one,
				"turns: 501 is not from 1 to 500"},
			{request{Session: "free", Turns: -1}, "person", one, "turns: -1"},
			{request{Session: "free", TimeMs: -1}, "person", one, "timeMs: "},
			{request{Session: "free", TimeMs: 1 << 62}, "person", one, "timeMs: "},
			{request{Session: "free", Tokens: 1}, "person", one, "tokens: sessions of host remote"},
			{request{Session: "free", Turns: 51}, "model", one, "turns: 51 is not from 1 to 50"},
			{request{Session: "free", TimeMs: 1 << 40}, "model", one, "timeMs: "},
		} {
			_, err := w.try(test.request, test.by, test.checks...)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%+v by the %s: got %v, want an error with %q", test.request, test.by, err,
					test.want)
			}
		}
		mine, err := w.try(adminapi.GoalRequest{Session: "free"}, adminapi.GoalByModel, report)
		if err != nil || mine.Budget.Turns != goals.ModelTurns ||
			mine.Budget.TimeMs != goals.MaxModelTime.Milliseconds() {
			t.Errorf("a model's goal: got %+v, %v, want the budget of a model", mine.Budget, err)
		}
		persons := w.set.List("s")[0]
		if _, err := w.set.Stop(persons.ID, adminapi.GoalByModel, ""); err == nil {
			t.Error("a model stopped the goal of a person, want that it may not")
		}
		if _, err := w.set.Stop(mine.ID, adminapi.GoalByModel, "no\nneed"); err != nil {
			t.Error(err)
		}
		if v, _ := w.set.Get(mine.ID); v.Reason != `stopped by the model: no\nneed` {
			t.Errorf("the stopped goal has the reason %q, want one line with the model's", v.Reason)
		}
		if _, err := w.set.Stop(mine.ID, adminapi.GoalByPerson, ""); err == nil {
			t.Error("a goal was stopped twice, want an error")
		}
		if _, err := w.set.Get("../x"); err == nil {
			t.Error("got a goal that is not there, want an error")
		}
		w.end()
	})
}
