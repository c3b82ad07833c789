package langserver

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"

	"tapgw/internal/jsonrpc"
)

// Kind is the kind of action that the server asks about in a [Confirmation], in the server's words.
type Kind string

// Kinds of a [Confirmation]. The server may send others, so a policy must refuse a kind that it
// does not handle.
const (
	Terminal Kind = "terminal"   // a command
	ReadFile Kind = "file_read"  // a file outside the workspace, or a protected one
	EditFile Kind = "file_write" // likewise
	MCPTool  Kind = "mcp_tool"
	Web      Kind = "web"
	Safe     Kind = "safe_tool"
)

// Confirmation is a question of the server before it acts outside the workspace, runs a command,
// calls an MCP tool or opens a web page. [Options.Confirm] decides about it.
type Confirmation struct {
	Kind    Kind
	Tool    string   // without the server's prefix
	Ours    bool     // a tool of [Client.SetTools], whose Call can still refuse and give the reason
	Title   string   // in the server's words
	Message string   // likewise
	Path    string   // the file, or ""
	Command []string // the commands of a command line, or nil
	Server  string   // the MCP server of the tool, or ""
	Input   json.RawMessage

	ConversationID string
	CallID         string
}

// confirm answers conversation/invokeClientToolConfirmation. To the answer "dismiss" the server
// tells the model that the user chose to skip the call. Of an error it passes on the text, behind
// words of its own and up to 300 characters in all, and goes on with the turn.
func (c *Client) confirm(ctx context.Context, params json.RawMessage) (any, error) {
	q, err := readConfirmation(params)
	if err == nil {
		if q.Kind != MCPTool {
			_, q.Ours = c.tools.lookup(q.Tool)
		}
		ctx, cancel := c.withTurn(ctx, q.ConversationID)
		defer cancel()
		err = c.decide(ctx, q)
	}
	if err == nil {
		return []any{object{"result": "accept"}, nil}, nil
	}
	c.log.Info("a tool call was refused", "tool", q.Tool, "kind", string(q.Kind), "reason",
		err.Error())
	t := c.turnOf(q.ConversationID)
	if t == nil || t.ctx.Err() != nil {
		return []any{object{"result": "dismiss"}, nil}, nil
	}
	t.refusals.Store(q.CallID, err.Error())
	return nil, &jsonrpc.Error{Code: codeRefused, Message: err.Error()}
}

// decide asks the policy. The answer is no without a policy and if it panics.
func (c *Client) decide(ctx context.Context, q Confirmation) (err error) {
	if c.options.Confirm == nil {
		return fmt.Errorf("nothing allows it")
	}
	defer func() {
		if r := recover(); r != nil {
			c.log.Error("the policy broke down", "tool", q.Tool, "panic", r, "stack",
				string(debug.Stack()))
			err = fmt.Errorf("the policy broke down")
		}
	}()
	if err := c.options.Confirm(ctx, q); err != nil {
		return err
	}
	return context.Cause(ctx) // it is too late for a yes
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
	// The model's arguments, which may have any form, and the fields that the server adds to them.
	var in struct{ ToolType, FilePath, Path, Command, MCPServerName, MCPToolName string }
	_ = json.Unmarshal(p.Input, &in)
	q := Confirmation{
		Kind: Kind(in.ToolType), Tool: p.Name, Title: p.Title, Message: p.Message, Input: p.Input,
		Path:           cmp.Or(p.ToolMetadata.SensitiveFileData.FilePath, in.FilePath, in.Path),
		Command:        p.ToolMetadata.TerminalCommandData.SubCommands,
		ConversationID: p.ConversationID, CallID: p.ToolCallID,
	}
	for _, prefix := range []string{clientProvider, serverProvider} {
		q.Tool = ourName(strings.TrimPrefix(q.Tool, prefix))
	}
	switch {
	case q.Kind == MCPTool:
		q.Server, q.Tool = in.MCPServerName, in.MCPToolName
	case q.Kind == Terminal && q.Command == nil:
		q.Command = []string{in.Command}
	}
	return q, nil
}
