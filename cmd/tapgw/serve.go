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
)

// onDemandGrace is how long a gateway that was started on demand stays with
// nobody left.
const onDemandGrace = 30 * time.Second

// gcPercent lets the heap grow further between collections than Go's default of
// 100: ours is a few megabytes, which a busy gateway would collect hundreds of
// times a second.
const gcPercent = 300

func serveCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "serve",
		Usage: "run the gateway in the foreground",
		Description: `Prints the gateway's URL on stdout when it is ready, and logs to stderr and nowhere
else: text on a terminal, JSON otherwise. Its tokens and gateway.json lie in extensions/tap below
COPILOT_HOME (default ~/.copilot) while it runs; there is one gateway for each such
directory.

It keeps running what provider files name, and follows changes of these and of
tapgw.toml; SIGHUP and tapctl reload read them at once. What counts at start only,
such as listen, is named in the log and by tapctl status.

SIGINT and SIGTERM end it: sessions and providers are told and have 10 seconds, and
it exits 0 within 15. A second signal ends it at once, with exit code 1.

Examples:
  tapgw serve
  tapgw serve --listen 127.0.0.1:0
  TAP_MODEL_KEY=... tapgw serve --provider-url http://127.0.0.1:8080/v1`,
		Flags: []ucli.Flag{
			listenFlag(),
			&ucli.StringFlag{Name: "log-level", Usage: "`debug|info|warn|error`: what to log"},
			&ucli.StringFlag{Name: "provider-url", Usage: "`URL` of a model endpoint of your own (OpenAI wire)"},
			&ucli.StringFlag{Name: "provider-key-env", Usage: "the environment `VARIABLE` that holds its key"},
			&ucli.BoolFlag{Name: "on-demand", Hidden: true, Usage: "leave when there is nobody left"},
			// The variable is for tests: it reaches what `ensure` starts.
			&ucli.DurationFlag{Name: "grace", Hidden: true, Usage: "`TIME` to stay with nobody left", Value: onDemandGrace, EnvVars: []string{"TAPGW_GRACE"}},
		},
		Action: serve,
	}
}

func listenFlag() ucli.Flag {
	return &ucli.StringFlag{Name: "listen", Usage: "listen on `ADDR`, host:port (default: 127.0.0.1:9400; port 0 picks a free one)"}
}

func serve(c *ucli.Context) error {
	// From here on both signals are ours: the second must not kill us while
	// our files are there.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}

	o, err := serveOptions(c)
	if err != nil {
		return err
	}
	manager := newNotifier(o.log)
	d, err := startDaemon(c.Context, o)
	if err != nil {
		return err
	}
	o.log.Info("gateway ready", "url", d.info.URL, "pid", d.info.PID, "version", d.info.Version)
	if !c.Bool("on-demand") { // then it prints into its log
		if err := announce(cli.Out(c), d.info); err != nil {
			d.stop()
			return err
		}
	}
	manager.tell(notifyReady, "STATUS=listening at "+d.info.URL)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go giveBack(ctx)
	var idle <-chan struct{}
	if c.Bool("on-demand") {
		idle = deserted(ctx, c.Duration("grace"), d.gateway.InUse, d.server.LastActivity)
	}
	var failed error
	for on := true; on; {
		on = false
		select {
		case <-hangups:
			manager.tell(notifyReloading)
			d.reload()
			manager.tell(notifyReady)
			o.log.Info("files read again", "signal", "hangup")
			on = true
		case s := <-signals:
			o.log.Info("shutting down", "signal", s.String())
		case <-idle:
			o.log.Info("shutting down: nobody is left")
		case err := <-d.served:
			failed = fmt.Errorf("serving %s: %w", d.info.URL, err)
		}
	}
	manager.tell(notifyStopping)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.stop()
	}()
	select {
	case <-ended:
		return failed
	case <-signals:
		d.cleanUp()
		return cli.Failed("second signal: left at once, without waiting for sessions and providers")
	}
}

// announce prints where the gateway is, alone on stdout.
func announce(out *cli.Output, g gatewayInfo) error {
	g.Args = nil // for us
	if out.JSON {
		return out.Line(g)
	}
	return out.Printf("%s\n", g.URL)
}

// serveOptions puts flags, environment and config file together.
func serveOptions(c *ucli.Context) (daemonOptions, error) {
	load := func() (configs.Config, configs.Files, error) {
		config, files, err := loadConfig(c)
		if err == nil {
			err = override(c, &config)
		}
		return config, files, err
	}
	config, files, err := load()
	if err != nil {
		return daemonOptions{}, err
	}
	loadAt := func(dir string) (configs.Config, string, error) {
		config, project, err := files.LoadAt(dir)
		if err == nil {
			err = override(c, &config)
		}
		return config, project, err
	}
	o := daemonOptions{config: config, files: files, load: load, loadAt: loadAt, home: configs.Home(), level: new(slog.LevelVar)}
	if c.Bool("on-demand") {
		o.args = os.Args[1:]
	}
	_ = o.level.UnmarshalText([]byte(config.LogLevel)) // checked before
	log := newLogger(c.App.ErrWriter, o.level)
	o.log = log
	if config.Copilot.ProviderURL != "" {
		o.key = modelKey(config, log)
	}
	warnOpen(config, log)
	if files.User != "" {
		log.Info("config file read", "file", files.User)
	}
	return o, nil
}

// override puts the flags' values into a config, checked as the file's are.
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

// newLogger logs text to a terminal and JSON to anything else.
func newLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	o := &slog.HandlerOptions{Level: level}
	if cli.Terminal(w) {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

// deserted returns a channel that is closed when nobody has used the gateway for
// the grace period: no session, no provider, no admin request. The period counts
// from now at the earliest.
func deserted(ctx context.Context, grace time.Duration, inUse func() bool, lastRequest func() time.Time) <-chan struct{} {
	left := make(chan struct{})
	go func() {
		tick := time.NewTicker(max(min(grace/10, time.Second), time.Millisecond))
		defer tick.Stop()
		used, was := time.Now(), false
		for {
			select {
			case now := <-tick.C:
				is := inUse()
				if is || was {
					used = now
				}
				was = is
				if last := lastRequest(); last.After(used) {
					used = last
				}
				if now.Sub(used) >= grace {
					close(left)
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return left
}
