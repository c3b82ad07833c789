package main

import (
	"context"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/assembly"
	"tapgw/internal/cli"
)

// clusterCheckTimeout bounds all checks of tapgw cluster check.
const clusterCheckTimeout = 20 * time.Second

func clusterCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "cluster",
		Usage: "check how this gateway joins others",
		Description: `Examples:
  tapgw cluster check`,
		Subcommands: []*ucli.Command{{
			Name:  "check",
			Usage: "say what is reachable and what is allowed",
			Description: `Connects to each server of [cluster] in tapgw.toml as this gateway would, whether one
runs or not, and says which servers answer, what the NATS user may do, which gateways
are there, and who is admitted. Exit code 1 when a line is fail: this gateway could not
join then.

Examples:
  tapgw cluster check
  tapgw cluster check --json | jq '.[] | select(.status != "ok")'`,
			Action: checkCluster,
		}},
	}
}

func checkCluster(c *ucli.Context) error {
	if err := cli.MaxArgs(c, 0); err != nil {
		return err
	}
	config, files, err := loadConfig(c)
	if err != nil {
		return err
	}
	if !config.Cluster.Enabled() {
		file := files.User
		if file == "" {
			file = "tapgw.toml"
		}
		return cli.Failed(
			"%s has no urls in [cluster]: this gateway joins no others (docs/cluster.md)", file)
	}
	ctx, cancel := context.WithTimeout(c.Context, clusterCheckTimeout)
	defer cancel()
	return cli.Doctor(ctx, cli.Out(c), assembly.CheckCluster(ctx, config.Cluster))
}
