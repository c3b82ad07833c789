package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"tapgw/internal/agent/consent"
	"tapgw/internal/agent/workspace"
	"tapgw/internal/checkpoint"
	"tapgw/internal/langserver"
	"tapgw/internal/protect"
	"tapgw/tools"
)

// conversation is a conversation with the language server: its tools, its policy, and its session of the gateway if
// one runs.
type conversation struct {
	*langserver.Conversation
	cmd          *command
	policy       *consent.Policy
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

// converse starts the server and a conversation with all tools. The caller ends it with [conversation.close].
func (c *command) converse(ctx context.Context, mode langserver.Mode) (_ *conversation, err error) {
	v := &conversation{cmd: c, watchDone: make(chan struct{}), checkpoints: c.workspace.Checkpoints()}
	if v.policy, err = c.policy(); err != nil {
		return nil, err
	}
	if v.instructions, err = newInstructions(c.workspace.Dir); err != nil {
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
		c.workspace.WatchTools(watch, func() {}, func(all []*tools.Tool) {
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
		NoInstructionFiles: v.leavesOutRules(), TodoList: c.todoList, MaxRounds: c.rounds}
	if v.server, err = c.workspace.StartServer(ctx, o); err != nil {
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
			return nil, workspace.ExitError(err)
		}
		if err := v.prepare(ctx); err != nil {
			return nil, workspace.ExitError(err)
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
func (c *command) model() string {
	return cmp.Or(c.chosenModel, c.String("model"), c.workspace.Config().Model)
}

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
	env := v.cmd.workspace.Env()
	v.policy.Guard(env)
	if v.cmd.display != nil {
		env.Output = v.cmd.display.Live
	}
	env.Edit = v.edit
	w := v.server.WorkspaceTool(t, *env)
	run := w.Call
	w.Call = func(ctx context.Context, call langserver.Invocation) langserver.Outcome {
		if v.cmd.Bool("plan") && t.Kind != tools.Read {
			return langserver.FailedWith(errPlan)
		}
		ctx = v.named(ctx, call.ConversationID)
		if err := v.policy.Tool(ctx, t, call.Input); err != nil {
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
		return v.policy.MCPTool(ctx, q.Server, q.Tool, q.Input)
	case q.Path != "":
		return v.policy.Path(ctx, filepath.Clean(q.Path), protect.Why(q.Path, v.cmd.workspace.Sources()...),
			q.Kind == langserver.EditFile)
	}
	what := fmt.Sprintf("use %s (%s)", q.Tool, q.Message)
	if len(q.Command) > 0 {
		what = "run: " + strings.Join(q.Command, "; ")
	}
	return v.policy.Action(ctx, string(q.Kind), what)
}
