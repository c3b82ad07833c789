package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/proc"
)

const (
	// stopTimeout bounds the end of a gateway, which takes 15 s at most.
	stopTimeout = 20 * time.Second
	// stopNotice is after how long people are told whom it waits for.
	stopNotice = time.Second
)

func stopCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "stop",
		Usage: "end the gateway that runs, and wait until it is gone",
		Description: `However it was started. Sessions and providers are told and have 10 seconds; it says
whom it waits for. Exit code 3 when none runs: nothing was to be done. A service is
started again at the next login; tapgw service uninstall ends it for good.

Examples:
  tapgw stop
  tapgw stop || [ $? = 3 ]     # none is fine`,
		Action: func(c *ucli.Context) error {
			if err := cli.MaxArgs(c, 0); err != nil {
				return err
			}
			out := cli.Out(c)
			g, err := stateDir(configs.StateDir()).stop(c.Context, out)
			if err != nil {
				return err
			}
			if out.JSON {
				return out.Document(map[string]any{"pid": g.PID, "url": g.URL})
			}
			out.Notef("tapgw: stopped the gateway of process %d", g.PID)
			return nil
		},
	}
}

// errNoGateway says that none runs for this home.
func (d stateDir) errNoGateway() error {
	return &cli.Error{Exit: cli.ExitUnreachable, Code: cli.CodeUnreachable,
		Message: fmt.Sprintf("no gateway runs for %s (%s); start one: tapgw serve, or tapgw ensure", configs.Home(), configs.EnvHome)}
}

// holder is the gateway that runs here, ready or not. The lock is held, and its file
// names the process; only this user can write that file.
func (d stateDir) holder() (gatewayInfo, error) {
	held, err := d.locked()
	if err != nil {
		return gatewayInfo{}, err
	}
	pid := proc.LockHolder(d.lock())
	if !held || pid <= 0 {
		return gatewayInfo{}, d.errNoGateway()
	}
	g, err := d.info()
	if err != nil || g.PID != pid { // it starts or ends just now
		g = gatewayInfo{PID: pid}
	}
	return g, nil
}

// stop ends the gateway that runs here and waits until it is gone.
func (d stateDir) stop(ctx context.Context, out *cli.Output) (gatewayInfo, error) {
	g, err := d.holder()
	if err != nil {
		return g, err
	}
	whom := d.awaited(ctx, g)
	switch err := syscall.Kill(g.PID, syscall.SIGTERM); {
	case errors.Is(err, syscall.EPERM):
		return g, &cli.Error{Exit: cli.ExitRefused, Code: "DENIED", Err: err,
			Message: fmt.Sprintf("stopping the gateway of process %d: it is another user's; end it as that user", g.PID)}
	case err != nil && !errors.Is(err, syscall.ESRCH):
		return g, fmt.Errorf("stopping the gateway of process %d: %w", g.PID, err)
	}
	notice := time.Now().Add(stopNotice)
	wait, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	err = poll(wait, func() bool {
		if !notice.IsZero() && time.Now().After(notice) {
			notice = time.Time{}
			out.Notef("tapgw: waiting for process %d, which waits for %s, 15 seconds at most", g.PID, whom)
		}
		held, err := d.locked()
		return err != nil || !held || proc.LockHolder(d.lock()) != g.PID
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return g, &cli.Error{Exit: cli.ExitFailed, Code: cli.CodeCancelled, Err: err, Message: fmt.Sprintf("cancelled; process %d was told to end and does so", g.PID)}
	case err != nil:
		return g, &cli.Error{Exit: cli.ExitTimedOut, Code: cli.CodeTimeout, Err: err,
			Message: fmt.Sprintf("the gateway of process %d has not ended in %s; tapgw logs may say why; kill -9 %d ends it", g.PID, stopTimeout, g.PID)}
	}
	return g, nil
}

// awaited says whom a gateway will wait for when it ends.
func (d stateDir) awaited(ctx context.Context, g gatewayInfo) string {
	const unknown = "its sessions and providers"
	token, err := os.ReadFile(d.adminToken())
	if err != nil || g.URL == "" {
		return unknown
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	gw, err := client.New(client.Options{URL: g.URL, Token: strings.TrimSpace(string(token))})
	if err != nil {
		return unknown
	}
	defer gw.Close()
	sessions, err := gw.Sessions(ctx)
	if err != nil {
		return unknown
	}
	providers, err := gw.Providers(ctx)
	if err != nil {
		return unknown
	}
	var names, labels []string
	for _, p := range providers {
		if p.State == "bound" && !slices.Contains(names, p.Name) {
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
	return cli.OneLine(listed("session", labels) + " and " + listed("provider", names))
}

// listed are so many things with their names.
func listed(what string, names []string) string {
	switch len(names) {
	case 0:
		return "no " + what
	case 1:
		return what + " " + names[0]
	}
	return fmt.Sprintf("%d %ss (%s)", len(names), what, strings.Join(names, ", "))
}
