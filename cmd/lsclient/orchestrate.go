package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/agent/workspace"
	"tapgw/internal/cli"
	"tapgw/internal/langserver"
	"tapgw/internal/orchestrate"
	"tapgw/internal/visible"
)

// Limits of an orchestration.
const (
	defaultWorkers = 3
	maxWorkers     = 16
	maxResult      = 20_000 // bytes of a worker's answer that others get
)

func orchestrateCommand() *ucli.Command {
	return &ucli.Command{
		Name: "orchestrate", Usage: "give a goal to several agents with roles", ArgsUsage: "GOAL|- [-]",
		Description: `The model first plans: which tasks, of which roles, after which others. Then a worker for each
task has a conversation of its own, as many at once as --workers says, all on one
language server. A worker gets the results of the tasks that its own depends on. At the
end the model's summary goes to stdout. What the workers do goes to stderr, or with
--json to stdout, an event a line with the worker's name.

Roles are tables [roles.NAME] of lsclient.toml; without any there are researcher, coder
and reviewer. If a worker fails, those that depend on it don't start, and the exit code
is 1. If a gateway runs, each worker is a session there, labelled with its name.

Examples:
  lsclient orchestrate 'find out why the tests are slow, and make them fast' --ask
  lsclient orchestrate --config roles.toml --workers 5 - <goal.md`,
		Flags: append([]ucli.Flag{
			&ucli.IntFlag{Name: "workers", Usage: "at most `N` workers at once", Value: defaultWorkers},
		}, turnFlags()...),
		Action: action(2, 0, runOrchestrate),
	}
}

// defaultRoles are the roles without any in lsclient.toml.
var defaultRoles = map[string]configs.Role{
	"researcher": {Description: "finds things out and changes nothing", Tools: []string{"read", "web"}},
	"coder":      {Description: "changes files and runs commands"},
	"reviewer": {Description: "checks the changes of others and changes nothing",
		Tools: []string{"read", "run_tests"}},
}

// orchestration is a goal on which several workers work.
type orchestration struct {
	v     *conversation // plans and sums up
	goal  string
	roles map[string]configs.Role
	chief *worker // v as a worker that changes nothing

	mu      sync.Mutex // guards the fields that follow
	running []string   // workers
	ended   int        // tasks that ran
	tasks   int
}

func runOrchestrate(c *command) error {
	if err := c.turnOptions(); err != nil {
		return err
	}
	limit := c.Int("workers")
	if limit < 1 || limit > maxWorkers {
		return cli.Usage("flag --workers: must be 1 to %d", maxWorkers)
	}
	goal, err := c.readPrompt()
	if err != nil {
		return err
	}
	defer c.openStatus()()
	c.display = nil // each worker prints lines; what they write does not go into one text
	v, err := c.converse(c.ctx, langserver.Agent)
	if err != nil {
		return err
	}
	defer v.close(context.WithoutCancel(c.ctx))
	o := &orchestration{v: v, goal: goal, roles: c.workspace.Config().Roles}
	if len(o.roles) == 0 {
		o.roles = defaultRoles
	}
	printer := &turnPrinter{cmd: c, v: v}
	o.working("planning")
	tasks, result, err := o.plan(c.ctx)
	if err != nil {
		return printer.done(result, err)
	}
	o.tasks = len(tasks)
	results := orchestrate.Run(c.ctx, tasks, limit, o.work)
	o.working("summing up")
	return o.sumUp(c.ctx, results, printer)
}

// working shows what runs, if a person sees it.
func (o *orchestration) working(what string) {
	if s := o.v.cmd.status; s != nil {
		s.Working(what)
	}
}

// began shows that a worker runs. The caller calls ended when it has ended.
func (o *orchestration) began(name string) (ended func()) {
	show := func() {
		o.working(fmt.Sprintf("%s · %d of %s done", strings.Join(o.running, ", "), o.ended,
			visible.Count(o.tasks, "task")))
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
func (o *orchestration) plan(ctx context.Context) ([]orchestrate.Task, langserver.Turn, error) {
	v, names := o.v, slices.Sorted(maps.Keys(o.roles))
	o.chief = &worker{Conversation: v.Conversation, name: "plan", role: configs.Role{Tools: []string{"read"}},
		session: v.session}
	v.addWorker(o.chief)
	printer := &turnPrinter{cmd: v.cmd, v: v, worker: o.chief}
	result, err := v.runTurn(ctx, o.planPrompt(names), "", printer)
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
		printer.note("the plan can't be used (%v), so one worker does it all", err)
		tasks = []orchestrate.Task{{Name: name, Role: name, Text: o.goal}}
	}
	type line struct {
		Worker string   `json:"worker"`
		Role   string   `json:"role"`
		Task   string   `json:"task"`
		After  []string `json:"dependsOn"`
	}
	lines := make([]line, len(tasks))
	for i, t := range tasks {
		lines[i] = line{t.Name, t.Role, t.Text, []string{}}
		after := ""
		for _, n := range t.After {
			lines[i].After = append(lines[i].After, tasks[n].Name)
			after = " (after " + strings.Join(lines[i].After, ", ") + ")"
		}
		printer.note("%s: %s%s", t.Name, cli.Shorten(cli.Clean(t.Text), 100), after)
	}
	if v.cmd.out.JSON {
		err = v.cmd.out.Line(struct {
			Type  string `json:"type"`
			Tasks []line `json:"tasks"`
		}{"plan", lines})
		return tasks, result, err
	}
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
func (o *orchestration) work(ctx context.Context, t orchestrate.Task, needs []orchestrate.Result) (text string,
	err error) {
	v := o.v
	defer o.began(t.Name)()
	printer := &turnPrinter{cmd: v.cmd, v: v, worker: &worker{name: t.Name}}
	printer.progress("running", t.Text, nil)
	defer func() { printer.progress("completed", text, err) }()
	w, err := v.hire(ctx, t.Name, o.roles[t.Role])
	if err != nil {
		return "", err
	}
	defer v.dismiss(context.WithoutCancel(ctx), w)
	printer.worker = w
	result, err := turnIn(ctx, w.Conversation, w.session, o.taskPrompt(t, needs), "", printer.event)
	text = result.Text
	for err == nil && w.session != nil {
		p, ok := w.session.waitPrompt(ctx)
		if !ok {
			break
		}
		printer.injected(p.Prompt)
		result, err = turnIn(ctx, w.Conversation, w.session, p.Prompt, p.Source, printer.event)
		text += "\n\n" + result.Text
	}
	return text, err
}

func (o *orchestration) taskPrompt(t orchestrate.Task, needs []orchestrate.Result) string {
	role := o.roles[t.Role]
	var b strings.Builder
	fmt.Fprintf(&b, "Several agents work on this goal at the same time:\n\n%s\n\n", o.goal)
	fmt.Fprintf(&b, "You are the agent %q, which %s. Do this task of it and no other:\n\n%s\n", t.Name,
		role.Description, t.Text)
	if role.Instructions != "" {
		fmt.Fprintf(&b, "\n%s\n", role.Instructions)
	}
	if len(role.Tools) > 0 {
		fmt.Fprintf(&b, "\nYou may only use these tools, or kinds of tools: %s.\n", strings.Join(role.Tools, ", "))
	}
	if len(needs) > 0 {
		b.WriteString("\nThe tasks before yours had these results:\n" + resultLines(needs))
	}
	b.WriteString("\nEnd with a short report for the other agents: what you found out or changed, and where.")
	return b.String()
}

// resultLines returns results for the model, each a line of JSON, so that no text can pass for another worker's.
func resultLines(results []orchestrate.Result) string {
	var b strings.Builder
	for _, r := range results {
		line := struct {
			Worker string `json:"worker"`
			Task   string `json:"task"`
			Result string `json:"result,omitempty"`
			Error  string `json:"error,omitempty"`
		}{Worker: r.Task.Name, Task: r.Task.Text, Result: visible.Ends(r.Text, maxResult, maxResult)}
		if r.Err != nil {
			line.Error = cli.AsError(r.Err).Message
		}
		text, err := json.Marshal(line)
		if err == nil { // it has only strings
			b.Write(append(text, '\n'))
		}
	}
	return b.String()
}

// sumUp prints the model's summary. Its error names the workers that failed.
func (o *orchestration) sumUp(ctx context.Context, results []orchestrate.Result, printer *turnPrinter) error {
	if ctx.Err() != nil {
		return printer.done(langserver.Turn{}, workspace.ExitError(fmt.Errorf("%w: %w", langserver.ErrCancelled,
			context.Cause(ctx))))
	}
	var failed []string
	for _, r := range results {
		if r.Err == nil {
			continue
		}
		failed = append(failed, r.Task.Name)
		if _, ok := errors.AsType[*orchestrate.BlockedError](r.Err); ok {
			blocked := &turnPrinter{cmd: o.v.cmd, v: o.v, worker: &worker{name: r.Task.Name}}
			blocked.progress("", "", r.Err)
		}
	}
	prompt := "The agents have ended. These are their results:\n" + resultLines(results) +
		"\nSum up for the person who set the goal, in short: what was found out and changed, what failed and why, " +
		"and what is left to do."
	result, err := o.v.runTurn(ctx, prompt, "", printer)
	if err == nil && len(failed) > 0 {
		err = cli.Failed("%d of %s failed: %s", len(failed), visible.Count(len(results), "task"),
			strings.Join(failed, ", "))
	}
	if err := printer.done(result, err); err != nil {
		return err
	}
	o.v.forget(o.chief) // what providers ask for may need any tool
	return o.v.injectedTurns(ctx, printer)
}

// injectedTurns runs the turns of the prompts that providers have injected.
func (v *conversation) injectedTurns(ctx context.Context, printer *turnPrinter) error {
	for v.session != nil {
		p, ok := v.session.waitPrompt(ctx)
		if !ok {
			return nil
		}
		printer.injected(p.Prompt)
		if err := v.turn(ctx, p.Prompt, p.Source, printer); err != nil {
			return err
		}
	}
	return nil
}

// progress prints that a worker begins its task or has ended it.
func (p *turnPrinter) progress(state, text string, err error) {
	line := struct {
		Type   string `json:"type"`
		Worker string `json:"worker"`
		State  string `json:"state"`
		Task   string `json:"task,omitempty"`
		Result string `json:"result,omitempty"`
		Error  string `json:"error,omitempty"`
	}{Type: "worker", Worker: p.name(), State: state}
	switch {
	case err != nil:
		line.State, line.Result, line.Error = "error", text, cli.AsError(err).Message
		p.note("%s %s", cli.Red.On(p.cmd.App.ErrWriter, "failed:"), cli.OneLine(line.Error))
	case state == "running":
		line.Task = text
		p.note("begins: %s", cli.Shorten(cli.Clean(text), 100))
	default:
		line.Result = text
		p.note("%s %s", cli.Green.On(p.cmd.App.ErrWriter, "done:"), cli.Shorten(cli.Clean(cmp.Or(text, "-")), 100))
	}
	if p.cmd.out.JSON {
		p.cmd.printing.Lock()
		defer p.cmd.printing.Unlock()
		_ = p.cmd.out.Line(line)
	}
}
