package langserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
)

// Kind is what the server asks about.
type Kind string

// Kinds of a [Confirmation]; the server may have more.
const (
	Terminal Kind = "terminal"   // a command
	ReadFile Kind = "file_read"  // outside the workspace, or a protected one
	EditFile Kind = "file_write" // likewise
	MCPTool  Kind = "mcp_tool"
	Web      Kind = "web"
	Safe     Kind = "safe_tool"
)

// Confirmation is a question of the server's, before it does what is outside the
// workspace, runs a command, calls an MCP tool or reaches the web. Its own tools
// ask nothing else: they read and search the workspace on their own.
type Confirmation struct {
	Kind    Kind
	Tool    string   // without the server's prefix
	Ours    bool     // of [Client.SetTools]: its Call can still refuse, and say why
	Title   string   // in the server's words
	Message string   // likewise
	Path    string   // of the file; "": none
	Command []string // the commands of a command line; nil: none
	Server  string   // MCP server whose tool it is; "": none
	Input   json.RawMessage

	ConversationID string
	CallID         string
}

// confirm answers conversation/invokeClientToolConfirmation.
func (c *Client) confirm(ctx context.Context, params json.RawMessage) any {
	q, err := readConfirmation(params)
	if err == nil {
		if q.Kind != MCPTool {
			_, q.Ours = c.tools.lookup(q.Tool)
		}
		if t := c.turnOf(q.ConversationID); t != nil {
			merged, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			defer context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })()
			ctx = merged
		}
		err = c.decide(ctx, q)
	}
	result := "accept"
	if err != nil {
		result = "dismiss"
		c.log.Info("a tool call was refused", "tool", q.Tool, "kind", string(q.Kind), "reason", err.Error())
	}
	return []any{object{"result": result}, nil}
}

// decide asks the policy. Without one, and where it breaks down, the answer is no.
func (c *Client) decide(ctx context.Context, q Confirmation) (err error) {
	if c.o.Confirm == nil {
		return fmt.Errorf("nothing allows it")
	}
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("the policy broke down", "tool", q.Tool, "panic", r, "stack", string(debug.Stack()))
			err = fmt.Errorf("the policy broke down")
		}
	}()
	if err := c.o.Confirm(ctx, q); err != nil {
		return err
	}
	return context.Cause(ctx) // a yes that came too late is none
}

func readConfirmation(params json.RawMessage) (Confirmation, error) {
	var p struct {
		Name, Title, Message       string
		Input                      json.RawMessage
		ConversationID, ToolCallID string
		ToolMetadata               struct {
			TerminalCommandData struct{ SubCommands []string }
			SensitiveFileData   struct{ FilePath string }
		}
	}
	if err := json.Unmarshal(params, &p); err != nil {
		return Confirmation{}, fmt.Errorf("the language server's question can't be read: %w", err)
	}
	// The model's arguments, of any form, with what the server says on top.
	var in struct{ ToolType, FilePath, Path, Command, MCPServerName, MCPToolName string }
	_ = json.Unmarshal(p.Input, &in)
	q := Confirmation{
		Kind: Kind(in.ToolType), Tool: p.Name, Title: p.Title, Message: p.Message, Input: p.Input,
		Path:           cmp.Or(p.ToolMetadata.SensitiveFileData.FilePath, in.FilePath, in.Path),
		Command:        p.ToolMetadata.TerminalCommandData.SubCommands,
		ConversationID: p.ConversationID, CallID: p.ToolCallID,
	}
	for _, prefix := range []string{clientProvider, "copilot."} {
		q.Tool = strings.TrimPrefix(q.Tool, prefix)
	}
	switch {
	case q.Kind == MCPTool:
		q.Server, q.Tool = in.MCPServerName, in.MCPToolName
	case q.Kind == Terminal && q.Command == nil:
		q.Command = []string{in.Command}
	}
	return q, nil
}
