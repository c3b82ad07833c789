package workspace

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"tapgw/configs"
	"tapgw/internal/chans"
	"tapgw/internal/cli"
	"tapgw/internal/langserver"
)

// The workspace's language server and the MCP servers that it runs.

// StartServer starts the language server with the settings of the configuration, to which the
// caller has added its own. A MaxRounds of 0 becomes the configuration's. The error has an exit
// code.
func (w *Workspace) StartServer(
	ctx context.Context, o langserver.Options,
) (*langserver.Client, error) {
	config := w.Config()
	o.Command, o.Workspace, o.Version, o.Log = config.Server, w.Dir, cli.Version(), w.logger()
	o.MaxRounds = cmp.Or(o.MaxRounds, config.MaxRounds)
	var err error
	if o.Proxy, err = w.proxy(); err != nil {
		return nil, err
	}
	o.Enterprise = config.GitHub.Enterprise
	o.MCP = map[string]langserver.MCPServer{}
	for name, s := range w.MCP() {
		o.MCP[name] = langserver.MCPServer(s.In(w.Dir))
	}
	if o.Trusted, err = configs.Trusted(w.Dir); err != nil {
		return nil, err
	}
	server, err := langserver.Start(ctx, o)
	switch {
	case err == nil:
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = &cli.Error{Exit: cli.ExitTimedOut, Code: cli.CodeTimeout,
			Message: "the language server did not start within --timeout; use a longer one",
			Err:     err}
	case ctx.Err() != nil:
		err = &cli.Error{Exit: cli.ExitFailed, Code: cli.CodeCancelled, Message: "cancelled",
			Err: err}
	}
	return server, ExitError(err)
}

// proxy returns how the server reaches the network: as flags and the configuration say.
func (w *Workspace) proxy() (p langserver.Proxy, err error) {
	config := w.Config().Proxy
	p = langserver.Proxy{URL: config.URL, Insecure: !config.StrictSSL || w.NoSSLVerify}
	if flag := w.Proxy; flag != nil {
		// The password of the configuration's proxy is not for another one.
		p.URL, config.AuthEnv = *flag, ""
		if u, err := url.Parse(p.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" ||
			u.Hostname() == "" {
			return p,
				cli.Usage("flag --proxy: is not a proxy's URL, such as http://proxy.example:3128")
		}
	}
	if config.AuthEnv != "" {
		if p.Auth = os.Getenv(config.AuthEnv); p.Auth == "" {
			return p, cli.Failed("the proxy's password is missing: set the variable %s "+
				"(proxy.auth_env in lsclient.toml)", config.AuthEnv)
		}
	}
	return p, nil
}

// Texts for a user who is not signed in.
const (
	HowToSignIn  = "lsclient login, or set GH_COPILOT_TOKEN"
	OtherAccount = "https://github.com/settings/copilot, or sign in with another account: " +
		"lsclient logout, then lsclient login"
	NotAuthorized = "this GitHub account may not use Copilot: see " + OtherAccount
)

// ExitError gives errors of the language server their exit codes and texts.
func ExitError(err error) error {
	var unknown *langserver.UnknownModelError
	var effort *langserver.EffortError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, langserver.ErrNotSignedIn):
		message := "not signed in to GitHub; sign in with: " + HowToSignIn
		if strings.Contains(err.Error(), "NotAuthorized") {
			message = NotAuthorized
		}
		return &cli.Error{Exit: cli.ExitRefused, Code: "NOT_SIGNED_IN", Message: message, Err: err}
	case errors.As(err, &effort):
		return cli.Usage("%v; lsclient models lists what each takes", err)
	case errors.As(err, &unknown):
		return &cli.Error{Exit: cli.ExitNotFound, Code: cli.CodeNotFound, Message: err.Error() +
			"; lsclient models lists them", Err: err}
	case errors.Is(err, langserver.ErrCancelled) && errors.Is(err, context.DeadlineExceeded):
		return &cli.Error{Exit: cli.ExitTimedOut, Code: cli.CodeTimeout,
			Message: "the turn did not end within --timeout; use a longer one", Err: err}
	case errors.Is(err, langserver.ErrCancelled):
		return &cli.Error{Exit: cli.ExitFailed, Code: cli.CodeCancelled, Message: "cancelled",
			Err: err}
	}
	return err
}

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
func (w *Workspace) MCPStates(
	ctx context.Context, server *langserver.Client,
) ([]langserver.MCPState, error) {
	late, cancel := context.WithTimeout(ctx, mcpTime)
	defer cancel()
	for {
		states, err := server.MCPServers(ctx)
		if err != nil || w.mcpStarted(states) {
			return states, err
		}
		if chans.Sleep(late, 50*time.Millisecond) != nil {
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

// MCPState returns the state of a server. A server that the language server does not name has not
// started.
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

// WaitForMCP waits for the MCP servers and notes servers that do not run.
func (w *Workspace) WaitForMCP(ctx context.Context, server *langserver.Client) error {
	ours := w.MCP()
	if len(ours) == 0 {
		return nil
	}
	states, err := w.MCPStates(ctx, server)
	if errors.Is(err, langserver.ErrMCPDisabled) {
		w.Note("lsclient: %v", err)
		return nil
	}
	for _, s := range states {
		if _, isOurs := ours[s.Name]; isOurs && !IsRunning(s) {
			w.Note("lsclient: MCP server %s: %s", s.Name, cmp.Or(s.Error, "it has not started yet"))
		}
	}
	return err
}

// ChangeMCP starts or stops MCP servers, or leaves them with an empty action, and returns the
// states of all, with the reason if an action failed.
func (w *Workspace) ChangeMCP(ctx context.Context, server *langserver.Client, names []string,
	action langserver.MCPAction) ([]langserver.MCPState, error) {
	status, err := server.Status(ctx)
	if err != nil {
		return nil, err
	}
	if !status.OK {
		return nil, langserver.ErrNotSignedIn
	}
	// They start by themselves, and a server that is still starting can't be stopped.
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
