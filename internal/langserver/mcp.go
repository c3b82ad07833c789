package langserver

import (
	"context"
	"errors"
)

// ErrMCPDisabled is the organisation's refusal of MCP servers.
var ErrMCPDisabled = errors.New("MCP servers are switched off by the organisation")

// MCPState is an MCP server that the language server runs.
type MCPState struct {
	Name   string
	Status string   // as in "running"
	Error  string   // why it does not run; "": it does, or nobody says
	Tools  []string // by their names at the MCP server
}

// MCPServers returns the MCP servers and what became of them, or [ErrMCPDisabled].
// The organisation's word is known soon after somebody has signed in; the server
// minds it from the start.
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
