package main

import (
	"context"
	"errors"
	"io/fs"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/proc"
	"tapgw/internal/sources"
)

const (
	triedRuns   = 5   // of the schedule
	triedEvents = 200 // of a run or a stream
)

// trial is the effect that a source's file would have.
type trial struct {
	Name       string               `json:"name"`
	Kind       string               `json:"kind"`
	File       string               `json:"file"`
	Stream     string               `json:"stream"`
	Sessions   string               `json:"sessions"`
	NextRunsAt []time.Time          `json:"nextRunsAt"`
	HasRun     bool                 `json:"hasRun"`
	Failure    string               `json:"failure,omitempty"`
	Events     []sources.TriedEvent `json:"events"`
}

func sourcesTryCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "try",
		Usage:     "show what a source's file would do, and send nothing",
		ArgsUsage: "FILE",
		Description: `It checks the file and says when the source would run, if it began now. With --run it runs
the command once, or asks the URL, and shows the events that would come: a source that
compares is judged as if its last run had seen nothing. A command that has not ended after
--timeout is stopped. With --session it shows what the file's filter would do with the
events that the stream has; those that were dropped are in no stream. No gateway is needed,
but for --session.

Examples:
  tapctl sources try ~/.config/tapgw/providers/build.toml
  tapctl sources try build.toml --run
  tapctl sources try build.toml --session 3f2a --json | jq -r '.events[] | select(.outcome=="inject") | .text'`,
		Flags: []ucli.Flag{
			&ucli.BoolFlag{Name: "run", Usage: "run its command once, or ask its URL"},
			&ucli.StringFlag{Name: "session",
				Usage: "judge the events in the stream of session `ID`"},
		},
		BashComplete: completeSessionFlag(),
		Action:       shortAction(1, trySource),
	}
}

func trySource(c *command) error {
	p, err := c.sourceFile()
	if err != nil {
		return err
	}
	if c.Bool("run") && c.IsSet("session") {
		return cli.Usage("sources try: --run and --session exclude each other")
	}
	t := trial{
		Name: p.Name, Kind: p.Source.Kind(), File: p.File, Stream: p.Source.Stream,
		Sessions: string(p.Sessions.Mode),
		Events:   []sources.TriedEvent{},
	}
	next, err := sources.NextRuns(p.Source, time.Now().UTC(), triedRuns)
	if err != nil {
		return cli.Failed("%s: %s", p.File, err)
	}
	t.NextRunsAt = list(next)
	switch {
	case c.IsSet("session"):
		err = c.tryFilter(&t, p)
	case c.Bool("run"):
		err = c.tryRun(&t, p)
	}
	if err != nil {
		return err
	}
	return c.out.Show(t, func() error { return c.printTrial(t) })
}

// sourceFile reads the file that the first argument names.
func (c *command) sourceFile() (p configs.Provider, err error) {
	name := c.Args().First()
	if name == "" {
		return p, cli.Usage("sources try: needs a provider file of kind source")
	}
	name, err = cli.Absolute(c.Context, name)
	if err != nil {
		return p, err
	}
	p, faults, err := configs.ReadProvider(name)
	if errors.Is(err, fs.ErrNotExist) {
		return p, cli.NotFound("sources try: there is no file %s", name)
	} else if err != nil {
		return p, cli.Failed("sources try: %s", err)
	}
	switch {
	case len(faults) > 0:
		return p, cli.Failed("%s", faults.Error())
	case p.Kind != configs.KindSource:
		return p, cli.Failed("sources try: %s is of kind %s, not source", name, p.Kind)
	}
	return p, nil
}

func (c *command) tryRun(t *trial, p configs.Provider) error {
	if t.Kind == "files" || t.Kind == "webhook" {
		return cli.Usage(
			"sources try --run: a source of kind %s waits for events, and has nothing to run",
			t.Kind)
	}
	dir, err := cli.Absolute(c.Context, p.CWD)
	if err != nil {
		return err
	}
	env, err := p.Variables()
	if err != nil {
		return cli.Failed("sources try: %s", err)
	}
	events, failure, err := sources.Try(c.ctx, &sources.Options{
		Provider: &p, Dir: dir, Env: func() []string { return proc.Environ(env) },
	}, triedEvents)
	if c.Context.Context.Err() != nil {
		return context.Cause(c.Context.Context)
	}
	t.HasRun, t.Events = t.Kind != "prompt", list(events)
	if failure != nil {
		t.Failure = failure.Error()
	}
	return err
}

func (c *command) tryFilter(t *trial, p configs.Provider) error {
	id, err := c.findSession(c.String("session"))
	if err != nil {
		return err
	}
	rows, err := c.gw.History(c.ctx, id, client.HistoryQuery{Streams: []string{t.Stream},
		Last: triedEvents})
	if err != nil {
		return err
	}
	t.Events, err = sources.TryFilter(p, rows)
	return err
}

func (c *command) printTrial(t trial) error {
	first := &cli.Table{Columns: []string{"NAME", "KIND", "STREAM", "SESSIONS", "NEXT RUNS"}}
	if len(t.NextRunsAt) == 0 {
		first.Row(t.Name, t.Kind, t.Stream, t.Sessions, "when something happens")
	}
	for i, at := range t.NextRunsAt {
		if i == 0 {
			first.Row(t.Name, t.Kind, t.Stream, t.Sessions, at.Format(time.RFC3339))
		} else {
			first.Row("", "", "", "", at.Format(time.RFC3339))
		}
	}
	if err := c.out.Table(first, ""); err != nil {
		return err
	}
	if t.Failure != "" {
		if err := c.out.Printf("\nthe run failed: %s\n", cli.Clean(t.Failure)); err != nil {
			return err
		}
	}
	switch {
	case !c.Bool("run") && !c.IsSet("session"):
		c.out.Notef(
			"nothing was run; --run runs it once, and --session tries its filter on a stream")
		return nil
	case c.IsSet("session"):
		return c.printTried(t, "the stream "+t.Stream+" has no events")
	}
	return c.printTried(t, "the run makes no events")
}

func (c *command) printTried(t trial, none string) error {
	if len(t.Events) > 0 {
		if err := c.out.Printf("\n"); err != nil {
			return err
		}
	}
	events := &cli.Table{Columns: []string{"WAS", "OUTCOME", "TEXT"}}
	for _, e := range t.Events {
		events.Row(e.Level, e.Outcome, cli.OneLine(e.Text))
	}
	return c.out.Table(events, none)
}
