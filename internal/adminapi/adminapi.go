// Package adminapi holds the requests and answers of the admin API, each as one
// type: the gateway answers with them, and clients read them. openapi.json in
// internal/server describes the same types under the same names.
//
// A time is in UTC, RFC 3339 in JSON. A key that ends in Ms is in milliseconds. A
// field without omitempty or omitzero is in every answer, and required in a request.
package adminapi

import "time"

// Prefix is what the path of each request begins with. A new version of the API
// gets a new one.
const Prefix = "/api/v1"

// Error is the answer to a request that failed, with a status of 4xx or 5xx.
type Error struct {
	Error Failure `json:"error"`
}

// Failure says what went wrong: in an [Error], and at the end of a turn in a
// [TurnEnd].
type Failure struct {
	Code    string `json:"code"`    // for programs: one of the wire's codes, or [CodeSession]
	Message string `json:"message"` // for people: one line
}

// CodeSession is the code of a turn that failed in the session itself, for example
// because its model is gone. It is no code of the provider wire.
const CodeSession = "SESSION_ERROR"

// Nothing is the answer to a request that only succeeds or fails: an empty object.
type Nothing struct{}

// Status is the state of the gateway process.
type Status struct {
	URL       string    `json:"url"` // where providers connect
	PID       int       `json:"pid"`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"startedAt"`
	Sessions  int       `json:"sessions"`  // how many there are
	Providers int       `json:"providers"` // how many are connected
	Faults    []Fault   `json:"faults"`    // of the config files; empty if there are none
	// RESTOpen says that the session API needs no token, so that every program of
	// the machine can use it.
	RESTOpen bool `json:"restOpen,omitempty"`
}

// Fault is a mistake in a config file. Line and Column count from 1.
type Fault struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
}

// Faults is the answer to a reload: the mistakes that are in the config files now.
type Faults struct {
	Faults []Fault `json:"faults"`
}

// SigninRequest asks for a link that signs a browser in, once.
type SigninRequest struct {
	File bool `json:"file,omitempty"` // also write a page that leads to the link
}

// SigninLink is a link that signs a browser in, once, until ExpiresAt.
type SigninLink struct {
	URL       string    `json:"url"`
	ExpiresAt time.Time `json:"expiresAt"`
	File      string    `json:"file,omitempty"` // path of the page on the gateway's machine, where asked for
}

// Model is a model that a session can use.
type Model struct {
	ID               string   `json:"id"`
	Name             string   `json:"name"`
	Multiplier       float64  `json:"multiplier"`              // what a request costs, in premium requests
	Efforts          []string `json:"efforts"`                 // of reasoning that it knows, lowest first
	DefaultEffort    string   `json:"defaultEffort,omitempty"` // one of Efforts
	Vision           bool     `json:"vision"`                  // it sees images
	MaxPromptTokens  int      `json:"maxPromptTokens,omitempty"`
	MaxContextTokens int      `json:"maxContextTokens,omitempty"`
	Policy           string   `json:"policy,omitempty"` // enabled, disabled or unconfigured, by the account's owner
}

// Names of the states that GET /events shows. The data of each event is what the
// GET request of the same name answers.
const (
	StateStatus    = "status"
	StateSessions  = "sessions"
	StateProviders = "providers"
	StatePairings  = "pairings"
	StateQuestions = "questions"
	StateTools     = "tools"
)
