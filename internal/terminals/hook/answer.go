// Package hook implements tapgw hook for a Copilot CLI: it asks the gateway about an event, and
// prints the answer in the form that the CLI expects. It does not link the code of sessions, so
// that a hook starts fast.
package hook

import (
	"errors"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"

	"tapgw/internal/protocol"
)

// The CLI's events that `tapgw hook` takes, as the CLI names them.
const (
	EventSessionStart      = "sessionStart"
	EventUserPrompt        = "userPromptSubmitted"
	EventPreToolUse        = "preToolUse"
	EventPermissionRequest = "permissionRequest"
	EventPostToolUse       = "postToolUse"
	EventAgentStop         = "agentStop"
	EventError             = "errorOccurred"
	EventSessionEnd        = "sessionEnd"
)

// Events lists them, in the order of a session.
var Events = []string{
	EventSessionStart, EventUserPrompt, EventPreToolUse, EventPermissionRequest, EventPostToolUse,
	EventAgentStop, EventError, EventSessionEnd,
}

// Decides reports whether the CLI asks at an event whether a tool may be called. There, any failure
// is a denial: the CLI lets the call through when it does not understand the answer.
func Decides(event string) bool {
	return event == EventPreToolUse || event == EventPermissionRequest
}

// Answer is a hook's answer, before it is written in the form of its event. The zero value leaves
// the decision to the CLI and its person.
type Answer struct {
	Deny    bool   // of the events that decide
	Reason  string // of Deny; of agentStop, the next prompt, or ""
	Context string // for the model
}

// The forms of the answers that the CLI knows. An answer in any other form lets a call through.
type (
	preToolUseOutput struct {
		Decision string `json:"permissionDecision,omitempty"`
		Reason   string `json:"permissionDecisionReason,omitempty"`
		Context  string `json:"additionalContext,omitempty"`
	}
	permissionOutput struct {
		Behavior string `json:"behavior,omitempty"`
		Message  string `json:"message,omitempty"`
	}
	contextOutput struct {
		Context string `json:"additionalContext,omitempty"`
	}
	stopOutput struct {
		Decision string `json:"decision,omitempty"`
		Reason   string `json:"reason,omitempty"`
	}
	noOutput struct{}
)

// deny and block are the only decisions that tapgw ever prints. "allow" would keep the CLI from
// asking the person.
const (
	deny  = "deny"
	block = "block"
)

// outputOf returns an empty output of an event.
func outputOf(event string) any {
	switch event {
	case EventPreToolUse:
		return &preToolUseOutput{}
	case EventPermissionRequest:
		return &permissionOutput{}
	case EventUserPrompt, EventPostToolUse, EventSessionStart:
		return &contextOutput{}
	case EventAgentStop:
		return &stopOutput{}
	}
	return &noOutput{}
}

// Output writes the answer in the form of an event.
func (a Answer) Output(event string) []byte {
	o := outputOf(event)
	switch o := o.(type) {
	case *preToolUseOutput:
		if a.Deny {
			o.Decision, o.Reason = deny, a.Reason
		} else {
			o.Context = a.Context
		}
	case *permissionOutput:
		if a.Deny {
			o.Behavior, o.Message = deny, a.Reason
		}
	case *contextOutput:
		o.Context = a.Context
	case *stopOutput:
		if a.Reason != "" {
			o.Decision, o.Reason = block, a.Reason
		}
	}
	output, _ := protocol.Marshal(o) // strings alone: it can't fail
	return output
}

// Denial is the output that denies a call at an event that decides. At the other events it is
// empty.
func Denial(event, reason string) []byte {
	if !Decides(event) {
		return Allowance(event)
	}
	return Answer{Deny: true, Reason: reason}.Output(event)
}

// Allowance is the output that leaves everything to the CLI and its person.
func Allowance(event string) []byte { return Answer{}.Output(event) }

// CheckOutput returns an error if the CLI does not know an output at an event. `tapgw hook` prints
// no such.
func CheckOutput(event string, output []byte) error {
	const unknown = "the gateway's output is none that the CLI knows"
	o := outputOf(event)
	if protocol.Raw(output).Kind() != '{' {
		return errors.New(unknown + ": it is no object")
	}
	if err := jsonv2.Unmarshal(output, o, jsonv2.RejectUnknownMembers(true)); err != nil {
		return fmt.Errorf(unknown+": %w", err)
	}
	decision, want := "", deny
	switch o := o.(type) {
	case *preToolUseOutput:
		decision = o.Decision
	case *permissionOutput:
		decision = o.Behavior
	case *stopOutput:
		decision, want = o.Decision, block
	}
	if decision != "" && decision != want {
		return fmt.Errorf(unknown+": it has the decision %q", decision)
	}
	return nil
}
