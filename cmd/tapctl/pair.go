package main

import (
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
)

func pairCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "pair",
		Usage: "show the pairing codes to type into providers",
		Description: `A provider without a token, a browser tab for example, asks to pair: type the code that
this shows into the provider. A code is good for two minutes and one try. The provider
then serves the session that is shown, and no other.

Examples:
  tapctl pair
  tapctl pair --json | jq -r '.[].code'`,
		Action: shortAction(0, func(c *command) error {
			pairings, err := c.gw.Pairings(c.ctx)
			if err != nil {
				return err
			}
			if c.out.JSON {
				return c.out.Document(list(pairings))
			}
			t := &cli.Table{Columns: []string{"PROVIDER", "CODE", "SESSION", "EXPIRES"}}
			for _, p := range pairings {
				t.Row(p.Provider, p.Code, p.Session, "in "+time.Until(p.ExpiresAt).Round(time.Second).String())
			}
			return c.out.Table(t, "no provider waits to be paired")
		}),
	}
}
