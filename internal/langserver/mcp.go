package langserver

import (
	"context"
	"errors"
)

// ErrMCPDisabled is the error of [Client.MCPServers] if the organisation of the signed-in user has
// switched MCP servers off. The servers of [Options].MCP then do not run; everything else works.
var ErrMCPDisabled = errors.New("MCP servers are switched off by the organisation")

// MCPState is the state of one MCP server of [Options].MCP, which the language server runs or
// connects to, and the tools that it offers.
type MCPState struct {
	Name   string
	Status string // as in "running"
	Error  string // why it does not run; "": it runs, or the reason is unknown
	Tools  []MCPServerTool
}

// MCPServerTool is a tool of an MCP server, with its name there.
type MCPServerTool struct{ Name, Description string }

// MCPServers returns the MCP servers of [Options.MCP] and their states, or [ErrMCPDisabled]. The
// server applies the organisation's policy from the start; this client knows it soon after the user
// has signed in.
func (c *Client) MCPServers(ctx context.Context) ([]MCPState, error) {
	c.mu.Lock()
	off := c.mcpOff
	c.mu.Unlock()
	if off {
		return nil, ErrMCPDisabled
	}
	var states []MCPState
	err := c.call(ctx, "mcp/getTools", nil, &states)
	return states, err
}

// MCPAction is a change that [Client.ChangeMCP] makes to an MCP server, in the server's words.
type MCPAction string

// Actions on an MCP server. A server of [Options.MCP] starts by itself.
const (
	MCPStart   MCPAction = "start"
	MCPStop    MCPAction = "stop"
	MCPRestart MCPAction = "restart"
)

// ChangeMCP starts or stops an MCP server of [Options.MCP] and returns when that is done, also if
// the server runs or has stopped already. The error says why it did not start.
func (c *Client) ChangeMCP(ctx context.Context, server string, action MCPAction) error {
	return c.call(ctx, "mcp/serverAction", object{"serverName": server, "action": action}, nil)
}
