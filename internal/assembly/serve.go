package assembly

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/secrets"
	"tapgw/internal/service"
	"tapgw/internal/statedir"
)

// Serve runs a gateway as a process, from its log to its end.

// Service says how [Serve] runs a gateway.
type Service struct {
	// Options returns the options of the gateway. Serve calls it once it handles signals.
	Options func() (Options, error)
	// Ready is called when the gateway is ready, before the service manager is told. It may be nil.
	Ready func(statedir.Info) error
	// Grace ends a gateway that has been without users for that long. With 0 it runs until it is
	// told to end.
	Grace time.Duration
}

// Serve runs a gateway until a signal, the admin API or its disuse ends it. SIGHUP makes it read
// its files again. A second signal ends it at once, with an error.
func Serve(ctx context.Context, s Service) error {
	// This process handles both signals from here on, so that a second one does not kill it
	// while its files exist.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	o, err := s.Options()
	if err != nil {
		return err
	}
	manager := service.NewNotifier(o.Log)
	p, err := Start(ctx, o)
	if err != nil {
		return err
	}
	o.Log.Info("gateway ready", "url", p.info.URL, "pid", p.info.PID, "version", p.info.Version)
	if s.Ready != nil {
		if err := s.Ready(p.info); err != nil {
			p.Stop()
			return err
		}
	}
	manager.Notify(service.Ready, "STATUS=listening at "+p.info.URL)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go releaseMemory(ctx)
	var idle <-chan struct{}
	if s.Grace > 0 {
		idle = watchIdle(ctx, s.Grace, p.gateway.InUse, p.server.LastActivity)
	}
	err = p.waitForEnd(manager, signals, hangups, idle)
	manager.Notify(service.Stopping)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Stop()
	}()
	select {
	case <-ended:
		return err
	case <-signals:
		p.cleanUp()
		return cli.Failed(
			"second signal: ended at once, without waiting for sessions and providers")
	}
}

// waitForEnd reloads the files at each hangup, until a signal or a request to end comes, idle is
// closed, or the server ends, which is an error.
func (p *Process) waitForEnd(
	manager service.Notifier, signals, hangups <-chan os.Signal, idle <-chan struct{},
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

// Configured returns the options of a gateway that follows its config files. load reads the files,
// and override puts the command line's values into each config that is read. The gateway logs to w.
func Configured(
	w io.Writer, load func() (configs.Config, configs.Files, error),
	override func(*configs.Config) error,
) (Options, error) {
	loadOver := func() (configs.Config, configs.Files, error) {
		config, files, err := load()
		if err == nil {
			err = override(&config)
		}
		return config, files, err
	}
	config, files, err := loadOver()
	if err != nil {
		return Options{}, err
	}
	o := Options{Config: config, Files: files, Home: configs.Home(), Load: loadOver,
		Level: new(slog.LevelVar)}
	o.LoadAt = func(dir string) (configs.Config, string, error) {
		config, project, err := files.LoadAt(dir)
		if err == nil {
			err = override(&config)
		}
		return config, project, err
	}
	_ = o.Level.UnmarshalText([]byte(config.LogLevel)) // override has checked it
	o.Log = NewLogger(w, o.Level)
	if config.Copilot.ProviderURL != "" {
		o.Key = modelKey(config, o.Log)
	}
	warnOpenAPI(config, o.Log)
	if files.User != "" {
		o.Log.Info("config file read", "file", files.User)
	}
	return o, nil
}

// NewLogger logs text to a terminal and JSON to anything else. It replaces secrets by the rule of
// records: a text that a provider or the runtime wrote may have one.
func NewLogger(w io.Writer, level slog.Leveler) *slog.Logger {
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
