// Package demo shows a session with a tool of another process, and an event that wakes it: a
// gateway, a scripted model endpoint and a sample provider, for tapgw demo.
package demo

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tapgw/configs"
	"tapgw/internal/assembly"
	"tapgw/internal/cli"
	"tapgw/internal/copilot"
	"tapgw/internal/daemon"
	"tapgw/internal/gateway"
	"tapgw/internal/scriptmodel"
)

// stepTimeout bounds a step of the demo. A full Copilot CLI unpacks itself at its first start.
const stepTimeout = time.Minute

// HostAuto makes the session a Copilot session if the runtime is found, else a local one.
const HostAuto = "auto"

// Options choose the parts that the demo shows, and its output.
type Options struct {
	Host    string // HostAuto, copilot.Kind or gateway.HostLocal
	Runtime string // path of the Copilot CLI; "": where it is found
	Keep    bool   // runs on until ctx ends
	Out     *cli.Output
	Log     *slog.Logger // of the gateway
}

// Run runs a gateway with a temporary home. It checks and prints each step of a provider's work in
// a session. The error names the step that failed.
func Run(ctx context.Context, o Options) error {
	d := &demo{out: o.Out, log: o.Log}
	defer d.close()
	if err := d.start(ctx, o.Host, o.Runtime); err != nil {
		return err
	}
	if err := d.run(ctx); err != nil {
		return err
	}
	if o.Keep {
		return d.keep(ctx)
	}
	return nil
}

// demo has the parts that run during the demo.
type demo struct {
	out *cli.Output
	log *slog.Logger

	home     string // a temporary directory with all files of the demo
	gateway  *assembly.Process
	model    *scriptmodel.Server
	session  *gateway.Session
	provider *sampleProcess
	token    string // of providers for the session
	stage    stage
	whyLocal string // the reason for a local session, "" for a Copilot session
}

// stepLine is a step as --json shows it.
type stepLine struct {
	Step       string `json:"step"`
	Status     string `json:"status"`
	Detail     string `json:"detail"`
	DurationMs int64  `json:"durationMs"`
}

// step does one step and prints its result.
func (d *demo) step(
	ctx context.Context, name string, do func(context.Context) (result string, err error),
) error {
	begin := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, stepTimeout,
		fmt.Errorf("it did not come in %v", stepTimeout))
	defer cancel()
	detail, err := do(ctx)
	if err != nil && ctx.Err() != nil {
		// The cause names the time, and err the event that the step was waiting for.
		err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	s := stepLine{Step: name, Status: "ok", Detail: detail,
		DurationMs: time.Since(begin).Milliseconds()}
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
	config.Tap.Tools = false // because the demo shows the tools of one provider
	config.Copilot.CLI = runtime
	if d.whyLocal == "" {
		if err := d.startModel(ctx); err != nil {
			return err
		}
		config.Copilot.ProviderURL = d.model.URL
	}
	err = d.step(ctx, "gateway", func(ctx context.Context) (string, error) {
		o := assembly.Options{Config: config, Home: d.home, Key: "no-key-needed", Log: d.log}
		d.gateway, err = assembly.Start(ctx, o)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("listens at %s, its home is %s", d.gateway.Info().URL, d.home), nil
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
		st, err := d.gateway.Runtime().Probe(ctx)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("a Copilot session runs in Copilot CLI %s (%s)", st.Version,
			found.Path), nil
	})
}

func (d *demo) startLocal(ctx context.Context) error {
	return d.step(ctx, "session", func(ctx context.Context) (string, error) {
		if err := d.startSession(ctx, gateway.StartRequest{Host: gateway.HostLocal,
			Label: "demo"}); err != nil {
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
	d.session, err = d.gateway.Gateway().Start(ctx, r)
	return err
}

// startProvider starts the sample provider and waits until the session has its tool.
func (d *demo) startProvider(ctx context.Context) (string, error) {
	if d.token == "" { // with one token, the next process is the same provider
		d.token = d.gateway.Gateway().IssueSpawnToken(d.session.ID())
	}
	err := d.changeTools(ctx, func() (err error) {
		d.provider, err = startSample(d.gateway.Info().URL, d.token)
		return err
	})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("process %d connected and gave the session the tool %s", d.provider.PID(),
		sampleTool), nil
}

// changeTools calls do, which changes the session's tools, and waits until the session's
// host has the new list.
func (d *demo) changeTools(ctx context.Context, do func() error) error {
	refreshes := &d.gateway.Gateway().Stats().Refreshes
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
			if err := d.stage.ask(ctx, samplePrompt); err != nil {
				return "", err
			}
			return d.stage.listed(ctx, sampleTool)
		}},
		{"tool called", func(ctx context.Context) (string, error) {
			return d.stage.called(ctx, sampleTool)
		}},
		{"result", func(ctx context.Context) (string, error) {
			return d.stage.result(ctx, fmt.Sprintf("process %d", d.provider.PID()))
		}},
		{"timeline", d.surface},
		{"push", func(ctx context.Context) (string, error) {
			if err := d.provider.order(orderInject); err != nil {
				return "", err
			}
			return d.stage.woken(ctx, sampleEvent)
		}},
		{"tools.update", func(ctx context.Context) (string, error) {
			if err := d.changeTools(ctx, func() error {
				return d.provider.order(orderUpdate)
			}); err != nil {
				return "", err
			}
			return d.stage.changed(ctx, "which tools are there now?", sampleTool, sampleMore)
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
		return d.out.Printf(
			"That is all: a running session had a tool of another process, and an event woke it.\n")
	}
	return nil
}

// surface makes the provider push an event of level surface, and waits until it is in the
// session's timeline.
func (d *demo) surface(ctx context.Context) (string, error) {
	var after uint64
	if err := d.provider.order(orderSurface); err != nil {
		return "", err
	}
	for {
		lines, next := d.session.Timeline(after)
		for _, l := range lines {
			if strings.Contains(l.Message, sampleNews) {
				return fmt.Sprintf("shows the provider's event %q", sampleNews), nil
			}
		}
		after = next
		if err := d.session.WaitTimeline(ctx, after); err != nil {
			return "", fmt.Errorf("the timeline does not show %q: %w", sampleNews, err)
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
`, d.home, samplePrompt, sampleTool)
		if err != nil {
			return err
		}
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-d.gateway.Served():
		return fmt.Errorf("serving %s: %w", d.gateway.Info().URL, err)
	}
}

// close stops the parts that run and removes the home.
func (d *demo) close() {
	d.provider.stop()
	if d.gateway != nil {
		d.gateway.Stop()
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
