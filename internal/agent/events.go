package agent

import (
	"encoding/json"

	"tapgw/internal/diff"
	"tapgw/internal/langserver"
	"tapgw/internal/orchestrate"
)

// Event is an event of an agent's work: one of the types below, each as a value. A display for a
// person, or an output for a program, tells them apart with a type switch.
type Event interface{ event() }

// Progress is an event of the language server in a turn.
type Progress struct {
	Worker string // the worker of the turn; "": the conversation itself
	Event  langserver.Event
	Diffs  []diff.Diff // the changes of the tool call that has ended
	Seen   bool        // the person has seen the Diffs in a question
}

// Injected is a prompt that a provider has injected. Its turn begins.
type Injected struct{ Worker, Prompt string }

// Rejected has the reason why an answer does not match its schema. The model is asked again.
type Rejected struct{ Fault error }

// TurnEnded is the end of a turn of the conversation itself. Err has an exit code.
type TurnEnded struct {
	Conversation string // its id
	Turn         langserver.Turn
	Output       json.RawMessage // the answer, if it had to match a schema
	Err          error
}

// Planned is the plan of an orchestration. With a Fault the model's plan can't be used, and one
// worker does it all.
type Planned struct {
	Tasks []orchestrate.Task
	Fault error
}

// WorkerBegan says that a worker begins its task.
type WorkerBegan struct{ Worker, Task string }

// WorkerEnded says how a worker's task ended.
type WorkerEnded struct {
	Worker, Answer string
	Err            error
}

// Working names the work in progress; "" if the agent is idle.
type Working struct{ What string }

// ToolOutput is a line that a command of a tool writes while it runs.
type ToolOutput struct{ Line string }

// GatewayLog is a line of the gateway's log of the session.
type GatewayLog struct{ Level, Message string }

// NotUndoable has the reason why an edit can't be undone.
type NotUndoable struct{ Reason string }

func (Progress) event()    {}
func (Injected) event()    {}
func (Rejected) event()    {}
func (TurnEnded) event()   {}
func (Planned) event()     {}
func (WorkerBegan) event() {}
func (WorkerEnded) event() {}
func (Working) event()     {}
func (ToolOutput) event()  {}
func (GatewayLog) event()  {}
func (NotUndoable) event() {}
