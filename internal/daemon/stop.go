package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"tapgw/internal/cli"
	"tapgw/internal/proc"
	"tapgw/internal/statedir"
	"tapgw/internal/visible"
)

// Stopping and restarting of the gateway that runs here.

// StopTimeout bounds the wait for a gateway's end, which takes 15 seconds at most.
const StopTimeout = 20 * time.Second

// noticeDelay is the time after which Stop reports why the gateway still runs.
const noticeDelay = time.Second

// Stop asks the gateway that runs here to end and waits until it has ended. After a second it calls
// notify with a line that names the gateway's unfinished work. Exit codes: 3 when no gateway runs,
// 5 when it is another user's, 124 when it does not end, 1 when it does not answer and its process
// can't be told from others.
func (d Dir) Stop(ctx context.Context, notify func(line string)) (statedir.Info, error) {
	g, err := d.mustRun(ctx)
	if err != nil {
		return g, err
	}
	awaited := d.awaited(ctx, g)
	if err := d.beginEnd(ctx, g); err != nil {
		return g, err
	}
	notice := time.Now().Add(noticeDelay)
	wait, cancel := context.WithTimeout(ctx, StopTimeout)
	defer cancel()
	err = Poll(wait, func() bool {
		if !notice.IsZero() && time.Now().After(notice) {
			notice = time.Time{}
			notify(fmt.Sprintf("waiting for process %d, which waits for %s, 15 seconds at most",
				g.PID, awaited))
		}
		locked, err := d.Locked()
		if pid := d.LockPID(); err != nil || locked && (pid == g.PID || pid <= 0) {
			return err != nil
		}
		return !d.proves(wait, g) // its lock may be gone
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return g, &cli.Error{Exit: cli.ExitFailed, Code: cli.CodeCancelled, Err: err,
			Message: fmt.Sprintf(
				"cancelled the wait for process %d, which was told to end", g.PID)}
	case err != nil:
		return g, &cli.Error{Exit: cli.ExitTimedOut, Code: cli.CodeTimeout, Err: err,
			Message: fmt.Sprintf(
				"the gateway of process %d has not ended in %s; tapgw logs may say why; kill "+
					"-9 %d ends it, "+
					"where it runs", g.PID, StopTimeout, g.PID)}
	}
	return g, nil
}

// beginEnd asks the gateway to end over its own port. A gateway that does not answer gets a signal
// if it certainly is the process that took the lock: in another container, the same number may be
// any process's.
func (d Dir) beginEnd(ctx context.Context, g statedir.Info) error {
	if d.requestEnd(ctx, g) == nil {
		return nil
	}
	process, err := proc.FindHolder(d.lockFile())
	if err == nil {
		err = process.Signal(syscall.SIGTERM)
		_ = process.Release()
	}
	locked, lockErr := d.Locked()
	switch {
	case err == nil || lockErr == nil && !locked:
		return nil
	case errors.Is(err, proc.ErrElsewhere):
		return &cli.Error{Exit: cli.ExitFailed, Code: "ELSEWHERE", Err: err, Message: fmt.Sprintf(
			"the gateway does not answer, and process %d of its lock is none that can be "+
				"told from here; "+
				"stop it where it runs (another container?); no process got a signal", g.PID)}
	case errors.Is(err, os.ErrPermission):
		return &cli.Error{Exit: cli.ExitRefused, Code: "DENIED", Err: err, Message: fmt.Sprintf(
			"stopping the gateway of process %d: it is another user's; end it as that user", g.PID)}
	}
	return fmt.Errorf("stopping the gateway of process %d: %w", g.PID, err)
}

// requestEnd asks the gateway to end. It must first prove that it has this directory's admin token.
func (d Dir) requestEnd(ctx context.Context, g statedir.Info) error {
	if g.URL == "" {
		return errors.New("it is starting or ending")
	}
	gateway, err := d.Dial(g)
	if err != nil {
		return err
	}
	defer gateway.Close()
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	return gateway.Shutdown(ctx)
}

// Restart stops the gateway that runs here and starts it again. A gateway that tapgw ensure started
// gets the arguments that it had; for any other, plan returns how to start it. After an error of
// plan the gateway runs on. No tapgw ensure can start another gateway in between, and no other
// program can have the gateway's addresses. If the next gateway fails to start, no gateway runs,
// and the addresses are free.
func (d Dir) Restart(
	ctx context.Context, plan func(statedir.Info) (start func(context.Context) error, err error),
	notify func(line string),
) (statedir.Info, error) {
	lock, err := d.lockStart(ctx)
	if err != nil {
		return statedir.Info{}, err
	}
	defer lock.Unlock()
	g, err := d.mustRun(ctx)
	if err != nil {
		return g, err
	}
	process, err := proc.FindHolder(d.lockFile())
	if err != nil {
		return g,
			cli.Failed("process %d of the gateway's lock is none that can be told from here; "+
				"restart it where it runs (another container?)", g.PID)
	}
	_ = process.Release()
	start, err := plan(g)
	if err != nil {
		return g, err
	}
	next := g
	err = d.keepSockets(notify, func() error {
		if _, err := d.Stop(ctx, notify); err != nil {
			return err
		}
		if start == nil {
			next, err = d.ensure(ctx, g.Args)
			return err
		}
		if err := start(ctx); err != nil {
			return err
		}
		var ok bool
		next, ok, err = d.waitReady(ctx)
		if err == nil && !ok {
			err = errors.New(
				"the service was started and its gateway has ended again (see tapgw logs)")
		}
		return err
	})
	return next, err
}

// awaited names the sessions and providers that a gateway will wait for when it ends.
func (d Dir) awaited(ctx context.Context, g statedir.Info) string {
	const unknown = "its sessions and providers"
	if g.URL == "" {
		return unknown
	}
	gateway, err := d.Dial(g)
	if err != nil {
		return unknown
	}
	defer gateway.Close()
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	sessions, err := gateway.Sessions(ctx)
	if err != nil {
		return unknown
	}
	providers, err := gateway.Providers(ctx)
	if err != nil {
		return unknown
	}
	var names, labels []string
	for _, p := range providers {
		if p.State == "bound" && !p.Own && !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	for _, s := range sessions {
		if s.Label != "" {
			labels = append(labels, s.Label)
		} else {
			labels = append(labels, s.ID)
		}
	}
	return cli.OneLine(countNames("session", labels) + " and " + countNames("provider", names))
}

// countNames says how many things there are and how they are called.
func countNames(noun string, names []string) string {
	switch len(names) {
	case 0:
		return "no " + noun
	case 1:
		return noun + " " + names[0]
	}
	return fmt.Sprintf("%s (%s)", visible.Count(len(names), noun), strings.Join(names, ", "))
}
