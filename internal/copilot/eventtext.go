package copilot

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/github/copilot-sdk/go/rpc"
)

// because returns ": why", or "" without a reason.
func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

// pastTense makes "created" of "create".
func pastTense(operation string) string { return strings.TrimSuffix(operation, "e") + "ed" }

// serverText describes the fault of an MCP server, or returns "" if it is well.
func serverText(name string, status rpc.MCPServerStatus, err *string) string {
	switch status {
	case rpc.MCPServerStatusFailed:
		return fmt.Sprintf("MCP server %s failed%s", name, because(deref(err)))
	case rpc.MCPServerStatusNeedsAuth:
		return fmt.Sprintf("MCP server %s wants a sign-in%s", name, because(deref(err)))
	}
	return ""
}

// failureText says in one line how a model call failed.
func failureText(d *rpc.ModelCallFailureData) string {
	text := "a call of model " + cmp.Or(deref(d.Model), "(unknown)") + " failed"
	if status := deref(d.StatusCode); status != 0 {
		text += fmt.Sprintf(" with status %d", status)
	}
	if d.DurationMs != nil {
		text += fmt.Sprintf(" after %s", time.Duration(*d.DurationMs)*time.Millisecond)
	}
	return text + because(firstLine(deref(d.ErrorMessage)))
}

// firstLine returns the first line of an error's message. The runtime passes an endpoint's error as
// the JSON that it got, and its own errors as JSON strings.
func firstLine(message string) string {
	var object struct {
		Message string `json:"message"`
	}
	var text string
	switch {
	case json.Unmarshal([]byte(message), &object) == nil && object.Message != "":
		message = object.Message
	case json.Unmarshal([]byte(message), &text) == nil:
		message = text
	}
	message, _, _ = strings.Cut(strings.TrimSpace(message), "\n")
	return message
}
