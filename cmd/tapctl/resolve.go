package main

import (
	"context"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
)

// session finds the session that an ID means: the one with it, the only one that
// begins with it, or for "" the only one there is.
func (k *call) session(id string) (string, error) {
	ctx, cancel := context.WithTimeout(k.ctx, shortTimeout) // a short request, whatever follows
	defer cancel()
	return k.gw.FindSession(ctx, id)
}

// sessionFlag is --session, as commands have it whose arguments are something else.
func sessionFlag() ucli.Flag {
	return &ucli.StringFlag{Name: "session", Aliases: []string{"s"}, Usage: "the session's `ID` (may be left out with one session)"}
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

// completeSession offers session ids for the first argument.
func completeSession() ucli.BashCompleteFunc {
	return completing(func(k *call, flag string) {
		if flag == "" && k.NArg() == 0 {
			k.offerSessions()
		}
	})
}

// completeSessionFlag offers session ids for --session.
func completeSessionFlag() ucli.BashCompleteFunc {
	return completing(func(k *call, flag string) {
		if flag == "session" {
			k.offerSessions()
		}
	})
}

func (k *call) offerSessions() {
	sessions, err := k.gw.Sessions(k.ctx)
	if err != nil {
		return
	}
	for _, s := range sessions {
		cli.Candidate(k.Context, s.ID, s.Label+" "+s.Host+" "+s.State)
	}
}
