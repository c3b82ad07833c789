package adminapi

import "time"

// Diagnostics is what happened lately, newest first, to find a fault with.
type Diagnostics struct {
	Calls     []CallNote     `json:"calls"`  // the last 200 that ended
	Errors    []ErrorNote    `json:"errors"` // the last 100
	Gates     []GateNote     `json:"gates"`  // the last 100
	Providers []ProviderLoad `json:"providers"`
	Pushes    []PushBudget   `json:"pushes"`
}

// CallNote is a tool call that ended.
type CallNote struct {
	ID         string    `json:"id"` // "" if it was sent to no provider
	Session    string    `json:"session"`
	Provider   string    `json:"provider"` // a name; "" if it was sent to none
	Tool       string    `json:"tool"`
	StartedAt  time.Time `json:"startedAt"`
	DurationMs float64   `json:"durationMs"`
	Outcome    string    `json:"outcome"` // [OutcomeOK] or [OutcomeFailed]
	ErrorCode  string    `json:"errorCode,omitempty"`
}

// Outcomes of a [CallNote].
const (
	OutcomeOK     = "ok"
	OutcomeFailed = "failed"
)

// ErrorNote is an error that a provider was told, or that a session had.
type ErrorNote struct {
	At       time.Time `json:"at"`
	Session  string    `json:"session,omitempty"`
	Provider string    `json:"provider,omitempty"` // a name
	Code     string    `json:"code"`
	Message  string    `json:"message"`
}

// GateNote is the decision of a gate, or of a rule that denies by itself.
type GateNote struct {
	At         time.Time `json:"at"`
	Session    string    `json:"session"`
	Provider   string    `json:"provider"` // whose gate or rule it is
	Tool       string    `json:"tool"`
	Decision   string    `json:"decision"` // allow, deny or context
	Reason     string    `json:"reason,omitempty"`
	DurationMs float64   `json:"durationMs"`
}

// ProviderLoad says how the calls of a connected provider went. The percentiles
// are of its last 256 calls, the counts of all that ended.
type ProviderLoad struct {
	ID       string  `json:"id"`
	Name     string  `json:"name"`
	Instance string  `json:"instance"`
	Calls    uint64  `json:"calls"`
	Errors   uint64  `json:"errors"` // of Calls, those that failed
	InFlight int     `json:"inFlight"`
	P50Ms    float64 `json:"p50Ms"`
	P99Ms    float64 `json:"p99Ms"`
}

// PushBudget says how much of its budget a pusher has used in a session.
type PushBudget struct {
	Provider string `json:"provider"`
	Session  string `json:"session"`
	Used     int    `json:"used"` // of Limit
	Limit    int    `json:"limit"`
	Dropped  uint64 `json:"dropped"` // pushes that were refused because the budget was used up
}

// Usage is what a session used since the gateway has it. The context is 0 when
// the host does not report it.
type Usage struct {
	Session       string       `json:"session"`
	Total         Sums         `json:"total"`
	Models        []ModelUsage `json:"models"`        // in order of first use
	Turns         []TurnUsage  `json:"turns"`         // the last 500, oldest first
	ContextTokens int64        `json:"contextTokens"` // how much of the model's context the conversation takes
	ContextLimit  int64        `json:"contextLimit"`
}

// Sums add up calls of models. A number that the host does not report counts as 0.
type Sums struct {
	Calls    int64 `json:"calls"`
	Failures int64 `json:"failures"` // of Calls, those that failed
	Tokens
	Cost       float64 `json:"cost"` // in premium requests: each call times its model's multiplier
	AICredits  float64 `json:"aiCredits"`
	DurationMs int64   `json:"durationMs"` // of the calls, added up
}

// Tokens count what a model read and wrote. Those of its cache are part of the
// input, those of its reasoning part of the output.
type Tokens struct {
	Input      int64 `json:"inputTokens"`
	Output     int64 `json:"outputTokens"`
	CacheRead  int64 `json:"cacheReadTokens"`
	CacheWrite int64 `json:"cacheWriteTokens"`
	Reasoning  int64 `json:"reasoningTokens"`
}

// ModelUsage is what a session used of one model.
type ModelUsage struct {
	Model string `json:"model"`
	Sums
}

// TurnUsage is what one prompt cost: the calls from its first one until the next
// prompt's first one.
type TurnUsage struct {
	Turn      int       `json:"turn"` // from 1
	MessageID string    `json:"messageId"`
	StartedAt time.Time `json:"startedAt"` // when its first call ended
	Sums
}
