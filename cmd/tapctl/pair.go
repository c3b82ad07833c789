package main

import (
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
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
		Action: shortAction(0, pairingResource.print),
	}
}

var pairingResource = resource[adminapi.Pairing]{
	list:    func(c *command) ([]adminapi.Pairing, error) { return c.gw.Pairings(c.ctx) },
	columns: []string{"PROVIDER", "CODE", "SESSION", "EXPIRES"},
	row: func(p adminapi.Pairing) []any {
		expires := "in " + time.Until(p.ExpiresAt).Round(time.Second).String()
		return []any{p.Provider, p.Code, p.Session, expires}
	},
	empty: always("no provider waits to be paired"),
}
