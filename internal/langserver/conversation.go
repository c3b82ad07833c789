package langserver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"tapgw/internal/chans"
)

// This file has conversations and their turns.

// Mode says which tools the model of a conversation may call. It is fixed when the conversation is
// made.
type Mode string

// Modes of a conversation, in the server's words. In [ConversationOptions] "" is [Agent].
const (
	Agent Mode = "Agent" // calls all tools
	Ask   Mode = "Ask"   // reads and searches the workspace, only with the server's own tools
)

// cancelGrace is how long the server may take to end a cancelled turn. [tools.Tool.Call] waits
// shorter for a tool that ignores its cancellation.
const cancelGrace = 15 * time.Second

// ConversationOptions are the options of [Client.NewConversation]. The zero value makes a
// conversation with a random id, mode [Agent] and the server's default model. The model is checked
// at the first turn.
type ConversationOptions struct {
	ID     string // "": a random one
	Mode   Mode
	Model  string // id of a model; "": see [DefaultModel]
	Effort string // reasoning effort, as in [Model].Efforts; "": the server's choice
	// Earlier are the conversation's turns in an earlier server, oldest first. The first turn gives
	// the server the newest that fit the model's context, and a [Notice] says how many it left out.
	Earlier []EarlierTurn
}

// Conversation is a series of turns that the model remembers. Turns of one conversation run one
// after the other, turns of several conversations at the same time. Its methods may be called from
// several goroutines.
type Conversation struct {
	client *Client
	id     string
	mode   Mode
	turn   chans.Lock // held while a turn runs; guards the fields that follow

	model    string
	effort   string
	earlier  []EarlierTurn // for the server, when it gets the conversation
	atServer bool          // the server knows the conversation
	images   []Image       // of the next prompt
}

// NewConversation makes a conversation. It sends nothing: the conversation begins at the server
// with its first turn, and a wrong model fails only there. Two conversations must not have the same
// id.
func (c *Client) NewConversation(o ConversationOptions) *Conversation {
	if o.ID == "" {
		o.ID = rand.Text()
	}
	if o.Mode == "" {
		o.Mode = Agent
	}
	return &Conversation{client: c, id: o.ID, mode: o.Mode, effort: o.Effort, model: o.Model,
		earlier: o.Earlier, turn: chans.NewLock()}
}

// ID returns the conversation's id, which every [Invocation] and [Confirmation] of its turns names.
func (v *Conversation) ID() string { return v.id }

// begin waits until no turn runs.
func (v *Conversation) begin(ctx context.Context) error {
	if err := v.turn.Lock(ctx); err != nil {
		return fmt.Errorf("waiting for the conversation's turn: %w", err)
	}
	return nil
}

// SetModel changes the model of later turns: an id of [Client.Models], or "" for the default. It
// waits for the turn that runs. An id that the server does not list is an [UnknownModelError], a
// model that does not take the conversation's effort an [EffortError]; both change nothing.
func (v *Conversation) SetModel(ctx context.Context, id string) error {
	if err := v.begin(ctx); err != nil {
		return err
	}
	defer v.turn.Unlock()
	if id != "" {
		m, err := v.client.model(ctx, id)
		if err != nil {
			return err
		}
		if err := m.checkEffort(v.effort); err != nil {
			return err
		}
	}
	v.model = id
	return nil
}

// SetEffort changes the reasoning effort of later turns; "" is the server's choice. It waits for
// the turn that runs. An effort that the model does not take is an [EffortError] and changes
// nothing.
func (v *Conversation) SetEffort(ctx context.Context, effort string) error {
	if err := v.begin(ctx); err != nil {
		return err
	}
	defer v.turn.Unlock()
	if effort != "" {
		m, err := v.client.model(ctx, v.model)
		if err != nil {
			return err
		}
		if err := m.checkEffort(effort); err != nil {
			return err
		}
	}
	v.effort = effort
	return nil
}

// Close waits for the turn that runs and makes the server forget the conversation. A later turn
// would begin a new one with the same id. It does nothing if the server has answered no turn yet.
func (v *Conversation) Close(ctx context.Context) error {
	if err := v.begin(ctx); err != nil {
		return err
	}
	defer v.turn.Unlock()
	if !v.atServer {
		return nil
	}
	v.atServer = false
	return v.client.call(ctx, "conversation/destroy", object{"conversationId": v.id}, nil)
}

// Turn is the result of a turn. If the turn failed, it has the part before the failure, and ID and
// Model may be "".
type Turn struct {
	ID     string
	Model  string // the name of the model that answered, for people
	Text   string // all text of the model
	Answer string // the text of its last round
	Rounds int    // answers of the model, with tool calls or the last one
	Usage  Usage
	// Multiplier is how many premium requests each prompt to the model costs.
	Multiplier float64
}

// ErrCancelled is the error of a turn that was cancelled, by the end of its context or by the
// server. If the end of the context cancelled it, the error wraps the cause too.
var ErrCancelled = errors.New("the turn was cancelled")

// TurnError is the error of a turn that failed in the server or at the model, for example at a rate
// limit. The conversation goes on with the next turn.
type TurnError struct {
	Message    string
	Code       int    // an HTTP status of the model's endpoint, or a code of the server; may be 0
	Reason     string // in the server's words; may be ""
	Filtered   bool   // a content filter held the answer back
	Incomplete bool   // the answer ends early
}

// Error is the server's message, on one line.
func (e *TurnError) Error() string { return strings.Join(strings.Fields(e.Message), " ") }

// CodeTooManyRounds is the code of the [TurnError] of a turn with more rounds of tool calls than
// [Options.MaxRounds].
const CodeTooManyRounds = 10000

// Turn sends a prompt and returns when its turn has ended. It first waits for the conversation's
// earlier turns. on gets the turn's events in order, on this goroutine; it may be nil. The result
// has the model's text also if there is an error: a [TurnError], [ErrCancelled], an
// [UnknownModelError], an [EffortError] or an error of [Client].
//
// When ctx ends, the turn and its tool calls are cancelled, and Turn waits up to 15 s for their
// end.
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
	defer v.turn.Unlock()
	c := v.client
	model, err := c.model(ctx, v.model)
	if err != nil {
		return Turn{}, err
	}
	if err := model.checkEffort(v.effort); err != nil {
		return Turn{}, err
	}
	images := v.images
	v.images = nil
	if len(images) > 0 && !model.Vision {
		return Turn{}, fmt.Errorf("the model %s does not see images: choose one that does",
			model.ID)
	}
	info := object{"id": model.ID}
	if v.effort != "" {
		info["reasoningEffort"] = v.effort
	}
	params := object{
		"modelInfo": info, "chatMode": v.mode, "source": "panel",
		"capabilities": object{"skills": []string{}}, "computeSuggestions": false,
		"workspaceFolder":  fileURI(c.options.Workspace),
		"workspaceFolders": []any{c.options.folder()},
		"conversationId":   v.id,
	}
	method := "conversation/turn"
	if v.atServer {
		params["message"] = promptParts(prompt, images)
	} else {
		method = "conversation/create"
		fit, out := fitEarlier(v.earlier, inputLimit(model))
		if out > 0 && on != nil {
			on(Notice{"info",
				fmt.Sprintf("the model does not see the first %d of %d earlier turns: "+
					"its context is too small", out, len(v.earlier))})
		}
		var turns []any
		for _, t := range fit {
			turns = append(turns, t)
		}
		params["turns"] = append(turns, object{"request": promptParts(prompt, images)})
	}
	// Calls are cancelled after the turn: a server that gets their answers first asks the model
	// again.
	calls, endCalls := context.WithCancelCause(context.WithoutCancel(ctx))
	defer endCalls(nil)
	t := c.openTurn(calls, v.id)
	defer c.closeTurn(t)
	params["workDoneToken"] = t.token

	var answer struct {
		TurnID, ModelName string
		BillingMultiplier float64
	}
	answered := make(chan error, 1)
	go func() {
		answered <- knownError(c.conn.CallWithin(ctx, cancelGrace, func() {
			endCalls(context.Cause(ctx))
		}, method,
			params, &answer))
		t.wake()
	}()
	p := progress{on: on, refusals: &t.refusals}
	for {
		// First the answer, then the queue: reports before the answer have been queued before it.
		var done bool
		select {
		case err = <-answered:
			done = true
		default:
		}
		for _, report := range t.reports.drain() {
			p.report(report)
		}
		if done {
			break
		}
		<-t.ready
	}
	result := Turn{ID: answer.TurnID, Model: answer.ModelName, Text: p.text.String(),
		Answer: p.answer.String(), Rounds: p.rounds, Usage: p.usage,
		Multiplier: answer.BillingMultiplier}
	if err != nil {
		return result, err
	}
	v.atServer, v.earlier = true, nil
	return result, p.outcome(ctx)
}

// turn is a running turn. Its reports wait here for the goroutine of [Conversation.Turn], so that
// the goroutine that reads never waits.
type turn struct {
	// of its tool calls; ends when the server has been told to cancel the turn
	ctx          context.Context
	token        string
	conversation string
	ready        chan struct{} // has room for one: there is something to handle

	reports  reportQueue
	refusals sync.Map // why calls were refused, by call id: string to string
}

func (c *Client) openTurn(ctx context.Context, conversation string) *turn {
	t := &turn{ctx: ctx, token: "turn-" + rand.Text(), conversation: conversation,
		ready: make(chan struct{}, 1)}
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

// turnOf returns the running turn of a conversation, or nil.
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

// withTurn returns a context that ends with ctx and with the running turn of a conversation. The
// server never cancels its requests about a turn's tools: it waits for the answers.
func (c *Client) withTurn(
	ctx context.Context, conversation string,
) (context.Context, context.CancelFunc) {
	t := c.turnOf(conversation)
	if t == nil {
		return ctx, func() {}
	}
	merged, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })
	return merged, func() {
		stop()
		cancel(nil)
	}
}

func (t *turn) wake() { chans.Wake(t.ready) }

// progress queues a report for its turn. It runs on the goroutine that reads.
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
		t.reports.add(p.Value)
		t.wake()
	}
}
