package langserver

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
)

// Event is an event of a turn: a [Text], [Reasoning], [ToolCall], [Usage], [Window] or [Notice],
// each as a value. A type switch tells them apart.
type Event interface{ event() }

// Text is the next piece of the model's answer; the pieces together are [Turn].Text. The server
// sends them line by line. A text that the server wants hidden is left out.
type Text struct {
	Round int // of the turn, from 1; 0 in mode Ask
	Delta string
}

// Reasoning is the next piece of the model's reasoning, which is no part of [Turn].Text. Round
// counts as in [Text].
type Reasoning struct {
	Round int
	Delta string
}

// State is the state of a tool call, in the server's words.
type State string

// States of a tool call. Each call ends with one of the last three.
const (
	Running   State = "running"
	Completed State = "completed"
	Failed    State = "error"
	Cancelled State = "cancelled"
)

// ToolCall is a new state of a tool call: one event for each change, so a call has several with the
// same ID. A tool that the server does not know has no such event. Result and Error are "" until
// the call ends.
type ToolCall struct {
	Round   int
	ID      string
	Name    string
	Type    string // "client" for ours, "shared" for the server's own, "mcp"
	State   State
	Input   json.RawMessage
	Message string // a line of the server, for people
	Result  string // when completed
	Error   string // when failed
}

// Usage counts the tokens of the turn so far. Cached counts prompt tokens that came from the cache
// of the model's endpoint. Each event replaces the one before; [Turn].Usage is the last.
type Usage struct {
	Prompt     int `json:"promptTokens"`
	Completion int `json:"completionTokens"`
	Cached     int `json:"cachedTokens"`
}

// Window says how full the model's context window is: Used of Limit tokens. A new event comes
// whenever one of the two changes.
type Window struct {
	Used  int `json:"totalUsedTokens"`
	Limit int `json:"totalTokenLimit"`
}

// Notice is a message for people during a turn: of the server, or with severity "warning" of this
// client about a report that can't be read.
type Notice struct {
	Severity string `json:"severity"` // as in "warning"
	Message  string `json:"message"`
}

func (Text) event()      {}
func (Reasoning) event() {}
func (ToolCall) event()  {}
func (Usage) event()     {}
func (Window) event()    {}
func (Notice) event()    {}

// reportQueue has the reports that wait to be handled, in order.
type reportQueue struct {
	mu   sync.Mutex // guards list
	list []json.RawMessage
}

func (q *reportQueue) add(r json.RawMessage) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = append(q.list, r)
}

func (q *reportQueue) drain() []json.RawMessage {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.list
	q.list = nil
	return list
}

// wireReport is the value of a turn's $/progress.
type wireReport struct {
	Kind            string
	Reply           string // outside agent turns
	HideText        bool
	EditAgentRounds []struct {
		RoundID   int
		Reply     string
		ToolCalls []wireToolCall
	}
	Thinking      *struct{ Text text }
	TokenUsage    *Usage
	ContextSize   *Window
	Notifications []Notice

	// Only the last report has these.
	Error *struct {
		Message              string
		Code                 int
		Reason               string
		ResponseIsFiltered   bool
		ResponseIsIncomplete bool
	}
	CancellationReason string
}

type wireToolCall struct {
	ID, Name, ToolType, ProgressMessage string
	Status                              State
	Input                               json.RawMessage
	Error                               text
	Result                              []struct{ Value text }
}

// text decodes a string, or a list of strings as one. Any other value is "".
type text string

func (t *text) UnmarshalJSON(data []byte) error {
	var one string
	var many []string
	if json.Unmarshal(data, &one) == nil {
		*t = text(one)
	} else if json.Unmarshal(data, &many) == nil {
		*t = text(strings.Join(many, ""))
	}
	return nil
}

// progress turns the reports of a turn into events.
type progress struct {
	on     func(Event)
	text   strings.Builder
	answer strings.Builder // the text of the last round
	rounds int
	usage  Usage
	window Window
	states map[string]State // of tool calls, by id
	// refusals has why calls were refused, by id. The server puts words of its own before that, and
	// cuts it. It may be nil.
	refusals *sync.Map
	ended    bool
	last     wireReport // the report of kind end
}

func (p *progress) emit(e Event) {
	if p.on != nil {
		p.on(e)
	}
}

func (p *progress) report(data json.RawMessage) {
	var r wireReport
	if err := json.Unmarshal(data, &r); err != nil {
		p.emit(Notice{"warning", fmt.Sprintf("the language server's progress can't be read: %v",
			err)})
		return
	}
	if r.Kind == "end" {
		p.ended, p.last = true, r
	}
	round := 0
	if len(r.EditAgentRounds) > 0 {
		round = r.EditAgentRounds[0].RoundID
	}
	if r.Thinking != nil && r.Thinking.Text != "" {
		p.emit(Reasoning{round, string(r.Thinking.Text)})
	}
	p.addText(0, r.Reply, r.HideText)
	for _, round := range r.EditAgentRounds {
		if round.RoundID > p.rounds {
			p.rounds = round.RoundID
			p.answer.Reset()
		}
		// A report of a tool call does not repeat the text before.
		p.addText(round.RoundID, round.Reply, r.HideText)
		for _, call := range round.ToolCalls {
			p.toolCall(round.RoundID, call)
		}
	}
	for _, n := range r.Notifications {
		p.emit(n)
	}
	if u := r.TokenUsage; u != nil && *u != p.usage {
		p.usage = *u
		p.emit(*u)
	}
	if w := r.ContextSize; w != nil && *w != p.window {
		p.window = *w
		p.emit(*w)
	}
}

func (p *progress) addText(round int, reply string, hidden bool) {
	if reply == "" || hidden {
		return
	}
	p.text.WriteString(reply)
	p.answer.WriteString(reply)
	p.emit(Text{round, reply})
}

func (p *progress) toolCall(round int, w wireToolCall) {
	if p.states == nil {
		p.states = map[string]State{}
	}
	if p.states[w.ID] == w.Status {
		return
	}
	p.states[w.ID] = w.Status
	var result []string
	for _, part := range w.Result {
		result = append(result, string(part.Value))
	}
	if p.refusals != nil && w.Status == Failed {
		if why, ok := p.refusals.Load(w.ID); ok {
			w.Error = text(why.(string))
		}
	}
	p.emit(ToolCall{
		Round: round, ID: w.ID, Name: ourName(w.Name), Type: w.ToolType, State: w.Status,
		Input: w.Input, Message: w.ProgressMessage, Result: strings.Join(result, "\n"),
		Error: string(w.Error),
	})
}

// outcome returns the error of a turn that the server has answered, nil for success.
func (p *progress) outcome(ctx context.Context) error {
	switch e := p.last.Error; {
	case p.last.CancellationReason != "" && ctx.Err() != nil:
		return fmt.Errorf("%w: %w", ErrCancelled, context.Cause(ctx))
	case p.last.CancellationReason != "":
		return ErrCancelled
	case e != nil:
		return &TurnError{Message: e.Message, Code: e.Code, Reason: e.Reason,
			Filtered: e.ResponseIsFiltered, Incomplete: e.ResponseIsIncomplete}
	case !p.ended:
		return &TurnError{Message: "the language server ended the turn without saying how",
			Incomplete: true}
	}
	return nil
}
