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
	// stepTimeout bounds a step of the demo. A full Copilot CLI unpacks itself at its first
	// start.
	stepTimeout = time.Minute
)

func demoCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "demo",
		Usage: "show a session with a tool of another process, and an event that wakes it",
		Description: `It runs a gateway on a free port with a temporary home, a scripted model endpoint, a
session, and a sample provider in another process. It checks each line that it
prints: with a Copilot session against the requests that the model endpoint received,
else against the local session's state. Nothing leaves this machine, and no account
is needed. At the end it removes everything; with --keep, it runs on until Ctrl-C.

Examples:
  tapgw demo
  tapgw demo --host local
  tapgw demo --keep`,
		Flags: []ucli.Flag{
			&ucli.StringFlag{
				Name: "host", Value: "auto",
				Usage: "`auto|copilot|local`: the session's host; auto is copilot if its runtime is found",
			},
			&ucli.BoolFlag{Name: "keep", Usage: "run on after the demo, and print commands to try"},
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
				return d.keep(c.Context)
			}
			return nil
		},
	}
}

// demo has the parts that run during the demo.
type demo struct {
	out *cli.Output
	log *slog.Logger

	home     string // a temporary directory with all files of the demo
	gateway  *gatewayProcess
	model    *scriptmodel.Server
	session  *gateway.Session
	provider *demoProvider
	token    string // of providers for the session
	stage    stage
	whyLocal string // the reason for a local session, "" for a Copilot session
}

// demoStep is a step as --json shows it.
type demoStep struct {
	Step       string `json:"step"`
	Status     string `json:"status"`
	Detail     string `json:"detail"`
	DurationMs int64  `json:"durationMs"`
}

// step does one step and prints its result.
func (d *demo) step(ctx context.Context, name string, do func(context.Context) (result string, err error)) error {
	begin := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, stepTimeout, fmt.Errorf("it did not come in %v", stepTimeout))
	defer cancel()
	detail, err := do(ctx)
	if err != nil && ctx.Err() != nil {
		// The cause names the time, and err what the step was waiting for.
		err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	s := demoStep{Step: name, Status: "ok", Detail: detail, DurationMs: time.Since(begin).Milliseconds()}
	mark := d.out.Paint(cli.Green, "✓")
	if err != nil {
		s.Status, s.Detail, mark = "fail", err.Error(), d.out.Paint(cli.Red, "✗")
	}
	if d.out.JSON {
		if writeErr := d.out.Line(s); writeErr != nil {
			return writeErr
		}
	} else if writeErr := d.out.Printf("%s %s: %s\n", mark, name, s.Detail); writeErr != nil {
		return writeErr
	}
	if err == nil {
		return nil
	}
	if d.out.JSON {
		return cli.Reported(cli.ExitFailed)
	}
	if tail := d.provider.tail(); tail != "" {
		err = fmt.Errorf("%w; the provider printed: %s", err, tail)
	}
	return cli.Failed("the demo failed at %q: %v", name, err)
}

// start starts everything but the provider.
func (d *demo) start(ctx context.Context, host, runtime string) error {
	found, err := copilot.Find(runtime)
	switch {
	case host == gateway.HostLocal:
		d.whyLocal = "--host local"
	case err != nil && host == copilot.Kind:
		return fmt.Errorf("finding a runtime for --host copilot: %w", err)
	case err != nil:
		d.whyLocal = err.Error()
	}
	if d.home, err = os.MkdirTemp("", "tapgw-demo-"); err != nil {
		return fmt.Errorf("making a temporary home: %w", err)
	}
	config := configs.Default()
	config.Listen = "127.0.0.1:0"
	config.Tap.Tools = false // it shows what one provider brings
	config.Copilot.CLI = runtime
	if d.whyLocal == "" {
		if err := d.startModel(ctx); err != nil {
			return err
		}
		config.Copilot.ProviderURL = d.model.URL
	}
	err = d.step(ctx, "gateway", func(ctx context.Context) (string, error) {
		o := gatewayOptions{config: config, home: d.home, key: "no-key-needed", log: d.log}
		d.gateway, err = startGateway(ctx, o)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("listens at %s, its home is %s", d.gateway.info.URL, d.home), nil
	})
	if err != nil {
		return err
	}
	if d.whyLocal != "" {
		return d.startLocal(ctx)
	}
	return d.startCopilot(ctx, found)
}

func (d *demo) startModel(ctx context.Context) error {
	return d.step(ctx, "model endpoint", func(context.Context) (detail string, err error) {
		if d.model, err = scriptmodel.Start("127.0.0.1:0", scriptmodel.Calls); err != nil {
			return "", err
		}
		return "a script at " + d.model.URL + " stands in for the model", nil
	})
}

func (d *demo) startCopilot(ctx context.Context, found copilot.Found) error {
	return d.step(ctx, "session", func(ctx context.Context) (string, error) {
		r := gateway.StartRequest{Host: copilot.Kind, Model: scriptmodel.ModelID, Label: "demo"}
		if err := d.startSession(ctx, r); err != nil {
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
	return d.step(ctx, "session", func(ctx context.Context) (string, error) {
		if err := d.startSession(ctx, gateway.StartRequest{Host: gateway.HostLocal, Label: "demo"}); err != nil {
			return "", err
		}
		d.stage = &localStage{session: d.session}
		return "a local session without a model (" + d.whyLocal + ")", nil
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

// startProvider starts the sample provider and waits until the session has its tool.
func (d *demo) startProvider(ctx context.Context) (string, error) {
	if d.token == "" { // with one token, the next process is the same provider
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

// changeTools calls do, which changes the session's tools, and waits until the session's
// host has the new list.
func (d *demo) changeTools(ctx context.Context, do func() error) error {
	refreshes := &d.gateway.gateway.Stats().Refreshes
	before := refreshes.Load()
	if err := do(); err != nil {
		return err
	}
	if err := daemon.Poll(ctx, func() bool { return refreshes.Load() > before }); err != nil {
		return fmt.Errorf("waiting for the session to get its tools: %w", err)
	}
	return nil
}

// run does the steps of the demo.
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
			if err := d.provider.order(demoInject); err != nil {
				return "", err
			}
			return d.stage.woken(ctx, demoEvent)
		}},
		{"tools.update", func(ctx context.Context) (string, error) {
			if err := d.changeTools(ctx, func() error { return d.provider.order(demoUpdate) }); err != nil {
				return "", err
			}
			return d.stage.changed(ctx, "which tools are there now?", demoTool, demoMore)
		}},
		{"provider leaves", func(ctx context.Context) (string, error) {
			if err := d.changeTools(ctx, d.provider.end); err != nil {
				return "", err
			}
			return d.stage.changed(ctx, "and now?")
		}},
	}
	for _, s := range steps {
		if err := d.step(ctx, s.name, s.do); err != nil {
			return err
		}
	}
	if !d.out.JSON {
		return d.out.Printf("That is all: a running session had a tool of another process, and an event woke it.\n")
	}
	return nil
}

// surface makes the provider push an event of level surface, and waits until it is in the
// session's timeline.
func (d *demo) surface(ctx context.Context) (string, error) {
	var after uint64
	if err := d.provider.order(demoSurface); err != nil {
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

// keep runs the gateway with a provider until ctx ends.
func (d *demo) keep(ctx context.Context) error {
	if err := d.step(ctx, "provider", d.startProvider); err != nil {
		return err
	}
	if !d.out.JSON {
		err := d.out.Printf(`
It runs until Ctrl-C. In another terminal:

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

// close stops the parts that run and removes the home.
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
