package main

import (
	"io"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
)

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return cli.Run(newApp(), args, stdin, stdout, stderr)
}

func newApp() *ucli.App {
	return &ucli.App{
		Name:  "tapgw",
		Usage: "give agent sessions the tools and events of other processes",
		Description: `The gateway connects agent sessions (of the Copilot CLI, or local ones without a
model) with providers: processes that give the sessions tools and push events to them.
Both may change while a session runs. tapctl is the command that controls the gateway.

Exit codes: 0 done, 1 it ran and failed, 2 wrong usage, 3 no gateway runs, 4 not
found, 124 timed out.

Examples:
  tapgw demo
  tapgw serve
  tapgw ensure && tapctl sessions start --host local
  tapgw doctor`,
		Flags: []ucli.Flag{cli.ConfigFlag(), cli.WorkdirFlag(), cli.VerboseFlag()},
		Commands: []*ucli.Command{
			serveCommand(),
			ensureCommand(),
			stopCommand(),
			restartCommand(),
			logsCommand(),
			demoCommand(),
			demoProviderCommand(),
			serviceCommand(),
			doctorCommand(),
			clusterCommand(),
			newCommand(),
			configCommand(),
			trustCommand(),
			untrustCommand(),
			mcpCommand(),
			hookCommand(),
			terminalCommand(),
			installCommand(),
			uninstallCommand(),
		},
	}
}

// loadConfig finds the config files that apply and reads them.
func loadConfig(c *ucli.Context) (configs.Config, configs.Files, error) {
	dir, err := cli.Workdir(c)
	if err != nil {
		return configs.Config{}, configs.Files{}, err
	}
	return loadConfigOf(dir, c.String("config"))
}

// loadConfigOf is loadConfig for the values of --workdir and --config.
func loadConfigOf(dir, file string) (configs.Config, configs.Files, error) {
	files, err := configs.Find(dir, file)
	if err != nil {
		return configs.Config{}, files, err
	}
	config, err := files.Load()
	return config, files, err
}
