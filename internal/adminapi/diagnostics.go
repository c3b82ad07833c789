package adminapi

import "time"

// Diagnostics answers GET /diagnostics, which helps to find a fault: the last calls, errors
// and gate decisions since the gateway's start, newest first, and the present load and push
// budgets.
type Diagnostics struct {
	Calls     []CallNote     `json:"calls"`  // the last 200 that ended
	Errors    []ErrorNote    `json:"errors"` // the last 100
	Gates     []GateNote     `json:"gates"`  // the last 100
	Providers []ProviderLoad `json:"providers"`
	Pushes    []PushBudget   `json:"pushes"`
}

// CallNote is a tool call that ended, of a session's model or of an admin. DurationMs
// begins at StartedAt, when the gateway got the call, so it includes the waits for gates
// and for a slot.
type CallNote struct {
	ID         string    `json:"id"` // "" if it was sent to no provider
	Session    string    `json:"session"`
	Provider   string    `json:"provider"` // a name; "" if no provider received the call
	Tool       string    `json:"tool"`
	StartedAt  time.Time `json:"startedAt"`
	DurationMs float64   `json:"durationMs"`
	Outcome    string    `json:"outcome"` // [OutcomeOK] or [OutcomeFailed]
	ErrorCode  string    `json:"errorCode,omitempty"`
}

// Outcomes of a [CallNote]. A failed call has an ErrorCode, one of the codes of
// docs/protocol.md, "Calls".
const (
	OutcomeOK     = "ok"
	OutcomeFailed = "failed"
)

// ErrorNote is an error that was sent to a provider, or that a session had. Code is a code of the
// provider wire, or [CodeSession]. Session or Provider is left out if the error has no session or
// no provider.
type ErrorNote struct {
	At       time.Time `json:"at"`
	Session  string    `json:"session,omitempty"`
	Provider string    `json:"provider,omitempty"` // a name
	Code     string    `json:"code"`
	Message  string    `json:"message"`
}

// GateNote is one decision about a tool call: of a gate, of a user hook, or of a rule of
// action deny. Provider is the user hook's name for a user hook. DurationMs is the wait for
// the decision, about 0 for a rule.
type GateNote struct {
	At         time.Time `json:"at"`
	Session    string    `json:"session"`
	Provider   string    `json:"provider"` // the owner of the gate or rule
	Rule       Rule      `json:"rule"`
	Tool       string    `json:"tool"`
	Args       string    `json:"args"`     // the beginning of the call's arguments, as JSON
	Decision   string    `json:"decision"` // allow, deny or context
	Reason     string    `json:"reason,omitempty"`
	DurationMs float64   `json:"durationMs"`
}

// Rule says which calls a provider, or a user hook, decides about, and how. The members of Match
// that are left out match any call.
type Rule struct {
	Index  int       `json:"index"`  // among the provider's rules, from 0; of user hooks always 0
	Action string    `json:"action"` // gate, deny or context
	Match  RuleMatch `json:"match"`
	GateID string    `json:"gateId,omitempty"`
	// of a gate: a call goes on when it does not answer
	FailOpen bool `json:"failOpen,omitempty"`
}

// RuleMatch is the condition of a [Rule] on a call.
type RuleMatch struct {
	Tool     string `json:"tool,omitempty"`     // a name with *
	Args     string `json:"args,omitempty"`     // a pattern
	File     string `json:"file,omitempty"`     // a glob
	Provider string `json:"provider,omitempty"` // of the tool
}

// SessionRule is a rule that is in force in a session, as GET /rules lists them in the order in
// which they decide.
type SessionRule struct {
	Session  string `json:"session"`
	Provider string `json:"provider"`       // the owner's name: a provider or a user hook
	Hook     bool   `json:"hook,omitempty"` // the owner is a user hook
	Rule     Rule   `json:"rule"`
}

// ProviderLoad sums up the calls of a connected provider, including those before its last
// reconnect. The percentiles cover its last 256 calls, and the counts all ended calls; before the
// first call all are 0.
type ProviderLoad struct {
	ID       string  `json:"id"`
	Name     string  `json:"name"`
	Instance string  `json:"instance"`
	Calls    uint64  `json:"calls"`
	Errors   uint64  `json:"errors"` // of Calls, the failed ones
	InFlight int     `json:"inFlight"`
	P50Ms    float64 `json:"p50Ms"`
	P99Ms    float64 `json:"p99Ms"`
}

// PushBudget says how many of the pushes of one second a pusher has used up in a session. A
// pusher is a provider, or a name that an admin's pushes have. Used falls to 0 within a
// second without pushes.
type PushBudget struct {
	Provider string `json:"provider"`
	Session  string `json:"session"`
	Used     int    `json:"used"` // of Limit
	Limit    int    `json:"limit"`
	Dropped  uint64 `json:"dropped"` // pushes that were refused because the budget was used up
}

// Usage answers GET /sessions/{id}/usage: the session's use of models since the gateway has it, in
// all, by model and by turn. ContextTokens and ContextLimit are 0 if the host does not report them.
type Usage struct {
	Session string       `json:"session"`
	Total   Sums         `json:"total"`
	Models  []ModelUsage `json:"models"` // in order of first use
	Turns   []TurnUsage  `json:"turns"`  // the last 500, oldest first
	// how much of the model's context the conversation takes
	ContextTokens int64   `json:"contextTokens"`
	ContextLimit  int64   `json:"contextLimit"`
	Context       Context `json:"context"` // the same with its parts
	// ModelCalls are the last 500, oldest first, where the request asks for them.
	ModelCalls []ModelCall `json:"modelCalls,omitempty"`
}

// Context says how much of a model's context a conversation takes, in tokens. The parts are 0 where
// the host does not tell them, and need not add up to Tokens.
type Context struct {
	Tokens   int64 `json:"tokens"`
	Limit    int64 `json:"limit"`
	System   int64 `json:"systemTokens"`
	Tools    int64 `json:"toolTokens"`    // of the definitions of tools
	Messages int64 `json:"messageTokens"` // prompts, answers, calls and results
}

// Sums add up calls of models: all calls of a session, the calls of one model, or the calls of one
// turn. A number that the host does not report counts as 0. The fields of [Tokens] stand beside the
// others in JSON.
type Sums struct {
	Calls    int64 `json:"calls"`
	Failures int64 `json:"failures"` // of Calls, the failed ones
	Tokens
	Cost       float64 `json:"cost"` // in premium requests: each call times its model's multiplier
	AICredits  float64 `json:"aiCredits"`
	DurationMs int64   `json:"durationMs"` // of the calls, added up
}

// Tokens count the tokens that a model read and wrote. Cached tokens are part of the input, and
// reasoning tokens are part of the output.
type Tokens struct {
	Input      int64 `json:"inputTokens"`
	Output     int64 `json:"outputTokens"`
	CacheRead  int64 `json:"cacheReadTokens"`
	CacheWrite int64 `json:"cacheWriteTokens"`
	Reasoning  int64 `json:"reasoningTokens"`
}

// ModelUsage is a session's use of one model: the model's id and, beside it in JSON, the fields of
// [Sums]. A session that changed its model has several.
type ModelUsage struct {
	Model string `json:"model"`
	Sums
}

// TurnUsage is the cost of one prompt: the calls from its first one until the next prompt's first
// one. Turn also counts the turns that have left the list. MessageID is "" if the host does not say
// which prompt its calls were for.
type TurnUsage struct {
	Turn      int       `json:"turn"` // from 1
	MessageID string    `json:"messageId"`
	StartedAt time.Time `json:"startedAt"` // when its first call ended
	Context   Context   `json:"context"`   // the last that the host told in it
	Sums
}

// ModelCall is one call of a session's model.
type ModelCall struct {
	Model      string    `json:"model"`
	MessageID  string    `json:"messageId"` // as of [TurnUsage]
	EndedAt    time.Time `json:"endedAt"`
	DurationMs float64   `json:"durationMs"`
	Failed     bool      `json:"failed,omitempty"`
	Tokens
}
