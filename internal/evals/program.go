package evals

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/cli"
	"tapgw/internal/proc"
	"tapgw/internal/visible"
)

// programGrace is how long a program has between SIGTERM and SIGKILL.
const programGrace = 2 * time.Second

// startProgram starts a program of the case that is a provider, in the directory of the case, with
// a token for the session alone. It calls bound once: with nil when the session has the provider,
// or with why it never will. A program that ends before the run does ends the run.
func (s *session) startProgram(
	ctx context.Context, of *configs.EvalProvider, bound func(error),
) error {
	dir, err := filepath.Abs(filepath.Dir(s.c.File))
	if err != nil {
		return fmt.Errorf("finding the directory of the case: %w", err)
	}
	token, err := s.o.Gateway.ProviderToken(ctx, s.id)
	if err != nil {
		return err
	}
	p, err := proc.Start(proc.Command{
		Path: of.Command[0], Args: of.Command[1:], Dir: dir, Whole: true, Grace: programGrace,
		Env: proc.Environ(map[string]string{"TAP_GATEWAY_URL": s.o.Gateway.URL(),
			"TAP_PROVIDER_TOKEN": token}),
	})
	if err != nil {
		return cli.Failed("the provider %s: %v", of.Name, err)
	}
	s.work.Go(func() {
		defer p.Stop()
		bound(s.waitProgram(ctx, of.Name, p))
		select {
		case <-ctx.Done():
		case <-p.Done():
			s.stop(endOf(of.Name, p))
		}
	})
	return nil
}

// waitProgram waits until the session has the provider that a program is.
func (s *session) waitProgram(ctx context.Context, name string, p *proc.Process) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.Done():
			return endOf(name, p)
		case <-tick.C:
		}
		list, err := s.o.Gateway.Providers(ctx)
		is := func(p adminapi.Provider) bool { return p.Name == name && p.Session == s.id }
		if err != nil || slices.ContainsFunc(list, is) {
			return err
		}
	}
}

// endOf is the error of a program that has ended, with the last line that it printed.
func endOf(name string, p *proc.Process) error {
	how := "exit status 0"
	if err := p.Err(); err != nil {
		how = err.Error()
	}
	if tail := p.Tail(); len(tail) > 0 {
		how += ": " + visible.Line(tail[len(tail)-1])
	}
	return cli.Failed("the program of the provider %s has ended: %s", name, how)
}
