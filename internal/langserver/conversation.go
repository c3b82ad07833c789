package langserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Mode is what a conversation may do.
type Mode string

// Modes of the server. The zero value is Agent.
const (
	Agent Mode = "Agent" // calls every tool
	Ask   Mode = "Ask"   // reads and searches the workspace, by the server's own tools only
)

// cancelGrace is how long the server may take to end a turn that was cancelled. It
// is longer than [tools.Tool.Call] waits for a tool that ignores its cancellation.
const cancelGrace = 15 * time.Second

// ConversationOptions are a conversation's; the zero value is an agent's with the
// default model.
type ConversationOptions struct {
	ID    string // "": made up
	Mode  Mode
	Model string // id of a model; "": see [Client.DefaultModel]
}

// Conversation is a series of turns that the model remembers. Turns of one
// conversation follow each other, those of several run at once.
type Conversation struct {
	client *Client
	id     string
	mode   Mode
	turn   chan struct{} // holds a value while a turn runs; guards the fields that follow

	model string
	known bool // the server knows the conversation
}

// NewConversation returns a conversation. The server hears of it with its first turn.
func (c *Client) NewConversation(o ConversationOptions) *Conversation {
	if o.ID == "" {
		o.ID = rand.Text()
	}
	if o.Mode == "" {
		o.Mode = Agent
	}
	return &Conversation{client: c, id: o.ID, mode: o.Mode, model: o.Model, turn: make(chan struct{}, 1)}
}

// ID is the conversation's id, as in [Invocation].
func (v *Conversation) ID() string { return v.id }

// begin waits until no turn runs.
func (v *Conversation) begin(ctx context.Context) error {
	select {
	case v.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the conversation's turn: %w", context.Cause(ctx))
	}
}

func (v *Conversation) end() { <-v.turn }

// SetModel changes the model of the turns to come; "" is the default.
func (v *Conversation) SetModel(ctx context.Context, id string) error {
	if err := v.begin(ctx); err != nil {
		return err
	}
	defer v.end()
	v.model = id
	return nil
}

// Close makes the server forget the conversation, after the turn that runs.
func (v *Conversation) Close(ctx context.Context) error {
	if err := v.begin(ctx); err != nil {
		return err
	}
	defer v.end()
	if !v.known {
		return nil
	}
	v.known = false
	return v.client.call(ctx, "conversation/destroy", object{"conversationId": v.id}, nil)
}

// Turn is how a turn ended.
type Turn struct {
	ID    string
	Model string // that answered, in words for people
	Text  string // all of it
	Usage Usage
}

// ErrCancelled is the end of a turn that was cancelled; with it comes the cause
// of the context's end if that cancelled it.
var ErrCancelled = errors.New("the turn was cancelled")

// TurnError is why the server ended a turn.
type TurnError struct {
	Message    string
	Code       int    // an HTTP status of the model's endpoint, or the server's own; 0: none
	Reason     string // in the server's words; "": none
	Filtered   bool   // the answer was held back
	Incomplete bool
}

// Error is the server's message, on one line.
func (e *TurnError) Error() string { return strings.Join(strings.Fields(e.Message), " ") }

// CodeTooManyRounds is the [TurnError]'s when a turn used up its rounds of tool calls.
const CodeTooManyRounds = 10000

// Turn sends a prompt and returns when its turn has ended. on gets the turn's
// events in order, on this goroutine; nil: nobody does. What the model said comes
// with an error, too.
//
// When ctx ends, the turn is cancelled, with the tool calls in it, and its end is
// waited for.
func (v *Conversation) Turn(ctx context.Context, prompt string, on func(Event)) (Turn, error) {
	result, err := v.run(ctx, prompt, on)
	if err != nil && ctx.Err() != nil && !errors.Is(err, ErrCancelled) {
		err = fmt.Errorf("%w: %w", ErrCancelled, err)
	}
	return result, err
}

func (v *Conversation) run(ctx context.Context, prompt string, on func(Event)) (Turn, error) {
	if err := v.begin(ctx); err != nil {
		return Turn{}, err
	}
	defer v.end()
	c := v.client
	model, err := c.model(ctx, v.model)
	if err != nil {
		return Turn{}, err
	}
	params := object{
		"modelInfo": object{"id": model}, "chatMode": v.mode, "source": "panel",
		"capabilities": object{"skills": []string{}}, "computeSuggestions": false,
		"workspaceFolder": fileURI(c.o.Workspace), "workspaceFolders": []any{c.o.folder()},
		"conversationId": v.id,
	}
	method := "conversation/turn"
	if v.known {
		params["message"] = prompt
	} else {
		method = "conversation/create"
		params["turns"] = []any{object{"request": prompt}}
	}
	t := c.openTurn(ctx, v.id)
	defer c.closeTurn(t)
	params["workDoneToken"] = t.token

	var answer struct{ TurnID, ModelName string }
	answered := make(chan error, 1)
	go func() {
		answered <- known(c.conn.CallWithin(ctx, cancelGrace, method, params, &answer))
		t.wake()
	}()
	p := progress{on: on}
	for {
		// In this order: what the answer follows has been queued before it.
		var done bool
		select {
		case err = <-answered:
			done = true
		default:
		}
		for _, report := range t.take() {
			p.report(report)
		}
		if done {
			break
		}
		<-t.ready
	}
	result := Turn{ID: answer.TurnID, Model: answer.ModelName, Text: p.text.String(), Usage: p.usage}
	if err != nil {
		return result, err
	}
	v.known = true
	return result, p.outcome(ctx)
}

// turn is a turn under way: its progress waits here for the goroutine of
// [Conversation.Turn], so that the one that reads never does.
type turn struct {
	ctx          context.Context // of its tool calls, too
	token        string
	conversation string
	ready        chan struct{} // has room for one: something came

	reports reportQueue
}

func (c *Client) openTurn(ctx context.Context, conversation string) *turn {
	t := &turn{ctx: ctx, token: "turn-" + rand.Text(), conversation: conversation, ready: make(chan struct{}, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turns[t.token] = t
	return t
}

func (c *Client) closeTurn(t *turn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.turns, t.token)
}

// turnOf returns the turn that runs in a conversation, nil for none.
func (c *Client) turnOf(conversation string) *turn {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.turns {
		if t.conversation == conversation {
			return t
		}
	}
	return nil
}

func (t *turn) wake() {
	select {
	case t.ready <- struct{}{}:
	default:
	}
}

func (t *turn) take() []json.RawMessage { return t.reports.take() }

// progress hands a report to the turn that it is of. It runs on the goroutine
// that reads.
func (c *Client) progress(params json.RawMessage) {
	var p struct {
		Token json.RawMessage
		Value json.RawMessage
	}
	var token string
	if json.Unmarshal(params, &p) != nil || json.Unmarshal(p.Token, &token) != nil {
		return
	}
	c.mu.Lock()
	t := c.turns[token]
	c.mu.Unlock()
	if t != nil {
		t.reports.put(p.Value)
		t.wake()
	}
}
