// Package agent is a conversation with a model that works in a directory: its turns, its tools and
// the consent to them, its instructions, its stored history, its session of a gateway, and workers
// that share its server. It reports its work as [Event]s and draws nothing.
package agent

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
	"tapgw/internal/protocol"
	"tapgw/tools"
)

// Options are the options of a conversation.
type Options struct {
	Workspace *workspace.Workspace
	Policy    *consent.Policy
	// Show gets all events. It is called from several goroutines at a time.
	Show func(Event)

	Mode      langserver.Mode
	Model     string // "": as the configuration says
	Effort    string // how much the model reasons; "": the server's choice
	MaxRounds int    // of tool calls in a turn; 0: as the configuration says
	TodoList  bool   // the model keeps a list of its open tasks
	Gateway   Gateway
	Label     string // of the session in the gateway; "": the directory's name
	Resume    string // id of the kept conversation to go on with; "": a new one begins
	Elsewhere bool   // Resume may be about another directory
}

// Conversation is a conversation with the language server. Its tools and settings follow the files
// of the workspace.
type Conversation struct {
	Options
	worker // the conversation itself
	Server *langserver.Client

	instructions *instructionSet
	edits        edits
	checkpoints  *checkpoint.Workspace
	kept         *kept
	model        string // the person's choice; "": as the configuration says

	watchDone chan struct{} // closed when the tool directories are no longer watched
	stop      context.CancelFunc

	mu          sync.Mutex // guards the fields that follow
	own         []*tools.Tool
	workers     map[string]*worker // by the ids of their conversations
	serverReady bool               // the server accepts tools

	setting  sync.Mutex // held during setTools; guards reported
	reported []langserver.Fault
}

// Start starts the server and a conversation with all tools. The caller ends it with
// [Conversation.Close]. The error has an exit code.
func Start(ctx context.Context, o Options) (_ *Conversation, err error) {
	v := &Conversation{Options: o, watchDone: make(chan struct{}),
		checkpoints: o.Workspace.Checkpoints(), model: o.Model, workers: map[string]*worker{},
		edits: edits{diffs: map[string]callDiffs{}}}
	if v.instructions, err = newInstructions(o.Workspace.Dir); err != nil {
		return nil, err
	}
	if o.Resume == "" {
		v.kept = v.newKept()
	} else if v.kept, err = v.openKept(o.Resume); err != nil {
		return nil, err
	}
	watch, stop := context.WithCancel(context.WithoutCancel(ctx))
	v.stop = stop
	found := make(chan struct{})
	// The tools are found while the server starts.
	go func() {
		defer close(v.watchDone)
		once := sync.OnceFunc(func() { close(found) })
		o.Workspace.WatchTools(watch, func() {}, func(all []*tools.Tool) {
			v.mu.Lock()
			v.own = all
			v.mu.Unlock()
			once()
			v.updateTools(watch)
		})
	}()
	defer func() {
		if err != nil {
			v.Close(context.WithoutCancel(ctx))
		}
	}()
	v.Server, err = o.Workspace.StartServer(ctx,
		langserver.Options{Confirm: v.decide, Gate: v.beforeCall,
			Instructions: v.instructionText(), NoInstructionFiles: v.leavesOutRules(),
			TodoList: o.TodoList, MaxRounds: o.MaxRounds})
	if err != nil {
		return nil, err
	}
	if o.Mode != langserver.Ask {
		if err := v.equip(ctx, found); err != nil {
			return nil, err
		}
	}
	v.begin()
	return v, nil
}

// equip joins the gateway and gives the server the tools, once they are found.
func (v *Conversation) equip(ctx context.Context, found <-chan struct{}) (err error) {
	label := cmp.Or(v.Label, filepath.Base(v.Workspace.Dir))
	if v.session, err = v.join(ctx, v.kept.id, label); err != nil {
		return err
	}
	select {
	case <-found:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	v.mu.Lock()
	v.serverReady = true
	v.mu.Unlock()
	if err := v.setTools(ctx); err != nil {
		return workspace.ExitError(err)
	}
	if v.Workspace.Plan { // the server's own tools may do more than read
		return workspace.ExitError(v.Server.HideOwnTools(ctx))
	}
	return workspace.ExitError(v.Workspace.WaitForMCP(ctx, v.Server))
}

// begin begins the kept conversation at the server.
func (v *Conversation) begin() {
	v.instructions.forget()
	v.Conversation = v.Server.NewConversation(langserver.ConversationOptions{ID: v.kept.id,
		Mode: v.Mode, Model: v.Model(), Effort: v.Effort, Earlier: v.kept.earlier})
	v.kept.earlier = nil
}

// StartOver ends the conversation and begins a new one.
func (v *Conversation) StartOver(ctx context.Context) error { return v.changeTo(ctx, v.newKept()) }

// Resume ends the conversation and goes on with the kept one that a word means.
func (v *Conversation) Resume(ctx context.Context, word string) error {
	id, err := FindKept(word)
	if err != nil {
		return err
	}
	k, err := v.openKept(id)
	if err != nil {
		return err
	}
	return v.changeTo(ctx, k)
}

func (v *Conversation) changeTo(ctx context.Context, k *kept) error {
	if err := v.Conversation.Close(ctx); err != nil {
		k.writer.Close()
		return workspace.ExitError(err)
	}
	v.Policy.ForgetSession()
	v.kept.writer.Close()
	v.kept = k
	v.begin()
	return nil
}

// Model returns the id of the model that turns use; "" is the server's default.
func (v *Conversation) Model() string { return cmp.Or(v.model, v.Workspace.Config().Model) }

// SetModel makes the next turns use another model. The error has an exit code.
func (v *Conversation) SetModel(ctx context.Context, id string) error {
	err := v.Conversation.SetModel(ctx, id)
	if err == nil {
		v.model = id
	}
	return workspace.ExitError(err)
}

// SetEffort sets how much the model reasons in the next turns. The error has an exit code.
func (v *Conversation) SetEffort(ctx context.Context, effort string) error {
	err := v.Conversation.SetEffort(ctx, effort)
	if err == nil {
		v.Effort = effort
	}
	return workspace.ExitError(err)
}

func (v *Conversation) maxRounds() int {
	return cmp.Or(v.MaxRounds, v.Workspace.Config().MaxRounds)
}

// InjectedPrompts returns a channel that gets a value when a provider has injected prompts, which
// [Conversation.NextInjected] returns; nil without a gateway.
func (v *Conversation) InjectedPrompts() <-chan struct{} {
	if v.session == nil {
		return nil
	}
	return v.session.promptReady
}

// NextInjected removes and returns the next prompt that a provider has injected.
func (v *Conversation) NextInjected() (p protocol.HostPrompt, ok bool) {
	return v.session.nextPrompt()
}

// Close ends the conversation, its session and the server.
func (v *Conversation) Close(ctx context.Context) {
	v.stop()
	<-v.watchDone
	if v.session != nil {
		v.session.end(ctx)
	}
	if v.Server != nil {
		v.Server.Close()
	}
	v.kept.writer.Close()
}

// updateTools sends the server the tools after a change, if the server is ready for them.
func (v *Conversation) updateTools(ctx context.Context) {
	v.mu.Lock()
	ready := v.serverReady
	v.mu.Unlock()
	if !ready {
		return // Start sends them later
	}
	if err := v.setTools(ctx); err != nil && ctx.Err() == nil {
		v.Workspace.Note(
			"lsclient: the language server still has the tools from before the change: %v", err)
	}
}

// setTools sends the server the current tools: our own, and the tools of the gateway's providers.
// It notes tools that were left out once.
func (v *Conversation) setTools(ctx context.Context) error {
	v.setting.Lock()
	defer v.setting.Unlock()
	v.mu.Lock()
	own := v.own
	v.mu.Unlock()
	var list []langserver.Tool
	for _, t := range own {
		if !v.Workspace.Plan || t.Kind == tools.Read {
			list = append(list, v.tool(t))
		}
	}
	if !v.Workspace.Plan { // the effects of providers' tools are unknown
		for _, s := range v.sessions() {
			list = append(list, s.tools(list)...)
		}
	}
	faults, err := v.Server.SetTools(ctx, list)
	fresh := slices.DeleteFunc(slices.Clone(faults), func(f langserver.Fault) bool {
		return slices.Contains(v.reported, f)
	})
	for _, line := range leftOut(fresh) {
		v.Workspace.Note("lsclient: left out: %s", line)
	}
	v.reported = faults
	return err
}

// leftOut returns lines about tools that the server does not accept, one for each reason.
func leftOut(faults []langserver.Fault) (lines []string) {
	const named = 10
	tools := map[string][]string{} // by the reason
	for _, f := range faults {
		tools[f.Reason] = append(tools[f.Reason], f.Tool)
	}
	for _, f := range faults {
		names := tools[f.Reason]
		delete(tools, f.Reason)
		switch n := len(names); {
		case n == 0: // the reason has its line
		case n == 1:
			lines = append(lines, f.Error())
		case n <= named:
			lines = append(lines, fmt.Sprintf("tools %s: %s", strings.Join(names, ", "), f.Reason))
		default:
			lines = append(lines,
				fmt.Sprintf("tools %s and %d more: %s", strings.Join(names[:named], ", "),
					n-named, f.Reason))
		}
	}
	return lines
}

// errPlan is the error for a tool that does more than read, with --plan.
var errPlan = errors.New("this run only plans (--plan): nothing may be changed, run or fetched. " +
	"Describe what you would do")

// tool returns one of our tools for the server. A call asks the policy first.
func (v *Conversation) tool(t *tools.Tool) langserver.Tool {
	env := v.Workspace.Env()
	v.Policy.Guard(env)
	env.Edit = v.edit
	env.Output = func(line string) { v.Show(ToolOutput{line}) }
	w := v.Server.WorkspaceTool(t, *env)
	run := w.Call
	w.Call = func(ctx context.Context, call langserver.Invocation) langserver.Outcome {
		if v.Workspace.Plan && t.Kind != tools.Read {
			return langserver.FailedWith(errPlan)
		}
		ctx = consent.WithWorker(ctx, v.workerOf(call.ConversationID).name)
		if err := v.Policy.Tool(ctx, t, call.Input); err != nil {
			return langserver.FailedWith(err)
		}
		return run(context.WithValue(ctx, callKey{}, call), call)
	}
	return w
}

// beforeCall asks the gates about a call of our tools, and gives the model the instructions for the
// files of the call.
func (v *Conversation) beforeCall(
	ctx context.Context, call langserver.Invocation,
) (deny, added string) {
	if deny, added = v.gate(ctx, call); deny != "" {
		return deny, ""
	}
	return "", strings.TrimSpace(added + "\n\n" + v.nestedInstructions(call))
}

// gate asks the role of a worker and the gateway's providers about a call before it runs.
func (v *Conversation) gate(ctx context.Context, call langserver.Invocation) (deny, added string) {
	if deny := v.denies(call.ConversationID, call.Tool); deny != "" {
		return deny, ""
	}
	s := v.workerOf(call.ConversationID).session
	if s == nil {
		return "", ""
	}
	return s.gate(ctx, call.Tool, call.Input)
}

// decide decides about actions of the server itself, see [langserver.Options.Confirm]. Calls of our
// tools are decided when they run.
func (v *Conversation) decide(ctx context.Context, q langserver.Confirmation) error {
	if q.Ours {
		return nil
	}
	ctx = consent.WithWorker(ctx, v.workerOf(q.ConversationID).name)
	if deny, _ := v.gate(ctx, langserver.Invocation{Tool: q.Tool, Input: q.Input,
		ConversationID: q.ConversationID}); deny != "" {
		return errors.New(deny)
	}
	if v.Workspace.Plan && q.Kind != langserver.ReadFile && q.Kind != langserver.Safe {
		return errPlan
	}
	switch {
	case q.Kind == langserver.MCPTool:
		return v.Policy.MCPTool(ctx, q.Server, q.Tool, q.Input)
	case q.Path != "":
		return v.Policy.Path(ctx, filepath.Clean(q.Path),
			protect.Why(q.Path, v.Workspace.Sources()...), q.Kind == langserver.EditFile)
	}
	what := fmt.Sprintf("use %s (%s)", q.Tool, q.Message)
	if len(q.Command) > 0 {
		what = "run: " + strings.Join(q.Command, "; ")
	}
	return v.Policy.Action(ctx, string(q.Kind), what)
}
