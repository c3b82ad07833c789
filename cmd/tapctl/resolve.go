package main

import (
	"context"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/lazyregexp"
)

// findSession finds the session that a word means, see [client.Client.FindSession].
func (c *command) findSession(word string) (string, error) {
	ctx, cancel := context.WithTimeout(c.ctx, shortTimeout) // a short request, whatever follows
	defer cancel()
	return c.gw.FindSession(ctx, word)
}

// findNamedSession is session for what can't be undone: one of several has to be named.
func (c *command) findNamedSession(word string) (string, error) {
	ctx, cancel := context.WithTimeout(c.ctx, shortTimeout)
	defer cancel()
	return c.gw.FindNamedSession(ctx, word)
}

// sessionFlag is --session, as commands have it whose arguments are something else.
func sessionFlag() ucli.Flag {
	return &ucli.StringFlag{Name: "session", Aliases: []string{"s"}, Usage: "a session's `ID`, its beginning, or its label (default: the only session, or the foreground one)"}
}

// completing makes a BashComplete that asks the gateway. What goes wrong gives
// no candidates.
func completing(offer func(c *command, flag string)) ucli.BashCompleteFunc {
	return func(flags *ucli.Context) {
		c, cancel, err := newCommand(flags, 0)
		if err != nil {
			return
		}
		defer cancel()
		offer(c, cli.Completing(flags))
	}
}

// completeSession offers sessions for the first argument.
func completeSession() ucli.BashCompleteFunc {
	return completing(func(c *command, flag string) {
		if flag == "" && c.NArg() == 0 {
			c.suggestSessions()
		}
	})
}

// completeSessionFlag offers sessions for --session.
func completeSessionFlag() ucli.BashCompleteFunc {
	return completing(func(c *command, flag string) {
		if flag == "session" {
			c.suggestSessions()
		}
	})
}

var plainWord = lazyregexp.New(`^[\w./+@-]+$`)

func (c *command) suggestSessions() {
	sessions, err := c.gw.Sessions(c.ctx)
	if err != nil {
		return
	}
	labels := map[string]int{}
	for _, s := range sessions {
		labels[s.Label]++
	}
	for _, s := range sessions {
		about := s.Label + " " + s.Host + " " + s.State
		cli.Candidate(c.Context, s.ID, about)
		// As a shell takes it without quotes.
		if labels[s.Label] == 1 && plainWord.MatchString(s.Label) {
			cli.Candidate(c.Context, s.Label, about)
		}
	}
}
