package main

import (
	"os"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/assembly"
	"tapgw/internal/cli"
	"tapgw/internal/daemon"
	"tapgw/internal/statedir"
)

// onDemandGrace is how long a gateway of tapgw ensure stays without a session, a provider
// and an admin request.
const onDemandGrace = 30 * time.Second

func serveCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "serve",
		Usage: "run the gateway in the foreground",
		Description: `It prints the gateway's URL on stdout when it is ready, and logs to stderr only: text
on a terminal, JSON otherwise. While it runs, its tokens and gateway.json are in
extensions/tap below COPILOT_HOME (default ~/.copilot). Each COPILOT_HOME has one
gateway.

It runs the providers that provider files name, and reads these files and tapgw.toml
again when they change, at SIGHUP and at tapctl reload. Some keys, such as listen,
change at the next start only: the log and tapctl status name them.

SIGINT and SIGTERM end it: sessions and providers have 10 seconds to end, and it exits
0 within 15. A second signal ends it at once, with exit code 1.

Examples:
  tapgw serve
  tapgw serve --listen 127.0.0.1:0
  TAP_MODEL_KEY=... tapgw serve --provider-url http://127.0.0.1:8080/v1`,
		Flags: []ucli.Flag{
			listenFlag(),
			&ucli.StringFlag{Name: "log-level", Usage: "`debug|info|warn|error`: what to log"},
			&ucli.StringFlag{Name: "provider-url",
				Usage: "`URL` of a model endpoint of your own (OpenAI wire)"},
			&ucli.StringFlag{Name: "provider-key-env",
				Usage: "the environment `VARIABLE` that holds its key"},
			&ucli.BoolFlag{
				Name:   "on-demand",
				Hidden: true,
				Usage:  "end when no session, provider or admin request is left",
			},
			// The variable is for tests: a gateway that `ensure` starts inherits it.
			&ucli.DurationFlag{
				Name: "grace", Hidden: true, Usage: "`TIME` that on-demand waits before it ends",
				Value: onDemandGrace, EnvVars: []string{"TAPGW_GRACE"},
			},
		},
		Action: serve,
	}
}

func listenFlag() ucli.Flag {
	return &ucli.StringFlag{
		Name:  "listen",
		Usage: "listen on `ADDR`, host:port (default: 127.0.0.1:9400; port 0 picks a free one)",
	}
}

func serve(c *ucli.Context) error {
	out, onDemand := cli.Out(c), c.Bool("on-demand")
	s := assembly.Service{
		Options: func() (assembly.Options, error) {
			o, err := assembly.Configured(c.App.ErrWriter,
				func() (configs.Config, configs.Files, error) { return loadConfig(c) },
				func(config *configs.Config) error { return override(c, config) })
			if onDemand {
				o.Args = os.Args[1:]
			}
			return o, err
		},
		Ready: func(g statedir.Info) error { return printInfo(out, g) },
	}
	if onDemand { // stdout is the gateway's log
		s.Ready, s.Grace = nil, max(c.Duration("grace"), 1)
	}
	return assembly.Serve(c.Context, s)
}

// stateDir is the state directory of this user's COPILOT_HOME.
func stateDir() daemon.Dir { return daemon.Dir(configs.StateDir()) }

// printInfo prints the gateway's URL, or with --json the content of gateway.json, on stdout.
func printInfo(out *cli.Output, g statedir.Info) error {
	g.Args = nil // internal
	if out.JSON {
		return out.Line(g)
	}
	return out.Printf("%s\n", g.URL)
}

// override puts the flags' values into a config. It checks them as the file's values are
// checked.
func override(c *ucli.Context, config *configs.Config) error {
	if c.IsSet("listen") {
		config.Listen = c.String("listen")
	}
	if err := configs.CheckListen(*config); err != nil {
		return cli.Usage("flag --listen: %v", err)
	}
	level, err := cli.OneOf(c, "log-level", "debug", "info", "warn", "error")
	if err != nil {
		return err
	}
	switch {
	case level != "":
		config.LogLevel = level
	case c.Bool("verbose"):
		config.LogLevel = "debug"
	}
	if c.IsSet("provider-url") {
		config.Copilot.ProviderURL = c.String("provider-url")
		if err := configs.CheckProviderURL(config.Copilot.ProviderURL); err != nil {
			return cli.Usage("flag --provider-url: %v", err)
		}
	}
	if c.IsSet("provider-key-env") {
		config.Copilot.ProviderKeyEnv = c.String("provider-key-env")
		if err := configs.CheckKeyEnv(config.Copilot.ProviderKeyEnv); err != nil {
			return cli.Usage("flag --provider-key-env: %v", err)
		}
	}
	if c.IsSet("provider-url") || c.IsSet("provider-key-env") {
		config.Copilot.UseEndpoint(config.Copilot.ProviderURL, config.Copilot.ProviderKeyEnv)
	}
	return nil
}
