package gateway

import (
	"slices"
	"sync"
	"time"

	"tapgw/internal/adminapi"
)

// ModelCall is one call of a session's model, as its host counted it; a call that failed is
// counted too. Numbers that the host does not know are 0. The sums are in [Session.Usage].
type ModelCall struct {
	Model  string
	Prompt string // message id of the prompt that it is for; "" if unknown
	Failed bool
	adminapi.Tokens
	Cost     float64       // times the multiplier of a request, as GitHub bills it
	Credits  float64       // AI credits
	Duration time.Duration // from the request to the end of its answer
}

// How many turns have sums of their own, and how many calls are kept; the totals count all.
const (
	maxCountedTurns = 500
	maxModelCalls   = 500
)

// usage sums the calls of a session's models. Its lock is a leaf.
type usage struct {
	mu        sync.Mutex // guards the fields below
	total     adminapi.Sums
	models    []adminapi.ModelUsage
	turns     []adminapi.TurnUsage
	turnCount int // turns so far, including those that have left turns
	calls     []adminapi.ModelCall
	context   adminapi.Context
}

// addCall adds a call to sums.
func addCall(u *adminapi.Sums, c *ModelCall) {
	u.Calls++
	if c.Failed {
		u.Failures++
	}
	u.Input += c.Input
	u.Output += c.Output
	u.CacheRead += c.CacheRead
	u.CacheWrite += c.CacheWrite
	u.Reasoning += c.Reasoning
	u.Cost += c.Cost
	u.AICredits += c.Credits
	u.DurationMs += c.Duration.Milliseconds()
}

// CountModelCall implements [HostCalls]. It adds the call to the sums of the session, of
// its model and of its turn: calls in a row with the same Prompt are one turn.
func (s *Session) CountModelCall(c ModelCall) {
	s.countTokens(c.Input, c.Output)
	u := &s.usage
	now := time.Now().UTC()
	u.mu.Lock()
	defer u.mu.Unlock()
	addCall(&u.total, &c)
	i := slices.IndexFunc(u.models, func(m adminapi.ModelUsage) bool { return m.Model == c.Model })
	if i < 0 {
		i = len(u.models)
		u.models = append(u.models, adminapi.ModelUsage{Model: c.Model})
	}
	addCall(&u.models[i].Sums, &c)
	if n := len(u.turns); n == 0 || u.turns[n-1].MessageID != c.Prompt {
		u.turnCount++
		u.turns = appendNewest(u.turns, adminapi.TurnUsage{
			Turn: u.turnCount, MessageID: c.Prompt, StartedAt: now, Context: u.context,
		}, maxCountedTurns)
	}
	addCall(&u.turns[len(u.turns)-1].Sums, &c)
	u.calls = appendNewest(u.calls, adminapi.ModelCall{
		Model: c.Model, MessageID: c.Prompt, EndedAt: now, DurationMs: milliseconds(c.Duration),
		Failed: c.Failed,
		Tokens: c.Tokens,
	}, maxModelCalls)
}

// SetContextWindow implements [HostCalls]. The numbers replace the last ones in [Session.Usage],
// and those of the newest turn if they came while its prompt was worked on: a turn is counted with
// its first call, and hosts tell the context before that too.
func (s *Session) SetContextWindow(prompt string, c adminapi.Context) {
	u := &s.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	u.context = c
	if n := len(u.turns); n > 0 && u.turns[n-1].MessageID == prompt {
		u.turns[n-1].Context = c
	}
}

// Usage returns the use of models in the session since this gateway has it, as GET
// /sessions/{id}/usage of docs/admin-api.md shows it. The lists are copies and never nil, but
// ModelCalls, which [Session.ModelCalls] has.
func (s *Session) Usage() adminapi.Usage {
	u := &s.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	return adminapi.Usage{
		Session: s.id, Total: u.total, ContextTokens: u.context.Tokens,
		ContextLimit: u.context.Limit,
		Context:      u.context,
		Models:       append([]adminapi.ModelUsage{}, u.models...),
		Turns:        append([]adminapi.TurnUsage{}, u.turns...),
	}
}

// ModelCalls lists the last calls of the session's models, oldest first.
func (s *Session) ModelCalls() []adminapi.ModelCall {
	u := &s.usage
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.calls)
}
