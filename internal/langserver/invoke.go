package langserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"unicode/utf8"
)

// This file runs the tool calls that the server sends, and writes their results in the form that
// the server accepts.

// maxOutput is how many bytes of a tool's answer go to the server. The server shows the model less
// than a tenth of that, and sends all of it back in events.
const maxOutput = 4 << 20

// Status says how a tool call ended. It is the server's word for it.
type Status string

// Statuses of an [Outcome], in the server's words. The client sends any other value as
// [StatusSuccess].
const (
	StatusSuccess   Status = "success"
	StatusError     Status = "error"
	StatusCancelled Status = "cancelled"
)

// Outcome is the result of a tool call: texts for the model, and how the call ended. The zero value
// is a success without text. Of all parts together 4 MiB go to the server.
type Outcome struct {
	Parts  []string // the model sees them below each other
	Status Status   // "": StatusSuccess
}

// Succeeded returns the outcome of a call that succeeded, with texts that the model reads one below
// the other. Without parts the model gets an empty text.
func Succeeded(parts ...string) Outcome { return Outcome{parts, StatusSuccess} }

// FailedWith returns the outcome of a call that failed; the model reads the text of err, which must
// not be nil. The status is [StatusCancelled] if err wraps context.Canceled, else [StatusError].
func FailedWith(err error) Outcome {
	if errors.Is(err, context.Canceled) {
		return Outcome{[]string{err.Error()}, StatusCancelled}
	}
	return Outcome{[]string{err.Error()}, StatusError}
}

// wire returns the only form of answer that the server accepts: a result and an error. The error is
// always null, because the server would show it to the model with a stack trace.
func (o Outcome) wire() any {
	status := o.Status
	if status != StatusError && status != StatusCancelled {
		status = StatusSuccess
	}
	type part struct {
		Value string `json:"value"`
	}
	content := []part{}
	room := maxOutput
	for _, p := range o.Parts {
		if len(p) > room {
			p = truncate(p, room)
		}
		room -= min(room, len(p))
		content = append(content, part{p})
	}
	if len(content) == 0 {
		content = append(content, part{})
	}
	if status == StatusError && strings.Join(o.Parts, "") == "" {
		content[0].Value = "the tool failed and did not say why"
	}
	return []any{object{"content": content, "status": status}, nil}
}

// truncate shortens a text to about size bytes and adds a note about the rest.
func truncate(s string, size int) string {
	for size > 0 && !utf8.RuneStart(s[size]) {
		size--
	}
	return fmt.Sprintf("%s\n[%d more bytes were left out]", s[:size], len(s)-size)
}

// invoke answers conversation/invokeClientTool.
func (c *Client) invoke(ctx context.Context, params json.RawMessage) any {
	var p struct {
		Name           string
		Input          json.RawMessage
		ConversationID string
		TurnID         string
		RoundID        int
		ToolCallID     string
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return FailedWith(fmt.Errorf("the language server's call can't be read: %w", err)).wire()
	}
	call := Invocation{ourName(p.Name), p.Input, p.ConversationID, p.TurnID, p.RoundID,
		p.ToolCallID}
	ctx, cancel := c.withTurn(ctx, call.ConversationID)
	defer cancel()
	return c.run(ctx, call).wire()
}

// run asks the gate about a call, and then runs the tool.
func (c *Client) run(ctx context.Context, call Invocation) Outcome {
	t, ok := c.tools.lookup(call.Tool)
	if !ok {
		return FailedWith(fmt.Errorf("there is no tool %s any more", call.Tool))
	}
	if len(call.Input) == 0 {
		call.Input = json.RawMessage("{}")
	}
	deny, added := c.askGate(ctx, call)
	if deny != "" {
		return Outcome{[]string{deny}, StatusError}
	}
	out := t.Call(ctx, call)
	c.log.Debug("a tool was called", "tool", call.Tool, "status", string(out.Status), "call",
		call.CallID)
	if added != "" {
		out.Parts = append(slices.Clip(out.Parts), added)
	}
	return out
}

// askGate asks the gate about a call. A gate that panics denies.
func (c *Client) askGate(ctx context.Context, call Invocation) (deny, added string) {
	if c.options.Gate == nil {
		return "", ""
	}
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("the gate broke down", "tool", call.Tool, "panic", r, "stack",
				string(debug.Stack()))
			deny = fmt.Sprintf("%s was not allowed: the gate broke down", call.Tool)
		}
	}()
	deny, added = c.options.Gate(ctx, call)
	if deny == "" && ctx.Err() != nil { // the turn has been cancelled
		deny = fmt.Sprintf("%s was cancelled", call.Tool)
	}
	return deny, added
}
