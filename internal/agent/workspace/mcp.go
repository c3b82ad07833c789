package workspace

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/langserver"
)

// mcpTime is how long MCP servers may take to start. After that turns begin without their tools.
const mcpTime = 10 * time.Second

// NoMCPServers says that there is no MCP server, and how to get one.
const NoMCPServers = "none; add [mcp.NAME] to lsclient.toml, or use --mcp"

// MCP returns the MCP servers of flags and the configuration, by name. A flag's replaces the
// configuration's of its name.
func (w *Workspace) MCP() map[string]configs.MCPServer {
	servers := map[string]configs.MCPServer{}
	if !w.Plan {
		maps.Copy(servers, w.Config().MCP)
		maps.Copy(servers, w.mcp)
	}
	return servers
}

// MCPNames returns the names of the MCP server that the person names, or of all.
func (w *Workspace) MCPNames(server string) ([]string, error) {
	names := slices.Sorted(maps.Keys(w.MCP()))
	if server == "" {
		return names, nil
	}
	if !slices.Contains(names, server) {
		there := "there are " + strings.Join(names, ", ")
		if len(names) == 0 {
			there = "there are " + NoMCPServers
		}
		return nil, cli.NotFound("there is no MCP server %q: %s", server, there)
	}
	return []string{server}, nil
}

// MCPStates waits until the configuration's MCP servers run or have failed, up to [mcpTime], and
// returns their states. A turn has only the tools of servers that ran at its beginning.
func (w *Workspace) MCPStates(ctx context.Context, server *langserver.Client) ([]langserver.MCPState, error) {
	late, cancel := context.WithTimeout(ctx, mcpTime)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		states, err := server.MCPServers(ctx)
		if err != nil || w.mcpStarted(states) {
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
func (w *Workspace) mcpStarted(states []langserver.MCPState) bool {
	for name := range w.MCP() {
		if s := MCPState(states, name); !IsRunning(s) && s.Error == "" {
			return false
		}
	}
	return true
}

// MCPState returns the state of a server. One that the language server does not name has not started.
func MCPState(states []langserver.MCPState, name string) langserver.MCPState {
	for _, s := range states {
		if s.Name == name {
			return s
		}
	}
	return langserver.MCPState{Name: name, Status: "stopped"}
}

// IsRunning reports whether an MCP server has sent its tools. Its status is "running" before that.
func IsRunning(s langserver.MCPState) bool { return s.Status == "running" && len(s.Tools) > 0 }

// WaitForMCP waits for the MCP servers and notes those that do not run.
func (w *Workspace) WaitForMCP(ctx context.Context, server *langserver.Client) error {
	ours := w.MCP()
	if len(ours) == 0 {
		return nil
	}
	states, err := w.MCPStates(ctx, server)
	if errors.Is(err, langserver.ErrMCPDisabled) {
		w.options.Note("lsclient: %v", err)
		return nil
	}
	for _, s := range states {
		if _, isOurs := ours[s.Name]; isOurs && !IsRunning(s) {
			w.options.Note("lsclient: MCP server %s: %s", s.Name, cmp.Or(s.Error, "it has not started yet"))
		}
	}
	return err
}

// ChangeMCP starts or stops MCP servers, or leaves them with an empty action, and returns the states
// of all, with the reason if an action failed.
func (w *Workspace) ChangeMCP(ctx context.Context, server *langserver.Client, names []string,
	action langserver.MCPAction) ([]langserver.MCPState, error) {
	status, err := server.Status(ctx)
	if err != nil {
		return nil, err
	}
	if !status.OK {
		return nil, langserver.ErrNotSignedIn
	}
	// They start by themselves, and what has not ended starting can't be stopped.
	states, err := w.MCPStates(ctx, server)
	if err != nil || action == "" {
		return states, err
	}
	reasons := map[string]string{}
	for _, name := range names {
		if err := server.ChangeMCP(ctx, name, action); err != nil {
			reasons[name] = err.Error()
		}
	}
	states, err = server.MCPServers(ctx)
	for i := range states {
		states[i].Error = cmp.Or(states[i].Error, reasons[states[i].Name])
	}
	return states, err
}
