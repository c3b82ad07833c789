// Package daemon finds, starts and stops the gateway of one COPILOT_HOME. A gateway
// keeps a lock, its tokens and gateway.json in a state directory; the commands of
// tapgw find it there. This package runs no gateway itself.
package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tapgw/configs"
	"tapgw/internal/chans"
	"tapgw/internal/cli"
	"tapgw/internal/client"
	"tapgw/internal/proc"
	"tapgw/internal/statedir"
)

// lockTimeout bounds the wait for another gateway that is starting or ending.
const lockTimeout = 3 * time.Second

// statusTimeout bounds a request to a gateway on this machine.
const statusTimeout = 3 * time.Second

// pollInterval is the time between two looks at the state directory.
const pollInterval = 20 * time.Millisecond

// Dir is the path of a state directory. A gateway holds the directory's lock while it
// runs; the other files of a killed gateway stay, so only the lock says whether one runs.
type Dir string

func (d Dir) file(name string) string { return filepath.Join(string(d), name) }

// InfoFile is the path of gateway.json.
func (d Dir) InfoFile() string { return d.file(statedir.InfoFile) }

// LogFile is the path of the log of a gateway that tapgw ensure started.
func (d Dir) LogFile() string { return d.file("gateway.log") }

// ProviderToken is the path of the file with the instance token.
func (d Dir) ProviderToken() string { return d.file(statedir.ProviderTokenFile) }

// AdminToken is the path of the file with the admin token.
func (d Dir) AdminToken() string { return d.file(statedir.AdminTokenFile) }

// Tokens is the directory with the tokens of providers that start themselves.
func (d Dir) Tokens() string { return d.file("providers") }

// Logins is the directory with the logins at the MCP servers of provider files.
func (d Dir) Logins() string { return d.file("logins") }

// Sources is the directory with the state of the sources of provider files, which outlives a
// restart.
func (d Dir) Sources() string { return d.file("sources") }

// Records is the directory of the records, which package records writes.
func (d Dir) Records() string { return d.file(statedir.RecordsDir) }

// Uploads is the directory of the files that prompts bring, as long as their sessions run.
func (d Dir) Uploads() string { return d.file("uploads") }

// Goals is the directory of the goals of sessions, a file for each.
func (d Dir) Goals() string { return d.file("goals") }

// Ports is the file of the terminals whose ports are attached.
func (d Dir) Ports() string { return d.file("attached.json") }

// KeptEvents is the file that says how far sessions have got in the streams that last.
func (d Dir) KeptEvents() string { return d.file("kept-events.json") }

func (d Dir) lockFile() string  { return d.file(statedir.LockFile) }
func (d Dir) startFile() string { return d.file("ensure.lock") }

// Info reads gateway.json. The file may be left over from a gateway that was killed.
func (d Dir) Info() (statedir.Info, error) {
	var g statedir.Info
	data, err := os.ReadFile(d.InfoFile())
	if err != nil {
		return g, err
	}
	if err := json.Unmarshal(data, &g); err != nil {
		return g, fmt.Errorf("reading %s: %w", d.InfoFile(), err)
	}
	return g, nil
}

// Locked reports whether a gateway runs here, ready or not.
func (d Dir) Locked() (bool, error) {
	locked, err := proc.Locked(d.lockFile())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false,
			fmt.Errorf(
				"looking for a gateway: %w; make %s readable, or set %s to another directory",
				err, d, statedir.EnvHome)
	}
	return locked, nil
}

// LockPID is the process that holds the lock, or 0 if the lock is free.
func (d Dir) LockPID() int { return proc.LockHolder(d.lockFile()) }

// Running returns the gateway that runs here and is ready. It asks the gateway itself,
// because gateway.json may be a killed gateway's and its pid another program's.
func (d Dir) Running(ctx context.Context) (statedir.Info, bool) {
	locked, err := d.Locked()
	if err != nil || !locked {
		return statedir.Info{}, false
	}
	g, err := d.Info()
	if err != nil {
		return statedir.Info{}, false
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	return g, d.answers(ctx, g)
}

// Current returns the gateway that runs here, ready or not; ok is false when no gateway runs. A
// gateway that is starting or ending has only a PID. It returns an error if it can't read the
// directory.
func (d Dir) Current() (g statedir.Info, ok bool, err error) {
	locked, err := d.Locked()
	if err != nil {
		return statedir.Info{}, false, err
	}
	pid := d.LockPID()
	if !locked || pid <= 0 {
		return statedir.Info{}, false, nil
	}
	if g, err = d.Info(); err != nil || g.PID != pid {
		g = statedir.Info{PID: pid}
	}
	return g, true, nil
}

// mustRun is Current, with exit code 3 when no gateway runs. A gateway whose lock was emptied or
// removed still runs: mustRun finds it by gateway.json, if it has this directory's token.
func (d Dir) mustRun(ctx context.Context) (statedir.Info, error) {
	g, ok, err := d.Current()
	if err != nil || ok {
		return g, err
	}
	if g, err := d.Info(); err == nil && d.proves(ctx, g) {
		return g, nil
	}
	return g, &cli.Error{Exit: cli.ExitUnreachable, Code: cli.CodeUnreachable, Message: fmt.Sprintf(
		"no gateway runs for %s (%s); start one: tapgw serve, or tapgw ensure", configs.Home(),
		statedir.EnvHome)}
}

// Acquire takes the lock of the directory for a gateway of this process. It waits three
// seconds for a gateway that is starting or ending; its error names the gateway that
// runs already.
func (d Dir) Acquire(ctx context.Context) (*proc.Lock, error) {
	wait, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	var lock *proc.Lock
	var failure error
	_ = Poll(wait, func() bool {
		if lock, failure = proc.TryLock(d.lockFile()); lock != nil || failure != nil {
			return true
		}
		g, err := d.Info()
		if err != nil || !d.answers(wait, g) {
			return false // it starts, ends, or another process just looks at the lock
		}
		failure = fmt.Errorf(
			"a gateway runs already: process %d at %s; use that one, or end it: tapgw stop",
			g.PID, g.URL)
		return true
	})
	switch {
	case lock != nil || failure != nil:
		return lock, failure
	case ctx.Err() != nil:
		return nil, fmt.Errorf("waiting for the lock %s: %w", d.lockFile(), ctx.Err())
	}
	return nil,
		fmt.Errorf(
			"a gateway that does not answer runs already: process %d has %s; end it: tapgw stop",
			d.LockPID(), d.lockFile())
}

// answers reports whether the gateway at g's URL is g.
func (d Dir) answers(ctx context.Context, g statedir.Info) bool {
	if u, err := url.Parse(g.URL); err == nil && u.Scheme == "wss" {
		// This machine need not trust the gateway's certificate, so a connection is enough.
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", u.Host)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}
	return d.proves(ctx, g)
}

// proves reports whether the gateway at g's URL has this directory's admin token and is g's
// process.
func (d Dir) proves(ctx context.Context, g statedir.Info) bool {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	c, err := d.Dial(g)
	if err != nil {
		return false
	}
	defer c.Close()
	s, err := c.Status(ctx)
	return err == nil && s.PID == g.PID
}

// Dial returns a client of the gateway g, with the admin token of this directory. The caller closes
// it. Dial returns an error if it can't read the token file.
func (d Dir) Dial(g statedir.Info) (*client.Client, error) {
	token, err := os.ReadFile(d.AdminToken())
	if err != nil {
		return nil, err
	}
	return client.New(client.Options{URL: g.URL, Token: strings.TrimSpace(string(token))})
}

// Poll calls done until it returns true or ctx ends.
func Poll(ctx context.Context, done func() bool) error {
	for !done() {
		if chans.Sleep(ctx, pollInterval) != nil {
			return ctx.Err()
		}
	}
	return nil
}
