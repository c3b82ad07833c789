// Package adminapi holds the requests and answers of the admin API, each as one
// type: the gateway answers with them, and clients read them. openapi.json in
// internal/server describes the same types under the same names.
//
// A time is in UTC, RFC 3339 in JSON. A key that ends in Ms is in milliseconds. A
// field without omitempty or omitzero is in every answer, and required in a request.
package adminapi

import "time"

// Prefix begins the path of each request of the admin API, as in /api/v1/status. Every
// request below it needs the admin token as bearer, or the cookie of a sign-in link. A new
// version of the API gets another prefix.
const Prefix = "/api/v1"

// Error is the JSON body of each answer with a status of 4xx or 5xx. Programs decide by the
// code and the status, which the beginning of docs/admin-api.md lists; people read the
// message.
type Error struct {
	Error Failure `json:"error"`
}

// Failure is the reason why a request failed, in an [Error], or why a turn failed, in a [TurnEnd].
// Programs compare Code; the text of Message may change.
type Failure struct {
	Code    string `json:"code"`    // for programs: one of the wire's codes, or [CodeSession]
	Message string `json:"message"` // for people: one line
}

// CodeSession is the code of a turn that failed in the session itself, for example
// because its model is gone. It is no code of the provider wire.
const CodeSession = "SESSION_ERROR"

// Nothing is the answer to a request that only succeeds or fails, such as a rename: an
// empty JSON object. It is also the data of [EventEnded].
type Nothing struct{}

// Status answers GET /status and is the data of [StateStatus]: where the gateway process
// listens, since when it runs, how much it holds, and which mistakes its config files have.
type Status struct {
	URL       string    `json:"url"` // where providers connect
	PID       int       `json:"pid"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"startedAt"`
	Sessions  int       `json:"sessions"`  // how many there are
	Providers int       `json:"providers"` // how many are connected
	Faults    []Fault   `json:"faults"`    // of the config files; empty without faults
	// WaitsFor names the required providers that sessions wait for, see [Session].WaitsFor.
	WaitsFor []string `json:"waitsFor,omitempty"`
	// RESTOpen says that the session API needs no token, so that every program of
	// the machine can use it.
	RESTOpen bool `json:"restOpen,omitempty"`
	// WebhooksURL is where webhooks come in beside the gateway's own port ([webhooks] listen),
	// such as https://0.0.0.0:9401; a source's path is /hooks/NAME below it.
	WebhooksURL string `json:"webhooksUrl,omitempty"`
}

// Fault is a mistake in tapgw.toml or in a provider file, or a setting that takes effect at
// the next start only. Line and Column count from 1.
type Fault struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

// Faults answers POST /reload, after the gateway has read its config and provider files again. It
// has all present mistakes in them, also those that the gateway had reported before. The list is
// empty without mistakes.
type Faults struct {
	Faults []Fault `json:"faults"`
}

// SigninRequest is the body of POST /signin-links, which makes a link that signs a browser
// in once. The answer is a [SigninLink].
type SigninRequest struct {
	File bool `json:"file,omitempty"` // also write a page that leads to the link
}

// SigninLink is a link that signs a browser in. It works once, until ExpiresAt, which is
// two minutes later. The browser gets a cookie that stands for the admin token.
type SigninLink struct {
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expiresAt"`
	// path of the page on the gateway's machine, where asked for
	File string `json:"file,omitempty"`
}

// LoginRequest asks for a login at the MCP server of a provider. The body may be empty.
type LoginRequest struct {
	File bool `json:"file,omitempty"` // also write a page that leads to the link
}

// LoginStep is a line of the answer to a [LoginRequest]. The first has the link that a person opens
// in a browser; the last is Done, with Error if the login failed.
type LoginStep struct {
	URL string `json:"url,omitzero"`
	// path of the page on the gateway's machine, where asked for
	File  string   `json:"file,omitzero"`
	Done  bool     `json:"done,omitzero"`
	Error *Failure `json:"error,omitzero"`
}

// LoggedOut answers a request to forget a login.
type LoggedOut struct {
	LoggedOut bool `json:"loggedOut"` // false: there was no login
}

// Model is a model that sessions of a kind of host can use, as GET /models lists them. The
// requests of a model with Multiplier 0 cost nothing. Limits that the host does not report
// are left out.
type Model struct {
	ID         string  `json:"id"`
	Name       string  `json:"name"`
	Multiplier float64 `json:"multiplier"` // of a request, in premium requests
	// of reasoning that it knows, lowest first
	Efforts          []string `json:"efforts"`
	DefaultEffort    string   `json:"defaultEffort,omitempty"` // one of Efforts
	Vision           bool     `json:"vision"`                  // it sees images
	MaxPromptTokens  int      `json:"maxPromptTokens,omitempty"`
	MaxContextTokens int      `json:"maxContextTokens,omitempty"`
	// enabled, disabled or unconfigured, by the account's owner
	Policy string `json:"policy,omitempty"`
}

// Names of the server-sent events of GET /events. A reader gets each state at once, and again after
// it has changed, every 100 ms at most. The data equals the answer of the GET request of the same
// name.
const (
	StateStatus     = "status"
	StateSessions   = "sessions"
	StateProviders  = "providers"
	StateConfigured = "configured"
	StatePairings   = "pairings"
	StateQuestions  = "questions"
	StateTools      = "tools"
	StateSources    = "sources"
	StateGoals      = "goals"
	StateQueue      = "queue"
	StateCluster    = "cluster" // without asking the others; without a cluster its lists are empty
)
