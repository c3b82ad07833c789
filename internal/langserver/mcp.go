package langserver

import (
	"context"
	"errors"
)

// ErrMCPDisabled is the error of [Client.MCPServers] if the organisation of the signed-in user has switched MCP servers
// off. The servers of [Options].MCP then do not run; everything else works.
var ErrMCPDisabled = errors.New("MCP servers are switched off by the organisation")

// MCPState is the state of one MCP server of [Options].MCP, which the language server runs or connects to, and the
// tools that it offers.
type MCPState struct {
	Name   string
	Status string   // as in "running"
	Error  string   // why it does not run; "": it runs, or the reason is unknown
	Tools  []string // names at the MCP server
}

// MCPServers returns the MCP servers of [Options.MCP] and their states, or [ErrMCPDisabled]. The server applies the
// organisation's policy from the start; this client knows it soon after the user has signed in.
func (c *Client) MCPServers(ctx context.Context) ([]MCPState, error) {
	c.mu.Lock()
	off := c.mcpOff
	c.mu.Unlock()
	if off {
		return nil, ErrMCPDisabled
	}
	var list []struct {
		Name, Status, Error string
		Tools               []struct{ Name string }
	}
	if err := c.call(ctx, "mcp/getTools", nil, &list); err != nil {
		return nil, err
	}
	states := make([]MCPState, len(list))
	for i, s := range list {
		states[i] = MCPState{Name: s.Name, Status: s.Status, Error: s.Error}
		for _, t := range s.Tools {
			states[i].Tools = append(states[i].Tools, t.Name)
		}
	}
	return states, nil
}
