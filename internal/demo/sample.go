package demo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"

	"tapgw/internal/proc"
	"tapgw/providers"
)

// The sample provider's tools and events, and the orders that the demo writes to its stdin.
const (
	sampleTool   = "get_weather"
	sampleMore   = "get_forecast"
	samplePrompt = "call:" + sampleTool + ` {"city":"Oslo"}`
	sampleNews   = "the barometer falls"
	sampleEvent  = "storm warning for Oslo"

	orderSurface = "surface"
	orderInject  = "inject"
	orderUpdate  = "update"
)

// ProviderCommand is the hidden command that runs the sample provider in a process of this program,
// so that the demo needs no other program. It calls [Provide].
const ProviderCommand = "__demo-provider"

// Provide runs the sample provider until stdin ends. It obeys the orders that it reads there, and
// logs to stderr.
func Provide(ctx context.Context, stdin io.Reader, stderr io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := newSample(stderr)
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	orders := bufio.NewScanner(stdin)
	for orders.Scan() {
		if err := obey(ctx, p, orders.Text()); err != nil {
			return err
		}
	}
	cancel() // the demo has closed stdin
	return <-done
}

type place struct {
	City string `json:"city" jsonschema:"the name of a city"`
}

func newSample(log io.Writer) *providers.Provider {
	p := providers.New("weather",
		&providers.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
	providers.AddTool(p, sampleTool, "Tell the weather of a city",
		func(_ context.Context, in place) (string, error) {
			return fmt.Sprintf("rain in %s, 12 °C, says process %d", in.City, os.Getpid()), nil
		})
	return p
}

func obey(ctx context.Context, p *providers.Provider, order string) error {
	switch order {
	case orderSurface:
		_, err := p.Push(ctx, providers.Event{Text: sampleNews, Level: providers.Surface})
		return err
	case orderInject:
		_, err := p.Push(ctx, providers.Event{Text: sampleEvent, Level: providers.Inject})
		return err
	case orderUpdate:
		providers.AddTool(
			p,
			sampleMore,
			"Tell tomorrow's weather of a city",
			func(_ context.Context, in place) (string, error) {
				return "sun in " + in.City, nil
			},
		)
		return nil
	}
	return fmt.Errorf("unknown order %q", order)
}

// sampleProcess is the sample provider's process; nil when it does not run.
type sampleProcess struct{ *proc.Process }

func startSample(url, token string) (*sampleProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding our own program: %w", err)
	}
	p, err := proc.Start(proc.Command{
		Path: self,
		Args: []string{ProviderCommand},
		Env:  proc.Environ(map[string]string{"TAP_GATEWAY_URL": url, "TAP_PROVIDER_TOKEN": token}),
	})
	if err != nil {
		return nil, err
	}
	return &sampleProcess{p}, nil
}

// order writes an order for the provider.
func (p *sampleProcess) order(order string) error {
	if _, err := io.WriteString(p.Stdin(), order+"\n"); err != nil {
		return fmt.Errorf("writing to the provider: %w", err)
	}
	return nil
}

// end makes the provider leave the session, and waits for the process.
func (p *sampleProcess) end() error {
	if err := p.Stdin().Close(); err != nil {
		return fmt.Errorf("closing the provider's stdin: %w", err)
	}
	<-p.Done()
	if err := p.Err(); err != nil {
		return errors.Join(errors.New("the provider failed"), err)
	}
	return nil
}

func (p *sampleProcess) stop() {
	if p != nil {
		p.Stop()
	}
}

// shownLines is how many of the provider's last lines an error shows.
const shownLines = 5

// tail returns the provider's last lines, joined to one.
func (p *sampleProcess) tail() string {
	if p == nil {
		return ""
	}
	lines := p.Tail()
	return strings.Join(lines[max(0, len(lines)-shownLines):], "; ")
}
