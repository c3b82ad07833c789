package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"tapgw/internal/langserver"
)

// mcpTime is how long MCP servers may take to start. After that turns begin without their tools.
const mcpTime = 10 * time.Second

// mcpStates waits until the configuration's MCP servers run or have failed, up to [mcpTime], and returns their
// states. A turn has only the tools of servers that ran at its beginning.
func (c *command) mcpStates(ctx context.Context, server *langserver.Client) ([]langserver.MCPState, error) {
	late, cancel := context.WithTimeout(ctx, mcpTime)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		states, err := server.MCPServers(ctx)
		if err != nil || c.mcpStarted(states) {
			return states, err
		}
		select {
		case <-tick.C:
		case <-late.Done():
			return states, context.Cause(ctx)
		}
	}
}

// mcpStarted reports whether each of the configuration's MCP servers runs or has failed.
func (c *command) mcpStarted(states []langserver.MCPState) bool {
	for name := range c.mcp() {
		if !slices.ContainsFunc(states, func(s langserver.MCPState) bool {
			return s.Name == name && (isRunning(s) || s.Error != "")
		}) {
			return false
		}
	}
	return true
}

// isRunning reports whether an MCP server has sent its tools. Its status is "running" before that.
func isRunning(s langserver.MCPState) bool { return s.Status == "running" && len(s.Tools) > 0 }

// waitForMCP waits for the MCP servers and reports those that do not run.
func (c *command) waitForMCP(ctx context.Context, server *langserver.Client) error {
	if len(c.mcp()) == 0 {
		return nil
	}
	states, err := c.mcpStates(ctx, server)
	if errors.Is(err, langserver.ErrMCPDisabled) {
		c.out.Notef("lsclient: %v", err)
		return nil
	}
	for _, s := range states {
		if _, ours := c.mcp()[s.Name]; !ours || isRunning(s) {
			continue
		}
		if s.Error == "" {
			s.Error = "it has not started yet"
		}
		c.out.Notef("lsclient: MCP server %s: %s", s.Name, s.Error)
	}
	return err
}
