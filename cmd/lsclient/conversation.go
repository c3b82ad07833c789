package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"tapgw/configs"
	"tapgw/internal/checkpoint"
	"tapgw/internal/cli"
	"tapgw/internal/langserver"
	"tapgw/internal/protect"
	"tapgw/tools"
)

// conversation is a conversation with the language server: its tools, its policy, and its session of the gateway if
// one runs.
type conversation struct {
	*langserver.Conversation
	cmd          *command
	policy       *policy
	server       *langserver.Client
	session      *gatewaySession // nil: no gateway
	instructions *instructionSet
	edits        edits

	checkpoints *checkpoint.Workspace
	kept        *keptConversation

	watchDone chan struct{} // closed when the tool directories are no longer watched
	stop      context.CancelFunc

	mu          sync.Mutex // guards the fields that follow
	own         []*tools.Tool
	workers     map[string]*worker // by the ids of their conversations
	serverReady bool               // the server accepts tools

	setting  sync.Mutex // held during setTools; guards reported
	reported []langserver.Fault
}

// startServer starts the language server with the settings of the configuration.
func (c *command) startServer(ctx context.Context, o langserver.Options) (*langserver.Client, error) {
	config := c.conf()
	o.Command, o.Workspace, o.Version = config.Server, c.workspace, cli.Version()
	o.TodoList = c.todoList
	o.MaxRounds = c.maxRounds()
	var err error
	if o.Proxy, err = c.proxy(); err != nil {
		return nil, err
	}
	o.Enterprise = config.GitHub.Enterprise
	o.MCP = map[string]langserver.MCPServer{}
	for name, s := range c.mcp() {
		o.MCP[name] = langserver.MCPServer(s.In(c.workspace))
	}
	if o.Trusted, err = configs.Trusted(c.workspace); err != nil {
		return nil, err
	}
	o.Log = c.logger()
	server, err := langserver.Start(ctx, o)
	switch {
	case err == nil:
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = &cli.Error{Exit: cli.ExitTimedOut, Code: cli.CodeTimeout,
			Message: "the language server did not start within --timeout; use a longer one", Err: err}
	case ctx.Err() != nil:
		err = &cli.Error{Exit: cli.ExitFailed, Code: cli.CodeCancelled, Message: "cancelled", Err: err}
	}
	return server, withExitCode(err)
}

// proxy returns how the server reaches the network: as flags and the configuration say.
func (c *command) proxy() (p langserver.Proxy, err error) {
	config := c.conf().Proxy
	p = langserver.Proxy{URL: config.URL, Insecure: !config.StrictSSL || c.Bool("no-ssl-verify")}
	if c.IsSet("proxy") {
		// The password of the configuration's proxy is not for another one.
		p.URL, config.AuthEnv = c.String("proxy"), ""
		if u, err := url.Parse(p.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			return p, cli.Usage("flag --proxy: is not a proxy's URL, such as http://proxy.example:3128")
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

// logger returns the log of the server's messages: all of them on stderr with -v, else none.
func (c *command) logger() *slog.Logger {
	level := slog.LevelError + 1 // errors of turns are reported anyway
	if c.out.Verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(c.out.Err, &slog.HandlerOptions{Level: level}))
}

// converse starts the server and a conversation with all tools. The caller ends it with [conversation.close].
func (c *command) converse(ctx context.Context, mode langserver.Mode) (_ *conversation, err error) {
	v := &conversation{cmd: c, watchDone: make(chan struct{}), checkpoints: c.checkpoints()}
	if v.policy, err = newPolicy(c); err != nil {
		return nil, err
	}
	if v.instructions, err = newInstructions(c.workspace); err != nil {
		return nil, err
	}
	if v.kept, err = c.openKept(); err != nil {
		return nil, err
	}
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	v.stop = stop
	found := make(chan struct{})
	// The tools are found while the server starts.
	go func() {
		defer close(v.watchDone)
		once := sync.OnceFunc(func() { close(found) })
		c.watchTools(watch, func() {}, func(all []*tools.Tool) {
			v.mu.Lock()
			v.own = all
			v.mu.Unlock()
			once()
			v.updateTools(watch)
		})
	}()
	defer func() {
		if err != nil {
			v.close(context.WithoutCancel(ctx))
		}
	}()
	o := langserver.Options{Confirm: v.decide, Gate: v.beforeCall, Instructions: v.instructionText(),
		NoInstructionFiles: v.leavesOutRules()}
	if v.server, err = c.startServer(ctx, o); err != nil {
		return nil, err
	}
	if mode == langserver.Agent {
		if v.session, err = v.join(ctx, v.kept.id, c.label()); err != nil {
			return nil, err
		}
		select {
		case <-found:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		v.mu.Lock()
		v.serverReady = true
		v.mu.Unlock()
		if err := v.setTools(ctx); err != nil {
			return nil, withExitCode(err)
		}
		if err := v.prepare(ctx); err != nil {
			return nil, withExitCode(err)
		}
	}
	v.begin(mode)
	return v, nil
}

// begin begins the kept conversation at the server.
func (v *conversation) begin(mode langserver.Mode) {
	v.instructions.forget()
	v.Conversation = v.server.NewConversation(langserver.ConversationOptions{ID: v.kept.id, Mode: mode,
		Model: v.cmd.model(), Effort: v.cmd.effort(), Earlier: v.kept.earlier})
	v.kept.earlier = nil
}

// model returns the model to use; "" is the server's default.
func (c *command) model() string { return cmp.Or(c.chosenModel, c.String("model"), c.conf().Model) }

// effort returns the reasoning effort to use; "" is the server's default.
func (c *command) effort() string { return cmp.Or(c.chosenEffort, c.String("effort")) }

func (v *conversation) close(ctx context.Context) {
	v.stop()
	<-v.watchDone
	if v.session != nil {
		v.session.end(ctx)
	}
	if v.server != nil {
		v.server.Close()
	}
	v.kept.close()
}

// updateTools sends the server the tools after a change, if the server is ready for them.
func (v *conversation) updateTools(ctx context.Context) {
	v.mu.Lock()
	ready := v.serverReady
	v.mu.Unlock()
	if !ready {
		return // converse will do it
	}
	if err := v.setTools(ctx); err != nil && ctx.Err() == nil {
		v.cmd.out.Notef("lsclient: the language server still has the tools from before the change: %v", err)
	}
}

// setTools sends the server the current tools: ours, and those of the gateway's providers. It reports tools that
// were left out once.
func (v *conversation) setTools(ctx context.Context) error {
	v.setting.Lock()
	defer v.setting.Unlock()
	v.mu.Lock()
	own := v.own
	v.mu.Unlock()
	var list []langserver.Tool
	for _, t := range own {
		if v.cmd.Bool("plan") && t.Kind != tools.Read {
			continue
		}
		list = append(list, v.tool(t))
	}
	if !v.cmd.Bool("plan") { // nobody says what providers' tools do
		for _, s := range v.sessions() {
			list = append(list, s.tools(list)...)
		}
	}
	faults, err := v.server.SetTools(ctx, list)
	var fresh []langserver.Fault
	for _, f := range faults {
		if !slices.Contains(v.reported, f) {
			fresh = append(fresh, f)
		}
	}
	for _, line := range leftOut(fresh) {
		v.cmd.out.Notef("lsclient: left out: %s", line)
	}
	v.reported = faults
	return err
}

// leftOut returns lines about tools that the server does not accept, one for each reason.
func leftOut(faults []langserver.Fault) (lines []string) {
	const named = 10
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
			lines = append(lines, fmt.Sprintf("tools %s and %d more: %s", strings.Join(names[:named], ", "),
				n-named, f.Reason))
		}
	}
	return lines
}

// tool returns one of our tools for the server. A call asks the policy first.
func (v *conversation) tool(t *tools.Tool) langserver.Tool {
	env := v.cmd.env(v.policy)
	env.Edit = v.edit
	w := v.server.WorkspaceTool(t, *env)
	run := w.Call
	w.Call = func(ctx context.Context, call langserver.Invocation) langserver.Outcome {
		if v.cmd.Bool("plan") && t.Kind != tools.Read {
			return langserver.FailedWith(errPlan)
		}
		ctx = v.named(ctx, call.ConversationID)
		if err := v.policy.tool(ctx, t, call.Input); err != nil {
			return langserver.FailedWith(err)
		}
		return run(withCall(ctx, call), call)
	}
	return w
}

// beforeCall asks the gates about a call of our tools, and gives the model the instructions for the files of the call.
func (v *conversation) beforeCall(ctx context.Context, call langserver.Invocation) (deny, added string) {
	if deny, added = v.gate(ctx, call); deny != "" {
		return deny, ""
	}
	return "", strings.TrimSpace(added + "\n\n" + v.nestedInstructions(call))
}

// gate asks the role of a worker and the gateway's providers about a call before it runs.
func (v *conversation) gate(ctx context.Context, call langserver.Invocation) (deny, added string) {
	if deny := v.denies(call.ConversationID, call.Tool); deny != "" {
		return deny, ""
	}
	s := v.sessionOf(call.ConversationID)
	if s == nil {
		return "", ""
	}
	return s.gate(ctx, call.Tool, call.Input)
}

// decide decides about actions of the server itself, see [langserver.Options.Confirm]. Calls of our tools are decided
// when they run.
func (v *conversation) decide(ctx context.Context, q langserver.Confirmation) error {
	if q.Ours {
		return nil
	}
	ctx = v.named(ctx, q.ConversationID)
	if deny, _ := v.gate(ctx, langserver.Invocation{Tool: q.Tool, Input: q.Input,
		ConversationID: q.ConversationID}); deny != "" {
		return errors.New(deny)
	}
	if v.cmd.Bool("plan") && q.Kind != langserver.ReadFile && q.Kind != langserver.Safe {
		return errPlan
	}
	switch {
	case q.Kind == langserver.MCPTool:
		return v.policy.server(ctx, q.Server, q.Tool, q.Input)
	case q.Path != "":
		path := filepath.Clean(q.Path)
		if why := protect.Why(q.Path, v.cmd.sources()...); why != "" && q.Kind == langserver.EditFile {
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
	return v.policy.ask(ctx, request{what: what, key: string(q.Kind) + " " + what, refused: what},
		fmt.Errorf("not allowed: %s", what))
}

// withExitCode gives errors of the server their exit codes and texts.
func withExitCode(err error) error {
	var unknown *langserver.UnknownModelError
	var effort *langserver.EffortError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, langserver.ErrNotSignedIn):
		message := "not signed in to GitHub; sign in with: " + howToSignIn
		if strings.Contains(err.Error(), "NotAuthorized") {
			message = notAuthorized
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
		return &cli.Error{Exit: cli.ExitFailed, Code: cli.CodeCancelled, Message: "cancelled", Err: err}
	}
	return err
}
