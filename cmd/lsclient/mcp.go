package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"tapgw/internal/langserver"
)

// mcpTime is how long MCP servers may take to start before turns begin without
// their tools.
const mcpTime = 10 * time.Second

// startedMCP waits until the configuration's MCP servers run or have failed, up
// to [mcpTime], and returns them as they are then. A turn has the tools only of
// those that ran when it began.
func (k *call) startedMCP(ctx context.Context, server *langserver.Client) ([]langserver.MCPState, error) {
	late, cancel := context.WithTimeout(ctx, mcpTime)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		states, err := server.MCPServers(ctx)
		if err != nil || k.settledMCP(states) {
			return states, err
		}
		select {
		case <-tick.C:
		case <-late.Done():
			return states, context.Cause(ctx)
		}
	}
}

// settledMCP reports whether each of the configuration's MCP servers runs or has
// failed.
func (k *call) settledMCP(states []langserver.MCPState) bool {
	for name := range k.conf().MCP {
		if !slices.ContainsFunc(states, func(s langserver.MCPState) bool {
			return s.Name == name &&
				(running(s) || s.Error != "")
		}) {
			return false
		}
	}
	return true
}

// running reports whether an MCP server has told its tools: the language server
// says that it runs before it knows them.
func running(s langserver.MCPState) bool { return s.Status == "running" && len(s.Tools) > 0 }

// awaitMCP waits for the MCP servers and says which of them turns go without.
func (k *call) awaitMCP(ctx context.Context, server *langserver.Client) error {
	if len(k.conf().MCP) == 0 {
		return nil
	}
	states, err := k.startedMCP(ctx, server)
	if errors.Is(err, langserver.ErrMCPDisabled) {
		k.out.Notef("lsclient: %v", err)
		return nil
	}
	for _, s := range states {
		if _, ours := k.conf().MCP[s.Name]; !ours || running(s) {
			continue
		}
		if s.Error == "" {
			s.Error = "it has not started yet"
		}
		k.out.Notef("lsclient: MCP server %s: %s", s.Name, s.Error)
	}
	return err
}
