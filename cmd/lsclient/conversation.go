package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/langserver"
	"tapgw/internal/protect"
	"tapgw/tools"
)

// conversation is one with the language server: its tools, the policy that they
// go by, and the gateway's session that it is where a gateway runs.
type conversation struct {
	*langserver.Conversation
	k      *call
	policy *policy
	server *langserver.Client
	joined *joined // nil: no gateway

	watched chan struct{} // closed when the tool directories are no longer watched
	stop    context.CancelFunc

	mu    sync.Mutex // guards the fields that follow
	own   []*tools.Tool
	ready bool // the fields above are set: the server may be told of tools

	set  sync.Mutex // held while the server is told of the tools; guards told
	told []langserver.Fault
}

// startServer starts the language server as the configuration says.
func (k *call) startServer(ctx context.Context, o langserver.Options) (*langserver.Client, error) {
	c := k.conf()
	o.Command, o.Workspace, o.Version = c.Server, k.workspace, cli.Version()
	o.MaxRounds = cmp.Or(k.rounds, c.MaxRounds)
	o.Proxy = langserver.Proxy{URL: c.Proxy.URL, Insecure: !c.Proxy.StrictSSL}
	if c.Proxy.StrictSSL && c.Proxy.URL == "" {
		o.Proxy = langserver.Proxy{}
	}
	if c.Proxy.AuthEnv != "" {
		if o.Proxy.Auth = os.Getenv(c.Proxy.AuthEnv); o.Proxy.Auth == "" {
			return nil, cli.Failed("the proxy's password: the variable %s (proxy.auth_env) is not set", c.Proxy.AuthEnv)
		}
	}
	o.Enterprise = c.GitHub.Enterprise
	o.MCP = map[string]langserver.MCPServer{}
	for name, s := range c.MCP {
		o.MCP[name] = langserver.MCPServer(s)
	}
	var err error
	if o.Trusted, err = configs.Trusted(k.workspace); err != nil {
		return nil, err
	}
	o.Log = k.logger()
	server, err := langserver.Start(ctx, o)
	switch {
	case err == nil:
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = &cli.Error{Exit: cli.ExitTimedOut, Code: cli.CodeTimeout,
			Message: "the language server takes longer to start than --timeout allows", Err: err}
	case ctx.Err() != nil:
		err = &cli.Error{Exit: cli.ExitFailed, Code: cli.CodeCancelled, Message: "cancelled", Err: err}
	}
	return server, worded(err)
}

// logger tells on stderr what the server says: all of it with -v.
func (k *call) logger() *slog.Logger {
	level := slog.LevelError + 1 // its errors come as those of turns, too
	if k.out.Verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(k.App.ErrWriter, &slog.HandlerOptions{Level: level}))
}

// converse starts the server and a conversation with all its tools. It ends with
// [conversation.close].
func (k *call) converse(ctx context.Context, mode langserver.Mode) (_ *conversation, err error) {
	v := &conversation{k: k, watched: make(chan struct{})}
	if v.policy, err = newPolicy(k); err != nil {
		return nil, err
	}
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	v.stop = stop
	found := make(chan struct{})
	// The tools are found while the server starts.
	go func() {
		defer close(v.watched)
		once := sync.OnceFunc(func() { close(found) })
		k.watchTools(watch, func() {}, func(all []*tools.Tool) {
			v.mu.Lock()
			v.own = all
			v.mu.Unlock()
			once()
			v.changed(watch)
		})
	}()
	defer func() {
		if err != nil {
			v.close(context.WithoutCancel(ctx))
		}
	}()
	if v.server, err = k.startServer(ctx, langserver.Options{Confirm: v.confirmed, Gate: v.gate}); err != nil {
		return nil, err
	}
	if mode == langserver.Agent {
		if err := v.join(ctx); err != nil {
			return nil, err
		}
		select {
		case <-found:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		v.mu.Lock()
		v.ready = true
		v.mu.Unlock()
		if err := v.tellTools(ctx); err != nil {
			return nil, worded(err)
		}
		if err := k.awaitMCP(ctx, v.server); err != nil {
			return nil, worded(err)
		}
	}
	o := langserver.ConversationOptions{Mode: mode, Model: k.model()}
	if v.joined != nil {
		o.ID = v.joined.ID()
	}
	v.Conversation = v.server.NewConversation(o)
	return v, nil
}

// model is the one that is asked for, "" for the server's default.
func (k *call) model() string { return cmp.Or(k.chosen, k.String("model"), k.conf().Model) }

func (v *conversation) close(ctx context.Context) {
	v.stop()
	<-v.watched
	if v.joined != nil {
		v.joined.leave(ctx)
	}
	if v.server != nil {
		v.server.Close()
	}
}

// The server's own tools: some it runs itself, where no gate sees them, unless
// ours stand in their place; some write through ours.
var (
	serverRuns = []string{"read_file", "list_dir", "file_search", "grep_search"}
	serverHas  = []string{"replace_string_in_file", "apply_patch"}
)

// changed tells the server of tools that changed, once it can be told.
func (v *conversation) changed(ctx context.Context) {
	v.mu.Lock()
	ready := v.ready
	v.mu.Unlock()
	if !ready {
		return // converse tells it
	}
	if err := v.tellTools(ctx); err != nil && ctx.Err() == nil {
		v.k.out.Notef("lsclient: the tools have changed, and the language server was not told: %v", err)
	}
}

// tellTools gives the server the tools as they are now: ours, and those of the
// gateway's providers.
func (v *conversation) tellTools(ctx context.Context) error {
	v.set.Lock()
	defer v.set.Unlock()
	v.mu.Lock()
	own := v.own
	v.mu.Unlock()
	var list []langserver.Tool
	for _, t := range own {
		if slices.Contains(serverHas, t.Name) || v.joined == nil && t.Source == "" &&
			slices.Contains(serverRuns, t.Name) {
			continue
		}
		list = append(list, v.tool(t))
	}
	if v.joined != nil {
		list = append(list, v.joined.tools(list)...)
	}
	faults, err := v.server.SetTools(ctx, list)
	var fresh []langserver.Fault
	for _, f := range faults {
		if !slices.Contains(v.told, f) {
			fresh = append(fresh, f)
		}
	}
	for _, line := range leftOut(fresh) {
		v.k.out.Notef("lsclient: left out: %s", line)
	}
	v.told = faults
	return err
}

// leftOut words tools that the server does not take: those that have the same
// reason in one line.
func leftOut(faults []langserver.Fault) (lines []string) {
	const named = 3
	for i, f := range faults {
		same := func(other langserver.Fault) bool { return other.Reason == f.Reason }
		if slices.IndexFunc(faults, same) < i {
			continue
		}
		var names []string
		for _, other := range faults {
			if same(other) {
				names = append(names, other.Tool)
			}
		}
		switch n := len(names); {
		case n == 1:
			lines = append(lines, f.Error())
		case n <= named:
			lines = append(lines, fmt.Sprintf("tools %s: %s", strings.Join(names, ", "), f.Reason))
		default:
			lines = append(lines, fmt.Sprintf("%d tools, %s and others: %s", n, strings.Join(names[:named], ", "),
				f.Reason))
		}
	}
	return lines
}

// tool is one of ours as the server calls it: after the policy was asked.
func (v *conversation) tool(t *tools.Tool) langserver.Tool {
	w := v.server.WorkspaceTool(t, *v.k.env(v.policy))
	run := w.Call
	w.Call = func(ctx context.Context, call langserver.Invocation) langserver.Outcome {
		if err := v.policy.tool(ctx, t, call.Input); err != nil {
			return langserver.FailedWith(err)
		}
		return run(ctx, call)
	}
	return w
}

// gate asks the gateway's providers about a call, before it runs.
func (v *conversation) gate(ctx context.Context, call langserver.Invocation) (deny, added string) {
	if v.joined == nil {
		return "", ""
	}
	return v.joined.gate(ctx, call.Tool, call.Input)
}

// confirmed is confirm that says why not: from the server the model only hears
// that the call was skipped.
func (v *conversation) confirmed(ctx context.Context, q langserver.Confirmation) error {
	err := v.confirm(ctx, q)
	if err != nil && ctx.Err() == nil {
		v.k.out.Notef("lsclient: %s was refused: %s", q.Tool, cli.Clean(err.Error()))
	}
	return err
}

// confirm decides about what the server does itself. Calls of ours are decided
// where they run.
func (v *conversation) confirm(ctx context.Context, q langserver.Confirmation) error {
	if q.Ours {
		return nil
	}
	if deny, _ := v.gate(ctx, langserver.Invocation{Tool: q.Tool, Input: q.Input}); deny != "" {
		return errors.New(deny)
	}
	switch {
	case q.Kind == langserver.MCPTool:
		return v.policy.server(ctx, q.Server, q.Tool, q.Input)
	case q.Path != "":
		path := filepath.Clean(q.Path)
		if why := protect.Why(q.Path, v.k.sources()...); why != "" && q.Kind == langserver.EditFile {
			if err := v.policy.protected(ctx, path, why); err != nil {
				return fmt.Errorf("%s is protected, %s; %w", path, why, err)
			}
		}
		if err := v.policy.outside(ctx, path, q.Kind == langserver.EditFile); err != nil {
			return fmt.Errorf("%s is outside the workspace: %w", path, err)
		}
		return nil
	}
	what := fmt.Sprintf("use %s (%s)", q.Tool, q.Message)
	if len(q.Command) > 0 {
		what = "run: " + strings.Join(q.Command, "; ")
	}
	return v.policy.ask(ctx, what, string(q.Kind)+" "+what, fmt.Errorf("nothing allows to %s", what))
}

// worded gives the server's errors their exit codes.
func worded(err error) error {
	var unknown *langserver.UnknownModelError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, langserver.ErrNotSignedIn):
		message := "not signed in to GitHub; sign in with: " + howToSignIn
		if strings.Contains(err.Error(), "NotAuthorized") {
			message = notAuthorized
		}
		return &cli.Error{Exit: cli.ExitRefused, Code: "NOT_SIGNED_IN", Message: message, Err: err}
	case errors.As(err, &unknown):
		return &cli.Error{Exit: cli.ExitNotFound, Code: cli.CodeNotFound, Message: err.Error() +
			"; lsclient models lists them", Err: err}
	case errors.Is(err, langserver.ErrCancelled) && errors.Is(err, context.DeadlineExceeded):
		return &cli.Error{Exit: cli.ExitTimedOut, Code: cli.CodeTimeout,
			Message: "the turn took longer than --timeout allows", Err: err}
	case errors.Is(err, langserver.ErrCancelled):
		return &cli.Error{Exit: cli.ExitFailed, Code: cli.CodeCancelled, Message: "cancelled", Err: err}
	}
	return err
}
