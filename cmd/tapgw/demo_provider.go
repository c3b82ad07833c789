package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"tapgw/internal/proc"
	"tapgw/providers"
)

// The sample provider's tools and events, and the orders that the demo writes to its stdin.
const (
	demoTool   = "get_weather"
	demoMore   = "get_forecast"
	demoPrompt = "call:" + demoTool + ` {"city":"Oslo"}`
	demoNews   = "the barometer falls"
	demoEvent  = "storm warning for Oslo"

	demoSurface = "surface"
	demoInject  = "inject"
	demoUpdate  = "update"
)

// demoProviderCommand runs the sample provider in a process of this program, so that the
// demo needs no other program.
func demoProviderCommand() *ucli.Command {
	return &ucli.Command{
		Name:   "__demo-provider",
		Hidden: true,
		Usage:  "the demo's sample provider",
		Action: func(c *ucli.Context) error {
			ctx, cancel := context.WithCancel(c.Context)
			defer cancel()
			p := newSample(c.App.ErrWriter)
			done := make(chan error, 1)
			go func() { done <- p.Run(ctx) }()
			orders := bufio.NewScanner(c.App.Reader)
			for orders.Scan() {
				if err := obey(ctx, p, orders.Text()); err != nil {
					return err
				}
			}
			cancel() // the demo has closed stdin
			return <-done
		},
	}
}

type place struct {
	City string `json:"city" jsonschema:"the name of a city"`
}

func newSample(log io.Writer) *providers.Provider {
	p := providers.New("weather", &providers.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	providers.AddTool(p, demoTool, "Tell the weather of a city", func(_ context.Context, in place) (string, error) {
		return fmt.Sprintf("rain in %s, 12 °C, says process %d", in.City, os.Getpid()), nil
	})
	return p
}

func obey(ctx context.Context, p *providers.Provider, order string) error {
	switch order {
	case demoSurface:
		_, err := p.Push(ctx, providers.Event{Text: demoNews, Level: providers.Surface})
		return err
	case demoInject:
		_, err := p.Push(ctx, providers.Event{Text: demoEvent, Level: providers.Inject})
		return err
	case demoUpdate:
		providers.AddTool(
			p,
			demoMore,
			"Tell tomorrow's weather of a city",
			func(_ context.Context, in place) (string, error) {
				return "sun in " + in.City, nil
			},
		)
		return nil
	}
	return fmt.Errorf("unknown order %q", order)
}

// demoProvider is the sample provider's process; nil when it does not run.
type demoProvider struct{ *proc.Process }

func startDemoProvider(url, token string) (*demoProvider, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding our own program: %w", err)
	}
	p, err := proc.Start(proc.Command{
		Path: self,
		Args: []string{"__demo-provider"},
		Env:  proc.Environ(map[string]string{"TAP_GATEWAY_URL": url, "TAP_PROVIDER_TOKEN": token}),
	})
	if err != nil {
		return nil, err
	}
	return &demoProvider{p}, nil
}

// order writes an order for the provider.
func (p *demoProvider) order(order string) error {
	if _, err := io.WriteString(p.Stdin(), order+"\n"); err != nil {
		return fmt.Errorf("writing to the provider: %w", err)
	}
	return nil
}

// end makes the provider leave the session, and waits for the process.
func (p *demoProvider) end() error {
	if err := p.Stdin().Close(); err != nil {
		return fmt.Errorf("closing the provider's stdin: %w", err)
	}
	<-p.Done()
	if err := p.Err(); err != nil {
		return errors.Join(errors.New("the provider failed"), err)
	}
	return nil
}

func (p *demoProvider) stop() {
	if p != nil {
		p.Stop()
	}
}

// shownLines is how many of the provider's last lines an error shows.
const shownLines = 5

// tail returns the provider's last lines, joined to one.
func (p *demoProvider) tail() string {
	if p == nil {
		return ""
	}
	lines := p.Tail()
	return strings.Join(lines[max(0, len(lines)-shownLines):], "; ")
}
