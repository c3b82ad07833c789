package goals

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
	"tapgw/internal/evidence"
	"tapgw/internal/gateway"
	"tapgw/internal/visible"
	"tapgw/providers"
)

// This file works on one goal: it waits until the session is idle, looks at the checks, and gives
// the next prompt until they hold or the budget is used up.

const (
	// minTurn is the time from the start of an iteration to that of the next: turns that end at
	// once would be too many pushes.
	minTurn = time.Second
	// After a turn that failed the goal waits, and after maxFailures in a row it is blocked.
	maxFailures = 3
	firstPause  = 10 * time.Second
	secondPause = time.Minute
	maxMissing  = 300 // bytes of a line about a check that does not hold
)

// cutOff is the reason of an iteration whose turn ended while no gateway ran.
const cutOff = "it was cut off with its session"

// goal is one goal. Its goroutine runs it while it is active.
type goal struct {
	set    *Set
	wake   chan struct{}      // holds one; the session may be idle
	cancel context.CancelFunc // guarded by Set.mu; nil before it runs

	mu     sync.Mutex // guards the fields below
	kept   kept
	wasCut bool   // the iteration without an end was cut off
	waits  string // why the goal waits; "" if it does not
}

func (g *goal) view() adminapi.Goal {
	g.mu.Lock()
	defer g.mu.Unlock()
	v := g.kept.Goal
	v.Iterations, v.Evidence = slices.Clone(v.Iterations), slices.Clone(v.Evidence)
	if v.State == adminapi.GoalActive {
		v.Reason = g.waits
	}
	return v
}

func (g *goal) isActive() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.kept.State == adminapi.GoalActive
}

// record is the record of the goal's present state. Call it with mu held, or before other
// goroutines have the goal.
func (g *goal) record() adminapi.Record {
	return adminapi.Record{TS: time.Now(), Kind: adminapi.RecordGoal, Session: g.kept.Session,
		Provider: Name, ID: g.kept.ID, State: g.kept.State, By: g.kept.By, Reason: g.kept.Reason}
}

// change changes an active goal, writes its file and reports the change. It reports false, and
// changes nothing, if the goal has ended. The error comes from the file.
func (g *goal) change(do func(k *kept)) (bool, error) {
	g.mu.Lock()
	if g.kept.State != adminapi.GoalActive {
		g.mu.Unlock()
		return false, nil
	}
	do(&g.kept)
	err := g.save()
	g.set.o.Record(g.record())
	g.mu.Unlock()
	g.set.o.Gateway.Touch()
	return true, err
}

// end ends the goal, unless it has ended.
func (g *goal) end(state, reason string) bool {
	is, err := g.change(func(k *kept) {
		k.State, k.Reason, k.EndedAt = state, visible.Line(reason), time.Now().UTC()
	})
	if err != nil {
		g.set.o.Log.Error("the end of a goal can't be kept", "goal", g.kept.ID, "error", err)
	}
	return is
}

// wait shows why the goal waits.
func (g *goal) wait(reason string) {
	g.mu.Lock()
	changed := g.waits != reason
	g.waits = reason
	g.mu.Unlock()
	if changed {
		g.set.o.Gateway.Touch()
	}
}

// run runs the goal until it has ended, or ctx.
func (g *goal) run(ctx context.Context) {
	for g.isActive() && ctx.Err() == nil {
		s := g.await(ctx)
		if s == nil {
			return
		}
		g.serve(ctx, s)
		if ctx.Err() == nil && !g.set.o.Gateway.MayReturn(g.kept.Host) {
			g.end(adminapi.GoalStopped, "its session has ended")
		}
		g.mu.Lock()
		g.wasCut = true
		g.mu.Unlock()
	}
}

// await waits for the goal's session. It returns nil when ctx ends, or when the session can't come
// back, which ends the goal. One that waits has no connection, so that it does not keep a gateway
// that ends by itself.
func (g *goal) await(ctx context.Context) *gateway.Session {
	gw, id := g.set.o.Gateway, g.kept.Session
	defer gw.Watch()()
	for {
		changes := gw.Changes()
		s, here := gw.Session(id)
		switch {
		case here:
			g.wait("")
			return s
		case !gw.MayReturn(g.kept.Host):
			g.end(adminapi.GoalStopped, "its session has ended with the gateway")
			return nil
		}
		g.wait("its session does not run: tapctl sessions resume " + visible.Line(id))
		if gw.WaitChange(ctx, changes) != nil {
			return nil
		}
	}
}

// serve runs the provider of the goal until the goal has ended, its session, or ctx.
func (g *goal) serve(ctx context.Context, s *gateway.Session) {
	// A goal's budget is its guard against loops. A person's goal goes on with the user's word; a
	// model's goal does not count as the user's word, or it would end the pause of everything that
	// the model has started.
	spec := gateway.PassSpec{Trust: gateway.TrustProject, Name: Name, Owner: Name, Own: true,
		Budgeted: true, Match: func(v adminapi.Session) bool { return v.ID == s.ID() }}
	if g.kept.By == adminapi.GoalByPerson {
		spec.Grants = []string{"questions"}
	}
	pass := g.set.o.Gateway.Issue(spec)
	defer pass.Revoke()
	ctx, cancel := context.WithCancel(ctx)
	var ended sync.WaitGroup
	defer ended.Wait()
	defer cancel()
	ended.Go(func() {
		select {
		case <-s.Done():
			cancel()
		case <-ctx.Done():
		}
	})
	var p *providers.Provider
	p = providers.New(Name, &providers.Options{
		URL: "ws://this.process", Token: pass.Token(), Session: s.ID(), Logger: g.set.o.Log,
		OnError: func(err error) { g.wait(visible.Line(err.Error())) },
		OnBound: func(bound context.Context, _ providers.Binding) {
			g.work(bound, p, s)
			if !g.isActive() {
				cancel()
			}
		},
		OnSession: func(context.Context, providers.SessionEvent) {
			chans.Wake(g.wake)
		},
	})
	if err := p.Run(ctx); err != nil && ctx.Err() == nil {
		g.end(adminapi.GoalBlocked, err.Error())
	}
	if !g.isActive() { // its prompt may wait for the session
		s.WithdrawInjects(pass)
	}
}

// work goes from iteration to iteration, as long as the session is bound and the goal active.
func (g *goal) work(bound context.Context, p *providers.Provider, s *gateway.Session) {
	w := &worker{goal: g, provider: p, session: s, began: time.Now(), tokens: usedTokens(s)}
	g.wait("")
	g.mu.Lock()
	w.spent = g.kept.Spent
	if limit := g.kept.Budget.TimeMs; limit > 0 {
		left := max(time.Duration(limit-w.spent.TimeMs)*time.Millisecond, 0)
		timer := time.NewTimer(left)
		defer timer.Stop()
		w.deadline = timer.C
	}
	g.mu.Unlock()
	for goesOn := true; goesOn; {
		goesOn = w.untilIdle(bound) && w.step(bound)
	}
	if bound.Err() == nil && !g.isActive() {
		v := g.view()
		_, _ = p.Push(bound,
			providers.Event{Text: strings.TrimSuffix(fmt.Sprintf("goal %s: %s after %s: %s", v.ID,
				v.State, visible.Count(v.Spent.Turns, "turn"), v.Reason), ": ")})
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.note(&g.kept); g.save() != nil { // the next look says it
		g.set.o.Log.Error("what a goal has used can't be kept", "goal", g.kept.ID)
	}
}

// noChecks is the missing line of a goal without checks.
const noChecks = "it has no check, so nothing can show that it is met: work on until it is stopped"

// worker is a goal's work in one binding.
type worker struct {
	*goal
	provider *providers.Provider
	session  *gateway.Session
	began    time.Time
	spent    adminapi.GoalBudget // before
	tokens   int64               // of the session when the work began
	deadline <-chan time.Time    // nil without a limit of time
	isOver   bool                // the time
}

func usedTokens(s *gateway.Session) int64 {
	total := s.Usage().Total
	return total.Input + total.Output
}

// note copies the goal's use of its budget.
func (w *worker) note(k *kept) {
	k.Spent.TimeMs = w.spent.TimeMs + time.Since(w.began).Milliseconds()
	if w.session.Host().Usage {
		k.Spent.Tokens = w.spent.Tokens + max(usedTokens(w.session)-w.tokens, 0)
	}
}

// untilIdle waits until the session is idle, or the time of the goal is over. It reports false when
// the binding ends.
func (w *worker) untilIdle(bound context.Context) bool {
	for w.session.View().State != "idle" && !w.isOver {
		select {
		case <-w.wake:
		case <-w.deadline:
			w.isOver = true
		case <-bound.Done():
			return false
		}
	}
	return bound.Err() == nil
}

// pause waits; false means that the binding has ended.
func (w *worker) pause(bound context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.deadline:
		w.isOver = true
	case <-bound.Done():
		return false
	}
	return true
}

// step looks at the checks, and begins the next iteration if some of them don't hold. It reports
// whether the goal goes on.
func (w *worker) step(bound context.Context) bool {
	turn := w.session.LastTurn()
	missing, ok := w.look(bound, turn)
	if !ok {
		return false
	}
	v := w.view()
	if len(missing) == 0 {
		w.end(adminapi.GoalMet, "")
		return false
	}
	if len(v.Iterations) > 0 && turn.Interrupted != "" {
		w.end(adminapi.GoalStopped, "its turn was interrupted: "+turn.Interrupted)
		return false
	}
	if why := w.overBudget(v); why != "" {
		w.end(adminapi.GoalOverBudget, why)
		return false
	}
	pause, failures := w.dueIn(v)
	if failures >= maxFailures {
		last := v.Iterations[len(v.Iterations)-1]
		w.end(adminapi.GoalBlocked, fmt.Sprintf("%d turns failed in a row: %s", failures,
			last.Reason))
		return false
	}
	if pause > 0 {
		if failures > 0 {
			w.wait("its turn failed: it goes on in " + pause.String())
		}
		ok := w.pause(bound, pause)
		w.wait("")
		// A person may have begun a turn meanwhile, and its end is another look.
		return ok && (w.isOver || w.session.View().State != "idle" || w.iterate(bound, missing))
	}
	return w.iterate(bound, missing)
}

// look looks at the checks, and ends the iteration that runs. It returns a line for each check that
// does not hold.
func (w *worker) look(ctx context.Context, turn gateway.LastTurn) (missing []string, ok bool) {
	w.mu.Lock()
	since, checks := w.kept.Since, w.kept.Contract.Checks
	if now := time.Now(); now.Before(since) { // the clock was set back
		since = now.Add(-time.Since(w.began) - time.Duration(w.spent.TimeMs)*time.Millisecond)
	}
	w.mu.Unlock()
	checker := evidence.Checker{
		Session: w.session,
		Calls:   w.set.o.Calls,
		Since:   since,

		ByPerson: w.kept.By == adminapi.GoalByPerson,
	}
	if len(checks) == 0 {
		missing = []string{noChecks}
	}
	found := make([]adminapi.Evidence, len(checks))
	for i, c := range checks {
		err := checker.Check(ctx, c)
		if ctx.Err() != nil { // a check that was cut off may be wrong
			return nil, false
		}
		e := adminapi.Evidence{Check: visible.Ends(visible.Line(evidence.Subject(c)), maxMissing,
			1), Holds: err == nil,
			At: time.Now().UTC()}
		if err != nil {
			e.Why = visible.Ends(visible.Line(err.Error()), maxMissing, 1)
			missing = append(missing, e.Check+": "+e.Why)
		}
		found[i] = e
	}
	ok, err := w.change(func(k *kept) {
		w.note(k)
		k.Since, k.Evidence = since, found
		if n := len(k.Iterations); n > 0 && k.Iterations[n-1].EndedAt.IsZero() {
			it := &k.Iterations[n-1]
			it.EndedAt, it.Missing, it.Reason = time.Now().UTC(), append([]string{}, missing...),
				turn.Failure
			switch {
			case w.wasCut:
				it.Reason = cutOff
			case turn.Interrupted != "":
				it.Reason = "interrupted: " + turn.Interrupted
			}
		}
		w.wasCut = false
	})
	return missing, ok && !w.failedToKeep(err)
}

// failedToKeep ends a goal whose file can't be written: after a restart its turns would count anew.
func (w *worker) failedToKeep(err error) bool {
	if err != nil {
		w.end(adminapi.GoalBlocked, fmt.Sprintf("its state can't be kept: %v", err))
	}
	return err != nil
}

// overBudget names the budget that is used up, or returns "".
func (w *worker) overBudget(v adminapi.Goal) string {
	b, s := v.Budget, v.Spent
	switch {
	case s.Turns >= b.Turns:
		return fmt.Sprintf("its budget of %s is used up", visible.Count(b.Turns, "turn"))
	case w.isOver || b.TimeMs > 0 && s.TimeMs >= b.TimeMs:
		return fmt.Sprintf("its time of %s is over", time.Duration(b.TimeMs)*time.Millisecond)
	case b.Tokens > 0 && s.Tokens >= b.Tokens:
		return fmt.Sprintf("its session has used %d of %d tokens", s.Tokens, b.Tokens)
	}
	return ""
}

// dueIn returns how long the next iteration waits, and how many of the last ones failed in a row.
func (w *worker) dueIn(v adminapi.Goal) (pause time.Duration, failures int) {
	for _, it := range slices.Backward(v.Iterations) {
		if it.Reason == "" || it.Reason == cutOff {
			break
		}
		failures++
	}
	switch {
	case len(v.Iterations) == 0:
		return 0, 0
	case failures == 1:
		return firstPause, failures
	case failures > 1:
		return secondPause, failures
	}
	last := v.Iterations[len(v.Iterations)-1]
	return min(max(minTurn-last.EndedAt.Sub(last.StartedAt), 0), minTurn), 0
}

// iterate gives the session the next prompt, and returns when its turn has begun.
func (w *worker) iterate(bound context.Context, missing []string) bool {
	n := 0
	ok, err := w.change(func(k *kept) {
		w.note(k)
		k.Spent.Turns++
		n = len(k.Iterations) + 1
		k.Iterations = append(
			k.Iterations,
			adminapi.GoalIteration{N: n, StartedAt: time.Now().UTC(), Missing: []string{}},
		)
	})
	if !ok || w.failedToKeep(err) {
		return false
	}
	r, err := w.provider.Push(bound, providers.Event{Prompt: prompt(w.view(), missing),
		Level: providers.Inject},
		providers.WaitDelivered)
	switch {
	case bound.Err() != nil || errors.Is(err, providers.ErrNotConnected):
		return false
	case err != nil:
		w.end(adminapi.GoalBlocked, fmt.Sprintf("its prompt was refused: %v", err))
	case r.Fate != providers.Delivered:
		w.end(adminapi.GoalBlocked,
			strings.TrimSuffix(fmt.Sprintf("its prompt was %s: %s", r.Fate, r.Reason), ": "))
	default:
		return true
	}
	return false
}

// prompt is the text that the model gets in an iteration.
func prompt(v adminapi.Goal, missing []string) string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"Goal %s (turn %d of %d):\n%s\n\nThe goal is not met. By what the gateway sees, this "+
			"is missing:\n", v.ID, v.Spent.Turns, v.Budget.Turns, v.Contract.Text)
	for _, line := range missing {
		b.WriteString("- " + line + "\n")
	}
	b.WriteString(
		"\nDo the next step. The gateway looks again when your turn ends; to say that the goal " +
			"is met has no effect.",
	)
	return b.String()
}
