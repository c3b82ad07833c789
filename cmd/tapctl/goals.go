package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
)

// The commands tapctl goals, which start, show and stop goals of sessions.

const listedGoals = `Lists the goals of sessions, those that go on and the last that have ended. A state is active,
met, budget (it is used up), stopped (by somebody) or blocked (it can't go on).`

func goalsCommand() *ucli.Command {
	r := &goalResource
	active := goalResource
	active.suggest = suggestGoals(true)
	return &ucli.Command{
		Name: "goals",
		Usage: "keep a session at work until checks show that a goal is met; list, show " +
			"and stop goals",
		Description: listedGoals + "\n\nExamples:\n  tapctl goals\n" +
			`  tapctl goals start --check '{"call":"make test"}' --turns 20 'Make the tests pass.'`,
		Action: shortAction(0, r.print),
		Subcommands: []*ucli.Command{
			r.listCommand("list goals", listedGoals+"\n\nExamples:\n"+
				"  tapctl goals list --json | jq -r '.[] | select(.state==\"active\") | .id'"),
			startGoalCommand(),
			r.short(&ucli.Command{
				Name:        "show",
				Usage:       "show a goal: its checks, and what was missing after each turn",
				Description: "Examples:\n  tapctl goals show g-3f2a5c1e",
			}, showGoal),
			active.short(&ucli.Command{
				Name: "stop", Usage: "stop an active goal; the turn that runs goes on",
				Description: "Examples:\n  tapctl goals stop g-3f2a5c1e --reason 'I do it myself'",
				Flags: []ucli.Flag{
					&ucli.StringFlag{Name: "reason", Usage: "`WHY`, for those who look at it"},
				},
			}, stopGoal),
		},
	}
}

var goalResource = resource[adminapi.Goal]{
	list:    func(c *command) ([]adminapi.Goal, error) { return c.gw.Goals(c.ctx, "") },
	columns: []string{"ID", "STATE", "SESSION", "TURNS", "STARTED", "GOAL", "REASON"},
	ink:     goalInk,
	inked:   1,
	row: func(g adminapi.Goal) []any {
		return []any{g.ID, g.State, cli.Shorten(cli.Clean(g.Session), 13),
			fmt.Sprintf("%d/%d", g.Spent.Turns, g.Budget.Turns), ago(g.StartedAt),
			cli.Shorten(cli.OneLine(g.Contract.Text), 50), cli.Shorten(cli.Clean(g.Reason), 80)}
	},
	empty:    always("no goals; tapctl goals start --help shows how to start one"),
	argument: "GOAL",
	find:     given("the id of a goal", "goals"),
	suggest:  suggestGoals(false),
}

func suggestGoals(onlyActive bool) func(*command) {
	return func(c *command) {
		goals := func(ctx context.Context) ([]adminapi.Goal, error) { return c.gw.Goals(ctx, "") }
		suggest(c, goals, func(g adminapi.Goal) (word, about string) {
			if onlyActive && g.State != adminapi.GoalActive {
				return "", ""
			}
			return g.ID, g.State + " " + cli.OneLine(g.Contract.Text)
		})
	}
}

func startGoalCommand() *ucli.Command {
	return &ucli.Command{
		Name: "start", Usage: "start a goal for a session", ArgsUsage: "TEXT|-",
		Description: `The gateway looks at the checks whenever the session is idle. While one does not hold, the
session gets the text again with what is missing, until the budget is used up. A check is
one of these (docs/goals.md has all keys):
  {"file": "report.md"}    {"file": {"path": "report.md", "contains": "## Result"}}
  {"stream": "ci"}         {"stream": {"channel": "build@ci", "pattern": "^green"}}
  {"call": "make test"}    {"call": {"pattern": "^go test", "exitCode": 0}}
With --wait it follows the goal: exit code 0 if it is met, 1 if it ends otherwise.

Examples:
  tapctl goals start --check '{"call":"make test"}' 'Make the tests pass.'
  tapctl goals start --session review --check '{"file":"review.md"}' --time 1h --wait - <goal.txt`,
		Flags: []ucli.Flag{
			sessionFlag(),
			&ucli.StringSliceFlag{Name: "check",
				Usage: "`JSON` of what must hold; once for each check"},
			&ucli.IntFlag{Name: "turns", Usage: "at most `N` turns", Value: 50},
			&ucli.DurationFlag{
				Name:        "time",
				Usage:       "at most `D`, such as 90m, while the session runs",
				DefaultText: "none",
			},
			&ucli.Int64Flag{Name: "tokens", Usage: "at most `N` tokens of the session's model",
				DefaultText: "none"},
			&ucli.BoolFlag{Name: "wait", Usage: "wait until the goal has ended"},
		},
		BashComplete: completeSessionFlag(),
		Action:       shortAction(1, startGoal, "wait"),
	}
}

func startGoal(c *command) error {
	if c.NArg() == 0 {
		return cli.Usage(
			"goals start: needs a text that says what the goal is, or - to read it from stdin")
	}
	r := adminapi.GoalRequest{
		Turns:  c.Int("turns"),
		TimeMs: c.Duration("time").Milliseconds(),
		Tokens: c.Int64("tokens"),
	}
	switch {
	case r.Turns < 1:
		return cli.Usage("flag --turns: must be more than 0")
	case c.IsSet("time") && r.TimeMs < 1:
		return cli.Usage("flag --time: must be more than 0")
	case c.IsSet("tokens") && r.Tokens < 1:
		return cli.Usage("flag --tokens: must be more than 0")
	}
	for _, check := range c.StringSlice("check") {
		if !json.Valid([]byte(check)) {
			return cli.Usage("flag --check: %q is not JSON, such as {\"file\":\"report.md\"}",
				check)
		}
		r.Checks = append(r.Checks, json.RawMessage(check))
	}
	var err error
	if r.Text, err = cli.Text(c.Context, c.Args().First()); err != nil {
		return err
	}
	if r.Session, err = c.findSession(c.String("session")); err != nil {
		return err
	}
	g, err := c.gw.StartGoal(c.ctx, r)
	if err != nil {
		return err
	}
	if len(r.Checks) == 0 {
		c.out.Notef(
			"it has no --check, so it is never met: it ends with its budget, or by tapctl "+
				"goals stop %s", g.ID)
	}
	if !c.Bool("wait") {
		return c.printGoal(g, "started")
	}
	return c.followGoal(g)
}

// goalPoll is how often a command that waits for a goal asks for its state.
const goalPoll = 500 * time.Millisecond

// followGoal waits until a goal has ended. Without --json it notes each turn.
func (c *command) followGoal(g adminapi.Goal) error {
	c.out.Notef("started %s; Ctrl-C ends the wait, and tapctl goals stop %[1]s the goal", g.ID)
	tick := time.NewTicker(goalPoll)
	defer tick.Stop()
	seen := 0
	for g.State == adminapi.GoalActive {
		select {
		case <-tick.C:
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
		var err error
		if g, err = c.gw.Goal(c.ctx, g.ID); err != nil {
			return err
		}
		for ; seen < len(g.Iterations) && !g.Iterations[seen].EndedAt.IsZero(); seen++ {
			for _, line := range g.Iterations[seen].Missing {
				c.out.Notef("turn %d: %s", seen+1, cli.Clean(line))
			}
		}
	}
	if err := c.printGoal(g, g.State); err != nil {
		return err
	}
	switch {
	case g.State == adminapi.GoalMet:
		return nil
	case c.out.JSON: // the goal says why
		return cli.Reported(cli.ExitFailed)
	}
	return cli.Failed("the goal is not met: %s", cli.Clean(g.Reason))
}

// printGoal prints a goal with --json, else what, which says how the goal changed.
func (c *command) printGoal(g adminapi.Goal, what string) error {
	return c.out.Result(g, "%s %s\n", g.ID, what)
}

// goalInk colours the state of a goal.
func goalInk(state string) cli.Ink {
	switch state {
	case adminapi.GoalActive:
		return cli.Yellow
	case adminapi.GoalMet:
		return cli.Green
	case adminapi.GoalBlocked, adminapi.GoalOverBudget:
		return cli.Red
	}
	return cli.Dim
}

func showGoal(c *command, id string) error {
	g, err := c.gw.Goal(c.ctx, id)
	if err != nil {
		return err
	}
	if c.out.JSON {
		return c.out.Document(g)
	}
	text := fmt.Sprintf("%s\n\n%s, started by a %s %s; %s used\n",
		cli.Clean(g.Contract.Text), g.State, g.By, ago(g.StartedAt), budgetText(g))
	if g.Reason != "" {
		text += cli.Clean(g.Reason) + "\n"
	}
	if err := c.out.Printf("%s\n", text); err != nil {
		return err
	}
	checks := &cli.Table{Columns: []string{"CHECK", "HOLDS", "WHY NOT"}}
	for _, e := range g.Evidence {
		holds := map[bool]string{true: "yes", false: "no"}[e.Holds]
		checks.Row(cli.Clean(e.Check), holds, cli.Clean(e.Why))
	}
	err = c.out.Table(checks, "nobody has looked at the checks yet")
	if err != nil || len(g.Iterations) == 0 {
		return err
	}
	if err := c.out.Printf("\n"); err != nil {
		return err
	}
	return c.out.Table(iterationsTable(g.Iterations), "")
}

// budgetText returns how much of its budget a goal has used.
func budgetText(g adminapi.Goal) string {
	text := fmt.Sprintf("%d of %d turns", g.Spent.Turns, g.Budget.Turns)
	if g.Budget.TimeMs > 0 {
		spent := (time.Duration(g.Spent.TimeMs) * time.Millisecond).Round(time.Second)
		text += fmt.Sprintf(", %s of %s", spent, time.Duration(g.Budget.TimeMs)*time.Millisecond)
	}
	if g.Budget.Tokens > 0 {
		text += fmt.Sprintf(", %d of %d tokens", g.Spent.Tokens, g.Budget.Tokens)
	}
	return text
}

func iterationsTable(list []adminapi.GoalIteration) *cli.Table {
	t := &cli.Table{Columns: []string{"TURN", "STARTED", "TOOK", "MISSING", "REASON"}}
	for _, it := range list {
		took := "runs"
		if !it.EndedAt.IsZero() {
			took = max(it.EndedAt.Sub(it.StartedAt), 0).Round(time.Second).String()
		}
		t.Row(it.N, it.StartedAt.Local().Format("2006-01-02 15:04:05"), took, len(it.Missing),
			cli.Clean(it.Reason))
	}
	return t
}

func stopGoal(c *command, id string) error {
	g, err := c.gw.StopGoal(c.ctx, id, c.String("reason"))
	if err != nil {
		return err
	}
	return c.printGoal(g, "stopped")
}
