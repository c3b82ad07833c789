package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"time"

	"tapgw/configs"
	"tapgw/internal/adminapi"
	"tapgw/internal/chans"
	"tapgw/internal/gateway"
	"tapgw/providers"
)

// This file runs one provider for one session or for all: it starts the process, starts it again
// when it ends, and gives up when it ends too often.

// How often and how soon a provider that ended by itself is started again.
const (
	firstWait   = 200 * time.Millisecond
	longestWait = 30 * time.Second
	// A unit gives up after maxFailures within failureSpan.
	maxFailures = 5
	failureSpan = time.Minute
)

// unit runs one version of a provider for one session, or for all.
type unit struct {
	// Fixed at creation.
	spec       *configs.Provider
	pass       *gateway.Pass
	run        Run
	launch     Launcher
	out        *output
	ctx        context.Context
	cancel     context.CancelFunc
	units      func(func()) // starts a goroutine that Close waits for
	over       func()       // ends Close's wait for the unit
	isQuiesced *atomic.Bool // no unit is started any more
	touch      func()       // reports that the faults changed

	// Of the goroutine that starts the provider again.
	began    time.Time   // the provider's last start
	failures []time.Time // of the last minute
	attempt  int

	retired atomic.Bool
	// the first reason for which it ended or was refused; nil before
	firstFailure atomic.Pointer[error]
	restReason   atomic.Pointer[error]     // why it waits to be started again; nil while it runs
	startsAt     atomic.Pointer[time.Time] // until when it waits; nil while it runs
	gaveUpReason atomic.Pointer[error]
	fileFaults   atomic.Pointer[[]configs.Fault] // of the files that it consists of
	bindError    atomic.Pointer[error]           // why it is not bound
	awayReason   atomic.Pointer[error]           // why it offers nothing for now; nil while it does
}

// start runs a version of a provider. When the new unit is bound, it takes the place of the units
// that it replaces.
func (s *Supervisor) start(p *configs.Provider, key placementKey, replaces []*unit) *unit {
	session := key.session
	spec := gateway.PassSpec{
		Trust: gateway.TrustProject, Session: session, At: key.at,
		All:    session == "" && p.Sessions.Mode == configs.SessionsAll,
		Grants: p.Grants, Tools: gateway.ToolPolicy(p.Rules), Name: p.ExpectedName(),
		Owner: ownerOf(p), Own: p.IsOwn(), Model: p.IsOwn(),
	}
	if p.StartsItself() {
		spec.Trust = gateway.TrustExternal
		if p.Project == "" { // another project's of this name has another
			spec.Token = s.connectToken(p.Name)
		}
	}
	if p.StartsItself() || p.Project != "" && session == "" {
		spec.Match = sessionFilter(p)
		spec.MatchLabels = p.Sessions.CWD == "" && p.Sessions.Host == "" && p.Sessions.Below == ""
	}
	u := &unit{
		spec: p, launch: s.launch[p.Kind], out: s.output(p.Name), units: s.units.Go,
		over: s.units.Done, isQuiesced: &s.isQuiesced, touch: s.o.Gateway.Touch,
	}
	spec.Refused, spec.Bound = u.setTrouble, s.wakeLoop
	for _, old := range replaces {
		spec.Replaces = append(spec.Replaces, old.pass)
	}
	u.pass = s.o.Gateway.Issue(spec)
	u.ctx, u.cancel = context.WithCancel(s.unitCtx)
	u.run = Run{Provider: u.spec, Workdir: cmp.Or(p.Project, s.o.Files.Workdir), URL: s.url,
		Token: u.pass.Token(), Session: cmp.Or(session, providers.AllSessions), Line: u.out.line,
		Faults:  func(faults []configs.Fault) { u.fileFaults.Store(&faults); s.o.Gateway.Touch() },
		Trouble: u.setTrouble, Away: u.setAway, Ended: u.resume}
	s.units.Add(1)
	go u.keepRunning()
	return u
}

// ownerOf returns the owner of a provider's name: the directory of its file.
func ownerOf(p *configs.Provider) string { return filepath.Dir(p.File) }

// sessionFilter returns a function that reports whether a provider serves a session.
func sessionFilter(p *configs.Provider) func(adminapi.Session) bool {
	return func(v adminapi.Session) bool { return p.Sessions.Match(v.Label, v.CWD, v.Host) }
}

// checkTrusted returns why a project's provider may not be started: its files are not those that
// the user trusted.
func (u *unit) checkTrusted() error {
	if u.spec.Project == "" {
		return nil
	}
	return configs.Unchanged(u.spec.Project, u.spec.File)
}

// keepRunning runs the provider until the unit is stopped, or the provider fails too often.
func (u *unit) keepRunning() {
	for {
		u.began = time.Now()
		if err := u.checkTrusted(); err != nil {
			u.giveUp(err)
			return
		}
		err := u.launch(u.ctx, &u.run)
		if errors.Is(err, ErrDetached) {
			return
		}
		if !u.rest(err) {
			return
		}
	}
}

// resume goes on with a provider that was detached and has ended.
func (u *unit) resume(err error) {
	go func() {
		if u.rest(err) {
			u.keepRunning()
		}
	}()
}

// end ends the unit, once.
func (u *unit) end() {
	u.cancel()
	u.pass.Revoke()
	u.over()
}

// rest waits until a provider that has ended is started again. It returns false when it never is;
// the unit has ended then.
func (u *unit) rest(err error) bool {
	if u.ctx.Err() != nil || u.retired.Load() || u.isQuiesced.Load() {
		u.end()
		return false
	}
	if err == nil {
		err = fmt.Errorf("it ended by itself")
	}
	now := time.Now()
	for len(u.failures) > 0 && now.Sub(u.failures[0]) >= failureSpan {
		u.failures = u.failures[1:]
	}
	if why := u.trouble(); why != nil { // this is the reason why it ended
		err = why
	}
	u.failures = append(u.failures, now)
	u.noteFailure(err)
	if len(u.failures) >= maxFailures {
		u.giveUp(fmt.Errorf("not started again after %d failures in a minute, the last: %w",
			maxFailures, err))
		return false
	}
	if now.Sub(u.began) >= failureSpan {
		u.attempt = 0
	}
	wait := backoff(u.attempt)
	u.attempt++
	err = fmt.Errorf("%w; started again in %s", err, wait.Round(time.Millisecond))
	startsAt := time.Now().Add(wait).UTC()
	u.startsAt.Store(&startsAt)
	u.restReason.Store(&err)
	u.out.warn(err.Error())
	u.touch()
	if chans.Sleep(u.ctx, wait) != nil {
		u.end()
		return false
	}
	u.restReason.Store(nil)
	u.startsAt.Store(nil)
	u.touch()
	return true
}

// giveUp records why the provider is not started again. The unit ends when it is stopped.
func (u *unit) giveUp(err error) {
	u.noteFailure(err)
	u.gaveUpReason.Store(&err)
	u.out.warn(err.Error())
	u.touch()
	u.pass.Revoke()
	context.AfterFunc(u.ctx, u.end)
}

// noteFailure keeps the first reason for which the unit ended or was refused.
func (u *unit) noteFailure(err error) { u.firstFailure.CompareAndSwap(nil, &err) }

// backoff doubles from 0.2 s to 30 s. A random part of up to a quarter is subtracted.
func backoff(attempt int) time.Duration {
	d := firstWait << min(attempt, 10)
	d = min(d, longestWait)
	return max(firstWait, d-rand.N(d/4)) //nolint:gosec // the number is no secret
}

// isBound reports whether the provider was ever bound.
func (u *unit) isBound() bool {
	return u != nil && u.pass.IsBound()
}

// failure returns why the unit gave up, or nil.
func (u *unit) failure() error {
	if u == nil {
		return nil
	}
	return load(&u.gaveUpReason)
}

// faults returns the faults of the files that the provider consists of.
func (u *unit) faults() []configs.Fault {
	if u == nil {
		return nil
	}
	return load(&u.fileFaults)
}

// trouble returns the error that keeps the unit from being bound, or nil.
func (u *unit) trouble() error {
	if u == nil || u.isBound() || u.failure() != nil {
		return nil
	}
	return load(&u.bindError)
}

// load returns what was stored last, or the zero value.
func load[T any](p *atomic.Pointer[T]) (v T) {
	if stored := p.Load(); stored != nil {
		v = *stored
	}
	return v
}

func (u *unit) setTrouble(err error) {
	u.bindError.Store(&err)
	u.noteFailure(err)
	u.touch()
}

func (u *unit) setAway(err error) {
	u.awayReason.Store(&err)
	u.touch()
}

// stop ends the unit at once. It does not wait for the end.
func (u *unit) stop() {
	if u != nil {
		u.pass.Revoke() // remove its tools from sessions before another unit takes its place
		u.cancel()
	}
}

// retire removes the unit's offers from the sessions, and ends the unit when its running calls have
// ended. It does not wait for that.
func (u *unit) retire() {
	u.retired.Store(true)
	done := u.pass.Retire()
	u.units(func() {
		done(u.ctx)
		u.cancel()
	})
}
