package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"tapgw/configs"
	"tapgw/internal/cli"
	"tapgw/internal/proc"
)

const (
	ensureTimeout = 20 * time.Second
	// A log that is longer than this begins anew with the next gateway.
	maxLog = 1 << 20
	// So many of its last lines say why a gateway did not start.
	logLines = 5
)

func ensureCommand() *ucli.Command {
	return &ucli.Command{
		Name:  "ensure",
		Usage: "start a gateway in the background if none runs, and print its URL",
		Description: `However many run it at once, there is one gateway and they all print its URL. A
gateway that was started so leaves when it has had no session, no provider and no
admin request for 30 seconds. It logs to gateway.log beside its token files.

Examples:
  tapgw ensure
  export TAP_GATEWAY_URL=$(tapgw ensure)`,
		Flags:  []ucli.Flag{listenFlag()},
		Action: ensure,
	}
}

func ensure(c *ucli.Context) error {
	config, files, err := loadConfig(c)
	if err != nil {
		return err
	}
	if err := override(c, &config); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context, ensureTimeout)
	defer cancel()
	state := stateDir(configs.StateDir())
	if err := proc.PrivateDir(string(state)); err != nil {
		return err
	}
	// One after the other: the first starts it, the others find it.
	lock, err := proc.WaitLock(ctx, state.starting())
	if err != nil {
		return err
	}
	defer lock.Unlock()
	// It runs elsewhere, but with the files that apply here.
	args := []string{"serve", "--on-demand", "--workdir=" + files.Workdir}
	if c.IsSet("listen") {
		args = append(args, "--listen="+c.String("listen"))
	}
	if named := c.String("config"); named != "" {
		args = append(args, "--config="+named)
	}
	g, err := state.ensure(ctx, args)
	if err != nil {
		return err
	}
	out := cli.Out(c)
	if c.IsSet("listen") && !sameAddress(g.URL, config.Listen) {
		out.Notef("tapgw: a gateway runs already, so --listen %s was not used", config.Listen)
	}
	return announce(out, g)
}

// sameAddress reports whether a gateway at url listens as it was asked to.
func sameAddress(url, listen string) bool {
	_, have, _ := strings.Cut(url, "://")
	return have == listen || strings.HasSuffix(listen, ":0") || strings.HasSuffix(have, listen[strings.LastIndexByte(listen, ':'):])
}

// ensure returns the gateway that runs here, or starts one and waits until it is
// ready. The caller holds the starting lock.
func (d stateDir) ensure(ctx context.Context, args []string) (gatewayInfo, error) {
	g, ok, err := d.present(ctx)
	if ok || err != nil {
		return g, err
	}
	g, err = d.spawn(ctx, args)
	if err == nil {
		return g, nil
	}
	// Somebody's tapgw serve may have been faster.
	if other, ok, perr := d.present(ctx); ok && perr == nil {
		return other, nil
	}
	return g, err
}

// present finds the gateway that runs here. One that is about to be ready, or to
// leave, is waited for.
func (d stateDir) present(ctx context.Context) (g gatewayInfo, ok bool, err error) {
	err = poll(ctx, func() bool {
		if g, ok = d.running(ctx); ok {
			return true
		}
		held, err := d.locked()
		return err != nil || !held
	})
	if err != nil {
		err = fmt.Errorf("the gateway of process %d does not get ready (see %s): %w", proc.LockHolder(d.lock()), d.log(), err)
	}
	return g, ok, err
}

// spawn starts a gateway that outlives us.
func (d stateDir) spawn(ctx context.Context, args []string) (gatewayInfo, error) {
	self, err := os.Executable()
	if err != nil {
		return gatewayInfo{}, fmt.Errorf("finding our own program: %w", err)
	}
	log, err := os.OpenFile(d.log(), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return gatewayInfo{}, fmt.Errorf("opening the gateway's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	size, err := log.Seek(0, io.SeekEnd)
	if err == nil && size > maxLog {
		size, err = 0, log.Truncate(0)
	}
	if err != nil {
		return gatewayInfo{}, fmt.Errorf("opening the gateway's log: %w", err)
	}
	// The state directory is as good a place as any to run in, and nobody
	// wants to unmount it.
	child, err := proc.Detach(self, args, os.Environ(), string(d), log)
	if err != nil {
		return gatewayInfo{}, err
	}
	var g gatewayInfo
	ready := false
	err = poll(ctx, func() bool {
		select {
		case <-child.Done():
			return true
		default:
		}
		g, ready = d.running(ctx)
		return ready
	})
	if ready {
		return g, nil
	}
	if err == nil {
		err = child.Err()
	} else {
		child.Kill()
	}
	if err == nil {
		err = errors.New("it ended at once")
	}
	why := lastLines(log, size)
	if why == "" {
		why = "it logged nothing"
	}
	return g, fmt.Errorf("starting a gateway: %w: %s (log: %s)", err, why, d.log())
}

// lastLines returns the end of what was logged behind an offset, in one line.
func lastLines(log io.ReaderAt, from int64) string {
	data, _ := io.ReadAll(io.NewSectionReader(log, from, maxLog))
	lines := strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' })
	return strings.Join(lines[max(0, len(lines)-logLines):], "; ")
}
