package adminapi

import (
	"encoding/json"
	"time"
)

// Goal is a task that a session works on by itself until checks show that it is met, or its budget
// is used up, as GET /goals lists it. docs/goals.md describes its course.
type Goal struct {
	ID       string       `json:"id"`
	Session  string       `json:"session"` // a session's id
	State    string       `json:"state"`   // [GoalActive] and so on
	By       string       `json:"by"`      // [GoalByPerson] or [GoalByModel]
	Contract GoalContract `json:"contract"`
	Budget   GoalBudget   `json:"budget"`
	Spent    GoalBudget   `json:"spent"` // of Budget
	// Iterations are the turns that the goal had, oldest first.
	Iterations []GoalIteration `json:"iterations"`
	// Evidence is the result of the last look at each check of the contract, in their order.
	Evidence  []Evidence `json:"evidence"`
	Reason    string     `json:"reason,omitempty"` // why it ended, or why it waits
	StartedAt time.Time  `json:"startedAt"`
	EndedAt   time.Time  `json:"endedAt,omitzero"`
}

// States of a [Goal].
const (
	GoalActive     = "active"  // its session works on it, or is not running
	GoalMet        = "met"     // all checks hold
	GoalOverBudget = "budget"  // turns, time or tokens are used up
	GoalStopped    = "stopped" // a person stopped it, interrupted its turn or ended its session
	GoalBlocked    = "blocked" // it can't go on: its prompts are not taken, or its turns fail
)

// The starters of a [Goal].
const (
	GoalByPerson = "person"
	GoalByModel  = "model"
)

// GoalContract defines a goal: a text for the model, and the checks that must all hold.
type GoalContract struct {
	Text   string  `json:"text"`
	Checks []Check `json:"checks"`
}

// GoalBudget limits a goal, or counts its use. A field that a budget leaves out has no limit; turns
// always have one.
type GoalBudget struct {
	Turns int `json:"turns"`
	// TimeMs counts while the session is there.
	TimeMs int64 `json:"timeMs,omitempty"`
	// Tokens counts the tokens that the session's model read and wrote, also for other prompts.
	Tokens int64 `json:"tokens,omitempty"`
}

// GoalIteration is one turn of a goal and the look at the checks after it.
type GoalIteration struct {
	N         int       `json:"n"` // from 1
	StartedAt time.Time `json:"startedAt"`
	EndedAt   time.Time `json:"endedAt,omitzero"` // left out while the turn runs
	Missing   []string  `json:"missing"`          // checks that did not hold, with reasons
	Reason    string    `json:"reason,omitempty"` // why the turn failed or was cut short
}

// Check is a condition that is looked up without running a program. It has one of File, Stream and
// Call.
type Check struct {
	Description string       `json:"description,omitempty"` // the fact that it shows, for people
	File        *FileCheck   `json:"file,omitempty"`
	Stream      *StreamCheck `json:"stream,omitempty"`
	Call        *CallCheck   `json:"call,omitempty"`
}

// FileCheck holds if the file exists and has the content.
type FileCheck struct {
	Path     string `json:"path"` // below the session's directory
	NonEmpty bool   `json:"nonEmpty,omitempty"`
	Contains string `json:"contains,omitempty"`
	Pattern  string `json:"pattern,omitempty"` // a JavaScript regular expression
}

// StreamCheck holds if a stream of the session has enough events, and one of them fits.
type StreamCheck struct {
	Channel    string `json:"channel"`              // the stream's name, or NAME@PROVIDER
	Limit      int    `json:"limit,omitempty"`      // how many of the latest events count; 0: all
	MinEntries int    `json:"minEntries,omitempty"` // 0: 1
	Contains   string `json:"contains,omitempty"`
	Pattern    string `json:"pattern,omitempty"`
}

// CallCheck holds if the latest of the calls that fit ended as it says. Without ExitCode and
// Success, it must have worked.
type CallCheck struct {
	Tool     string `json:"tool,omitempty"`     // its name; "": any
	Command  string `json:"command,omitempty"`  // of the session's own shell: the whole command
	Contains string `json:"contains,omitempty"` // a text in the command
	Pattern  string `json:"pattern,omitempty"`  // for the command
	ExitCode *int   `json:"exitCode,omitempty"`
	Success  *bool  `json:"success,omitempty"`
}

// Evidence is the result of a look at a check.
type Evidence struct {
	Check string    `json:"check"` // the subject of the check, in a line
	Holds bool      `json:"holds"`
	Why   string    `json:"why,omitempty"` // it does not hold
	At    time.Time `json:"at"`
}

// GoalRequest is the body of POST /goals, which starts a goal. A check has the form of [Check],
// where a text is short for an object with path, channel or command; or it has the form that the
// tool tap_verify_goal_output takes.
type GoalRequest struct {
	Session string            `json:"session"`
	Text    string            `json:"text"`
	Checks  []json.RawMessage `json:"checks,omitempty"` // without checks the goal is never met
	Turns   int               `json:"turns,omitempty"`  // 50 if left out
	TimeMs  int64             `json:"timeMs,omitempty"` // no limit if left out
	Tokens  int64             `json:"tokens,omitempty"` // no limit if left out
}

// GoalStop is the body of POST /goals/{id}/stop.
type GoalStop struct {
	Reason string `json:"reason,omitempty"`
}
