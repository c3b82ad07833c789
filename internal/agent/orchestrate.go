package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"tapgw/configs"
	"tapgw/internal/agent/workspace"
	"tapgw/internal/cli"
	"tapgw/internal/langserver"
	"tapgw/internal/orchestrate"
	"tapgw/internal/visible"
)

// Orchestration: a plan divides a goal into tasks, workers on the same server do them, and a last
// turn sums up.

// maxResult is how many bytes of a worker's answer others get.
const maxResult = 20_000

// defaultRoles are the roles without any in lsclient.toml.
var defaultRoles = map[string]configs.Role{
	"researcher": {Description: "finds things out and changes nothing",
		Tools: []string{"read", "web"}},
	"coder": {Description: "changes files and runs commands"},
	"reviewer": {Description: "checks the changes of others and changes nothing",
		Tools: []string{"read", "run_tests"}},
}

// orchestration is a goal on which several workers work.
type orchestration struct {
	*Conversation // plans and sums up
	goal          string
	roles         map[string]configs.Role

	mu      sync.Mutex // guards the fields that follow
	running []string   // workers
	ended   int        // tasks that ran
	tasks   int
}

// Orchestrate gives a goal to several workers: it plans, runs the tasks of the plan side by side,
// at most limit at a time, and sums up. Then it runs the turns of prompts that providers inject. If
// a turn fails, it returns the error that its [TurnEnded] had.
func (v *Conversation) Orchestrate(ctx context.Context, goal string, limit int) error {
	o := &orchestration{Conversation: v, goal: goal, roles: v.Workspace.Config().Roles}
	if len(o.roles) == 0 {
		o.roles = defaultRoles
	}
	// The conversation plans and sums up as a worker that may only read.
	chief := &worker{Conversation: v.Conversation, name: "plan",
		role: configs.Role{Tools: []string{"read"}}, session: v.session}
	v.addWorker(chief)
	v.Show(Working{"planning"})
	tasks, result, err := o.plan(ctx, chief)
	if err != nil {
		return v.end(result, err)
	}
	o.tasks = len(tasks)
	results := orchestrate.Run(ctx, tasks, limit, o.work)
	v.Show(Working{"summing up"})
	if err := o.sumUp(ctx, results); err != nil {
		return err
	}
	v.forget(chief) // because a provider's request may need any tool
	return (&run{v: v}).injected(ctx)
}

// began shows that a worker runs. The caller calls ended when it has ended.
func (o *orchestration) began(name string) (ended func()) {
	show := func() {
		o.Show(Working{fmt.Sprintf("%s · %d of %s done", strings.Join(o.running, ", "), o.ended,
			visible.Count(o.tasks, "task"))})
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.running = append(o.running, name)
	show()
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.running = slices.DeleteFunc(o.running, func(n string) bool { return n == name })
		o.ended++
		show()
	}
}

// plan asks the model for the tasks. If its plan can't be used, one worker has the whole goal.
func (o *orchestration) plan(
	ctx context.Context, chief *worker,
) ([]orchestrate.Task, langserver.Turn, error) {
	names := slices.Sorted(maps.Keys(o.roles))
	result, err := o.turn(ctx, chief, o.planPrompt(names), "")
	if err != nil {
		return nil, result, err
	}
	tasks, err := orchestrate.ParsePlan(result.Text, names)
	if err != nil {
		name := names[0]
		for _, n := range slices.Backward(names) {
			if len(o.roles[n].Tools) == 0 {
				name = n
			}
		}
		tasks = []orchestrate.Task{{Name: name, Role: name, Text: o.goal}}
	}
	o.Show(Planned{tasks, err})
	return tasks, result, nil
}

// planPrompt begins with the goal, which becomes the title of the kept conversation.
func (o *orchestration) planPrompt(names []string) string {
	var roles strings.Builder
	for _, name := range names {
		fmt.Fprintf(&roles, "- %s: %s\n", name, o.roles[name].Description)
	}
	return fmt.Sprintf(`%s

Do not do this yourself. Plan it for several agents that work at the same time. Look at the workspace first if you need to; change nothing. The roles are:
%s
Answer with a JSON array and nothing else. Each element is {"role": "...", "task": "...", "dependsOn": [...]}. The task says all that its agent has to know. dependsOn has the numbers (the first task is 1) of earlier tasks whose results it needs. Use as few tasks as do the work, at most %d. Tasks that do not depend on each other run at the same time, so they must not change the same files.`,
		o.goal, roles.String(), orchestrate.MaxTasks)
}

// work runs a task in a conversation of its own and returns the worker's answer.
func (o *orchestration) work(ctx context.Context, t orchestrate.Task,
	needs []orchestrate.Result) (text string, err error) {
	defer o.began(t.Name)()
	o.Show(WorkerBegan{t.Name, t.Text})
	defer func() { o.Show(WorkerEnded{t.Name, text, err}) }()
	w, err := o.hire(ctx, t.Name, o.roles[t.Role])
	if err != nil {
		return "", err
	}
	defer o.dismiss(context.WithoutCancel(ctx), w)
	keep := func(langserver.Event) {} // only the plan and the summary are kept
	result, err := o.turnOf(ctx, w, o.taskPrompt(t, needs), "", keep)
	text = result.Text
	for err == nil && w.session != nil {
		p, ok := w.session.waitPrompt(ctx)
		if !ok {
			break
		}
		o.Show(Injected{t.Name, p.Prompt})
		result, err = o.turnOf(ctx, w, p.Prompt, p.Source, keep)
		text += "\n\n" + result.Text
	}
	return text, err
}

func (o *orchestration) taskPrompt(t orchestrate.Task, needs []orchestrate.Result) string {
	role := o.roles[t.Role]
	var b strings.Builder
	fmt.Fprintf(&b, "Several agents work on this goal at the same time:\n\n%s\n\n", o.goal)
	fmt.Fprintf(&b, "You are the agent %q, which %s. Do this task of it and no other:\n\n%s\n",
		t.Name, role.Description, t.Text)
	if role.Instructions != "" {
		fmt.Fprintf(&b, "\n%s\n", role.Instructions)
	}
	if len(role.Tools) > 0 {
		fmt.Fprintf(&b, "\nYou may only use these tools, or kinds of tools: %s.\n",
			strings.Join(role.Tools, ", "))
	}
	if len(needs) > 0 {
		b.WriteString("\nThe tasks before yours had these results:\n" + resultLines(needs))
	}
	b.WriteString(
		"\nEnd with a short report for the other agents: what you found out or changed, and where.")
	return b.String()
}

// resultLines returns results for the model, each a line of JSON, so that no text can pass for
// another worker's.
func resultLines(results []orchestrate.Result) string {
	var b strings.Builder
	for _, r := range results {
		line := struct {
			Worker string `json:"worker"`
			Task   string `json:"task"`
			Result string `json:"result,omitempty"`
			Error  string `json:"error,omitempty"`
		}{Worker: r.Task.Name, Task: r.Task.Text,
			Result: visible.Ends(r.Text, maxResult, maxResult)}
		if r.Err != nil {
			line.Error = cli.AsError(r.Err).Message
		}
		text, err := json.Marshal(line)
		if err == nil { // always: a line has only strings
			b.Write(append(text, '\n'))
		}
	}
	return b.String()
}

// sumUp runs the turn in which the model sums up. Its error names the workers that failed.
func (o *orchestration) sumUp(ctx context.Context, results []orchestrate.Result) error {
	if ctx.Err() != nil {
		return o.end(langserver.Turn{},
			workspace.ExitError(fmt.Errorf("%w: %w", langserver.ErrCancelled,
				context.Cause(ctx))))
	}
	var failed []string
	for _, r := range results {
		if r.Err == nil {
			continue
		}
		failed = append(failed, r.Task.Name)
		if _, ok := errors.AsType[*orchestrate.BlockedError](r.Err); ok {
			o.Show(WorkerEnded{Worker: r.Task.Name, Err: r.Err})
		}
	}
	prompt := "The agents have ended. These are their results:\n" + resultLines(results) +
		"\nSum up for the person who set the goal, in short: what was found out and changed, " +
		"what failed and why, " +
		"and what is left to do."
	result, err := o.turn(ctx, &o.worker, prompt, "")
	if err == nil && len(failed) > 0 {
		err = cli.Failed("%d of %s failed: %s", len(failed), visible.Count(len(results), "task"),
			strings.Join(failed, ", "))
	}
	return o.end(result, err)
}

// worker is one of the conversations on a server: the person's conversation, or the conversation of
// a worker with a task, a role and a session of its own.
type worker struct {
	*langserver.Conversation
	name    string // "": of the conversation that a person has
	role    configs.Role
	session *gatewaySession // nil: no gateway
}

// hire begins a worker's conversation. The caller ends it with [Conversation.dismiss].
func (v *Conversation) hire(ctx context.Context, name string, role configs.Role) (*worker, error) {
	w := &worker{name: name, role: role}
	id := rand.Text()
	var err error
	if w.session, err = v.join(ctx, id, name); err != nil {
		return nil, err
	}
	w.Conversation = v.Server.NewConversation(langserver.ConversationOptions{ID: id,
		Model: cmp.Or(role.Model, v.Model()), Effort: v.Effort})
	v.addWorker(w)
	if w.session != nil {
		v.updateTools(ctx) // its own providers may have further tools
	}
	return w, nil
}

// addWorker makes the worker's role and session decide about calls of its conversation.
func (v *Conversation) addWorker(w *worker) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.workers[w.ID()] = w
}

// dismiss ends a worker's conversation.
func (v *Conversation) dismiss(ctx context.Context, w *worker) {
	_ = w.Close(ctx)
	v.forget(w)
	if w.session != nil {
		w.session.end(ctx)
	}
}

// forget reverses addWorker.
func (v *Conversation) forget(w *worker) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.workers, w.ID())
}

// workerOf returns the worker that has a conversation with this server.
func (v *Conversation) workerOf(id string) *worker {
	v.mu.Lock()
	defer v.mu.Unlock()
	return cmp.Or(v.workers[id], &v.worker)
}

// sessions returns the sessions of all conversations with this server, ours first.
func (v *Conversation) sessions() (list []*gatewaySession) {
	if v.session != nil {
		list = append(list, v.session)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(v.workers)) {
		if s := v.workers[id].session; s != nil && s != v.session {
			list = append(list, s)
		}
	}
	return list
}

// denies returns the reason why the role of a conversation does not have a tool, or "" if it has
// it. The server offers all tools to all conversations, so this is the place to refuse.
func (v *Conversation) denies(id, tool string) string {
	w := v.workerOf(id)
	if len(w.role.Tools) == 0 || slices.Contains(w.role.Tools, tool) {
		return ""
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, t := range v.own {
		if t.Name == tool && slices.Contains(w.role.Tools, t.Kind.String()) {
			return ""
		}
	}
	return fmt.Sprintf("%s is not a tool of this role, which has: %s", tool,
		strings.Join(w.role.Tools, ", "))
}
