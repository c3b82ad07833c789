package main

import ucli "github.com/urfave/cli/v2"

func stopCommand() *ucli.Command {
	return &ucli.Command{
		Name:      "stop",
		Usage:     "end a session",
		ArgsUsage: "[ID]",
		Description: `Its providers are told and have 10 seconds to finish. One of several sessions has
to be named.

Examples:
  tapctl sessions stop 3f2a`,
		BashComplete: completeSession(),
		Action: short(1, func(k *call) error {
			id, err := k.namedSession(k.Args().First())
			if err != nil {
				return err
			}
			if err := k.gw.Stop(k.ctx, id); err != nil {
				return err
			}
			return k.done(id, "stopped")
		}),
	}
}

func interruptCommand() *ucli.Command {
	return &ucli.Command{
		Name:         "interrupt",
		Usage:        "stop a session's turn and cancel its tool calls",
		ArgsUsage:    "[ID]",
		Description:  "Examples:\n  tapctl sessions interrupt 3f2a --reason 'wrong branch'",
		Flags:        []ucli.Flag{&ucli.StringFlag{Name: "reason", Usage: "`WHY`, for the timeline"}},
		BashComplete: completeSession(),
		Action: short(1, func(k *call) error {
			id, err := k.session(k.Args().First())
			if err != nil {
				return err
			}
			if err := k.gw.Interrupt(k.ctx, id, k.String("reason")); err != nil {
				return err
			}
			return k.done(id, "interrupted")
		}),
	}
}

func foregroundCommand() *ucli.Command {
	return &ucli.Command{
		Name:         "foreground",
		Usage:        "make a session the one that providers are offered first",
		ArgsUsage:    "[ID]",
		Description:  "Examples:\n  tapctl sessions foreground 3f2a",
		BashComplete: completeSession(),
		Action: short(1, func(k *call) error {
			id, err := k.namedSession(k.Args().First())
			if err != nil {
				return err
			}
			if err := k.gw.Foreground(k.ctx, id); err != nil {
				return err
			}
			return k.done(id, "foreground is now")
		}),
	}
}
