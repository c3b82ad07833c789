package evals

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"tapgw/configs"
	"tapgw/internal/chans"
	"tapgw/internal/cli"
	"tapgw/internal/match"
	"tapgw/providers"
)

// Providers that a case gives its sessions, with their answers and pushes.

// bindTimeout bounds how long a provider of a case may take to join its session.
const bindTimeout = 30 * time.Second

// startProviders connects the case's providers, and returns when the session has their tools and
// streams.
func (s *session) startProviders(ctx context.Context) error {
	type joined struct {
		name string
		err  error // nil, or why the provider can't join
	}
	bound, missing := make(chan joined, len(s.c.Providers)), map[string]bool{}
	for i := range s.c.Providers {
		of := &s.c.Providers[i]
		missing[of.Name] = true
		start := s.startProvider
		if len(of.Command) > 0 {
			start = s.startProgram
		}
		if err := start(ctx, of, func(err error) { bound <- joined{of.Name, err} }); err != nil {
			return err
		}
	}
	timeout := time.NewTimer(bindTimeout)
	defer timeout.Stop()
	for len(missing) > 0 {
		select {
		case j := <-bound:
			if j.err != nil {
				return j.err
			}
			delete(missing, j.name)
		case <-timeout.C:
			names := strings.Join(slices.Sorted(maps.Keys(missing)), ", ")
			return cli.Failed("no provider of this name has joined the session within %s: %s",
				bindTimeout, names)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// startProvider connects a provider of the case that has no program.
func (s *session) startProvider(
	ctx context.Context, of *configs.EvalProvider, bound func(error),
) error {
	p, err := s.newProvider(ctx, of, bound)
	if err != nil {
		return cli.Failed("making the provider %s: %v", of.Name, err)
	}
	s.pushes.of(p, of.Pushes)
	s.work.Go(func() {
		if err := p.Run(ctx); err != nil {
			s.stop(err)
		}
	})
	return nil
}

// newProvider makes a provider for the session alone. It calls bound once: with nil when the
// session has it, or with the error with which the gateway refuses it.
func (s *session) newProvider(
	ctx context.Context,
	of *configs.EvalProvider,
	bound func(error),
) (*providers.Provider, error) {
	var once sync.Once
	p := providers.New(of.Name, &providers.Options{
		URL: s.o.Gateway.URL(), Token: s.o.Gateway.Token(), Session: s.id, Context: of.Context,
		Logger:  slog.New(slog.DiscardHandler),
		OnBound: func(context.Context, providers.Binding) { once.Do(func() { bound(nil) }) },
		OnError: func(err error) {
			if _, isRefused := errors.AsType[*providers.Error](err); isRefused {
				once.Do(func() {
					bound(cli.Failed("the provider %s can't join the session: %v", of.Name, err))
				})
			}
		},
	})
	var tools []providers.Tool
	for i := range of.Tools {
		t := &of.Tools[i]
		tools = append(tools, providers.Tool{
			Name: t.Name, Description: t.Description, Parameters: json.RawMessage(t.Parameters),
			Timeout: t.Timeout,
			Handler: newAnswers(t.Answers).call,
		})
	}
	if _, err := p.SetTools(ctx, tools); err != nil {
		return nil, err
	}
	for i := range of.Gates {
		g := &of.Gates[i]
		if _, err := p.Gate(ctx, providers.Match{Tool: g.Tool, Args: g.Args},
			decide(g)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// decide is the gate of a case.
func decide(
	g *configs.EvalGate,
) func(context.Context, providers.GateCall) (providers.Decision, error) {
	return func(ctx context.Context, _ providers.GateCall) (providers.Decision, error) {
		if g.Decision == configs.GateSilent {
			<-ctx.Done()
			return providers.Deny("no answer"), context.Cause(ctx)
		}
		if err := chans.Sleep(ctx, g.Delay); err != nil {
			return providers.Deny(""), err
		}
		if g.Decision == configs.GateAllow {
			return providers.Allow(), nil
		}
		return providers.Deny(g.Reason), nil
	}
}

// answers has the answers of a case's tool.
type answers struct {
	all []configs.EvalAnswer

	mu    sync.Mutex // guards the fields below
	given []bool     // of all
}

func newAnswers(all []configs.EvalAnswer) *answers {
	return &answers{all: all, given: make([]bool, len(all))}
}

// next returns the answer for a call: the first that fits and was not given, else the last that
// fits; nil if no answer fits.
func (a *answers) next(args json.RawMessage) (found *configs.EvalAnswer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	text := match.NewText(compact(string(args)))
	for i := range a.all {
		if p := a.all[i].Args; p != nil && p.Match(text) != match.Yes {
			continue
		}
		found = &a.all[i]
		if !a.given[i] {
			a.given[i] = true
			return found
		}
	}
	return found
}

// call answers a call of the tool.
func (a *answers) call(ctx context.Context, args json.RawMessage) (any, error) {
	if len(a.all) == 0 {
		return "done", nil
	}
	answer := a.next(args)
	if answer == nil {
		return nil, providers.NotFound("no answer of the case fits these arguments")
	}
	if err := chans.Sleep(ctx, answer.Delay); err != nil {
		return nil, err
	}
	switch {
	case answer.Error != "":
		return nil, &providers.Error{Code: providers.Code(answer.Code), Message: answer.Error}
	case answer.JSON != "":
		return json.RawMessage(answer.JSON), nil
	}
	return answer.Text, nil
}

// pushes are the events of a run's providers. Each is pushed once, at its moment.
type pushes struct {
	s   *session
	ctx context.Context // of the run

	mu   sync.Mutex // guards the fields that follow
	wait []waitingPush
	busy int // pushes under way
}

type waitingPush struct {
	p *providers.Provider
	configs.EvalPush
}

// of adds the events of a provider.
func (p *pushes) of(from *providers.Provider, all []configs.EvalPush) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range all {
		p.wait = append(p.wait, waitingPush{from, e})
	}
}

// begin pushes the events that come with the first prompt.
func (p *pushes) begin() {
	p.due(func(e *configs.EvalPush) bool { return e.AfterCall == "" && e.AfterTurn == 0 })
}

func (p *pushes) turnEnded(n int) {
	p.due(func(e *configs.EvalPush) bool { return e.AfterTurn == n })
}

func (p *pushes) called(tool string) {
	p.due(func(e *configs.EvalPush) bool { return e.AfterCall == tool })
}

// isBusy reports whether events are on their way to the session or the model.
func (p *pushes) isBusy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy > 0
}

// due pushes the events for which is returns true.
func (p *pushes) due(is func(*configs.EvalPush) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	rest := p.wait[:0]
	for _, w := range p.wait {
		if !is(&w.EvalPush) {
			rest = append(rest, w)
			continue
		}
		p.busy++
		p.s.work.Go(func() {
			if err := p.push(&w); err != nil && p.ctx.Err() == nil {
				p.s.stop(fmt.Errorf("pushing an event of the case: %w", err))
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.busy--
		})
	}
	p.wait = rest
}

func (p *pushes) push(w *waitingPush) error {
	if err := chans.Sleep(p.ctx, w.Delay); err != nil {
		return err
	}
	_, err := w.p.Push(p.ctx, providers.Event{Text: w.Text, Prompt: w.Prompt, Stream: w.Stream,
		Level: providers.Level(w.Level)}, providers.WaitDelivered)
	return err
}
