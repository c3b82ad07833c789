package main

import (
	"context"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/lazyregexp"
)

// findSession returns the id of the session that a word means, see
// [client.Client.FindSession]. It has shortTimeout, however long the command may take.
func (c *command) findSession(word string) (string, error) {
	ctx, cancel := context.WithTimeout(c.ctx, shortTimeout)
	defer cancel()
	return c.gw.FindSession(ctx, word)
}

// findNamedSession works as findSession, but returns an error for an empty word when there are
// several sessions. Commands that can't be undone use it.
func (c *command) findNamedSession(word string) (string, error) {
	ctx, cancel := context.WithTimeout(c.ctx, shortTimeout)
	defer cancel()
	return c.gw.FindNamedSession(ctx, word)
}

// sessionAnd reads the arguments [ID] WORD. missing is the error if there is no word.
func (c *command) sessionAnd(missing string) (id, word string, err error) {
	id, word = c.Args().Get(0), c.Args().Get(1)
	if c.NArg() < 2 {
		id, word = "", id
	}
	if word == "" {
		return "", "", cli.Usage("%s", missing)
	}
	id, err = c.findSession(id)
	return id, word, err
}

// sessionFlag is --session, for commands whose arguments are not a session.
func sessionFlag() ucli.Flag {
	return &ucli.StringFlag{Name: "session", Aliases: []string{"s"},
		Usage: "a session's `ID`, its beginning, or its label (default: the only session, or the " +
			"foreground session)"}
}

// completing makes a BashComplete that asks the gateway. suggest prints the candidates for the
// value of a flag, "" for the next argument. An error gives no candidates.
func completing(suggest func(c *command, flag string)) ucli.BashCompleteFunc {
	return func(flags *ucli.Context) {
		c, cancel, err := newCommand(flags, 0)
		if err != nil {
			return
		}
		defer cancel()
		suggest(c, cli.Completing(flags))
	}
}

// completeArgument completes the first argument.
func completeArgument(suggest func(*command)) ucli.BashCompleteFunc {
	return completing(func(c *command, flag string) {
		if flag == "" && c.NArg() == 0 {
			suggest(c)
		}
	})
}

// completeSessionFlag completes the value of --session.
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
		// A label that a shell would want in quotes is left out.
		if labels[s.Label] == 1 && plainWord.MatchString(s.Label) {
			cli.Candidate(c.Context, s.Label, about)
		}
	}
}
