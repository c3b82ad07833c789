package main

import (
	"strconv"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
)

func modelsCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "models",
		Usage: "list the models that sessions can use",
		Description: `EFFORTS are the values of sessions start --effort that the model knows; its default has
a star. MULTIPLIER is the cost of a request, in premium requests.

Examples:
  tapctl models
  tapctl models --json | jq -r '.[].id'`,
		Flags: []ucli.Flag{
			&ucli.StringFlag{Name: "host", Usage: "`local|copilot`: the kind of session",
				Value: "copilot"},
		},
		Action: shortAction(0, modelResource.print),
	}
}

var modelResource = resource[adminapi.Model]{
	list: func(c *command) ([]adminapi.Model, error) {
		host, err := cli.OneOf(c.Context, "host", "local", "copilot")
		if err != nil {
			return nil, err
		}
		return c.gw.Models(c.ctx, host)
	},
	columns: []string{"ID", "NAME", "MULTIPLIER", "EFFORTS", "CONTEXT", "VISION", "POLICY"},
	row: func(m adminapi.Model) []any {
		return []any{m.ID, m.Name, strconv.FormatFloat(m.Multiplier, 'g', -1, 64), efforts(m),
			tokens(m.MaxContextTokens), map[bool]string{true: "yes"}[m.Vision], m.Policy}
	},
	empty: always("no models; is Copilot signed in? see: tapgw doctor"),
}

// efforts lists the efforts that a model knows, its default with a star.
func efforts(m adminapi.Model) string {
	words := make([]string, len(m.Efforts))
	for i, e := range m.Efforts {
		if words[i] = e; e == m.DefaultEffort {
			words[i] += "*"
		}
	}
	return strings.Join(words, " ")
}

// tokens returns a number of tokens as text for people, "" for 0.
func tokens(n int) string {
	switch {
	case n == 0:
		return ""
	case n < 1000:
		return strconv.Itoa(n)
	}
	return strconv.Itoa(n/1000) + "k"
}
