package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/copilot"
	"tapgw/internal/daemon"
	"tapgw/internal/gateway"
	"tapgw/internal/scriptmodel"
)

const (
	// stepTime is how long a step of the demo may take, bootTime how long the
	// start of a runtime: a full CLI unpacks itself at its first.
	stepTime = 60 * time.Second
	bootTime = time.Minute
)

func demoCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "demo",
		Usage: "show the whole of it: a session, a tool of another process, an event",
		Description: `Runs a gateway on a free port with a home of its own, a scripted model endpoint, a
session and a sample provider in another process. Each line is checked: with a
Copilot session against what the model endpoint received, else against the local
session's own state. Nothing leaves this machine and no account is needed. All is
gone in the end, unless --keep leaves it up until Ctrl-C.

Examples:
  tapgw demo
  tapgw demo --host local
  tapgw demo --keep`,
		Flags: []ucli.Flag{
			&ucli.StringFlag{Name: "host", Usage: "`auto|copilot|local`: what runs the session; auto: copilot where its runtime is found", Value: "auto"},
			&ucli.BoolFlag{Name: "keep", Usage: "leave it up, and say what to try next"},
		},
		Action: func(c *ucli.Context) error {
			host, err := cli.OneOf(c, "host", "auto", copilot.Kind, gateway.HostLocal)
			if err != nil {
				return err
			}
			d := &demo{out: cli.Out(c)}
			d.log = slog.New(slog.DiscardHandler)
			if d.out.Verbose {
				d.log = newLogger(c.App.ErrWriter, slog.LevelDebug)
			}
			config, _, err := loadConfig(c)
			if err != nil {
				return err
			}
			defer d.close()
			if err := d.start(c.Context, host, config.Copilot.CLI); err != nil {
				return err
			}
			if err := d.run(c.Context); err != nil {
				return err
			}
			if c.Bool("keep") {
				return d.stay(c.Context)
			}
			return nil
		},
	}
}

// demo is what runs while the demo does.
type demo struct {
	out *cli.Output
	log *slog.Logger

	home     string // temporary; everything lies in it
	gateway  *gatewayProcess
	model    *scriptmodel.Server
	session  *gateway.Session
	provider *demoProvider
	token    string // of providers for the session
	stage    stage
	leftOut  string // why there is no Copilot session, "" if there is one
}

// demoStep is a step as --json shows it.
type demoStep struct {
	Step       string `json:"step"`
	Status     string `json:"status"`
	Detail     string `json:"detail"`
	DurationMs int64  `json:"durationMs"`
}

// step does one step and shows it; detail says what was seen.
func (d *demo) step(ctx context.Context, name string, limit time.Duration, do func(context.Context) (detail string, err error)) error {
	begin := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it did not come in %v", limit))
	defer cancel()
	detail, err := do(ctx)
	if err != nil && ctx.Err() != nil {
		// What it was waiting for says more than that the time is over.
		err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	s := demoStep{Step: name, Status: "ok", Detail: detail, DurationMs: time.Since(begin).Milliseconds()}
	mark := d.out.Paint(cli.Green, "✓")
	if err != nil {
		s.Status, s.Detail, mark = "fail", err.Error(), d.out.Paint(cli.Red, "✗")
	}
	if d.out.JSON {
		if werr := d.out.Line(s); werr != nil {
			return werr
		}
	} else if werr := d.out.Printf("%s %s: %s\n", mark, name, s.Detail); werr != nil {
		return werr
	}
	if err == nil {
		return nil
	}
	if d.out.JSON {
		return cli.Reported(cli.ExitFailed)
	}
	if tail := d.provider.tail(); tail != "" {
		err = fmt.Errorf("%w; the provider said: %s", err, tail)
	}
	return cli.Failed("the demo failed at %q: %v", name, err)
}

// start brings up everything but the provider.
func (d *demo) start(ctx context.Context, host, runtime string) error {
	found, err := copilot.Find(runtime)
	switch {
	case host == gateway.HostLocal:
		d.leftOut = "as you asked"
	case err != nil && host == copilot.Kind:
		return fmt.Errorf("finding a runtime for --host copilot: %w", err)
	case err != nil:
		d.leftOut = err.Error()
	}
	if d.home, err = os.MkdirTemp("", "tapgw-demo-"); err != nil {
		return fmt.Errorf("making a temporary home: %w", err)
	}
	config := configs.Default()
	config.Listen = "127.0.0.1:0"
	config.Copilot.CLI = runtime
	if d.leftOut == "" {
		if err := d.startModel(ctx); err != nil {
			return err
		}
		config.Copilot.ProviderURL = d.model.URL
	}
	err = d.step(ctx, "gateway", stepTime, func(ctx context.Context) (string, error) {
		d.gateway, err = startGateway(ctx, gatewayOptions{config: config, home: d.home, key: "no-key-needed", log: d.log})
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("listens at %s, its home is %s", d.gateway.info.URL, d.home), nil
	})
	if err != nil {
		return err
	}
	if d.leftOut != "" {
		return d.startLocal(ctx)
	}
	return d.startCopilot(ctx, found)
}

func (d *demo) startModel(ctx context.Context) error {
	return d.step(ctx, "model endpoint", stepTime, func(context.Context) (detail string, err error) {
		if d.model, err = scriptmodel.Start("127.0.0.1:0", scriptmodel.Calls); err != nil {
			return "", err
		}
		return "a script at " + d.model.URL + " stands in for the model", nil
	})
}

func (d *demo) startCopilot(ctx context.Context, found copilot.Found) error {
	return d.step(ctx, "session", bootTime, func(ctx context.Context) (string, error) {
		if err := d.startSession(ctx, gateway.StartRequest{Host: copilot.Kind, Model: scriptmodel.ModelID, Label: "demo"}); err != nil {
			return "", err
		}
		d.stage = &copilotStage{session: d.session, model: d.model}
		st, err := d.gateway.runtime.Probe(ctx)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("a Copilot session runs in Copilot CLI %s (%s)", st.Version, found.Path), nil
	})
}

func (d *demo) startLocal(ctx context.Context) error {
	return d.step(ctx, "session", stepTime, func(ctx context.Context) (string, error) {
		if err := d.startSession(ctx, gateway.StartRequest{Host: gateway.HostLocal, Label: "demo"}); err != nil {
			return "", err
		}
		d.stage = &localStage{session: d.session}
		return "a local session without a model; left out are the Copilot runtime and its model: " + d.leftOut, nil
	})
}

func (d *demo) startSession(ctx context.Context, r gateway.StartRequest) (err error) {
	r.CWD = filepath.Join(d.home, "work")
	if err := os.Mkdir(r.CWD, 0o700); err != nil {
		return fmt.Errorf("making the session's directory: %w", err)
	}
	d.session, err = d.gateway.gateway.Start(ctx, r)
	return err
}

// startProvider starts the sample provider and waits until the session has its
// tool.
func (d *demo) startProvider(ctx context.Context) (string, error) {
	if d.token == "" { // the next one of the name is the same provider by it
		d.token = d.gateway.gateway.IssueSpawnToken(d.session.ID())
	}
	err := d.changeTools(ctx, func() (err error) {
		d.provider, err = startDemoProvider(d.gateway.info.URL, d.token)
		return err
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("process %d connected and gave the session the tool %s", d.provider.PID(), demoTool), nil
}

// changeTools does what changes the session's tools, and returns when the
// session's host has the new list.
func (d *demo) changeTools(ctx context.Context, do func() error) error {
	refreshes := &d.gateway.gateway.Stats().Refreshes
	before := refreshes.Load()
	if err := do(); err != nil {
		return err
	}
	if err := daemon.Poll(ctx, func() bool { return refreshes.Load() > before }); err != nil {
		return fmt.Errorf("waiting for the session to take its tools: %w", err)
	}
	return nil
}

// run is the demo itself.
func (d *demo) run(ctx context.Context) error {
	steps := []struct {
		name string
		do   func(context.Context) (string, error)
	}{
		{"provider", d.startProvider},
		{"tool listed", func(ctx context.Context) (string, error) {
			if err := d.stage.ask(ctx, demoPrompt); err != nil {
				return "", err
			}
			return d.stage.listed(ctx, demoTool)
		}},
		{"tool called", func(ctx context.Context) (string, error) { return d.stage.called(ctx, demoTool) }},
		{"result", func(ctx context.Context) (string, error) {
			return d.stage.result(ctx, fmt.Sprintf("process %d", d.provider.PID()))
		}},
		{"timeline", d.surface},
		{"push", func(ctx context.Context) (string, error) {
			if err := d.provider.tell(demoInject); err != nil {
				return "", err
			}
			return d.stage.woken(ctx, demoEvent)
		}},
		{"tools.update", func(ctx context.Context) (string, error) {
			if err := d.changeTools(ctx, func() error { return d.provider.tell(demoUpdate) }); err != nil {
				return "", err
			}
			return d.stage.changed(ctx, "which tools are there now?", demoTool, demoMore)
		}},
		{"provider leaves", func(ctx context.Context) (string, error) {
			if err := d.changeTools(ctx, d.provider.leave); err != nil {
				return "", err
			}
			return d.stage.changed(ctx, "and now?")
		}},
	}
	for _, s := range steps {
		if err := d.step(ctx, s.name, stepTime, s.do); err != nil {
			return err
		}
	}
	if !d.out.JSON {
		return d.out.Printf("That is all: a tool of another process in a running session, and an event that woke it.\n")
	}
	return nil
}

// surface waits until an event is in the session's timeline.
func (d *demo) surface(ctx context.Context) (string, error) {
	var after uint64
	if err := d.provider.tell(demoSurface); err != nil {
		return "", err
	}
	for {
		lines, next := d.session.Timeline(after)
		for _, l := range lines {
			if strings.Contains(l.Message, demoNews) {
				return fmt.Sprintf("shows the provider's event %q", demoNews), nil
			}
		}
		after = next
		if err := d.session.WaitTimeline(ctx, after); err != nil {
			return "", fmt.Errorf("the timeline does not show %q: %w", demoNews, err)
		}
	}
}

// stay keeps all up until the user has enough.
func (d *demo) stay(ctx context.Context) error {
	if err := d.step(ctx, "provider", stepTime, d.startProvider); err != nil {
		return err
	}
	if !d.out.JSON {
		err := d.out.Printf(`
It stays up until Ctrl-C. In another terminal:

  export COPILOT_HOME=%s
  tapctl status
  tapctl sessions query '%s'
  tapctl tools call %s --args '{"city":"Bergen"}'
  tapctl push --level inject 'the build is broken'
  tapctl sessions log --follow
`, d.home, demoPrompt, demoTool)
		if err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-d.gateway.served:
		return fmt.Errorf("serving %s: %w", d.gateway.info.URL, err)
	}
}

// close ends all that was started and removes the home.
func (d *demo) close() {
	d.provider.stop()
	if d.gateway != nil {
		d.gateway.stop()
	}
	if d.model != nil {
		d.model.Close()
	}
	if d.home != "" {
		if err := os.RemoveAll(d.home); err != nil {
			_, _ = io.WriteString(d.out.Err, "tapgw: removing the demo's home: "+err.Error()+"\n")
		}
	}
}
