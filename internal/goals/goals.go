// Package goals keeps sessions at work on their goals. A goal is a contract, a text and checks,
// with a budget. While not all checks hold and the budget lasts, the session gets another prompt
// whenever it is idle, which names the checks that do not hold. No word of the model makes a goal
// met. The prompts come from a provider like any other, in this process.
package goals

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"tapgw/internal/adminapi"
	"tapgw/internal/evidence"
	"tapgw/internal/gateway"
	"tapgw/internal/link"
	"tapgw/internal/protocol"
	"tapgw/internal/visible"
)

// Name is the name of the provider that gives sessions their goals' prompts.
const Name = "goals"

// Budgets. A goal of the model's has ModelTurns if it says nothing. All its goals in a session have
// MaxModelTurns together, until the user speaks.
const (
	DefaultTurns  = 50
	MaxTurns      = 500
	ModelTurns    = 10
	MaxModelTurns = 50
	MaxModelTime  = 4 * time.Hour
)

const (
	maxText   = 8 << 10 // bytes of a contract's text
	maxChecks = 20
	maxReason = 1 << 10 // bytes
	// maxEnded is how many goals that have ended are kept, the latest.
	maxEnded = 100
)

// Options of a [Set]. Log, Calls and Record may be nil.
type Options struct {
	Gateway *gateway.Gateway
	Dial    link.Dial // connects the provider
	Dir     string    // keeps the goals, a file for each
	Calls   evidence.Calls
	// Record takes the record of a goal that has changed, and must not block.
	Record func(adminapi.Record)
	Log    *slog.Logger
}

// Set has the goals of all sessions. Any goroutine may call its methods.
type Set struct {
	o       Options
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu    sync.Mutex       // guards goals
	goals map[string]*goal // by id
}

// New reads the goals that are kept in o.Dir. Those that are active go on after [Set.Open].
func New(o Options) *Set {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Record == nil {
		o.Record = func(adminapi.Record) {}
	}
	s := &Set{o: o, goals: map[string]*goal{}}
	s.ctx, s.cancel = context.WithCancel(link.WithDial(context.Background(), o.Dial))
	s.load()
	return s
}

// Open goes on with the active goals. Call it when the gateway accepts connections.
func (s *Set) Open() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, g := range s.goals {
		if g.isActive() {
			s.begin(g)
		}
	}
}

// Close leaves the active goals as they are, for the next gateway, and waits for their goroutines.
func (s *Set) Close() {
	s.cancel()
	s.running.Wait()
}

// begin runs an active goal. Call it with mu held.
func (s *Set) begin(g *goal) {
	ctx, cancel := context.WithCancel(s.ctx)
	g.cancel = cancel
	s.running.Go(func() {
		defer cancel()
		g.run(ctx)
		s.forget()
	})
}

// Start starts a goal for a session; by is [adminapi.GoalByPerson] or [adminapi.GoalByModel]. The
// error is INVALID_JSON with the field, INVALID_SESSION, or INVALID_STATE for a session that has an
// active goal.
func (s *Set) Start(r adminapi.GoalRequest, by string) (adminapi.Goal, error) {
	contract, err := contractOf(r, by)
	if err != nil {
		return adminapi.Goal{}, err
	}
	session, ok := s.o.Gateway.Session(r.Session)
	if !ok {
		return adminapi.Goal{}, refuse(protocol.CodeInvalidSession, "session %q does not exist",
			r.Session)
	}
	for i, c := range contract.Checks {
		if err := evidence.InDir(c, session.View().CWD); err != nil {
			return adminapi.Goal{}, refuse(protocol.CodeInvalidJSON, "checks[%d]: %v", i, err)
		}
	}
	host := session.Host()
	budget, err := budgetOf(r, by, host)
	if err != nil {
		return adminapi.Goal{}, err
	}
	if !host.Send {
		return adminapi.Goal{}, refuse(protocol.CodeInvalidState,
			"sessions of host %s take no prompts", host.Kind)
	}
	now := time.Now().UTC()
	g := &goal{set: s, wake: make(chan struct{}, 1),
		kept: kept{Host: host.Kind, Since: now, Goal: adminapi.Goal{
			Session: r.Session, State: adminapi.GoalActive, By: by, Contract: contract,
			Budget: budget, StartedAt: now, Iterations: []adminapi.GoalIteration{},
			Evidence: []adminapi.Evidence{},
		}}}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		return adminapi.Goal{}, refuse(protocol.CodeInvalidState, "the gateway is shutting down")
	}
	for _, other := range s.goals {
		if v := other.view(); v.Session == r.Session && v.State == adminapi.GoalActive {
			return adminapi.Goal{}, refuse(protocol.CodeInvalidState,
				"the session has the goal %s already: tapctl goals stop %[1]s ends it", v.ID)
		}
	}
	if by == adminapi.GoalByModel {
		left := MaxModelTurns - s.modelTurns(session)
		if left <= 0 {
			return adminapi.Goal{}, refuse(protocol.CodeInvalidState,
				"your goals have taken %d turns since the user "+
					"spoke, and may not take more: say what is missing, and end your turn",
				MaxModelTurns)
		}
		g.kept.Budget.Turns = min(g.kept.Budget.Turns, left)
	}
	g.kept.ID = s.newID()
	if err := g.save(); err != nil {
		return adminapi.Goal{}, fmt.Errorf("keeping the goal: %w", err)
	}
	s.goals[g.kept.ID] = g
	s.o.Record(g.record())
	v := g.view() // before its first turn
	s.begin(g)
	s.o.Gateway.Touch()
	return v, nil
}

// modelTurns returns how many turns the goals of a session's model have taken since its user spoke.
// Call it with mu held.
func (s *Set) modelTurns(session *gateway.Session) (turns int) {
	spokeAt := session.UserSpokeAt()
	for _, g := range s.goals {
		if v := g.view(); v.Session == session.ID() && v.By == adminapi.GoalByModel &&
			v.StartedAt.After(spokeAt) {
			turns += v.Spent.Turns
		}
	}
	return turns
}

// newID returns an id that no goal has. Call it with mu held.
func (s *Set) newID() string {
	for {
		var b [4]byte
		_, _ = rand.Read(b[:])
		if id := "g-" + hex.EncodeToString(b[:]); s.goals[id] == nil {
			return id
		}
	}
}

func refuse(code protocol.Code, format string, args ...any) error {
	return &protocol.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// contractOf checks a request for a goal. A goal without checks is never met; a person may want
// that.
func contractOf(r adminapi.GoalRequest, by string) (c adminapi.GoalContract, err error) {
	c.Text = strings.TrimSpace(visible.Controls(r.Text))
	switch {
	case c.Text == "":
		return c, refuse(protocol.CodeInvalidJSON, "text: must say what the goal is")
	case len(c.Text) > maxText:
		return c, refuse(protocol.CodeInvalidJSON, "text: has %d bytes, and may have %d",
			len(c.Text), maxText)
	case len(r.Checks) == 0 && by == adminapi.GoalByModel:
		return c, refuse(
			protocol.CodeInvalidJSON,
			"checks: are missing; a goal is met by evidence only, so a model's has one "+
				`at least, such as {"file": "report.md"} or {"call": "make test"}`,
		)
	case len(r.Checks) > maxChecks:
		return c, refuse(protocol.CodeInvalidJSON, "checks: has %d entries, and may have %d",
			len(r.Checks), maxChecks)
	}
	c.Checks = make([]adminapi.Check, 0, len(r.Checks))
	for i, data := range r.Checks {
		check, err := evidence.Parse(data)
		if err != nil {
			return c, refuse(protocol.CodeInvalidJSON, "checks[%d]: %v", i, err)
		}
		c.Checks = append(c.Checks, check)
	}
	return c, nil
}

// budgetOf checks a budget, and completes it.
func budgetOf(
	r adminapi.GoalRequest, by string, host gateway.HostInfo,
) (adminapi.GoalBudget, error) {
	b := adminapi.GoalBudget{Turns: r.Turns, TimeMs: r.TimeMs, Tokens: r.Tokens}
	turns, most := DefaultTurns, MaxTurns
	if by == adminapi.GoalByModel {
		turns, most = ModelTurns, MaxModelTurns
		if b.TimeMs == 0 {
			b.TimeMs = MaxModelTime.Milliseconds()
		}
	}
	if b.Turns == 0 {
		b.Turns = turns
	}
	switch {
	case b.Turns < 1 || b.Turns > most:
		return b, refuse(protocol.CodeInvalidJSON, "turns: %d is not from 1 to %d", b.Turns, most)
	case b.TimeMs < 0 || by == adminapi.GoalByModel && b.TimeMs > MaxModelTime.Milliseconds():
		return b, refuse(protocol.CodeInvalidJSON,
			"timeMs: must be more than 0, and %d for a model at most", MaxModelTime.Milliseconds())
	case b.TimeMs > maxTime.Milliseconds():
		return b, refuse(protocol.CodeInvalidJSON, "timeMs: must be at most %d, a year",
			maxTime.Milliseconds())
	case b.Tokens < 0:
		return b, refuse(protocol.CodeInvalidJSON, "tokens: must be more than 0")
	case b.Tokens > 0 && !host.Usage:
		return b, refuse(protocol.CodeInvalidJSON,
			"tokens: sessions of host %s don't report their tokens: use turns or time", host.Kind)
	}
	return b, nil
}

const maxTime = 366 * 24 * time.Hour

// List returns the goals of a session, or of all for "", oldest first.
func (s *Set) List(session string) []adminapi.Goal {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]adminapi.Goal, 0, len(s.goals))
	for _, g := range s.goals {
		if v := g.view(); session == "" || v.Session == session {
			list = append(list, v)
		}
	}
	slices.SortFunc(list, func(a, b adminapi.Goal) int {
		if c := a.StartedAt.Compare(b.StartedAt); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return list
}

// Get returns a goal; the error is NOT_FOUND.
func (s *Set) Get(id string) (adminapi.Goal, error) {
	g, err := s.find(id)
	if err != nil {
		return adminapi.Goal{}, err
	}
	return g.view(), nil
}

func (s *Set) find(id string) (*goal, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.goals[id]; g != nil {
		return g, nil
	}
	return nil, refuse(protocol.CodeNotFound, "there is no goal %q: tapctl goals lists them", id)
}

// Stop ends an active goal. A model may end its own ones only, else the error is UNAUTHORIZED. It
// is INVALID_STATE for a goal that has ended.
func (s *Set) Stop(id, by, reason string) (adminapi.Goal, error) {
	g, err := s.find(id)
	if err != nil {
		return adminapi.Goal{}, err
	}
	v := g.view()
	if by == adminapi.GoalByModel && v.By != by {
		return v, refuse(protocol.CodeUnauthorized,
			"a person started goal %s, and only a person stops it", id)
	}
	why := "stopped by the " + by
	if reason = visible.Ends(visible.Line(strings.TrimSpace(reason)), maxReason, 1); reason != "" {
		why += ": " + reason
	}
	if !g.end(adminapi.GoalStopped, why) {
		return v, refuse(protocol.CodeInvalidState, "goal %s has ended: it is %s", id,
			g.view().State)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.cancel != nil { // it is open
		g.cancel()
	}
	return g.view(), nil
}

// forget removes the oldest goals that have ended, if there are too many.
func (s *Set) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ended []adminapi.Goal
	for _, g := range s.goals {
		if v := g.view(); v.State != adminapi.GoalActive {
			ended = append(ended, v)
		}
	}
	if len(ended) <= maxEnded {
		return
	}
	slices.SortFunc(ended, func(a, b adminapi.Goal) int { return a.EndedAt.Compare(b.EndedAt) })
	for _, v := range ended[:len(ended)-maxEnded] {
		delete(s.goals, v.ID)
		_ = os.Remove(filepath.Join(s.o.Dir, v.ID+fileSuffix))
	}
}
