package main

import (
	"context"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/lazyregexp"
)

// session finds the session that a word means, see [client.Client.FindSession].
func (k *call) session(word string) (string, error) {
	ctx, cancel := context.WithTimeout(k.ctx, shortTimeout) // a short request, whatever follows
	defer cancel()
	return k.gw.FindSession(ctx, word)
}

// namedSession is session for what can't be undone: one of several has to be named.
func (k *call) namedSession(word string) (string, error) {
	ctx, cancel := context.WithTimeout(k.ctx, shortTimeout)
	defer cancel()
	return k.gw.FindNamedSession(ctx, word)
}

// sessionFlag is --session, as commands have it whose arguments are something else.
func sessionFlag() ucli.Flag {
	return &ucli.StringFlag{Name: "session", Aliases: []string{"s"}, Usage: "a session's `ID`, its beginning, or its label (default: the only session, or the foreground one)"}
}

// completing makes a BashComplete that asks the gateway. What goes wrong gives
// no candidates.
func completing(offer func(k *call, flag string)) ucli.BashCompleteFunc {
	return func(c *ucli.Context) {
		k, cancel, err := newCall(c, 0)
		if err != nil {
			return
		}
		defer cancel()
		offer(k, cli.Completing(c))
	}
}

// completeSession offers sessions for the first argument.
func completeSession() ucli.BashCompleteFunc {
	return completing(func(k *call, flag string) {
		if flag == "" && k.NArg() == 0 {
			k.offerSessions()
		}
	})
}

// completeSessionFlag offers sessions for --session.
func completeSessionFlag() ucli.BashCompleteFunc {
	return completing(func(k *call, flag string) {
		if flag == "session" {
			k.offerSessions()
		}
	})
}

var plainWord = lazyregexp.New(`^[\w./+@-]+$`)

func (k *call) offerSessions() {
	sessions, err := k.gw.Sessions(k.ctx)
	if err != nil {
		return
	}
	labels := map[string]int{}
	for _, s := range sessions {
		labels[s.Label]++
	}
	for _, s := range sessions {
		about := s.Label + " " + s.Host + " " + s.State
		cli.Candidate(k.Context, s.ID, about)
		// As a shell takes it without quotes.
		if labels[s.Label] == 1 && plainWord.MatchString(s.Label) {
			cli.Candidate(k.Context, s.Label, about)
		}
	}
}
