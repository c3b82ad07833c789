package main

import (
	"errors"
	"strings"
	"sync"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/client"
)

func stopCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "stop",
		Usage:     "end a session",
		ArgsUsage: "[ID]",
		Description: `The session's providers have 10 seconds to finish; tapctl says which of them it waits for.
If there are several sessions, name the one to end, or end all of them with --all.

Examples:
  tapctl sessions stop 3f2a
  tapctl sessions stop --all`,
		Flags:        []ucli.Flag{&ucli.BoolFlag{Name: "all", Usage: "end all sessions"}},
		BashComplete: completeArgument((*command).suggestSessions),
		Action: shortAction(1, func(c *command) error {
			if c.Bool("all") {
				return stopAll(c)
			}
			id, err := c.findNamedSession(c.Args().First())
			if err != nil {
				return err
			}
			if err := c.stop(id); err != nil {
				return err
			}
			return c.doneTo(id, "stopped")
		}),
	}
}

// waitsForInterval is how often stop asks which providers an ending session waits for.
const waitsForInterval = time.Second

// stop ends a session. While it waits, it prints the providers that the session waits for.
func (c *command) stop(id string) error {
	ended := make(chan error, 1)
	go func() { ended <- c.gw.Stop(c.ctx, id) }()
	printed := ""
	for {
		select {
		case err := <-ended:
			return err
		case <-time.After(waitsForInterval):
		}
		s, err := c.gw.Session(c.ctx, id)
		if now := strings.Join(s.WaitsFor, ", "); err == nil && s.State == "ending" && now != "" &&
			now != printed {
			printed = now
			c.out.Notef("session %s waits for %s, at most 10 seconds", id, cli.Clean(now))
		}
	}
}

// stopAll ends all sessions at the same time. The error names the sessions that it could not end.
func stopAll(c *command) error {
	if c.NArg() > 0 {
		return cli.Usage("flag --all: ends all sessions; leave out %q", c.Args().First())
	}
	sessions, err := c.gw.Sessions(c.ctx)
	if err != nil {
		return err
	}
	failed := make([]error, len(sessions))
	var stopping sync.WaitGroup
	for i, s := range sessions {
		stopping.Go(func() { failed[i] = c.stop(s.ID) })
	}
	stopping.Wait()
	stopped := []map[string]string{}
	for i, s := range sessions {
		switch {
		case failed[i] == nil || cli.AsError(failed[i]).Exit == cli.ExitNotFound: // it has ended
			stopped = append(stopped, map[string]string{"id": s.ID})
			c.out.Notef("stopped %s", s.ID)
		default:
			err = errors.Join(err, failed[i])
		}
	}
	switch {
	case err != nil:
		return cli.Failed("stopping sessions: %d of %d ended; the others: %v", len(stopped),
			len(sessions), err)
	case c.out.JSON:
		return c.out.Document(stopped)
	case len(sessions) == 0:
		c.out.Notef("%s", client.NoSessions)
	}
	return nil
}

func interruptCommand() *ucli.Command {
	return sessionResource.short(&ucli.Command{
		Name: "interrupt", Usage: "stop a session's turn and cancel its tool calls",
		Description: `Prompts that wait behind the turn stay, and the first of them begins. tapctl prints a prompt
that was given to the agent just before and did not begin.

Examples:
  tapctl sessions interrupt 3f2a --reason 'wrong branch'`,
		Flags: []ucli.Flag{&ucli.StringFlag{Name: "reason", Usage: "`WHY`, for the timeline"}},
	}, func(c *command, id string) error {
		dropped, err := c.gw.Interrupt(c.ctx, id, c.String("reason"))
		if err != nil {
			return err
		}
		c.printDropped(dropped)
		return c.out.Done(struct {
			ID      string   `json:"id"`
			Dropped []string `json:"dropped,omitempty"`
		}{id, dropped}, "interrupted %s", id)
	})
}

// printDropped prints on stderr the prompts that were dropped with a turn.
func (c *command) printDropped(dropped []string) {
	for _, text := range dropped {
		c.out.Notef("dropped a prompt that had not begun: %s", cli.Clean(text))
	}
}

func foregroundCommand() *ucli.Command {
	named := sessionResource
	named.find = (*command).findNamedSession
	return named.short(&ucli.Command{
		Name: "foreground", Usage: "make a session the foreground session",
		Description: "Commands without an ID mean the foreground session.\n\n" +
			"Examples:\n  tapctl sessions foreground 3f2a",
	}, func(c *command, id string) error {
		if err := c.gw.Foreground(c.ctx, id); err != nil {
			return err
		}
		return c.doneTo(id, "foreground is now")
	})
}
