package main

import (
	"context"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/cli"
	"tapgw/internal/statedir"
)

const ensureTimeout = 20 * time.Second

func ensureCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "ensure",
		Usage: "start a gateway in the background if none runs, and print its URL",
		Description: `Any number of processes may run it at once: one gateway starts, and all print its
URL. The gateway ends when it has had no session, no provider and no admin request
for 30 seconds. It logs to gateway.log beside its token files.

Examples:
  tapgw ensure
  export TAP_GATEWAY_URL=$(tapgw ensure)`,
		Flags:  []ucli.Flag{listenFlag()},
		Action: ensure,
	}
}

func ensure(c *ucli.Context) error {
	g, err := ensureGateway(c)
	if err != nil {
		return err
	}
	out := cli.Out(c)
	if listen := c.String("listen"); c.IsSet("listen") && !isSameAddress(g.URL, listen) {
		out.Notef("tapgw: a gateway runs already, so --listen %s was not used", listen)
	}
	return printInfo(out, g)
}

// ensureGateway starts a gateway in the background if no gateway runs. The gateway ends by itself
// when it has no users left.
func ensureGateway(c *ucli.Context) (statedir.Info, error) {
	config, files, err := loadConfig(c)
	if err != nil {
		return statedir.Info{}, err
	}
	if err := override(c, &config); err != nil {
		return statedir.Info{}, err
	}
	ctx, cancel := context.WithTimeout(c.Context, ensureTimeout)
	defer cancel()
	// The gateway runs in another directory, but with the files that apply here.
	args := []string{"serve", "--on-demand", "--workdir=" + files.Workdir}
	if c.IsSet("listen") {
		args = append(args, "--listen="+c.String("listen"))
	}
	if named := c.String("config"); named != "" {
		args = append(args, "--config="+named)
	}
	return stateDir().Ensure(ctx, args)
}

// isSameAddress reports whether a gateway at url listens where listen asks it to.
func isSameAddress(url, listen string) bool {
	_, address, _ := strings.Cut(url, "://")
	return address == listen || strings.HasSuffix(listen, ":0") ||
		strings.HasSuffix(address, listen[strings.LastIndexByte(listen, ':'):])
}
