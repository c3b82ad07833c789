package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/daemon"
	"tapgw/internal/secrets"
	"tapgw/internal/service"
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
			&ucli.StringFlag{Name: "provider-url", Usage: "`URL` of a model endpoint of your own (OpenAI wire)"},
			&ucli.StringFlag{Name: "provider-key-env", Usage: "the environment `VARIABLE` that holds its key"},
			&ucli.BoolFlag{
				Name:   "on-demand",
				Hidden: true,
				Usage:  "end when no session, provider or admin request is left",
			},
			// The variable is for tests: it reaches what `ensure` starts.
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
		Name: "listen", Usage: "listen on `ADDR`, host:port (default: 127.0.0.1:9400; port 0 picks a free one)",
	}
}

func serve(c *ucli.Context) error {
	// This process handles both signals from here on, so that a second one does not kill it
	// while its files exist.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercentQuiet)
	}

	o, err := serveOptions(c)
	if err != nil {
		return err
	}
	manager := service.NewNotifier(o.log)
	p, err := startGateway(c.Context, o)
	if err != nil {
		return err
	}
	o.log.Info("gateway ready", "url", p.info.URL, "pid", p.info.PID, "version", p.info.Version)
	onDemand := c.Bool("on-demand")
	if !onDemand { // whose stdout is its log
		if err := printInfo(cli.Out(c), p.info); err != nil {
			p.stop()
			return err
		}
	}
	manager.Notify(service.Ready, "STATUS=listening at "+p.info.URL)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go releaseMemory(ctx, p.gateway.Stats().Calls.Load)
	var idle <-chan struct{}
	if onDemand {
		idle = watchIdle(ctx, c.Duration("grace"), p.gateway.InUse, p.server.LastActivity)
	}
	err = waitForEnd(p, manager, signals, hangups, idle)
	manager.Notify(service.Stopping)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.stop()
	}()
	select {
	case <-ended:
		return err
	case <-signals:
		p.cleanUp()
		return cli.Failed("second signal: ended at once, without waiting for sessions and providers")
	}
}

// waitForEnd reloads the files at each hangup, until a signal or a request to end comes, idle is closed, or the
// server ends, which is an error.
func waitForEnd(
	p *gatewayProcess, manager service.Notifier, signals, hangups <-chan os.Signal, idle <-chan struct{},
) error {
	for {
		select {
		case <-hangups:
			manager.Notify(service.Reloading)
			p.reload()
			manager.Notify(service.Ready)
			p.log.Info("files read again", "signal", "hangup")
		case s := <-signals:
			p.log.Info("shutting down", "signal", s.String())
			return nil
		case <-p.asked:
			p.log.Info("shutting down: asked by the admin API")
			return nil
		case <-idle:
			p.log.Info("shutting down: no session, provider or admin request for the grace period")
			return nil
		case err := <-p.served:
			return fmt.Errorf("serving %s: %w", p.info.URL, err)
		}
	}
}

// stateDir is the state directory of this user's COPILOT_HOME.
func stateDir() daemon.Dir { return daemon.Dir(configs.StateDir()) }

// printInfo prints the gateway's URL, or with --json what gateway.json has, on stdout.
func printInfo(out *cli.Output, g statedir.Info) error {
	g.Args = nil // internal
	if out.JSON {
		return out.Line(g)
	}
	return out.Printf("%s\n", g.URL)
}

// serveOptions merges flags, environment and config files.
func serveOptions(c *ucli.Context) (gatewayOptions, error) {
	load := func() (configs.Config, configs.Files, error) {
		config, files, err := loadConfig(c)
		if err == nil {
			err = override(c, &config)
		}
		return config, files, err
	}
	config, files, err := load()
	if err != nil {
		return gatewayOptions{}, err
	}
	loadAt := func(dir string) (configs.Config, string, error) {
		config, project, err := files.LoadAt(dir)
		if err == nil {
			err = override(c, &config)
		}
		return config, project, err
	}
	o := gatewayOptions{
		config: config, files: files, load: load, loadAt: loadAt, home: configs.Home(), level: new(slog.LevelVar),
	}
	if c.Bool("on-demand") {
		o.args = os.Args[1:]
	}
	_ = o.level.UnmarshalText([]byte(config.LogLevel)) // override has checked it
	log := newLogger(c.App.ErrWriter, o.level)
	o.log = log
	if config.Copilot.ProviderURL != "" {
		o.key = modelKey(config, log)
	}
	warnOpenAPI(config, log)
	if files.User != "" {
		log.Info("config file read", "file", files.User)
	}
	return o, nil
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

// newLogger logs text to a terminal and JSON to anything else. It replaces secrets by the rule of
// records: a text that a provider or the runtime wrote may have one.
func newLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if kind := a.Value.Kind(); kind == slog.KindString || kind == slog.KindAny {
			text := a.Value.String()
			if clean := secrets.RedactMember(a.Key, text); clean != text {
				return slog.String(a.Key, clean)
			}
		}
		return a
	}}
	if cli.Terminal(w) {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

// watchIdle returns a channel that is closed when the gateway was not in use for the grace
// period: no session, no provider, no admin request. The period begins now at the earliest.
func watchIdle(
	ctx context.Context, grace time.Duration, inUse func() bool, lastRequest func() time.Time,
) <-chan struct{} {
	idle := make(chan struct{})
	go func() {
		tick := time.NewTicker(max(min(grace/10, time.Second), time.Millisecond))
		defer tick.Stop()
		lastUse, wasInUse := time.Now(), false
		for {
			select {
			case now := <-tick.C:
				isInUse := inUse()
				if isInUse || wasInUse {
					lastUse = now
				}
				wasInUse = isInUse
				if last := lastRequest(); last.After(lastUse) {
					lastUse = last
				}
				if now.Sub(lastUse) >= grace {
					close(idle)
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return idle
}
