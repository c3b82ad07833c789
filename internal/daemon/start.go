package daemon

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"tapgw/internal/cli"
	"tapgw/internal/proc"
	"tapgw/internal/statedir"
)

// Ensure starts a gateway in the background unless one runs.

const (
	// maxLog is the size in bytes past which the next gateway empties the log.
	maxLog = 1 << 20
	// shownLines is how many of the log's last lines say why a gateway did not start.
	shownLines = 5
)

// Ensure returns the gateway that runs here, else starts this program with args in the
// background and waits until it is ready. However many processes call it at once, one
// gateway starts.
func (d Dir) Ensure(ctx context.Context, args []string) (statedir.Info, error) {
	lock, err := d.lockStart(ctx)
	if err != nil {
		return statedir.Info{}, err
	}
	defer lock.Unlock()
	return d.ensure(ctx, args)
}

// lockStart waits until no other process starts a gateway here.
func (d Dir) lockStart(ctx context.Context) (*proc.Lock, error) {
	if err := proc.PrivateDir(string(d)); err != nil {
		return nil, err
	}
	return proc.WaitLock(ctx, d.startFile())
}

// ensure is Ensure for a caller that holds the start lock.
func (d Dir) ensure(ctx context.Context, args []string) (statedir.Info, error) {
	g, ok, err := d.waitReady(ctx)
	if ok || err != nil {
		return g, err
	}
	g, err = d.start(ctx, args)
	if err == nil {
		return g, nil
	}
	// A tapgw serve, which takes no start lock, may have been faster.
	if other, ok, otherErr := d.waitReady(ctx); ok && otherErr == nil {
		return other, nil
	}
	return g, err
}

// waitReady returns the gateway that runs here. It waits for one that is starting or ending; ok is
// false when no gateway runs.
func (d Dir) waitReady(ctx context.Context) (g statedir.Info, ok bool, err error) {
	err = Poll(ctx, func() bool {
		if g, ok = d.Running(ctx); ok {
			return true
		}
		locked, err := d.Locked()
		return err != nil || !locked
	})
	if err != nil {
		err = fmt.Errorf("the gateway of process %d does not get ready (see %s): %w", d.LockPID(),
			d.LogFile(), err)
	}
	return g, ok, err
}

// start starts this program as a gateway that outlives this process, and waits until it
// is ready.
func (d Dir) start(ctx context.Context, args []string) (statedir.Info, error) {
	program, err := os.Executable()
	if err != nil {
		return statedir.Info{}, fmt.Errorf("finding our own program: %w", err)
	}
	log, size, err := d.openLog()
	if err != nil {
		return statedir.Info{}, fmt.Errorf("opening the gateway's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	// The state directory is the working directory, because it will not be unmounted or deleted.
	child, err := proc.Detach(program, args, os.Environ(), string(d), log)
	if err != nil {
		return statedir.Info{}, err
	}
	var g statedir.Info
	isReady := false
	err = Poll(ctx, func() bool {
		select {
		case <-child.Done():
			return true
		default:
		}
		g, isReady = d.Running(ctx)
		return isReady
	})
	if isReady {
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
	return g, fmt.Errorf("starting a gateway: %w: %s (log: %s)", err, why, d.LogFile())
}

// openLog opens the log for appending, and empties one that has become too long. It
// returns the log's size.
func (d Dir) openLog() (log *os.File, size int64, err error) {
	log, err = os.OpenFile(d.LogFile(), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, 0, err
	}
	size, err = log.Seek(0, io.SeekEnd)
	if err == nil && size > maxLog {
		size, err = 0, log.Truncate(0)
	}
	if err != nil {
		_ = log.Close()
		return nil, 0, err
	}
	return log, size, nil
}

// lastLines returns the last lines of a log behind an offset, joined to one line.
func lastLines(log io.ReaderAt, offset int64) string {
	data, _ := io.ReadAll(io.NewSectionReader(log, offset, maxLog))
	lines := strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' })
	return strings.Join(lines[max(0, len(lines)-shownLines):], "; ")
}

// EnsureApart lets another process start the gateway of this user, with a config file if config is
// not "", and waits for its end. So the gateway is no descendant of this process: the Copilot CLI
// ends all descendants of its MCP servers and extensions with them.
func EnsureApart(ctx context.Context, config string) error {
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding our own program: %w", err)
	}
	args := []string{"ensure"}
	if config != "" {
		args = append(args, "--config="+config)
	}
	var complaint bytes.Buffer
	command := exec.CommandContext(ctx, program, args...)
	command.Stderr = &complaint
	if err := command.Run(); err != nil {
		text := strings.TrimPrefix(strings.TrimSpace(complaint.String()), "tapgw: ")
		return cli.Failed("%s", cmp.Or(text, err.Error()))
	}
	return nil
}
