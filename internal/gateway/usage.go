package gateway

import (
	"sync"
	"time"
)

// ModelCall is one call of a session's model, as its host counted it. Numbers
// that the host does not know are 0.
type ModelCall struct {
	Model  string
	Prompt string // message id of the prompt that it is for, "" when nobody knows
	Failed bool
	Tokens
	Cost     float64       // times the multiplier of a request, as GitHub bills it
	Credits  float64       // AI credits
	Duration time.Duration // from the request to the end of its answer
}

// Tokens are what a model read and wrote. Those from and into its cache are part
// of the input, those of its reasoning part of the output.
type Tokens struct {
	Input      int64 `json:"inputTokens"`
	Output     int64 `json:"outputTokens"`
	CacheRead  int64 `json:"cacheReadTokens"`
	CacheWrite int64 `json:"cacheWriteTokens"`
	Reasoning  int64 `json:"reasoningTokens"`
}

// Usage sums calls of models.
type Usage struct {
	Calls    int64 `json:"calls"`
	Failures int64 `json:"failures"` // calls that failed; they are in Calls too
	Tokens
	Cost       float64 `json:"cost"`
	Credits    float64 `json:"aiCredits"`
	DurationMs int64   `json:"durationMs"`
}

// ModelUsage is what a session used of one model.
type ModelUsage struct {
	Model string `json:"model"`
	Usage
}

// TurnUsage is what one prompt cost: the calls from when it began until the next
// did.
type TurnUsage struct {
	Turn      int       `json:"turn"` // from 1
	MessageID string    `json:"messageId"`
	StartedAt time.Time `json:"startedAt"` // of its first call's end
	Usage
}

// UsageView is what a session used since the gateway has it.
type UsageView struct {
	Session string       `json:"session"`
	Total   Usage        `json:"total"`
	Models  []ModelUsage `json:"models"` // in order of first use
	Turns   []TurnUsage  `json:"turns"`  // the last of them, oldest first
	// Of the model's context window; 0 when nobody knows.
	ContextTokens int64 `json:"contextTokens"`
	ContextLimit  int64 `json:"contextLimit"`
}

// turnsCounted bounds the turns that are told apart; totals go on.
const turnsCounted = 500

// usage is a session's. Its lock is a leaf.
type usage struct {
	mu     sync.Mutex
	total  Usage
	models []ModelUsage
	turns  []TurnUsage
	count  int // of turns, those that fell out included
	tokens int64
	limit  int64
}

func (u *Usage) add(c *ModelCall) {
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
	u.Credits += c.Credits
	u.DurationMs += c.Duration.Milliseconds()
}

// Used implements [HostCalls].
func (s *Session) Used(c ModelCall) {
	u := &s.used
	u.mu.Lock()
	defer u.mu.Unlock()
	u.total.add(&c)
	of := -1
	for i := range u.models {
		if u.models[i].Model == c.Model {
			of = i
		}
	}
	if of < 0 {
		of = len(u.models)
		u.models = append(u.models, ModelUsage{Model: c.Model})
	}
	u.models[of].add(&c)
	if n := len(u.turns); n == 0 || u.turns[n-1].MessageID != c.Prompt {
		u.count++
		if n == turnsCounted {
			u.turns = append(u.turns[:0], u.turns[1:]...)
		}
		u.turns = append(u.turns, TurnUsage{Turn: u.count, MessageID: c.Prompt, StartedAt: time.Now().UTC()})
	}
	u.turns[len(u.turns)-1].add(&c)
}

// Window implements [HostCalls].
func (s *Session) Window(tokens, limit int64) {
	u := &s.used
	u.mu.Lock()
	defer u.mu.Unlock()
	u.tokens, u.limit = tokens, limit
}

// Usage is what the session used so far.
func (s *Session) Usage() UsageView {
	u := &s.used
	u.mu.Lock()
	defer u.mu.Unlock()
	return UsageView{
		Session: s.id, Total: u.total, ContextTokens: u.tokens, ContextLimit: u.limit,
		Models: append([]ModelUsage{}, u.models...), Turns: append([]TurnUsage{}, u.turns...),
	}
}
